"""Drills: recordings to train with. One drill is one folder here: drill.toml and <node>/<probe>.out.

Shape    Drill, from a folder (`load`) or by name (`named`); `drills()` lists all
Errors   DrillError, naming the file and the word (a broken TOML file also by line)

The folder's form is that of probes/transport/replay.py; docs/drills.md says how to add one. A folder of captures
without drill.toml (an evidence bundle) is a drill too: nothing is known of its truth.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from probes.core import STAGES, clean, node_folders
from probes.reference import rows
from probes.topology import Topology

HERE = Path(__file__).resolve().parent
DESCRIPTION, INCIDENT, EXPECTED = "drill.toml", "golden15/incident.json", "golden15/expected.json"
WORDS = {"title", "what", "says", "trains", "severity", "t0", "stood_s", "made", "truth", "decoys", "stage"}
NEEDED = ("title", "what", "says", "severity", "t0", "truth")
LONGEST = 300  # characters of a sentence
LONGEST_NAME = 60


class DrillError(ValueError):
    """The folder is no drill. Says which file and word, what is wrong, and what was expected."""


@dataclass(frozen=True, slots=True)
class Truth:
    """What the verdict must name: a cause of causes.toml, and at least these parts of its subject."""

    cause: str
    subject: Mapping[str, str | int]


@dataclass(frozen=True, slots=True)
class Decoy:
    """Something odd that is not the cause."""

    node: str
    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Stage:
    """A later part of the recording: it answers after a remedy or an option of a runbook (`after`)."""

    name: str
    after: str
    says: str


@dataclass(frozen=True, slots=True)
class Drill:
    """`what`: the job's name, "" when nothing tells it. `t0`: the recording's own T0. `stood_s`: seconds for which the
    job stood by then. `truth` is None for a bundle of evidence. `expected`: how its fabric should be, if told."""

    name: str
    folder: Path
    nodes: tuple[str, ...]
    title: str
    what: str
    says: str
    trains: str
    severity: int
    t0: datetime | None
    stood_s: float
    truth: Truth | None
    decoys: tuple[Decoy, ...]
    stages: tuple[Stage, ...]
    expected: Topology | None = None


def names(here: Path = HERE) -> list[str]:
    """Of every drill that Golden15 brings."""
    return sorted(place.parent.name for place in here.glob(f"*/{DESCRIPTION}"))


def drills(here: Path = HERE) -> list[Drill]:
    """All of them, the smallest first. Raises DrillError."""
    return sorted((load(here / name) for name in names(here)), key=lambda drill: (len(drill.nodes), drill.name))


def named(name: str, here: Path = HERE) -> Drill:
    """The drill of this name. Raises DrillError with the names that there are."""
    if name not in names(here):
        raise DrillError(f"no drill is called {name[:LONGEST_NAME]!r}. Drills: {', '.join(names(here))}")
    return load(here / name)


def load(folder: Path) -> Drill:
    """A drill or a bundle of evidence from its folder. Raises DrillError."""
    nodes = tuple(place.name for place in node_folders(folder))
    if not nodes:
        raise DrillError(f"{folder}: holds no captures; expected {folder.name}/<node>/<probe>.out")
    file = folder / DESCRIPTION
    drill = _described(folder, nodes, _toml(file), file) if file.is_file() else _bundle(folder, nodes)
    return replace(drill, expected=_expected(folder / EXPECTED))


def _expected(file: Path) -> Topology | None:
    if not file.is_file():
        return None
    try:
        return Topology.from_body(json.loads(file.read_text()))
    except (ValueError, RecursionError) as error:  # FormError is one
        raise DrillError(f"{file}: {error}") from None


def _toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DrillError(f"{file}: is not TOML: {error}") from None


def _described(folder: Path, nodes: tuple[str, ...], said: dict[str, Any], file: Path) -> Drill:
    _words(file, "", said, WORDS, NEEDED)
    t0, severity = said["t0"], said["severity"]
    if not isinstance(t0, datetime) or t0.tzinfo is None:
        raise DrillError(f"{file}: t0: expected a time with its zone, such as 2026-11-21T03:12:40Z, found {t0!r}")
    if severity not in (1, 2, 3, 4):
        raise DrillError(f"{file}: severity: expected 1 to 4, found {severity!r}")
    stood = said.get("stood_s", 0)
    if not isinstance(stood, int | float) or not 0 <= stood < 86_400:
        raise DrillError(f"{file}: stood_s: expected seconds of less than a day, found {stood!r}")
    stages = tuple(_stage(file, folder, row) for row in _rows(file, said, "stage"))
    return Drill(
        name=folder.name,
        folder=folder,
        nodes=nodes,
        title=_text(file, said, "title"),
        what=_text(file, said, "what"),
        says=_text(file, said, "says"),
        trains=_text(file, said, "trains") if "trains" in said else "",
        severity=severity,
        t0=t0,
        stood_s=float(stood),
        truth=_truth(file, said["truth"], nodes),
        decoys=tuple(_decoy(file, row, nodes) for row in _rows(file, said, "decoys")),
        stages=stages,
    )


def _words(file: Path, where: str, said: Any, known: set[str], needed: tuple[str, ...]) -> None:
    if not isinstance(said, dict):
        raise DrillError(f"{file}: {where}: expected a table, found {said!r}")
    front = f"{where}." if where else ""
    for word in said:
        if word not in known:
            raise DrillError(f"{file}: {front}{word} is not known here. Known: {', '.join(sorted(known))}")
    for word in needed:
        if word not in said:
            raise DrillError(f"{file}: {front}{word} is missing")


def _text(file: Path, said: Mapping[str, Any], word: str, where: str = "") -> str:
    value = said[word]
    if not isinstance(value, str) or not value.strip() or len(value) > LONGEST:
        raise DrillError(f"{file}: {where}{word}: expected a text of at most {LONGEST} characters, found {value!r:.80}")
    return value


def _rows(file: Path, said: Mapping[str, Any], word: str) -> list[Any]:
    value = said.get(word, [])
    if not isinstance(value, list):
        raise DrillError(f"{file}: {word}: expected tables [[{word}]], found {value!r:.80}")
    return value


def _of(file: Path, node: object, nodes: tuple[str, ...], where: str) -> str:
    if node not in nodes:
        raise DrillError(f"{file}: {where}: the recording has no node {node!r}")
    return str(node)


def _truth(file: Path, said: Any, nodes: tuple[str, ...]) -> Truth:
    _words(file, "truth", said, {"cause", "subject"}, ("cause", "subject"))
    if said["cause"] not in {row["id"] for row in rows("causes")}:
        raise DrillError(f"{file}: truth.cause: {said['cause']!r} is not in causes.toml")
    subject = said["subject"]
    if not isinstance(subject, dict) or not subject:
        raise DrillError(f"{file}: truth.subject: expected such as {{ node = 'gpu-017' }}, found {subject!r}")
    if "node" in subject:
        _of(file, subject["node"], nodes, "truth.subject.node")
    return Truth(said["cause"], subject)


def _decoy(file: Path, said: Any, nodes: tuple[str, ...]) -> Decoy:
    _words(file, "decoys", said, {"node", "what", "why"}, ("node", "what", "why"))
    node = _of(file, said["node"], nodes, "decoys.node")
    return Decoy(node, _text(file, said, "what", "decoys."), _text(file, said, "why", "decoys."))


def _stage(file: Path, folder: Path, said: Any) -> Stage:
    _words(file, "stage", said, {"name", "after", "says"}, ("name", "after", "says"))
    name = _text(file, said, "name", "stage.")
    if not name.replace("-", "").isalnum() or len(name) > LONGEST_NAME:
        raise DrillError(f"{file}: stage.name: expected letters, digits and dashes, found {name!r}")
    if not (folder / STAGES / name / "look-1").is_dir():
        raise DrillError(f"{file}: stage.name: there is no folder stages/{name}/look-1")
    return Stage(name, _text(file, said, "after", "stage."), _text(file, said, "says", "stage."))


def _bundle(folder: Path, nodes: tuple[str, ...]) -> Drill:
    """What an incident left: its title, job and severity where the bundle tells them."""
    told: dict[str, Any] = {}
    file = folder / INCIDENT
    if file.is_file():
        try:
            read = json.loads(file.read_text())
        except (ValueError, RecursionError) as error:
            raise DrillError(f"{file}: is not JSON: {error}") from None
        told = read if isinstance(read, dict) else {}
    title, job = (clean(words) if isinstance(words := told.get(key), str) else "" for key in ("title", "job"))
    severity = told.get("severity") if told.get("severity") in (1, 2, 3, 4) else 2
    return Drill(folder.name, folder, nodes, (title or folder.name)[:LONGEST], job[:200], "", "",
        int(severity or 2), None, 0.0, None, (), ())  # fmt: skip
