"""What people retype, remember or write down themselves: the words that carry the meaning, in other layouts.

Right values follow from cudaGetErrorString, srun(1), proc_pid_status(5), nvidia-resiliency-ext's straggler report,
torch's ProcessGroupNCCL.cpp and reducer.cpp, and from the numbers in the tables themselves.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.diagnosis.core import Hypothesis
from probes.intake.stacks_in_lines import stacks_in_lines
from probes.intake.tools.training import orders, rank_table
from tests.support import hardware

QUIET = ("unknown", "none")
STEPS = "".join(f"step {at} loss 2.{at}\n" for at in range(4))


def judged(folder: Path, **files: str) -> Hypothesis:
    told = {name.replace("_D_", "."): text for name, text in files.items()}
    return hardware.judged(folder, told).verdict.hypothesis


def of(verdict: Hypothesis) -> tuple[str, object]:
    return verdict.cause, verdict.subject.get("rank")


FAULTS = {
    "[rank7]: RuntimeError: Triton Error [CUDA]: an illegal memory access was encountered": ("gpu.app_fault", 7),
    "[rank1]: CUDARuntimeError: cudaErrorIllegalAddress: an illegal memory access was encountered": (
        "gpu.app_fault",
        1,
    ),
    "rank=12 kernel failed: CUDA_ERROR_ILLEGAL_ADDRESS in scatter_rows": ("gpu.app_fault", 12),
    "rank 4: CUDA out of memory, tried to allocate 3.2 GiB": ("gpu.out_of_memory", 4),
    "[rank3]: cudaMalloc failed: out of memory (requested 42949 bytes)": ("gpu.out_of_memory", 3),
    "torch.cuda.OutOfMemoryError on rank 5 at step 1201": ("gpu.out_of_memory", 5),
    "rank 10 (pid 8123) exited with signal 11 (SIGSEGV)": ("fw.rank_exited", 10),
    "Rank 6 died: exit code 139": ("fw.rank_exited", 6),
    "[rank5]: json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)": ("fw.rank_exited", 5),
    "rank 2 ValueError: sequence length 8193 > 8192 in sample 9": ("fw.rank_exited", 2),
}


@pytest.mark.parametrize("line", FAULTS)
def test_a_fault_told_in_one_line_is_of_the_rank_that_the_line_names(line: str, tmp_path: Path) -> None:
    assert of(judged(tmp_path, job_D_log=f"{STEPS}{line}\n")) == FAULTS[line]


def test_what_somebody_caught_and_went_on_after_is_no_fault(tmp_path: Path) -> None:
    for number, line in enumerate(("CUDA out of memory with batch 16, trying 8", "OSError: read failed, retrying")):
        assert judged(tmp_path / str(number), job_D_log=f"{STEPS}{line}\n{STEPS}{STEPS}").cause in QUIET


def test_an_exception_in_one_line_is_less_sure_than_a_traceback(tmp_path: Path) -> None:
    told = hardware.judged(tmp_path, {"job.log": f"{STEPS}rank 2 KeyError: 'ids'\n"}).verdict
    assert of(told.hypothesis) == ("fw.rank_exited", 2) and told.probability < 0.9


def test_an_abort_in_the_launchers_list_alone_decides_nothing(tmp_path: Path) -> None:
    block = (
        "train.py FAILED\nFailures:\n  <NO_OTHER_FAILURES>\n-------------\nRoot Cause (first observed failure):\n[0]:\n"
        "  time      : 2026-01-01_10:11:12\n  host      : n3\n  rank      : 4 (local_rank: 4)\n"
        "  exitcode  : -6 (pid: 4410)\n  error_file: <N/A>\n  traceback : Signal 6 (SIGABRT) received by PID 4410\n"
        "=============\n"
    )
    assert judged(tmp_path, out_D_txt=block).cause in QUIET


def test_a_watchdogs_line_counts_with_its_words_in_another_order(tmp_path: Path) -> None:
    lines = "".join(
        f"[rank{rank}] NCCL watchdog timed out (WorkNCCL(SeqNum=55, OpType={op}, Timeout(ms)=60000)), ran for 600 ms\n"
        for rank, op in enumerate(("ALLREDUCE", "ALLREDUCE", "BROADCAST", "ALLREDUCE"))
    )
    assert of(judged(tmp_path, job_D_log=lines)) == ("fw.collective_mismatch", 2)


# Tables and lines of ranks ----------------------------------------------------------------------------------------


LISTS = {
    "a matrix of steps and ranks, whose remark says what it is": (
        "a.tsv",
        "# ms behind the first to enter the all-reduce\niter r0 r1 r2 r3\n"
        + "".join(f"{n} 9 {1800 + n} 7 8\n" for n in range(6)),
    ),
    "a line for each rank below a caption": (
        "a.txt",
        "step time per rank, median\nrank 0: 1.31 s\nrank 1: 2.02 s\nrank 2: 1.30 s\nrank 3: 1.32 s\n",
    ),
    "keys and values, a line for each rank": (
        "a.txt",
        "".join(
            f"rank={r} compute_ms={900 if r == 1 else 400} allreduce_ms={30 if r == 1 else 530}\n" for r in range(4)
        ),
    ),
    "only how long each waits": ("a.csv", "rank,allreduce_wait_ms\n0,903\n1,6\n2,905\n3,907\n"),
    "a table in Markdown": (
        "a.md",
        "| rank | forward ms |\n|---|---|\n| 0 | 812 |\n| 1 | 1410 |\n| 2 | 811 |\n| 3 | 815 |\n",
    ),
    "all ranks in a list": ("a.txt", "fwd+bwd ms per rank: [401, 803, 400, 402, 399]\n"),
    "all ranks in a line": ("a.txt", "step time per rank: r0=1.31s r1=2.41s r2=1.30s r3=1.32s\n"),
    "a straggler report that names ranks and nodes": (
        "a.log",
        "STRAGGLER DETECTION WARNING: Some GPUs have worse relative performance. Affected ranks: "
        "{StragglerId(rank=1, node='b3')}\n" * 2,
    ),
}


@pytest.mark.parametrize("form", LISTS)
def test_the_slow_rank_is_found_in(form: str, tmp_path: Path) -> None:
    name, text = LISTS[form]
    assert of(hardware.judged(tmp_path, {name: text}).verdict.hypothesis) == ("fw.rank_straggler", 1)


def test_ranks_that_take_equally_long_are_no_stragglers(tmp_path: Path) -> None:
    rows = "".join(f"rank {rank}: {1.30 + rank / 100:.2f} s\n" for rank in range(6))
    assert judged(tmp_path, a_D_txt=f"step time per rank, median\n{rows}").cause in QUIET


def test_what_ranks_do_once_or_hold_is_no_pace(tmp_path: Path) -> None:
    rows = "rank 0: 21\nrank 1: 22\nrank 2: 40\nrank 3: 21\n"
    for number, head in enumerate(("startup time per rank (s): import, init", "memory per rank GiB", "loss per rank")):
        assert judged(tmp_path / str(number), a_D_txt=f"{head}\n{rows}", job_D_log=STEPS).cause in QUIET


def test_of_lines_that_tell_where_each_rank_waits_the_other_call_stands_out() -> None:
    text = "stuck since 10 min\n" + "".join(
        f"rank {rank}: {'broadcast [1]' if rank == 2 else 'all_reduce [1048576]'} float32\n" for rank in range(4)
    )
    (place,) = rank_table.read(text).places
    assert (place.error, place.odd) == ("COLLECTIVE_TYPE_MISMATCH", (2,))


def test_sizes_below_a_heading_that_names_the_call_are_compared() -> None:
    text = "all_gather #512 input shapes, all wait in it:\n" + "".join(
        f"  rank {rank}: [{7 if rank == 1 else 8}, 2048]\n" for rank in range(4)
    )
    (place,) = rank_table.read(text).places
    assert (place.error, place.odd, place.seq) == ("SIZE_OR_SYNTAX_MISMATCH", (1,), 512)


def test_calls_that_are_done_or_that_nobody_waits_in_are_no_standstill() -> None:
    for state in ("took 3 ms", ""):
        text = "".join(f"rank {rank}: {'broadcast' if rank == 2 else 'all_reduce'} {state}\n" for rank in range(4))
        assert not rank_table.fits(text, "a.txt")


def test_an_order_below_a_heading_is_of_the_rank_of_its_line() -> None:
    text = "order in which gradients became ready\n  rank 0: head, mid, low\n  rank 1: head, low, mid\n"
    assert [(one.rank, one.items) for one in orders.read(text).orders] == [
        (0, ("head", "mid", "low")),
        (1, ("head", "low", "mid")),
    ]


# Stacks in lines and states -----------------------------------------------------------------------------------------


def test_stacks_in_a_line_each_are_read_innermost_first_whichever_way_they_are_written() -> None:
    text = (
        "ranks 0-1,3: all_reduce (torch/distributed/distributed_c10d.py:2501) <- step (train.py:88)\n"
        "rank 2: main (train.py:12) -> on_step_end (hooks.py:40) -> take (lease.py:7)\n"
    )
    found = stacks_in_lines(text)
    assert [rank for rank, _, _ in found] == [0, 1, 2, 3]
    assert [line.strip() for line in found[2][2].splitlines()[1:]] == [
        "take (lease.py:7)",
        "on_step_end (hooks.py:40)",
        "main (train.py:12)",
    ]


def test_a_log_that_quotes_places_of_the_program_holds_no_stacks() -> None:
    text = "".join(f"rank {rank}: warning from train.py:12: the batch was short, padded to 4096\n" for rank in range(9))
    assert stacks_in_lines(text) == []


def test_who_stands_elsewhere_in_such_lines_is_late(tmp_path: Path) -> None:
    text = (
        "ranks 0-6: all_reduce (torch/distributed/distributed_c10d.py:2501) <- step (train.py:88)\n"
        "rank 7: save (torch/serialization.py:850) <- keep (train.py:99)\n"
    )
    assert of(judged(tmp_path, s_D_txt=text)) == ("fw.checkpoint_stall", 7)


def test_a_backward_pass_beside_an_optimizer_is_a_step_and_no_standstill(tmp_path: Path) -> None:
    text = (
        "ranks 0,1,3: backward (torch/autograd/__init__.py:347) <- train (train.py:40)\n"
        "rank 2: step (torch/optim/adamw.py:220) <- train (train.py:41)\n"
    )
    assert judged(tmp_path, s_D_txt=text).cause in QUIET


STOPPED = (
    "rank pid  stat cmd\n0 4100 Rl python train.py\n1 4101 Tl python train.py\n2 4102 Sl python train.py\n",
    "4100 RANK=0 S (sleeping)\n4101 RANK=1 T (stopped)\n4102 RANK=2 R (running)\n",
    "rank 0 pid 4100 state=R\nrank 1 pid 4101 state=T\n",
)


@pytest.mark.parametrize("text", STOPPED)
def test_a_stopped_rank_is_found_by_a_column_or_a_word_of_its_state(text: str, tmp_path: Path) -> None:
    assert of(judged(tmp_path, ps_D_txt=text)) == ("fw.rank_stopped", 1)
    assert (
        judged(
            tmp_path / "b", ps_D_txt=text.replace("Tl", "Sl").replace("T (stopped)", "S (sleeping)").replace("=T", "=S")
        ).cause
        in QUIET
    )


# Roots ------------------------------------------------------------------------------------------------------------


def test_a_checkpoint_that_no_log_places_waits_for_the_storage_that_a_node_calls_silent(tmp_path: Path) -> None:
    kernel = "gn-3: [  800.100000] usb 1-1: new high-speed USB device number 2 using xhci_hcd\n" + (
        "gn-2: [  900.100000] nfs: server nas-3 not responding, still trying\n"
        "gn-2: [ 1100.100000] INFO: task python:5948 blocked for more than 122 seconds.\n"
        "gn-2: [ 1100.100004]  rpc_wait_bit_killable+0x24/0xa0 [sunrpc]\n"
    )
    log = f"{STEPS}saving checkpoint to /nas/ckpt/step_4\n" + "".join(
        f"[rank{rank}]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, "
        f"NumelOut=1, Timeout(ms)=600000) ran for 600{rank:03d} milliseconds before timing out.\n"
        for rank in range(1, 8)
    )
    assert judged(tmp_path, dmesg_D_txt=kernel, job_D_log=log).cause == "host.storage_stall"
    assert judged(tmp_path / "b", job_D_log=log).cause == "fw.checkpoint_stall"


def test_a_rank_that_compiles_at_every_look_is_late_also_where_one_other_was_looked_at(tmp_path: Path) -> None:
    compiles = "".join(
        f'Process 73: python t.py\nPython v3.12.7 (/usr/bin/python3)\n\nThread 73 (active+gil): "MainThread"\n'
        f"    {inner}\n    compile_fx_inner (torch/_inductor/compile_fx.py:761)\n    forward (moe.py:14)\n"
        "    main (t.py:9)\n\n"
        for inner in (
            "codegen_node (torch/_inductor/codegen/triton.py:4512)",
            "fuse (torch/_inductor/scheduler.py:308)",
        )
    )
    waits = (
        'Process 70: python t.py\nPython v3.12.7 (/usr/bin/python3)\n\nThread 70 (idle): "MainThread"\n'
        "    synchronize (torch/cuda/__init__.py:1040)\n    main (t.py:11)\n"
    )
    first, second = compiles.split("\n\nProcess")
    files = {"r1_dump_1.txt": first + "\n", "r1_dump_2.txt": "Process" + second, "r0_dump.txt": waits}
    assert of(hardware.judged(tmp_path, files).verdict.hypothesis) == ("fw.rank_busy", 1)


# Ends, tables of them, and what was ended on purpose -----------------------------------------------------------------


EXITS = (
    "rank  pid   exit\n0     4100  -15 (SIGTERM)\n1     4101  -11 (SIGSEGV)\n2     4102  -15 (SIGTERM)\n",
    "| rank | exit code |\n|---|---|\n| 0 | 143 |\n| 1 | 139 |\n| 2 | 143 |\n",
    "rank 0 Connection closed by remote peer\nrank 1 container exited with code 137\n",
)


@pytest.mark.parametrize("text", EXITS)
def test_the_rank_that_ended_otherwise_than_by_sigterm_was_the_first(text: str, tmp_path: Path) -> None:
    assert of(judged(tmp_path, e_D_txt=text)) == ("fw.rank_exited", 1)


def test_ranks_that_ended_well_are_no_failure(tmp_path: Path) -> None:
    for number, text in enumerate(
        ("rank  pid  exit\n0  41  0\n1  42  0\n", "rank 0 exited with code 0\nrank 1 exited with code 0\n")
    ):
        assert judged(tmp_path / str(number), e_D_txt=text).cause in QUIET


ON_PURPOSE = (
    "slurmstepd: JOB 411 CANCELLED DUE TO TIME LIMIT",
    "srun: Job 411 has exceeded its time limit and is being terminated",
    "JOB 441 CANCELLED BY uid 0 (root): maintenance",
    'pytorchjob.kubeflow.org "llm" deleted',
    "torchrun: received SIGINT, shutting down",
    "wall time limit reached (24:00:00), job ended by scheduler",
)


@pytest.mark.parametrize("line", ON_PURPOSE)
def test_a_job_that_was_ended_on_purpose_did_not_fail(line: str, tmp_path: Path) -> None:
    assert judged(tmp_path, job_D_log=f"{STEPS}{line}\n").cause == "job.cancelled"


BEHIND = {
    "a.json": '{"0": {"seq": 9, "state": "started"}, "1": {"seq": 8, "state": "done"}, "2": {"seq": 9}}',
    "a.csv": "rank,host,last collective entered,last collective finished\n0,n0,9,8\n1,n0,8,8\n2,n1,9,8\n3,n1,9,8\n",
    "a.md": "| rank | last seq started | op |\n|---|---|---|\n"
    "| 0 | 9 | all_reduce |\n| 1 | 8 | all_reduce |\n| 2 | 9 | all_reduce |\n",
    "a.txt": "rank 0: in all_reduce #9 since 600 s\nrank 1: not in any collective, last finished #8\n"
    "rank 2: in all_reduce #9 since 600 s\n",
    "b.md": "| rank | main thread |\n|---|---|\n| 0 | all_reduce (torch/distributed/distributed_c10d.py:2501) |\n"
    "| 1 | lease (hub.py:7) |\n| 2 | all_reduce (torch/distributed/distributed_c10d.py:2501) |\n",
}


@pytest.mark.parametrize("name", BEHIND)
def test_who_is_behind_in_somebodys_table_is_missing(name: str, tmp_path: Path) -> None:
    assert of(hardware.judged(tmp_path, {name: BEHIND[name]}).verdict.hypothesis) == ("fw.rank_missing_collective", 1)


def test_counts_of_values_that_are_no_number_name_the_rank(tmp_path: Path) -> None:
    counts = "non-finite elements before the all-reduce, per rank\nrank 0: 0\nrank 1: 4096\nrank 2: 0\n"
    assert of(judged(tmp_path, n_D_txt=counts, job_D_log="step 8 loss nan\nstep 9 loss nan\n")) == (
        "fw.nan_gradient",
        1,
    )


def test_how_long_collectives_took_by_rank_is_waiting(tmp_path: Path) -> None:
    rows = "".join(f"{step} 610 12 609 611\n" for step in range(5))
    text = f"all-reduce time by rank, ms; who arrives last has the shortest\nseq rank0 rank1 rank2 rank3\n{rows}"
    assert of(judged(tmp_path, d_D_txt=text)) == ("fw.rank_straggler", 1)


def test_nodes_that_did_not_join_before_the_time_was_over_are_told(tmp_path: Path) -> None:
    assert (
        judged(tmp_path, job_D_log="rendezvous timed out after 900s, 7/8 nodes joined\n").cause
        == "fw.rendezvous_failed"
    )
    waits = "rendezvous: waiting, 7/8 nodes joined\n"
    assert judged(tmp_path / "b", job_D_log=waits + STEPS).cause in QUIET


def test_replicas_that_part_only_where_the_host_does_not_wait_speak_for_the_order_of_streams(tmp_path: Path) -> None:
    head = "| setting | max abs diff of params between ranks |\n|---|---|\n"
    table = f"{head}| as is | 0.0214 |\n| CUDA_LAUNCH_BLOCKING=1 | {{}} |\n"
    assert judged(tmp_path, ab_D_txt=table.format("0.0")).cause == "fw.stream_order"
    assert judged(tmp_path / "b", ab_D_txt=table.format("0.0231")).cause in QUIET
