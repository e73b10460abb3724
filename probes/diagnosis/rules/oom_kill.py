"""The kernel killed a process of the job because memory ran out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from probes.catalog._kernel_events import OomKill
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule, Seen
from probes.diagnosis.job import RankView
from probes.diagnosis.rules._merge import as_one
from probes.diagnosis.times import times_of

CAUSE = "host.memory_oom_kill"
TRAINS = ("python", "pt_", "torchrun", "deepspeed", "accelerate")


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    """One hypothesis for each node: the kernel often kills one process of a job after another."""
    told = list(_kills(evidence))
    mine = [one for one in told if one.signals[0] != "oom_of_another"]
    yield from as_one(mine, ("node",), "%d more processes were killed there")
    yield from (one for one in told if one not in mine)


def _kills(evidence: Evidence) -> Iterator[Hypothesis]:
    ranks: Mapping[int, RankView] = evidence.job.ranks
    by_pid = {(view.node, view.pid): view for view in ranks.values() if view.pid is not None}
    workers = {(view.node, one.pid): view for view in ranks.values() for one in view.workers}
    times = times_of(evidence)
    for seen in evidence.of("host.kernel_log"):
        said = [finding for finding in seen.findings if finding.code == "kernel.oom_kill"]
        for kill, finding in zip(seen.facts.oom_kills, said, strict=False):
            view = by_pid.get((seen.node, kill.pid)) or workers.get((seen.node, kill.pid))
            view = view or _ended(evidence, seen, kill.pid)
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


RULE = Rule((CAUSE,), judge)
