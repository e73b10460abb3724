"""Which collectives did each rank on this node enqueue, start and complete, and in which does it wait?

Source   torch's flight recorder: through the worker server in the rank (torch.distributed.elastic.control_plane), else
         files that torch wrote (TORCH_FR_DUMP_TEMP_FILE, TORCH_NCCL_DEBUG_INFO_TEMP_FILE, or their defaults).
         Reduced on the node. The JSON of POST /handler/fr_trace_json is read too. NCCL's own dumps were never taken
         from a GPU here: they are read as torch 2.13 writes the same form
Units    seconds since the epoch, milliseconds, bytes
Shape    FlightRecorder: dumps with groups and entries, and why other ranks have none
Errors   ParseError when a part is not what the reducer writes, naming the rank
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from probes.catalog._collected import as_object, whole, whole_or_none, word, word_or_none
from probes.catalog.ranks import reach
from probes.catalog.recorder import decode, on_node, reader, values
from probes.catalog.recorder.facts import (
    Dump,
    Entry,
    FlightRecorder,
    Group,
    Missing,
    Signature,
    dump_of,
)
from probes.catalog.stacks.facts import Frame
from probes.core import Finding, ParseError, Probe, sections

__all__ = ["PROBE", "Dump", "Entry", "FlightRecorder", "Frame", "Group", "Missing", "Signature", "findings", "parse"]

WAITING_S = 60.0  # judgement: a collective of a healthy step lasts seconds at most


def _collect() -> Mapping[str, str]:
    return on_node.collect()


def parse(text: str) -> FlightRecorder:
    """Parts of the collector, or one dump as JSON (its rank is then not known and stands as -1)."""
    if text.lstrip()[:1] == "{":
        return _of_json(text)
    head: dict[str, Any] = {}
    dumps, missing = [], []
    for name, part in sections(text).items():
        if name == "golden15/recorders":
            head = as_object(part, name)
        elif name.startswith("golden15/dump "):
            told = as_object(part, name)
            dumps.append(dump_of(as_object_in(told, "reduced", name), told))
        elif name.startswith("golden15/missing "):
            missing.append(_missing(as_object(part, name), name))
    if not head:
        raise ParseError("expected the part golden15/recorders, which the collector writes first")
    host, left_out = word(head, "host", "recorders"), whole(head, "left_out", "recorders")
    dumps.sort(key=lambda dump: (dump.pid is None, dump.rank))
    return FlightRecorder(host, tuple(dumps), tuple(missing), left_out)


def as_object_in(told: Mapping[str, Any], key: str, what: str) -> dict[str, Any]:
    value = told.get(key)
    if not isinstance(value, dict):
        raise ParseError(f"{what}: expected an object as {key}, found {str(value)[:60]!r}")
    return value


def _of_json(text: str) -> FlightRecorder:
    data = text.encode("utf-8", "replace")
    try:
        reduced = reader.reduce(data)
    except decode.Refused as error:
        raise ParseError(f"expected a flight-recorder dump: {error}") from None
    stamp = {"rank": -1, "pid": None, "world_size": None, "host": "", "how": "file", "path": "", "bytes": len(data)}
    return FlightRecorder("", (dump_of(reduced, stamp),), (), 0)


def _missing(row: dict[str, Any], what: str) -> Missing:
    return Missing(
        rank=whole_or_none(row, "rank", what),
        pid=whole_or_none(row, "pid", what),
        why=word(row, "why", what, 1000),
        pipe=word(row, "pipe", what, 400),
        refused=row.get("refused") is True,
        run_id=word_or_none(row, "run_id", what),
        slurm_job=word_or_none(row, "slurm_job", what),
        master=word_or_none(row, "master", what),
    )


def findings(facts: FlightRecorder) -> Iterator[Finding]:
    """Ranks without a dump, and ranks whose collective is overdue. Who is to blame only all nodes together can say."""
    whys: dict[tuple[str, bool], list[Missing]] = {}
    for one in facts.missing:
        why = one.why.replace(f"_{one.rank} ", "_<rank> ")
        can = "; rank.flight_recorder_trigger can ask for one" if one.pipe else ""
        whys.setdefault((why + can, one.refused), []).append(one)
    for (why, refused), some in whys.items():
        known = [one.rank for one in some if one.rank is not None]
        numbers = ", ".join(map(str, known[:16])) + (", ..." if len(known) > 16 else "")
        who = f"{'ranks' if len(known) > 1 else 'rank'} {numbers}" if known else f"process {some[0].pid}"
        code, said = ("rank.dump_refused", "a dump that is not read") if refused else ("rank.no_dump", "no dump")
        subject: dict[str, str | int] = {"rank": numbers if len(known) > 1 else known[0]} if known else {}
        yield Finding(code, "warn", f"{who}: {said}: {why}", subject)
    if facts.left_out:
        yield Finding(
            "rank.too_many", "warn", f"{facts.left_out} ranks were not asked: only the first 64 of a node are"
        )
    for dump in facts.dumps:
        yield from _waits(dump)


def _waits(dump: Dump) -> Iterator[Finding]:
    """The oldest collective of each group that the rank waits for."""
    when = dump.mtime if dump.mtime is not None else dump.at
    for group in dump.groups:
        waiting = [entry for entry in group.pending if entry.created_at is not None]
        # By its number: moments of two that were enqueued together may lie in another order.
        oldest = min(waiting, key=lambda entry: (entry.is_p2p, entry.seq or entry.p2p_seq or 0), default=None)
        if oldest is None or oldest.created_at is None:
            continue
        waited = when - oldest.created_at
        what = dump.signatures[oldest.signature]
        number = f"#{oldest.p2p_seq} of its point-to-point operations" if oldest.is_p2p else f"#{oldest.seq}"
        called = f"{group.name} ({group.desc})" if group.desc else group.name
        where = f", called at {oldest.frames[0].file}:{oldest.frames[0].line}" if oldest.frames else ""
        says = f"{number} {what} in group {called}{where}"
        subject: dict[str, str | int] = {"rank": dump.rank, "group": group.name, "seq": oldest.seq or 0}
        if oldest.timed_out:
            yield Finding("rank.collective_timeout", "bad", f"rank {dump.rank} gave up on {says}", subject)
        elif waited >= WAITING_S:
            says = f"rank {dump.rank} has waited {waited:.0f} s for {says}"
            yield Finding("rank.collective_waits", "warn", says, subject)


PROBE = Probe(
    "rank.flight_recorder",
    "Which collectives did each rank enqueue, start and complete, and in which does it wait?",
    parse,
    findings,
    collect=_collect,
    by_hand='curl -s --unix-socket "$TORCH_WORKER_SERVER_SOCKET" -X POST http://localhost/handler/fr_trace_json',
    timeout_s=16.0,
    max_bytes=2_097_152,
    needs="the login of the user who trains, or root; the job must run torch's worker server or have written dumps",
    brings=(
        decode,
        values,
        reader,
        reach,
        on_node,
    ),
    touches="process",
    cost="98 ms",
)
