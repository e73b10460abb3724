"""The same adapter of several nodes lost its link within minutes, by their kernels, and it stayed away: their cables
lead into one switch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from probes.catalog.kernel.events import Link
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule, Seen
from probes.diagnosis.times import apart, local, times_of

CAUSE = "ib.switch_down"
TOGETHER, TOGETHER_S = 3, 120.0  # nodes, seconds; judgement, as of what a fabric's manager tells
BOOT_S = 600.0  # judgement: while a node boots, ports without a cable tell that they are down


class _Lost(NamedTuple):
    seen: Seen
    link: Link
    at: float

    @property
    def name(self) -> str:
        return self.link.name or self.link.device


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    rails: dict[str, list[_Lost]] = {}
    for seen in evidence.of("host.kernel_log"):
        for link in seen.facts.links:
            at = local(link.last)
            if not seen.node or at is None or link.up is not False or _boots(seen, link):
                continue
            if not times_of(evidence).over(seen.node, link.last_at, link.last) and not _up_now(evidence, seen, link):
                rails.setdefault(link.name or link.device, []).append(_Lost(seen, link, at))
    for near in _of_one_switch(rails):
        names = sorted({one.name for one in near})
        name, nodes = " and ".join(names[:4]), {one.seen.node for one in near}
        switch = evidence.ports.switch_of((one.seen.node, one.name) for one in near)
        yield Hypothesis(
            CAUSE, {"switch": switch} if switch else {"device": name} if len(names) == 1 else {},
            f"{switch or f'The switch of {name}'} is lost: its links on {len(nodes)} nodes went down at once and "
            "stayed down",
            tuple(Reason(f"{one.name} on {one.seen.node} went down and stayed so", one.seen.ref) for one in near[:6]),
            ("rail_lost_in_logs",),
            would_change=("that the cables lead into different switches", "the ports of these nodes ACTIVE now"),
            nodes=frozenset(nodes),
        )  # fmt: skip


def _of_one_switch(rails: dict[str, list[_Lost]]) -> list[list[_Lost]]:
    """What went together of each rail; rails that the very same nodes lost at once are one: they may share a leaf."""
    found: list[list[_Lost]] = []
    for lost in rails.values():
        near = [one for one in lost if apart(one.at, lost[-1].at) <= TOGETHER_S]
        nodes = {one.seen.node for one in near}
        same = (one for one in found if {lost.seen.node for lost in one} == nodes)
        beside = next((one for one in same if apart(one[-1].at, near[-1].at) <= TOGETHER_S), None)
        if beside is not None:
            beside += near
        elif len(nodes) >= TOGETHER:
            found.append(near)
    return found


def _boots(seen: Seen, link: Link) -> bool:
    """While it booted, by its uptime or by its kernel's first line."""
    at, booted = local(link.last), seen.facts.booted_at
    begins = [local(stamp) for one in seen.facts.notices if one.what == "boot" for stamp in (one.first, one.last)]
    if at is not None and any(begin is not None and 0 <= at - begin < BOOT_S for begin in begins):
        return True
    return booted is not None and link.last_at is not None and link.last_at - booted < BOOT_S


def _up_now(evidence: Evidence, seen: Seen, link: Link) -> bool:
    view = evidence.ports.of_device(seen.node, link.device) or evidence.ports.of_device(seen.node, link.name)
    return view is not None and view.facts is not None and view.facts.state == "ACTIVE"


RULE = Rule((CAUSE,), judge)
