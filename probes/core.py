"""The words every probe speaks: Capture, Probe, Finding, Reading, and their closed sets.

A capture is what one probe brought back from one node: raw bytes and an outcome. Facts are what its
parser reads out of the bytes. A finding is a judgement on that one node, now. Nothing here talks to a node.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, Literal, TypeAlias, TypeVar, get_args

Outcome = Literal["ok", "absent", "failed", "timeout", "hung", "denied", "unreachable", "skipped"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)

Severity = Literal["info", "warn", "bad"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)

# What a probe can get stuck on. Probes that share "driver" run one after another, and none of them runs after
# one of them hung: every further call would hang on the same kernel lock.
Touches = Literal["proc", "process", "kernel-log", "disk", "network", "stack", "driver"]


class ParseError(ValueError):
    """The output is not what the tool can print. Says what was expected and what stood there instead."""


@dataclass(frozen=True, slots=True)
class Capture:
    """What one probe brought back from one node.

    `out` is raw and capped (`truncated` says so); only an `ok` capture is parsed. `why` is for people: what went
    wrong and what to do next; `reason` is the same for programs (a word from `transport.reasons`, or "").
    Times: `at` is the node's own clock in seconds since the epoch, `mono` the node's monotonic clock in seconds
    (comparable only within one `boot_id`), `took_s` seconds.
    """

    node: str
    probe: str
    outcome: Outcome
    out: bytes = b""
    err: str = ""
    why: str = ""
    reason: str = ""
    rc: int | None = None
    at: float | None = None
    mono: float | None = None
    took_s: float = 0.0
    truncated: bool = False
    boot_id: str = ""
    state: str = ""  # process state letter of an abandoned child, proc_pid_stat(5); "D" cannot be killed
    wchan: str = ""  # kernel function the abandoned child sleeps in, proc_pid_wchan(5)

    @property
    def text(self) -> str:
        """`out` as text. Bytes that are not UTF-8 become U+FFFD; `clean()` is for what people are shown."""
        return self.out.decode("utf-8", "replace")


ABOUT = "golden15"  # folder of an evidence bundle that tells about the incident: no node, and no evidence
STAGES = "stages"  # folder of a recording with what comes after its first captures


def node_folders(folder: Path) -> list[Path]:
    """The folders of nodes in a folder of captures, by name; other folders in it are none of a node. Raises OSError."""
    places = (place for place in folder.iterdir() if place.is_dir()) if folder.is_dir() else ()
    told = (place for place in places if (place / "captures.json").is_file() or any(place.glob("*.out")))
    return sorted((place for place in told if place.name != ABOUT), key=lambda place: place.name)


_LAST = 253_402_300_800  # seconds since the epoch: the end of the year 9999, the last that a calendar here knows


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -_LAST < value < _LAST  # NaN is not


# What is saved of a capture beside its output: what it must be, and how to tell.
_SAVED: dict[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("err", "why", "reason", "boot_id", "state", "wchan"), ("a text", _is_text)),
    **dict.fromkeys(("at", "mono"), ("seconds", lambda value: value is None or _is_number(value))),
    "outcome": (f"one of {', '.join(OUTCOMES)}", lambda value: value in OUTCOMES),
    "rc": ("a whole number", lambda value: value is None or (_is_number(value) and isinstance(value, int))),
    "took_s": ("seconds from 0 on", lambda value: _is_number(value) and value >= 0),
    "truncated": ("true or false", lambda value: isinstance(value, bool)),
}


def saved_capture(node: str, probe: str, out: bytes, said: Any) -> Capture:
    """A capture from what was saved of it: its output, and the rest as plain values. Raises ValueError, which names the
    value that is none."""
    if not isinstance(said, dict) or "outcome" not in said:
        raise ValueError(f"{probe}: outcome must be {_SAVED['outcome'][0]}")
    values = {name: said[name] for name in _SAVED if name in said}
    for name, value in values.items():
        expected, fits = _SAVED[name]
        if not fits(value):
            raise ValueError(f"{probe}: {name} must be {expected}")
    values = {name: clean(value) if isinstance(value, str) else value for name, value in values.items()}
    return Capture(node=node, probe=probe, out=out, **values)


Moment: TypeAlias = tuple[float | None, str]
"""Seconds since the epoch, None where they are not known, and the time as it is printed, "" where none is."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A judgement on one node, now. `code` is `area.thing`; `says` is one plain sentence with units.

    `subject` names the part at fault: any of gpu, bus_id, hca, port, pid, mount, device, xid ... ({} = the node).
    `last`: when it was last seen, of what a log tells; by the node's own clock.
    """

    code: str
    severity: Severity
    says: str
    subject: Mapping[str, str | int] = field(default_factory=dict)
    last: Moment = (None, "")


F = TypeVar("F")


@dataclass(frozen=True, slots=True)
class Probe(Generic[F]):
    """One question to one node.

    Exactly one of `command` (argv, constant) and `collect` (a function sent to the node as source, which returns
    {section name: text}) asks it. `parse` turns text into facts and raises ParseError on anything else;
    `findings` judges the facts of this one node. Nothing a user typed ever becomes part of a command.
    """

    name: str
    question: str
    parse: Callable[[str], F]
    findings: Callable[[F], Iterable[Finding]]
    command: tuple[str, ...] | None = None
    collect: Callable[[], Mapping[str, str]] | None = None
    by_hand: str = ""  # what a person types on the node to see the same
    timeout_s: float = 5.0
    max_bytes: int = 262_144
    touches: Touches = "proc"
    cost: str = ""  # CPU time of one run, beyond the runner's own; where it was measured: see docs/probes.md
    needs: str = ""  # the right or tool it needs beyond a plain login, in plain words
    wants_pings: bool = False  # the controller adds its clock exchange on the open channel to the capture
    brings: tuple[ModuleType, ...] = ()  # modules that `collect` calls by their last names; sent with it, in this order
    attachments: tuple[str, ...] = ()  # files it can use when the plan carries them; it waits for those

    def __post_init__(self) -> None:
        if (self.command is None) == (self.collect is None):
            raise ValueError(f"probe {self.name}: give exactly one of command and collect")
        if not re.fullmatch(r"[a-z]+\.[a-z0-9_]+", self.name):
            raise ValueError(f"probe name {self.name!r}: must read area.thing, like gpu.state")


@dataclass(frozen=True, slots=True)
class Reading:
    """A capture with what was read out of it. `facts` is None unless the capture is `ok` and could be parsed.

    `facts_json` is the same as plain JSON values, in which every number is finite.
    """

    capture: Capture
    facts: Any = None
    facts_json: Any = None
    findings: tuple[Finding, ...] = ()
    parse_error: str = ""

    @property
    def outcome(self) -> Outcome:
        """The capture's outcome, or `failed` when the output could not be read: unknown is not healthy."""
        return "failed" if self.parse_error else self.capture.outcome


def interpret(probe: Probe[Any], capture: Capture) -> Reading:
    """Parse and judge one capture. Never raises on bad output: a parse error becomes part of the reading."""
    if capture.outcome != "ok":
        return Reading(capture)
    try:
        facts = probe.parse(capture.text)
        facts_json = facts_as_json(facts)  # here, not while storing: NaN and infinity are no facts, and raise
        found = tuple(probe.findings(facts))
    except ParseError as error:
        return Reading(capture, parse_error=str(error))
    except Exception as error:  # hostile or unforeseen output must not take the run down with it
        return Reading(
            capture, parse_error=f"{probe.name}: parser stopped on this output ({type(error).__name__}: {error})"
        )
    return Reading(capture, facts, facts_json, found)


def facts_as_json(facts: Any) -> Any:
    """Facts (dataclasses, lists, scalars) as plain JSON values. None stays null: not known is not zero.

    Raises ValueError on NaN and infinity, which neither JSON nor a database knows.
    """
    return json.loads(json.dumps(facts, default=dataclasses.asdict, allow_nan=False))


def finding_as_json(finding: Finding) -> dict[str, Any]:
    """A finding as plain JSON values, its sentence cleaned for people."""
    at, stamp = finding.last
    return {
        "code": finding.code,
        "severity": finding.severity,
        "says": clean(finding.says),
        "subject": dict(finding.subject),
        "last": [at, clean(stamp)],
    }


# Sections -----------------------------------------------------------------------------------------------------
# Captures that hold several files use the form `tail -v -n +1 FILE...` and `head -v` print, so that a person can
# make the same capture by hand and the files door reads it with the same parser.

_HEADER = re.compile(r"==> (.{1,512}) <==")


def sections(text: str) -> dict[str, str]:
    """Split `==> NAME <==` blocks, as printed by tail -v -n +1 and head -v, into {name: text}.

    Errors: ParseError when text stands before the first header or there is no header at all.
    """
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in text.splitlines():
        header = _HEADER.fullmatch(line)
        if header:
            current = found.setdefault(header.group(1), [])
        elif current is not None:
            current.append(line)
        elif line.strip():
            raise ParseError(f"expected a line '==> NAME <==' first, found {clean(line)[:80]!r}")
    if not found:
        raise ParseError("the output is empty: expected blocks that begin with '==> NAME <=='")
    return {name: "\n".join(lines).strip("\n") for name, lines in found.items()}


# Text from nodes ------------------------------------------------------------------------------------------------

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)|[@-Z\\-_])")
_BAD = {c: 0x2400 + c for c in range(0x20) if c not in (0x09, 0x0A)} | {0x7F: 0x2421}
_BAD |= dict.fromkeys(range(128, 160), 65533)
_BAD |= {c: f"‹U+{c:04X}›" for c in (*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070), 0xFEFF)}
_BAD |= dict.fromkeys(range(55296, 57344), 65533)
_MANY_ESCAPES = 4096  # stripping costs time per escape; a block with more is shown with visible escapes instead


def without_escapes(text: str) -> str:
    """Without what colours a terminal: many at once only where a reader meets them line by line."""
    return _ESCAPES.sub("", text) if "\x1b" in text and text.count("\x1b") <= _MANY_ESCAPES else text


def clean(text: str) -> str:
    """Node text made safe to show: terminal escapes removed, control, bidi and zero-width characters made visible.

    Output holds no C0 but tab and newline, no C1, no surrogate. Applying it twice changes nothing.
    """
    if text.isascii() and text.isprintable():
        return text
    text = text.replace("\r\n", "\n")
    return without_escapes(text).translate(_BAD)


def lines_of(text: str, limit: int = 8192) -> Iterator[str]:
    """Lines without their ends, each cut at `limit` characters so that no pattern meets a line without end."""
    for line in text.splitlines():
        yield line[:limit]
