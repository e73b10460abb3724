"""rank.log beyond single lines: who wrote and when, blocks of lines, findings, the collector with real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from probes.catalog.logs import places
from probes.catalog.logs.events import RankLog, RankLogs
from probes.catalog.logs.lines import Zone, one_line
from probes.catalog.logs.read import read_log
from probes.catalog.rank_log import PROBE, findings, parse
from probes.core import ParseError
from tests.support.collectors import capture_here, old_and_new_pythons
from tests.support.namespaces import unshare_mounts
from tests.support.wait import until

NOW = 1795960000.0  # 2026-11-29 13:46:40 UTC, by date(1)
WORK = "WorkNCCL(SeqNum=42, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600029 milliseconds"


# Who wrote a line, and when


@pytest.mark.parametrize(
    ("text", "rank", "rest"),
    [
        ("[rank3]: Traceback", 3, "Traceback"),
        ("[rank3]:[W1129 14:13:49.1 P.cpp:6] x", 3, "x"),
        ("[default1]:[rank9]: x", 9, "x"),
        ("[default1]:x", 5, "x"),  # torchrun's tee counts within the node; local rank 1 is rank 5 here
        ("[trainer7]:x", None, "x"),
        ("[3]: x", 3, "x"),
        ("gpu-a: [rank3]:   File", 3, "  File"),
        ("gpu-a: step 3", None, "gpu-a: step 3"),
        ("[1,12]<stderr>:x", 12, "x"),
        ("(WorkerDict pid=97397, ip=10.0.0.4) [rank2]: x", 2, "x"),
        ("(worker3, rank=3, pid=16415, ip=10.105.0.7) x", 3, "x"),
        ("2026-11-29 14:15:52,608 [rank0] INFO x", 0, "INFO x"),
        ("2026-11-29T14:15:52.1234567Z stderr F [rank4]: x", 4, "x"),
        ("[3]:", None, "[3]:"),  # torchrun's list of failures
        ("gpu-a:12:14 [3] NCCL INFO x", None, "gpu-a:12:14 [3] NCCL INFO x"),
        ("12: x", None, "12: x"),  # srun --label only where every line has one
    ],
)
def test_a_prefix_tells_the_rank(text: str, rank: int | None, rest: str) -> None:
    line = one_line(text, Zone(ranks={1: 5}))
    assert (line.rank, line.text) == (rank, rest)


def test_labels_of_srun_count_when_every_line_has_one() -> None:
    text = "".join(f" {n % 3}: [E P.cpp:1] Watchdog: {WORK.replace('42', str(n))}\n" for n in range(30))
    assert {event.rank for event in read_log(text)[0]} == {0, 1, 2}


@pytest.mark.parametrize(
    ("text", "at", "clock"),
    [
        ("[E1129 14:13:49.500000000 P.cpp:1] x", 1795958029.5, "node"),  # 14:13:49 at UTC+1
        ("[E801 00:00:00.0 P.cpp:1] x", 1785538800.0, "node"),  # 1 August: the month has one digit
        ("[E1231 23:59:59.0 P.cpp:1] x", 1767221999.0, "node"),  # not in the future: last year
        ("2026-11-29 14:13:49,250 x", 1795958029.25, "node"),
        ("[2026-11-29 14:13:49] gpu-a:1:1 [0] NCCL WARN x", 1795958029.0, "node"),
        ("2026-11-29T14:13:49.250Z stdout F x", 1795961629.25, "utc"),
        ("2026-11-29 14:13:49+05:30 x", 1795941829.0, "utc"),
        ("[E P.cpp:1] x", None, ""),
        ("[E1399 14:13:49.5 P.cpp:1] x", None, ""),
        ("2026-02-30 14:13:49 x", None, ""),
    ],
)
def test_a_local_time_is_taken_in_the_zone_of_the_node(text: str, at: float | None, clock: str) -> None:
    line = one_line(text, Zone(NOW, 3600))
    assert (line.at, line.clock) == (at, clock)


def one_file(row: str, written: float) -> RankLog:
    """A file that a node at UTC+1 sent, last changed at `written`."""
    index = '{"now": 1795960000, "utc_offset_s": 3600, "ranks": [], "streams": [], "left_off": 0}'
    place = '{"file": "x", "how": "stderr", "rank": 1, "pid": 7, "writers": [1], "deleted": false, "job": ""}'
    facts = f'{{"outcome": "ok", "size": 9, "read": 9, "skipped": 0, "mtime": {written}}}'
    return parse(f"==> golden15/rank-logs <==\n{index}\n\n==> log 0 <==\n{place}\n{facts}\n0 {row}\n").logs[0]


@pytest.mark.parametrize(
    ("written", "at", "clock"),
    [
        (1795958029.5, 1795958029.5, "node"),  # 14:13:49 at UTC+1: the job lives in the node's zone
        (1795961631.0, 1795961629.5, "file"),  # written an hour later: it lives in UTC
        (1795941829.5, 1795941829.5, "file"),  # in India
        (1795959000.0, 1795958029.5, "node"),  # 16 min 10 s: no difference of zones
    ],
)
def test_a_job_in_another_zone_is_known_by_when_its_file_was_written(written: float, at: float, clock: str) -> None:
    (event,) = one_file("[E1129 14:13:49.500000000 P.cpp:1] Heartbeat monitor timed out!", written).events
    assert (event.at, event.clock) == (at, clock)


def test_without_a_zone_a_local_time_stays_a_stamp() -> None:
    line = one_line("[E1129 14:13:49.5 P.cpp:1] x", Zone())
    assert (line.at, line.clock, line.stamp) == (None, "", "11-29 14:13:49")


def test_a_line_without_a_time_is_known_to_come_after_the_last_of_its_rank() -> None:
    text = "[rank0]:[E1129 14:13:49.0 P.cpp:1] x\n[rank1]:[E1129 14:14:00.0 P.cpp:1] x\n"
    text += "[rank0]: Fatal Python error: Aborted\n"
    (event,) = read_log(text, Zone(NOW + 9000, 0))[0]
    assert (event.at, event.after) == (None, 1795961629.0)


# Blocks of lines


def test_tracebacks_of_two_ranks_that_write_at_once_are_told_apart() -> None:
    text = """[rank0]: Traceback (most recent call last):
[rank1]: Traceback (most recent call last):
[rank0]:   File "/w/train.py", line 10, in main
[rank1]:   File "/w/train.py", line 20, in main
[rank1]:     loss.backward()
[rank0]:     step()
[rank1]:   File "/v/lib/python3.11/site-packages/torch/_tensor.py", line 623, in backward
[rank1]: ValueError: one
[rank0]: KeyError: 'two'
"""
    found = {event.rank: event for event in read_log(text)[0]}
    assert [(found[r].name, found[r].where) for r in (0, 1)] == [
        ("KeyError", "/w/train.py:10"),
        ("ValueError", "/w/train.py:20"),
    ]
    assert found[1].more == {"function": "main", "message": "one"}


def test_what_torchrun_passes_on_is_not_cut_between_its_own_mark_and_the_ranks() -> None:
    rows = ["Traceback (most recent call last):", '  File "/w/train.py", line 10, in main', "KeyError: 1"]
    text = "\n".join(f"[default{n}]:[rank{n + 4}]: {row}" for row in rows for n in (0, 1))
    assert [(event.rank, event.where) for event in read_log(text)[0]] == [(4, "/w/train.py:10"), (5, "/w/train.py:10")]


def test_the_place_of_an_exception_is_the_last_frame_of_the_users_own_code() -> None:
    frames = ['  File "/v/lib/python3.11/site-packages/torch/x.py", line 1, in f', '  File "<string>", line 1, in g']
    text = "\n".join(["Traceback (most recent call last):", *frames, "torch.x.DistBackendError"])
    (event,) = read_log(text)[0]
    assert (event.name, event.where, event.secondary) == ("DistBackendError", "<string>:1", True)


def test_torchruns_list_gives_one_event_per_failed_rank(request: pytest.FixtureRequest) -> None:
    """The values are those of tests/fixtures/rank.log/hang_sigkill.out, as a person reads them there."""
    recorded = (request.path.parent / "fixtures/rank.log/hang_sigkill.out").read_text()
    log = next(log for log in parse(recorded).logs if log.file == "torchrun.log")
    failed = [event for event in log.events if event.kind == "torchrun_failure" and event.about]
    assert [(event.about, event.code, event.more["pid"], event.more["first"]) for event in failed] == [
        ((0,), -15, 6766, 0),
        ((2,), -15, 6768, 0),
        ((1,), -9, 6767, 1),
    ]
    assert [event.secondary for event in failed] == [True, True, False]
    assert failed[0].where == "/srv/run/j1/logs/none_qwycdyee/attempt_0/0/error.json" and failed[2].where == ""
    assert failed[0].name == "RuntimeError" and failed[2].name == "SIGKILL"


def test_an_error_file_tells_its_time_in_utc_and_is_read_as_one() -> None:
    said = {"message": {"message": "ValueError: x\nmore", "extraInfo": {"py_callstack": "", "timestamp": "1795961629"}}}
    (event,) = read_log(json.dumps(said), rank=4)[0]
    assert (event.kind, event.rank, event.name, event.at, event.clock) == (
        "traceback",
        4,
        "ValueError",
        1795961629.0,
        "utc",
    )
    (old,) = read_log(json.dumps({"message": "Process died"}))[0]
    assert (old.name, old.more["message"]) == ("", "Process died")


@pytest.mark.parametrize(
    "text", ['{"message": ' + "[" * 100_000, '{"message": null}', '{"message": {"message": 7}}', "{}"]
)
def test_an_error_file_that_is_none_is_a_log_without_events(text: str) -> None:
    assert read_log(text) == ((), 0)


# Findings


def codes(text: str) -> list[tuple[str, str]]:
    return [(finding.code, finding.severity) for finding in findings(parse(text))]


def test_the_worst_event_of_a_rank_is_its_finding() -> None:
    status = "last enqueued NCCL work: 45, last completed NCCL work: 41"
    text = f"""[rank2]:[E1129 14:13:49.1 P.cpp:6] [PG ID 0 PG GUID 0 Rank 2] Watchdog caught: {WORK}
[rank2]:[E1129 14:13:49.1 P.cpp:7] [PG ID 0 PG GUID 0 Rank 2] Exception detected by watchdog at work: 42, {status}.
[rank2]: Connection closed by peer [10.0.0.1]:77.
"""
    (finding,) = findings(parse(text))
    assert (finding.code, finding.severity, finding.subject) == ("rank.watchdog_timeout", "bad", {"rank": 2})
    assert "ALLREDUCE number 42 of group 0 (8 elements in, 8 out), for 600 s" in finding.says
    assert "last enqueued 45, last completed 41" in finding.says
    assert codes(text + "[rank2]: RuntimeError: CUDA error: unknown error\n") == [("rank.cuda_error", "bad")]


def test_a_rank_that_had_nothing_open_when_it_was_asked_was_elsewhere() -> None:
    text = "[rank5]: Received a dump signal due to a collective timeout from  rank 1 and we will try our best to dump. "
    equal, behind = (f"{text}Last enqueued NCCL work: 9, last completed NCCL work: {n}.\n" for n in (9, 8))
    assert codes(equal) == [("rank.outside", "warn")]
    assert codes(behind) == []


def test_who_only_lost_a_peer_is_told_as_a_consequence() -> None:
    (finding,) = findings(parse("[rank2]: Connection closed by peer [10.0.0.1]:77."))
    assert finding.severity == "warn" and finding.says.endswith("A consequence: the cause is elsewhere")


def test_sockets_are_slow_only_where_infiniband_was_found() -> None:
    link = "n:1:1 [0] NCCL INFO Channel 00/0 : 8[0] -> 3[3] [receive] via NET/Socket/0\n"
    using = "n:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB ; OOB eth0:10.0.0.1<0>\n"
    none = "n:1:1 [0] NCCL INFO NET/IB : No device found.\n"
    said = "==> rank3.log <==\n"
    assert codes(said + using + link) == [("rank.slow_link", "warn")]
    assert codes(said + none + link) == codes(said + link) == []


def test_a_communicator_that_was_begun_and_not_done_is_told() -> None:
    begun = "n:1:1 [0] NCCL INFO comm 0xa rank 0 nranks 2 - Init START\n"
    done = "n:1:1 [0] NCCL INFO comm 0xa rank 0 nranks 2 - Init COMPLETE\n"
    assert codes("==> rank0.log <==\n" + begun) == [("rank.init_unfinished", "warn")]
    assert codes("==> rank0.log <==\n" + begun + done) == []


def test_an_error_that_names_no_rank_is_told_with_its_file() -> None:
    (finding,) = findings(parse("==> train.log <==\nRuntimeError: CUDA error: unknown error\n"))
    assert finding.code == "rank.cuda_error" and finding.subject == {"file": "train.log"}


def test_a_file_that_does_not_answer_costs_its_own_row_only() -> None:
    place: dict[str, Any] = {"file": "/nfs/a.log", "how": "stdout", "rank": 1, "pid": 7, "writers": [1]}
    place |= {"deleted": False, "job": ""}
    hung = {"outcome": "hung", "text": "", "why": "process 9 could not be stopped (state D)", "wchan": "rpc_wait"}
    ((_, text),) = places._read([place], [hung])
    index = '{"now": 1, "utc_offset_s": 0, "ranks": [[1, 1, 7, ""]], "streams": [], "left_off": 0}'
    read = parse(f"==> golden15/rank-logs <==\n{index}\n\n==> log 0 <==\n{json.dumps(place)}\n{text}\n")
    assert read.logs[0].kept == "unread"
    (finding,) = findings(read)
    assert finding.code == "rank.log_unread" and "rpc_wait" in finding.says and "rank 1" in finding.says


@pytest.mark.parametrize(
    ("index", "log"),
    [
        ("[]", ""),
        ('{"ranks": [], "streams": 7}', ""),
        ('{"ranks": [[1]], "streams": []}', ""),
        ('{"ranks": [], "streams": [3]}', ""),
        ('{"ranks": [], "streams": []}', "no json"),
        ('{"ranks": [], "streams": []}', "{}\n[1]"),
        ("[" * 5000, ""),
    ],
)
def test_broken_sections_are_refused_in_words(index: str, log: str) -> None:
    with pytest.raises(ParseError, match=r"^section (golden15/rank-logs|log 0): expected"):
        parse(f"==> golden15/rank-logs <==\n{index}\n" + (f"\n==> log 0 <==\n{log}\n" if log else ""))


# The collector


RANK = """
import os, signal, sys
print("NCCL version 2.27.7+cuda12.8", flush=True)
who = os.environ["RANK"]
print("[rank%s]: RuntimeError: CUDA error: unknown error" % who, file=sys.stderr, flush=True)
signal.pause()
"""


LEASE = """
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, lambda *_: None)  # how the kernel says that somebody waits
fcntl.fcntl(os.open(sys.argv[1], os.O_RDWR), 1024, fcntl.F_WRLCK)  # F_SETLEASE
print(flush=True)
while True:
    signal.pause()
"""


class Job:
    """Ranks of one job, told from other jobs on this machine by their port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = str(20_000 + os.getpid() % 10_000)
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, rank: int, stdout: Any, stderr: Any, program: str = RANK, **env: str) -> subprocess.Popen[bytes]:
        known = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "8", "MASTER_ADDR": "golden15.test"}
        known |= {"MASTER_PORT": self.port, "PATH": os.environ["PATH"], "TORCHELASTIC_RUN_ID": "none"} | env
        process = subprocess.Popen([sys.executable, "-c", program], stdout=stdout, stderr=stderr, env=known)
        self.processes.append(process)
        return process

    def logs(self, python: str = sys.executable) -> list[RankLog]:
        capture = capture_here(PROBE, python)
        assert capture.outcome == "ok", capture.why
        return [log for log in parse(capture.text).logs if log.job == f"golden15.test:{self.port}"]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    started = Job(tmp_path)
    yield started
    for process in started.processes:
        process.send_signal(signal.SIGKILL)
        process.wait()


def written(path: Path, text: str) -> Callable[[], bool]:
    return lambda: path.exists() and text in path.read_text()


@pytest.mark.parametrize("python", old_and_new_pythons())
def test_the_files_of_real_ranks_are_found_and_read(job: Job, python: str) -> None:
    out, err = job.folder / "out", job.folder / "err.log"
    with open(out, "wb") as stdout, open(err, "wb") as stderr:
        pid = job.start(3, stdout, stderr).pid
    until(written(err, "unknown error"))
    found = {log.file: log for log in job.logs(python)}
    assert (found[str(out)].how, found[str(out)].rank, found[str(out)].pid) == ("stdout", 3, pid)
    assert found[str(out)].events[0].name == "2.27.7+cuda12.8"
    assert found[str(err)].events[0].kind == "cuda_error" and found[str(err)].events[0].offset == 0
    assert found[str(err)].size_bytes == found[str(err)].read_bytes == err.stat().st_size
    assert found[str(err)].written_at == pytest.approx(err.stat().st_mtime)


def test_one_file_of_two_ranks_is_read_once(job: Job) -> None:
    out = job.folder / "train.out"
    with open(out, "wb") as both:
        for rank in (0, 1):
            job.start(rank, both, both)
    until(written(out, "[rank0]"))
    until(written(out, "[rank1]"))
    (log,) = [log for log in job.logs() if log.file == str(out)]
    assert (log.rank, sorted(log.writers)) == (None, [0, 1])
    assert {event.rank for event in log.events if event.kind == "cuda_error"} == {0, 1}


def test_a_file_that_two_ranks_know_by_two_names_is_read_once(job: Job) -> None:
    one, other = job.folder / "one.log", job.folder / "other.log"
    one.touch()
    os.link(one, other)
    for rank, path in ((0, one), (1, other)):
        with open(path, "ab") as file:
            job.start(rank, subprocess.DEVNULL, file)
    until(written(one, "[rank0]"))
    until(written(one, "[rank1]"))
    (log,) = [log for log in job.logs() if log.file in (str(one), str(other))]
    assert (log.rank, sorted(log.writers)) == (None, [0, 1])


@pytest.mark.needs_root
def test_files_of_a_rank_in_a_container_are_read_through_its_own_root(job: Job) -> None:
    """A mount namespace with a file system that does not exist outside it."""
    inside = job.folder / "inside"
    inside.mkdir()
    script = f"mount -t tmpfs none {inside} && echo 'NCCL INFO Using network IB' > {inside}/nccl.log && "
    script += f"exec {sys.executable} -c '{RANK}' > {inside}/out 2>&1"
    known = {"RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "golden15.test", "MASTER_PORT": job.port}
    known |= {"PATH": os.environ["PATH"], "NCCL_DEBUG_FILE": f"{inside}/nccl.log"}
    job.processes.append(subprocess.Popen(["unshare", *unshare_mounts(), "sh", "-c", script], env=known))
    logs = until(lambda: found if len(found := {log.file: log for log in job.logs() if log.events}) > 1 else None)
    assert not list(inside.iterdir()), "nothing of it is seen from outside"
    assert logs[f"{inside}/nccl.log"].events[0].name == "IB"
    # Seen from another mount namespace, an open file's name begins at that one's root, which a chroot does not have.
    out = next(log for file, log in logs.items() if file.endswith(f"{inside}/out"))
    assert "cuda_error" in {event.kind for event in out.events}


def test_a_file_that_was_deleted_while_it_is_open_is_read_through_its_process(job: Job) -> None:
    err = job.folder / "err.log"
    with open(err, "wb") as stderr:
        job.start(0, subprocess.DEVNULL, stderr)
    until(written(err, "unknown error"))
    err.unlink()
    (log,) = [log for log in job.logs() if log.how == "stderr"]
    assert log.deleted and log.file == str(err) and log.events[0].kind == "cuda_error"


def test_output_that_nobody_keeps_is_said(job: Job) -> None:
    job.start(2, subprocess.PIPE, subprocess.DEVNULL)
    stream = job.processes[0].stdout
    assert stream and b"NCCL" in stream.readline()
    logs = job.logs()
    assert {(log.how, log.kept) for log in logs if log.rank == 2} == {("stdout", "pipe"), ("stderr", "null")}
    says = [finding.says for finding in findings(RankLogs(tuple(logs))) if finding.code == "rank.output_lost"]
    assert "rank 2 writes its stdout to a pipe: nobody keeps the output" in says
    stream.close()


def test_what_tee_keeps_of_a_pipe_is_read(job: Job) -> None:
    kept = job.folder / "kept"
    tee = subprocess.Popen(["tee", str(kept)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    job.processes.append(tee)
    assert tee.stdin
    job.start(1, tee.stdin, tee.stdin)
    tee.stdin.close()
    until(written(kept, "unknown error"))
    logs = job.logs()
    (log,) = [log for log in logs if log.file == str(kept)]
    assert log.writers == (1,) and log.how == "through a pipe to tee"
    assert [log.why for log in logs if log.kept == "pipe"] == [f"tee ({tee.pid})"] * 2
    assert "rank.output_lost" not in {finding.code for finding in findings(RankLogs(tuple(logs)))}


SLURMSTEPD = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(15, b"slurmstepd", 0, 0, 0)  # PR_SET_NAME
kept = open(sys.argv[2], "wb", buffering=0)
while data := os.read(int(sys.argv[1]), 65536):
    kept.write(data)
"""


def test_what_slurm_keeps_of_a_pipe_is_read(job: Job) -> None:
    """slurmstepd is not the parent of what it writes for on every node, and reads the pipe by another number than 0."""
    kept = job.folder / "slurm-812.out"
    reads, writes = os.pipe()
    argv = [sys.executable, "-c", SLURMSTEPD, str(reads), str(kept)]
    job.processes.append(subprocess.Popen(argv, pass_fds=[reads], stdin=subprocess.DEVNULL))
    os.close(reads)
    job.start(6, writes, writes)
    os.close(writes)
    until(written(kept, "unknown error"))
    logs = job.logs()
    (log,) = [log for log in logs if log.file == str(kept)]
    assert (log.rank, log.how) == (6, "through a pipe to slurmstepd")
    assert "rank.output_lost" not in {finding.code for finding in findings(RankLogs(tuple(logs)))}


def test_nccls_own_file_and_the_run_folder_of_torchrun_are_found(job: Job) -> None:
    """Rank 1 is gone: its error file is found beside that of rank 0, and its rank is counted on from there."""
    attempt = job.folder / "none_x" / "attempt_0"
    for local in ("0", "1"):
        (attempt / local).mkdir(parents=True)
    (attempt / "1" / "error.json").write_text(json.dumps({"message": {"message": "ValueError: gone", "extraInfo": {}}}))
    named = str(job.folder / "nccl.%h.%p.txt")
    # In a container %h is another name: the file that is open under the part before it is taken too.
    other = job.folder / "nccl.container-7.1.txt"
    program = f"held = open({str(other)!r}, 'w'); held.write('NCCL version 2.27.7+cuda12.8'); held.flush(); {RANK}"
    job.start(
        4,
        subprocess.DEVNULL,
        subprocess.DEVNULL,
        program,
        LOCAL_RANK="0",
        NCCL_DEBUG_FILE=named,
        TORCHELASTIC_ERROR_FILE=str(attempt / "0" / "error.json"),
    )
    mine = Path(named.replace("%h", os.uname().nodename).replace("%p", str(job.processes[0].pid)))
    mine.write_text("gpu-a:1:1 [0] NCCL INFO Using network IB\n")
    until(written(other, "NCCL"))
    found = {log.file: log for log in job.logs()}
    assert found[str(other)].how == "NCCL_DEBUG_FILE" and found[str(other)].events[0].kind == "nccl_version"
    assert found[str(mine)].events[0].kind == "nccl_net" and found[str(mine)].rank == 4
    gone = found[str(attempt / "1" / "error.json")]
    assert (gone.rank, gone.how, gone.events[0].name) == (5, "run folder", "ValueError")
    assert str(attempt / "0" / "error.json") not in found, "it does not exist"


def test_of_a_job_that_was_started_again_the_attempt_before_is_read_but_not_judged(job: Job) -> None:
    for attempt in ("attempt_0", "attempt_1"):
        folder = job.folder / attempt / "0"
        folder.mkdir(parents=True)
        (folder / "error.json").write_text(json.dumps({"message": {"message": f"ValueError: {attempt}"}}))
    error = job.folder / "attempt_1" / "0" / "error.json"
    job.start(0, subprocess.DEVNULL, subprocess.DEVNULL, TORCHELASTIC_ERROR_FILE=str(error))
    logs = until(lambda: [log for log in job.logs() if log.file.endswith("error.json")])
    assert {log.how: log.events[0].more["message"] for log in logs} == {
        "error file": "attempt_1",
        "earlier attempt": "attempt_0",
    }
    says = [finding.says for finding in findings(RankLogs(tuple(logs)))]
    assert len(says) == 1 and "attempt_1" in says[0]


def test_a_file_whose_opening_blocks_costs_its_own_row_only(job: Job) -> None:
    """A lease (fcntl(2), F_SETLEASE) holds every open(2) up, as a file server does that does not answer."""
    blocked, err = job.folder / "nccl.log", job.folder / "err.log"
    blocked.write_text("NCCL version 2.27.7+cuda12.8")
    holder = subprocess.Popen([sys.executable, "-c", LEASE, str(blocked)], stdout=subprocess.PIPE)
    job.processes.append(holder)
    assert holder.stdout
    if holder.stdout.readline() != b"\n":
        pytest.skip("cannot run here: this file system has no leases")
    holder.stdout.close()
    with open(err, "wb") as stderr:
        job.start(0, subprocess.DEVNULL, stderr, NCCL_DEBUG_FILE=str(blocked))
    until(written(err, "unknown error"))
    found = {log.file: log for log in job.logs()}
    assert found[str(blocked)].kept == "unread"
    assert found[str(blocked)].why.startswith("no answer within 3.5 s")
    assert found[str(err)].events[0].kind == "cuda_error"


def test_a_fifo_in_the_place_of_a_file_is_not_opened(job: Job) -> None:
    """Opening it would wake or block whoever is at its other end."""
    fifo = job.folder / "error.json"
    os.mkfifo(fifo)
    job.start(0, subprocess.DEVNULL, subprocess.DEVNULL, TORCHELASTIC_ERROR_FILE=str(fifo))
    (log,) = until(lambda: [log for log in job.logs() if log.how == "error file"])
    assert (log.kept, log.why) == ("unread", "it is not a regular file")
