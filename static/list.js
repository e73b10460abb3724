// Keeps the list of incidents as the database is: asks every five seconds, and says so when it gets no answer.
import { everyTick, tick, words } from "./clock.js";
import { refresh } from "./refresh.js";
import { heard, sample } from "./servertime.js";

const EVERY_MS = 5_000;
const STALE_MS = 15_000; // two answers missed and a third late

const place = document.getElementById("list");
const banner = document.getElementById("list-banner");
const chip = document.getElementById("list-chip");
const now = () => performance.now();
const said = () => Date.parse(place.querySelector("[data-now]").dataset.now);
let told = said(); // the server's time of what is shown
let freshAt = now();
let askedAt = now();
let asking = false;

async function ask() {
  if (asking) return;
  asking = true;
  askedAt = now();
  try {
    if (await refresh(place)) {
      told = said();
      sample(askedAt, told, now());
      freshAt = now();
      tick();
    }
  } catch {
    // What is shown stays, and grows stale.
  } finally {
    asking = false;
  }
}

function look() {
  if (document.visibilityState !== "hidden" && now() - askedAt >= EVERY_MS) ask();
  const age = now() - freshAt;
  const stale = age >= STALE_MS;
  document.body.dataset.live = stale ? "stale" : "live";
  const text = stale ? "stale" : `live · ${Math.floor(age / 1_000)} s`;
  if (chip.textContent !== text) chip.textContent = text;
  chip.hidden = false;
  if (stale && banner.hidden) {
    const counter = Object.assign(document.createElement("span"), { role: "timer" }); // not read out each second
    const at = new Date(told).toISOString().slice(11, 19);
    banner.replaceChildren("Golden15 has not answered for ", counter, `. This is the list as it was at ${at} UTC.`);
  }
  banner.hidden = !stale;
  if (stale) banner.querySelector("span").textContent = words(age);
}

heard(told, performance.getEntriesByType("navigation")[0]?.responseStart);
tick();
look();
everyTick(look);
document.addEventListener("visibilitychange", look);
window.addEventListener("pageshow", (event) => event.persisted && ask());
