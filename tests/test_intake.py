"""The files door: what each file is, and whose. Verdicts are in test_explain.py.

Right values come from what each recorded job does (tests/fixtures/hangs/README.md), read off its program and its
numbers by hand, not from the parsers.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from probes import intake
from probes.catalog.stacks.waits import waits_in
from probes.core import Reading

HANGS = Path(__file__).parent / "fixtures" / "hangs"

# case -> {rank: (its last collective, whether it waits in it)}; gloo's failed ones count as ended.
REACHED: dict[str, dict[int, tuple[int, bool]]] = {
    "skip": {0: (6, True), 1: (6, True), 2: (6, True)},
    "skip_same": {0: (15, True), 1: (14, False), 2: (15, True)},
    "order": {0: (6, True), 1: (6, True), 2: (6, True)},
    "async_barrier": {0: (6, True), 1: (6, True), 2: (6, True)},
    "sigstop": {0: (41, True), 2: (41, True)},
    "loader_slow": {0: (14, True), 1: (13, False), 2: (14, True)},
    "loader_gil": {0: (14, True), 1: (13, False), 2: (14, True)},
    "loader_gil0": {0: (14, True), 1: (13, False), 2: (14, True)},
    "nan_rs": {0: (9, True), 1: (8, False), 2: (9, True)},
    # Rank 1 was killed: of it there is only a dump of a moment long before, which must not count.
    "sigkill": {0: (41, False), 2: (41, False)},
    "ddp_unused": {0: (9, False), 1: (8, False), 2: (9, False)},
    "shape": {},
    "dtype": {},
    "async_ok": {},
}


def of(found: intake.Intake, probe: str) -> Iterator[tuple[str, Reading]]:
    return ((ref, reading) for ref, reading in found.readings if reading.capture.probe == probe)


def dumps(found: intake.Intake) -> dict[int, Any]:
    return {dump.rank: dump for _, reading in of(found, "rank.flight_recorder") for dump in reading.facts.dumps}


def stacks(found: intake.Intake) -> list[Any]:
    return [process for _, reading in of(found, "rank.stack") for process in reading.facts.processes]


def processes(found: intake.Intake) -> list[Any]:
    return [process for _, reading in of(found, "rank.process") for process in reading.facts.processes]


def logs(found: intake.Intake) -> dict[str, Any]:
    return {Path(ref).name: log for ref, reading in of(found, "rank.log") for log in reading.facts.logs}


def unread(found: intake.Intake) -> dict[str, str]:
    return {Path(one.file).name: one.why for one in found.unread}


@pytest.fixture
def copied(tmp_path: Path) -> Iterator[Any]:
    def copy(case: str, *patterns: str) -> Path:
        folder = tmp_path / "evidence"
        folder.mkdir(exist_ok=True)
        for pattern in patterns or ("*",):
            for path in (HANGS / case).glob(pattern):
                shutil.copy(path, folder)
        return folder

    yield copy


# What the recorded hangs hold


@pytest.mark.parametrize("case", REACHED)
def test_each_rank_has_the_dump_that_tells_how_far_it_was(case: str) -> None:
    found = {}
    for rank, dump in dumps(intake.read([HANGS / case])).items():
        (group,) = dump.groups
        found[rank] = (group.enqueued, group.pending_count == 1)
        assert dump.world_size == 3
    assert found == REACHED[case]


def test_a_dump_as_pickle_counts_before_the_same_as_json() -> None:
    found = dumps(intake.read([HANGS / "ddp_unused"]))
    assert {dump.form for dump in found.values()} == {"pickle"}
    assert all(dump.groups[0].last[-1].frames for dump in found.values())


def test_when_a_dump_that_was_brought_was_taken_is_not_known() -> None:
    """Copying changes a file's date, so nothing may be said of how long a rank has waited."""
    found = intake.read([HANGS / "skip"])
    assert {(dump.mtime, dump.at) for dump in dumps(found).values()} == {(None, 0.0)}
    assert [f.code for _, reading in of(found, "rank.flight_recorder") for f in reading.findings] == []


def test_a_stack_has_the_state_that_proc_tells_of_the_same_process() -> None:
    found = {one.rank: one for one in stacks(intake.read([HANGS / "sigstop"])) if not one.worker}
    assert (found[1].pid, found[1].state, found[1].wchan) == (11657, "T", "do_signal_stop")
    assert waits_in(found[1]).kind == "stopped"
    assert found[1].threads  # of the way that does not stop a process; the other way fails on a stopped one
    assert {rank: waits_in(found[rank]).kind for rank in (0, 2)} == {0: "backward", 2: "backward"}


def test_one_stack_per_process_is_kept_and_the_others_are_not_called_unread() -> None:
    found = intake.read([HANGS / "skip"])
    assert sorted(Path(ref).name for ref, _ in of(found, "rank.stack")) == [
        f"pyspy_nb_rank{rank}.json" for rank in range(3)
    ]
    assert sorted(unread(found)) == [
        "outcome.txt", "ws_ping_rank0.txt", "ws_ping_rank1.txt", "ws_wait_counter_values_rank0.txt"]  # fmt: skip


@pytest.mark.parametrize(("case", "state"), [("loader_gil", "R"), ("loader_slow", "S")])
def test_children_are_workers_of_their_rank(case: str, state: str) -> None:
    found = intake.read([HANGS / case])
    (rank,) = (one for one in processes(found) if one.rank == 1 and one.worker_of is None)
    workers = [one for one in processes(found) if one.rank == 1 and one.worker_of is not None]
    assert {one.worker_of for one in workers} == {rank.pid}
    assert [(one.comm, one.state) for one in workers] == [("pt_data_worker", state)] * 2
    asleep = [one for one in stacks(found) if one.rank == 1 and one.worker]
    assert {one.pid for one in asleep} == {one.pid for one in workers}
    assert len([one for one in stacks(found) if not one.worker]) == 3


def test_an_extract_of_proc_tells_what_rank_process_tells_in_one_look() -> None:
    (rank,) = (one for one in processes(intake.read([HANGS / "loader_slow"])) if one.rank == 1 and not one.worker_of)
    assert (rank.pid, rank.comm, rank.state, rank.wchan) == (
        11609,
        "python3.11",
        "S",
        "poll_schedule_timeout.constprop.0",
    )
    assert (rank.rss_bytes, rank.threads_total, rank.cpu_percent) == (311_556 * 1024, 15, 0.0)
    assert sum(group.count for group in rank.other_threads) == 14
    assert rank.stuck is False
    assert rank.run_delay_percent is None


def test_logs_name_their_rank_and_a_launcher_has_none() -> None:
    found = logs(intake.read([HANGS / "ddp_unused"]))
    assert {name: log.rank for name, log in found.items()} == {
        "rank0_stderr.log": 0, "rank1_stderr.log": 1, "rank2_stderr.log": 2, "torchrun.log": None,
        "rank0_error.json": 0, "rank1_error.json": 1, "rank2_error.json": 2}  # fmt: skip
    said = [event for event in found["rank1_error.json"].events if event.kind == "ddp_unused"]
    assert {event.rank for event in said} == {1}


def test_what_somebody_concluded_is_no_evidence(copied: Any) -> None:
    folder = copied("skip")
    before = [(ref, reading.facts) for ref, reading in intake.read([folder]).readings]
    lie = "[rank2]: RuntimeError: CUDA out of memory\nSignal 9 (SIGKILL) received by PID 24779\n"
    for name in ("outcome.txt", "README", "README.md", "notes.txt"):
        (folder / name).write_text(lie)
    found = intake.read([folder])
    assert [(ref, reading.facts) for ref, reading in found.readings] == before
    assert {"outcome.txt", "README", "README.md", "notes.txt"} <= set(unread(found))


# Whose a file is


def test_a_rank_is_found_in_any_usual_name(tmp_path: Path) -> None:
    names = ["nccl_trace_rank_{}", "comm_lib_trace_rank_{}", "dump.{}", "r{}.pickle", "prefix{}", "worker_{}.bin",
        "rank_{}/dump", "{}/fr.pkl", "job7/Rank-{}.trace"]  # fmt: skip
    for number, name in enumerate(names):
        for rank in (0, 2):
            path = tmp_path / str(number + 100) / "d" / name.format(rank)
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(HANGS / "sigkill" / f"fr_exit_rank_{rank}", path)
        found = dumps(intake.read([tmp_path / str(number + 100)]))
        assert {rank: dump.groups[0].enqueued for rank, dump in found.items()} == {0: 41, 2: 41}, name


def test_a_number_in_a_name_is_not_always_a_rank(tmp_path: Path) -> None:
    text = (HANGS / "skip" / "pyspy_rank1.txt").read_text()
    pid = int(text.split()[1].rstrip(":"))
    for name in (f"pyspy.{pid}.txt", "slurm-4.out", "attempt_2.txt", "local_rank0.txt"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).write_text(text)
    for name in (f"pyspy.{pid}.txt", "slurm-4.out", "attempt_2.txt"):
        found = intake.read([tmp_path / name])
        assert [one.rank for one in stacks(found)] == [None], name
        assert unread(found) == {name: "a stack, but no file says of which rank"}


def test_a_stack_without_a_name_is_given_to_the_rank_that_a_log_names_by_its_pid(copied: Any) -> None:
    folder = copied("skip", "rank*_stderr.log")
    for rank, name in enumerate("abc"):
        shutil.copy(HANGS / "skip" / f"pyspy_rank{rank}.txt", folder / f"{name}.txt")
    assert {one.rank: waits_in(one).op for one in stacks(intake.read([folder]))} == {
        0: "all_reduce", 1: "all_gather_single", 2: "all_reduce"}  # fmt: skip


def test_stacks_of_all_ranks_in_one_file_are_told_apart(copied: Any) -> None:
    folder = copied("skip", "rank*_stderr.log")
    texts = [(HANGS / "skip" / f"pyspy_rank{rank}.txt").read_text() for rank in range(3)]
    (folder / "all.txt").write_text("\n".join(texts))
    found = intake.read([folder])
    assert {one.rank: waits_in(one).op for one in stacks(found)} == {
        0: "all_reduce", 1: "all_gather_single", 2: "all_reduce"}  # fmt: skip


def test_a_dump_without_a_name_is_given_to_the_rank_whose_thread_it_names(copied: Any) -> None:
    """A dump says neither rank nor pid, but which thread enqueued; py-spy's JSON names the same thread."""
    folder = copied("skip_same", "rank*_stderr.log", "pyspy_nb_*")
    for rank, name in enumerate("xyz"):
        shutil.copy(HANGS / "skip_same" / f"ws_fr_trace_json_rank{rank}.txt", folder / f"{name}.json")
    found = dumps(intake.read([folder]))
    assert {rank: dump.groups[0].enqueued for rank, dump in found.items()} == {0: 15, 1: 14, 2: 15}


def test_a_dump_of_which_nothing_tells_the_rank_is_said(tmp_path: Path) -> None:
    shutil.copy(HANGS / "skip" / "ws_fr_trace_json_rank0.txt", tmp_path / "x.json")
    found = intake.read([tmp_path])
    assert dumps(found) == {}
    assert "neither its name nor another file says of which rank" in unread(found)["x.json"]


def test_the_mark_in_the_lines_of_a_log_counts_before_its_name(copied: Any) -> None:
    folder = copied("skip", "rank1_stderr.log")
    (folder / "rank1_stderr.log").rename(folder / "rank2.txt")
    assert {name: log.rank for name, log in logs(intake.read([folder])).items()} == {"rank2.txt": 1}


def test_local_ranks_in_folders_of_nodes_become_ranks(tmp_path: Path) -> None:
    """Two nodes with two ranks each, numbered from 0 on each; the logs carry the rank of the job."""
    line = "[rank{}]:[W1129 14:15:52.869316330 WorkerServer.cpp:113] Server listening\n"
    for node in (0, 1):
        folder = tmp_path / f"gpu-{node:03}"
        folder.mkdir()
        for local in (0, 1):
            rank = 2 * node + local
            (folder / f"rank{local}.log").write_text(line.format(rank))
            shutil.copy(HANGS / "skip" / f"pyspy_rank{local}.txt", folder / f"rank{local}_stack.txt")
    found = intake.read([tmp_path])
    assert {one.rank for one in stacks(found)} == {0, 1, 2, 3}
    where = {p.rank: r.capture.node for _, r in of(found, "rank.stack") for p in r.facts.processes}
    assert where == {0: "gpu-000", 1: "gpu-000", 2: "gpu-001", 3: "gpu-001"}


def test_folders_that_are_not_nodes_give_no_node(copied: Any, tmp_path: Path) -> None:
    for name in ("loader_gil0", "case1", "attempt_0", "rank_1", "job-42", "incident42"):
        folder = tmp_path / "top" / name
        folder.mkdir(parents=True)
        shutil.copy(HANGS / "skip" / "rank1_stderr.log", folder)
    found = intake.read([tmp_path / "top"])
    assert {reading.capture.node for _, reading in found.readings} == {""}


def test_torchrun_names_the_node_of_a_rank_for_all_of_its_files(copied: Any) -> None:
    folder = copied("sigkill", "torchrun.log", "pyspy_nb_*", "fr_exit_*")
    text = (folder / "torchrun.log").read_text()
    (folder / "torchrun.log").write_text(text.replace("host      : localhost", "host      : gpu-017"))
    found = intake.read([folder])
    nodes = {
        reading.capture.node for probe in ("rank.stack", "rank.flight_recorder") for _, reading in of(found, probe)
    }
    assert nodes == {"gpu-017"}


def test_only_the_last_attempt_of_a_run_folder_counts(tmp_path: Path) -> None:
    for attempt, case in ((0, "sigkill"), (1, "ddp_unused")):
        folder = tmp_path / "run" / f"attempt_{attempt}" / "1"
        folder.mkdir(parents=True)
        shutil.copy(HANGS / case / "rank1_stderr.log", folder / "stderr.log")
    found = intake.read([tmp_path])
    (log,) = logs(found).values()
    assert "ddp_unused" in {event.kind for event in log.events}
    assert unread(found)["stderr.log"].startswith("of an attempt before the last one")


def test_of_two_moments_the_later_counts_and_the_earlier_is_the_look_before(tmp_path: Path) -> None:
    for moment, state in (("14-01", "S (sleeping)"), ("14-06", "T (stopped)")):
        folder = tmp_path / moment
        folder.mkdir()
        text = (HANGS / "sigstop" / "proc_rank1.txt").read_text().replace("T (stopped)", state)
        (folder / "proc_rank1.txt").write_text(text)
    (one,) = processes(intake.read([tmp_path]))
    assert (one.rank, one.state, one.state_before) == (1, "T", "S")


def test_the_environment_of_a_process_numbers_it(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text(
        "==> /proc/4711/status <==\nName:\tpython\nState:\tD (disk sleep)\nPid:\t4711\nPPid:\t4700\n"
        "==> /proc/4711/environ <==\nRANK=5\nWORLD_SIZE=8\nLOCAL_RANK=5\n"
        "==> /proc/4711/wchan <==\nrpc_wait_bit_killable\n"
    )
    (one,) = processes(intake.read([tmp_path]))
    assert (one.rank, one.world_size, one.state, one.wchan) == (5, 8, "D", "rpc_wait_bit_killable")
    assert one.stuck is False  # one look


def test_a_table_of_ps_is_a_second_look_at_a_process_in_state_d(copied: Any) -> None:
    folder = copied("skip", "rank1_stderr.log")
    pid = next(word for word in (folder / "rank1_stderr.log").read_text().split() if word.startswith("pid="))[4:]
    (folder / "p.txt").write_text(
        f"==> /proc/{pid}/status <==\nName:\tpython\nState:\tD (disk sleep)\nPid:\t{pid}\nPPid:\t1\n"
        f"==> /proc/{pid}/wchan <==\nrpc_wait_bit_killable\n"
    )
    (folder / "ps.txt").write_text(
        f"  PID  PPID STAT WCHAN                COMMAND\n{pid:>5}     1 D    rpc_wait_bit_killab python\n"
        "    1     0 S    -                    init\n"
    )
    (one,) = processes(intake.read([folder]))
    assert (one.rank, one.state, one.state_before, one.stuck) == (1, "D", "D", True)


def test_a_table_of_ps_alone_tells_the_states_of_known_ranks_and_their_children(copied: Any) -> None:
    found = processes(intake.read([copied("loader_gil", "ps.txt", "rank*_stderr.log")]))
    ranks = {one.rank: one for one in found if one.worker_of is None}
    assert set(ranks) == {0, 1, 2}
    assert [one.state for one in found if one.worker_of == ranks[1].pid] == ["R", "R"]
    assert ranks[1].cpu_percent is None  # what ps prints is the average of a life
