"""A GPU that stopped without any error: told by its peers, and only where nothing else explains it."""

from __future__ import annotations

import json
from pathlib import Path

from probes.core import Finding
from probes.diagnosis import Seen, diagnose
from tests.support.hardware import judged
from tests.support.rank_facts import dump, gpus, mapped, recorders, stack, stacked

RANKS = list(range(8))
REDUCE = ("all_reduce", 1024)
CAUSE = "gpu.silent_stall"
ALIKE = (100, 210.0)


def everywhere() -> Seen:
    return recorders(*(dump(r, {"g": (RANKS, [REDUCE], True)}) for r in RANKS))


def odd(load: int, watts: float, at: int = 5) -> Seen:
    rows = [ALIKE] * 8
    rows[at] = (load, watts)
    return gpus("n", *rows, pids=[100 + rank for rank in RANKS])


def chance(*seen: Seen) -> float:
    return sum(one.probability for one in diagnose(seen).ranked if one.hypothesis.cause == CAUSE)


def test_one_gpu_unlike_all_others_while_all_wait_is_named_with_its_rank() -> None:
    found = diagnose([everywhere(), odd(0, 90.0), mapped("n", RANKS, 8)]).verdict.hypothesis
    assert (found.cause, found.subject["gpu"], found.subject["rank"]) == (CAUSE, 5, 5)
    assert "GPU 5 is 0 % utilised, the 7 others 100 %" in found.says
    found = diagnose([everywhere(), odd(100, 95.0, at=2), mapped("n", RANKS, 8)]).verdict.hypothesis
    assert (found.subject["gpu"], found.because[0].says) == (2, "GPU 2 draws 95 W, the 7 others about 210 W")


def test_gpus_that_are_alike_accuse_nobody() -> None:
    assert chance(everywhere(), gpus("n", *[ALIKE] * 8)) == 0
    assert chance(everywhere(), odd(90, 190.0)) == 0
    assert chance(everywhere(), gpus("n", (0, 90.0), (0, 90.0), *[ALIKE] * 6)) == 0, "two are no odd one"


def test_a_gpu_is_idle_where_its_rank_is_late_for_another_reason() -> None:
    late = recorders(*(dump(r, {"g": (RANKS, [REDUCE] if r == 5 else [REDUCE, REDUCE], r != 5)}) for r in RANKS))
    assert chance(late, odd(0, 90.0)) == 0
    stuck = stacked("n", *(stack(r, "collective") for r in RANKS if r != 5), stack(5, "user code"))
    assert chance(stuck, odd(0, 90.0)) == 0


def test_a_gpu_that_says_what_is_wrong_is_not_silent() -> None:
    xid = Finding("kernel.xid", "bad", "GPU 0000:06:00 Xid 79", {"bus_id": "0000:06:00", "xid": 79})
    log = Seen("n/host.kernel_log", "n", "host.kernel_log", "ok", "", None, (xid,))
    assert chance(everywhere(), odd(0, 90.0), log) == 0


def test_nothing_stands_so_an_idle_gpu_means_nothing() -> None:
    goes_on = recorders(*(dump(r, {"g": (RANKS, [REDUCE], False)}) for r in RANKS))
    assert chance(goes_on, odd(0, 90.0)) == 0


def _recorder(rank: int, state: str) -> str:
    """torch's recorder as JSON: collective 7 of a job of 8 ranks, `scheduled` where its kernel has not begun."""
    entry = {
        "record_id": 7, "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": 7, "p2p_seq_id": 0,
        "op_id": 7, "profiling_name": "nccl:_reduce_scatter_base", "time_created_ns": 1_780_000_000_000_000_000,
        "input_sizes": [[4096]], "input_dtypes": ["Float"], "output_sizes": [[512]], "output_dtypes": ["Float"],
        "state": state, "time_discovered_started_ns": 1 if state == "started" else None,
        "time_discovered_completed_ns": None, "retired": False, "timeout_ms": 600_000, "is_p2p": False, "frames": [],
    }  # fmt: skip
    before = entry | {"record_id": 6, "collective_seq_id": 6, "op_id": 6, "state": "completed", "retired": True,
                      "time_discovered_started_ns": 1, "time_discovered_completed_ns": 1}  # fmt: skip
    group = {"0": {"name": "0", "desc": "default_pg", "ranks": str(RANKS)}}
    status = {"0": {"last_enqueued_collective": 7, "last_started_collective": 7 if state == "started" else 6,
                    "last_completed_collective": 6}}  # fmt: skip
    return json.dumps({"version": "2.10", "pg_config": group, "pg_status": status, "entries": [before, entry]})


def test_a_rank_that_enqueued_what_the_others_timed_out_in_is_not_missing_its_device_is_silent(tmp_path: Path) -> None:
    timed_out = "".join(
        f"[rank{rank}]:[E703 20:27:0{rank}.690470 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=7, OpType=_REDUCE_SCATTER_BASE, NumelIn=4096, NumelOut=512, "
        "Timeout(ms)=600000) ran for 600065 milliseconds before timing out.\n"
        for rank in RANKS
        if rank != 5
    )
    files = {f"fr/nccl_trace_rank_{rank}.json": _recorder(rank, "started") for rank in (0, 4, 6)}
    files |= {"fr/nccl_trace_rank_5.json": _recorder(5, "scheduled"), "job.log": timed_out}
    found = judged(tmp_path, files).verdict.hypothesis
    assert (found.cause, found.subject["rank"]) == (CAUSE, 5)


def watchdog(rank: int, seq: int, enqueued: int, waits: bool) -> str:
    head = f"[rank{rank}]:[E402 04:07:5{rank}.1 ProcessGroupNCCL.cpp:"
    out = "WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=64, NumelOut=64, Timeout(ms)=600000) ran for 600036"
    out += " milliseconds"
    told = f"{head}632] [Rank {rank}] Watchdog caught collective operation timeout: {out.format(seq=seq)} before"
    told += " timing out.\n"
    return (told if waits else "") + (
        f"{head}2268] [PG ID 0 PG GUID 0(default_pg) Rank {rank}]  failure detected by watchdog at work"
        f" sequence id: {seq} PG status: last enqueued work: {enqueued}, last completed work: {seq - 1}\n"
    )


def missing(folder: Path, enqueued: int) -> list[object]:
    text = "".join(watchdog(r, 70, 78, True) for r in RANKS if r != 3) + watchdog(3, 69, enqueued, False)
    ranked = judged(folder, {"all.log": text}).ranked
    return [
        one.hypothesis.subject.get("rank") for one in ranked if one.hypothesis.cause == "fw.rank_missing_collective"
    ]


def test_who_enqueued_what_the_others_wait_in_has_not_missed_it(tmp_path: Path) -> None:
    assert missing(tmp_path / "ahead", 78) == []
    assert missing(tmp_path / "behind", 69) == [3]


def test_an_idle_gpu_whose_rank_waits_for_it_as_all_others_do_is_named(tmp_path: Path) -> None:
    head = "# gpu    sm   mem   pwr\n# Idx     %     %     W\n"
    files = {}
    for at, node in enumerate(("jade3", "jade4")):
        idle = 6 if at else None
        looks = (
            f"    {g}     {0 if g == idle else 100}     0   {72 if g == idle else 121}\n" for _ in "abc" for g in RANKS
        )
        listed = (
            f"GPU {g}: NVIDIA H100 80GB HBM3 (UUID: GPU-{at}000000{g}-1111-2222-3333-444444444444)\n" for g in RANKS
        )
        stacks = (
            f'--- rank {r}\nProcess {900 + r}: python train.py\n\nThread {900 + r} (idle): "MainThread"\n'
            "    synchronize (torch/cuda/__init__.py:792)\n    note (loop.py:31)\n    <module> (loop.py:90)\n\n"
            for r in range(8 * at, 8 * at + 8)
        )
        files |= {f"{node}/gpus.txt": "".join(listed), f"{node}/dmon.txt": head + "".join(looks)}
        files[f"{node}/py-spy.txt"] = "".join(stacks)
    found = judged(tmp_path / "incident", files).verdict
    subject = found.hypothesis.subject
    assert (found.hypothesis.cause, subject["node"], subject["gpu"], subject["rank"]) == (CAUSE, "jade4", 6, 14)
    assert found.probability > 0.7
