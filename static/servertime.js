// What time it is at the server. The browser's own clock is never asked: it may be hours off. Times in ms.

const KEPT = 8;
const SLOWEST = 5_000; // the machine slept between question and answer, or the way is too slow to tell anything
let offset = null; // server epoch minus performance.now()
let kept = [];

export function serverNow() {
  return performance.now() + (offset ?? 0);
}

// One question and its answer: sent and received by performance.now(), and the server's epoch in between. The quickest
// of the last ones wins. One that contradicts it by more than the way can explain means that this machine slept.
export function sample(sent, server, received) {
  const next = { trip: received - sent, offset: server - (sent + received) / 2 };
  if (!Number.isFinite(next.offset) || next.trip < 0 || next.trip > SLOWEST) return;
  const best = kept.reduce((a, b) => (b.trip < a.trip ? b : a), next);
  if (Math.abs(next.offset - best.offset) > (next.trip + best.trip) / 2 + 50) kept = [];
  kept = [...kept, next].slice(-KEPT);
  offset = kept.reduce((a, b) => (b.trip < a.trip ? b : a)).offset;
}

// A time that the server sent some moments ago: right enough until the first sample, and a sign that this clock slept.
// True when it does not fit what is known.
export function heard(server, received = performance.now()) {
  if (!Number.isFinite(server)) return false;
  if (offset === null) offset = server - received;
  return serverNow() < server - 1000;
}
