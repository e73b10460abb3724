// Moves the server's own rendering into a place of the page. It builds no HTML of its own.

import { lock } from "./forms.js";

export const parsed = (html) => new DOMParser().parseFromString(html, "text/html").body;

let pressed = null; // where the pointer is down
document.addEventListener("pointerdown", (event) => { pressed = event.target; }, true);
for (const kind of ["pointerup", "pointercancel"]) window.addEventListener(kind, () => { pressed = null; }, true);
// A menu may have swallowed the release.
document.addEventListener("pointermove", (event) => { if (!event.buttons) pressed = null; }, true);

// What a field held as it was rendered.
const initial = (one) => one.defaultValue ?? ([...one.options].find((option) => option.defaultSelected) ?? one.options[0])?.value;

// Somebody who types a reason, pastes a list or marks a text must not lose it.
export function busy(place) {
  if (pressed && place.contains(pressed)) return true;
  const active = document.activeElement;
  return Boolean(active && place.contains(active) && active.matches("input, textarea, select") && active.value !== initial(active));
}

const attribute = (name, value) => `[${name}="${CSS.escape(value)}"]`;

// How to find an element again in a later rendering: the same row or part, the same link, field or button, else the
// first of its kind.
function sameAs(one) {
  const key = one.closest("[data-key]")?.dataset.key;
  const row = key ? attribute("data-key", key) : "";
  const same = ["id", "href", "aria-label", "name", "data-hotkey"]
    .filter((name) => one.getAttribute(name))
    .map((name) => `${row} ${one.localName}${attribute(name, one.getAttribute(name))}`);
  return row ? [...same, `${row} ${one.localName}`, `${row} a, ${row} button`] : same;
}

// Asked now, answered later: the element itself, or what stands in its place by then.
export function remember(one) {
  const place = one.closest("[data-slot]") ?? document;
  const selectors = sameAs(one);
  const anew = () => [place, document].flatMap((where) => selectors.map((same) => where.querySelector(same))).find(Boolean);
  return () => (one.isConnected ? one : anew());
}

// What has the focus in there: where to find it again, and what of its text is marked.
function focusedIn(place) {
  const active = document.activeElement;
  if (!active || active === place || !place.contains(active)) return null;
  return { selectors: sameAs(active), marked: [active.selectionStart ?? null, active.selectionEnd ?? null] };
}

function focusAgain(place, { selectors, marked }) {
  const found = selectors.map((selector) => place.querySelector(selector)).find(Boolean);
  found?.focus({ preventScroll: true });
  if (marked[0] !== null && typeof found?.selectionStart === "number") found.setSelectionRange(...marked);
}

// The same form in another rendering: one that asks the same of the same things, which a form may name (data-about) where
// its hidden values change with every piece of news.
const formOf = (one) => one.form?.dataset.about ?? (one.form && JSON.stringify([one.form.action, ...[...one.form.querySelectorAll("[type=hidden]:not([name=csrfmiddlewaretoken])")].map((hidden) => hidden.value)]));

// What was typed and not sent. It returns into the same form only.
const typedIn = (place) => [...place.querySelectorAll("input[name]:not([type=hidden]), textarea[name], select[name]")].map((one) => [formOf(one) + one.name, one]);

// The buttons of forms. One that was pressed a moment ago stays locked: the news that made this rendering is not its answer.
const buttonsIn = (place) => [...place.querySelectorAll("form button")].map((one) => [JSON.stringify([formOf(one), one.name, one.value]), one]);

// A choice that is not offered any more is not made again.
const offers = (one, value) => value !== undefined && (!one.options || [...one.options].some((option) => option.value === value));

const TOKENS = "[name=csrfmiddlewaretoken]";

const TIMES = "[data-due], [data-since], [data-age], [data-until]";
const DIFFERS = [["[data-locked]", "disabled"], ["[data-locked]", "data-locked"], [TOKENS, "value"], ["[data-now]", "data-now"], ["[data-over]", "data-over"], ["[data-until]", "value"], ["details", "open"], ["[data-matrix] a", "tabindex"]];
const inert = document.implementation.createHTMLDocument(""); // no picture is fetched for a copy in it

// What was rendered, without what differs each time and without what the clock and people do to it in the page.
function plain(rendered) {
  const copy = inert.importNode(rendered, true);
  for (const one of copy.querySelectorAll(TIMES)) one.textContent = "";
  for (const [selector, name] of DIFFERS) for (const one of copy.querySelectorAll(selector)) one.removeAttribute(name);
  return [...copy.childNodes].filter((one) => one.nodeType !== Node.TEXT_NODE || one.data.trim());
}

function unchanged(place, body) {
  const [old, fresh] = [plain(place), plain(body)];
  return old.length === fresh.length && old.every((one, i) => one.isEqualNode(fresh[i]));
}

// The same again: what is marked in it stays marked. Only its tokens and its time are those of now.
function carryOver(place, body) {
  for (const [selector, name] of [[TOKENS, "value"], ["[data-now]", "data-now"]]) {
    const fresh = body.querySelectorAll(selector);
    place.querySelectorAll(selector).forEach((one, i) => one.setAttribute(name, fresh[i].getAttribute(name)));
  }
}

// Replaces the children of `place`, if they are others. Focus, typed text, open details and the scroll of `.scroll`
// boxes stay as they were.
export function replace(place, html) {
  const body = parsed(html);
  if (unchanged(place, body)) {
    carryOver(place, body);
    return;
  }
  const focused = focusedIn(place);
  const named = () => [...place.querySelectorAll("details")].map((one, i) => [one.dataset.keep ?? i, one]);
  const opened = new Map(named().map(([name, one]) => [name, one.open]));
  const scrolled = [...place.querySelectorAll(".scroll")].map((one) => [one.scrollLeft, one.scrollTop]);
  const typed = new Map(typedIn(place).filter(([, one]) => one.value !== initial(one)).map(([name, one]) => [name, one.value]));
  const locked = new Map(buttonsIn(place).filter(([, one]) => one.dataset.locked).map(([name, one]) => [name, Number(one.dataset.locked)]));
  place.replaceChildren(...body.childNodes);
  named().forEach(([name, one]) => { one.open = opened.get(name) ?? one.open; });
  place.querySelectorAll(".scroll").forEach((one, i) => { [one.scrollLeft, one.scrollTop] = scrolled[i] ?? [0, 0]; });
  typedIn(place).forEach(([name, one]) => { if (offers(one, typed.get(name))) one.value = typed.get(name); });
  buttonsIn(place).forEach(([name, one]) => { if (locked.has(name)) lock(one, locked.get(name)); });
  if (focused) focusAgain(place, focused);
}
