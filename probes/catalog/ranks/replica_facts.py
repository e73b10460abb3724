"""What texts tell of replicas: values that should be equal on all ranks, kernels that run beside collectives, and what
a piece of the program does with its collectives.

Units    ns
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Value:
    """What one rank told of its copy. `blocking`: in a run in which the host waits for each kernel."""

    name: str  # param_hash, |w|, max abs diff
    step: int | None
    rank: int | None  # None: the file's name tells it
    text: str
    blocking: bool = False


@dataclass(frozen=True, slots=True)
class Replicas:
    """`said`: verdicts of the check itself (True: differ), with whether the host waited for each kernel."""

    values: tuple[Value, ...]
    said: tuple[tuple[bool, bool], ...] = ()


@dataclass(frozen=True, slots=True)
class Beside:
    """One kind of kernel that was launched after a collective, on another stream: how often it began within it, and how
    often after its end. `update`: by its name it changes or reads parameters (an optimizer, an average, a copy)."""

    collective: str
    kernel: str
    inside: int
    after: int
    update: bool


@dataclass(frozen=True, slots=True)
class KernelTrace:
    kernels: int
    collectives: int
    pairs: tuple[Beside, ...]


@dataclass(frozen=True, slots=True)
class SourceFault:
    """`kind`: "work dropped", "work not waited for", "stream not waited for". `undone`: a wait stands there, but as a
    comment or as a line that was removed. `used`: what it gives is used afterwards, in the same piece."""

    kind: str
    line: int
    text: str
    undone: bool = False
    used: bool = False


@dataclass(frozen=True, slots=True)
class SourceText:
    lines: int
    faults: tuple[SourceFault, ...]


@dataclass(frozen=True, slots=True)
class NanValue:
    """One value of a rank (None: of the job), or the first of its kind that is no number: `finite_before` others were
    numbers, and it `stays` so in all that follow."""

    name: str
    step: int | None
    rank: int | None
    bad: bool
    stays: bool = False
    finite_before: int = 0


@dataclass(frozen=True, slots=True)
class NanValues:
    values: tuple[NanValue, ...]


@dataclass(frozen=True, slots=True)
class Order:
    """In which order a rank (None: the file's name tells it) did the same things: hooks, buckets, parameters."""

    thing: str
    rank: int | None
    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Orders:
    orders: tuple[Order, ...]
