// Keys of a page. Each stands in one place, the element that it acts on: data-hotkey="n", the same again in
// data-hotkey-too, and what it does for people in data-says. Off by the box in the list of keys (WCAG 2.1.4).
import { openDialog } from "./dialogs.js";

const STORED = "keys-off";
const root = document.documentElement;
const list = document.getElementById("keys");
const question = document.getElementById("confirm");
const box = list.querySelector("[data-keys-on]");

const keysOf = (one) => [one.dataset.hotkey, one.dataset.hotkeyToo].filter(Boolean);
const bearers = () => [...document.querySelectorAll("[data-hotkey]")];
const off = () => localStorage.getItem(STORED) !== null;

// A field is gone to, a disclosure opened and its first field gone to, a button or link pressed, of anything else the
// first link or stop inside gone to. One that is disabled stays untouched.
export function act(one) {
  if (one.matches("[disabled]")) return;
  if (one.matches("button, a")) one.click();
  else if (one.localName === "summary") {
    one.parentElement.open = true;
    go(one.parentElement.querySelector("input:not([type=hidden]), select, textarea") ?? one);
  } else if (one.localName === "label") go(one.control);
  else go(one.querySelector("a, button, [tabindex]") ?? one.closest("[tabindex]"));
}

function go(one) {
  one?.focus();
  if (one?.matches("input") && one.value) one.select(); // what was filled in for them is written over
  one?.scrollIntoView({ block: "nearest" });
}

// What a person must have read before (data-always) is asked for also when it is pressed by a mouse or by Enter.
let agreed = null;
let waiting = null; // what is asked about
document.addEventListener("click", (event) => {
  const one = event.target.closest?.("[data-confirm][data-always]");
  if (!one || one === agreed) {
    agreed = null;
    return;
  }
  event.preventDefault();
  event.stopPropagation();
  ask(one);
}, true);

// What acts by itself is asked for first: a key is pressed more easily by mistake than a button. A yes counts for what
// was asked: if it would be another question by now, that one is asked.
function ask(one) {
  const asked = one.dataset.confirm;
  if (!asked || one.disabled) {
    act(one);
    return;
  }
  waiting = { one, asked };
  question.querySelector("p").textContent = asked;
  question.returnValue = "no";
  openDialog(question);
}

question.addEventListener("close", () => {
  if (question.open || !waiting) return; // it was opened again before this was told
  const { one, asked } = waiting;
  waiting = null;
  const { hotkey } = one.dataset;
  const same = hotkey ? `[data-hotkey="${CSS.escape(hotkey)}"]` : `#${CSS.escape(one.id)}`;
  const still = one.isConnected ? one : document.querySelector(same);
  if (question.returnValue !== "yes" || !still) return;
  if (still.dataset.confirm === asked) {
    agreed = still;
    act(still);
    agreed = null;
  } else ask(still); // it is about something else by now: nobody said yes to that
});

function press(key) {
  const one = bearers().find((bearer) => keysOf(bearer).includes(key));
  if (one) ask(one);
  return Boolean(one);
}

function openList() {
  const entries = bearers().flatMap((one) => {
    const keys = document.createElement("dt");
    keys.append(...keysOf(one).map((key) => Object.assign(document.createElement("kbd"), { textContent: key.toUpperCase() })));
    return [keys, Object.assign(document.createElement("dd"), { textContent: one.dataset.says })];
  });
  list.querySelector("dl").replaceChildren(...entries);
  openDialog(list);
}

function typing(target) {
  return target.closest?.("input, textarea, select, [contenteditable]") !== null;
}

// Not from under somebody who types elsewhere, or whose Escape is for what they compose.
function closeOpen(event) {
  const closes = ":is(details.advance, details.closes)[open]";
  const one = document.activeElement?.closest(closes) ?? document.querySelector(closes);
  if (!one || event.isComposing || (typing(event.target) && !one.contains(event.target))) return;
  one.open = false;
  one.querySelector("summary").focus();
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !document.querySelector("dialog[open]")) closeOpen(event);
  if (off() || event.ctrlKey || event.metaKey || event.altKey || event.repeat || event.isComposing) return;
  if (event.key.length !== 1 || typing(event.target) || document.querySelector("dialog[open]")) return;
  if (press(event.key.toLowerCase())) event.preventDefault();
});

// The bar at the thumb acts for the element that has the key; without a script its links lead there.
document.addEventListener("click", (event) => {
  const presser = event.target.closest?.("[data-presses]");
  if (presser && press(presser.dataset.presses)) event.preventDefault();
  if (event.target.closest?.('[data-hotkey="?"]')) openList();
});

function show() {
  root.classList.toggle("keys", !off());
  box.checked = !off();
}

box.addEventListener("change", () => {
  if (box.checked) localStorage.removeItem(STORED);
  else localStorage.setItem(STORED, "");
  show();
});
document.querySelector('[data-hotkey="?"]').hidden = false;
show();
