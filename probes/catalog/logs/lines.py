"""Lines of the log of a rank: who wrote them and when, whatever launcher, logger or terminal wrote in front.

Source   c10/util/Logging.cpp and torch/_logging (glog form); torch.distributed.elastic's tee ("[default3]:", a local
         rank); srun(1) --label; mpirun(1) --tag-output; Ray; the CRI form of Kubernetes; Python's logging; NCCL's
         debug.cc
Units    seconds since the epoch
Shape    Zone -> Line
Errors   none: a line in no known form is a Line without rank and time
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone

from probes.catalog.logs.events import Clock
from probes.catalog.logs.json_lines import unwrapped
from probes.catalog.logs.labels import LABEL, Labels, ends_of, labels_of, marked, spoken
from probes.catalog.logs.stamps import other_time
from probes.core import clean

LINE_LIMIT = 8192
MOST_CHARACTERS = 33_554_432  # of one text: about ten seconds of reading
QUARTER_S, SLOW_WRITE_S = 900, 60.0
PIECES = 64  # of one line: bars and ranks that write at once glue lines together


@dataclass(frozen=True, slots=True)
class Zone:
    """What turns a local time into seconds since the epoch. `now` also gives the year, which glog leaves out."""

    now: float | None = None
    utc_offset_s: int | None = None
    ranks: Mapping[int, int] = field(default_factory=dict)  # local rank -> rank, of this node
    clock: Clock = "node"  # what a time without a zone rests on

    def for_file(self, last: Line, written_at: float | None) -> Zone:
        """The zone of the one who wrote a file, from its last line and the time of its last change.

        Both are one moment. What lies between them is the difference of two zones when it is whole quarters of hours.
        """
        if self.utc_offset_s is None or written_at is None or last.at is None or last.clock != "node":
            return self
        apart = written_at - last.at
        quarters = round(apart / QUARTER_S) * QUARTER_S
        if quarters == 0 or abs(quarters) > 26 * 3600 or abs(apart - quarters) > SLOW_WRITE_S:
            return self
        return dataclasses.replace(self, utc_offset_s=self.utc_offset_s - quarters, clock="file")

    def at(self, stamp: datetime, year_known: bool) -> tuple[float | None, Clock]:
        """A stamp with a zone is certain; without one it needs the node's zone, and without a year its clock."""
        try:
            if stamp.tzinfo is not None:
                return stamp.timestamp(), "utc"
            if self.utc_offset_s is None or (not year_known and self.now is None):
                return None, ""
            here = timezone(timedelta(seconds=self.utc_offset_s))
            if not year_known and self.now is not None:
                stamp = stamp.replace(year=datetime.fromtimestamp(self.now, here).year)
                if stamp.replace(tzinfo=here).timestamp() > self.now + 86_400:  # written last year
                    stamp = stamp.replace(year=stamp.year - 1)
            return stamp.replace(tzinfo=here).timestamp(), self.clock
        except (ValueError, OverflowError):
            return None, ""


@dataclass(slots=True)
class Line:
    text: str  # without what stood in front
    rank: int | None = None
    at: float | None = None
    clock: Clock = ""
    stamp: str = ""
    source: str = ""  # ProcessGroupNCCL.cpp:607
    number: int | None = None
    offset: int | None = None
    host: str = ""  # where it was written, as a launcher tells it
    pid: int | None = None
    piece: int = 0  # of a line that a bar wrote in many, counted from 0
    writer: str = ""  # what a launcher wrote in front: tells the ranks of one file apart, also where no rank is known


_RANK = re.compile(r"\s{0,4}\[rank(\d{1,7})(?:[ @|]([A-Za-z][\w.-]{0,80}))?\]:? ?")
_ROLE = re.compile(r"\[([A-Za-z_][A-Za-z_-]{0,30})(\d{1,4})\]:")
_HOST = re.compile(r"[A-Za-z0-9][\w.-]{0,62}: (?=\[(?:rank|default)\d{1,7}\]:|\[[IWEF]\d{3,4} \d\d:)")
# What collectors and people's own wrappers write before a logger's time or a rank's mark: `[gn-3:0] 2026-...`,
# `(gn-3) 0: [2026-...`, `gn-3: 2026-...`, `worker-0 | 2026-...`, `[pod/train-0/main] 2026-...`. A number beside it
# may be a rank, a local rank or a task: it tells writers apart, no more.
_NAMED = re.compile(
    r"(?:\[(?:pod/)?([A-Za-z][\w.-]{0,62})(?:/[\w.-]{1,62})?(?::\d{1,7})?\]:?|\(([A-Za-z][\w.-]{0,62})\)"
    r"|([A-Za-z][\w.-]{0,62})(?:[:>]| {1,8}\|| (?<=[\d] )[a-z][a-z0-9-]{1,40}))(?: {0,2}\d{1,7}[:>|])? {1,2}"
    r"(?=\[?(?:\d{4}-\d\d-\d\d[ T]\d\d:\d\d|\d\d/\d\d/20\d\d |[IWEF]\d{3,4} \d\d:\d\d:|rank\d{1,7}\]"
    r"|default\d{1,4}\]:))"
)
_LEVELS = frozenset(
    ("DEBUG", "INFO", "WARN", "WARNING", "ERROR", "CRITICAL", "FATAL", "TRACE", "NOTICE", "date", "time")
)
# Right behind a time: `r9 ERROR`, `rank=9 step 4`, `[Rank 9] it=3`. What is said of another rank goes on otherwise.
_BEHIND = re.compile(
    r"(?i:\[rank ?(\d{1,7})\]:? ?|(?:rank[ =:]?|r)(\d{1,7})[:|]? "
    r"(?=(?:INFO|WARN|ERROR|DEBUG|it(?:er\w{0,6})?\b|step|epoch|loss|s=|upd|batch)))"
)
_RAY = re.compile(r"\([\w.-]{1,60}(?:, rank=(\d{1,7}))?,? pid=(\d{1,9})(?:, ip=([0-9a-f.:]{1,45}))?\) ")
_CRI = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)) std(?:out|err) [FP] ")
_GLOG = re.compile(
    r"\[?([IWEF])(\d{1,2})(\d\d) (\d\d:\d\d:\d\d)(?:\.(\d{1,9}))? (?:\d{1,9} )?([\w./+-]{1,120}:\d{1,6})\] ?"
)
_OLD_GLOG = re.compile(r"\[[IWEF] ([\w./+-]{1,120}:\d{1,6})\] ?")
_PLAIN = re.compile(
    r" {0,4}(?:(?:INFO|WARN(?:ING)?|ERROR)[: ] {0,8})?"
    r"\[?(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d| UTC(?=[ \]]))?\]?"
    r"(?:\[[A-Z]{4,8}\])?(?: ?[-|:,])?[ \t]?"
)
# AWS: `aws logs tail` and get-log-events write the time, in seconds or milliseconds, and the stream of a SageMaker job
_EPOCH = re.compile(r"(1[5-9]\d{8})(\d{3})?[ \t]{1,4}(?=\S)")
_STREAM = re.compile(r"[\w.-]{1,100}/(algo-\d{1,5})-\d{8,12} ")
# transformers' and accelerate's examples: 07/20/2026 08:00:00 - INFO
_AMERICAN = re.compile(r" {0,4}\[?(\d\d)/(\d\d)/(20\d\d)[ -](\d\d:\d\d:\d\d)\]?(?: ?[-|:,])? ?")
# Where a second line begins inside a line, because two ranks or a bar wrote without a line end between.
_GLUED = re.compile(
    r"(?<!\]:)(?<!\]: )(?<!\d: )(?<!\d\) )(?=\[rank\d{1,7}\]:(?:\[[IWEF]\d| Traceback))"
    r"|(?<=[^\s\[:])(?=\[[IWEF]\d{3,4} \d\d:\d\d:\d\d\.)"
)
_MAY_BE_GLUED = re.compile(r"\[(?:rank\d|[IWEF]\d)")  # begins with its own letter: quick


def log_lines(text: str, zone: Zone) -> Iterator[Line]:
    """The lines of a whole file, numbered from 1. Linear in the text; each line is cut at LINE_LIMIT.

    Of a text over MOST_CHARACTERS the first quarter of that and the last three are read: see `characters_read`.
    """
    labels = labels_of(ends_of(text))
    if len(text) <= MOST_CHARACTERS:
        yield from _numbered(text, 1, zone, labels)
        return
    first, last = MOST_CHARACTERS // 4, len(text) - MOST_CHARACTERS // 4 * 3
    yield from _numbered(text[:first], 1, zone, labels)
    yield from _numbered(text[last:], 1 + text.count("\n", 0, last), zone, labels)


def characters_read(text: str) -> int:
    """How much of a text `log_lines` looks at."""
    return min(len(text), MOST_CHARACTERS)


def _numbered(text: str, first: int, zone: Zone, labels: Labels | None) -> Iterator[Line]:
    for number, row in enumerate(text.split("\n"), first):
        if row:
            for line in pieces(_both_ends(row), zone, labels):
                line.number = number
                yield line


def _both_ends(row: str) -> str:
    """What is looked at of a line without end. A bar writes a whole epoch into one: there its last state tells most."""
    if len(row) <= LINE_LIMIT * 4:
        return row
    return row[: LINE_LIMIT * 4] if "\r" not in row else f"{row[:LINE_LIMIT]}\r{row[-LINE_LIMIT * 3 :]}"


def pieces(row: str, zone: Zone, labels: Labels | None = None) -> Iterator[Line]:
    """One row of a file, split where a bar returned to its start and where two writers were glued together."""
    writer = ""
    if row[:1] == "{" and (inner := unwrapped(row)):
        row, writer = inner
    if not row.isprintable():
        row = clean(row.replace("\r", "\n"))
    count = 0
    parts = [part for part in row.splitlines() if part.strip()]
    if len(parts) > PIECES:
        parts = parts[: PIECES // 4] + parts[-PIECES // 4 * 3 :]
    for part in parts:
        for piece in _unglued(part, zone, labels) if _MAY_BE_GLUED.search(part, 1) else [part]:
            if piece.strip() and count < PIECES:
                count += 1
                line = one_line(piece[:LINE_LIMIT], zone, labels)
                line.piece = count - 1
                line.writer = writer + line.writer
                yield line


def _unglued(part: str, zone: Zone, labels: Labels | None) -> list[str]:
    """Lines that were written without an end between. What a collector wrote in front of a rank's mark is none."""
    found = _GLUED.split(part)
    if len(found) > 1 and len(found[0]) < 200:
        whole = found[0] + found[1]
        if one_line(whole[:LINE_LIMIT], zone, labels).rank is not None:
            return [whole, *found[2:]]
    return found


def one_line(text: str, zone: Zone, labels: Labels | None = None) -> Line:
    """Take off what stands in front, in any order that launchers and loggers nest it."""
    line = Line(text)
    if labels and (label := LABEL.match(line.text)):
        line.rank = int(label[1]) if labels.ranks else None
        line.text, line.writer, line.host = line.text[label.end() :], label[1], labels.hosts.get(label[1], "")
    if host := _HOST.match(line.text):  # pdsh, DeepSpeed's launcher
        line.text, line.writer = line.text[host.end() :], line.writer + host[0]
        name = host[0].rstrip(": ")
        line.host = line.host or ("" if name.isalpha() or name.isdigit() else name)  # not ERROR:, no task of srun's
    elif line.text[:1] != "[" and (named := _NAMED.match(line.text)) and (name := named[2] or named[3]) not in _LEVELS:
        line.text, line.writer, line.host = line.text[named.end() :], line.writer + named[0], line.host or name
    for _ in range(6):
        before = line.text
        if before[:1] not in "[(IWEF0123456789 MTSJADONRrg":
            break
        _writer(line, zone)
        _time(line, zone)
        if line.text == before:
            break
    return line


def _writer(line: Line, zone: Zone) -> None:
    text = line.text
    if found := _RANK.match(text):
        line.rank, line.host = int(found[1]), found[2] or line.host
    elif found := _ROLE.match(text):  # the launcher's own prefix: a local rank, that only its node can translate
        line.rank = zone.ranks.get(int(found[2])) if line.rank is None else line.rank
    elif found := marked(text) or spoken(text, bool(line.source)):
        line.rank = int(found[1])
    elif text[:1] == "[" and (found := _NAMED.match(text)):  # [titan] 2026-...
        line.host = line.host or (found[1] if any(c.isdigit() for c in found[1]) else "")
    elif found := _RAY.match(text):
        line.rank = int(found[1]) if found[1] else line.rank
        line.pid, line.host = int(found[2]), found[3] or line.host
    else:
        return
    line.writer += found[0].strip()
    line.text = text[found.end() :]


def _time(line: Line, zone: Zone) -> None:
    text = line.text
    if found := _GLOG.match(text):
        stamp = f"{int(found[2]):02d}-{found[3]} {found[4]}"
        moment = _moment(f"2000-{stamp}", found[5] or "", "")
        line.source = found[6]
    elif found := _CRI.match(text):
        stamp = found[1]
        moment = _moment(stamp[:19], stamp[20:29].rstrip("Z+-:") if stamp[19:20] == "." else "", stamp[-6:])
    elif found := _PLAIN.match(text):
        stamp = found[1]
        moment = _moment(stamp, found[2] or "", found[3] or "")
    elif found := _AMERICAN.match(text):
        stamp = f"{found[3]}-{found[1]}-{found[2]} {found[4]}"
        moment = _moment(stamp, "", "")
    elif found := _EPOCH.match(text):
        stamp = datetime.fromtimestamp(int(found[1]), UTC).isoformat(" ")[:19]
        moment = _moment(stamp, found[2] or "", "Z")
    elif found := _OLD_GLOG.match(text):
        line.source, line.text = found[1], text[found.end() :]
        return
    else:
        _other_time(line, zone)
        return
    line.text = text[found.end() :]
    if stream := _STREAM.match(line.text):
        line.host, line.writer = line.host or stream[1], line.writer + stream[0]
        line.text = line.text[stream.end() :]
    if line.rank is None and (behind := _BEHIND.match(line.text)):
        line.rank, line.text = int(behind[1] or behind[2]), line.text[behind.end() :]
    if moment is None:
        return
    seconds, fraction = moment
    at, clock = zone.at(seconds, year_known=seconds.year != 2000)
    if line.at is None:  # the first that is certain counts: a collector's stamp has its zone
        line.at, line.clock = (None if at is None else at + fraction), clock
        line.stamp = line.stamp or stamp


def _other_time(line: Line, zone: Zone) -> None:
    told = other_time(line.text)
    if told is None:
        return
    line.text, line.host = line.text[told.end :], line.host or told.host
    if line.at is None:
        line.at, line.clock = zone.at(told.at, told.year_known)
        line.stamp = line.stamp or told.stamp


def _moment(stamp: str, fraction: str, zone: str) -> tuple[datetime, float] | None:
    try:
        moment = datetime.fromisoformat(stamp.replace("T", " "))
        if zone.endswith(("Z", "UTC")):
            moment = moment.replace(tzinfo=UTC)
        elif zone[:1] in ("+", "-"):
            digits = zone[1:].replace(":", "")
            away = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
            moment = moment.replace(tzinfo=timezone(-away if zone[0] == "-" else away))
    except ValueError:
        return None
    return moment, float(f"0.{fraction}") if fraction.isdigit() else 0.0
