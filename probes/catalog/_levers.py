"""What people change between two runs of the same job to find out why it is slow or hangs, and what each would tell.

Source   the words are those of the settings' own manuals: PyTorch, OpenMP, Slurm, NCCL's user guide, Linux cgroup v2
Shape    LEVERS; `lighter` says which of two runs has less to carry, so that only this one may be the better one
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

# "without" or "with": the run that does without or has it; "less" or "more": the one with the smaller or larger number;
# "either": another value helps, whichever it is.
Side = Literal["without", "with", "less", "more", "either"]


@dataclass(frozen=True, slots=True)
class Lever:
    """`how` begins the sentence of the better run. `lacks`: words of a run that does without, whatever else is said.
    `rare`: few jobs suffer from it, but nothing else tells of them so. `hangs`: that a run hangs counts, not only pace.
    `of_node`: it is changed on a node, not for the whole job."""

    name: str
    cause: str
    how: str
    lighter: Side
    words: re.Pattern[str]
    lacks: re.Pattern[str] | None = None
    rare: bool = False
    hangs: bool = False
    of_node: bool = False


def _words(*alternatives: str) -> re.Pattern[str]:
    return re.compile("|".join(alternatives), re.I)


_P2P_OFF = _words(r"NCCL_P2P_DISABLE ?= ?1\b", r"NCCL_P2P_LEVEL ?= ?(?:LOC|0)\b")
_P2P_ON = _words(r"NCCL_P2P_DISABLE ?= ?0", r"NCCL_P2P_LEVEL ?= ?(?:SYS|PHB|PXB|PIX|NVL)")

LEVERS = (
    Lever(
        "threads", "cpu.thread_oversubscription", "With fewer threads of each rank", "less",
        _words(r"(?:OMP|MKL|OPENBLAS)_NUM_THREADS", r"set_num_threads", r"threads per rank", r"intra[-_ ]op"),
        of_node=True,
    ),
    Lever(
        "loader", "cpu.dataloader_starved", "With more loader workers, or with data that needs no loading,", "more",
        _words(r"(?:num|dataloader|loader)_?workers", r"--workers", r"prefetch_factor", r"real data", r"data ?loader"),
        _words(r"synthetic", r"fake[-_ ]data", r"dummy[-_ ](?:data|batch)", r"random (?:data|tensors)", r"data in ram",
               r"cached batch"),
        of_node=True,
    ),
    Lever(
        "quota", "cpu.quota_throttled", "With a larger CPU quota, or without one,", "more",
        _words(r"limits?\.cpu", r"cpu[-_ ]?(?:limit|quota)", r"--cpus\b", r"cpu\.max", r"cfs[-_ ]quota"),
        _words(r"no (?:cpu )?(?:limit|quota)", r"limit removed", r"unlimited"), of_node=True,
    ),
    Lever(
        "binding", "cpu.affinity_collision", "Without binding its processes to CPUs", "without",
        _words(r"cpu[-_]?bind", r"--bind-to", r"taskset", r"numactl", r"map_cpu", r"mask_cpu", r"affinity", r"cpuset",
               r"pinn(?:ed|ing) (?:to|of)", r"OMP_PROC_BIND"),
        of_node=True,
    ),
    Lever(
        "synchronising", "cpu.implicit_sync", "Without synchronising with the device", "without",
        _words(r"\.item\(\)", r"\.cpu\(\)", r"\.tolist\(\)", r"cuda\.synchronize", r"CUDA_LAUNCH_BLOCKING",
               r"print(?:ing)?\(?.{0,12}loss", r"nonzero\(\)"),
        rare=True, of_node=True,
    ),
    Lever(
        "lock", "cpu.gil_contention", "Without that thread beside the trainer", "without",
        _words(r"pin_memory", r"writer thread",
               r"(?:log(?:ger|ging)|async[-_ ]?(?:ckpt|checkpoint)|tensorboard|wandb|metrics?)[-_ ]thread"),
        of_node=True,
    ),
    Lever(
        "callback", "cpu.native_callback", "Without the call-back into Python", "without",
        _words(r"call-?back", r"python (?:predicate|hook|function|udf) (?:per|for|in)"), rare=True, of_node=True,
    ),
    Lever(
        "other program", "cpu.process_hotspot", "With another program stopped", "with",
        _words(r"\b(?:kill|killed|killing|stopp?(?:ed|ing)|pkill|systemctl stop)\b"), of_node=True,
    ),
    Lever("peer access", "gpu.p2p_blocked", "With peer access between its GPUs turned off", "with", _P2P_OFF, _P2P_ON,
          hangs=True, of_node=True),
    Lever("peer access off", "nccl.topology_degraded", "With peer access between GPUs", "without", _P2P_OFF, _P2P_ON),
    Lever("topology", "nccl.topology_degraded", "With another topology given to NCCL", "either",
          re.compile(r"NCCL_TOPO_FILE|NCCL_GRAPH_FILE|NCCL_NVLS_ENABLE|NCCL_MAX_NCHANNELS"), hangs=True),
    Lever("peermem", "ib.gpudirect_off", "With GPUDirect RDMA set otherwise", "either",
          _words(r"peer[_-]?mem", r"GPU ?Direct", r"\bGDR\b", r"NCCL_NET_GDR_LEVEL", r"\bACS\b"), hangs=True),
    Lever("interface", "net.wrong_interface", "With another interface for the sockets of NCCL", "either",
          _words(r"(?:NCCL|GLOO|TP)_SOCKET_IFNAME"), hangs=True),
    Lever("gid", "ib.gid_or_route", "With another GID index", "either",
          _words(r"NCCL_IB_GID_INDEX", r"gid[ _]index"), hangs=True),
    Lever("lossless", "ib.lossless_misconfigured", "With PFC or ECN set otherwise", "either",
          re.compile(r"\bPFC\b|\bECN\b|mlnx_qos|NCCL_IB_TC\b"), hangs=True),
    Lever("mtu", "net.mtu_mismatch", "With another MTU", "either", _words(r"\bmtu\b"), hangs=True),
    Lever("memlock", "ib.memlock_limit", "With another limit of locked memory", "either",
          _words(r"ulimit -l", r"memlock"), hangs=True),
    Lever("library", "nccl.library_fault", "With another version of NCCL", "either",
          _words(r"\bNCCL (?:v|version )?2\.\d{1,2}(?:\.\d{1,2})?"), hangs=True),
)  # fmt: skip
