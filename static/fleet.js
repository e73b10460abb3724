// Moves the server's own rendering of the fleet into the page while a check runs. It builds no HTML of its own.

const place = document.getElementById("fleet-state");
const EVERY_MS = 1000;
const PATIENCE = 3; // rounds without an answer before the page says so

function busy() {
  // Somebody who types a reason or pastes a list must not lose it.
  const active = document.activeElement;
  return Boolean(active && place.contains(active) && active.matches("input, textarea") && active.value);
}

async function refresh() {
  const answer = await fetch(place.dataset.url, { headers: { Accept: "text/html" } });
  if (answer.redirected) {
    location.reload(); // signed out meanwhile: the server leads to the sign-in page
    return;
  }
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (busy()) return;
  const focused = document.activeElement?.closest?.("[data-key]")?.dataset.key;
  const scrolled = place.querySelector("[data-key=nodes] .scroll")?.scrollLeft ?? 0;
  const opened = [...place.querySelectorAll("details")].map((details) => details.open);
  place.replaceChildren(...page.body.childNodes);
  place.querySelectorAll("details").forEach((details, i) => { details.open = opened[i] ?? details.open; });
  const table = place.querySelector("[data-key=nodes] .scroll");
  if (table) table.scrollLeft = scrolled;
  if (focused) place.querySelector(`[data-key="${focused}"] a, [data-key="${focused}"] button`)?.focus({ preventScroll: true });
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
