// Moves the server's own rendering of the fleet into the page while a check runs. It builds no HTML of its own.

const place = document.getElementById("fleet-state");
const EVERY_MS = 1000;

function busy() {
  // Somebody who types a reason or pastes a list must not lose it.
  const active = document.activeElement;
  return Boolean(active && place.contains(active) && active.matches("input, textarea") && active.value);
}

async function refresh() {
  const answer = await fetch(place.dataset.url, { headers: { Accept: "text/html" } });
  if (!answer.ok || answer.redirected) return false;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (busy()) return true;
  const focused = document.activeElement?.closest?.("[data-key]")?.dataset.key;
  const scrolled = place.querySelector("[data-key=nodes] .scroll")?.scrollLeft ?? 0;
  const opened = [...place.querySelectorAll("details")].map((details) => details.open);
  place.replaceChildren(...page.body.childNodes);
  place.querySelectorAll("details").forEach((details, i) => { details.open = opened[i] ?? details.open; });
  const table = place.querySelector("[data-key=nodes] .scroll");
  if (table) table.scrollLeft = scrolled;
  if (focused) place.querySelector(`[data-key="${focused}"] a, [data-key="${focused}"] button`)?.focus({ preventScroll: true });
  return true;
}

async function follow() {
  while (place.querySelector("[data-running]")) {
    await new Promise((done) => setTimeout(done, EVERY_MS));
    try {
      await refresh();
    } catch {
      // The server is away for a moment; the next round asks again.
    }
  }
}

follow();
