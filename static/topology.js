// The rail matrix: drawn by Plotly from what the server rendered into the page, moved over by mouse and keys. A cell says
// what it is by looking it up; a click or Enter opens its node's card, which the server renders.
import { replace } from "./slots.js";

const root = document.getElementById("live");
const box = document.getElementById("matrix");
const plot = box.querySelector("[data-plot]");
const cursor = box.querySelector(".cursor");
const says = document.getElementById("cell-says");
const slot = document.querySelector("[data-slot=topology_figure]");
const TOKENS = ["--ok", "--warn", "--bad", "--bad", "--unknown"]; // by the number of the state
const SHARES = [0.3, 0.9, 1, 1, 0.16]; // how much of its colour a cell has; the rest is the panel's
const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1], Home: [-Infinity, 0], End: [Infinity, 0] };
const PATIENCE_MS = 10_000;

let figure = null;
let drawn = ""; // what was drawn last, as text, and how wide
let drawnWidth = 0;
let at = null; // [column, row] of the keyboard's cell
let asked = 0; // only the last click is answered

const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });

// Red, green and blue of a colour in any of CSS's words.
function rgb(colour) {
  canvas.fillStyle = colour;
  canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
}

const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function mixed(name, share) {
  const [one, other] = [rgb(token(name)), rgb(token("--panel"))];
  return `rgb(${one.map((part, i) => Math.round(part * share + other[i] * (1 - share))).join(",")})`;
}

function coloured({ data, layout }) {
  const colours = TOKENS.map((name, i) => mixed(name, SHARES[i]));
  const scale = colours.flatMap((colour, i) => [[i / colours.length, colour], [(i + 1) / colours.length, colour]]);
  const [heatmap, hatch, glyphs] = data;
  const across = (box.clientWidth - layout.margin.l) / heatmap.z[0].length;
  const narrow = across < 8; // then a shape is wider than its cell: it stands over it in the cell's own colour
  const shape = { size: narrow || glyphs.text.length < 200 ? 11 : 8, color: narrow ? glyphs.text.map((glyph) => token(glyph === "▲" ? "--warn" : "--bad")) : token("--bg") };
  const ink = token("--ink-3");
  // As many names below the columns as there is room for.
  const every = Math.ceil((layout.xaxis.tickvals.length * 64) / Math.max(64, box.clientWidth - layout.margin.l));
  const kept = (list) => list.filter((_, i) => i % every === 0);
  const names = { tickvals: kept(layout.xaxis.tickvals), ticktext: kept(layout.xaxis.ticktext) };
  const axis = (one) => ({ ...one, tickfont: { size: 11, color: ink }, color: ink });
  return {
    data: [
      { ...heatmap, colorscale: scale, xgap: narrow ? 0.5 : heatmap.xgap },
      { ...hatch, fillpattern: { ...hatch.fillpattern, fgcolor: token("--unknown"), bgcolor: "rgba(0,0,0,0)" } },
      { ...glyphs, textfont: shape },
    ],
    layout: {
      ...layout,
      width: box.clientWidth,
      xaxis: axis({ ...layout.xaxis, ...names }),
      yaxis: axis(layout.yaxis),
      shapes: layout.shapes.map((shape) => ({ ...shape, line: { color: token("--ink"), width: 2 } })),
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: token("--font") || "sans-serif", color: ink },
    },
  };
}

const rowAt = (y) => figure?.rows[y] ?? null;
const cellAt = ([x, y]) => rowAt(y)?.cells[x] ?? null;
const nodeAt = ([x, y]) => figure.columns[rowAt(y).block][x];

function described(place) {
  const [hca, end, , word, why] = cellAt(place);
  const row = rowAt(place[1]);
  return `${nodeAt(place)} ${hca || row.label}${end ? ` → ${end}` : ""}: ${word}${why ? `. ${why}` : ""}`;
}

// Where a cell is, in pixels of the box: the axes' ranges and margins are ours.
function outline([x, y]) {
  const { layout } = figure;
  const across = (box.clientWidth - layout.margin.l - layout.margin.r) / (layout.xaxis.range[1] - layout.xaxis.range[0]);
  const down = (layout.height - layout.margin.t - layout.margin.b) / figure.rows.length;
  return { left: layout.margin.l + x * across, top: layout.margin.t + y * down, width: across, height: down };
}

function point(place) {
  const shown = Boolean(place && cellAt(place));
  cursor.hidden = !shown;
  if (!shown) return;
  for (const [name, value] of Object.entries(outline(place))) cursor.style[name] = `${value}px`;
  says.textContent = described(place);
}

function under(event) {
  const frame = box.getBoundingClientRect();
  const { left, top, width, height } = outline([0, 0]);
  return [Math.floor((event.clientX - frame.left - left) / width), Math.floor((event.clientY - frame.top - top) / height)];
}

async function draw(force = false) {
  const source = slot.querySelector("script");
  box.hidden = !source;
  if (!source || (!force && source.textContent === drawn)) return;
  drawn = source.textContent;
  drawnWidth = box.clientWidth;
  figure = JSON.parse(drawn);
  const { data, layout } = coloured(figure);
  const began = performance.now();
  await window.Plotly.react(plot, data, layout, { displayModeBar: false, responsive: false, staticPlot: true });
  box.dataset.drawn = Number(box.dataset.drawn ?? 0) + 1;
  box.dataset.ms = Math.round(performance.now() - began);
  if (document.activeElement === box) point(at);
}

// The card of a node, or of one of its ports; from now on the page's news is about it.
async function openCard(node, port = "") {
  asked += 1;
  const mine = asked;
  const place = document.querySelector("[data-slot=topology_card]");
  const name = port ? `${node}:${port}` : node;
  const query = new URLSearchParams(port ? { node, port } : { node });
  const address = `${box.dataset.after}/${encodeURIComponent(name)}`;
  try {
    const answer = await fetch(`${address}?seq=0`, { signal: AbortSignal.timeout(PATIENCE_MS), redirect: "error" });
    if (!answer.ok) throw new Error(answer.status);
    const news = await answer.json();
    if (mine !== asked) return;
    replace(place, news.html.topology_card);
    root.dataset.after = address;
    history.replaceState(null, "", `?${query}`);
    place.querySelector("h2")?.scrollIntoView({ block: "nearest" });
  } catch {
    if (mine === asked) location.search = query;
  }
}

function openAt(place) {
  const cell = cellAt(place);
  if (!cell) return;
  const number = cell[0].match(/ port (\d+)$/)?.[1] ?? "1";
  openCard(nodeAt(place), cell[0] ? `${cell[0].replace(/ port \d+$/, "")}:${number}` : "");
}

function step([dx, dy]) {
  const [rows, columns] = [figure.rows.length, figure.layout.xaxis.range[1] + 0.5];
  let [x, y] = at ?? [0, 0];
  if (!at) return [0, 0];
  if (!Number.isFinite(dx)) return [dx < 0 ? 0 : rowAt(y).cells.length - 1, y];
  do {
    x += dx;
    y += dy;
    if (x < 0 || y < 0 || x >= columns || y >= rows) return at;
  } while (!cellAt([x, y]));
  return [x, y];
}

box.addEventListener("keydown", (event) => {
  if (!figure || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key in STEPS) at = step(STEPS[event.key]);
  else if (event.key === "Enter" && at) openAt(at);
  else return;
  event.preventDefault();
  point(at);
});
box.addEventListener("focus", () => { at ??= first(); point(at); });
box.addEventListener("blur", () => { cursor.hidden = true; });
box.addEventListener("pointermove", (event) => { if (figure) point(under(event)); });
box.addEventListener("pointerleave", () => { point(document.activeElement === box ? at : null); });
box.addEventListener("click", (event) => {
  if (!figure || !cellAt(under(event))) return;
  at = under(event);
  openAt(at);
});

// Where the keyboard begins: at the first cell that is not as expected.
function first() {
  for (const wanted of [(n) => n > 0 && n < 4, () => true]) {
    for (const [y, row] of figure.rows.entries()) {
      const x = row ? row.cells.findIndex((cell) => cell && wanted(cell[2])) : -1;
      if (x >= 0) return [x, y];
    }
  }
  return [0, 0];
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[data-node]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  openCard(link.dataset.node, link.dataset.port);
});

new MutationObserver(() => draw()).observe(slot, { childList: true, subtree: true, characterData: true });
new ResizeObserver(() => { if (figure && box.clientWidth && box.clientWidth !== drawnWidth) draw(true); }).observe(box);
matchMedia("(prefers-color-scheme: light)").addEventListener("change", () => draw(true));
draw();
