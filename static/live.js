// Keeps an incident's page as the database is. The socket only says how far that is; what is shown is fetched from the
// server, rendered there. Without the socket the page asks every five seconds. When it cannot know, it says so.
import { everyTick, tick, tPlus, words } from "./clock.js";
import { heard, sample, serverNow } from "./servertime.js";
import { busy, replace } from "./slots.js";
import { aimed, held } from "./steady.js";

const STALE_MS = 25_000; // without proof that the page is up to date
const SILENT_MS = 15_000; // the server beats every 10 s: longer than this and the connection is dead
const RESYNC_MS = 60_000;
const POLL_MS = 5_000;
const TRIES = 3; // sockets that do not open before the page polls
const NOTICE_MS = 8_000;
const SHUT = {
  out: "You are signed out. Your note is not sent: sign in in another tab, then send it.",
  gone: "You may not see this incident any more. Your note is not sent: copy it, then reload the page.",
};

const root = document.getElementById("live");
const part = (name) => document.querySelector(`[data-live=${name}]`);
const now = () => performance.now();
const address = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws/incidents/${root.dataset.incident}`;

let socket = null;
let failures = 0; // sockets in a row that did not open
let retry = 0; // timers
let poll = 0;
let frameAt = now(); // the last frame of this socket
let freshAt = now(); // when the page was last known to be as the database is
let syncedAt = -Infinity;
let wanted = Number(root.dataset.seq);
let fetching = false;
let catching = false; // after a reconnect: say what came meanwhile
let caught = 0;
let noticeAt = -Infinity;
let shut = ""; // which of SHUT, while a note in the field keeps this page from being loaded anew
let bannerSays = "";
const owed = new Map(); // slots that wait for somebody to finish typing, or to point

const have = () => Number(root.dataset.seq);

// Once: the sign-in page, or what the server has to say about this page. Not over a note that nobody has sent.
function reload(why) {
  if (document.querySelector("[data-note] textarea")?.value.trim()) {
    shut = why;
    return;
  }
  const last = Number(sessionStorage.getItem("live-reload") || 0);
  if (Math.abs(Date.now() - last) < 30_000) return;
  sessionStorage.setItem("live-reload", Date.now());
  leave();
  location.reload();
}

function show(slots) {
  for (const [name, html] of Object.entries(slots)) owed.set(name, html);
  settle();
}

function settle() {
  for (const [name, html] of owed) {
    const place = root.querySelector(`[data-slot="${CSS.escape(name)}"]`);
    if (place && (busy(place) || held(place))) continue;
    if (place) {
      replace(place, html);
      aimed(place);
    }
    owed.delete(name);
  }
  tick();
}

async function ask() {
  const sent = now();
  const url = `${root.dataset.after}?seq=${have()}`;
  const options = { headers: { Accept: "application/json" }, redirect: "manual", signal: AbortSignal.timeout(10_000) };
  const answer = await fetch(url, options);
  if (answer.type === "opaqueredirect" || answer.status === 401) reload("out");
  if ([403, 404].includes(answer.status)) reload("gone");
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  const news = await answer.json();
  shut = "";
  sample(sent, Date.parse(news.now), now());
  if (news.seq > have()) {
    root.dataset.seq = news.seq;
    show(news.html);
    if (catching) caught += news.count;
  }
  freshAt = now();
}

// One fetch at a time, until the page has what is wanted. A failed one is repeated by the next frame or tick.
async function catchUp() {
  if (fetching) return;
  fetching = true;
  try {
    let before;
    do {
      before = have();
      await ask();
    } while (wanted > have() && have() > before);
    if (caught) tell(`caught up ${caught} event${caught === 1 ? "" : "s"}`);
    caught = 0;
    catching = false;
  } catch {
    // The server is away or answers nonsense: what is shown stays, and grows stale.
  } finally {
    fetching = false;
    look();
  }
}

function tell(text) {
  part("notice").textContent = text;
  part("notice").classList.toggle("visually-hidden", !text);
  noticeAt = now();
}

const KINDS = { hello: reached, seq: reached, beat: reached, pong: (frame) => sample(frame.c, frame.s, now()) };

function reached(frame) {
  shut = "";
  if (heard(Date.parse(frame.now))) sync();
  wanted = Math.max(wanted, frame.seq);
  if (wanted > have()) catchUp();
  else {
    freshAt = now();
    catching = false;
  }
}

function onFrame(event) {
  frameAt = now();
  let frame = null;
  try {
    frame = JSON.parse(event.data);
  } catch {
    return;
  }
  if (Object.hasOwn(KINDS, frame?.kind)) KINDS[frame.kind](frame);
  look();
}

function connect() {
  leave();
  const one = new WebSocket(address);
  let opened = false;
  socket = one;
  frameAt = now();
  one.onopen = () => {
    opened = true;
    frameAt = now();
    failures = 0;
    clearInterval(poll);
    poll = 0;
    sync();
  };
  one.onmessage = (event) => one === socket && onFrame(event);
  one.onclose = (event) => {
    if (one !== socket) return;
    socket = null;
    catching = true;
    if (event.code === 4401) reload("out");
    if (event.code === 4404) reload("gone");
    if (!opened) failed();
    const longest = Math.min(8_000, 1_000 * 2 ** failures);
    retry = setTimeout(connect, 500 + Math.random() * (longest - 500));
  };
}

function failed() {
  failures += 1;
  catchUp(); // the page itself may still be answered, or say that nobody is signed in
  if (failures >= TRIES && !poll) poll = setInterval(catchUp, POLL_MS);
}

// Without waiting for the other side: a connection that died says nothing any more.
function leave() {
  clearTimeout(retry);
  const old = socket;
  socket = null;
  old?.close();
}

// Several questions, of which the quickest answer counts.
function sync() {
  syncedAt = now();
  for (let i = 0; i < 4; i += 1) {
    setTimeout(() => {
      if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ kind: "ping", c: now() }));
    }, i * 150);
  }
}

function setActions(on) {
  for (const button of root.querySelectorAll("[data-needs-live] button")) {
    if (!on && !button.disabled) {
      button.disabled = true;
      button.dataset.offline = "";
    } else if (on && "offline" in button.dataset) {
      button.disabled = false;
      delete button.dataset.offline;
    }
  }
}

function silence() {
  const counter = document.createElement("span");
  counter.setAttribute("role", "timer"); // counts on without being read out each second
  const since = document.querySelector("[data-since]")?.dataset.since;
  const at = serverNow() - (now() - freshAt);
  const shown = since ? tPlus(since, at) : `${new Date(at).toISOString().slice(11, 19)} UTC`;
  return ["Disconnected for ", counter, `. This is how it was at ${shown}; actions are off, notes are not.`];
}

function setStale(stale) {
  const banner = part("banner");
  document.body.dataset.live = stale ? "stale" : "live";
  setActions(!stale);
  const says = shut || (stale ? "silence" : "");
  if (says !== bannerSays) {
    bannerSays = says;
    banner.hidden = !says;
    banner.replaceChildren(...(shut ? [SHUT[shut]] : stale ? silence() : []));
  }
  const counter = banner.querySelector("[role=timer]");
  if (counter) counter.textContent = words(now() - freshAt);
}

// Everything that follows from the time that passed.
function look() {
  const age = now() - freshAt;
  const stale = Boolean(shut) || age >= STALE_MS;
  setStale(stale);
  const chip = part("chip");
  const text = stale ? "stale" : `live · ${age < 1_000 ? (age / 1_000).toFixed(1) : Math.floor(age / 1_000)} s`;
  if (chip.textContent !== text) chip.textContent = text;
  chip.hidden = false;
  if (owed.size) settle();
  if (now() - noticeAt > NOTICE_MS && part("notice").textContent) tell("");
  if (socket && now() - frameAt > SILENT_MS) {
    catching = true;
    if (socket.readyState !== WebSocket.OPEN) failed();
    connect();
  }
  if (now() - syncedAt > RESYNC_MS) sync();
}

function back() {
  if (document.visibilityState === "hidden") return;
  if (socket) sync();
  else connect();
  look();
}

const loaded = performance.getEntriesByType("navigation")[0]?.responseStart ?? now();
heard(Date.parse(root.dataset.now), loaded);
tick();
connect();
look();
everyTick(look);
// Somebody wrote a note here: the answer said how far the timeline is now.
document.addEventListener("golden15:told", (event) => {
  wanted = Math.max(wanted, event.detail);
  if (wanted > have()) catchUp();
});
document.addEventListener("visibilitychange", back);
window.addEventListener("online", back);
window.addEventListener("pageshow", (event) => event.persisted && back());
window.addEventListener("pagehide", leave);
