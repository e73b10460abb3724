"""What the flight recorders of a node's ranks hold, in the form that a merge across ranks reads.

Units    seconds since the epoch (node's clock), milliseconds, bytes
Shape    FlightRecorder: dumps of ranks, and why other ranks have none
Errors   ParseError when a row is not what the reducer writes, naming the rank
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from probes.catalog._collected import number_or_none, whole, whole_or_none, wholes, word, word_or_none
from probes.catalog.stacks.facts import Frame
from probes.core import ParseError

# The columns of an entry, in the order in which _flight_recorder writes them.
COLUMNS = ("seq", "p2p_seq", "op_id", "record", "signature", "state", "pending", "timed_out", "is_p2p", "created_at",
    "started_at", "completed_at", "duration_ms", "timeout_ms", "thread_id", "frames")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Signature:
    """What the ranks of a group must agree on at one place. Equal digests mean that all of it is equal.

    Sizes and dtypes are those of the first 8 tensors of `tensors`.
    """

    backend: str
    op: str
    input_sizes: tuple[tuple[int, ...], ...]
    input_dtypes: tuple[str, ...]
    output_sizes: tuple[tuple[int, ...], ...]
    output_dtypes: tuple[str, ...]
    tensors: int
    digest: str

    def __str__(self) -> str:
        sizes = ", ".join("x".join(map(str, size)) or "1" for size in self.input_sizes)
        return f"{self.op} [{sizes}] {'/'.join(sorted(set(self.input_dtypes)))}".rstrip()


@dataclass(frozen=True, slots=True)
class Entry:
    """One operation. `seq` counts the collectives of its group, from 1; point-to-point operations count in `p2p_seq`.

    `state` is torch's own word; gloo leaves it at "scheduled". `pending`: it has not completed. `timed_out`: torch's
    watchdog gave it up. `thread_id` is the pthread id, as in a stack's `thread_id`. `signature` is a place in
    `Dump.signatures`; `frames` are those of the job's own program, innermost first.
    """

    seq: int | None
    p2p_seq: int | None
    op_id: int | None
    record: int | None
    signature: int
    state: str
    pending: bool
    timed_out: bool
    is_p2p: bool
    created_at: float | None
    started_at: float | None
    completed_at: float | None
    duration_ms: float | None
    timeout_ms: int | None
    thread_id: int | None
    frames: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """One process group as one rank sees it. Numbers are collective sequence numbers, None where nothing is known.

    `enqueued`, `started`, `completed`: the highest that the entries hold; `told` is the same as torch's own summary
    says, which may lag. `first`: the lowest that is still held. `spans`: its global ranks as (first, last, step), None
    where the dump does not say. `history[i]` holds the signatures of collective `history_first + i`: several when they
    were coalesced, none when it is no longer held.
    """

    name: str
    desc: str
    pg_id: int | None
    backend: str
    spans: tuple[tuple[int, int, int], ...] | None
    enqueued: int | None
    started: int | None
    completed: int | None
    told: tuple[int | None, int | None, int | None] | None
    first: int | None
    held: int
    p2p: int
    pending_count: int
    timed_out: int
    history_first: int | None
    history: tuple[tuple[int, ...], ...]
    pending: tuple[Entry, ...]
    last: tuple[Entry, ...]

    @property
    def ranks(self) -> tuple[int, ...] | None:
        """Global ranks of the group, where the dump says."""
        return None if self.spans is None else _ranks(self.spans)


@functools.lru_cache(maxsize=4096)
def _ranks(spans: tuple[tuple[int, int, int], ...]) -> tuple[int, ...]:
    """Thousands of ranks tell of the same groups: the same object for each, so that comparing them is quick."""
    return tuple(rank for first, last, step in spans for rank in range(first, last + 1, step))


@dataclass(frozen=True, slots=True)
class Dump:
    """The recorder of one rank. `how`: "worker server" or "file". `pid` is None for a file whose rank is gone.

    `run_id`, `slurm_job` and `master` tell its job, as in RankMap. `at`: when it was taken, for a file see `mtime`.
    `schema` is torch's own version of the form; "list" before there was one. `problems`: what was left out, in words.
    """

    rank: int
    pid: int | None
    host: str
    world_size: int | None
    run_id: str | None
    slurm_job: str | None
    master: str | None
    how: str
    path: str
    mtime: float | None
    at: float
    bytes: int
    form: str
    schema: str
    torch: str
    comm_lib_version: str
    entries: int
    groups: tuple[Group, ...]
    signatures: tuple[Signature, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Missing:
    """A rank without a dump. `refused`: there is one, but it is not read. `pipe`: where one can be asked for.

    `rank` is None for a process that may be a rank and does not let itself be read.
    """

    rank: int | None
    pid: int | None
    why: str
    pipe: str
    refused: bool
    run_id: str | None
    slurm_job: str | None
    master: str | None


@dataclass(frozen=True, slots=True)
class FlightRecorder:
    host: str
    dumps: tuple[Dump, ...]
    missing: tuple[Missing, ...]
    left_out: int  # ranks over the 64 that are asked


def dump_of(told: Mapping[str, Any], stamp: Mapping[str, Any]) -> Dump:
    """A Dump from the reducer's answer and the words that say whose it is (fields of Dump). Raises ParseError."""
    row = dict(stamp)
    what = f"dump of rank {str(row.get('rank'))[:12]}"
    reduced = dict(told)
    signatures = tuple(_signature(one, what) for one in _list(reduced, "signatures", what))
    frames = [_frame(one, what) for one in _list(reduced, "frames", what)]
    at = number_or_none(row, "at", what)
    return Dump(
        rank=whole(row, "rank", what),
        pid=whole_or_none(row, "pid", what),
        host=word(row, "host", what),
        world_size=whole_or_none(row, "world_size", what),
        run_id=word_or_none(row, "run_id", what),
        slurm_job=word_or_none(row, "slurm_job", what),
        master=word_or_none(row, "master", what),
        how=word(row, "how", what, 20),
        path=word(row, "path", what, 400),
        mtime=number_or_none(row, "mtime", what),
        at=at if at is not None else 0.0,
        bytes=whole(row, "bytes", what),
        form=word(reduced, "form", what, 10),
        schema=word(reduced, "schema", what, 20),
        torch=word(row, "torch", what, 40) if row.get("torch") else "",
        comm_lib_version=word(reduced, "comm_lib_version", what, 40),
        entries=whole(reduced, "entries", what),
        groups=tuple(_group(one, signatures, frames, what) for one in _list(reduced, "groups", what)),
        signatures=signatures,
        problems=tuple(word({"p": one}, "p", what, 200) for one in _list(reduced, "problems", what)),
    )


def _list(row: Mapping[str, Any], key: str, what: str, most: int = 20_000) -> list[Any]:
    value = row.get(key)
    if not isinstance(value, list) or len(value) > most:
        raise ParseError(f"{what}: expected a list of at most {most} as {key}, found {str(value)[:60]!r}")
    return value


def _signature(row: Any, what: str) -> Signature:
    if not isinstance(row, list) or len(row) != 7:
        raise ParseError(f"{what}: expected a signature of 7 fields, found {str(row)[:60]!r}")
    named = dict(zip(("name", "in", "in_types", "out", "out_types", "tensors", "digest"), row, strict=True))
    backend, _, op = word(named, "name", what, 200).partition(":")
    sizes = [
        tuple(wholes({"size": size}, "size", what) for size in _list(named, key, what, 8)) for key in ("in", "out")
    ]
    types = [
        tuple(word({"t": one}, "t", what, 40) for one in _list(named, key, what, 8))
        for key in ("in_types", "out_types")
    ]
    tensors, digest = whole(named, "tensors", what), word(named, "digest", what, 12)
    return Signature(backend, op, sizes[0], types[0], sizes[1], types[1], tensors, digest)


def _frame(row: Any, what: str) -> Frame:
    if not isinstance(row, list) or len(row) != 3:
        raise ParseError(f"{what}: expected a frame of 3 fields, found {str(row)[:60]!r}")
    named = dict(zip(("function", "file", "line"), row, strict=True))
    return Frame(word(named, "function", what), word(named, "file", what), whole_or_none(named, "line", what))


def _group(row: Any, signatures: tuple[Signature, ...], frames: list[Frame], what: str) -> Group:
    if not isinstance(row, dict):
        raise ParseError(f"{what}: expected a group, found {str(row)[:60]!r}")
    history = _list(row, "history", what, 2) or [None, []]
    first, marks = whole_or_none({"f": history[0]}, "f", what), _list({"h": history[-1]}, "h", what)
    told = (
        None if row.get("told") is None else [whole_or_none({"t": one}, "t", what) for one in _list(row, "told", what)]
    )
    if told is not None and len(told) != 3:
        raise ParseError(f"{what}: expected three numbers as told, found {str(told)[:60]!r}")
    return Group(
        name=word(row, "name", what),
        desc=word(row, "desc", what),
        pg_id=whole_or_none(row, "pg_id", what),
        backend=word(row, "backend", what, 40),
        spans=_spans(row.get("ranks"), what),
        enqueued=whole_or_none(row, "enqueued", what),
        started=whole_or_none(row, "started", what),
        completed=whole_or_none(row, "completed", what),
        told=None if told is None else (told[0], told[1], told[2]),
        first=whole_or_none(row, "first", what),
        held=whole(row, "held", what),
        p2p=whole(row, "p2p", what),
        pending_count=whole(row, "pending_count", what),
        timed_out=whole(row, "timed_out", what),
        history_first=first,
        history=tuple(_places(mark, len(signatures), what) for mark in marks),
        pending=tuple(_entry(one, len(signatures), frames, what) for one in _list(row, "pending", what)),
        last=tuple(_entry(one, len(signatures), frames, what) for one in _list(row, "last", what)),
    )


def _spans(value: Any, what: str) -> tuple[tuple[int, int, int], ...] | None:
    if value is None:
        return None
    found = []
    for span in _list({"ranks": value}, "ranks", what):
        numbers = wholes({"span": span}, "span", what)
        if len(numbers) != 3 or not 0 <= numbers[0] <= numbers[1] < 1_000_000 or numbers[2] < 1:
            raise ParseError(f"{what}: expected ranks as first, last, step, found {str(span)[:60]!r}")
        found.append((numbers[0], numbers[1], numbers[2]))
    return tuple(found)


_ONE = tuple((place,) for place in range(256))  # nearly all: a dump has hundreds, and there are thousands of dumps


def _places(mark: Any, most: int, what: str) -> tuple[int, ...]:
    """Places in a table of `most` rows: a number, a list of them, or nothing."""
    if type(mark) is int and 0 <= mark < min(most, len(_ONE)):
        return _ONE[mark]
    places = tuple(mark) if type(mark) is list else () if mark is None else (mark,)
    if places and (set(map(type, places)) != {int} or min(places) < 0 or max(places) >= most):
        raise ParseError(f"{what}: expected places in a table of {most}, found {str(mark)[:60]!r}")
    return places


_WHOLE, _MOMENTS = (0, 1, 2, 3, 13, 14), (9, 10, 11, 12)  # places in COLUMNS


def _entry(row: Any, signatures: int, frames: list[Frame], what: str) -> Entry:
    if not isinstance(row, list) or len(row) != len(COLUMNS):
        raise ParseError(f"{what}: expected an entry of {len(COLUMNS)} fields, found {str(row)[:60]!r}")
    for at in _WHOLE:  # of 1,024 ranks there are 80,000 rows: a name is looked up for what is wrong only
        value = row[at]
        if value is not None and (type(value) is not int or not -(2**63) <= value < 2**64):
            whole({COLUMNS[at]: value}, COLUMNS[at], what)
    seq, p2p_seq, op_id, record, mark, state, pending, timed_out, is_p2p, *_, timeout_ms, thread_id, stack = row
    moments = [
        None if row[at] is None else number_or_none({COLUMNS[at]: row[at]}, COLUMNS[at], what) for at in _MOMENTS
    ]
    return Entry(
        seq, p2p_seq, op_id, record, _places([mark], signatures, what)[0], word({"state": state}, "state", what, 20),
        pending is True, timed_out is True, is_p2p is True, moments[0], moments[1], moments[2], moments[3],
        timeout_ms, thread_id, tuple(frames[place] for place in _places(stack, len(frames), what)),
    )  # fmt: skip
