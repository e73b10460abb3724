// Fetches the server's own rendering of a place (data-url) and moves it in. It builds no HTML of its own.
import { busy, replace } from "./slots.js";

// Throws when the server does not answer as it should. Whoever was signed out meanwhile is led to the sign-in page.
export async function refresh(place) {
  const answer = await fetch(place.dataset.url, { headers: { Accept: "text/html" }, signal: AbortSignal.timeout(10_000) });
  if (answer.redirected) {
    location.reload();
    return;
  }
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  const html = await answer.text();
  if (!busy(place)) replace(place, html);
}
