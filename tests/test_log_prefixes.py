"""What wrappers, collectors and people's own loops write around a step: the step, its time and its rank are read."""

from __future__ import annotations

import pytest

from probes.catalog.logs.events import LogEvent
from probes.catalog.logs.read import read_log

STAMP = "2026-01-05 10:00:"


def _steps(form: str, *, lines: int = 3) -> LogEvent:
    events, _ = read_log("\n".join(form.format(at=f"{STAMP}{n:02d}", step=40 + n) for n in range(lines)))
    (found,) = [event for event in events if event.kind == "progress"]
    return found


@pytest.mark.parametrize(
    ("form", "host"),
    [
        ("[gn-3:0] {at},118 INFO trainer: step {step} loss 2.9 step_time 6.7s", "gn-3"),
        ("(gn-3) 0: [{at},118] [INFO] [engine.py:7:log] step={step}, skipped=1, lr=[1.9e-05]", "gn-3"),
        ("gn-3: {at} step {step} loss 2.9", "gn-3"),
        ("worker-0  | {at} step {step} loss 2.9", "worker-0"),
        ("[pod/train-0/pytorch] {at} step {step} loss 2.9", "train-0"),
        ("INFO: {at} step {step} loss 2.9", None),
    ],
)
def test_a_name_in_front_of_a_time_is_the_node_and_hides_neither_time_nor_step(form: str, host: str | None) -> None:
    found = _steps(form)
    assert (found.stamp, found.more["first_stamp"], found.seq) == (f"{STAMP}02", f"{STAMP}00", 42)
    assert found.more.get("host") == host


@pytest.mark.parametrize(
    "form",
    [
        "{at},660 r9 it={step} loss=1.51",
        "{at} rank=9 update {step} | lr 3e-4 | gnorm 0.4",
        "[{at}] [Rank 9] batch {step}/500 loss: 1.5 0.21 s/it",
        "{at} r9: s={step} loss=1.5 t=1.9",
    ],
)
def test_terse_steps_of_own_loops_are_steps_of_the_rank_behind_the_time(form: str) -> None:
    found = _steps(form)
    assert (found.seq, found.rank) == (42, 9)


@pytest.mark.parametrize(
    "line", ["its 5 files", "batch 12 of requests sent", "class s=3", "rank 3 lost its peer, iter"]
)
def test_numbers_without_a_measure_beside_them_are_no_steps(line: str) -> None:
    events, _ = read_log("\n".join([f"{STAMP}01 {line}"] * 2))
    assert [event.kind for event in events] == []


def test_what_is_said_of_another_rank_is_not_said_by_it() -> None:
    events, _ = read_log(f"{STAMP}01 rank 3 lost: Connection reset by peer, recvBytes")
    assert all(event.rank is None for event in events)


def test_a_traceback_under_an_error_that_names_its_rank_is_of_that_rank() -> None:
    text = (
        f"{STAMP}01 r8 step 4 loss 1.0\n{STAMP}02 r9 ERROR loop died\nTraceback (most recent call last):\n"
        '  File "/job/fit.py", line 9, in fit\n    x = names[i]\nIndexError: list index out of range\n'
        f"{STAMP}03 r8 step 5 loss 1.0\n"
    )
    (raised,) = [event for event in read_log(text)[0] if event.kind == "traceback"]
    assert (raised.rank, raised.name) == (9, "IndexError")


REFUSED = (
    'Traceback (most recent call last):\n  File "/v/net.py", line 73, in connect\n'
    "ConnectionRefusedError: [Errno 111] Connection refused\n\n"
    "{mark}\n\nTraceback (most recent call last):\n"
    '  File "/v/torch/distributed/elastic/rendezvous/api.py", line 366, in create\n{last}\n'
)
MARKS = [
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
]


@pytest.mark.parametrize("mark", MARKS)
def test_what_came_before_an_exception_of_the_rendezvous_is_no_fault_of_the_rank_either(mark: str) -> None:
    last = "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to etcd has failed."
    raised = [one for one in read_log(REFUSED.format(mark=mark, last=last))[0] if one.kind == "traceback"]
    assert [one.name for one in raised] == ["ConnectionRefusedError", "RendezvousConnectionError"]
    assert all(one.more["because"] == "rendezvous" for one in raised)


def test_exceptions_of_the_ranks_own_stay_its_own() -> None:
    told = REFUSED.format(mark=MARKS[0], last="ValueError: no data")
    raised = [one for one in read_log(told)[0] if one.kind == "traceback"]
    assert [(one.name, one.secondary) for one in raised] == [("ConnectionRefusedError", False), ("ValueError", False)]
    apart = told.replace(MARKS[0], "step 4 loss 1.0")
    assert len([one for one in read_log(apart)[0] if one.kind == "traceback"]) == 2


@pytest.mark.parametrize(
    ("form", "stamp"),
    [
        ("[Mon Jan  5 10:00:{s:02d} 2026] step {n} loss 2.1", "2026-01-05 10:00:02"),
        ("Mon Jan  5 10:00:{s:02d} 2026 | step {n} | loss 2.1", "2026-01-05 10:00:02"),
        ("Jan  5 10:00:{s:02d} gn-1 fit[77]: step {n} loss 2.1", "01-05 10:00:02"),
        ("2026/01/05 10:00:{s:02d} INFO step {n} loss 2.1", "2026-01-05 10:00:02"),
        ("05-Jan-26 10:00:{s:02d} - step {n} loss 2.1", "2026-01-05 10:00:02"),
        ("[rank0]:[titan] 2026-01-05 10:00:{s:02d},123 - root - INFO - step: {n}  loss:  2.1", "2026-01-05 10:00:02"),
        ("[01/05 10:00:{s:02d}] d2.utils.events INFO: iter: {n}  total_loss: 2.1", "01-05 10:00:02"),
        ('{{"ts": "2026-01-05T10:00:{s:02d}Z", "step": {n}, "loss": 2.1}}', "2026-01-05T10:00:02"),
        ('{{"_timestamp": 176760720{s}.5, "step": {n}, "loss": 2.1}}', "2026-01-05T10:00:02"),
    ],
)
def test_times_of_less_usual_loggers_are_read(form: str, stamp: str) -> None:
    events, _ = read_log("\n".join(form.format(s=s, n=40 + s) for s in range(3)))
    (found,) = [event for event in events if event.kind == "progress"]
    assert (found.seq, found.stamp) == (42, stamp)


def test_the_node_of_a_syslog_line_is_the_writers() -> None:
    events, _ = read_log("Jan  5 10:00:01 gn-1 fit[77]: step 4 loss 2.1\n")
    assert events[0].more["host"] == "gn-1"


@pytest.mark.parametrize("line", ["99/99 10:00:01 step", "Jan 99 10:00:01 gn-1 a: step", "32-Jan-26 10:00:01 step"])
def test_what_is_no_date_is_left_in_its_line(line: str) -> None:
    assert all(not event.stamp for event in read_log(line + " 4 loss 1")[0])
