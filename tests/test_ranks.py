"""Who the ranks of a node are: `ranks()` of the runner, asked about real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from probes import runner
from probes.catalog.rank_map import PROBE, parse
from probes.transport.plan import Plan
from tests.support.collectors import capture_here, old_and_new_pythons
from tests.support.ranks import Processes, as_code, new_job, of_job, processes, rank_env
from tests.support.sshd_nodes import FrozenMount
from tests.support.wait import until

SHELL = ("bash", "-c", '"$0" "$@"; true')  # the `true` keeps bash from becoming what it runs
READY = "say('pid', os.getpid()); sleep()"


@pytest.fixture
def started() -> Iterator[Processes]:
    with processes() as group:
        yield group


def found(job: dict[str, str]) -> tuple[dict[int, int], dict[int, int | None]]:
    """Of one job: {rank: pid of its process}, and {pid of a child: pid of its rank}."""
    rows = of_job(runner.ranks(), job)
    ranks = {row["rank"]: row["pid"] for row in rows if row["worker_of"] is None}
    assert len(ranks) == len([row for row in rows if row["worker_of"] is None]), f"a rank is there twice: {rows}"
    return ranks, {row["pid"]: row["worker_of"] for row in rows if row["worker_of"] is not None}


# Children, shells and launchers are not ranks


def test_children_of_a_rank_inherit_its_rank_and_are_not_ranks(started: Processes) -> None:
    job = new_job()
    code = "worker(); worker('python'); say('pid', os.getpid()); sleep()"
    pid, said = started.start(code, rank_env(3, 8, job), lines=3)
    assert found(job) == ({3: pid}, {said["worker"][0]: pid, said["worker"][1]: pid})


def test_a_child_of_a_child_belongs_to_the_rank_also_when_its_parent_lost_the_environment(started: Processes) -> None:
    job = new_job()
    env = rank_env(0, 2, job)
    inner = f"run({READY!r}, env={as_code(env)}); sleep()"
    pid, said = started.start(f"run({inner!r}, env={{}}); sleep()", env)
    assert found(job) == ({0: pid}, {said["pid"][0]: pid})


def test_a_shell_around_the_trainer_is_not_the_trainer(started: Processes) -> None:
    job = new_job()
    shell, said = started.start("worker(); " + READY, rank_env(1, 2, job), 2, argv=SHELL)
    trainer = said["pid"][0]
    assert trainer != shell
    assert found(job) == ({1: trainer}, {said["worker"][0]: trainer})
    (row,) = [row for row in of_job(runner.ranks(), job) if row["pid"] == trainer]
    assert row["wrappers"] == [shell]


def test_a_python_around_the_trainer_is_not_the_trainer_when_only_the_inner_one_has_torchs_threads(
    started: Processes,
) -> None:
    job = new_job()
    inner = "thread('pt_nccl_watchdg'); worker(); " + READY
    _, said = started.start(f"run({inner!r}); sleep()", rank_env(1, 2, job), 2)
    trainer = said["pid"][0]
    until(lambda: runner._shows_torch(trainer), 10, "the thread to have its name")
    assert found(job) == ({1: trainer}, {said["worker"][0]: trainer})


@pytest.mark.parametrize(
    "own",
    [
        {},
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "2"},  # srun, one task per node
        {"RANK": "1", "WORLD_SIZE": "2"},  # Kubernetes numbers pods so
    ],
    ids=["torchrun", "torchrun under srun", "torchrun in a pod"],
)
def test_the_launcher_is_not_a_rank(started: Processes, own: dict[str, str]) -> None:
    job = new_job()
    runs = "; ".join(f"run({READY!r}, env={as_code(rank_env(rank, 2, job) | own | {'RANK': rank})})" for rank in "01")
    # The master is told to both, as in a pod; only what torchrun starts has its run id.
    pod = {key: job[key] for key in ("MASTER_ADDR", "MASTER_PORT")}
    launcher, said = started.start(f"{runs}; sleep()", pod | own, 2)
    ranks, children = found(job)
    assert sorted(ranks.values()) == sorted(said["pid"]) and not children
    assert launcher not in ranks.values()


def test_a_launcher_without_torchruns_mark_is_known_by_the_other_rank_that_slurm_gave_it(started: Processes) -> None:
    job = new_job()
    del job["TORCHELASTIC_RUN_ID"]
    slurm = {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_JOB_ID": "77"}
    runs = "; ".join(f"run({READY!r}, env={as_code(rank_env(rank, 2, job) | slurm)})" for rank in (0, 1))
    launcher, said = started.start(f"{runs}; sleep()", job | slurm, 2)
    assert launcher not in found(job)[0].values()
    assert sorted(found(job)[0].values()) == sorted(said["pid"])


# How launchers number


def test_slurms_numbers_count_where_there_is_no_rank(started: Processes) -> None:
    job = new_job()
    del job["TORCHELASTIC_RUN_ID"]
    slurm = {"SLURM_PROCID": "5", "SLURM_NTASKS": "16", "SLURM_LOCALID": "1", "SLURM_JOB_ID": "77", "SLURM_NODEID": "2"}
    pid, said = started.start(f"run({READY!r}, env={as_code(rank_env(5, 16, job) | slurm)}); sleep()", job | slurm)
    rows = of_job(runner.ranks(), job)
    (rank,) = [row for row in rows if row["worker_of"] is None]
    assert (rank["pid"], rank["rank"], rank["world_size"], rank["source"]) == (pid, 5, 16, "slurm")
    assert (rank["local_rank"], rank["node_rank"], rank["slurm_job"]) == (1, 2, "77")
    # The trainer read its rank from Slurm and set RANK for what it starts: that is a child of it.
    assert [row["pid"] for row in rows if row["worker_of"] == pid] == said["pid"]


def test_mpis_numbers_count_where_there_is_no_rank(started: Processes) -> None:
    job = new_job()
    mpi = {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}
    pid, _ = started.start(READY, job | mpi)
    (rank,) = of_job(runner.ranks(), job)
    assert (rank["pid"], rank["rank"], rank["world_size"], rank["local_rank"], rank["source"]) == (pid, 2, 4, 0, "ompi")


@pytest.mark.parametrize(("rank", "world"), [("x", "2"), ("-1", "2"), ("2", "2"), ("1", ""), ("1" * 40, "9" * 50)])
def test_what_is_no_rank_of_a_world_is_none(started: Processes, rank: str, world: str) -> None:
    job = new_job()
    started.start(READY, rank_env(0, 2, job) | {"RANK": rank, "WORLD_SIZE": world})
    assert of_job(runner.ranks(), job) == []


def test_a_rank_is_described_by_its_process(started: Processes) -> None:
    job = new_job()
    before = time.time()
    pid, _ = started.start("name('pt_main_thread'); " + READY, rank_env(1, 4, job))
    until(lambda: runner.process_state(pid)[0] == "S", 10, "it to sleep")
    (rank,) = of_job(runner.ranks(), job)
    assert (rank["ppid"], rank["comm"], rank["state"], rank["uid"]) == (os.getpid(), "pt_main_thread", "S", os.getuid())
    assert (rank["run_id"], rank["master"]) == (job["TORCHELASTIC_RUN_ID"], "127.0.0.1:" + job["MASTER_PORT"])
    assert (rank["local_rank"], rank["local_world_size"], rank["node_rank"]) == (1, 4, 0)
    assert abs(rank["start_time"] - before) < 3
    assert rank["ns_pids"][0] == pid


# One rank twice


def test_a_monitor_beside_the_trainer_is_not_a_second_rank(started: Processes) -> None:
    job = new_job()
    monitor, trainer = "say('monitor', os.getpid()); sleep()", "thread('pt_main_thread'); " + READY
    code = f"run({monitor!r}); run({trainer!r}); sleep()"
    _, said = started.start(code, rank_env(0, 2, job), 2, argv=SHELL)
    until(lambda: runner._shows_torch(said["pid"][0]), 10, "the thread to have its name")
    assert found(job) == ({0: said["pid"][0]}, {said["monitor"][0]: said["pid"][0]})


def test_two_jobs_that_look_alike_have_two_launchers_and_are_two(started: Processes) -> None:
    job = new_job()
    run = f"run({READY!r}, env={as_code(rank_env(0, 1, job))}); sleep()"
    pids = [started.start(run, {})[1]["pid"][0] for _ in range(2)]
    rows = of_job(runner.ranks(), job)
    assert sorted(row["pid"] for row in rows if row["worker_of"] is None) == sorted(pids)


def test_workers_whose_rank_is_gone_are_orphans_and_no_rank(started: Processes) -> None:
    job = new_job()
    trainer = "worker(); " + READY
    _, said = started.start(
        f"child = run({trainer!r}, env={as_code(rank_env(1, 2, job))}); child.wait(); sleep()", {}, 2
    )
    os.kill(said["pid"][0], signal.SIGKILL)
    until(lambda: runner.process_state(said["pid"][0])[0] == "", 10, "the trainer to be gone")
    scan = runner.rank_scan()
    assert of_job(scan["ranks"], job) == []
    assert [row["pid"] for row in of_job(scan["orphans"], job)] == said["worker"]


def test_a_rank_that_ended_and_was_not_reaped_is_named_as_unread(started: Processes) -> None:
    job = new_job()
    runs = "; ".join(f"run({READY!r}, env={as_code(rank_env(rank, 2, job))})" for rank in (0, 1))
    launcher, said = started.start(f"kept = [{runs.replace('; ', ', ')}]; sleep()", {}, 2)
    ended, alive = said["pid"]
    os.kill(ended, signal.SIGKILL)
    until(lambda: runner.process_state(ended)[0] == "Z", 10, "the rank to be a zombie")
    scan = runner.rank_scan()
    assert [row["pid"] for row in of_job(scan["ranks"], job)] == [alive]
    (row,) = [row for row in scan["unread"] if row["ppid"] == launcher]
    assert (row["pid"], row["state"]) == (ended, "Z") and "not yet reaped" in row["why"]


# What cannot be read


def reading_blocks_at(pids: list[int], blocks: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a page of the environment lies on a dead disk, or a thread of it holds the lock on its memory."""
    read = runner.read

    def slow(path: str, limit: int = 65536) -> str:
        if path in [f"/proc/{pid}/environ" for pid in pids]:
            blocks()
        return read(path, limit)

    monkeypatch.setattr(runner, "read", slow)


def test_processes_whose_environments_block_the_reader_cost_their_own_rows_only(
    started: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = new_job()
    pids = [started.start(READY, rank_env(rank, 16, job))[0] for rank in range(16)]
    hidden = [pids[0], pids[4], pids[5]]  # others come after them in the share of one child
    reading_blocks_at(hidden, lambda: time.sleep(600), monkeypatch)
    began = time.monotonic()
    scan = runner.rank_scan()
    took = time.monotonic() - began
    assert sorted(row["pid"] for row in of_job(scan["ranks"], job)) == sorted(set(pids) - set(hidden))
    unread = {row["pid"]: row for row in scan["unread"] if row["pid"] in pids}
    assert sorted(unread) == sorted(hidden)
    assert {row["why"] for row in unread.values()} == {"its environment could not be read"}
    assert took < 10


@pytest.mark.needs_root
def test_a_reader_that_cannot_be_killed_is_left_alone(
    started: Processes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    job = new_job()
    hidden, seen = (started.start(READY, rank_env(rank, 8, job))[0] for rank in (0, 1))
    with FrozenMount(tmp_path) as frozen:
        reading_blocks_at([hidden], (frozen.mount / "x").touch, monkeypatch)
        began = time.monotonic()
        scan = runner.rank_scan()
        took = time.monotonic() - began
    assert [row["pid"] for row in of_job(scan["ranks"], job)] == [seen]
    assert hidden in [row["pid"] for row in scan["unread"]]
    assert took < 10


@pytest.mark.needs_root
def test_a_login_that_may_not_look_is_told_what_to_allow(started: Processes) -> None:
    if not Path("/usr/bin/python3").exists():
        pytest.skip("cannot run here: no Python that another user may run")
    job = new_job()
    started.start("name('python3'); " + READY, rank_env(0, 2, job))
    program = Plan((PROBE,)).source(watch_stdin=False)
    command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3", "-I", "-S", "-"]
    done = subprocess.run(command, input=program, capture_output=True, text=True, timeout=60, cwd="/")
    assert '"outcome": "denied"' in done.stdout, done.stdout + done.stderr
    assert "Allow: log in as root or as the user who trains" in done.stdout


@pytest.mark.needs_root
def test_a_rank_in_a_container_has_the_pid_it_knows_itself_by(started: Processes) -> None:
    job = new_job()
    namespace = ("unshare", "--pid", "--fork", "--kill-child")
    _, said = started.start(READY, rank_env(0, 2, job), argv=namespace)
    (rank,) = [row for row in of_job(runner.ranks(), job) if row["worker_of"] is None]
    assert said["pid"] == [1]
    assert rank["ns_pids"] == [rank["pid"], 1]


def test_a_session_that_was_itself_started_with_a_rank_is_no_rank(started: Processes) -> None:
    """A shell in a pod has the pod's RANK, and so has the runner that it starts."""
    job = new_job()
    _, said = started.start(READY, rank_env(0, 2, job))  # something for it to find
    read = parse(capture_here(PROBE, login=rank_env(1, 2, job)).text)
    assert [rank.pid for rank in read.ranks if rank.run_id == job["TORCHELASTIC_RUN_ID"]] == said["pid"]


def test_a_launcher_with_a_pods_rank_is_none_also_while_it_has_no_ranks_to_start(started: Processes) -> None:
    pod = new_job()
    del pod["TORCHELASTIC_RUN_ID"]
    pid, _ = started.start("name('pt_elastic'); " + READY, rank_env(0, 2, pod))
    assert found(pod) == ({}, {})
    assert runner.process_state(pid)[0]


# What may leave the node


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("SLURM_JWT", "abc"),
        ("NCCL_SECRET_X", "abc"),
        ("TORCH_HUB_TOKEN", "short"),
        ("NCCL_PROXY", "http://user:word@proxy:80/"),
        ("TORCH_EXTRA", "hf_abcdefghijklmnopqrst"),
        ("SLURM_COMMENT", "key=ghp_0123456789abcdefghij"),
        ("FI_OPTION", "x:0123456789abcdef0123456789abcdef01234567"),
    ],
)
def test_what_looks_secret_is_masked(key: str, value: str) -> None:
    assert runner._masked(key, value) == runner.MASKED


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("CUDA_VISIBLE_DEVICES", "GPU-5895e020-7d50-0c08-6ec8-e543a425c76c,GPU-00000000-7d50-0c08-6ec8-e543a425c76c"),
        ("TORCHELASTIC_RUN_ID", "0123456789abcdef0123456789abcdef01234567"),
        ("NCCL_IB_HCA", "=mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1"),
        ("MASTER_ADDR", "fd00::1"),
        ("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "/tmp/nccl_trace_rank_"),
        ("PET_RDZV_ENDPOINT", "tcp://node-1:29500/x@y"),
    ],
)
def test_what_is_no_secret_is_told(key: str, value: str) -> None:
    assert runner._masked(key, value) == value


def test_only_allowed_variables_leave_the_node(started: Processes) -> None:
    job = new_job()
    more = {"AWS_SECRET_ACCESS_KEY": "x", "EMAIL": "a@b", "NCCL_DEBUG": "INFO", "WANDB_API_KEY": "y"}
    started.start(READY, rank_env(0, 2, job) | more)
    (rank,) = of_job(runner.ranks(), job)
    assert rank["env"]["NCCL_DEBUG"] == "INFO"
    assert not {"AWS_SECRET_ACCESS_KEY", "EMAIL", "WANDB_API_KEY", "PATH"} & rank["env"].keys()


def test_a_variable_cannot_forge_a_section_or_a_row(started: Processes) -> None:
    job = new_job(NCCL_X='a\n==> golden15/scan <==\n{"pid": 1}\u202e\n')
    pid, _ = started.start("name('==> x <=='); " + READY, rank_env(0, 2, job, CUDA_VISIBLE_DEVICES="\n==> y <==\n"))
    read = parse(capture_here(PROBE).text)
    (rank,) = [rank for rank in read.ranks if rank.pid == pid]
    assert rank.comm == "==> x <==" and rank.visible == {"CUDA_VISIBLE_DEVICES": "\u240a==> y <==\u240a"}


# The probe


@pytest.mark.parametrize("python", old_and_new_pythons())
def test_ranks_are_mapped_with_their_children_by_old_and_new_pythons(started: Processes, python: str) -> None:
    job = new_job()
    pids = [started.start("worker(); worker(); " + READY, rank_env(rank, 3, job), 3)[0] for rank in (0, 2)]
    capture = capture_here(PROBE, python)
    assert capture.outcome == "ok", capture.why
    read = parse(capture.text)
    mine: list[Any] = [rank for rank in read.ranks if rank.run_id == job["TORCHELASTIC_RUN_ID"]]
    assert [(rank.rank, rank.pid, len(rank.workers)) for rank in mine] == [(0, pids[0], 2), (2, pids[1], 2)]
    assert {worker.comm for rank in mine for worker in rank.workers} == {"pt_data_worker"}
    missing = [finding for finding in PROBE.findings(read) if finding.code == "rank.missing"]
    assert [finding.subject for finding in missing if "local rank 1 is" in finding.says]
