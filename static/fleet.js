// Moves the server's own rendering of the fleet into the page while a check runs. It builds no HTML of its own.
import { busy, replace } from "./slots.js";

const place = document.getElementById("fleet-state");
const EVERY_MS = 1000;
const PATIENCE = 3; // rounds without an answer before the page says so

async function refresh() {
  const answer = await fetch(place.dataset.url, { headers: { Accept: "text/html" } });
  if (answer.redirected) {
    location.reload(); // signed out meanwhile: the server leads to the sign-in page
    return;
  }
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  const html = await answer.text();
  if (!busy(place)) replace(place, html);
}

function sayNoAnswer() {
  const line = place.querySelector(".check-line");
  if (line) line.textContent = "Golden15 does not answer; this is the last news";
}

async function follow() {
  let failures = 0;
  while (place.querySelector("[data-running]")) {
    await new Promise((done) => setTimeout(done, EVERY_MS));
    try {
      await refresh();
      failures = 0;
    } catch {
      failures += 1; // the server may be away for a moment; the next round asks again
      if (failures >= PATIENCE) sayNoAnswer();
    }
  }
}

follow();
