// The swim lanes of a review: the server's figure in the page's own colours, with labels that fit. Without this script,
// and on a phone, the table has the same.
const place = document.getElementById("lanes");
const table = document.querySelector("details.twin");
const wide = matchMedia("(min-width: 761px)");
const light = matchMedia("(prefers-color-scheme: light)");
const FONT_PX = 12;
const GAP_PX = 8; // between a label and what is beside it
const STEPS = [5, 10, 15, 30, 60, 120, 180, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400, 604800]; // s
const TICK_PX = 80; // at least, from one tick to the next
const HOVER_LINE = 80; // characters

const style = () => getComputedStyle(document.documentElement);
const token = (name) => style().getPropertyValue(name).trim();
// Nodes' words: Plotly reads tags in texts.
const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

const pencil = document.createElement("canvas").getContext("2d");

function widthOf(text) {
  pencil.font = `${FONT_PX}px ${token("--font")}`;
  return pencil.measureText(text).width;
}

// As much of a label as there is room for, "" when that is next to nothing.
function fitting(label, room) {
  if (widthOf(label) <= room) return label;
  let [low, high] = [0, label.length];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (widthOf(`${label.slice(0, middle).trimEnd()}…`) <= room) low = middle;
    else high = middle - 1;
  }
  return low < 3 ? "" : `${label.slice(0, low).trimEnd()}…`;
}

function tPlus(seconds) {
  const all = Math.abs(Math.round(seconds));
  const [hours, minutes, rest] = [Math.floor(all / 3600), Math.floor(all / 60) % 60, String(all % 60).padStart(2, "0")];
  const time = hours ? `${hours}:${String(minutes).padStart(2, "0")}:${rest}` : `${minutes}:${rest}`;
  return `${seconds < 0 ? "−" : ""}${time}`;
}

// What depends on how much of the time is shown, and on how wide that is.
function labels(data, [from, to], width) {
  const perSecond = width / (to - from);
  return data.map((trace) => {
    if (trace.type === "bar") {
      return trace.customdata.map(([label], i) => {
        const begin = Math.max(trace.base[i], from);
        const end = Math.min(trace.base[i] + trace.x[i], to);
        // A bar that begins outside of what is shown has its text outside too.
        return trace.base[i] < from ? "" : plain(fitting(label, (end - begin) * perSecond - GAP_PX));
      });
    }
    return trace.customdata.map(([label], i) => {
      const next = Math.min(to, ...trace.x.filter((x, j) => trace.y[j] === trace.y[i] && (x > trace.x[i] || (x === trace.x[i] && j > i))));
      return plain(fitting(label, (next - trace.x[i]) * perSecond - 3 * GAP_PX));
    });
  });
}

function ticks([from, to], width) {
  const step = STEPS.find((one) => (one / (to - from)) * width >= TICK_PX) ?? STEPS.at(-1);
  const values = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) values.push(at);
  return { tickvals: values, ticktext: values.map(tPlus) };
}

function broken(text) {
  return plain(text).split("\n").flatMap((line) => line.match(new RegExp(`.{1,${HOVER_LINE}}(?:\\s|$)|.{1,${HOVER_LINE}}`, "g")) ?? [""]).join("<br>");
}

const coloured = (value) => (Array.isArray(value) ? value.map(coloured) : String(value).startsWith("--") ? token(value) : value);

function drawn(figure, range, width) {
  const words = labels(figure.data, range, width);
  const font = { family: token("--font"), size: FONT_PX, color: token("--ink") };
  const data = figure.data.map((trace, i) => ({
    ...trace,
    marker: { ...trace.marker, color: coloured(trace.marker.color) },
    text: words[i],
    textfont: font,
    insidetextfont: font,
    hovertext: trace.customdata.map(([, says]) => broken(says)),
    hoverinfo: "text",
  }));
  const axis = { gridcolor: token("--line"), linecolor: token("--line"), tickfont: { ...font, color: token("--ink-3") } };
  const { xaxis, yaxis } = figure.layout;
  const layout = {
    ...figure.layout,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font,
    hoverlabel: { align: "left", bgcolor: token("--panel-2"), bordercolor: token("--line"), font },
    xaxis: { ...axis, ...xaxis, ...ticks(range, width), range: [...range] },
    yaxis: { ...axis, ...yaxis, tickfont: { ...font, color: token("--ink-2") }, ticklabelstandoff: 6 },
  };
  return [data, layout];
}

function loaded(address) {
  return new Promise((resolve, reject) => {
    const script = Object.assign(document.createElement("script"), { src: address, onload: resolve, onerror: reject });
    document.head.append(script);
  });
}

async function show() {
  const figure = JSON.parse(document.getElementById("lanes-data").textContent);
  await loaded(place.dataset.plotly);
  const { Plotly } = window;
  place.hidden = false;
  table.open = false;
  let range = figure.layout.xaxis.range;
  const width = () => place.clientWidth - figure.layout.margin.l - figure.layout.margin.r;
  const draw = () => Plotly.react(place, ...drawn(figure, range, width()), { displayModeBar: false, doubleClick: false });
  await draw();
  place.on("plotly_relayout", (change) => {
    const next = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
    if (next[0] === undefined) return;
    range = next.map(Number);
    draw();
  });
  place.on("plotly_doubleclick", () => {
    range = figure.layout.xaxis.range;
    draw();
  });
  new ResizeObserver(() => { if (place.clientWidth) draw(); }).observe(place.parentElement);
  light.addEventListener("change", draw);
}

let begun = false;

// The library is large: a phone does not fetch it.
function showWhereWide() {
  if (begun || !wide.matches) return;
  begun = true;
  show().catch(() => {
    place.hidden = true;
    table.open = true;
  });
}

wide.addEventListener("change", showWhereWide);
showWhereWide();
