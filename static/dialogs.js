// Opens a dialog. When it closes, the browser gives the focus back to what had it before; if the server's rendering has
// replaced that meanwhile, what stands in its place gets it.
import { remember } from "./slots.js";

export function openDialog(dialog, from = document.activeElement) {
  if (dialog.open) return;
  const again = remember(from);
  dialog.showModal();
  const back = () => {
    const active = document.activeElement; // still in the closed dialog until the next frame, if nothing else got it
    if (active === document.body || dialog.contains(active)) again()?.focus();
  };
  dialog.addEventListener("close", back, { once: true });
}
