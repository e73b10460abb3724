"""What the rules make of logs: a job of eight ranks on four nodes, in which one thing is wrong at a time.

The right answer of each case is what was done to the job, by how NCCL, torch, Slurm and CUDA work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from probes import catalog
from probes.core import Capture
from probes.diagnosis import Diagnosis, diagnose
from probes.diagnosis.core import seen
from tests.support.nccl_logs import More, c10, info, judged, logs, set_up, timed_out, warn, work
from tests.support.rank_facts import mapped, wrote

OTHER_NODES = ("gpu-a", "gpu-b", "gpu-d")
GONE = (
    "NET/IB: Got completion from peer {}<41453> with status=12 opcode=0 len=0 vendor err 129 (Send) "
    "localGid fe80::1 remoteGidsfe80::2 hca mlx5_0"
)
FLUSHED = GONE.replace("status=12", "status=5").replace("129", "249")
MODIFY = (
    "Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0:1, curr state INIT, next state RTR, "
    "local GID index 1, local GID {}, remote GID {}"
)
NO_PAGES = "Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory"
NO_PAIR = "Call to ibv_create_qp failed with error Cannot allocate memory"
REFUSED = (
    "socketPollConnect: connect to {}<4> returned Connection refused, exceeded error retry count after 35 attempts"
)
TRACEBACK = 'Traceback (most recent call last):\n  File "/w/train.py", line {}, in main\n{}\n'
CANCELLED = "slurmstepd: error: *** STEP 1.0 ON gpu-a CANCELLED AT 2026-11-29T14:13:49 ***\n"


def on(rank: int, node: str) -> bool:
    return rank // 2 == ord(node[-1]) - ord("a")


def raised(what: str, line: int = 9) -> str:
    return TRACEBACK.format(line, what)


def by_peers(rank: int) -> str:
    """The other three nodes get no answer from gpu-c."""
    if on(rank, "gpu-c"):
        return set_up(rank)
    return set_up(rank) + warn(rank, GONE.format("10.0.0.3"), "14:00:00") + warn(rank, FLUSHED.format("10.0.0.3"))


def odd(rank: int, **how: object) -> str:
    """Set-up lines, and on gpu-b others."""
    return set_up(rank, **how) if on(rank, "gpu-b") else set_up(rank)  # type: ignore[arg-type]


Case = tuple[More, str, Mapping[str, str | int]]
SURE: dict[str, Case] = {
    "three nodes get no answer from one, and it gets none": (
        lambda r: by_peers(r) + (warn(r, GONE.format("10.0.0.1")) if r == 4 else ""),
        "ib.link_down",
        {"node": "gpu-c"},
    ),
    "one node gets no answer from three": (
        lambda r: set_up(r) + "".join(warn(r, GONE.format(f"10.0.0.{n}")) for n in (1, 2, 4) if on(r, "gpu-c")),
        "ib.link_down",
        {"node": "gpu-c", "hca": "mlx5_0"},
    ),
    "its port erred before": (
        lambda r: by_peers(r)
        + (warn(r, "NET/IB : mlx5_0:1 Got async event : port error", "13:59:30") if r == 4 else ""),
        "ib.link_down",
        {"node": "gpu-c", "hca": "mlx5_0", "port": 1},
    ),
    "its port erred and came back": (
        lambda r: by_peers(r)
        + (
            warn(r, "NET/IB : mlx5_0:1 Got non-fatal async event: port error(10)", "13:59:30")
            + warn(r, "NET/IB : mlx5_0:1 Got non-fatal async event: port active(9)", "13:59:40")
            if r == 4
            else ""
        ),
        "ib.link_flapping",
        {"node": "gpu-c", "hca": "mlx5_0", "port": 1},
    ),
    "ports of all nodes erred at once": (
        lambda r: by_peers(r) + warn(r, "NET/IB : mlx5_0:1 Got async event : port error", "13:59:30"),
        "ib.switch_down",
        {},
    ),
    "its adapter reported a catastrophe": (
        lambda r: by_peers(r)
        + (warn(r, "NET/IB : mlx5_0:1 async fatal event: local catastrophic error") if r == 4 else ""),
        "ib.hca_fault",
        {"node": "gpu-c", "hca": "mlx5_0"},
    ),
    "one node's address is link-local": (
        lambda r: set_up(r, done=False)
        + warn(r, MODIFY.format("fe80::9" if on(r, "gpu-b") else f"::ffff:10.1.0.{r}", "::ffff:10.1.0.9")),
        "ib.gid_or_route",
        {"node": "gpu-b"},
    ),
    "no pages may be locked on one node": (
        lambda r: set_up(r, done=not on(r, "gpu-d")) + (warn(r, NO_PAGES) if on(r, "gpu-d") else ""),
        "ib.memlock_limit",
        {"node": "gpu-d"},
    ),
    "no queue pair, and the limit of locked memory is low": (
        lambda r: set_up(r) + (warn(r, NO_PAIR) + "max locked memory (kbytes, -l) 64\n" if on(r, "gpu-d") else ""),
        "ib.memlock_limit",
        {"node": "gpu-d"},
    ),
    "no queue pair, and locked memory is not limited": (
        lambda r: set_up(r)
        + (warn(r, NO_PAIR) + "max locked memory (kbytes, -l) unlimited\n" if on(r, "gpu-d") else ""),
        "ib.qp_exhausted",
        {"node": "gpu-d"},
    ),
    "one node took the bridge of its containers": (
        lambda r: odd(r, interface="docker0", where="172.17.0.1", done=False)
        + ("" if on(r, "gpu-b") else warn(r, REFUSED.format("172.17.0.1"))),
        "net.wrong_interface",
        {"node": "gpu-b"},
    ),
    "there is no route to the first node": (
        lambda r: set_up(r, done=False)
        + (warn(r, "socketStartConnect: Connect to 10.0.0.1<4> failed : No route to host") if r > 1 else ""),
        "net.bootstrap_blocked",
        {"node": "gpu-a"},
    ),
    "the port of the store is taken": (
        lambda r: raised("RuntimeError: The server socket has failed to listen: EADDRINUSE") if r == 0 else "",
        "fw.rendezvous_failed",
        {},
    ),
    "one node talks over sockets": (lambda r: odd(r, network="Socket"), "nccl.topology_degraded", {"node": "gpu-b"}),
    "one node lost the direct way between GPUs": (
        lambda r: odd(r, peer="SHM/direct/direct"),
        "nccl.topology_degraded",
        {"node": "gpu-b"},
    ),
    "one node has fewer channels": (lambda r: odd(r, channels=2), "nccl.topology_degraded", {"node": "gpu-b"}),
    "one node copies through the host": (lambda r: odd(r, direct=""), "ib.gpudirect_off", {"node": "gpu-b"}),
    "two ranks use one GPU": (
        lambda r: set_up(r, done=False)
        + (warn(r, f"Duplicate GPU detected : rank {r} and rank {r ^ 1} both on CUDA device 1b000") if on(r, "gpu-b")
           else ""),
        "nccl.device_visibility",
        {"node": "gpu-b"},
    ),
    "two ranks have one bus id": (lambda r: odd(r, bus="1b000"), "nccl.device_visibility", {"node": "gpu-b"}),
    "a rank asks for a GPU that is not there": (
        lambda r: raised("RuntimeError: CUDA error: invalid device ordinal") if r == 3 else "",
        "nccl.device_visibility",
        {"rank": 3},
    ),
    "one node loads another NCCL": (lambda r: odd(r, version="2.21.5"), "nccl.env_mismatch", {"node": "gpu-b"}),
    "NCCL refuses another version": (
        lambda r: warn(r, "Mismatched NCCL version detected : rank {} version {} rank {} version {}".format(
            *((0, 22707, 3, 22105) if r == 3 else (3, 22105, r, 22707)))),
        "nccl.env_mismatch",
        {"rank": 3},
    ),
    "one node has another protocol": (
        lambda r: set_up(r) + info(r, f"NCCL_PROTO set by environment to {'LL' if on(r, 'gpu-b') else 'Simple'}"),
        "nccl.env_mismatch",
        {"node": "gpu-b"},
    ),
    "a rank crashed inside the library": (
        lambda r: set_up(r)
        + ("Fatal Python error: Segmentation fault\n  5  /usr/lib/libnccl.so.2(ncclLocalOpAppend+0x1b) [0x7f]\n"
           if r == 1 else timed_out(r)),
        "nccl.library_fault",
        {"rank": 1, "node": "gpu-a"},
    ),
    "a rank crashed elsewhere": (
        lambda r: set_up(r) + ("Fatal Python error: Segmentation fault\n" if r == 1 else timed_out(r)),
        "fw.rank_exited",
        {"rank": 1, "node": "gpu-a"},
    ),
    "one rank waits in another operation": (
        lambda r: timed_out(r, op="BROADCAST" if r == 5 else "ALLREDUCE"),
        "fw.collective_mismatch",
        {"rank": 5},
    ),
    "one rank passes another size": (
        lambda r: timed_out(r, op="_ALLGATHER_BASE", size=161600 if r == 5 else 145440),
        "fw.collective_shape_mismatch",
        {"rank": 5},
    ),
    "one rank is two collectives ahead, in another operation": (
        lambda r: timed_out(r, op="_ALLGATHER_BASE", seq=44) if r == 0 else timed_out(r, op="BROADCAST", seq=42),
        "fw.collective_mismatch",
        {"rank": 0},
    ),
    "one rank has not enqueued what the others wait in": (
        lambda r: timed_out(r)
        if r != 5
        else c10(5, "[PG ID 0 PG GUID 0(default_pg) Rank 5] Received a dump signal due to a collective timeout from  "
                 "rank 1 and we will try our best. Last enqueued NCCL work: 41, last completed NCCL work: 41.This"),
        "fw.rank_missing_collective",
        {"rank": 5},
    ),
    "steps take longer than the limit": (
        lambda r: "train:  45%|####5  | 450/1000 [11:52:30<14:30:00, 95.02s/it]\n" + timed_out(r, limit_ms=60_000),
        "fw.timeout_too_short",
        {},
    ),
    "the job was preempted": (
        lambda r: set_up(r) + (CANCELLED.replace(" ***", " DUE TO PREEMPTION ***") if r == 0 else ""),
        "job.cancelled",
        {},
    ),
    "a task was killed, then the step was cancelled": (
        lambda r: set_up(r)
        + (f"srun: error: gpu-b: task 3: Killed\n{CANCELLED}srun: error: gpu-a: tasks 0-1: Killed\n" if r == 0 else ""),
        "fw.rank_exited",
        {"rank": 3},
    ),
    "a rank raised, then the step was cancelled": (
        lambda r: set_up(r) + (raised("ValueError: x") + CANCELLED if r == 0 else ""),
        "fw.rank_exited",
        {"rank": 0, "node": "gpu-a"},
    ),
    "Slurm counted a kill for memory": (
        lambda r: "slurmstepd: error: Detected 1 oom_kill event in StepId=8.0.\n"
        "srun: error: gpu-b: task 3: Out Of Memory\n"
        if r == 0
        else set_up(r),
        "host.memory_oom_kill",
        {"node": "gpu-b", "rank": 3},
    ),
    "Slurm lost a node": (
        lambda r: set_up(r) + ("srun: error: Node failure on gpu-c\n" if r == 0 else ""),
        "host.rebooted",
        {"node": "gpu-c"},
    ),
    "NCCL finds no room in /dev/shm of one node": (
        lambda r: odd(r, done=False)
        + warn(r, "Error while creating shared memory segment /dev/shm/nccl-abc (size 9637888)") * on(r, "gpu-b"),
        "host.shm_full",
        {"node": "gpu-b"},
    ),
    "a rank finds no room on its disk": (
        lambda r: set_up(r)
        + (raised("OSError: [Errno 28] No space left on device: '/scratch/x'") if r == 3 else timed_out(r)),
        "host.disk_full",
        {"node": "gpu-b"},
    ),
    "mpirun saw a rank killed": (
        lambda r: "mpirun noticed that process rank 3 with PID 0 on node gpu-b exited on signal 9 (Killed).\n"
        if r == 0
        else "",
        "fw.rank_exited",
        {"rank": 3},
    ),
    "one node took another network than the rest, and connections fail": (
        lambda r: odd(r, interface="eth1", where="192.168.5.7", done=False)
        + ("" if on(r, "gpu-b") else warn(r, REFUSED.format("192.168.5.7"))),
        "net.wrong_interface",
        {"node": "gpu-b"},
    ),
    "an assert on the GPU of one rank": (
        lambda r: set_up(r)
        + (raised("RuntimeError: CUDA error: device-side assert triggered") if r == 3 else timed_out(r)),
        "gpu.app_fault",
        {"rank": 3, "node": "gpu-b"},
    ),
    "an uncorrectable error of memory on one rank": (
        lambda r: set_up(r)
        + raised("RuntimeError: CUDA error: uncorrectable ECC error encountered" if r == 3 else
                 "torch.distributed.DistBackendError: NCCL error in: x.cpp:1, remote process exited"),
        "gpu.memory_error",
        {"rank": 3, "node": "gpu-b"},
    ),
    "the fabric of one node's GPUs is not ready": (
        lambda r: odd(r, done=False)
        + (raised("RuntimeError: CUDA error: system not yet initialized") if on(r, "gpu-b") else ""),
        "gpu.nvswitch_fabric",
        {"node": "gpu-b"},
    ),
    "a GPU of one rank is lost": (
        lambda r: set_up(r)
        + (warn(r, "nvmlDeviceGetHandleByPciBusId() failed: GPU is lost") if r == 3 else timed_out(r)),
        "gpu.fell_off_bus",
        {"rank": 3, "node": "gpu-b"},
    ),
    "seven of eight members came": (
        lambda r: raised("torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. "
                         "7/8 clients joined.") if r != 5 else "",
        "fw.rendezvous_failed",
        {},
    ),
    "a parameter was ready twice": (
        lambda r: set_up(r)
        + raised("RuntimeError: Expected to mark a variable ready only once. Parameter at index 3 with name a.b has "
                 "been marked as ready twice."),
        "fw.hook_order",
        {},
    ),
    "all ranks raised the same": (lambda r: set_up(r) + raised("KeyError: 'x'"), "fw.rank_exited", {}),
}  # fmt: skip
# Evidence that settles nothing: the cause that may be said, and how sure at most.
OPEN: dict[str, tuple[More, str, float]] = {
    "nothing is wrong": (lambda r: set_up(r) + f"step {r + 10} loss=2.1\n", "unknown", 0.8),
    "only flushed completions": (lambda r: set_up(r) + warn(r, FLUSHED.format("10.0.0.1")), "unknown", 0.8),
    "three nodes get no answer from one that says nothing": (by_peers, "ib.link_down", 0.8),
    "one pair of nodes": (lambda r: set_up(r) + warn(r, GONE.format("10.0.0.1")) * (r in (4, 5)), "ib.link_down", 0.5),
    "one line of one pair": (lambda r: set_up(r) + warn(r, GONE.format("10.0.0.1")) * (r == 4), "unknown", 0.8),
    "all ranks timed out in one collective": (lambda r: set_up(r) + timed_out(r), "unknown", 0.8),
    "all but one timed out": (
        lambda r: set_up(r) + (timed_out(r) if r != 5 else "step 12 loss=2\n"),
        "fw.rank_missing_collective",
        0.8,
    ),
    "timed out, then aborted by the watchdog": (
        lambda r: timed_out(r) + "terminate called after throwing an instance of 'c10::DistBackendError'\n"
        "Fatal Python error: Aborted\n",
        "unknown",
        0.8,
    ),
    "timed out long before its time was up": (
        lambda r: timed_out(r) + (CANCELLED.replace("14:13", "15:13").replace(" ***", " DUE TO TIME LIMIT ***")
                                  if r == 0 else ""),
        "unknown",
        0.8,
    ),
    "the connection was refused": (
        lambda r: set_up(r, done=False) + (warn(r, REFUSED.format("10.0.0.1")) if r > 1 else ""),
        "net.bootstrap_blocked",
        0.6,
    ),
    "the store did not answer in time": (
        lambda r: raised("torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while "
                         "trying to connect to (10.0.0.1, 29500).") if r > 1 else "",
        "fw.rendezvous_failed",
        0.8,
    ),
    "the launcher was told to end": (lambda r: set_up(r) + "Received 15 death signal\n", "job.cancelled", 0.8),
    "the set-up did not end for one rank": (lambda r: set_up(r, done=r != 5), "unknown", 0.8),
    "other groups stand elsewhere": (lambda r: timed_out(r, group=f"{1 + r // 2}", seq=40 + r // 2), "unknown", 0.8),
    "an internal error of NCCL without a reason": (
        lambda r: raised("torch.distributed.DistBackendError: NCCL error in: x.cpp:1, internal error - please report "
                         "this issue to the NCCL developers, NCCL version 2.27.7") if r == 1 else set_up(r),
        "nccl.library_fault",
        0.8,
    ),
    "GPUDirect is off on all nodes": (lambda r: set_up(r, direct=""), "unknown", 0.8),
}  # fmt: skip


def first(found: Diagnosis) -> tuple[str, Mapping[str, str | int], float]:
    verdict = found.verdict
    return verdict.hypothesis.cause, verdict.hypothesis.subject, verdict.probability


@pytest.mark.parametrize("case", SURE)
def test_what_is_wrong_is_named_with_its_place(case: str) -> None:
    logs, cause, place = SURE[case]
    named, subject, sure = first(judged(logs))
    assert named == cause
    assert {key: subject.get(key) for key in place} == place
    assert place or not subject.keys() & {"node", "rank"}
    assert sure >= 0.8


def test_a_launcher_that_names_no_rank_and_no_reason_settles_it_not() -> None:
    killed = "[ERROR] [launch.py:325:sigkill_handler] ['python', 'x.py'] exits with return code = -9\n"
    named, _, sure = first(judged(lambda rank: killed * (rank == 0)))
    assert named == "fw.rank_exited"
    assert sure < 0.8  # the kernel, for want of memory, or a person may have killed it


@pytest.mark.parametrize("case", OPEN)
def test_what_the_evidence_does_not_settle_is_not_said_as_if_it_did(case: str) -> None:
    logs, cause, most = OPEN[case]
    named, _, sure = first(judged(logs))
    assert named == cause
    assert sure < most


def test_two_ranks_that_wait_in_different_things_are_a_draw() -> None:
    found = judged(lambda r: timed_out(r, op="BROADCAST" if r else "ALLREDUCE"), ranks=range(2))
    assert first(found)[:2] == ("fw.collective_mismatch", {"group": "0"})


def test_a_rank_that_ended_first_leaves_the_same_errors_as_a_dead_link() -> None:
    found = judged(lambda r: by_peers(r) + (raised("ValueError: x") if r == 4 else ""))
    assert first(found)[:2] == ("fw.rank_exited", {"rank": 4, "node": "gpu-c"})


def test_one_interface_more_is_nothing_to_blame_within_one_node() -> None:
    text = info(0, "Bootstrap: Using lo:127.0.0.1<0>") + info(0, "Using network Socket")
    assert first(judged(lambda r: text, ranks=range(1)))[0] == "unknown"


def test_folders_and_names_in_the_lines_give_the_same_node() -> None:
    for folders in (False, True):
        found = judged(lambda r: set_up(r) + (warn(r, NO_PAGES) if on(r, "gpu-d") else ""), folders=folders)
        assert first(found)[:2] == ("ib.memlock_limit", {"node": "gpu-d"})


def test_what_an_earlier_process_of_a_rank_wrote_accuses_nobody() -> None:
    """The ranks of gpu-c began at 100 s of the epoch (rank_facts): what was written before is of a run before."""
    text = "2020-01-01T00:00:00Z stderr F RuntimeError: CUDA error: device-side assert triggered\n"
    new = judged(lambda r: text if r == 4 else "", mapped("gpu-c", [4, 5], 8))
    assert first(new)[0] == "gpu.app_fault"
    old = text.replace("2020-01-01T00:00:00Z", "1970-01-01T00:01:00Z")
    assert first(judged(lambda r: old if r == 4 else "", mapped("gpu-c", [4, 5], 8)))[0] == "unknown"


def test_what_stands_before_a_restart_in_the_launchers_log_is_over() -> None:
    text = "[rank3]: Traceback (most recent call last):\n[rank3]: ValueError: x\n"
    again = "[default] Worker group FAILED. 2/3 attempts left; will restart worker group\n"
    assert first(judged(lambda r: text, ranks=range(1)))[0] == "fw.rank_exited"
    assert first(judged(lambda r: text + again + "[rank3]: step 1 loss=2\n", ranks=range(1)))[0] == "unknown"
    assert first(judged(lambda r: text + again, ranks=range(1)))[0] == "fw.rank_exited"


def test_the_rank_that_torchrun_saw_first_is_not_blamed_when_it_only_waited() -> None:
    events = judged(lambda r: timed_out(r) + raised("torch.distributed.DistBackendError: NCCL error"), wrote("gpu-a"))
    assert first(events)[0] == "unknown"


@pytest.mark.parametrize(
    ("path", "step", "says"),
    [
        ("bootstrap", "interface", "NCCL_DEBUG=INFO"),
        ("ring-and-tree", "network", "NCCL_DEBUG=INFO"),
        ("ring-and-tree", "rings", "NCCL_DEBUG_SUBSYS"),
        ("device-visibility", "versions", "NCCL_DEBUG=VERSION"),
    ],
)
def test_a_step_without_the_lines_it_needs_is_not_known_and_says_what_would_tell(
    path: str, step: str, says: str
) -> None:
    silent = judged(lambda r: f"step {r} loss=2\n").paths[path]
    state = next(one for one in silent.steps if one.id == step)
    assert state.state == "not known" and says in state.why
    telling = judged(set_up).paths[path]
    assert next(one for one in telling.steps if one.id == step).state == "ruled out"


def test_only_the_step_that_asks_for_it_is_implicated() -> None:
    steps = {one.id: one.state for one in judged(lambda r: odd(r, network="Socket")).paths["ring-and-tree"].steps}
    assert steps["network"] == "implicated" and steps["rings"] == steps["peers"] == "ruled out"


def test_a_time_out_that_names_no_group_takes_it_from_the_account_after_it() -> None:
    """torch 2.4: `[Rank 1]` counts within a group. In the second of two groups one rank runs another operation."""

    def wrote_by(rank: int) -> str:
        op = "ALLREDUCE" if rank != 6 else "BROADCAST"
        text = c10(rank, f"[Rank {rank % 4}] Watchdog caught collective operation timeout: {work(57 + rank // 4, op)}")
        account = f"detected by watchdog at work: {57 + rank // 4}, last enqueued NCCL work: 60, "
        account += "last completed NCCL work: 56."
        return text + c10(rank, f"[PG ID {2 + rank // 4} PG GUID {2 + rank // 4} Rank {rank % 4}] Exception {account}")

    assert first(judged(wrote_by))[:2] == ("fw.collective_mismatch", {"rank": 6})


def test_the_rank_whose_connection_closed_first_is_suspected_with_little_weight() -> None:
    closed = "[Service thread] Connection closed by localRank {}"
    found = judged(lambda r: set_up(r) + "".join(info(r, closed.format(1 - n)) for n in (0, 1) if r == 2))
    cause, subject, sure = first(found)
    assert (cause, subject) == ("fw.rank_exited", {"rank": 3, "node": "gpu-b"}) and sure < 0.8


def test_where_all_nodes_complain_of_all_no_node_is_blamed() -> None:
    def all_of_all(rank: int) -> str:
        return set_up(rank) + "".join(warn(rank, GONE.format(f"10.0.0.{n}")) for n in (1, 2, 3, 4))

    assert first(judged(all_of_all))[0] == "unknown"
    rails = judged(
        lambda r: info(r, "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:1<0>") + all_of_all(r)
    )
    assert first(rails)[:2] == ("ib.switch_down", {})


def test_an_abort_after_an_error_of_the_fabric_is_no_failure_of_its_own() -> None:
    ends = "terminate called after throwing an instance of 'c10::DistBackendError'\nFatal Python error: Aborted\n"
    found = judged(lambda r: by_peers(r) + (warn(r, GONE.format("10.0.0.1")) if r == 4 else "") + ends)
    assert first(found)[:2] == ("ib.link_down", {"node": "gpu-c"})


def test_local_times_without_a_zone_give_the_order_where_no_line_has_a_better_one() -> None:
    """Of eight ranks that met the same, the one that wrote first; its number is not the lowest."""
    fault = raised("RuntimeError: CUDA error: an illegal memory access was encountered")
    found = judged(lambda r: set_up(r) + f"2026-11-29 14:00:{30 - (r == 6)} ERROR x\n" + fault)
    assert first(found)[:2] == ("gpu.app_fault", {"rank": 6, "node": "gpu-d"})


def test_the_kernel_and_ncclss_lines_together_tell_which_rank_crashed() -> None:
    line = b"[ 9000.1] python[4001]: segfault at 8 ip 00007f0012345678 error 4 in libnccl.so.2[7f0012000000+9000]"
    kernel = seen(catalog.read(Capture("gpu-a", "host.kernel_log", "ok", line)))
    assert first(judged(set_up, kernel))[:2] == ("nccl.library_fault", {"rank": 1, "node": "gpu-a"})


def test_a_node_is_called_as_we_call_it_also_where_its_lines_carry_another_name() -> None:
    """The nodes are known as n1 to n4; in containers NCCL writes names that nobody else knows, on gpu-d its own."""
    seen = []
    for one in logs(lambda r: set_up(r) + (warn(r, NO_PAGES) if on(r, "gpu-d") else ""), folders=True):
        name = f"n{ord(one.node[-1]) - ord('a') + 1}"
        facts = replace(one.facts, host="gpu-d.cluster" if one.node == "gpu-d" else "")
        seen.append(replace(one, node=name, facts=facts))
    assert first(diagnose(seen))[:2] == ("ib.memlock_limit", {"node": "n4"})


def test_an_interface_that_nobody_else_reaches_is_not_blamed_beside_a_good_one_or_where_all_went_well() -> None:
    both = "NET/Socket : Using [0]docker0:172.17.0.1<0> [1]eth0:{}<0>"
    beside = judged(lambda r: set_up(r, done=False) + info(r, both.format(f"10.0.0.{r // 2 + 1}")))
    assert "net.wrong_interface" not in {one.hypothesis.cause for one in beside.ranked}
    well = judged(lambda r: odd(r, interface="docker0", where="172.17.0.1"))
    assert "net.wrong_interface" not in {one.hypothesis.cause for one in well.ranked}


def test_what_only_others_tell_of_an_end_leads_over_no_error_of_the_network() -> None:
    closed = info(0, "[Service thread] Connection closed by localRank 1")
    route = "socketStartConnect: Connect to 10.0.0.1<4> failed : No route to host"
    found = judged(lambda r: set_up(r, done=False) + (warn(r, route) if r > 1 else closed))
    assert first(found)[:2] == ("net.bootstrap_blocked", {"node": "gpu-a"})
    ended = judged(lambda r: set_up(r, done=False) + (warn(r, route) if r > 1 else CANCELLED))
    assert first(ended)[0] == "net.bootstrap_blocked"


def test_tries_to_reach_the_store_at_the_start_hide_neither_a_crash_nor_a_cancelled_job() -> None:
    tries = (
        "[W1129 10:00:00.1 socket.cpp:752] [c10d] The client socket has failed to connect to [gpu-a]:29500 (errno: 111)"
    )
    crash = judged(lambda r: f"{tries}\n{set_up(r)}" + "Fatal Python error: Segmentation fault\n" * (r == 3))
    assert first(crash)[:2] == ("fw.rank_exited", {"rank": 3, "node": "gpu-b"})
    ended = CANCELLED.replace(" ***", " DUE TO PREEMPTION ***")
    cancelled = judged(lambda r: f"{tries}\n{set_up(r)}step 3 loss=1\n" + ended * (r == 0))
    assert first(cancelled)[0] == "job.cancelled"


def test_an_address_that_no_node_is_known_to_have_is_no_node() -> None:
    found = judged(lambda r: set_up(r) + warn(r, GONE.format("10.9.9.9")))
    assert all("10.9.9.9" not in one.hypothesis.subject.values() for one in found.ranked)
    assert first(found)[0] == "unknown"


def test_two_nodes_that_differ_are_a_draw() -> None:
    def wrote_by(rank: int) -> str:
        return set_up(rank) + info(rank, f"NCCL_PROTO set by environment to {'LL' if rank > 1 else 'Simple'}")

    assert first(judged(wrote_by, ranks=range(4)))[:2] == ("nccl.env_mismatch", {})
