"""Which training ranks run on this node, and which processes belong to each?

Source   /proc/PID/environ as each process was started with it: RANK and WORLD_SIZE (torchrun and what sets the same),
         else SLURM_PROCID, OMPI_COMM_WORLD_RANK or PMI_RANK; proc_pid_environ(5), proc_pid_stat(5), NSpid of
         proc_pid_status(5). torch's page on torchrun lists its variables. Command lines are never read
Units    pids; started: clock ticks since boot; start_time: seconds since the epoch
Shape    RankMap: ranks by job and number, each with its children
Errors   ParseError when a row is not what the collector writes. Absent when nothing here carries a rank; Denied when
         none was seen and processes of others, who may train, cannot be looked at
"""

from __future__ import annotations

from collections.abc import Mapping

from probes.catalog.ranks.parse import parse
from probes.catalog.ranks.rank_facts import RankMap, findings
from probes.core import Probe
from probes.runner import need_ranks

__all__ = ["PROBE", "RankMap", "findings", "parse"]


def _collect() -> Mapping[str, str]:
    import json

    scan = need_ranks()
    rows = {kind: scan.pop(kind) for kind in ("ranks", "orphans", "unread")}
    seen_by = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
    for row in rows["ranks"] + rows["orphans"]:
        env = row.pop("env")
        row["visible"] = {key: env[key] for key in seen_by if key in env}
        row["restarts"] = env.get("TORCHELASTIC_RESTART_COUNT")
    parts = {"golden15/scan": json.dumps(scan)}
    for kind, found in rows.items():
        scan["cut " + kind] = len(found[2000:])
        parts["golden15/" + kind] = "\n".join([json.dumps(row) for row in found[:2000]])
    parts["golden15/scan"] = json.dumps(scan)
    return parts


PROBE = Probe(
    "rank.map",
    "Which training ranks run on this node, and which processes belong to each?",
    parse,
    findings,
    collect=_collect,
    by_hand="grep -azE '^(RANK|WORLD_SIZE|LOCAL_RANK|SLURM_PROCID)=' /proc/[0-9]*/environ | tr '\\0' '\\n'",
    timeout_s=6.0,
    max_bytes=1_048_576,
    needs="root or the login of the user who trains: environments of others are hidden",
    cost="15 ms",
)
