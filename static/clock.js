// Counts the page's times on: [data-due] as "4:27 left" or "+1:12 over", [data-since] as "T+6:41". One timer for all.
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

function left(due, at) {
  const ms = Date.parse(due) - at;
  return ms < 0 ? `+${words(-ms)} over` : `${words(ms)} left`;
}

function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function tick() {
  const now = serverNow();
  for (const one of document.querySelectorAll("[data-due]")) {
    put(one, left(one.dataset.due, now));
    one.toggleAttribute("data-over", Date.parse(one.dataset.due) < now);
  }
  for (const one of document.querySelectorAll("[data-since]")) put(one, tPlus(one.dataset.since, now));
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
