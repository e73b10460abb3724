"""With which variables was each rank started, and do they fit together?

Source   /proc/PID/environ: only names that the runner allows (NCCL_*, TORCH_*, SLURM_* and their like), values that
         look secret masked on the node. What NCCL knows is in its manual's chapter "Environment Variables";
         NCCL_DEVICE_LIST is not in it. That all ranks need the same: NVIDIA/nccl#394
Units    none
Shape    RankEnv: what all ranks of a job share, and what each has for itself
Errors   ParseError when a row is not what the collector writes. Absent when nothing here carries a rank; Denied when
         none was seen and processes of others, who may train, cannot be looked at
"""

from __future__ import annotations

from collections.abc import Mapping

from probes.catalog.ranks.env_facts import RankEnv, findings, parse
from probes.core import Probe
from probes.runner import need_ranks

__all__ = ["PROBE", "RankEnv", "findings", "parse"]


def _collect() -> Mapping[str, str]:
    import json

    scan = need_ranks()
    keys = ("pid", "ppid", "rank", "world_size", "local_rank", "run_id", "slurm_job", "master", "ns_pids", "env")
    ranks = [{key: row[key] for key in keys} for row in scan["ranks"] if row["worker_of"] is None]
    about = {"denied": scan["denied"], "unread": len(scan["unread"]), "left_out": len(ranks[256:])}
    rows = "\n".join([json.dumps(row, sort_keys=True) for row in ranks[:256]])
    return {"golden15/scan": json.dumps(about), "golden15/ranks": rows}


PROBE = Probe(
    "rank.env",
    "With which variables was each rank started, and do they fit together?",
    parse,
    findings,
    collect=_collect,
    by_hand="tr '\\0' '\\n' < /proc/PID/environ | grep -E '^(RANK|WORLD_SIZE|MASTER_|NCCL_|TORCH_|CUDA_|OMP_|SLURM_)'",
    timeout_s=6.0,
    max_bytes=2_097_152,
    needs="root or the login of the user who trains: environments of others are hidden",
    cost="15 ms",
)
