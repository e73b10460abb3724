"""Which rank, and why: bare dumps of faulthandler, circles of groups, processes of Ray, and queues of NCCL.

Right values follow from torch's dump_traceback_later and flight recorder, Ray Train's start lines, and NCCL's proxy.cc.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.hardware import judged, waited

C10D = "/opt/v/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py"


def fault(*frames: tuple[str, int, str], head: str = "Timeout (0:05:00)!\n") -> str:
    rows = "".join(f'  File "{file}", line {line} in {function}\n' for file, line, function in frames)
    return f"{head}Thread 0x00007f0011223344 (most recent call first):\n{rows}"


WAITS = ((C10D, 3252, "all_reduce"), ("/w/run.py", 41, "step"), ("/w/run.py", 90, "<module>"))
FETCHES = (("/usr/lib/python3.12/queue.py", 171, "get"), ("/w/feed.py", 12, "more"), ("/w/run.py", 90, "<module>"))


@pytest.mark.parametrize("head", ["Timeout (0:05:00)!\n", "", "rank of pid 77\nTimeout (1:00:00.500000)!\n"])
def test_what_faulthandler_wrote_when_its_time_was_over_is_the_stack_of_its_rank(tmp_path: Path, head: str) -> None:
    files = {f"late.rank{rank}.trace": fault(*(FETCHES if rank == 3 else WAITS), head=head) for rank in range(5)}
    found = judged(tmp_path, files).verdict
    assert (found.hypothesis.cause, found.hypothesis.subject.get("rank")) == ("fw.rank_missing_collective", 3)
    assert found.probability < 0.8, "one look"


def recorder(rank: int, order: list[tuple[str, str]], timed: bool) -> str:
    """A JSON dump of four ranks in a mesh of two by two: both groups of the rank are entered, the first one runs."""
    groups = {"1": [0, 1], "2": [2, 3], "3": [0, 2], "4": [1, 3]}
    entries = []
    for place, (name, desc) in enumerate(order):
        for seq in (1, 2):
            done = seq == 1
            state = "completed" if done else "started" if timed and place == 0 else "scheduled"
            at = 1_700_000_000_000_000_000 + (seq * 10 + place) * 1_000_000_000
            entries.append({
                "record_id": seq * 2 + place, "pg_id": int(name), "process_group": [name, desc], "is_p2p": False,
                "collective_seq_id": seq, "p2p_seq_id": 0, "op_id": seq, "profiling_name": "nccl:all_reduce",
                "time_created_ns": at, "input_sizes": [[64]], "output_sizes": [[64]], "input_dtypes": ["Float"],
                "output_dtypes": ["Float"], "state": state, "retired": done, "timeout_ms": 600000,
                "time_discovered_started_ns": at + 1 if timed and state != "scheduled" else 0,
                "time_discovered_completed_ns": at + 2 if timed and done else 0,
            })  # fmt: skip
    entries.sort(key=lambda one: one["record_id"])
    config = {name: {"name": name, "desc": "tp" if int(name) < 3 else "dp", "ranks": str(ranks)}
        for name, ranks in groups.items() if rank in ranks}  # fmt: skip
    return json.dumps({"version": "2.10", "pg_config": config, "pg_status": {}, "entries": entries})


@pytest.mark.parametrize("timed", [True, False])
def test_four_groups_that_each_wait_for_the_next_make_a_circle(tmp_path: Path, timed: bool) -> None:
    mine = {0: ("1", "3"), 1: ("4", "1"), 2: ("3", "2"), 3: ("2", "4")}
    crossed = {
        f"fr_rank_{rank}.json": recorder(rank, [(name, "tp" if int(name) < 3 else "dp") for name in order], timed)
        for rank, order in mine.items()
    }
    found = judged(tmp_path / "crossed", crossed).verdict
    assert found.hypothesis.cause == "fw.group_order_cycle"
    assert (found.probability > 0.9) is timed, "without starts only the order of enqueuing is known"
    same = {
        f"fr_rank_{rank}.json": recorder(rank, sorted((n, "tp" if int(n) < 3 else "dp") for n in order), timed)
        for rank, order in mine.items()
    }
    causes = {one.hypothesis.cause for one in judged(tmp_path / "same", same).ranked}
    assert "fw.group_order_cycle" not in causes, "all enter tp first: it waits for something else"


SPY = """\
Process {pid}: python run.py
Python v3.12.3 (/usr/bin/python3.12)

Thread {pid} (active): "MainThread"
{frames}
"""
CALLS = "    clip (run.py:55)\n    main (run.py:90)"
COMPILES = "    compile (triton/compiler/compiler.py:320)\n    step (run.py:41)\n    main (run.py:90)"
OTHER_LINE = "    log_images (run.py:77)\n    main (run.py:90)"


def spied(odd: str) -> dict[str, str]:
    files = {f"spy_rank{rank}.txt": SPY.format(pid=70 + rank, frames=CALLS) for rank in (0, 1, 3)}
    looks = ("_1", "_2")
    return files | {f"spy_rank2{look}.txt": SPY.format(pid=72, frames=odd) for look in looks}


def test_ranks_at_one_line_wait_in_what_it_calls_for_the_one_that_compiles(tmp_path: Path) -> None:
    found = judged(tmp_path, spied(COMPILES)).verdict.hypothesis
    assert (found.cause, found.subject.get("rank")) == ("fw.rank_busy", 2)


def test_another_line_of_the_program_is_no_reason_to_suspect_a_rank(tmp_path: Path) -> None:
    assert judged(tmp_path, spied(OTHER_LINE)).verdict.hypothesis.cause in ("none", "unknown")


RAY = """\
(TorchTrainer pid=900, ip=10.0.0.1) - (node_id=aa, ip=10.0.0.1, pid=511) world_rank=0, local_rank=0, node_rank=0
(TorchTrainer pid=900, ip=10.0.0.1) - (node_id=bb, ip=10.0.0.2, pid=733) world_rank=1, local_rank=0, node_rank=1
Traceback (most recent call last):
  File "/app/drive.py", line 12, in <module>
    ray.get(future)
ray.exceptions.RayTaskError({name}): ray::_RayTrainWorker__execute.get_next() (pid=733, ip=10.0.0.2, actor_id=6a)
  File "/app/net.py", line 48, in loop
    out = net(batch)
{error}
"""


@pytest.mark.parametrize(
    ("name", "error", "cause"),
    [
        ("OutOfMemoryError", "torch.OutOfMemoryError: CUDA out of memory. Tried to", "gpu.out_of_memory"),
        ("RuntimeError", "RuntimeError: CUDA error: an illegal memory access was encountered", "gpu.app_fault"),
    ],
)  # fmt: skip
def test_an_exception_that_ray_tells_is_of_the_rank_that_its_process_is(
    tmp_path: Path, name: str, error: str, cause: str
) -> None:
    log = RAY.format(name=name, error=error)
    found = judged(tmp_path, {"driver.log": log}).verdict.hypothesis
    assert (found.cause, found.subject.get("rank"), found.subject.get("node")) == (cause, 1, "10.0.0.2")


PROXY = """\
Thread 9 (Thread 0x7f1 (LWP 508) "python"):
#0  0x00007f in {sleeps} () from /lib64/libc.so.6
#1  0x00007f in ncclProxyGetPostedOps () from /opt/libnccl.so.2
#2  0x00007f in ncclProxyProgress () from /opt/libnccl.so.2

Thread 1 (Thread 0x7f0 (LWP 501) "python"):
#0  0x00007f in sched_yield () from /lib64/libc.so.6
#1  0x00007f in ncclLocalOpAppend () from /opt/libnccl.so.2
#2  0x00007f in ncclProxySaveOp () from /opt/libnccl.so.2
#3  0x00007f in ncclLaunchKernelAfter_NoCuda () from /opt/libnccl.so.2
"""


def test_a_launcher_that_waits_for_room_which_a_sleeping_thread_should_make_is_a_fault_of_nccl(tmp_path: Path) -> None:
    stuck = judged(tmp_path / "a", {"gn-4_rank6.txt": PROXY.format(sleeps="pthread_cond_wait")}).verdict
    assert (stuck.hypothesis.cause, stuck.hypothesis.subject.get("rank")) == ("nccl.library_fault", 6)
    works = judged(tmp_path / "b", {"gn-4_rank6.txt": PROXY.format(sleeps="ncclProxyProgressOps")}).verdict
    assert works.hypothesis.cause != "nccl.library_fault", "a thread that works makes room sooner or later"


FULL = (
    "== w-1\n{head}\n/dev/md0  28T  2T  26T   8% /local\n== w-2\n{head}\n/dev/md0  28T  28T  20K 100% /local\n".format(
        head="Filesystem Size Used Avail Use% Mounted on"
    )
)
SHORT = "RuntimeError: [enforce fail at inline_container.cc:664] . unexpected pos 4096 vs 3990"
RAISED = f"""\
[rank3]: Traceback (most recent call last):
[rank3]:   File "/w/save.py", line 9, in save
[rank3]:     torch.save(state, path)
[rank3]: {SHORT}
{waited(0)}
{waited(1)}
"""


def test_a_write_that_fell_short_is_of_the_node_whose_disk_is_full(tmp_path: Path) -> None:
    full = judged(tmp_path / "a", {"df.txt": FULL, "run.log": RAISED}).verdict.hypothesis
    assert (full.cause, full.subject.get("node")) == ("host.disk_full", "w-2")
    room = judged(tmp_path / "b", {"run.log": RAISED}).verdict.hypothesis
    assert (room.cause, room.subject.get("node")) == ("host.disk_full", None), "most often so; nothing says where"


CRASH = "[{day} 11:15:37 2025] python3.11[5512]: segfault at 18 ip 00007f0a sp 00007ffd error 4 in libz.so.1[7f0a+1d]"


@pytest.mark.parametrize(("day", "tells"), [("Tue Jun  3", False), ("Mon Jun 16", True)])
def test_a_crash_days_before_somebody_looked_is_of_another_job(tmp_path: Path, day: str, tells: bool) -> None:
    text = f"$ date\nMon Jun 16 13:05:12 UTC 2025\n$ dmesg -T | tail -1\n{CRASH.format(day=day)}\n"
    causes = {one.hypothesis.cause for one in judged(tmp_path, {"host.txt": text}).ranked}
    assert ("fw.rank_exited" in causes) is tells
