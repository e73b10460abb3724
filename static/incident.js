// The incident page: the evidence drawer and the arrow keys of the matrix. What is live is in live.js, the clock in clock.js.
import "./evidence.js";
import { tick } from "./clock.js";

const drawer = document.getElementById("drawer");

async function openEvidence(link) {
  const answer = await fetch(link.href, { headers: { "X-Part": "drawer" } });
  if (!answer.ok || answer.redirected) {
    location.href = link.href; // the page itself says what is wrong
    return;
  }
  const part = new DOMParser().parseFromString(await answer.text(), "text/html");
  drawer.querySelector(".drawer").replaceChildren(...part.body.childNodes);
  tick();
  drawer.showModal();
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[data-evidence]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  openEvidence(link);
});

const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

document.addEventListener("keydown", (event) => {
  const cell = event.target.closest?.("[data-matrix] td");
  const step = STEPS[event.key];
  if (!cell || !step) return;
  event.preventDefault();
  let [row, column] = [cell.parentElement.rowIndex, cell.cellIndex];
  const table = cell.closest("table");
  for (;;) {
    row += step[0];
    column += step[1];
    const next = row > 0 ? table.rows[row]?.cells[column] : null;
    if (!next || column < 1) return;
    const link = next.querySelector("a");
    if (link) {
      link.focus();
      return;
    }
  }
});
