// Forms of every page: a click that is one too many sends nothing, and who signs out leaves no unsent note behind.

const AGAIN_MS = 5_000; // without an answer by then, the person may press again

// The mark lets a rendering that comes meanwhile keep its button locked (slots.js).
export function lock(button, until = performance.now() + AGAIN_MS) {
  button.disabled = true;
  button.dataset.locked = until;
  setTimeout(() => {
    button.disabled = false;
    delete button.dataset.locked;
  }, until - performance.now());
}

// Only the notes: that keys are off in this browser stays (keys.js).
function forget() {
  for (const place of Object.keys(sessionStorage)) if (place.startsWith("note-")) sessionStorage.removeItem(place);
}

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (event.defaultPrevented || form.method !== "post") return; // a script sends it, or it closes a dialog
  if ("signsOut" in form.dataset) forget();
  // Not at once: a button that is disabled by now would not send the answer that it carries.
  if (event.submitter) setTimeout(() => lock(event.submitter), 0);
});
