"""What did the ranks of this node write before they stood still?

Source   the files behind descriptors 1 and 2 of each rank and of its launcher, other open .log, .out and .err files,
         NCCL_DEBUG_FILE, torchrun's error.json and run folder; also files that were deleted while open. Lines: see
         _log_torch.py, _log_nccl.py, _log_python.py, _log_blocks.py. A recorded log, or `tail -v -n +1` of several, is
         read too. Files of paths that people give, for ranks that are gone: given_files.py
Units    seconds since the epoch; milliseconds in names that end in _ms. A line's local time is taken in the node's
         zone (clock "node"); without a zone to take it in, only the stamp is kept
Shape    RankLogs: one RankLog per file or stream, with its LogEvents (see _log_events.py)
Errors   ParseError when the node's own sections are broken; any other text is a log. Absent when no rank and no
         launcher runs and no path was given; Denied when this login may look at none
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any, get_args

from probes.catalog.logs import given_files, places, reduce, run_folders
from probes.catalog.logs.events import GivenPath, Kept, RankLog, RankLogs
from probes.catalog.logs.findings import findings
from probes.catalog.logs.labels import Labels, ends_of, labels_of
from probes.catalog.logs.lines import MOST_CHARACTERS, Zone, characters_read, pieces
from probes.catalog.logs.read import LogReader, error_file, read_log
from probes.core import ParseError, Probe, clean, sections

__all__ = ["PROBE", "RankLogs", "findings", "parse"]

_INDEX = "golden15/rank-logs"
WHOLE_CHARACTERS = 524_288  # of a log that is read line by line
_NAMED = re.compile(r"rank[_-]?(\d{1,7})(?!\d)")


def _collect() -> Mapping[str, str]:
    found: Mapping[str, str] = places.node_logs()
    return found


def parse(text: str) -> RankLogs:
    """The sections of the collector, a whole log, or several as `tail -v -n +1` prints them."""
    if not text.lstrip().startswith("==> "):
        return RankLogs((of_file("", text, None),))
    parts = sections(text)
    if _INDEX not in parts:
        return RankLogs(tuple(of_file(name, body, rank_in(name)) for name, body in parts.items()))
    index = _object(_INDEX, parts[_INDEX])
    rows = [row for row in index.get("ranks", []) if isinstance(row, list) and len(row) == 4]
    if not isinstance(index.get("streams"), list) or len(rows) != len(index.get("ranks", [])):
        raise ParseError(f"section {_INDEX}: expected ranks and streams, found {parts[_INDEX][:80]!r}")
    now, offset = index.get("now"), _whole_number(index.get("utc_offset_s"))
    zone = Zone(
        float(now) if isinstance(now, int | float) and 0 < now < 1e11 else None,
        offset if offset is not None and abs(offset) < 86_400 else None,
    )
    logs = [_sent(name, body, zone, rows) for name, body in parts.items() if name.startswith("log ")]
    logs += [_stream(stream) for stream in index["streams"]]
    ranks = tuple(sorted({rank for rank, *_ in rows if isinstance(rank, int)}))
    left_off, host = _whole_number(index.get("left_off")) or 0, clean(str(index.get("host", "")))[:253]
    return RankLogs(tuple(logs), zone.now, zone.utc_offset_s, ranks, left_off, host, _given(index.get("given")))


def _given(said: object) -> tuple[GivenPath, ...]:
    rows = [row for row in said if isinstance(row, dict)][:16] if isinstance(said, list) else []
    return tuple(
        GivenPath(
            clean(str(row.get("pattern", "")))[:400],
            _whole_number(row.get("fits")),
            clean(str(row.get("why") or ""))[:300],
        )
        for row in rows
    )


def rank_in(name: str) -> int | None:
    """The rank that a file's name says."""
    found = _NAMED.search(name.rpartition("/")[2])
    return int(found[1]) if found else None


def of_file(name: str, text: str, rank: int | None) -> RankLog:
    """A log that a person or another tool brought. `rank`: who writes the lines that carry no rank, where known.

    Of a long one the lines are chosen as the node chooses them, which takes a tenth of the time.
    """
    if len(text) > WHOLE_CHARACTERS:
        return _chosen(name, text, rank)
    events, left_off = read_log(text, rank=rank)
    tail = tuple(clean(line)[:200] for line in text[-4096:].splitlines() if line.strip())[-3:]
    log = RankLog(rank, None, clean(name)[:400], events=events, left_off=left_off, tail=tail)
    return dataclasses.replace(log, size_bytes=len(text), read_bytes=characters_read(text))


def _chosen(name: str, text: str, rank: int | None) -> RankLog:
    quarter = MOST_CHARACTERS // 4
    parts = [text] if len(text) <= MOST_CHARACTERS else [text[:quarter], text[-3 * quarter :]]
    reader, begin, passed = LogReader(Zone(), rank), 0, 0
    labels = labels_of(ends_of(text))
    for part in parts:
        lines, more = reduce.chosen_lines(part.encode("utf-8", "replace").replace(b"\r", b"\n"))
        for _, offset, row in lines:
            for line in pieces(row, Zone(), labels):
                line.offset = begin + offset
                reader.take(line)
        begin, passed = len(text) - 3 * quarter, passed + more
    events = reader.end()
    tail = tuple(clean(line)[:200] for line in reader.tail)
    log = RankLog(rank, None, clean(name)[:400], events=events, left_off=reader.tally.left_off, tail=tail)
    return dataclasses.replace(log, size_bytes=len(text), read_bytes=characters_read(text), skipped_lines=passed)


def _sent(section: str, text: str, zone: Zone, rows: list[list[Any]]) -> RankLog:
    """A file that the node reduced: who and where, facts of the file, then lines with their offsets."""
    first, _, rest = text.partition("\n")
    second, _, body = rest.partition("\n")
    place, facts = _object(section, first), _object(section, second)
    rank, job = _whole_number(place.get("rank")), str(place.get("job", ""))
    told: dict[str, Any] = {
        "rank": rank,
        "pid": _whole_number(place.get("pid")),
        "file": clean(str(place.get("file", "")))[:400],
        "job": clean(job)[:120],
        "how": clean(str(place.get("how", "")))[:80],
        "writers": _whole_numbers(place.get("writers")),
        "deleted": place.get("deleted") is True,
    }
    if facts.get("outcome") != "ok":
        return RankLog(**told, kept="unread", why=clean(str(facts.get("why", "")))[:300])
    written = facts.get("mtime")
    told.update(
        size_bytes=_whole_number(facts.get("size")),
        read_bytes=_whole_number(facts.get("read")),
        written_at=float(written) if isinstance(written, int | float) and 0 <= written < 1e11 else None,
        skipped_lines=_whole_number(facts.get("skipped")) or 0,
    )
    if told["how"] == given_files.GIVEN:
        job = told["job"] = _only_job(rows)
    local = {mine: rank for rank, mine, _, of in rows if of == job and isinstance(mine, int) and isinstance(rank, int)}
    zone = dataclasses.replace(zone, ranks=local)
    lines = [row.partition(" ") for row in body.split("\n") if row]
    labels = labels_of([row for _, _, row in lines])
    last = [*pieces(lines[-1][2], zone, labels)][-1:] if lines else []
    zone = zone.for_file(last[0], told["written_at"]) if last else zone
    if told["how"] == given_files.GIVEN:
        rank = told["rank"] = _writer(told["file"], lines, zone, labels)
        told["writers"] = () if rank is None else (rank,)
    reader = LogReader(zone, rank)
    if isinstance(facts.get("text"), str):
        for event in error_file(facts["text"], rank) or ():
            reader.tally.add(event)
    for offset, _, row in lines:
        for line in pieces(row, zone, labels):
            line.offset = int(offset) if offset.isdecimal() and len(offset) < 19 else None
            reader.take(line)
    events = reader.end()
    tail = tuple(clean(line)[:200] for line in reader.tail)
    return RankLog(**told, events=events, left_off=reader.tally.left_off, tail=tail)


def _only_job(rows: list[list[Any]]) -> str:
    """The job of a file that people named: that of this node, where one runs."""
    jobs = {clean(str(job))[:120] for *_, job in rows}
    return jobs.pop() if len(jobs) == 1 else ""


def _writer(name: str, lines: list[tuple[str, str, str]], zone: Zone, labels: Labels | None) -> int | None:
    """The rank of a file's name, unless its lines are marked with others: then the number counts something else."""
    said = rank_in(name)
    marked = {line.rank for _, _, row in lines for line in pieces(row, zone, labels)} - {None}
    return said if not marked or marked == {said} else None


def _stream(stream: Any) -> RankLog:
    """Output of a rank that goes to no file."""
    if not isinstance(stream, dict):
        raise ParseError(f"section {_INDEX}: expected a stream, found {stream!r:.80}")
    kept: Kept = stream["kept"] if stream.get("kept") in get_args(Kept) else "unread"
    return RankLog(
        _whole_number(stream.get("rank")),
        _whole_number(stream.get("pid")),
        "",
        kept=kept,
        job=clean(str(stream.get("job", "")))[:120],
        how=clean(str(stream.get("how", "")))[:80],
        why=clean(str(stream.get("reader", "")))[:80],
    )


def _object(section: str, text: str) -> dict[str, Any]:
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise ParseError(f"section {section}: expected a JSON object, found {clean(text)[:80]!r}")
    return said


def _whole_number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**18 else None


def _whole_numbers(value: object) -> tuple[int, ...]:
    parts = value if isinstance(value, list) else []
    return tuple(part for part in parts if _whole_number(part) is not None)[:1024]


PROBE = Probe(
    "rank.log",
    "What did the ranks of this node write before they stood still?",
    parse,
    findings,
    collect=_collect,
    brings=(reduce, run_folders, given_files, places),
    attachments=(given_files.ATTACHMENT,),
    by_hand="ls -l /proc/PID/fd/1 /proc/PID/fd/2; tail -v -n +1 LOG...",
    timeout_s=9.0,
    max_bytes=1_572_864,
    touches="disk",
    needs="the login of the job's user, or root",
    cost="36 ms",
)
