"""Replicas that part, kernels beside collectives, pieces of the program, and printed analyses of flight recorders.

Right values follow from what a wait orders (CUDA semantics of torch) and from what torchfrtrace's source prints.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from probes.core import facts_as_json
from probes.intake.tools import beside, tool_of, tools
from probes.stored import stored
from tests.support.hardware import judged

ASYNC, STREAM = "fw.async_not_awaited", "fw.stream_order"
MISSING, MISMATCH = "fw.rank_missing_collective", "fw.collective_mismatch"

DROPPED = """\
def sync(model, group):
    for p in model.parameters():
        dist.all_reduce(p.grad, group=group, async_op=True)
        p.grad /= group.size()
"""
WAITED = DROPPED.replace("async_op=True)", "async_op=True).wait()")
GATHERED_LATER = """\
def sync(model):
    works = [dist.all_reduce(p.grad, async_op=True) for p in model.parameters()]
    for work in works:
        work.wait()
"""
PART = """\
def average(params):
    handles = []
    for p in params:
        handles.append(dist.all_reduce(p.grad, async_op=True))
    for handle in handles{part}:
        handle.wait()
"""
SIDE = """\
def prefetch(self):
    self.side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(self.side):
        self.buf.copy_(self.host, non_blocking=True)
    {wait}
    return self.net(self.buf)
"""
UNORDERED, ORDERED = SIDE.format(wait="pass"), SIDE.format(wait="torch.cuda.current_stream().wait_stream(self.side)")


def norms(*last: str) -> str:
    """Four ranks in one log: equal at step 10, as given at step 20."""
    rows = [f"[rank{rank}]: step 10 param_norm=431.250913" for rank in range(4)]
    rows += [f"[rank{rank}]: step 20 param_norm={value}" for rank, value in enumerate(last)]
    return "\n".join(rows) + "\n"


APART, ALIKE = norms("433.1", "433.2", "433.1", "433.4"), norms(*["433.104"] * 4)


def verdict(folder: Path, files: dict[str, str]) -> tuple[str, float]:
    found = judged(folder, files).verdict
    return found.hypothesis.cause, found.probability


@pytest.mark.parametrize(
    ("piece", "cause"), [(DROPPED, ASYNC), (UNORDERED, STREAM)], ids=["work dropped", "stream not waited for"]
)
def test_a_piece_without_the_wait_and_replicas_that_part_are_certain(tmp_path: Path, piece: str, cause: str) -> None:
    found, sure = verdict(tmp_path, {"sync.py": piece, "train.log": APART})
    assert (found, sure >= 0.9) == (cause, True)


@pytest.mark.parametrize("piece", [DROPPED, UNORDERED], ids=["work dropped", "stream not waited for"])
def test_such_a_piece_alone_is_not_certain(tmp_path: Path, piece: str) -> None:
    assert verdict(tmp_path, {"sync.py": piece})[1] < 0.8


@pytest.mark.parametrize("part", ["[:-1]", "[1:]", "[::2]"])
def test_works_of_which_a_part_alone_is_waited_for_are_told(tmp_path: Path, part: str) -> None:
    assert verdict(tmp_path, {"sync.py": PART.format(part=part), "train.log": APART})[0] == ASYNC


IN_TWO = PART.format(part="[:4]") + "    for handle in handles[4:]:\n        handle.wait()\n"


@pytest.mark.parametrize("piece", [WAITED, GATHERED_LATER, ORDERED, PART.format(part=""), IN_TWO])
def test_a_piece_that_waits_tells_nothing(tmp_path: Path, piece: str) -> None:
    assert verdict(tmp_path, {"sync.py": piece, "train.log": ALIKE})[0] in ("none", "unknown")


def test_a_wait_that_a_diff_takes_away_is_found(tmp_path: Path) -> None:
    lines = ORDERED.splitlines()
    diff = "diff --git a/n.py b/n.py\n--- a/n.py\n+++ b/n.py\n@@ -1,6 +1,5 @@ class N:\n"
    diff += "\n".join(("-" if "current_stream().wait_stream" in line else " ") + line for line in lines) + "\n"
    assert verdict(tmp_path, {"change.patch": diff, "train.log": APART})[0] == STREAM


def test_replicas_that_part_alone_settle_nothing(tmp_path: Path) -> None:
    assert verdict(tmp_path, {"train.log": APART})[0] in ("none", "unknown")


@pytest.mark.parametrize(
    "text",
    [
        "".join(json.dumps({"step": 7, "rank": rank, "weight_checksum": f"9f8e7d{rank}a"}) + "\n" for rank in range(3)),
        "step 7 param norm per rank: [12.5102, 12.5102, 12.5098]\n",
        "step 7 ema_md5 rank0: 9f8e7d0a rank1: 9f8e7d0b rank2: 9f8e7d0a DIFFER\n",
        "step,rank,model_hash\n7,0,9f8e7d0a\n7,1,9f8e7d0b\n7,2,9f8e7d0a\n",
        "srun ended\nrank 0 against rank 0: max abs diff 0.0\nrank 1 against rank 0: max abs diff 3.1e-02\n",
    ],
    ids=["objects", "a list", "all in a line", "a table", "differences"],
)
def test_values_of_replicas_are_read_in_many_forms(tmp_path: Path, text: str) -> None:
    found, sure = verdict(tmp_path, {"check.txt": text, "sync.py": DROPPED})
    assert (found, sure >= 0.9) == (ASYNC, True)


def test_gradients_before_they_are_reduced_and_losses_may_differ(tmp_path: Path) -> None:
    text = "".join(f"[rank{rank}]: step 9 local_grad_norm=1.{rank}2 batch_hash=aa{rank}bcd77\n" for rank in range(4))
    assert not [tool for tool in beside(text, "train.log") if tool.probe == "rank.replicas"]


def test_a_run_in_which_the_host_waits_and_all_is_equal_points_to_streams(tmp_path: Path) -> None:
    plain = "".join(f"step {n} param_hash r0=ab{n}1cd77 r1=ab{n}2cd77 MISMATCH\n" for n in (10, 20, 30))
    waits = "".join(f"step {n} param_hash r0=ab{n}5cd77 r1=ab{n}5cd77 OK\n" for n in (10, 20, 30))
    both = f"--- as it was\n{plain}--- again, CUDA_LAUNCH_BLOCKING=1\n{waits}"
    found, sure = verdict(tmp_path, {"check.txt": both})
    assert (found, sure < 0.9) == (STREAM, True)
    assert verdict(tmp_path, {"check.txt": both.replace("OK", "MISMATCH").replace("r1=ab", "r1=cd")})[0] != STREAM


def test_torchs_advice_to_block_is_no_experiment() -> None:
    text = "For debugging consider passing CUDA_LAUNCH_BLOCKING=1\nCompile with TORCH_USE_CUDA_DSA, never mind\n"
    assert not beside(text, "train.log")


# Kernels --------------------------------------------------------------------------------------------------------------

HEAD = "Start (ns),Duration (ns),CorrId,Device,Ctx,Strm,Name\n"


def kernels(begins: int, name: str = "void multi_tensor_apply_kernel<FusedAdamFunctor>(int)") -> str:
    """Three times: a reduction of 1,000 ns on stream 20, and a kernel on stream 7 launched after it."""
    rows = [
        f"{at},1000,{at // 100},A (0),1,20,ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)\n"
        f'{at + begins},300,{at // 100 + 1},A (0),1,7,"{name}"\n'
        for at in (10_000, 20_000, 30_000)
    ]
    return HEAD + "".join(rows)


def test_an_optimizer_within_a_reduction_that_it_waited_for_before_is_a_lost_order(tmp_path: Path) -> None:
    found, sure = verdict(tmp_path, {"good/rank0.csv": kernels(1200), "bad/rank0.csv": kernels(400)})
    assert (found, sure < 0.8) == (STREAM, True)


@pytest.mark.parametrize(
    "files",
    [
        {"rank0.csv": kernels(1200)},
        {"rank0.csv": kernels(400, "sm90_xmma_gemm_bf16")},
        {"a/rank0.csv": kernels(1200, "sm90_xmma_gemm_bf16"), "b/rank0.csv": kernels(400, "sm90_xmma_gemm_bf16")},
    ],
    ids=["after the end", "products overlap", "overlap that was switched on"],
)
def test_overlap_is_what_streams_are_for(tmp_path: Path, files: dict[str, str]) -> None:
    assert verdict(tmp_path, files)[0] in ("none", "unknown")


def test_a_trace_of_torchs_profiler_and_a_table_tell_the_same(tmp_path: Path) -> None:
    events = [
        {"cat": "kernel", "ts": at, "dur": dur, "name": name, "args": {"stream": stream, "correlation": at}}
        for first in (100, 200, 300)
        for at, dur, name, stream in ((first, 10, "ncclDevKernel_AllGather", 20), (first + 4, 3, "ema_update", 7))
    ]
    trace = json.dumps({"schemaVersion": 1, "traceEvents": events})
    table = (
        " Start (ns)  Duration (ns)  CorrId  Strm  Name\n ----------  -------------  ------  ----  ----------\n"
        "     10,000          1,000       1    20  ncclDevKernel_AllGather\n"
        "     10,400            300       2     7  ema_update\n"
        "     20,000          1,000       3    20  ncclDevKernel_AllGather\n"
        "     20,400            300       4     7  ema_update\n"
    )
    for text, times in ((trace, 3), (table, 2)):
        tool = tool_of(text, "trace.txt")
        assert tool is not None
        (pair,) = tool.read(text).pairs
        assert (pair.collective, pair.inside, pair.after, pair.update) == ("AllGather", times, 0, True)


# Printed analyses -----------------------------------------------------------------------------------------------------


def place(seq: int, group: str, missing: str, expected: str, op: str = "all_reduce") -> str:
    size = expected.count(",") + 1
    return (
        f"Not all ranks joining collective, sequence number: {seq}\ninternal record id: 7\ngroup info: {group}\n"
        f"collective: nccl:{op}\nmissing ranks: {{{missing}}}\ninput sizes: [[4]]\noutput sizes: [[4]]\n"
        f"world size: {size}\nexpected ranks: {{{expected}}}\ncollective state: scheduled\n"
        "collective stack trace: \n all_reduce at /opt/torch/distributed/distributed_c10d.py:2900\n"
        "step at /w/run.py:88\n"
    )


def test_who_is_missing_in_one_place_and_waits_in_another_is_a_bystander(tmp_path: Path) -> None:
    report = place(70, "0:default_pg", "2, 3", "0, 1, 2, 3") + place(9, "5:tp", "3", "2, 3")
    found = judged(tmp_path, {"fr.txt": report}).verdict
    assert (found.hypothesis.cause, found.hypothesis.subject["rank"]) == (MISSING, 3)
    assert found.probability >= 0.9


def test_the_forms_of_older_versions_tell_the_same(tmp_path: Path) -> None:
    older = (
        "Not all ranks joining collective 12 at entry 11\ngroup info: 0:default_pg\ncollective: nccl:all_reduce\n"
        "missing ranks: {1}\ninput sizes: [[3]]\noutput sizes: [[3]]\nexpected ranks: 4\ncollective state: scheduled\n"
    )
    oldest = (
        "Not all ranks joining collective for group 0:default_pg collective nccl:all_reduce  Missing ranks are {1}  "
        "[[3]] [[3]] 4 scheduled\n"
    )
    for text in (older, oldest):
        found = judged(tmp_path, {"fr.txt": text}).verdict
        assert (found.hypothesis.cause, found.hypothesis.subject["rank"]) == (MISSING, 1)


def test_ranks_that_miss_each_other_across_groups_are_a_circle(tmp_path: Path) -> None:
    report = place(4, "2:tp", "1", "0, 1") + place(6, "3:dp", "0", "0, 1")
    assert verdict(tmp_path, {"fr.txt": report})[0] == "fw.group_order_cycle"


def test_of_ranks_called_culprits_the_smaller_side_is_odd(tmp_path: Path) -> None:
    """The analysis takes its first file for the rule: where that is the odd one, all the others are called culprits."""
    wrong = "; Error type: COLLECTIVE_TYPE_MISMATCH, Expected collective type: 'broadcast' does not match"
    report = (
        "Collective sequence number: 33 has errors\ngroup info: 0:default_pg\ncollective: nccl:broadcast\n"
        "input sizes: [[4]]\noutput sizes: [[4]]\nworld size: 4\nexpected ranks: {0, 1, 2, 3}\n"
        "collective state: scheduled\nerror msg: " + ", ".join(f"Culprit rank {rank}{wrong}" for rank in (1, 2, 3))
    )
    found = judged(tmp_path, {"fr.txt": report}).verdict
    assert (found.hypothesis.cause, found.hypothesis.subject.get("rank")) == (MISMATCH, 0)


def test_one_dump_that_was_not_there_is_a_weak_sign(tmp_path: Path) -> None:
    text = "Traceback (most recent call last):\nAssertionError: Missing dump files from ranks {5}\n"
    assert verdict(tmp_path, {"fr.txt": text})[1] < 0.8


def test_calls_side_by_side_tell_where_they_part(tmp_path: Path) -> None:
    def cell(state: str) -> str:
        return f"all_reduce(input_sizes=[[8]], state={state}, pg_description=dp)".ljust(70)

    heads = "  ".join(f"Rank {rank}".ljust(70) for rank in range(3))
    rows = ["  ".join([cell("completed")] * 3)] * 2 + ["  ".join([cell("scheduled"), " " * 70, cell("scheduled")])]
    table = f"{heads.rstrip()}\n{'  '.join(['-' * 70] * 3)}\n" + "\n".join(row.rstrip() for row in rows) + "\n"
    found = judged(tmp_path, {"fr_j.txt": table}).verdict
    assert (found.hypothesis.cause, found.hypothesis.subject.get("rank")) == (MISSING, 1)


# Tables of ranks ------------------------------------------------------------------------------------------------------


def rows_of(late: int, completed: str = "880") -> list[tuple[str, ...]]:
    return [(str(rank), "880" if rank == late else "881", completed, "all_reduce") for rank in range(4)]


HEADS = ("rank", "last_enqueued", "last_completed", "op")


@pytest.mark.parametrize(
    "text",
    [
        "\n".join("   ".join(cell.ljust(14) for cell in row) for row in (HEADS, *rows_of(3))) + "\n",
        "\n".join(" | ".join(row) for row in (HEADS, *rows_of(3))) + "\n",
        json.dumps([dict(zip(HEADS, row, strict=True)) for row in rows_of(3)]),
        "".join(f"rank {row[0]}: last enqueued {row[1]}, last completed {row[2]}\n" for row in rows_of(3)),
    ],
    ids=["a table", "with bars", "objects", "a line a rank"],
)
def test_a_table_of_how_far_each_rank_is_names_the_one_behind(tmp_path: Path, text: str) -> None:
    found = judged(tmp_path, {"positions.txt": text}).verdict
    assert (found.hypothesis.cause, found.hypothesis.subject.get("rank")) == (MISSING, 3)
    assert found.probability < 0.95


def test_a_table_that_does_not_say_that_anybody_waits_is_not_certain(tmp_path: Path) -> None:
    text = "rank,seq_id\n0,881\n1,881\n2,880\n3,881\n"
    assert verdict(tmp_path, {"positions.csv": text})[1] < 0.8


def test_ranks_that_are_anywhere_do_not_wait_for_each_other(tmp_path: Path) -> None:
    text = "rank,last_enqueued,last_completed\n0,881,880\n1,870,869\n2,902,901\n3,655,650\n"
    assert verdict(tmp_path, {"positions.csv": text})[0] in ("none", "unknown")


def test_numbers_of_steps_are_no_numbers_of_collectives() -> None:
    assert not [tool for tool in beside("rank step loss\n0 10 1.1\n1 9 1.2\n", "x.txt") if "trace" in tool.probe]


def test_lengths_of_sequences_are_no_numbers_of_collectives() -> None:
    text = "rank,seq,batch\n0,4096,8\n1,4096,8\n2,3584,8\n3,4096,8\n"
    assert not [tool for tool in beside(text, "shapes.csv") if "trace" in tool.probe]


def test_an_event_that_is_waited_for_orders_a_stream(tmp_path: Path) -> None:
    piece = SIDE.format(wait="self.copied.record(self.side)") + "\ndef use(self):\n    self.copied.wait()\n"
    assert verdict(tmp_path, {"sync.py": piece, "train.log": APART})[0] in ("none", "unknown")


# Orders ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("[rank{0}] grad hook order: {1}\n", "fw.hook_order"),
        ("rank {0}: buckets ready in order [{1}]\n", MISMATCH),
        ("[rank{0}] process groups in order: {1}\n", "fw.group_order_cycle"),
    ],
)
def test_a_rank_with_another_order_is_named_and_not_certain(tmp_path: Path, line: str, cause: str) -> None:
    text = "".join(line.format(rank, "c, a, b" if rank == 2 else "a, b, c") for rank in range(4))
    found = judged(tmp_path, {"orders.txt": text}).verdict
    assert (found.hypothesis.cause, found.hypothesis.subject.get("rank")) == (cause, 2)
    assert found.probability < 0.8


def test_orders_that_are_alike_or_of_other_things_are_no_finding(tmp_path: Path) -> None:
    alike = "".join(f"[rank{rank}] hook order: a, b, c\n" for rank in range(4))
    others = "".join(f"[rank{rank}] hook order: a, b, c{rank}\n" for rank in range(4))  # stages of a pipeline
    for name, text in (("alike", alike), ("others", others)):
        assert verdict(tmp_path / name, {"orders.txt": text})[0] in ("none", "unknown")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("values of replicas", APART),
        ("program text", DROPPED),
        ("kernel trace", kernels(400)),
        ("torchfrtrace", place(4, "2:tp", "1", "0, 1")),
        ("table of ranks", "rank,last_enqueued,last_completed\n0,881,880\n1,881,880\n2,880,880\n"),
        ("orders of ranks", "[rank0] hook order: a, b, c\n[rank1] hook order: a, c, b\n"),
    ],
)
def test_what_was_read_comes_back_from_the_database_as_it_was(name: str, text: str) -> None:
    tool = next(one for one in tools() if one.name == name)
    facts = tool.read(text)
    assert stored("gpu-01", tool.probe, "ok", "", facts_as_json(facts), []).facts == facts
