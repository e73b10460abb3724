"""What takes several lines of a log: Python's tracebacks and torchrun's list of failures.

Source   CPython's traceback; torch.distributed.elastic.multiprocessing.errors (ChildFailedError)
Units    torchrun prints its times in whole seconds, local, without a zone
Shape    Tracebacks and Failures: fed one line after the other, they give LogEvents
Errors   none: a block that ends too early gives what it had
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from datetime import datetime

from probes.catalog.logs.events import LogEvent
from probes.catalog.logs.lines import Line, Zone
from probes.catalog.logs.shapes import event, number
from probes.core import clean

FRAMES = 400  # of one traceback; recursion prints thousands
OPEN = 64  # tracebacks of different writers at once
# Not the user's code: the frame before these is the one to look at.
_LIBRARY = re.compile(
    r"site-packages|dist-packages|<frozen |/lib(?:64)?/python\d|<string>|torch/distributed/|<__array_"
)
_FRAME = re.compile(r'  File "([^"\n]{1,400})", line (\d{1,9})(?:, in (\S{1,120}))?')
_SPAWNED = re.compile(r"-{0,4} ?Process (\d{1,5}) terminated with the following error")  # torch.multiprocessing.spawn
_ENDS = re.compile(r"([A-Za-z_][\w.]{0,160})(?:: (.{0,400})|$)")
# Python ends a process with these when somebody else asked it to, or repeats with them what was told before.
_AFTERWARDS = ("ChildFailedError", "SignalException", "KeyboardInterrupt", "SystemExit", "DistBackendError",
    "DistNetworkError", "DistStoreError", "CalledProcessError", "ProcessRaisedException", "ProcessExitedException",
    "ActorDiedError", "RayActorError", "RayTaskError", "WorkerCrashedError")  # fmt: skip


# What Python writes between an exception and the one that was raised over it: the last one ended the process.
_CHAIN = ("During handling of the above exception", "direct cause of the following exception")
_MEETING = ("/elastic/rendezvous/", "/etcd/client.py")  # where agents of torchrun look for each other


@dataclass(slots=True)
class _Open:
    line: Line
    frames: list[tuple[str, str, str]] = field(default_factory=list)
    chained: bool = False
    stamped: bool = False  # a collector wrote a time before each of its lines, also those that the program wrote bare


class Tracebacks:
    """Open tracebacks by writer, because several ranks write to one file at the same time."""

    def __init__(self) -> None:
        self._open: dict[tuple[int | None, str], _Open] = {}
        self._chain: set[tuple[int | None, str]] = set()
        self._spawned: int | None = None  # whose traceback follows
        self._wrote: set[tuple[int | None, str]] = set()

    def take(self, line: Line) -> LogEvent | None:
        """The event, when this line is the one that names the exception."""
        key = (line.rank, line.writer)
        if spawned := _SPAWNED.match(line.text):
            self._spawned = int(spawned[1])
            return None
        if "Traceback (most recent call last)" in line.text:
            if len(self._open) < OPEN or key in self._open:
                self._open[key] = _Open(line, chained=key in self._chain)
            self._chain.discard(key)
            return None
        if "exception" in line.text and any(words in line.text for words in _CHAIN):
            if len(self._chain) < OPEN:
                self._chain.add(key)
            return None
        block = self._open.get(key)
        if block is None and key not in self._wrote and (frame := _FRAME.match(line.text)) and frame[3]:
            block = self._open[key] = _Open(line)  # whoever copied it left its head out
        if len(self._wrote) < OPEN and line.text.strip(" ."):
            self._wrote.add(key)
        if block is None:
            return None
        if frame := _FRAME.match(line.text):
            block.stamped = bool(line.stamp and block.line.stamp)
            if len(block.frames) < FRAMES:
                block.frames.append((frame[1], frame[2], frame[3] or ""))
            return None
        if line.text[:1] in (" ", "\t", "+", "|", "") or (line.stamp and not block.stamped):
            return None  # source, marks, or a logger's line in between
        del self._open[key]
        named = _ENDS.match(line.text)
        if named is None:
            return None
        found = _traceback(block, line, named[1], named[2] or "")
        if self._spawned is not None and found.rank is None and not found.secondary:
            found, self._spawned = dataclasses.replace(found, rank=self._spawned), None
        return found


def _traceback(block: _Open, line: Line, name: str, message: str) -> LogEvent:
    short = name.rpartition(".")[2]
    found = event("traceback", line, {"name": short, **_place(block.frames)}, short in _AFTERWARDS)
    more = dict(found.more)
    if message:
        more["message"] = clean(message)[:200]
    if block.chained:
        more["chained"] = 1
    if any(part in path for path, _, _ in block.frames for part in _MEETING):
        more["within"] = "rendezvous"
    at = line.at if line.at is not None else block.line.at
    return dataclasses.replace(found, more=more, at=at, last_at=at, clock=line.clock or block.line.clock)


# Of an exception that a wrapper or a person wrote down in one line, without where it arose: `KeyError: 'input_ids'`.
_BARE = re.compile(
    r"(?:(?:rank[ =:#]?(?P<rank>\d{1,7})|ERROR|FATAL|CRITICAL|(?i:uncaught|unhandled)(?i: exception)?)"
    r"[:|,\])-]{0,2} {1,3}){0,2}"
    r"(?:[a-z_][\w.]{0,60}\.)?(?P<name>(?:Value|Key|Type|Index|Runtime|Attribute|FileNotFound|OS|ZeroDivision|Assertion|UnicodeDecode|JSONDecode"
    r"|NotImplemented|ModuleNotFound|Import|Memory|Permission|Recursion|UnboundLocal|Name|Overflow|Lookup"
    r"|FloatingPoint|IsADirectory|NotADirectory|Unpickling|Pickle)Error)(?:: (?P<message>.{0,400})|\s{0,4}$)"
)


def bare(line: Line) -> LogEvent | None:
    found = _BARE.match(line.text) if "Error" in line.text[:160] else None
    if found is None:
        return None
    rank = {"rank": found["rank"]} if found["rank"] else {}
    told = event("traceback", line, {"name": found["name"], **rank})
    message = {"message": clean(found["message"])[:200]} if found["message"] else {}
    return dataclasses.replace(told, more={**told.more, **message, "bare": 1})


def _place(frames: list[tuple[str, str, str]]) -> dict[str, str]:
    """The last frame in the user's code, else the last at all."""
    own = [frame for frame in frames if not _LIBRARY.search(frame[0])]
    for path, row, function in (own or frames)[-1:]:
        return {"where": f"{path}:{row}", "function": function}
    return {}


_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")


class Chain:
    """Exceptions that Python tells one under the other: the last is the one that nothing caught. Where that one only
    tells of another's fault, or of the rendezvous, those that it came from are no fault of the rank's own either."""

    def __init__(self) -> None:
        self._held: list[LogEvent] = []
        self._goes_on = False

    def take(self, line: Line, raised: LogEvent | None) -> list[LogEvent]:
        """Exceptions that are told to their end by this line."""
        if raised is not None:
            done = [] if self._goes_on else self.end()
            self._held.append(raised)
            self._goes_on = False
            return done
        if self._held and line.text.startswith(_CHAINED):
            self._goes_on = True
        elif self._held and not self._goes_on and line.text.strip():
            return self.end()
        return []

    def end(self) -> list[LogEvent]:
        held, self._held, self._goes_on = self._held, [], False
        if len(held) < 2:
            return held
        last = held[-1]
        because = last.more.get("because")
        if not last.secondary and because is None:
            return held
        more = {} if because is None else {"because": because}
        inner = [dataclasses.replace(one, secondary=True, more={**one.more, **more}) for one in held[:-1]]
        return [*inner, last]


class Blamed:
    """A rank that named another as missing at a barrier waited for it: its own time-out is the consequence."""

    def __init__(self) -> None:
        self._by: set[int | None] = set()

    def mark(self, event: LogEvent | None) -> LogEvent | None:
        if event and event.kind == "barrier_missed":
            self._by.add(event.rank)
        if event and event.kind == "gloo_timeout" and event.rank in self._by:
            return dataclasses.replace(event, secondary=True)
        return event


def of_error_file(said: object, line: Line) -> LogEvent | None:
    """The exception in a torchelastic error.json: {"message": {"message", "extraInfo": {py_callstack, timestamp}}}.

    `timestamp` is in whole seconds since the epoch, by the node's clock.
    """
    message = said.get("message") if isinstance(said, dict) else None
    extra: object = None
    if isinstance(message, dict):
        extra, message = message.get("extraInfo"), message.get("message")
    if not isinstance(message, str):
        return None
    stack = extra.get("py_callstack") if isinstance(extra, dict) else ""
    stamp = number(str(extra.get("timestamp", ""))) if isinstance(extra, dict) else None
    frames = [(f[1], f[2], f[3] or "") for f in map(_FRAME.match, str(stack).split("\n")[: 2 * FRAMES]) if f]
    text = message.split("\n", 1)[0][:1000]
    line.text = text
    if stamp is not None and 0 < stamp < 10**11:
        line.at, line.clock, line.stamp = float(stamp), "utc", str(stamp)
    named = _ENDS.match(text[:560])
    return _traceback(_Open(line, frames), line, named[1] if named else "", (named[2] or "") if named else text)


_RULE = re.compile(r"\s{0,8}[-=]{8,}\s*$")
_TIME = re.compile(r"\s{0,8}time {1,12}: (\d{4}-\d\d-\d\d)_(\d\d:\d\d:\d\d)\s*$")
_FIELD = re.compile(r"\s{0,8}(host|rank|exitcode|error_file|traceback) {0,12}: (.{0,1000})")
_RANK = re.compile(r"(\d{1,7}) \(local_rank: (\d{1,5})\)")
_EXIT = re.compile(r"(-?\d{1,4}) \(pid: (\d{1,9})\)(?: {1,4}\((SIG\w{2,8})\))?")
_EXCEPTION = re.compile(r" {1,4}([A-Za-z_][\w.]{0,160}(?:Error|Exception|Interrupt|Exit|Timeout)): (.{0,400})")
SIGTERM = -15


class Failures:
    """The block that torchrun prints at its end. "Root Cause" is only the first that it saw, in whole seconds."""

    def __init__(self, zone: Zone) -> None:
        self._zone = zone
        self._first = False
        self._record: dict[str, str] = {}
        self._line = Line("")

    @property
    def rank(self) -> int | None:
        """The rank whose failure is being told."""
        return number(self._record.get("rank", ""))

    def take(self, line: Line) -> LogEvent | None:
        """The event of the record that this line ends."""
        text = line.text
        if text.startswith(("Failures:", "Root Cause (first observed failure)")):
            self._first = text.startswith("Root")
        elif time := _TIME.match(text):
            done = self.end()
            self._record, self._line = {"time": f"{time[1]} {time[2]}"}, line
            return done
        elif self._record and _RULE.match(text):
            return self.end()
        elif self._record and (found := _FIELD.match(text)):
            self._take_field(found[1], found[2])
        elif self._record and "traceback" in self._record and (said := _EXCEPTION.match(text)):
            self._record.setdefault("name", said[1].rpartition(".")[2])
            self._record.setdefault("message", said[2])
        return None

    def _take_field(self, key: str, value: str) -> None:
        if key == "rank" and (found := _RANK.match(value)):
            self._record.update(rank=found[1], local_rank=found[2])
        elif key == "exitcode" and (found := _EXIT.match(value)):
            self._record.update(code=found[1], pid=found[2], signal=found[3] or "")
        elif key in ("host", "error_file", "traceback"):
            self._record.setdefault(key, value.strip())

    def end(self) -> LogEvent | None:
        """What is open when the log ends."""
        record, self._record = self._record, {}
        if not {"rank", "code"} <= record.keys():
            return None
        at, clock = self._zone.at(datetime.fromisoformat(record["time"]), year_known=True)
        line = dataclasses.replace(self._line, rank=None, at=at, clock=clock, stamp=record["time"])
        error_file = record.get("error_file", "")
        groups = {
            "about": record["rank"],
            "code": record["code"],
            "name": record.get("name") or record.get("signal", ""),
            "peer": record.get("host", ""),
            "where": "" if error_file == "<N/A>" else error_file,
            "pid": record["pid"],
            "local_rank": record["local_rank"],
            "message": record.get("message", ""),
            "first": str(int(self._first)),
        }
        found = event("torchrun_failure", line, groups, secondary=number(record["code"]) == SIGTERM)
        says = f"rank {record['rank']} exitcode {record['code']} {record.get('signal', '')} {record.get('message', '')}"
        return dataclasses.replace(found, text=clean(says.strip())[:400])
