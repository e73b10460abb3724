"""Several hypotheses that tell one thing: one server that many nodes miss, one program on many GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from probes.diagnosis.core import Hypothesis

MOST = 12  # reasons that are kept


def as_one(some: Iterable[Hypothesis], key: tuple[str, ...], others: str) -> Iterator[Hypothesis]:
    """Hypotheses whose subjects agree in `key` become one: the first, with what all subjects share. `others` says how
    many more there are, with a %d."""
    groups: dict[tuple[object, ...], list[Hypothesis]] = {}
    for one in some:
        groups.setdefault((one.cause, *(one.subject.get(name) for name in key)), []).append(one)
    for group in groups.values():
        first = group[0]
        if len(group) == 1:
            yield first
            continue
        shared = {
            name: value for name, value in first.subject.items() if all(o.subject.get(name) == value for o in group)
        }
        yield replace(
            first,
            subject=shared or dict(first.subject),
            says=f"{first.says}; {others % (len(group) - 1)}",
            because=tuple(dict.fromkeys(reason for one in group for reason in one.because))[:MOST],
            against=tuple(dict.fromkeys(reason for one in group for reason in one.against))[:MOST],
            signals=tuple(dict.fromkeys(signal for one in group for signal in one.signals)),
            ranks=frozenset().union(*(one.ranks for one in group)),
            nodes=frozenset().union(*(one.nodes for one in group)),
        )
