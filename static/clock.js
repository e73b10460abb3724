// Counts the page's times on: [data-due] as "4:27 left" or "+1:12 over" (or the part of it that data-part names),
// [data-since] as "T+6:41", [data-age] as "3:12", a bar from [data-from] to [data-until]. One timer for all.
import { serverNow } from "./servertime.js";

const EVERY_MS = 250;

// 4:27, or 1:04:27 above an hour: as incidents/clock.py has it.
export function words(ms) {
  const seconds = Math.floor(ms / 1000);
  const two = (n) => String(n).padStart(2, "0");
  const [h, m, s] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
  return h ? `${h}:${two(m)}:${two(s)}` : `${m}:${two(s)}`;
}

export function tPlus(since, at) {
  const ms = at - Date.parse(since);
  return ms < 0 ? `T-${words(-ms)}` : `T+${words(ms)}`;
}

function left(due, at, part) {
  const ms = Date.parse(due) - at;
  const [clock, word] = ms < 0 ? [`+${words(-ms)}`, "over"] : [words(ms), "left"];
  return { clock, word }[part] ?? `${clock} ${word}`;
}

function share(bar, at) {
  const [from, until] = [Date.parse(bar.dataset.from), Date.parse(bar.dataset.until)];
  return until > from ? Math.min(100, Math.max(0, (100 * (at - from)) / (until - from))) : 100;
}

function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function tick() {
  const now = serverNow();
  for (const one of document.querySelectorAll("[data-due]")) {
    put(one, left(one.dataset.due, now, one.dataset.part));
    one.toggleAttribute("data-over", Date.parse(one.dataset.due) < now);
  }
  for (const one of document.querySelectorAll("[data-since]")) put(one, tPlus(one.dataset.since, now));
  for (const one of document.querySelectorAll("[data-age]")) put(one, words(Math.max(0, now - Date.parse(one.dataset.age))));
  for (const bar of document.querySelectorAll("[data-until]")) bar.value = share(bar, now);
}

const others = [];
// Runs with every tick of the page's only timer.
export function everyTick(work) {
  others.push(work);
}

setInterval(() => {
  tick();
  for (const work of others) work();
}, EVERY_MS);
