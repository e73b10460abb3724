"""`python -m probes explain`: from files to a verdict.

The truths were worked out from what each recorded job does (its program, and which rank was made to misbehave): see
tests/fixtures/hangs/README.md. None comes from the rules.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from probes.diagnosis import Diagnosis, Hypothesis, Reason
from probes.diagnosis.paths import paths
from probes.diagnosis.ranking import Ranked, causes
from probes.diagnosis.telling import SCHEMA, rounded
from probes.explain import NO_CAUSE, Explained, explain, explained_as_json, show

BASE = Path(__file__).parent.parent
HANGS = BASE / "tests" / "fixtures" / "hangs"

# case -> (cause, rank)
TRUTHS: dict[str, tuple[str, int | None]] = {
    "skip": ("fw.collective_mismatch", 1),  # one ahead, so it runs the next one where the others run this one
    "order": ("fw.collective_mismatch", 1),
    "order_of_groups": ("fw.group_order_cycle", 1),
    "p2p": ("fw.rank_missing_collective", 1),
    "skip_same": ("fw.rank_missing_collective", 1),  # all are alike, so only the count tells
    "skip_detail": ("fw.collective_mismatch", 1),  # each line blames another; most blame rank 1
    "sigstop": ("fw.rank_stopped", 1),
    "sigkill": ("fw.rank_exited", 1),
    "loader_slow": ("cpu.dataloader_starved", 1),
    "loader_gil": ("cpu.dataloader_starved", 1),
    "loader_gil0": ("cpu.dataloader_starved", 1),
    "nan_rs": ("fw.nan_gradient", 1),
    "ddp_unused": ("fw.unused_parameters", 1),
    "monitored_barrier": ("fw.rank_missing_collective", 1),  # torchrun blames the one that reports it
    "shape": ("fw.collective_shape_mismatch", 1),
    "dtype": ("fw.collective_shape_mismatch", 1),  # the abort is on rank 0, which is innocent
    "async_barrier": ("fw.collective_mismatch", 0),
    "async_ok": ("none", None),
}
# What the rules do not get right yet, and why. A rule that does makes the test fail here: then the line goes.
CASES = list(TRUTHS)
# Those whose evidence is stacks, dumps and /proc alone.
WITHOUT_LOGS = ("skip", "order", "skip_same", "sigstop", "loader_slow", "loader_gil", "loader_gil0", "async_barrier")


def verdict(*paths: Path) -> tuple[str, int | None]:
    found = explain(paths).diagnosis.verdict.hypothesis
    rank = found.subject.get("rank")
    return found.cause, rank if isinstance(rank, int) else None


def command(*words: object) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "probes", "explain", *map(str, words)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, cwd=BASE)


# Other layouts of the same files


def _short(case: Path, into: Path) -> None:
    for path in case.iterdir():
        shutil.copy(path, into / re.sub(r"rank_?(\d)", r"r\1", path.name))


def _folder_per_rank(case: Path, into: Path) -> None:
    for path in case.iterdir():
        rank = re.search(r"rank_?(\d)", path.name)
        folder = into / (f"rank_{rank[1]}" if rank else "job")
        folder.mkdir(exist_ok=True)
        shutil.copy(path, folder / re.sub(r"_?rank_?\d", "", path.name))


def _folder_per_kind(case: Path, into: Path) -> None:
    for path in case.iterdir():
        folder = into / "2026-11-29" / path.name.partition("_")[0]
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder)


def _tar(case: Path, into: Path) -> None:
    with tarfile.open(into / "evidence.tar.gz", "w:gz") as tar:
        tar.add(case, "home/user/evidence")


def _without_names(case: Path, into: Path) -> None:
    """Only content tells whose each is: marks in lines, pids, threads."""
    for number, path in enumerate(sorted(case.iterdir(), key=lambda path: path.name[::-1])):
        shutil.copy(path, into / (f"{'abcdefghijklmnopqrstuvwxyz'[number % 26]}{'x' * (number // 26)}{path.suffix}"))


LAYOUTS = (_short, _folder_per_rank, _folder_per_kind, _tar, _without_names)


@pytest.mark.parametrize("case", CASES)
def test_the_verdict_on_a_recorded_hang_is_what_was_done_to_the_job(case: str) -> None:
    assert verdict(HANGS / case) == TRUTHS[case]


# Recorded without logs and pids: then only the names of the files tell the ranks.
BY_NAME = ("order_of_groups", "p2p")
LAID_OUT = [(case, way) for way in LAYOUTS for case in CASES if way is not _without_names or case not in BY_NAME]


@pytest.mark.parametrize(("case", "layout"), LAID_OUT, ids=[f"{case}-{way.__name__}" for case, way in LAID_OUT])
def test_names_and_folders_do_not_change_the_verdict(
    case: str, layout: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    layout(HANGS / case, tmp_path)
    assert verdict(tmp_path) == TRUTHS[case]


@pytest.mark.parametrize("case", [*WITHOUT_LOGS, "nan_rs"])
def test_without_logs_stacks_and_dumps_decide(case: str, tmp_path: Path) -> None:
    for path in (HANGS / case).iterdir():
        if not path.name.endswith((".log", "error.json")):
            shutil.copy(path, tmp_path)
    # That the rank saw NaN stands only in its log.
    assert verdict(tmp_path) == (("fw.rank_missing_collective", 1) if case == "nan_rs" else TRUTHS[case])


@pytest.mark.parametrize("case", ["skip_same", "sigstop", "loader_slow", "loader_gil", "loader_gil0", "nan_rs"])
def test_the_rank_without_files_is_the_one_that_the_others_wait_for(case: str, tmp_path: Path) -> None:
    """torch's own analyser stops when a file is missing; the culprit's is the one that usually is. Of the stopped one a
    table of processes is left, which shows that somebody is stopped, and not who."""
    for path in (HANGS / case).iterdir():
        if not re.search(r"rank_?1", path.name) and path.suffix != ".log":
            shutil.copy(path, tmp_path)
    assert verdict(tmp_path) == (("fw.rank_stopped", None) if case == "sigstop" else ("fw.rank_missing_collective", 1))


@pytest.mark.parametrize("case", ["skip_same", "sigstop", "loader_slow", "loader_gil", "loader_gil0", "nan_rs"])
def test_a_bystander_without_files_is_not_blamed(case: str, tmp_path: Path) -> None:
    for path in (HANGS / case).iterdir():
        if not re.search(r"rank_?2", path.name):
            shutil.copy(path, tmp_path)
    assert verdict(tmp_path) == TRUTHS[case]


def test_two_ranks_that_disagree_are_both_told_and_none_is_blamed(tmp_path: Path) -> None:
    for path in (HANGS / "skip").iterdir():
        if not re.search(r"rank_?2", path.name):
            shutil.copy(path, tmp_path)
    assert verdict(tmp_path) == ("fw.collective_mismatch", None)


def test_what_somebody_concluded_changes_nothing(tmp_path: Path) -> None:
    shutil.copytree(HANGS / "skip_same", tmp_path, dirs_exist_ok=True)
    before = explained_as_json(explain([tmp_path]))["hypotheses"]
    (tmp_path / "outcome.txt").write_text("rank 2 was killed\n[rank2]: Signal 9 (SIGKILL) received by PID 1\n")
    assert explained_as_json(explain([tmp_path]))["hypotheses"] == before


# The JSON


@pytest.fixture(scope="module")
def said() -> dict[str, Any]:
    done = command("tests/fixtures/hangs/sigstop", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_json_has_the_fields_that_are_documented_and_no_others(said: dict[str, Any]) -> None:
    fields = "schema verdict hypotheses paths chains differences flow speeds failed unread"
    assert set(said) == set(fields.split())
    assert said["schema"] == SCHEMA == 1
    for one in said["hypotheses"]:
        assert set(one) == {
            "cause", "subject", "probability", "says", "because", "against", "would_change",
            "consequences", "runbook"}  # fmt: skip
        assert one["cause"] in causes()
        assert set(one["subject"]) <= {"node", "rank", "gpu", "bus_id", "hca", "port", "switch", "group"}
        assert one["runbook"] is None
        for reason in one["because"] + one["against"]:
            assert set(reason) == {"says", "reading"}
            assert (BASE / reason["reading"]).exists(), "a file, or the folder in which one is missing"
    assert set(said["paths"]) == {path["id"] for path in paths()}
    for path in said["paths"].values():
        assert set(path) == {"title", "lane", "state", "steps"}
    assert {frozenset(one) for one in said["unread"]} == {frozenset(("file", "why"))}


def test_the_first_hypothesis_is_the_verdict_and_the_shares_sum_to_one(said: dict[str, Any]) -> None:
    shares = [one["probability"] for one in said["hypotheses"]]
    assert said["verdict"] == said["hypotheses"][0]["cause"] == "fw.rank_stopped"
    assert shares == sorted(shares, reverse=True)
    assert abs(sum(shares) - 1) < 1e-9
    assert {"none", "unknown"} <= {one["cause"] for one in said["hypotheses"]}


@pytest.mark.parametrize(
    "shares", [[1 / 3] * 3, [1 / 7] * 7, [0.99996, 0.00003, 0.00001], [1.0], [0.5, 0.49999, 0.00001]]
)
def test_rounding_keeps_the_sum(shares: list[float]) -> None:
    units = [round(share * 10_000) for share in rounded(shares)]
    assert sum(units) == 10_000
    assert all(abs(unit / 10_000 - share) < 1e-4 for unit, share in zip(units, shares, strict=True))


def test_the_page_shows_what_is_printed() -> None:
    page = (BASE / "docs" / "explain.md").read_text()
    (line,) = re.findall(r"^\.venv/bin/python -m probes explain (tests/.*)$", page, re.MULTILINE)
    (example,) = map(json.loads, re.findall(r"^```json\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    printed = json.loads(command(*line.split()).stdout)
    assert example["verdict"] == printed["verdict"]
    assert example["unread"] == printed["unread"][:1]
    first, shown = printed["hypotheses"][0], example["hypotheses"][0]
    assert {key: first[key] for key in ("cause", "subject", "says")} == {
        key: shown[key] for key in ("cause", "subject", "says")
    }
    assert shown.keys() == first.keys()
    for name, path in example["paths"].items():
        assert path["state"] == printed["paths"][name]["state"]


# The command


def test_people_are_told_the_verdict_its_reasons_and_what_was_not_read() -> None:
    done = command("tests/fixtures/hangs/loader_slow")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0].startswith("Rank 1 waits for its data loader")
    assert ">99 %  cpu.dataloader_starved" in lines[1]
    assert "pyspy_nb_rank1.json" in done.stdout
    for lane in ("Hardware", "Communication", "Framework"):
        assert lane in lines
    assert "outcome.txt: says what somebody wrote about it" in done.stdout


def test_the_exit_status_tells_what_came_of_it(tmp_path: Path) -> None:
    done = command("tests/fixtures/hangs/skip/rank0_stderr.log")  # of one rank that only waits
    assert done.returncode == 3
    assert done.stdout.startswith("The evidence does not decide")
    done = command(tmp_path / "nothing-here")
    assert done.returncode == 2
    assert "nothing-here: No such file or directory" in done.stderr
    assert done.stdout == ""


def test_when_nothing_could_be_read_it_is_said_why(tmp_path: Path) -> None:
    whole = (HANGS / "ddp_unused" / "fr_exit_rank_0").read_bytes()
    (tmp_path / "nccl_trace_rank_0").write_bytes(whole[:400])
    (tmp_path / "README").write_text("see the wiki")
    done = command(tmp_path)
    assert done.returncode == 2
    assert "not one of these files could be read" in done.stderr
    assert "nccl_trace_rank_0: a flight-recorder dump that is not read: it ends too early" in done.stdout
    as_json = command(tmp_path, "--json")
    assert as_json.returncode == 2
    assert len(json.loads(as_json.stdout)["unread"]) == 2


def test_text_of_nodes_cannot_reach_the_terminal(tmp_path: Path) -> None:
    shutil.copytree(HANGS / "loader_slow", tmp_path, dirs_exist_ok=True)
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes().replace(b"TokenDataset", b"\x1b[31mT[bold]\xe2\x80\xaeken"))
    for path in list(tmp_path.glob("*.json")):
        path.write_text(path.read_text().replace("\x1b", "\\u001b"))
    (tmp_path / "odd\x1b[2Jname\nrank9.bin").write_bytes(b"\x7fELF" + bytes(99))
    done = command(tmp_path)
    assert done.stdout.startswith("Rank 1 waits for its data loader")
    for character in ("\x1b", "\u202e", "\r"):
        assert character not in done.stdout
    assert "T[bold]" in done.stdout  # shown, not obeyed


def test_what_a_rule_says_is_cleaned_once_more(capsys: pytest.CaptureFixture[str]) -> None:
    bad = "rank 1\x1b[31m is\u202e [bold]late\x07"
    reason = Reason(bad, "x.log")
    one = Hypothesis("unknown", {"rank": 1}, bad, (reason,), (), (reason,), (bad,))
    told = Explained(Diagnosis((Ranked(one, 1.0, (one,)),), {}, {}), 1, ())
    show(told)
    for text in (
        capsys.readouterr().out,
        *json.loads(json.dumps(explained_as_json(told)["hypotheses"]))[0]["would_change"],
    ):
        assert "[bold]late" in text
        assert not set(text) & {"\x1b", "\u202e", "\x07"}


@pytest.mark.parametrize("length", [0, 1, 100, 1000, 3000])
def test_files_that_are_cut_off_anywhere_are_survived(length: int, tmp_path: Path) -> None:
    for case in ("skip_same", "sigkill", "loader_slow"):
        for path in (HANGS / case).iterdir():
            (tmp_path / path.name).write_bytes(path.read_bytes()[:length])
        told = explain([tmp_path])
        assert told.diagnosis.failed == {}
        assert not [one for one in told.unread if "parser stopped" in one.why]


def test_where_the_evidence_does_not_decide_it_is_said_what_to_bring(tmp_path: Path) -> None:
    (tmp_path / "df.txt").write_text("Filesystem 1K-blocks Used Available Use% Mounted on\n/dev/sda1 100 10 90 10% /\n")
    done = command(tmp_path)
    assert done.returncode == NO_CAUSE
    assert "bring next  the log of each rank; nvidia-smi -q; dmesg -T; ibstat" in done.stdout
    assert "was not asked" not in done.stdout and "not answered yet" not in done.stdout, "nobody will answer later"
