"""A control group's quota stops the ranks for a part of every period."""

from __future__ import annotations

from collections.abc import Iterator

from probes.catalog.host.load_facts import FEW_PERIODS, THROTTLED_BAD, THROTTLED_WARN, Quota
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.cpus import NodeCpu, decides

CAUSE = "cpu.quota_throttled"
MOST = 80.0  # percent of the periods: more, and a rank hardly moves; judgement
FULL, OVER = 0.97, 1.1  # of its limit: a quota holds what would use more just there; judgement
HALF = 50.0  # percent of all periods: of less, much may be long ago; judgement
ENOUGH = 100  # periods, 10 s: fewer since the start tell nothing; judgement


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    for here in evidence.cpus.values():
        found = [(quota, ref, signal) for quota, ref in here.quotas if (signal := _signal(quota))]
        if found:
            quota, ref, signal = max(found, key=lambda one: _share(one[0]))
            quiet = not decides(evidence, here) and _share(quota) < MOST
            yield _held(here, quota, ref, "throttled_beside_a_stall" if quiet else signal)


def _share(quota: Quota) -> float:
    if quota.throttled_percent is not None:
        return quota.throttled_percent
    return 100 * (quota.total_throttled or 0) / (quota.total_periods or 1)


def _signal(quota: Quota) -> str:
    if quota.throttled_percent is not None and (quota.periods or 0) >= FEW_PERIODS:
        if quota.throttled_percent > THROTTLED_BAD:
            return "throttled_much"
        return "throttled_some" if quota.throttled_percent > THROTTLED_WARN else ""
    if quota.periods is None and (quota.total_periods or 0) >= ENOUGH and _share(quota) > THROTTLED_BAD:
        return "throttled_since_start" if _share(quota) > HALF else "throttled_some"
    counted = quota.periods is not None or quota.total_periods is not None
    if not counted and quota.cpus and FULL * quota.cpus <= (quota.using or 0.0) <= OVER * quota.cpus:
        return "at_its_quota"
    return ""


def _held(here: NodeCpu, quota: Quota, ref: str, signal: str) -> Hypothesis:
    limit = f" of {quota.cpus:g} CPUs" if quota.cpus else ""
    of = f" (the node has {here.cpus})" if quota.cpus and here.cpus else ""
    when = "since the cgroup was made" if quota.periods is None else "while it was looked at"
    where = here.node or "a node"
    because = [Reason(f"a quota{limit}{of} stopped its processes in {_share(quota):.0f} % of the periods {when}", ref)]
    because += here.waiting[:3]
    threads = sum(one.threads or 0 for one in here.runners.values() if one.rank is not None)
    if threads and quota.cpus:
        because.append(Reason(f"the ranks have {threads} threads", ref))
    if signal == "at_its_quota":
        says = f"it uses {quota.using:g} CPUs of a limit of {quota.cpus:g}"
        because[0] = Reason(says, ref)
    strong = signal == "throttled_much"
    ranks = frozenset(
        one.rank for one in here.runners.values() if one.pid in quota.pids and one.rank is not None and one.rank >= 0
    )
    return Hypothesis(
        CAUSE, ({"node": here.node} if here.node else {}) | ({"cgroup": quota.cgroup} if quota.cgroup else {}),
        f"A CPU quota{limit} "
        + (f"is used up on {where}" if signal == "at_its_quota" else "")
        + (f"stops the ranks on {where} in {_share(quota):.0f} % of its periods" if signal != "at_its_quota" else ""),
        tuple(because), (signal,),
        would_change=("nr_throttled of cpu.stat, unchanged between two looks",),
        ranks=ranks or here.late_ranks if strong else frozenset(),
        nodes=frozenset({here.node}) if strong and here.node else frozenset(),
    )  # fmt: skip


RULE = Rule((CAUSE,), judge)
