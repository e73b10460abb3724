"""How the controller and the runner on a node talk: one channel, the program in, marked JSON lines out.

    controller                                 node
    BOOT as the remote command        ->       login shell, then python3
                                      <-       @golden15 ready
    program length, compressed program ->
                                      <-       hello
    ping 1 ... ping 8                 <->      pong (the clock offset is measured on the open channel)
                                      <-       capture, one per probe as it finishes
                                      <-       bye

A node with an installed runner (installed.py) says `installed` in place of `ready`, and is sent the names of probes in
place of a program.

The controller waits for `ready` before it sends anything, so that a chatty or reading rc file neither eats the
program nor is taken for an answer, and so that "the shell hangs" and "no python3" can be told apart.
"""

from __future__ import annotations

import base64
import json
import math
import time
import zlib
from dataclasses import replace
from typing import Any

from probes import runner
from probes.core import OUTCOMES, Capture, Probe, clean
from probes.transport import installed
from probes.transport.plan import Plan

MARK = runner.MARK.encode()
READY, INSTALLED = MARK + b"ready", MARK + b"installed"

# Single quotes only, no newline and no "!": the login shell may be bash, dash, zsh, fish or csh.
BOOT_ARGS = (
    "-I",
    "-S",
    "-u",
    "-c",
    'import sys,zlib;i=sys.stdin.buffer;print("@golden15 ready",flush=True);'
    "exec(zlib.decompress(i.read(int(i.readline()))))",
)
BOOT = "exec python3 " + " ".join(BOOT_ARGS[:4]) + " '" + BOOT_ARGS[4] + "'"

PINGS = 8
MAX_CHATTER = 262_144  # bytes of unmarked output (banner, rc files) before a node is called flooding


class Violation(Exception):
    """The node does not keep to the protocol: `reason` is a word of `reasons`, the text is for people."""

    def __init__(self, reason: str, text: str):
        super().__init__(text)
        self.reason = reason


class Conversation:
    """The controller's side of one channel. Bytes in through `feed`, captures out of it; never blocks, never waits.

    `send` writes to the channel. Memory is bounded by the plan: after a line longer than the largest probe allows, too
    many bytes in all or too much chatter, `violation` is set, no more is read and the channel must be closed.
    """

    def __init__(self, node: str, plan: Plan, program: bytes, send: Any):
        self.node = node
        self.plan = plan
        self.program = program
        self.send = send
        self.started = self.ready = self.finished = False
        self.violation: Violation | None = None
        self.hello: dict[str, Any] = {}
        self.chatter = b""  # the first bytes of what is not ours: banners, rc files, shell errors
        self.chatter_bytes = 0
        self.waiting = {probe.name: probe for probe in plan.probes}
        self.pings: list[tuple[float, float, float]] = []
        self._pinged: dict[str, float] = {}
        self._held: Capture | None = None
        self._buffer = bytearray()
        self._received = 0
        self._longest = max([probe.max_bytes for probe in plan.probes], default=0) * 2 + 16_384

    def feed(self, data: bytes) -> list[Capture]:
        """Take bytes from the channel; return the captures that are complete. Nothing in the bytes makes it raise."""
        captures: list[Capture] = []
        if self.violation is None:
            try:
                self._feed(data, captures)
            except Violation as violation:
                self.violation = violation
        return captures

    def _feed(self, data: bytes, captures: list[Capture]) -> None:
        self._received += len(data)
        if self._received > self.plan.max_bytes * 2 + MAX_CHATTER:
            raise Violation("flood", "far over its byte budget")
        self._buffer += data
        while (end := self._buffer.find(b"\n")) >= 0:
            line = bytes(self._buffer[:end]).rstrip(b"\r")
            del self._buffer[: end + 1]
            # What stands before the mark is an rc file's, which may even print the mark's own words.
            word = next((word for word in (READY, INSTALLED) if line.endswith(word)), b"")
            mark = len(line) - len(word) if word else line.find(MARK + b"{")
            if mark < 0:
                self._chat(line + b"\n")
                continue
            if mark:  # an rc file that printed without a newline
                self._chat(line[:mark])
            captures += self._message(line[mark:])
        if MARK not in self._buffer and len(self._buffer) > 8192:
            self._chat(bytes(self._buffer[:-64]))
            del self._buffer[:-64]
        elif len(self._buffer) > self._longest:
            raise Violation("flood", "one line without end")

    def error_feed(self, data: bytes) -> None:
        """Take bytes from the channel's error output."""
        try:
            self._chat(data)
        except Violation as violation:
            self.violation = violation

    def _chat(self, data: bytes) -> None:
        self.chatter_bytes += len(data)
        if len(self.chatter) < 4096:
            self.chatter += data[: 4096 - len(self.chatter)]
        if self.chatter_bytes > MAX_CHATTER:
            raise Violation("flood", "at login, before the probes began")

    def _message(self, line: bytes) -> list[Capture]:
        if line in (READY, INSTALLED):
            if not self.ready:
                self.ready = True
                self.send(self.program if line == READY else installed.asking(self.plan))
            return []
        try:
            words = json.loads(line[len(MARK) :])
            kind = words["kind"]
        except (ValueError, KeyError, TypeError, RecursionError):
            self._chat(line + b"\n")
            return []
        if kind == "hello":
            self.hello = words
            self._ping()
        elif kind == "pong":
            self._pong(words)
            return self._release() if len(self.pings) == PINGS else []
        elif kind == "capture":
            return self._capture(words)
        elif kind == "bye":
            self.finished = True
        return self._release() if self.finished else []

    def _ping(self) -> None:
        number = str(len(self.pings) + 1)
        self._pinged[number] = time.time()
        self.send(b"ping %s\n" % number.encode())

    def _pong(self, words: dict[str, Any]) -> None:
        now = time.time()
        asked = self._pinged.pop(str(words.get("n")), None)
        try:
            there = float(words["at"])
        except (KeyError, TypeError, ValueError, OverflowError):
            return
        if asked is not None and math.isfinite(there):
            self.pings.append((asked, there, now))
        if asked is not None and len(self.pings) < PINGS:
            self._ping()

    def _capture(self, words: dict[str, Any]) -> list[Capture]:
        probe = self.waiting.get(str(words.get("probe")))
        if probe is None:  # not asked, or answered twice: the first answer stands
            return []
        capture = to_capture(self.node, probe, words, str(self.hello.get("boot_id", "")))
        del self.waiting[probe.name]
        if probe.wants_pings and capture.outcome == "ok" and len(self.pings) < PINGS:
            self._held = capture  # the pings are still under way
            return []
        return [self._with_pings(capture) if probe.wants_pings and capture.outcome == "ok" else capture]

    def _release(self) -> list[Capture]:
        held, self._held = self._held, None
        return [self._with_pings(held)] if held else []

    def _with_pings(self, capture: Capture) -> Capture:
        lines = "".join(f"{asked:.6f} {there:.6f} {answered:.6f}\n" for asked, there, answered in self.pings)
        section = f"==> golden15/pings <==\n{lines}\n".encode()
        return replace(capture, out=capture.out + section)

    def close(self) -> list[Capture]:
        """What can still be told once the channel is closed."""
        return self._release()


def to_capture(node: str, probe: Probe[Any], words: dict[str, Any], boot_id: str = "") -> Capture:
    """One `capture` message as a Capture. Every field is checked: the node may be broken or hostile."""
    outcome = words.get("outcome")
    out, truncated = _unpack(words, probe.max_bytes)
    return Capture(
        node=node,
        probe=probe.name,
        outcome=outcome if outcome in OUTCOMES else "failed",
        out=out,
        err=clean(_word(words, "err", 2048)),
        why=clean(_word(words, "why", 1000)),
        rc=rc if isinstance(rc := words.get("rc"), int) and abs(rc) < 2**31 else None,
        at=_number(words, "at"),
        mono=_number(words, "mono"),
        took_s=_number(words, "took_s") or 0.0,
        truncated=truncated or words.get("truncated") is True,
        boot_id=clean(boot_id)[:64],
        state=clean(_word(words, "state", 8))[:8],  # cut again: cleaning makes text longer
        wchan=clean(_word(words, "wchan", 128))[:128],
    )


def _unpack(words: dict[str, Any], limit: int) -> tuple[bytes, bool]:
    if isinstance(words.get("out"), str):
        out = words["out"].encode("utf-8", "surrogateescape" if _escapes_only(words["out"]) else "replace")
        return out[:limit], len(out) > limit
    if isinstance(words.get("z"), str):
        try:
            unpacker = zlib.decompressobj()
            out = unpacker.decompress(base64.b64decode(words["z"]), limit + 1)  # the cap is also the bomb's end
        except (ValueError, zlib.error):
            return b"", True
        return out[:limit], len(out) > limit
    return b"", False


def _escapes_only(text: str) -> bool:
    return all(not 0xD800 <= ord(c) <= 0xDFFF or 0xDC80 <= ord(c) <= 0xDCFF for c in text)


def _word(words: dict[str, Any], key: str, limit: int) -> str:
    value = words.get(key)
    return value[:limit] if isinstance(value, str) else ""


def _number(words: dict[str, Any], key: str) -> float | None:
    value = words.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e18:
        return None
    return float(value)
