// Moves the server's own rendering into a place of the page. It builds no HTML of its own.

// Somebody who types a reason or pastes a list must not lose it.
export function busy(place) {
  const active = document.activeElement;
  return Boolean(active && place.contains(active) && active.matches("input, textarea") && active.value);
}

const attribute = (name, value) => `[${name}="${CSS.escape(value)}"]`;

// How to find again what has the focus: the same row or part, the same link, field or button, else the first of its kind.
function focusedIn(place) {
  const active = document.activeElement;
  if (!active || active === place || !place.contains(active)) return [];
  const key = active.closest("[data-key]")?.dataset.key;
  const row = key ? attribute("data-key", key) : "";
  const same = ["id", "href", "aria-label", "name"]
    .filter((name) => active.getAttribute(name))
    .map((name) => `${row} ${active.localName}${attribute(name, active.getAttribute(name))}`);
  return row ? [...same, `${row} ${active.localName}`, `${row} a, ${row} button`] : same;
}

// What was typed and not sent. It returns into the same form only: one that asks the same of the same things, which a form
// may name (data-about) where its hidden values change with every piece of news.
function typedIn(place) {
  const form = (one) => one.form?.dataset.about ?? (one.form && JSON.stringify([one.form.action, ...[...one.form.querySelectorAll("[type=hidden]:not([name=csrfmiddlewaretoken])")].map((hidden) => hidden.value)]));
  return [...place.querySelectorAll("input[name]:not([type=hidden]), textarea[name]")].map((one) => [form(one) + one.name, one]);
}

// Replaces the children of `place`. Focus, typed text, open details and the scroll of `.scroll` boxes stay as they were.
export function replace(place, html) {
  const fresh = new DOMParser().parseFromString(html, "text/html");
  const focused = focusedIn(place);
  const named = () => [...place.querySelectorAll("details")].map((one, i) => [one.dataset.keep ?? i, one]);
  const opened = new Map(named().map(([name, one]) => [name, one.open]));
  const scrolled = [...place.querySelectorAll(".scroll")].map((one) => [one.scrollLeft, one.scrollTop]);
  const typed = new Map(typedIn(place).filter(([, one]) => one.value !== one.defaultValue).map(([name, one]) => [name, one.value]));
  place.replaceChildren(...fresh.body.childNodes);
  named().forEach(([name, one]) => { one.open = opened.get(name) ?? one.open; });
  place.querySelectorAll(".scroll").forEach((one, i) => { [one.scrollLeft, one.scrollTop] = scrolled[i] ?? [0, 0]; });
  typedIn(place).forEach(([name, one]) => { one.value = typed.get(name) ?? one.value; });
  const found = focused.map((selector) => place.querySelector(selector)).find(Boolean);
  found?.focus({ preventScroll: true });
}
