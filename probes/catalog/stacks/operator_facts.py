"""What a trace of torch.profiler tells of one rank, its operators and collectives; and DeepSpeed's log of collectives.

Units    microseconds, bytes; milliseconds and Gb/s of DeepSpeed
Shape    Operators, CommsLog
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Operator:
    """`self_us` is the CPU's time without the operators that it calls, `cpu_us` with them; `device_us` that of the
    kernels and copies which it started itself, `memory_bytes` what it asked for itself; both None where the trace holds
    none at all."""

    name: str
    calls: int
    self_us: float
    cpu_us: float
    device_us: float | None
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class TracedCollective:
    """Calls of one kind. Times are of its kernel on this rank: they hold its waiting for the others. `elements` and
    `dtype` as torch wrote them."""

    group: str
    op: str
    members: int
    elements_in: int
    elements_out: int
    dtype: str
    count: int
    least_us: float
    median_us: float


@dataclass(frozen=True, slots=True)
class Operators:
    """The operators that took the most of the CPU or the device; `left_out` is how many more there are."""

    pid: int | None
    rank: int | None
    span_us: float
    operators: tuple[Operator, ...]
    left_out: int
    collectives: tuple[TracedCollective, ...]


@dataclass(frozen=True, slots=True)
class LoggedCollective:
    """`ms` and `gbps` (bus bandwidth, Gb/s) are means over `count` calls, as DeepSpeed computed them."""

    op: str
    bytes: int
    count: int
    ms: float
    gbps: float


@dataclass(frozen=True, slots=True)
class CommsLog:
    """What DeepSpeed's communication logger wrote."""

    collectives: tuple[LoggedCollective, ...]
