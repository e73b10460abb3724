"""Ranks do the same things in different orders, by what they wrote of it: hooks, buckets, collectives, groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from probes.catalog.ranks.replica_facts import Order
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule, Seen
from probes.diagnosis.suspects import ranks_said, shared

HOOK, MISMATCH, CYCLE = "fw.hook_order", "fw.collective_mismatch", "fw.group_order_cycle"


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    told: dict[str, dict[int, tuple[Order, Seen]]] = {}
    for seen in evidence.of("rank.orders"):
        for one in seen.facts.orders:
            if one.rank is not None:
                told.setdefault(one.thing, {})[one.rank] = (one, seen)  # the last that a rank told
    for thing, by_rank in told.items():
        orders = Counter(one.items for one, _ in by_rank.values())
        if len(orders) < 2 or len({frozenset(items) for items in orders}) > 1:
            continue  # of other things no order can be compared
        (usual, most), (_, next_most) = orders.most_common(2)
        odd = sorted(rank for rank, (one, _) in by_rank.items() if one.items != usual) if most > next_most else []
        cause, signal = _cause(thing)
        views = [evidence.job.view(rank) for rank in odd]
        subject, called = shared(views) if views else ({}, "Ranks")
        shown = [*odd[:2], *[rank for rank in sorted(by_rank) if rank not in odd][:2]] if odd else sorted(by_rank)[:4]
        yield Hypothesis(
            cause,
            subject,
            f"{called} {'has' if len(odd) == 1 else 'have'} another order of {thing}s than the others"
            if odd
            else f"Ranks have different orders of {thing}s",
            tuple(Reason(_says(by_rank[rank][0], usual), by_rank[rank][1].ref) for rank in shown),
            (signal,),
            would_change=("the same order on all ranks, and the fault all the same",),
            ranks=frozenset(odd) or frozenset(by_rank),
            nodes=frozenset(view.node for view in views),
        )


def _cause(thing: str) -> tuple[str, str]:
    if "hook" in thing or thing.startswith("param"):
        return HOOK, "hooks_in_other_order"
    return (CYCLE, "groups_in_other_order") if thing == "group" else (MISMATCH, "calls_in_other_order")


def _says(one: Order, usual: tuple[str, ...]) -> str:
    at = next((place for place, item in enumerate(one.items) if item != usual[place]), 0)
    return f"{ranks_said([one.rank or 0])}: {', '.join(one.items[at : at + 4])} from place {at + 1} on"


RULE = Rule((HOOK, MISMATCH, CYCLE), judge)
