"""The kernel killed a process of the job because memory ran out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from probes.catalog.kernel.events import OomKill
from probes.catalog.logs.events import LogEvent
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule, Seen
from probes.diagnosis.job import RankView, quoted
from probes.diagnosis.log_evidence import Said, node_called, node_of
from probes.diagnosis.rules._merge import as_one
from probes.diagnosis.times import ZONES_S, apart, local, times_of

CAUSE = "host.memory_oom_kill"
KILLED = (-9, 137)
SAME_S, QUARTER_S = 120.0, 900.0  # judgement: launchers look every second; zones differ by quarters of hours
_BY_KILL = re.compile(r"killed by signal: Killed|: Killed\b|\bSIGKILL\b")
TRAINS = ("python", "pt_", "torchrun", "deepspeed", "accelerate", "ray::")


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    """One hypothesis for each node: the kernel often kills one process of a job after another."""
    told = list(_kills(evidence))
    mine = [one for one in told if one.signals[0] != "oom_of_another"]
    yield from as_one(mine, ("node",), "%d more processes were killed there")
    yield from (one for one in told if one not in mine)
    if not told:
        yield from _counted(evidence)


def _counted(evidence: Evidence) -> Iterator[Hypothesis]:
    """The control group counted kills, and nothing tells when and of whom."""
    found = list(evidence.findings("host.oom_counted"))
    for seen, finding in found:
        # Of several groups that count kills nothing tells in which of them it was.
        ended = _ended_by_kill(evidence, seen.node) if len({one.node for one, _ in found}) == 1 else []
        ranks = frozenset(rank for one in ended if (rank := one[0].rank) is not None)
        yield Hypothesis(
            CAUSE,
            {"node": seen.node} if seen.node else {},
            f"On {seen.node or 'a node'} {finding.says}",
            (Reason(finding.says, seen.ref), *(quoted(*one) for one in ended[:2])),
            ("oom_counted", "killed_beside") if ended else ("oom_counted",),
            would_change=("the kernel log of the node: which process it was, and when",),
            ranks=ranks | frozenset(about for one in ended for about in one[0].about),
            nodes=frozenset({seen.node} | {"" for _ in ended}) if seen.node else frozenset(),
        )


def _ended_by_kill(evidence: Evidence, node: str) -> list[Said]:
    """Ranks or loader workers there, or of no known node, that SIGKILL ended."""
    told = evidence.job.said("loader_killed", "torchrun_failure", "fatal_signal", "scheduler_kill")
    return [
        one for one in told
        if (one[0].code in KILLED or _BY_KILL.search(one[0].text)) and node_of(evidence, one) in (node, "")
    ]  # fmt: skip


def _kills(evidence: Evidence) -> Iterator[Hypothesis]:
    ranks: Mapping[int, RankView] = evidence.job.ranks
    by_pid = {(view.node, view.pid): view for view in ranks.values() if view.pid is not None}
    workers = {(view.node, one.pid): view for view in ranks.values() for one in view.workers}
    times = times_of(evidence)
    for seen in evidence.of("host.kernel_log"):
        said = [finding for finding in seen.findings if finding.code == "kernel.oom_kill"]
        for kill, finding in zip(seen.facts.oom_kills, said, strict=False):
            view = by_pid.get((seen.node, kill.pid)) or workers.get((seen.node, kill.pid))
            view = view or _ended(evidence, seen, kill.pid) or _killed(evidence, seen, kill)
            old = times.old(seen.node, kill.last_at, kill.last)
            if old == "yes":
                continue
            signals: tuple[str, ...] = ("oom_of_training",) if view is not None else (_by_name(evidence, seen, kill),)
            subject: dict[str, str | int] = {"node": seen.node, "pid": kill.pid}
            if view is not None:
                subject["rank"] = view.rank
            sure = signals[0] == "oom_of_training" and not (old and view is None)
            yield Hypothesis(
                CAUSE,
                subject,
                f"On {seen.node or 'a node'} {finding.says}",
                (Reason(finding.says, seen.ref),),
                (*signals, "fault_before_job") if old and view is None else signals,
                would_change=("the job without a process that ended on this node",),
                ranks=frozenset({view.rank}) if view is not None else frozenset(),
                nodes=frozenset({seen.node}) if sure else frozenset(),
            )


def _by_name(evidence: Evidence, seen: Seen, kill: OomKill) -> str:
    """Of the job, by its control group or its name. A name says little where the job's own processes are all known."""
    slurm = evidence.job.name[1] if evidence.job.name else None
    if slurm and f"job_{slurm}/" in f"{kill.task_cgroup}/":
        return "oom_of_training"
    if not kill.process.startswith(TRAINS):
        return "oom_of_another"
    known = [view for view in evidence.job.ranks.values() if view.node == seen.node and view.place is not None]
    return "oom_of_training_by_name" if known or _all_there(evidence) else "oom_of_training"


def _all_there(evidence: Evidence) -> bool:
    """Whether every rank's process was seen: then the one that was killed is none of them."""
    job = evidence.job
    there = [rank for rank, view in job.ranks.items() if view.process is not None or view.place is not None]
    return bool(job.world) and len(there) == len(job.world)


def _ended(evidence: Evidence, seen: Seen, pid: int) -> RankView | None:
    """The rank that torchrun lists with this pid, or the rank whose data-loader worker it was."""
    for event, _, source in evidence.job.said("torchrun_failure", "loader_killed"):
        if event.more.get("pid") == pid and source.node in (seen.node, "") and event.rank is not None:
            view: RankView = evidence.job.view(event.rank)
            return view
    return None


def _killed(evidence: Evidence, seen: Seen, kill: OomKill) -> RankView | None:
    """The one rank of this node that ended by SIGKILL at that time. In a container a process calls itself by another
    number than the kernel does."""
    if not kill.process.startswith(TRAINS) or sum(one.process.startswith(TRAINS) for one in seen.facts.oom_kills) > 1:
        return None
    found: dict[int, tuple[float | None, str]] = {}
    for event, _, _ in evidence.job.said("torchrun_failure", "fatal_signal", "scheduler_kill"):
        rank = event.rank if event.rank is not None else next(iter(event.about), None)
        killed = event.code in KILLED or (event.kind == "scheduler_kill" and event.name == "Killed")  # srun's word
        if killed and rank is not None and _node(evidence, event, rank) == seen.node:
            known = found.get(rank)
            found[rank] = known if known and any(known) else (event.at, event.stamp)
    if len(found) != 1 or not seen.node:
        return None
    ((rank, (at, stamp)),) = found.items()
    mine, theirs = (kill.last_at, at) if kill.last_at and at else (local(kill.last), local(stamp))
    if mine is not None and theirs is not None and not _same_moment(apart(mine, theirs)):
        return None
    view: RankView = evidence.job.view(rank)
    return view


def _node(evidence: Evidence, event: LogEvent, rank: int) -> str:
    """Where the rank ran; srun tells it with the end of the rank: `srun: error: n1: task 3: Killed`."""
    return str(evidence.job.view(rank).node) or node_called(evidence, event.peer) or event.peer


def _same_moment(gap: float) -> bool:
    """Whether two times are one, but for the zones in which they were printed."""
    rest = abs(gap) % QUARTER_S
    return abs(gap) < ZONES_S + SAME_S and min(rest, QUARTER_S - rest) <= SAME_S


RULE = Rule((CAUSE,), judge)
