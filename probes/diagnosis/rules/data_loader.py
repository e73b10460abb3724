"""The rank that the others wait for is itself waiting for its next batch."""

from __future__ import annotations

from collections.abc import Iterator

from probes.catalog._stack_waits import Wait, waits_in
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.job import RankView, quoted

CAUSE = "cpu.dataloader_starved"


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    for rank, suspect in evidence.suspects.items():
        waits = suspect.view.waits
        if waits is not None and (waits.kind == "data loader" or "data loader" in waits.within):
            yield _starved(rank, suspect.view, waits, suspect.signals == ("rank_elsewhere_by_stack",))
    for event, log, seen in evidence.job.said("loader_killed", "loader_timeout"):
        if event.rank is None:
            continue
        view = evidence.job.view(event.rank)
        yield Hypothesis(
            CAUSE,
            view.subject,
            f"{view.headline} lost a data-loader worker, or waited too long for one",
            (quoted(event, log, seen),),
            ("loader_in_log",),
            ranks=frozenset({event.rank}),
            nodes=frozenset({view.node}),
        )


def _starved(rank: int, view: RankView, waits: Wait, one_look: bool) -> Hypothesis:
    because = [Reason(f"rank {rank}: main thread in {waits}", view.ref("rank.stack"))]
    signals = ["in_data_loader"]
    where = f" at {waits.at.short}" if waits.at is not None else ""
    workers = [(stack, waits_in(stack)) for stack in view.worker_stacks]
    for stack, inside in workers:
        if inside.kind in ("loader idle", "unknown") or inside.at is None:
            continue
        how = "runs" if inside.busy or stack.state == "R" else "waits"
        because.append(
            Reason(
                f"its worker {stack.pid or ''} {how} in {inside.at.short}".replace("  ", " "), view.ref("rank.stack")
            )
        )
        where = f": its worker {how} in {inside.at.short}"
        signals.append("loader_worker_busy_or_asleep")
        break
    if not workers and waits.at is not None:  # num_workers=0: the rank computes its samples itself
        signals.append("loader_worker_busy_or_asleep")
    if one_look:
        signals = ["in_data_loader_one_look"]
    return Hypothesis(
        CAUSE,
        view.subject,
        f"{view.headline} waits for its data loader{where}",
        tuple(because),
        tuple(signals),
        would_change=("a second look at which the rank is past its loader",),
        ranks=frozenset({rank}),
        nodes=frozenset({view.node}),
    )


RULE = Rule((CAUSE,), judge)
