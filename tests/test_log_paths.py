"""Log files by paths that people give: which patterns are taken, what is read on the node, and whose rank it is."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import pytest

from probes import catalog, suites
from probes.catalog.logs.events import RankLog, RankLogs
from probes.catalog.logs.given_files import ATTACHMENT, GIVEN, MANY_FILES, _lister, base_of, fits, reader
from probes.catalog.logs.reduce import HEAD, TAIL
from probes.catalog.rank_log import findings, parse
from probes.core import Capture, Reading
from probes.diagnosis import diagnose
from probes.diagnosis.core import Evidence, seen
from probes.log_paths import LONGEST, MOST, LogPathError, checked
from probes.runner import isolate
from probes.transport import local
from tests.support.collectors import old_and_new_pythons
from tests.test_rank_log import LEASE

DIED = "[rank7]: RuntimeError: CUDA error: unknown error\n"


def torchrun_list(rank: int, host: str, code: str = "-9 (pid: 13)  (SIGKILL)") -> str:
    """As torchrun 2.13 wrote it on a node of the lab; rank, host and exit code filled in."""
    return f"""===================================================
/w/train.py FAILED
---------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
---------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-29_19:52:14
  host      : {host}
  rank      : {rank} (local_rank: 0)
  exitcode  : {code}
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
===================================================
"""


# Which patterns are taken


def test_patterns_are_taken_in_order_and_once() -> None:
    assert checked([" /logs/run7/*.log ", "", "/logs//run7/rank_?.out", "/logs/run7/*.log\r"]) == (
        "/logs/run7/*.log",
        "/logs/run7/rank_?.out",
    )
    assert checked(["/dev/shm/rank0.log", "/logs/ünter uns/rank0.log"]) == (
        "/dev/shm/rank0.log",
        "/logs/ünter uns/rank0.log",
    )


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("logs/rank0.log", "does not begin with /"),
        ("~/rank0.log", "does not begin with /"),
        ("/logs/../etc/x", "a part . or .."),
        ("/logs/./x", "a part . or .."),
        ("/logs/run7/", "is a folder. Give files, such as /logs/run7/*.log"),
        ("/", "is a folder"),
        ("/logs/a\nb", "a control character"),
        ("/logs/a\x00b", "a control character"),
        ("/logs/\u202egol.x", "a control character"),
        ("/logs/\udcff.log", "a control character"),
        ("/logs/" + "a" * LONGEST, f"has {LONGEST + 6} characters; at most {LONGEST}"),
        ("/logs/" + "*a" * 9, "over 8 of"),
        ("/etc/shadow", "no log is read there"),
        ("/proc/1/environ", "no log is read there"),
        ("//proc/*/environ", "no log is read there"),
        ("/dev/sda", "no log is read there"),
        ("/dev/shm/.hidden/x", "no log is read there"),
        ("/root/.ssh/id_ed25519", "no log is read there"),
        ("/run/secrets/token", "no log is read there"),
    ],
)
def test_what_is_no_pattern_of_log_files_is_refused_in_words(pattern: str, says: str) -> None:
    with pytest.raises(LogPathError) as refused:
        checked(["/logs/good.log", pattern])
    assert says in str(refused.value)
    assert str(refused.value).isprintable()


def test_too_many_patterns_are_refused() -> None:
    assert len(checked([f"/logs/{n}.log" for n in range(MOST)])) == MOST
    with pytest.raises(LogPathError, match="9 log paths are too many"):
        checked([f"/logs/{n}.log" for n in range(MOST + 1)])


# How they are sent


def test_only_a_suite_that_reads_logs_carries_them_and_no_program_holds_them() -> None:
    paths = ("/logs/$(zz-top)';*.log",)
    carried = suites.SUITES["capture"].plan(paths)
    assert [one.name for one in carried.attachments] == [ATTACHMENT]
    assert "zz-top" not in carried.source()
    assert suites.SUITES["gpu"].plan(paths).attachments == suites.SUITES["capture"].plan().attachments == ()


def test_they_are_ascii_on_the_wire_so_that_any_locale_reads_them() -> None:
    (one,) = suites.suite_or_probe("rank.log").plan(("/logs/ü.log",)).attachments
    assert zlib.decompress(one.packed) == b'["/logs/\\u00fc.log"]'


# What is read on the node


@pytest.mark.parametrize(
    ("name", "pattern", "right"),
    [
        (b"rank_1.log", b"*.log", True),
        (b"rank_1.log", b"rank_?.log", True),
        (b"rank_12.log", b"rank_?.log", False),
        (b"rank_1.log", b"*", True),
        (b"", b"*", True),
        (b"", b"?", False),
        (b"a", b"", False),
        (b"[ab].log", b"[ab].log", True),
        (b"a.log", b"[ab].log", False),
        (b"aXbXc", b"a*b*c", True),
        (b"aXbXcd", b"a*b*c", False),
        (b"ab", b"a**b", True),
        (b"a" * 255, b"*a" * 8 + b"b", False),
    ],
)
def test_a_star_is_any_number_of_characters_and_nothing_else_is_special(
    name: bytes, pattern: bytes, right: bool
) -> None:
    assert fits(name, pattern) is right


def test_a_pattern_made_to_be_slow_is_not() -> None:
    began = time.process_time()
    assert not fits(b"a" * 255, b"*a" * 190 + b"b")
    assert time.process_time() - began < 1, "steps grow with name times pattern, not with each star"


@pytest.mark.parametrize(
    ("pattern", "base"),
    [
        ("/logs/run7/*.log", "/logs/run7"),
        ("/logs/*/rank0.log", "/logs"),
        ("/logs/run7/rank0.log", "/logs/run7"),
        ("/*.log", "/"),
        ("/rank0.log", "/"),
    ],
)
def test_the_folder_that_people_named_ends_before_the_first_wildcard(pattern: str, base: str) -> None:
    assert base_of(pattern) == base


def read_here(*patterns: str, python: str = "") -> RankLogs:
    """What rank.log makes of these patterns on this machine."""

    async def all_of_it() -> list[Any]:
        plan = suites.suite_or_probe("rank.log").plan(patterns)
        return [item async for item in (local.ask(plan, python=python) if python else local.ask(plan))]

    (capture,) = [item for item in asyncio.run(all_of_it()) if isinstance(item, Capture)]
    assert capture.outcome == "ok", capture.why
    return parse(capture.text)


def given(read: RankLogs) -> dict[str, RankLog]:
    """Logs of given paths by file; others may be of jobs that run on this machine."""
    return {log.file: log for log in read.logs if log.how == GIVEN}


@pytest.mark.parametrize("python", old_and_new_pythons())
def test_files_of_ranks_that_are_gone_are_read_and_their_ranks_known(tmp_path: Path, python: str) -> None:
    folder = tmp_path / "läufe [1]" / "run7"
    folder.mkdir(parents=True)
    (folder / "rank_7.log").write_text(DIED)
    (folder / "rank_8.log").write_text("RuntimeError: CUDA error: unknown error\n")
    (folder / "rank_1.log").write_text(DIED + DIED.replace("rank7", "rank6") + "NCCL version 2.27.7+cuda12.8\n")
    (folder / "train.out").write_text(DIED)
    (folder / "notes.txt").write_text(DIED)
    read = read_here(f"{tmp_path}/läufe [1]/*/*.log", f"{folder}/train.out", f"{folder}/none-*", python=python)
    found = given(read)
    assert {Path(file).name: log.rank for file, log in found.items()} == {
        "rank_7.log": 7,
        "rank_8.log": 8,
        "rank_1.log": None,  # its lines are of ranks 6 and 7: the number counts nodes
        "train.out": None,
    }
    assert [event.rank for event in found[str(folder / "train.out")].events] == [7]
    assert found[str(folder / "rank_8.log")].events[0].rank == 8
    assert [path.fits for path in read.given] == [3, 1, 0]
    assert read.host == os.uname().nodename


def test_nothing_beside_the_patterns_is_read(tmp_path: Path) -> None:
    inside, outside = tmp_path / "logs", tmp_path / "elsewhere"
    for folder in (inside / "a", inside / ".git", outside):
        folder.mkdir(parents=True)
        (folder / "rank_1.log").write_text(DIED)
    (inside / ".rank_2.log").write_text(DIED)
    (inside / "link_3.log").symlink_to(outside / "rank_1.log")
    (inside / "link_4.log").symlink_to(inside / "a" / "rank_1.log")
    (inside / "b").symlink_to(outside)
    (inside / "c").symlink_to("/etc")
    (inside / "folder.log").mkdir()
    os.mkfifo(inside / "pipe.log")
    logs = given(read_here(f"{inside}/*/*", f"{inside}/*.log", f"{inside}/*/passwd"))
    assert set(logs) == {str(inside / "a" / "rank_1.log"), str(inside / "link_3.log")}, "link_4.log is the first"
    refused = logs[str(inside / "link_3.log")]
    assert (refused.kept, refused.events) == ("unread", ())
    assert refused.why == f"it leads out of {inside}"


def test_a_link_that_people_name_as_the_folder_is_followed_and_one_within_it_that_stays_inside(tmp_path: Path) -> None:
    (tmp_path / "run7" / "node1").mkdir(parents=True)
    (tmp_path / "run7" / "node1" / "rank_1.log").write_text(DIED)
    (tmp_path / "run7" / "current.log").symlink_to("node1/rank_1.log")
    (tmp_path / "latest").symlink_to("run7")
    assert [log.kept for log in given(read_here(f"{tmp_path}/latest/*.log")).values()] == ["read"]


def read_later(path: Path, base: Path) -> dict[str, Any]:
    """What reading gives when the file was replaced after it was listed."""
    place = {"path": str(path), "file": str(path), "base": str(base)}
    (result,) = isolate([("read", reader(place, 12000))], 5)
    assert result["outcome"] == "ok", result["why"]
    said: dict[str, Any] = json.loads(result["text"].partition("\n")[0]) if result["text"] else {}
    return said


def test_what_took_a_files_place_after_it_was_listed_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.log")
    (tmp_path / "shadow.log").symlink_to("/etc/shadow")
    (tmp_path / "device.log").symlink_to("/dev/zero")
    assert read_later(tmp_path / "pipe.log", tmp_path)["why"] == "it is not a regular file"
    assert read_later(tmp_path / "device.log", tmp_path)["why"] == "it is not a regular file"
    assert read_later(tmp_path / "shadow.log", tmp_path)["why"] == f"it leads out of {tmp_path}"
    assert read_later(Path("/etc/passwd"), Path("/"))["outcome"] == "failed", "not even where / was the folder"
    assert read_later(tmp_path / "gone.log", tmp_path) == {}


@pytest.mark.needs_root
@pytest.mark.parametrize("pattern", ["*.log", "rank_7.log"])
def test_a_folder_that_the_login_may_not_look_into_is_said(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "rank_7.log").write_text(DIED)
    tmp_path.chmod(0o700)

    def as_nobody() -> str:
        os.setuid(65534)
        return _lister(f"{tmp_path}/{pattern}")()

    (result,) = isolate([("list", as_nobody)], 5)
    told = {"fits": 0, "files": [], "why": "this login may not look into some of its folders"}
    assert json.loads(result["text"]) == told


def test_a_file_whose_opening_blocks_costs_its_own_row_only(tmp_path: Path) -> None:
    """A lease (fcntl(2), F_SETLEASE) holds every open(2) up, as a file server does that does not answer."""
    for name in ("rank_6.log", "rank_7.log"):
        (tmp_path / name).write_text(DIED)
    command = [sys.executable, "-c", LEASE, str(tmp_path / "rank_6.log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        try:
            if not holder.stdout or holder.stdout.readline() != b"\n":
                pytest.skip("cannot run here: this file system has no leases")
            kept = {Path(file).name: log.kept for file, log in given(read_here(f"{tmp_path}/*.log")).items()}
        finally:
            holder.kill()
    assert kept == {"rank_6.log": "unread", "rank_7.log": "read"}


def test_of_a_huge_file_the_beginning_and_the_end_are_read(tmp_path: Path) -> None:
    with open(tmp_path / "rank_7.log", "wb") as log:
        log.write(b"NCCL version 2.27.7+cuda12.8\n")
        log.seek(20 << 30)
        log.write(b"\n" + DIED.encode())
    (log_,) = given(read_here(f"{tmp_path}/*")).values()
    assert [event.kind for event in log_.events] == ["nccl_version", "cuda_error"]
    assert log_.size_bytes == (20 << 30) + 1 + len(DIED)
    assert (log_.read_bytes or 0) <= HEAD + TAIL


def test_hostile_names_stay_names(tmp_path: Path) -> None:
    names = [b"a\n==> log 0 <==\n.log", b"\xff\xfe.log", b"\x1b[31m\xe2\x80\xae.log", b"'; reboot #.log"]
    for name in names:
        (tmp_path / os.fsdecode(name)).write_bytes(DIED.encode())
    logs = given(read_here(f"{tmp_path}/*.log"))
    assert len(logs) == len(names)
    for file, log in logs.items():
        assert log.kept == "read" and log.events[0].rank == 7
        assert "\x1b" not in file and file.encode()


def test_of_many_files_the_newest_are_read_and_what_is_left_off_is_told(tmp_path: Path) -> None:
    now = time.time()
    for number in range(MANY_FILES + 6):
        (tmp_path / f"rank_{number}.log").write_text(DIED)
        os.utime(tmp_path / f"rank_{number}.log", (now - number, now - number))
    read = read_here(f"{tmp_path}/*.log")
    kept = {int(Path(file).stem[5:]) for file in given(read)}
    assert kept == set(range(len(kept))) and MANY_FILES // 2 <= len(kept) <= MANY_FILES
    assert read.left_off >= MANY_FILES + 6 - len(kept)
    assert read.given[0].fits == MANY_FILES + 6
    assert "rank.log_paths_left_off" in {finding.code for finding in findings(read)}


def test_files_of_a_run_of_days_ago_are_left_off(tmp_path: Path) -> None:
    for name, age in (("rank_1.log", 0), ("rank_2.log", 80_000), ("rank_3.log", 100_000)):
        (tmp_path / name).write_text(DIED)
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    assert sorted(Path(file).name for file in given(read_here(f"{tmp_path}/*"))) == ["rank_1.log", "rank_2.log"]


def test_paths_that_lead_to_nothing_are_told(tmp_path: Path) -> None:
    read = read_here(f"{tmp_path}/none/*.log")
    told = {finding.code: finding for finding in findings(read)}
    assert told["rank.log_path_empty"].severity == "warn"
    assert f"no file on this node fits log path {tmp_path}/none/*.log" in told["rank.log_path_empty"].says


@pytest.mark.parametrize("section", ['"x"', '[{"pattern": 7, "fits": true}, 3]', '[{"why": null}]'])
def test_a_node_that_lies_about_the_paths_breaks_nothing(section: str) -> None:
    index = f'{{"ranks": [], "streams": [], "given": {section}, "host": ["x"], "left_off": -3}}'
    list(findings(parse(f"==> golden15/rank-logs <==\n{index}\n")))


# Whose rank it is


def node(name: str, *logs: tuple[str, str], host: str = "", fits: int | None = 1) -> Reading:
    """The reading of rank.log of a node that read these files, (file, text), by a given path."""
    index = {"ranks": [], "streams": [], "host": host or name, "left_off": 0, "now": 1795961000, "utc_offset_s": 0}
    index["given"] = [{"pattern": "/logs/*", "fits": fits, "why": ""}]
    parts = [f"==> golden15/rank-logs <==\n{json.dumps(index)}\n"]
    for number, (file, text) in enumerate(logs):
        place = {"file": file, "how": GIVEN, "rank": None, "pid": None, "writers": [], "deleted": False, "job": ""}
        facts = {"outcome": "ok", "size": len(text), "read": len(text), "skipped": 0, "mtime": 1795961000}
        lines = "\n".join(f"{at} {row}" for at, row in enumerate(text.splitlines()))
        parts.append(f"==> log {number} <==\n{json.dumps(place)}\n{json.dumps(facts)}\n{lines}\n")
    return catalog.read(Capture(name, "rank.log", "ok", "\n".join(parts).encode()))


def first(*readings: Reading) -> tuple[str, dict[str, Any], list[str]]:
    """(cause, subject, nodes whose reading it rests on) of the likeliest hypothesis."""
    top = diagnose(seen(reading) for reading in readings).verdict.hypothesis
    return top.cause, dict(top.subject), [reason.reading.partition("/")[0] for reason in top.because]


SHARED = [
    ("/logs/rank_0.log", torchrun_list(0, "gpu-001", "1 (pid: 14) ")),
    ("/logs/rank_1.log", torchrun_list(1, "gpu-002")),
]


def test_who_reads_a_common_file_is_not_where_its_rank_ran() -> None:
    readings = [node(name, *SHARED) for name in ("gpu-001", "gpu-002", "gpu-003")]
    assert first(*readings) == ("fw.rank_exited", {"rank": 1, "node": "gpu-002"}, ["gpu-002"])
    assert first(*reversed(readings)) == ("fw.rank_exited", {"rank": 1, "node": "gpu-002"}, ["gpu-002"])


def test_a_node_is_known_by_its_own_name_with_or_without_a_domain() -> None:
    logs = [("/logs/rank_1.log", torchrun_list(1, "node17.cluster.example"))]
    readings = [node("gpu-001", *logs, host="node16"), node("gpu-002", *logs, host="node17")]
    assert first(*readings)[1] == {"rank": 1, "node": "gpu-002"}


def test_where_nothing_tells_the_node_none_is_named() -> None:
    logs = [("/logs/rank_1.log", torchrun_list(1, "trainer-worker-1"))]
    assert first(node("gpu-001", *logs), node("gpu-002", *logs))[1] == {"rank": 1}
    assert first(node("gpu-001", *logs))[1] == {"rank": 1}, "the others may only not have answered yet"
    twice = [node("gpu-001", *logs, host="trainer-worker-1"), node("gpu-002", *logs, host="trainer-worker-1")]
    assert first(*twice)[1] == {"rank": 1}


def test_the_one_of_several_nodes_that_has_the_file_on_its_own_disk_is_its_ranks_node() -> None:
    own = node("gpu-002", ("/logs/rank_1.log", torchrun_list(1, "trainer-worker-1")))
    assert first(node("gpu-001", fits=0), own)[1] == {"rank": 1, "node": "gpu-002"}
    assert first(node("gpu-001", fits=None), own)[1] == {"rank": 1}, "gpu-001 could not look"


def test_a_node_tells_of_its_own_ranks_where_it_can_read_the_logs_of_all() -> None:
    def told(reading: Reading) -> set[Any]:
        return {finding.subject.get("rank") for finding in reading.findings}

    assert [told(node(name, *SHARED)) for name in ("gpu-001", "gpu-002")] == [{0}, {1}]
    assert told(node("gpu-003", *SHARED)) == {0, 1}, "its name is none of theirs: they may be names of containers"


def test_logs_of_several_nodes_are_one_evidence() -> None:
    job = Evidence(seen(node(name, *SHARED)) for name in ("gpu-001", "gpu-002", "gpu-003")).job
    assert len(list(job.said("torchrun_failure"))) == 2
    assert [len(job.ranks[rank].logs) for rank in (0, 1)] == [1, 1]
