"""The kernel killed a process of the job because memory ran out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule, Seen
from probes.diagnosis.job import RankView

CAUSE = "host.memory_oom_kill"
TRAINS = ("python", "pt_", "torchrun", "deepspeed", "accelerate")


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    ranks: Mapping[int, RankView] = evidence.job.ranks
    by_pid = {(view.node, view.pid): view for view in ranks.values() if view.pid is not None}
    for seen in evidence.of("host.kernel_log"):
        for kill in seen.facts.oom_kills:
            view = by_pid.get((seen.node, kill.pid)) or _ended(evidence, seen, kill.pid)
            trains = view is not None or kill.process.startswith(TRAINS)
            says = next(
                (f.says for f in seen.findings if f.code == "kernel.oom_kill" and f.subject.get("pid") == kill.pid), ""
            )
            if _before_the_job(evidence, seen, kill.last_at):
                continue
            subject: dict[str, str | int] = {"node": seen.node, "pid": kill.pid}
            if view is not None:
                subject["rank"] = view.rank
            yield Hypothesis(
                CAUSE,
                subject,
                f"On {seen.node or 'a node'} {says or f'the kernel killed {kill.process} ({kill.pid}) for memory'}",
                (Reason(says or f"the kernel killed {kill.process} ({kill.pid})", seen.ref),),
                ("oom_of_training",) if trains else ("oom_of_another",),
                would_change=("the job without a process that ended on this node",),
                ranks=frozenset({view.rank}) if view is not None else frozenset(),
                nodes=frozenset({seen.node}),
            )


def _ended(evidence: Evidence, seen: Seen, pid: int) -> RankView | None:
    """The rank that torchrun lists with this pid, or the rank whose data-loader worker it was."""
    for event, _, source in evidence.job.said("torchrun_failure", "loader_killed"):
        if event.more.get("pid") == pid and source.node in (seen.node, "") and event.rank is not None:
            view: RankView = evidence.job.view(event.rank)
            return view
    return None


def _before_the_job(evidence: Evidence, seen: Seen, at: float | None) -> bool:
    """Old news: the job's ranks on this node started after it."""
    starts = [
        view.place.start_time
        for view in evidence.job.ranks.values()
        if view.node == seen.node and view.place is not None and view.place.start_time
    ]
    return bool(at is not None and starts and at < min(starts) - 1)


RULE = Rule((CAUSE,), judge)
