"""Stacks of processes whose rank no file tells: together they are a small profile of their node.

Shape    profiles(stacks) -> (file, node, Profile) a node
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from probes.catalog.stacks.facts import ProcessStack
from probes.catalog.stacks.profile import Profile
from probes.catalog.stacks.waits import GIVES_AWAY, Wait, waits_in

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
            syncs = [one for one in waits if one.kind == "device sync"]
            at = Counter(one.at.short for one in syncs if one.at is not None).most_common(1)
            holders = [_holder(stack, one) for (_, stack), one in zip(some, waits, strict=True)]
            held = Counter(name for name, _ in holders if name)  # who computes is elsewhere at each look
            name, times = held.most_common(1)[0] if held else ("", 0)
            place = next((at for one, at in holders if one == name and at), "")
            name = f"{name} at {place}" if place else name
            yield (
                some[0][0],
                node,
                Profile(
                    len(some), len(some), len(syncs), at[0][0] if at else "", (), "", False,
                    beside=times, beside_at=name, loader=loads, looks=True,
                ),
            )  # fmt: skip


def _holder(stack: ProcessStack, waits: Wait) -> tuple[str, str]:
    """The thread that holds the interpreter's lock while the main thread needs it, and where; "" for none."""
    look = stack.look
    held = look.holder and look.gil is False and not look.active and waits.kind not in GIVES_AWAY
    return (look.holder, look.holder_at) if held else ("", "")
