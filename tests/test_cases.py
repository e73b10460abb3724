"""The cases that verdicts are measured on (tests/cases) keep to their form. How they are judged is not looked at."""

from __future__ import annotations

import re
import sys
import tarfile
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

BASE = Path(__file__).resolve().parent.parent
CASES = sorted(path.parent for path in (BASE / "tests" / "cases").glob("*/case.toml"))
CAUSES = {row["id"] for row in tomllib.loads((BASE / "probes/reference/causes.toml").read_text())["causes"]}
UNDECIDED = {"none", "unknown"}
LANES = {"hardware", "communication", "framework", "none"}
NEEDED = {"title": str, "lane": str, "real": bool, "source": str, "licence": str, "accepted": list}
OPTIONAL = {"second": list, "evidence_from": str}
SUBJECT = {"node": str, "rank": int, "gpu": int, "bus_id": str, "hca": str, "port": int, "switch": str, "group": str}
MOST_OF_A_CAUSE = 4
MOST_BYTES = 300_000
EACH = pytest.mark.parametrize("case", CASES, ids=lambda path: path.name)


@cache
def truth(case: Path) -> dict[str, Any]:
    return tomllib.loads((case / "case.toml").read_text())


def evidence(case: Path) -> Path:
    return (case / truth(case).get("evidence_from", "evidence")).resolve()


def contents(case: Path) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of each file of the evidence, those in archives included."""
    for path in sorted(evidence(case).rglob("*")):
        if path.is_file():
            yield path.name, path.read_bytes()
            if path.suffixes[-2:] == [".tar", ".gz"]:
                with tarfile.open(path) as archive:
                    for member in archive:
                        file = archive.extractfile(member)
                        yield member.name, file.read() if file else b""


NEUTRAL = "/srv/golden15"  # stands in recordings for where the checkout was


def own_paths() -> list[str]:
    """Where this checkout and its Python live: such a path in evidence came from the machine it was made on."""
    interpreter = sys.base_prefix if not sys.base_prefix.startswith("/usr") else ""
    own = (str(BASE), str(Path(sys.prefix).resolve()), interpreter)
    return [path for path in own if path and not path.startswith(NEUTRAL)]


def test_there_are_cases() -> None:
    assert CASES


@EACH
def test_a_case_says_what_it_is_in_the_known_words(case: Path) -> None:
    said = truth(case)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", case.name)
    assert NEEDED.keys() <= said.keys() <= NEEDED.keys() | OPTIONAL.keys()
    assert all(isinstance(said[key], kind) for key, kind in (NEEDED | OPTIONAL).items() if key in said)
    assert said["title"].strip() and "\n" not in said["title"]
    assert said["source"].strip() and said["licence"].strip()
    assert said["lane"] in LANES


@EACH
def test_a_case_blames_a_cause_of_the_closed_list_and_a_subject_of_known_keys(case: Path) -> None:
    said = truth(case)
    assert said["accepted"]
    for row in (*said["accepted"], *said.get("second", ())):
        assert row["cause"] in CAUSES
        assert row.keys() - {"cause"} <= SUBJECT.keys()
        assert all(type(value) is SUBJECT[key] for key, value in row.items() if key != "cause")


@EACH
def test_a_control_accepts_no_cause_beside_none_and_unknown(case: Path) -> None:
    accepted = {row["cause"] for row in truth(case)["accepted"]}
    assert accepted <= UNDECIDED or not accepted & UNDECIDED
    if accepted <= UNDECIDED:
        assert truth(case)["lane"] == "none"
        assert all(row.keys() == {"cause"} for row in truth(case)["accepted"])


@EACH
def test_the_evidence_is_there_once_and_small(case: Path) -> None:
    own = case / "evidence"
    assert own.is_dir() != ("evidence_from" in truth(case))
    assert evidence(case).is_relative_to(BASE / "tests")
    assert any(path.is_file() for path in evidence(case).rglob("*"))
    assert not any(path.is_symlink() for path in evidence(case).rglob("*"))
    if own.is_dir():
        assert sum(path.stat().st_size for path in own.rglob("*") if path.is_file()) <= MOST_BYTES


@EACH
def test_the_evidence_names_neither_its_case_nor_the_machine_it_was_made_on(case: Path) -> None:
    telling = [word.encode() for word in (case.name, *own_paths())]
    found = [(name, word) for name, data in contents(case) for word in telling if word in data or word in name.encode()]
    assert found == []


def test_no_cause_has_more_than_four_cases() -> None:
    """Counted by the first accepted cause; controls are as many as they are."""
    count = Counter(truth(case)["accepted"][0]["cause"] for case in CASES)
    assert {cause: n for cause, n in count.items() if n > MOST_OF_A_CAUSE and cause not in UNDECIDED} == {}
