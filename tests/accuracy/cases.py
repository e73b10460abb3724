"""The cases of tests/cases: the truth of each, and a copy of its evidence under a name that tells nothing.

Errors   ValueError for a case that is not in the form of tests/cases/README.md
"""

from __future__ import annotations

import hashlib
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

FOLDER = Path(__file__).parents[1] / "cases"
LANES = ("hardware", "communication", "framework", "none")
NOTHING = ("none", "unknown")
SUBJECT = ("node", "rank", "gpu", "bus_id", "hca", "port", "switch", "group")

Split = Literal["test", "tuning"]
Truth = Mapping[str, str | int]


@dataclass(frozen=True, slots=True)
class Case:
    """`accepted`: what is right, each a cause and the parts of a subject that must be equal. `second`: faults that are
    there too and must be among the first three."""

    name: str
    title: str
    lane: str
    real: bool
    source: str
    licence: str
    accepted: tuple[Truth, ...]
    second: tuple[Truth, ...]
    evidence: Path
    split: Split

    @property
    def control(self) -> bool:
        """Nothing is wrong, or nothing can be decided."""
        return all(truth["cause"] in NOTHING for truth in self.accepted)


def cases(folder: Path = FOLDER) -> list[Case]:
    """Every case of a folder, by name."""
    return [case(place.parent) for place in sorted(folder.glob("*/case.toml"))]


def split(folder: Path) -> Split:
    """Nobody's choice: by the name. For the test: half of tests/cases, no others."""
    odd = hashlib.sha256(folder.name.encode()).digest()[0] % 2 == 1
    return "test" if odd and folder.parent.resolve() == FOLDER else "tuning"


def case(folder: Path) -> Case:
    told = tomllib.loads((folder / "case.toml").read_text())
    unknown = set(told) - {"title", "lane", "real", "source", "licence", "accepted", "second", "evidence_from"}
    if unknown:
        raise ValueError(f"{folder.name}: case.toml has {', '.join(sorted(unknown))}, which means nothing")
    try:
        accepted, second = _truths(told["accepted"]), _truths(told.get("second", []))
        words = {key: told[key] for key in ("title", "lane", "real", "source", "licence")}
    except KeyError as error:
        raise ValueError(f"{folder.name}: case.toml lacks {error}") from None
    evidence = (folder / told.get("evidence_from", "evidence")).resolve()
    if words["lane"] not in LANES or not accepted or not evidence.exists():
        raise ValueError(f"{folder.name}: needs a lane of {', '.join(LANES)}, an accepted cause, and evidence")
    return Case(folder.name, accepted=accepted, second=second, evidence=evidence, split=split(folder), **words)


def _truths(rows: list[dict[str, Any]]) -> tuple[Truth, ...]:
    for row in rows:
        if wrong := set(row) - {"cause", *SUBJECT}:
            raise ValueError(f"a truth has a cause and {', '.join(SUBJECT)}; found {', '.join(sorted(wrong))}")
    return tuple(rows)


@contextmanager
def neutral(one: Case) -> Iterator[Path]:
    """A copy of the evidence in a folder whose name says nothing, with its times."""
    with TemporaryDirectory() as folder:
        place = Path(folder) / "incident"
        shutil.copytree(one.evidence, place)
        yield place
