"""Is every rank on this node alive and running, or is one stopped, traced, stuck, ended or held back?

Source   /proc/PID/{stat,status,wchan,schedstat,oom_score} and the same of every thread, twice, about a second apart;
         proc_pid_stat(5), proc_pid_status(5), the kernel's Documentation/scheduler/sched-stats.rst. Limits, OOM kills
         and throttling of the ranks' cgroups: Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst
Units    percent of one CPU's time, bytes, counts between the samples
Shape    RankProcesses: one row per rank and child, threads within
Errors   ParseError when a row is not what the collector writes. Absent when nothing here carries a rank; Denied when
         none was seen and processes of others, who may train, cannot be looked at
"""

from __future__ import annotations

from collections.abc import Mapping

from probes.catalog.ranks import sample
from probes.catalog.ranks.process_facts import RankProcesses
from probes.catalog.ranks.process_findings import findings
from probes.catalog.ranks.process_parse import parse
from probes.core import Probe
from probes.runner import need_ranks

__all__ = ["PROBE", "RankProcesses", "findings", "parse"]


def _collect() -> Mapping[str, str]:
    import time

    began = time.monotonic()
    return sample.sample(need_ranks(), began)


PROBE = Probe(
    "rank.process",
    "Is every rank on this node alive and running, or is one stopped, stuck, ended or held back?",
    parse,
    findings,
    collect=_collect,
    by_hand="cd /proc/PID; cat status wchan task/*/stat task/*/schedstat; sleep 1; cat status wchan task/*/stat",
    timeout_s=8.0,
    max_bytes=2_097_152,
    brings=(sample,),
    needs="root or the login of the user who trains: environments of others are hidden",
    cost="24 ms",
)
