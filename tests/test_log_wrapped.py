"""Lines that a collector wrapped in JSON, colours, other line ends; and who wrote NCCL's lines."""

from __future__ import annotations

import json

import pytest

from probes.catalog.logs.read import read_log

SAID = "Heartbeat monitor timed out! Process will be terminated after dumping debug info."
AT = 1795961629.25  # 2026-11-29T14:13:49.25Z, by date(1)


@pytest.mark.parametrize(
    "row",
    [
        {"log": f"[rank3]:[E P.cpp:1] {SAID}\n", "stream": "stderr", "time": "2026-11-29T14:13:49.250000000Z"},
        {"message": SAID, "rank": 3, "@timestamp": "2026-11-29T14:13:49.250Z"},
        {"ts": 1795961629.25, "msg": SAID, "rank": 3},
        {"textPayload": f"[rank3]: {SAID}", "timestamp": "2026-11-29T14:13:49.250Z", "severity": "ERROR"},
    ],
    ids=["docker", "fluent bit", "python", "cloud"],
)
def test_a_line_in_json_tells_its_rank_its_time_and_its_text(row: dict[str, object]) -> None:
    text = json.dumps({"message": "starting"}) + "\n" + json.dumps(row) + "\n"
    (event,) = read_log(text)[0]
    assert (event.kind, event.rank, event.at, event.clock) == ("heartbeat", 3, AT, "utc")


def test_a_line_in_json_that_was_cut_is_read_all_the_same() -> None:
    row = json.dumps({"log": f"[rank3]: {SAID}\n", "stream": "stderr", "time": "2026-11-29T14:13:49.25Z"})
    (event,) = read_log("{}\n" + row[:-30])[0]
    assert (event.kind, event.rank) == ("heartbeat", 3)


def test_tracebacks_of_two_pods_in_one_file_are_told_apart() -> None:
    rows = ["Traceback (most recent call last):", '  File "/w/train.py", line 1{}, in main', "KeyError: '{}'"]
    text = "\n".join(
        json.dumps({"log": row.format(pod), "kubernetes": {"pod_name": f"train-{pod}"}})
        for row in rows
        for pod in (0, 1)
    )
    assert [event.where for event in read_log(text)[0]] == ["/w/train.py:10", "/w/train.py:11"]


def test_an_error_file_of_torchrun_is_no_line_of_a_logger() -> None:
    (raised,) = read_log(json.dumps({"message": "ValueError: x"}))[0]
    (logged,) = read_log(json.dumps({"message": SAID, "level": "error"}))[0]
    assert (raised.kind, logged.kind) == ("traceback", "heartbeat")


def test_colours_and_other_line_ends_change_nothing() -> None:
    text = f"\x1b[36m(WorkerDict pid=7, ip=10.0.0.4)\x1b[0m [rank2]:[E1206 18:44:12.7 P.cpp:1] {SAID}\r\n"
    (event,) = read_log(text)[0]
    assert (event.kind, event.rank, event.stamp) == ("heartbeat", 2, "12-06 18:44:12")


def test_nccls_own_set_up_lines_tell_which_rank_a_process_is() -> None:
    text = "".join(
        f"gpu-{node}:{pid}:9 [0] NCCL INFO comm 0x{pid} rank {rank} nranks {of} cudaDev 0 busId 1000 - Init COMPLETE\n"
        for node, pid, rank, of in [("a", 10, 0, 2), ("b", 20, 1, 2), ("b", 20, 0, 1)]
    )
    text += "gpu-b:20:9 [0] misc/ibvwrap.cc:1 NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory\n"
    found = [event for event in read_log(text)[0] if event.kind == "ib_resource"]
    assert [(event.rank, event.more["host"]) for event in found] == [(1, "gpu-b")]


def test_two_runs_in_one_file_give_no_ranks_away() -> None:
    text = "".join(
        f"gpu-a:{pid}:9 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1000 - Init COMPLETE\n"
        for pid in (10, 20)
    )
    assert {event.rank for event in read_log(text)[0]} == {None}
