// Fetches the server's own rendering of a place (data-url) and moves it in. It builds no HTML of its own.
import { busy, parsed, replace } from "./slots.js";

// True when the place shows what the server said just now, false when it was left alone: somebody is at work in it, or
// was signed out meanwhile and is led to the sign-in page. Throws when the server does not answer as it should: each
// part bears its place's name in data-state-of, which the page of a network that wants a login does not.
export async function refresh(place) {
  const answer = await fetch(place.dataset.url, { headers: { Accept: "text/html" }, signal: AbortSignal.timeout(10_000) });
  if (answer.redirected) {
    location.reload();
    return false;
  }
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  const html = await answer.text();
  if (!parsed(html).querySelector(`[data-state-of="${CSS.escape(place.id)}"]`)) throw new Error("not this part of the page");
  if (busy(place)) return false;
  replace(place, html);
  return true;
}
