// One reading's evidence, on its page and in the drawer: its age counts on, its command can be copied.
import { tick } from "./clock.js";
import { heard } from "./servertime.js";

// On the incident page live.js knows the server's time; a page of its own takes it from what was rendered.
const own = document.querySelector(".drawer[data-now]");
if (own) {
  heard(Date.parse(own.dataset.now), performance.getEntriesByType("navigation")[0]?.responseStart);
  tick();
}
document.documentElement.classList.add("scripted"); // shows the buttons that need a script

// Without the clipboard (it is there on https and loopback only) the text is selected, for the person's own Ctrl+C.
async function copy(button) {
  const text = document.getElementById(button.dataset.copy);
  try {
    await navigator.clipboard.writeText(text.textContent);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(text);
    button.textContent = "Press Ctrl+C";
  }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest?.("[data-copy]");
  if (button) copy(button);
});
