"""The ranks of a node: map, environment, processes, stacks, in the forms of tests/fixtures/rank.*."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.lab.drills.cluster import GPUS, Job, Node, Rank, sections

VENV = "/opt/venv/lib/python3.11/site-packages"
PROGRAM = "/workspace/llm/train.py"
CALLERS = [
    ["main", PROGRAM, 341],
    [
        "record.<locals>.wrap.<locals>.wrapper",
        f"{VENV}/torch/distributed/elastic/multiprocessing/errors/__init__.py",
        355,
    ],
    ["<module>", PROGRAM, 402],
]


@dataclass(frozen=True)
class Doing:
    """What a rank's main thread is at: state letter, kernel function, kernel stack, frames innermost first."""

    state: str
    wchan: str
    kernel: tuple[str, ...]
    frames: tuple[tuple[str, str, int], ...]
    active: bool = False
    cpu: int = 0  # percent of one CPU


# cudaDeviceSynchronize spins: a rank that waits for its GPU, in a step or in a collective, takes a whole core.
SYNC = Doing(
    "R", "", (), (("synchronize", f"{VENV}/torch/cuda/__init__.py", 1040), ("train_step", PROGRAM, 219)), True, 100
)
STOPPED = Doing(
    "T",
    "do_signal_stop",
    (
        "do_signal_stop",
        "get_signal",
        "arch_do_signal_or_restart",
        "exit_to_user_mode_loop",
        "do_syscall_64",
        "entry_SYSCALL_64_after_hwframe",
    ),
    (("train_step", PROGRAM, 207),),
)


def rank_map(job: Job, node: Node, gone: Sequence[int] = ()) -> str:
    rows = [
        {
            "pid": rank.pid,
            "ppid": job.launcher(node),
            "comm": "pt_main_thread",
            "state": "R",
            "started": rank.started,
            "rank": rank.rank,
            "world_size": job.world_size,
            "local_rank": rank.local,
            "local_world_size": GPUS,
            "node_rank": job.nodes.index(node),
            "run_id": job.name,
            "slurm_job": job.slurm,
            "master": job.master,
            "source": "env",
            "worker_of": None,
            "wrappers": [],
            "uid": 2107,
            "ns_pids": [rank.pid],
            "start_time": rank.start_time,
            "visible": {},
            "restarts": "0",
        }
        for rank in job.ranks(node)
        if rank.rank not in gone
    ]
    scan = {
        "denied": 0,
        "seen": node.rng("scan").randrange(210, 330),
        "skipped": 0,
        "denied_python": 0,
        "cut ranks": 0,
        "cut orphans": 0,
        "cut unread": 0,
    }
    ranks = "\n".join(json.dumps(row) for row in rows)
    return sections({"golden15/scan": json.dumps(scan), "golden15/ranks": ranks, "golden15/orphans": ""})


def rank_env(job: Job, node: Node, more: Mapping[str, str]) -> str:
    rows = []
    for rank in job.ranks(node):
        own = {
            "GROUP_RANK": str(job.nodes.index(node)),
            "LOCAL_RANK": str(rank.local),
            "LOCAL_WORLD_SIZE": str(GPUS),
            "MASTER_ADDR": job.nodes[0].name,
            "MASTER_PORT": "29500",
            "NCCL_DEBUG": "WARN",
            "NCCL_IB_HCA": "=mlx5_0,mlx5_1,mlx5_2,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_7",
            "NCCL_SOCKET_IFNAME": "bond0",
            "OMP_NUM_THREADS": "12",
            "RANK": str(rank.rank),
            "SLURM_JOB_ID": job.slurm,
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_RUN_ID": job.name,
            "TORCH_NCCL_TRACE_BUFFER_SIZE": "8",
            "WORLD_SIZE": str(job.world_size),
            **more,
        }
        rows.append(
            {
                "env": dict(sorted(own.items())),
                "local_rank": rank.local,
                "master": job.master,
                "ns_pids": [rank.pid],
                "pid": rank.pid,
                "ppid": job.launcher(node),
                "rank": rank.rank,
                "run_id": job.name,
                "slurm_job": job.slurm,
                "world_size": job.world_size,
            }
        )
    scan = json.dumps({"denied": 0, "unread": 0, "left_out": 0})
    return sections({"golden15/scan": scan, "golden15/ranks": "\n".join(json.dumps(row) for row in rows)})


def processes(job: Job, node: Node, at: float, doing: Mapping[int, Doing], gone: Sequence[int] = ()) -> str:
    """`doing`: by rank, where it is not SYNC. `gone`: ranks without a process."""
    rows = []
    for rank in job.ranks(node):
        if rank.rank not in gone:
            rows.append(_process(job, node, rank, node.mono(at), doing.get(rank.rank, SYNC)))
    cgroup = {
        "pids": [row["pid"] for row in rows],
        "first": {"memory.events": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0\n"},
        "files": {
            "memory.max": "2061584302080",
            "memory.current": str(node.rng("cg").randrange(3 * 10**11, 6 * 10**11)),
        },
        "second": {"memory.events": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0\n"},
        "folder": f"/sys/fs/cgroup/system.slice/slurmstepd.scope/job_{job.slurm}/step_0",
    }
    return sections(
        {
            "golden15/samples": json.dumps({"hz": 100, "denied": 0, "left_out": 0}),
            "golden15/processes": "\n".join(json.dumps(row) for row in rows),
            "golden15/unread": "",
            "golden15/cgroups": json.dumps(cgroup),
        }
    )


def _process(job: Job, node: Node, rank: Rank, mono: float, doing: Doing) -> dict[str, Any]:
    rng = node.rng(f"process {rank.rank}")
    cpus = "0-47,96-143" if rank.local < 4 else "48-95,144-191"
    core = rank.local * 12 + rng.randrange(12)
    used, switches = rng.randrange(10**5, 3 * 10**6), rng.randrange(10**5, 10**6)
    asleep = "T" if doing.state == "T" else "S"
    others = [
        {
            "comm": comm,
            "state": asleep,
            "wchan": "do_signal_stop" if asleep == "T" else wchan,
            "cpus": cpus,
            "count": count,
        }
        for comm, wchan, count in (
            ("pt_main_thread", "futex_do_wait", rng.randrange(9, 13)),
            ("pt_nccl_heartbt", "futex_do_wait", 2),
            ("cuda-EvtHandlr", "do_poll", 1),
            ("NCCL Service", "do_poll", 2),
        )
    ]
    base = {"major": 0, "started": rank.started, "cpus": cpus}
    look = {
        "comm": "pt_main_thread",
        "state": doing.state,
        "wchan": doing.wchan,
        "user": used,
        "system": used // 40,
        "last_cpu": core,
        "delay": rng.randrange(10**8, 10**10),
        "voluntary": switches,
        "involuntary": switches // 9,
        **base,
    }
    later = {
        **look,
        "user": used + doing.cpu,
        "delay": look["delay"] + (180_000 if doing.cpu else 0),
        "involuntary": look["involuntary"] + (3 if doing.cpu else 0),
    }
    watch = {
        **look,
        "comm": "pt_nccl_watchdg",
        "state": asleep,
        "wchan": others[0]["wchan"],
        "user": used // 900,
        "system": used // 950,
        "last_cpu": core + 48,
    }
    return {
        "pid": rank.pid,
        "rank": rank.rank,
        "world_size": job.world_size,
        "run_id": job.name,
        "worker_of": None,
        "comm": "pt_main_thread",
        "state": doing.state,
        "status": {
            "VmRSS": f"{rng.randrange(11_000_000, 16_000_000)} kB",
            "VmLck": "0 kB",
            "VmPin": f"{rng.randrange(70_000, 99_000)} kB",
            "VmSwap": "0 kB",
            "TracerPid": "0",
            "Threads": str(rng.randrange(118, 141)),
            "SigPnd": "0" * 16,
            "ShdPnd": "0" * 16,
        },
        "at": [mono, round(mono + 1.00021, 6)],
        "looks": [look, later],
        "threads": [{"tid": rank.pid, "looks": [look, later]}, {"tid": rank.pid + 61, "looks": [watch, watch]}],
        "others": others,
        "unread": 0,
        "tracer_before": 0,
        "tracer": "",
        "oom_score": 668,
    }


def stacks(job: Job, node: Node, doing: Mapping[int, Doing], gone: Sequence[int] = ()) -> str:
    parts = {"golden15/tool": json.dumps({"tool": "beside the rank's Python: /opt/venv/bin/py-spy", "left_out": 0})}
    for rank in job.ranks(node):
        if rank.rank in gone:
            continue
        one = doing.get(rank.rank, SYNC)
        thread = {
            "tid": rank.pid,
            "thread_id": node.rng(f"thread {rank.rank}").randrange(139 * 10**12, 140 * 10**12),
            "name": "MainThread",
            "active": one.active,
            "gil": False,
            "frames": [*map(list, one.frames), *CALLERS],
            "state": one.state,
            "wchan": one.wchan,
        }
        told = {
            "pid": rank.pid,
            "rank": rank.rank,
            "comm": "pt_main_thread",
            "state": one.state,
            "worker": False,
            "how": "py-spy",
            "why": "",
            "wchan": one.wchan,
            "kernel": list(one.kernel),
            "threads": [thread],
        }
        parts[f"golden15/stack {rank.pid}"] = json.dumps(told)
    return sections(parts)
