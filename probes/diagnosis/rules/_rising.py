"""Counters of errors that rise on few ports between two looks, and stand still on those beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import median

from probes.diagnosis.core import Reason
from probes.diagnosis.ports import PortView

TIMES = 10  # judgement: so many times what the others count, before it is that port and no common cause
MANY = 10  # judgement: fewer may be left of one event that is over

Odd = tuple[PortView, int]  # a port, and by how much it rose


def odd_ones(views: Iterable[PortView], name: str, rise: Callable[[PortView], int] | None = None) -> list[Odd]:
    """Ports on which it rose, worst first; [] where no other port counts it, or most rise alike. `rise`: in place of
    the counter's own, such as without what follows from other errors."""
    grown = {id(view): (view, (rise or (lambda one: one.rise(name)))(view)) for view in views if view.known(name)}
    found = []
    for view, count in grown.values():
        others = [other for one, other in grown.values() if one is not view]
        if not others and not view.switch:  # a sweep of switches leaves out ports that counted nothing
            continue
        if count > 0 and count >= TIMES * max(0.1, median(others or [0])):
            found.append((view, count))
    return sorted(found, key=lambda one: -one[1])


def rose(view: PortView, name: str, count: int) -> Reason:
    """`mlx5_1/1 on gpu-02: out_of_buffer rose by 120 in 1 s (120/s)`."""
    seconds = view.seconds(name)
    over = " between two looks"
    if seconds:
        over = f" in {seconds:.3g} s ({count / seconds:,.{0 if count >= 10 * seconds else 2}f}/s)"
    return Reason(f"{view.called}: {name} rose by {count:,}{over}", view.ref_of(name))


def many(odd: list[Odd]) -> bool:
    """Fewer altogether may be left of one event."""
    return sum(count for _, count in odd) >= MANY


def by_node(odd: list[Odd]) -> dict[str, list[Odd]]:
    """Ports by their node: its rails have one cause."""
    found: dict[str, list[Odd]] = {}
    for view, count in odd:
        found.setdefault(view.node, []).append((view, count))
    return found


def place(odd: list[Odd]) -> dict[str, str | int]:
    """The port, or the node where several of its ports rise, or nothing where those are of several nodes."""
    if len(odd) == 1:
        return odd[0][0].subject
    nodes = {view.node for view, _ in odd}
    return {"node": nodes.pop()} if len(nodes) == 1 and "" not in nodes else {}


def called(odd: list[Odd]) -> str:
    if len(odd) == 1:
        return odd[0][0].called
    nodes = sorted({view.node for view, _ in odd} - {""})
    return f"{len(odd)} ports of {nodes[0] if len(nodes) == 1 else f'{len(nodes)} nodes'}"
