// Moves the server's own rendering of the fleet into the page while a check runs. It builds no HTML of its own.
import { refresh } from "./refresh.js";

const place = document.getElementById("fleet-state");
const EVERY_MS = 1000;
const PATIENCE = 3; // rounds without an answer before the page says so

function sayNoAnswer() {
  const line = place.querySelector(".check-line");
  if (line) line.textContent = "Golden15 does not answer; this is the last news";
}

async function follow() {
  let failures = 0;
  while (place.querySelector("[data-running]")) {
    await new Promise((done) => setTimeout(done, EVERY_MS));
    try {
      await refresh(place);
      failures = 0;
    } catch {
      failures += 1; // the server may be away for a moment; the next round asks again
      if (failures >= PATIENCE) sayNoAnswer();
    }
  }
}

follow();
