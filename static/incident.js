// The incident page: the evidence drawer and the arrow keys of the matrix. What is live is in live.js, the clock in clock.js.
import "./evidence.js";
import { tick } from "./clock.js";
import { openDialog } from "./dialogs.js";
import { parsed } from "./slots.js";

const drawer = document.getElementById("drawer");
const PATIENCE_MS = 10_000;
let clicked = 0; // how often: only the last click is answered

// What the drawer is to show; null when the page itself says what is wrong.
async function fetched(address) {
  try {
    const options = { headers: { "X-Part": "drawer" }, signal: AbortSignal.timeout(PATIENCE_MS) };
    const answer = await fetch(address, options);
    return answer.ok && !answer.redirected ? [...parsed(await answer.text()).childNodes] : null;
  } catch {
    const line = document.createElement("p");
    const page = Object.assign(document.createElement("a"), { href: address, textContent: "open it as a page" });
    line.append("Golden15 does not answer. Close this and try again in a moment, or ", page, ".");
    return [line];
  }
}

async function openEvidence(link) {
  clicked += 1;
  const mine = clicked;
  const shown = await fetched(link.href);
  if (mine !== clicked) return;
  if (!shown) {
    location.href = link.href;
    return;
  }
  drawer.querySelector(".drawer").replaceChildren(...shown);
  tick();
  openDialog(drawer, link);
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[data-evidence]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  openEvidence(link);
});

// The matrix is one stop for Tab, as its arrow keys lead through it: 800 cells are no way to what comes after them.
function oneStop() {
  const cells = [...document.querySelectorAll("[data-matrix] a")];
  const here = cells.find((cell) => cell === document.activeElement) ?? cells[0];
  for (const cell of cells) cell.tabIndex = cell === here ? 0 : -1;
}
const matrix = document.querySelector("[data-slot=matrix]");
if (matrix) {
  new MutationObserver(oneStop).observe(matrix, { childList: true, subtree: true });
  matrix.addEventListener("focusin", oneStop);
  oneStop();
}

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
