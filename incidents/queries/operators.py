"""A trace's operators and collectives as tables, and what the node told of the same process at its own look.

Units    milliseconds, MiB, percent of one CPU
Shape    operators(reading) -> Operators or None; process_of(reading, pid, rank) -> Process or None
Errors   none: facts of an older form show nothing
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from incidents.models import Reading
from probes.catalog.stacks.operator_facts import Operators as Told
from probes.diagnosis.bandwidth import Speed, of_trace
from probes.stored import stored

OF_RANKS = "rank.process"


@dataclass(frozen=True, slots=True)
class Row:
    """`share`: of the operators' own time on CPU and device, in percent of the largest."""

    name: str
    calls: int
    own_ms: float
    all_ms: float
    device_ms: float | None
    memory_mib: float | None
    share: float


@dataclass(frozen=True, slots=True)
class Operators:
    rank: int | None
    pid: int | None
    span_ms: float
    rows: tuple[Row, ...]
    left_out: int
    device: bool
    memory: bool
    speeds: tuple[Speed, ...]


@dataclass(frozen=True, slots=True)
class Process:
    """`figures`: (name, value) of what its node told. `by_rank`: found by its rank alone; `said_pid`: the pid that the
    trace tells instead, as of a process in a container, or of another run's."""

    reading: Reading
    pid: int
    rank: int
    figures: tuple[tuple[str, str], ...]
    by_rank: bool
    said_pid: int | None = None


def operators(reading: Reading) -> Operators | None:
    """None where the reading is no trace's."""
    if reading.probe != "rank.operators" or reading.facts is None:
        return None
    facts = stored("", reading.probe, "ok", "", reading.facts, []).facts
    if not isinstance(facts, Told):
        return None
    most = max((_weight(one.self_us, one.device_us) for one in facts.operators), default=0.0) or 1.0
    rows = tuple(
        Row(
            one.name, one.calls, one.self_us / 1000, one.cpu_us / 1000,
            None if one.device_us is None else one.device_us / 1000,
            None if one.memory_bytes is None else one.memory_bytes / (1 << 20),
            round(100 * _weight(one.self_us, one.device_us) / most, 1),
        )
        for one in facts.operators
    )  # fmt: skip
    return Operators(
        facts.rank, facts.pid, facts.span_us / 1000, rows, facts.left_out,
        any(one.device_us is not None for one in facts.operators),
        any(one.memory_bytes is not None for one in facts.operators), tuple(of_trace(facts, reading.ref)),
    )  # fmt: skip


def without_rows(facts: Any) -> Any:
    """The facts as a list shows them: the tables show the others."""
    return {key: value for key, value in facts.items() if key not in ("operators", "collectives")}


def _weight(own: float, device: float | None) -> float:
    return own + (device or 0.0)


def process_of(reading: Reading, pid: int | None, rank: int | None) -> Process | None:
    """What rank.process saw of the process that a trace or a profile is of; the latest look that holds it."""
    if pid is None and rank is None:
        return None
    looks = Reading.objects.filter(run__incident=reading.run.incident_id, probe=OF_RANKS, outcome="ok")
    found = None
    for look in looks.select_related("node").defer("out", "err").order_by("-pk")[:200]:
        for row in (look.facts or {}).get("processes", []):
            if row.get("worker_of") is not None:
                continue
            same_node = not reading.node_name or look.node_name == reading.node_name
            if same_node and pid is not None and row["pid"] == pid and rank in (None, row["rank"]):
                return Process(look, row["pid"], row["rank"], tuple(_figures(row)), by_rank=False)
            if found is None and rank is not None and row["rank"] == rank:
                found = Process(look, row["pid"], row["rank"], tuple(_figures(row)), by_rank=True, said_pid=pid)
    return found


def _figures(row: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """CPU, waiting for a CPU, memory and faults: what an operator's time alone does not tell."""
    percent = {"cpu_percent": "CPU", "run_delay_percent": "waited for a CPU"}
    for name, label in percent.items():
        if row.get(name) is not None:
            yield label, f"{row[name]:.0f} %"
    for name, label in {"rss_bytes": "memory (RSS)", "swap_bytes": "swapped out"}.items():
        if row.get(name):
            yield label, f"{row[name] / (1 << 30):.1f} GiB"
    if row.get("major_faults") is not None:
        yield "major page faults", str(row["major_faults"])
    if row.get("threads_total") is not None:
        yield "threads", str(row["threads_total"])
    if row.get("state"):
        yield "state", row["state"] + (f" in {row['wchan']}" if row.get("wchan") else "")
