"""What is harmless, old, of others or told of another place, and must not be said surely; and whose it is, where a name
that stands nearer is not it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.brought import told
from tests.support.hardware import judged


def _steps(first: int, last: int) -> str:
    return "".join(
        f" [2026-06-02 04:{number // 60 % 60:02d}:{number % 60:02d}] iteration {number:8d}/ 90000 | consumed samples:"
        f" {number * 64} | elapsed time per iteration (ms): 1001.2 | lm loss: 2.1E+00 | grad norm: 0.3 |\n"
        for number in range(first, last)
    )


def _refused(host: str, peer: str, number: int) -> str:
    return (
        f"{host}:{7000 + number}:{7100 + number} [{number}] transport/net_ib.cc:1884 NCCL WARN NET/IB : Got completion "
        f"from peer {peer}<4100{number}> with status=12 opcode=0 len=0 vendor err 129 (Send) hca mlx5_{number}\n"
    )


def _writers(host: str, base: int, world: int) -> str:
    return "".join(
        f"{host}:{800 + number}:{900 + number} [{number}] NCCL INFO ncclCommInitRank comm 0x55a{number} rank "
        f"{base + number} nranks {world} cudaDev {number} nvmlDev {number} busId {number}000 commId 0x77 - "
        "Init COMPLETE\n"
        for number in range(2)
    )


WATCHDOG = (
    "[rank0]:[E602 04:31:00.100 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=71, OpType=ALLREDUCE, NumelIn=64, NumelOut=64, Timeout(ms)=600000) ran for 600021 milliseconds "
    "before timing out.\n"
)


def test_two_ends_that_accuse_each_other_settle_nothing_in_one_log_either(tmp_path: Path) -> None:
    pairs = "".join(_refused("elm", "10.4.0.2", n) + _refused("oak", "10.4.0.1", n) for n in range(2))
    found = told(tmp_path, {"both.log": pairs + WATCHDOG})
    assert found.cause == "unknown"


def test_who_gets_no_answer_from_several_is_still_said_where_one_rank_alone_marks_its_lines(tmp_path: Path) -> None:
    lines = "".join(_refused("elm", f"10.4.0.{peer}", 0) + _refused("elm", f"10.4.0.{peer}", 1) for peer in (2, 3, 4))
    found = told(tmp_path, {"log.txt": lines + WATCHDOG})
    assert (found.cause, found.subject.get("node")) == ("ib.link_down", "elm")


def test_an_xid_of_a_node_that_is_another_jobs_is_not_this_jobs(tmp_path: Path) -> None:
    queue = (
        "   JOBID PARTITION  NAME  USER ST  TIME NODES NODELIST(REASON)\n"
        "   40012       gpu  moe   eva   R  1:00     2 cn[11-12]\n   40019       gpu  vit   jon   R  0:30     1 cn15\n"
    )
    kernel = "Jun  2 04:10:01 cn15 kernel: NVRM: Xid (PCI:0000:4b:00): 48, pid=88, name=python, DBE\n"
    files = {"queue.txt": queue, "syslog.txt": kernel}
    assert told(tmp_path / "ours", {**files, "moe-40012.out": _steps(1, 90)}).cause in ("none", "unknown")
    assert told(tmp_path / "theirs", {**files, "vit-40019.out": _steps(1, 90)}).subject["node"] == "cn15"


def test_a_list_of_what_xids_mean_tells_of_none_that_happened(tmp_path: Path) -> None:
    rows = "Xid 79: GPU has fallen off the bus, reseat\nXid 95: uncontained ECC error\nXid 119: GSP timeout, reboot\n"
    assert told(tmp_path / "list", {"help.txt": rows}).cause in ("none", "unknown")
    own = told(tmp_path / "own", {"gpus.txt": "n14: Xid 79, gpu 0000:4e:00, fallen off bus\n"})
    assert (own.cause, own.subject["node"]) == ("gpu.fell_off_bus", "n14")


def test_links_that_come_up_while_a_node_starts_do_not_flap(tmp_path: Path) -> None:
    def kernel(start: float) -> str:
        states = ("down", "up", "down", "up", "down", "up")
        return "".join(
            f"[{start + 2 * place:12.6f}] mlx5_core 0000:5d:00.0 ib0: Link {state}\n"
            for place, state in enumerate(states)
        )

    assert told(tmp_path / "boot", {"cn3/dmesg.txt": kernel(9.0)}).cause in ("none", "unknown")
    assert told(tmp_path / "later", {"cn3/dmesg.txt": kernel(90_000.0)}).cause == "ib.link_flapping"


def test_no_room_in_spite_of_which_the_steps_go_on_is_not_said_surely(tmp_path: Path) -> None:
    full = "OSError: [Errno 28] No space left on device: '/local/x'\n"
    after = told(tmp_path / "on", {"a.log": _steps(1, 40) + full + _steps(40, 90)})
    ended = told(tmp_path / "end", {"a.log": _steps(1, 40) + full})
    assert after.probability < 0.8 < ended.probability
    assert ended.cause == "host.disk_full"


def test_a_connection_that_was_refused_before_the_first_step_was_tried_again(tmp_path: Path) -> None:
    refused = (
        "elm:7000:7100 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.4.0.2<41234> failed : "
        "Connection refused\n"
    )
    assert told(tmp_path / "begun", {"a.log": refused + _steps(1, 30)}).cause in ("none", "unknown")
    assert told(tmp_path / "not", {"a.log": refused}).cause == "net.bootstrap_blocked"


def test_ranks_that_compute_at_one_line_wait_for_nobody(tmp_path: Path) -> None:
    def stack(pid: int, frames: str) -> str:
        head = f'Process {pid}: python -u train.py\nPython v3.11.9\n\nThread {pid} (active+gil): "MainThread"\n'
        return f"{head}{frames}    step (train.py:50)\n    main (train.py:90)\n"

    loads = "    _next_data (torch/utils/data/dataloader.py:1447)\n    __next__ (torch/utils/data/dataloader.py:701)\n"
    computes = "    forward (torch/nn/modules/linear.py:125)\n    forward (net.py:31)\n"
    files = {f"spy-rank{rank}.txt": stack(900 + rank, loads if rank == 3 else computes) for rank in range(6)}
    assert told(tmp_path, files).cause in ("none", "unknown")


OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 1 has 79.10 GiB.\n"


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("box-7: [rank17]: ", "node", "box-7"),  # as DeepSpeed's launcher and pdsh write before a rank's mark
        ("(RayTrainWorker pid=8123, ip=10.0.0.7) ", "node", "10.0.0.7"),
        ("[5]<stderr>: ", "rank", 5),  # horovodrun
    ],
)
def test_what_a_launcher_writes_before_a_line_tells_whose_it_is(
    tmp_path: Path, line: str, key: str, value: str | int
) -> None:
    found = told(tmp_path, {"all.log": line + OUT_OF_MEMORY})
    assert found.subject[key] == value


def test_a_log_of_several_nodes_is_of_none_in_whose_folder_it_lies(tmp_path: Path) -> None:
    log = _writers("cn31", 0, 4) + _writers("cn32", 2, 4)
    error = "[rank3]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
    found = told(tmp_path, {"cn31/job.log": log + error})
    assert (found.subject["rank"], found.subject["node"]) == (3, "cn32")


def test_the_node_that_torchrun_names_counts_before_the_folder_of_the_launcher(tmp_path: Path) -> None:
    error = '[rank3]: Traceback (most recent call last):\n[rank3]:   File "/w/t.py", line 4, in <module>\n'
    block = (
        "[rank3]: KeyError: 'a'\nRoot Cause (first observed failure):\n[0]:\n  time      : 2026-06-02_04:22:10\n"
        "  host      : cn32\n  rank      : 3 (local_rank: 1)\n  exitcode  : 1 (pid: 5111)\n"
    )
    quiet = "[Tue Jun  2 01:00:31 2026] eth0: link up\n"
    files = {"cn31/job.log": error + block, "cn31/dmesg.txt": quiet, "cn32/dmesg.txt": quiet}
    assert told(tmp_path, files).subject["node"] == "cn32"


def test_a_word_that_is_no_name_before_a_ranks_mark_is_no_node(tmp_path: Path) -> None:
    assert "node" not in told(tmp_path, {"a.log": f"ERROR: [rank3]: {OUT_OF_MEMORY}"}).subject


def test_the_same_numbers_below_several_nodes_are_no_ranks_of_the_job(tmp_path: Path) -> None:
    error = 'Traceback (most recent call last):\n  File "/w/t.py", line 4, in <module>\nKeyError: "x"\n'
    files = {
        f"{node}/attempt_0/{number}/stderr.log": error
        if (node, number) == ("ivy9", 2)
        else "step 3 loss 2.1\nstep 4 loss 2.0\n"
        for node in ("ivy9", "ivy10", "ivy8")
        for number in range(4)
    }
    found = told(tmp_path, files)
    assert (found.cause, found.subject) == ("fw.rank_exited", {"node": "ivy9"}), "nobody tells their order"


def test_the_node_that_somebody_names_before_a_line_of_the_kernel_is_its(tmp_path: Path) -> None:
    said = "[03:11] mona: gn31 lost one: NVRM: Xid (PCI:0000:ab:00): 79, GPU has fallen off the bus\n"
    assert told(tmp_path, {"chat.txt": said}).subject["node"] == "gn31"


def test_names_without_a_number_in_a_folded_heading_are_nodes(tmp_path: Path) -> None:
    rule = "---------------\n"
    table = "Filesystem Size Used Avail Use% Mounted on\n/dev/md0 7.0T {} /scratch\n"
    text = f"$ clush -b -a df -h\n{rule}elm,oak (2)\n{rule}" + table.format("7.0T 0 100%")
    found = told(tmp_path, {"df.txt": text})
    assert found.subject["node"] in ("elm", "oak")


def test_an_idle_gpu_for_which_its_rank_waits_is_said_and_not_surely(tmp_path: Path) -> None:
    rows = "".join(
        f"cn0{node}, {gpu}, {'0 %, 70.1 W' if (node, gpu) == (2, 5) else f'100 %, 12{gpu}.1 W'}\n"
        for node in (1, 2)
        for gpu in range(8)
    )
    ras = (
        "NCCL version 2.26.5 compiled with CUDA 12.8\n\nJob summary\n===========\n\nWarnings\n========\n\n"
        "#0-0 (e2f1a0937bc4d511) MISMATCH\n  Communicator ranks have different collective operation counts\n"
        "  15 ranks have launched up to operation 812\n"
        "  Rank 13 has launched up to operation 811 -- GPU 5 managed by process 551 on node 10.8.0.12 (cn02)\n"
    )
    stack = (
        'Process 551: python -u t.py\nPython v3.11.9\n\nThread 551 (active): "MainThread"\n'
        "    synchronize (torch/cuda/streams.py:95)\n    step (t.py:50)\n    main (t.py:90)\n"
    )
    head = "host, index, utilization.gpu [%], power.draw [W]\n"
    found = told(tmp_path, {"smi.csv": head + rows, "ras.txt": ras, "spy_rank13.txt": stack})
    assert (found.cause, found.subject["node"], found.subject["gpu"]) == ("gpu.silent_stall", "cn02", 5)
    assert found.probability < 0.8


def test_uptime_without_its_tail_tells_of_a_node_that_was_started_again(tmp_path: Path) -> None:
    rows = "cn01:  04:10:11 up 41 days, 2:01\ncn02:  04:10:11 up 2 min\ncn03:  04:10:11 up 41 days, 1:10\n"
    found = told(tmp_path, {"uptime.txt": rows, "a.log": _steps(1, 60)})
    assert (found.cause, found.subject["node"]) == ("host.rebooted", "cn02")


ENDED = "{job}|abl|pine4|{state}|{code}|2026-07-02T18:03:57|2026-07-02T21:33:17\n"
OFF = "{at} pine4 kernel: NVRM: Xid (PCI:0000:89:00): 79, pid=1, name=python, GPU has fallen off the bus.\n"


@pytest.mark.parametrize(
    ("at", "state", "code", "cause"),
    [
        ("2026-06-11T02:17:55+0200", "COMPLETED", "0:0", "none"),
        ("2026-07-02T21:30:00+0200", "FAILED", "1:0", "gpu.fell_off_bus"),
    ],
)
def test_rows_of_sacct_without_their_header_tell_when_the_job_ran_and_how_it_ended(
    tmp_path: Path, at: str, state: str, code: str, cause: str
) -> None:
    files = {"journal.txt": OFF.format(at=at), "sacct.txt": ENDED.format(job=6120, state=state, code=code)}
    assert judged(tmp_path, files).verdict.hypothesis.cause == cause


@pytest.mark.parametrize(
    "last", ["reached max_steps, saving the last model", "all 12 epochs finished", "all epochs done"]
)
def test_a_trainer_that_says_it_came_to_its_last_step_has_ended_well(tmp_path: Path, last: str) -> None:
    text = "".join(f"2026-08-14 03:{m:02d}:00 INFO step {m} loss 2.{m}\n" for m in range(20))
    assert (
        judged(tmp_path, {"train.log": f"{text}2026-08-14 03:20:10 INFO {last}\n"}).verdict.hypothesis.cause == "none"
    )
