"""How fast collectives moved data: their times as bus bandwidth, which does not depend on how many ranks take part.

Source   nccl-tests, doc/PERFORMANCE.md: the factor of each operation. Of a collective the rank that came last waited
         for nobody: its time, the shortest, is that of the transfer
Units    bytes, seconds, GB/s (of 10^9 bytes)
Shape    speeds_of(evidence) -> a row for each group, operation and size, those that took longest in all first
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from probes.catalog.recorder.facts import Signature
from probes.catalog.stacks.operator_facts import Operators
from probes.core import clean
from probes.diagnosis.comparing import operation
from probes.diagnosis.core import Evidence
from probes.diagnosis.recorded import RecordedGroup, recorded_groups

LEAST_BYTES = 1 << 20  # judgement: of less the time is that of the way, not of the data
MOST = 12  # rows that are told
SLOW = 0.6  # of the median of other groups with the same operation, size and members; judgement
LAST = 0.8  # of its collectives one rank came last in; judgement
FEW = 3  # collectives, before one is called the last again and again; judgement
# Bytes of one element, by torch's names of c10::ScalarType.
SIZES = {
    **dict.fromkeys(("byte", "char", "bool", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"), 1),
    **dict.fromkeys(("short", "half", "bfloat16", "uint16"), 2),
    **dict.fromkeys(("int", "float", "complexhalf", "uint32"), 4),
    **dict.fromkeys(("long", "double", "complexfloat", "uint64"), 8),
    "complexdouble": 16,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Counts:
    """`times` that the data crosses the slowest link, with (n - 1) / n for n ranks; None: once, and whole. Which bytes
    count: a rank's input, or its `output`; `each`: those of every member."""

    times: int | None
    output: bool = False
    each: bool = False

    def bytes(self, of_rank: int, members: int) -> int:
        return of_rank * members if self.each else of_rank


FACTORS: dict[str, _Counts] = {
    **dict.fromkeys(("all_reduce", "all_reduce_coalesced"), _Counts(2)),
    **dict.fromkeys(("all_gather", "all_gather_base"), _Counts(1, each=True)),
    "reduce_scatter": _Counts(1, output=True, each=True),
    **dict.fromkeys(("reduce_scatter_base", "all_to_all", "all_to_all_base"), _Counts(1)),
    **dict.fromkeys(("broadcast", "reduce"), _Counts(None)),
}


@dataclass(frozen=True, slots=True)
class Speed:
    """`bytes` as nccl-tests counts them. `whole`: the times of all members are known; else the transfer may have been
    quicker. `last`: the rank that came last in most of the `count` collectives, or None. `peers_gbs`: the median of
    other groups of as many ranks at the same, None without two of them. `reading`: one that tells it. DeepSpeed's own
    figures tell no group: `members` is 0, `seconds` and `gbs` are means."""

    group: str
    ranks: tuple[int, ...]
    members: int
    op: str
    bytes: int
    count: int
    seconds: float
    gbs: float
    whole: bool
    last: int | None
    peers_gbs: float | None
    reading: str

    @property
    def slow(self) -> bool:
        return self.peers_gbs is not None and self.gbs < SLOW * self.peers_gbs

    @property
    def says(self) -> str:
        """One sentence without its end."""
        least = "" if self.whole or not self.members else "at least "
        among = f" among {self.members} ranks of {self.group}" if self.members else ""
        words = f"{self.op} of {_size(self.bytes)}{among}: {least}{self.gbs:.3g} GB/s"
        often = "once" if self.count == 1 else f"{self.count} times"
        words += f" of bus bandwidth, {1000 * self.seconds:.3g} ms, {often}"
        if self.slow:
            words += f"; {self.peers_gbs:.3g} GB/s in other groups"
        return words + (f"; rank {self.last} came last in most" if self.last is not None else "")


def bus_bandwidth(op: str, size: int, members: int, seconds: float) -> float:
    """GB/s. `op` as `operation` names it; raises KeyError for one without a factor."""
    times = FACTORS[op].times
    return (1.0 if times is None else times * (members - 1) / members) * size / seconds / 1e9


def speeds_of(evidence: Evidence) -> tuple[Speed, ...]:
    """From recorders with durations (TORCH_NCCL_ENABLE_TIMING=1), traces of torch.profiler, and DeepSpeed's logger."""
    rows = [row for group in recorded_groups(evidence) for row in _of_group(group)]
    rows += _of_traces(evidence)
    rows += _of_comms_logs(evidence)
    alike: dict[tuple[str, int, int], list[Speed]] = {}
    for row in rows:
        alike.setdefault((row.op, row.bytes, row.members), []).append(row)
    told = [_beside(row, alike[row.op, row.bytes, row.members]) for row in rows]
    return tuple(sorted(told, key=lambda row: (not row.slow, -row.seconds * row.count))[:MOST])


def _of_group(group: RecordedGroup) -> Iterator[Speed]:
    members = len(group.members) if group.members is not None else len(group.ranks)
    if members < 2:
        return
    times: dict[int, dict[int, float]] = {}  # collective -> rank -> seconds
    what: dict[int, Signature] = {}
    for rank, (view, mine) in group.ranks.items():
        signatures = view.dump.signatures if view.dump is not None else ()
        for entry in mine.last:
            if entry.is_p2p or entry.seq is None or entry.pending or not entry.duration_ms or entry.duration_ms <= 0:
                continue
            times.setdefault(entry.seq, {})[rank] = entry.duration_ms / 1000
            what[entry.seq] = signatures[entry.signature]
    by_kind: dict[tuple[str, int], list[int]] = {}
    for seq, signature in what.items():
        op, size = operation(signature.op), moved(signature, members)
        if size is not None and size >= LEAST_BYTES:
            by_kind.setdefault((op, size), []).append(seq)
    view, _ = next(iter(group.ranks.values()))
    for (op, size), seqs in by_kind.items():
        seconds = statistics.median(min(times[seq].values()) for seq in seqs)
        whole = all(len(times[seq]) == members for seq in seqs)
        yield Speed(
            group.name, tuple(sorted(group.ranks)), members, op, size, len(seqs), seconds,
            bus_bandwidth(op, size, members, seconds), whole, _last([times[seq] for seq in seqs]) if whole else None,
            None, view.ref("rank.flight_recorder"),
        )  # fmt: skip


def _of_traces(evidence: Evidence) -> Iterator[Speed]:
    """The shortest time on any rank: traces do not tell which calls are the same collective, and hold the waiting."""
    alike: dict[tuple[str, str, int, int], list[Speed]] = {}
    for seen in evidence.of("rank.operators"):
        for one in of_trace(seen.facts, seen.ref):
            alike.setdefault((one.group, one.op, one.bytes, one.members), []).append(one)
    for rows in alike.values():
        best = min(rows, key=lambda row: row.seconds)
        ranks = sorted({rank for row in rows for rank in row.ranks})
        yield replace(best, ranks=tuple(ranks), count=max(row.count for row in rows))


def of_trace(facts: Operators, reading: str) -> Iterator[Speed]:
    """What one rank's trace tells: its shortest time of each kind of collective, in which it hardly waited."""
    for one in facts.collectives:
        op, width = operation(one.op), SIZES.get(one.dtype.lower())
        if op not in FACTORS or width is None or one.members < 2 or one.least_us <= 0:
            continue
        counts = FACTORS[op]
        size = counts.bytes(width * (one.elements_out if counts.output else one.elements_in), one.members)
        if size >= LEAST_BYTES:
            seconds = one.least_us / 1e6
            yield Speed(
                one.group or "a group", () if facts.rank is None else (facts.rank,), one.members, op, size, one.count,
                seconds, bus_bandwidth(op, size, one.members, seconds), False, None, None, reading,
            )  # fmt: skip


def _of_comms_logs(evidence: Evidence) -> Iterator[Speed]:
    """As DeepSpeed computed them: it tells neither the group nor its ranks."""
    for seen in evidence.of("rank.comms_log"):
        for one in seen.facts.collectives:
            if one.bytes >= LEAST_BYTES and one.gbps > 0:
                yield Speed(
                    "", (), 0, operation(one.op), one.bytes, one.count, one.ms / 1000, one.gbps / 8, False, None, None,
                    seen.ref,
                )  # fmt: skip


def moved(signature: Signature, members: int) -> int | None:
    """Bytes of a collective as nccl-tests counts them; None where the recorder does not tell them all."""
    op = operation(signature.op)
    if op not in FACTORS:
        return None
    counts = FACTORS[op]
    sizes = signature.output_sizes if counts.output else signature.input_sizes
    types = signature.output_dtypes if counts.output else signature.input_dtypes
    if not sizes or len(sizes) < signature.tensors or not types:
        return None
    widths = [SIZES.get(one.lower()) for one in types]
    if None in widths or len(widths) not in (1, len(sizes)):
        return None
    widths = widths * len(sizes) if len(widths) == 1 else widths
    size = sum(math.prod(shape) * (width or 0) for shape, width in zip(sizes, widths, strict=True))
    return counts.bytes(size, members)


def _last(times: Sequence[Mapping[int, float]]) -> int | None:
    """Of two ranks one always comes last: then the other must have waited for long."""
    found = Counter(min(one, key=lambda rank: one[rank]) for one in times if 2 * min(one.values()) < max(one.values()))
    if not found:
        return None
    rank, count = found.most_common(1)[0]
    return rank if count >= FEW and count >= LAST * len(times) else None


def _beside(row: Speed, alike: Sequence[Speed]) -> Speed:
    others = [one.gbs for one in alike if one is not row]
    if len(others) < 2 or not row.members:
        return row
    return replace(row, peers_gbs=statistics.median(others))


def _size(size: int) -> str:
    for unit, word in ((1 << 30, "GiB"), (1 << 20, "MiB")):
        if size >= unit:
            return f"{size / unit:.3g} {word}"
    return f"{size} bytes"


def as_json(speeds: Sequence[Speed]) -> list[dict[str, Any]]:
    """For the record and the page."""
    return [
        {
            "group": clean(one.group)[:200],
            "op": one.op,
            "members": one.members,
            "bytes": one.bytes,
            "count": one.count,
            "seconds": round(one.seconds, 6),
            "gbs": round(one.gbs, 3),
            "whole": one.whole,
            "last": one.last,
            "slow": one.slow,
            "says": clean(one.says)[:600],
            "reading": clean(one.reading)[:400],
        }
        for one in speeds
    ]
