// The note's field: Enter sends, Shift+Enter breaks the line. What could not be sent stays in the field, over a reload too.
// Every text has its own key, so that a note whose answer was lost is not stored twice when it is sent again. It is kept
// per incident and person (data-note), for this tab, until it is sent or the person signs out (forms.js).

const form = document.querySelector("[data-note]");
const PATIENCE_MS = 10_000;

function ready() {
  const field = form.elements.text;
  const key = form.elements.key;
  const said = document.getElementById("note-said");
  const place = `note-${form.dataset.note}`;
  let tried = null; // the text that the present key was sent with
  let sending = false;
  let leaving = false;

  function say(text) {
    said.textContent = text;
    said.hidden = !text;
  }

  function grow() {
    field.rows = 1;
    while (field.rows < 8 && field.scrollHeight > field.clientHeight) field.rows += 1;
  }

  function keep() {
    if (field.value && !leaving) sessionStorage.setItem(place, JSON.stringify([field.value, key.value, tried]));
    else sessionStorage.removeItem(place);
  }

  // Not crypto.randomUUID: that is there on https and loopback only.
  function freshKey() {
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
    return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
  }

  // Somebody who signed in again in another tab has a new token; the form's own would be refused.
  function token() {
    const found = document.cookie.match(/(?:^|; )golden15_csrf=([^;]+)/);
    return found ? found[1] : form.elements.csrfmiddlewaretoken.value;
  }

  async function post(body) {
    const options = { method: "POST", body, redirect: "manual", headers: { Accept: "application/json" } };
    let answer;
    try {
      answer = await fetch(form.action, { ...options, signal: AbortSignal.timeout(PATIENCE_MS) });
    } catch {
      throw new Error("Golden15 does not answer. Send it again in a moment.");
    }
    if (answer.type === "opaqueredirect") throw new Error("you are signed out. Sign in in another tab, then send it again.");
    const told = await answer.json().catch(() => ({}));
    if (told.seq) return told.seq;
    if (answer.status === 403) throw new Error("you may not, or the form is out of date. Reload the page: the text stays.");
    if (answer.status === 404) throw new Error("you may not see this incident any more. Copy the text before you leave the page.");
    if (told.field === "key") tried = null; // that key is spent
    throw new Error(told.error ?? `the server answered ${answer.status}. Send it again in a moment.`);
  }

  async function send() {
    const text = field.value;
    if (!text.trim() || sending) return;
    if (tried !== text) key.value = freshKey();
    tried = text;
    sending = true;
    form.setAttribute("aria-busy", "true");
    const body = new FormData(form);
    body.set("csrfmiddlewaretoken", token());
    keep();
    try {
      const seq = await post(body);
      say("");
      if (field.value === text) field.value = "";
      tried = null;
      document.dispatchEvent(new CustomEvent("golden15:told", { detail: seq }));
    } catch (error) {
      say(`Not sent: ${error.message}`);
    } finally {
      sending = false;
      form.removeAttribute("aria-busy");
      keep();
      grow();
    }
  }

  function restore() {
    try {
      [field.value, key.value, tried] = JSON.parse(sessionStorage.getItem(place)) ?? [field.value, key.value, tried];
    } catch {
      sessionStorage.removeItem(place);
    }
  }

  field.addEventListener("input", () => {
    keep();
    grow();
  });
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit();
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  document.querySelector("form[data-signs-out]")?.addEventListener("submit", () => { leaving = true; });
  if (!field.value) restore(); // else the server gave back what it refused
  grow();
}

if (form) ready();
