// Nothing moves under a hand. Panels that may appear or grow (data-steady) wait while the mouse moves or presses among
// them, a few seconds at most; and a press that lands on what has only just appeared was aimed at something else.

const RESTS_MS = 800; // a mouse that has not moved so long points at nothing
const LONGEST_MS = 4_000; // news waits no longer than this
const AIM_MS = 600; // nobody reads and presses in less

const since = new Map(); // place -> when it began to wait
const shown = new Map(); // place -> what it is about, and since when
let movedAt = -Infinity;
let movedIn = null;

function moved(event) {
  movedAt = performance.now();
  movedIn = event.target.closest?.(".col") ?? null;
}

for (const kind of ["pointermove", "pointerdown", "pointerup"]) document.addEventListener(kind, moved, { passive: true });

const about = (place) => place.querySelector("[data-key]")?.dataset.key ?? "";

// Whether this place has to wait with its news.
export function held(place) {
  const now = performance.now();
  const steady = "steady" in place.dataset && place.closest(".col") === movedIn && now - movedAt < RESTS_MS;
  if (!steady || now - (since.get(place) ?? now) > LONGEST_MS) {
    since.delete(place);
    return false;
  }
  if (!since.has(place)) since.set(place, now);
  return true;
}

// This place has its news: from now on it may be about something else.
export function aimed(place) {
  if ("steady" in place.dataset && shown.get(place)?.about !== about(place)) {
    shown.set(place, { about: about(place), at: performance.now() });
  }
}

for (const place of document.querySelectorAll("[data-steady]")) shown.set(place, { about: about(place), at: -Infinity });

document.addEventListener("click", (event) => {
  const place = event.target.closest?.("button")?.closest("[data-steady]");
  if (!place || event.detail === 0 || performance.now() - shown.get(place).at > AIM_MS) return; // detail 0: by a key
  event.preventDefault();
  event.stopPropagation();
}, true);
