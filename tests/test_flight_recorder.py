"""Flight-recorder dumps: what is kept of them, whatever the form.

Right values come from what the recorded jobs did (tests/fixtures/hangs/README.md), from torch's own field names and
from a plain pickle.loads of our own recordings, which only a test may do.
"""

from __future__ import annotations

import json
import pickle
import random
from typing import Any

import pytest

from probes.catalog.rank_flight_recorder import findings, parse
from probes.catalog.recorder.apart import dump_from_file
from probes.catalog.recorder.facts import dump_of
from probes.catalog.recorder.reader import LIMITS, reduce
from probes.catalog.recorder.values import folded_ranks
from probes.core import ParseError, facts_as_json
from tests.support.flight_recorders import HANGS, STAMP, answer, dump, entry, facts

# What recorded dumps hold ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_every_entry_of_a_recorded_pickle_is_told_as_pickle_reads_it(rank: int) -> None:
    data = (HANGS / "ddp_unused" / f"fr_exit_rank_{rank}").read_bytes()
    theirs = pickle.loads(data)["entries"]
    (group,) = facts(data).groups
    told = facts(data)
    assert [row.seq for row in group.last] == [row["collective_seq_id"] for row in theirs]
    for ours, row in zip(group.last, theirs, strict=True):
        signature = told.signatures[ours.signature]
        assert f"{signature.backend}:{signature.op}" == row["profiling_name"]
        assert [list(size) for size in signature.input_sizes] == row["input_sizes"]
        assert list(signature.output_dtypes) == row["output_dtypes"]
        assert ours.created_at == pytest.approx(row["time_created_ns"] / 1e9, abs=1e-5)
        assert (ours.thread_id, ours.timeout_ms) == (int(row["thread_id"]), row["timeout_ms"])
        own = [frame for frame in row["frames"] if frame["filename"] == "/srv/train/train.py"]
        assert [(frame.function, frame.line) for frame in ours.frames] == [(f["name"], f["line"]) for f in own]


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_the_json_of_a_dump_tells_the_same_but_for_the_stacks(rank: int) -> None:
    one = facts_as_json(facts((HANGS / "ddp_unused" / f"fr_exit_rank_{rank}").read_bytes()))
    other = facts_as_json(facts((HANGS / "ddp_unused" / f"frjson_exit_rank_{rank}.json").read_bytes()))
    for group in (*one["groups"], *other["groups"]):
        for row in (*group["last"], *group["pending"]):
            row["frames"] = []
    assert one["groups"] == other["groups"]
    assert one["signatures"] == other["signatures"]


def test_gloo_tells_completion_only_by_retired_and_its_group_has_no_name_in_the_configuration() -> None:
    """skip: ranks 0 and 2 wait in all_reduce #6, rank 1 in an all_gather #6."""
    told = [facts(answer("skip", rank)) for rank in (0, 1, 2)]
    for one, op in zip(told, ("all_reduce", "all_gather", "all_reduce"), strict=True):
        (group,) = one.groups
        assert (group.name, group.desc, group.ranks) == ("0", "default_pg", (0, 1, 2))
        assert (group.enqueued, group.completed, group.started) == (6, 5, None)
        (waiting,) = group.pending
        assert (waiting.seq, waiting.state, waiting.timed_out) == (6, "scheduled", False)
        assert one.signatures[waiting.signature].op in (op, f"_{op}_base")


def test_a_rank_that_is_one_short_shows_by_its_last_number() -> None:
    """skip_same: ten all_reduces after the first five, of which rank 1 leaves one out."""
    last = [facts(answer("skip_same", rank)).groups[0] for rank in (0, 1, 2)]
    assert [group.enqueued for group in last] == [15, 14, 15]
    assert [group.pending_count for group in last] == [1, 0, 1]


@pytest.mark.parametrize(("case", "first"), [("skip", 6), ("order", 6)])
def test_histories_of_the_ranks_show_the_first_disagreement(case: str, first: int) -> None:
    ranks = [facts(answer(case, rank)) for rank in (0, 1, 2)]
    seen = []
    for one in ranks:
        (group,) = one.groups
        digests = ["+".join(one.signatures[place].digest for place in places) for places in group.history]
        seen.append(dict(enumerate(digests, group.history_first or 0)))
    differ = [seq for seq in seen[0] if len({one.get(seq) for one in seen}) > 1]
    assert differ[0] == first
    assert seen[0] == seen[2] != seen[1]


# Forms ---------------------------------------------------------------------------------------------------------------


def test_nccl_tells_what_timed_out_and_what_only_waits() -> None:
    told = facts(
        dump(
            entry(1),
            entry(2, state="started", retired=False, time_discovered_started_ns=1_700_000_001_000_000_000),
            entry(3, state="scheduled", retired=True),
            entry(4, state="completed", retired=False),
        )
    )
    (group,) = told.groups
    assert [(row.seq, row.timed_out) for row in group.pending] == [(2, False), (3, True)]
    assert (group.enqueued, group.started, group.completed, group.timed_out) == (4, 4, 4, 1)
    assert group.pending[0].started_at == 1_700_000_001.0
    assert told.comm_lib_version == "2.27.7"


def test_the_bare_list_of_torch_2_2_is_read() -> None:
    old = [
        {"pg_id": 1, "seq_id": 3, "profiling_name": "nccl:broadcast", "input_sizes": [[8]], "output_sizes": [[8]],
         "state": "scheduled", "frames": [{"name": "f", "filename": "/srv/train.py", "line": 4}]}
    ]  # fmt: skip
    told = facts(pickle.dumps(old, 2))
    (group,) = told.groups
    assert (told.schema, group.name, group.enqueued, group.completed, group.ranks) == ("list", "1", 3, None, None)
    assert told.signatures[group.pending[0].signature].op == "broadcast"
    assert group.pending[0].frames[0].line == 4


def test_seq_id_of_schema_1_is_read() -> None:
    row = entry(9)
    row["seq_id"] = row.pop("collective_seq_id")
    del row["process_group"]
    assert facts(dump(row, version="1.5")).groups[0].enqueued == 9


def test_json_without_entries_holds_none_and_its_groups_are_told_as_unused() -> None:
    """gloo leaves the key out when nothing was recorded; a rank that never used a group is evidence too."""
    data = json.dumps(
        {"version": "2.10", "pg_config": {"7": {"name": "7", "desc": "tp", "ranks": "[0, 4, 8]"}}}
    ).encode()
    (group,) = facts(data).groups
    assert (group.name, group.held, group.enqueued, group.ranks) == ("7", 0, None, (0, 4, 8))


def test_torchs_own_summary_is_kept_apart_from_what_the_entries_say() -> None:
    status = {
        "0": {f"last_{word}_collective": n for word, n in (("enqueued", "9"), ("started", "-1"), ("completed", 2))}
    }
    (group,) = facts(dump(entry(5), pg_status=status)).groups
    assert group.told == (9, None, 2)
    assert group.enqueued == 5


def test_operations_between_two_ranks_are_no_collectives() -> None:
    p2p = entry(5, profiling_name="nccl:recv 0<-1", is_p2p=True, p2p_seq_id=3, state="scheduled", retired=False)
    (group,) = facts(dump(entry(5), p2p)).groups
    assert (group.enqueued, group.p2p, group.pending_count) == (5, 1, 1)
    assert (group.pending[0].is_p2p, group.pending[0].p2p_seq) == (True, 3)


def test_coalesced_operations_share_one_place_in_the_history() -> None:
    told = facts(dump(entry(1), entry(2, input_sizes=[[8]]), entry(2, profiling_name="nccl:coalesced"), entry(4)))
    assert [len(places) for places in told.groups[0].history] == [1, 2, 0, 1]


def test_tensors_beyond_those_shown_still_make_a_difference() -> None:
    sizes = [[n] for n in range(1, 40)]
    one, other = (facts(dump(entry(1, input_sizes=some))).signatures[0] for some in (sizes, [*sizes[:-1], [99]]))
    assert one.input_sizes == other.input_sizes
    assert one.tensors == 39
    assert one.digest != other.digest


@pytest.mark.parametrize(
    ("ranks", "spans"),
    [
        ("[0, 1, 2, 3]", [[0, 3, 1]]),
        ("[5]", [[5, 5, 1]]),
        ("[3, 11, 19, 20]", [[3, 19, 8], [20, 20, 1]]),
        ("[2, 1, 0]", [[2, 2, 1], [1, 1, 1], [0, 0, 1]]),
        ([0, 2], [[0, 2, 2]]),
        ("[0, x]", None),
        ("", None),
        (None, None),
    ],
)
def test_ranks_of_a_group_are_folded(ranks: Any, spans: Any) -> None:
    assert folded_ranks(ranks) == spans


def test_any_list_of_ranks_unfolds_to_itself() -> None:
    chance = random.Random(3)
    for _ in range(300):
        ranks = sorted(chance.sample(range(60), chance.randint(1, 30)))
        spans = folded_ranks(str(ranks))
        assert spans is not None
        assert [rank for first, last, step in spans for rank in range(first, last + 1, step)] == ranks


def test_a_large_job_stays_within_the_bytes_of_one_answer() -> None:
    names = [f"group {n}" for n in range(200)]
    rows = [entry(n, process_group=(names[n % 200], "x" * 150), profiling_name=f"nccl:op{n}") for n in range(20_000)]
    reduced = reduce(dump(*rows))
    assert len(json.dumps(reduced)) <= LIMITS["bytes"]
    assert reduced["problems"]
    assert dump_of(reduced, {**STAMP, "bytes": 1}).entries == 20_000


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("nccl_trace_rank_12", 12),
        ("comm_lib_trace_rank_0", 0),
        ("frjson_exit_rank_2.json", 2),
        ("job7/dump", -1),
        ("rank_3.tmp", -1),
    ],
)
def test_a_file_that_people_bring_has_its_rank_from_its_name(name: str, rank: int) -> None:
    data = (HANGS / "ddp_unused" / "fr_exit_rank_0").read_bytes()
    told = dump_from_file(name, data)
    assert (told.rank, told.pid, told.groups[0].enqueued) == (rank, None, 9)


# The probe -----------------------------------------------------------------------------------------------------------


def test_json_by_hand_is_read_without_its_rank() -> None:
    read = parse(answer("order", 1).decode())
    assert [one.rank for one in read.dumps] == [-1]
    assert read.dumps[0].groups[0].enqueued == 6


def section(name: str, words: dict[str, Any]) -> str:
    return f"==> golden15/{name} <==\n{json.dumps(words)}\n\n"


def test_a_rank_without_a_dump_is_told_and_never_taken_for_healthy() -> None:
    head = section("recorders", {"host": "gpu-1", "ranks": 2, "left_out": 0})
    rows = [{"rank": n, "pid": n, "why": f"/tmp/x_{n} is not there", "pipe": "/p", "refused": False} for n in (3, 4)]
    read = parse(head + "".join(section(f"missing {row['pid']}", row) for row in rows))
    (finding,) = findings(read)
    assert finding.code == "rank.no_dump"
    assert "ranks 3, 4" in finding.says
    assert "trigger" in finding.says


def test_a_collective_that_was_given_up_or_waits_too_long_is_told_with_its_line() -> None:
    row = entry(8, state="scheduled", retired=True, frames=[{"name": "step", "filename": "/srv/train.py", "line": 12}])
    late = entry(3, process_group=("tp", "tensor"), pg_id=1, state="started", retired=False, time_created_ns=10**11)
    fresh = entry(4, process_group=("dp", "data"), pg_id=2, state="started", retired=False, time_created_ns=199 * 10**9)
    data = dump(row, late, fresh)
    words = {**STAMP, "bytes": len(data), "mtime": 200.0, "reduced": reduce(data)}
    head = section("recorders", {"host": "gpu-1", "ranks": 1, "left_out": 0})
    told = [(finding.code, finding.says) for finding in findings(parse(head + section("dump 7", words)))]
    assert [code for code, _ in told] == ["rank.collective_timeout", "rank.collective_waits"]
    assert "gave up on #8 all_reduce [4] Float in group 0 (default_pg), called at /srv/train.py:12" in told[0][1]
    assert "waited 100 s for #3" in told[1][1]


@pytest.mark.parametrize("change", ["signature", "frames", "columns", "spans", "told"])
def test_rows_that_our_reducer_does_not_write_are_refused(change: str) -> None:
    reduced = json.loads(json.dumps(reduce(dump(entry(1)))))
    group = reduced["groups"][0]
    if change == "signature":
        group["last"][0][4] = 5
    elif change == "frames":
        group["last"][0][15] = [0]
    elif change == "columns":
        group["last"][0].pop()
    elif change == "spans":
        group["ranks"] = [[0, 10**9, 1]]
    else:
        group["told"] = [1]
    with pytest.raises(ParseError):
        dump_of(reduced, {**STAMP, "bytes": 1})
