"""Stacks of processes whose rank no file tells: together they are a small profile of their node.

Shape    profiles(stacks) -> (file, node, Profile) a node
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from probes.catalog._profile import Profile
from probes.catalog._stack_facts import ProcessStack
from probes.catalog._stack_waits import waits_in

LEAST = 2  # main processes of a node; judgement


def profiles(stacks: Iterable[tuple[str, str, ProcessStack]]) -> Iterator[tuple[str, str, Profile]]:
    """Of (file, node, stack of a process that is no worker)."""
    nodes: dict[str, list[tuple[str, ProcessStack]]] = {}
    for ref, node, stack in stacks:
        nodes.setdefault(node, []).append((ref, stack))
    for node, some in nodes.items():
        waits = [waits_in(stack) for _, stack in some]
        loads = sum(one.kind == "data loader" or "data loader" in one.within for one in waits)
        if len(some) >= LEAST:
            yield some[0][0], node, Profile(len(some), len(some), 0, "", (), "", False, loader=loads, looks=True)
