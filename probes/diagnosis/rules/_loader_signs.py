"""What shows that a job waits for its data where no rank is known: workers at full load beside ranks that do little,
profiles of the main thread, and what Lightning's profiler counted.

Units    percent of one CPU
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason
from probes.diagnosis.cpus import NodeCpu, Runner
from probes.diagnosis.profiled import profiles
from probes.diagnosis.whose import rank_of

CAUSE = "cpu.dataloader_starved"
FULL, LITTLE = 85.0, 60.0  # percent of one CPU: a worker that never waits, a rank that mostly does; judgement
WORKERS, SHARE = 4, 0.8  # of the workers of a node; judgement
HALF, SAMPLES, LOOKS = 0.5, 50, 4  # judgement
RANKS = 3  # with two, nothing tells which is the usual one
LEAST_S = 0.2  # of fetching in a whole table or trace: less is a toy; judgement


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    found = reasons(evidence)
    if not found:
        return
    nodes = {here.node for here in evidence.cpus.values() if _workers_full(here)}
    subject: dict[str, str | int] = {}
    if len(nodes) == 1 and len(evidence.cpus) > 1:
        subject = {"node": min(nodes)}
    if (lone := _lone_rank(evidence)) is not None:
        subject = dict(evidence.job.view(lone).subject)
    yield Hypothesis(
        CAUSE,
        subject,
        "The ranks wait for their data: " + found[0][1].says,
        tuple(reason for _, reason in found),
        tuple(dict.fromkeys(signal for signal, _ in found)),
        would_change=("steps in which the data is there at once",),
        nodes=frozenset(nodes),
    )


def _lone_rank(evidence: Evidence) -> int | None:
    """The one rank whose table is mostly of fetching data, where tables of two others or more are not."""
    told = {rank_of(evidence, seen): seen.facts.share > HALF for seen in evidence.of("rank.time_shares")}
    told.pop(None, None)
    starved = [rank for rank, much in told.items() if much]
    return starved[0] if len(starved) == 1 and len(told) >= RANKS else None


def reasons(evidence: Evidence) -> list[tuple[str, Reason]]:
    """(signal, reason), the strongest first."""
    return [*_in_profiles(evidence), *_by_workers(evidence)]


def _by_workers(evidence: Evidence) -> Iterator[tuple[str, Reason]]:
    for here in evidence.cpus.values():
        if (told := _workers_full(here)) is not None and not here.waiting:
            workers = told[0]
            full, little = (statistics.median(one.cpu or 0.0 for one in some) for some in told)
            says = f"{len(workers)} loader workers run at {full:.0f} % of a CPU each, their ranks at {little:.0f} %"
            yield "workers_full_ranks_idle", Reason(says + (f", on {here.node}" if here.node else ""), workers[0].ref)


def _workers_full(here: NodeCpu) -> tuple[list[Runner], list[Runner]] | None:
    """(workers, their ranks) where nearly all workers never wait, and the ranks mostly do."""
    workers = [one for one in here.runners.values() if one.comm == "pt_data_worker" and one.cpu is not None]
    above = {one.ppid for one in workers}
    ranks = [one for one in here.runners.values() if one.pid in above and one.cpu is not None]
    if len(workers) < WORKERS or not ranks:
        return None
    busy = sum((one.cpu or 0.0) >= FULL for one in workers)
    idle = statistics.median(one.cpu or 0.0 for one in ranks) < LITTLE
    return (workers, ranks) if busy >= SHARE * len(workers) and idle else None


def _in_profiles(evidence: Evidence) -> Iterator[tuple[str, Reason]]:
    dumps = [seen for seen in evidence.of("rank.profile") if seen.facts.looks]
    total, loads = sum(seen.facts.total for seen in dumps), sum(seen.facts.loader for seen in dumps)
    if total >= LOOKS and loads > HALF * total:
        says = f"{loads} of {total} processes whose ranks are not known are in their data loader"
        yield "most_in_loader", Reason(says, dumps[0].ref)
    for seen in profiles(evidence):
        profile = seen.facts
        if (
            not profile.looks
            and not profile.lock
            and profile.total >= SAMPLES
            and profile.loader > HALF * profile.total
        ):
            says = f"{100 * profile.loader / profile.total:.0f} % of {profile.total} samples are in the data loader"
            yield "loader_in_profile", Reason(says, seen.ref)
    for seen in evidence.of("rank.time_shares"):
        told = seen.facts
        if told.share > HALF and (told.data_s is None or told.data_s > LEAST_S):
            yield "loader_in_table", Reason(f"{100 * told.share:.0f} % of the time is {told.data}", seen.ref)
