"""Captures from a folder: the form of drills, regression tests and evidence bundles.

FOLDER/<node>/<probe>.out        what the probe printed
FOLDER/<node>/captures.json      {probe: {"outcome": ..., "why": ..., "at": ..., ...}}; without it, each .out is ok
FOLDER/stages/<stage>/look-<n>/  later looks, each a folder like this one; what one lacks the look before it tells
FOLDER/golden15/, drill.toml     what tells about it: no node, no capture
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from probes.core import ABOUT, STAGES, Capture, node_folders, saved_capture

_META = tuple(field.name for field in dataclasses.fields(Capture) if field.name not in ("node", "probe", "out"))


class BundleError(ValueError):
    """The folder is not a bundle of captures. Says which file, what is wrong, and what was expected."""


def check_free(folder: Path) -> None:
    """Raises BundleError when `folder` holds something: two runs in one folder would be read as one."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BundleError(f"{folder} is not empty: save into a new folder, so that no evidence is mixed or overwritten")


def save(folder: Path, captures: Iterable[Capture]) -> int:
    """Write captures into an empty `folder` in the form above; returns how many. It is made if it is missing."""
    meta: dict[str, dict[str, Any]] = {}
    count = 0
    for capture in captures:
        place = folder / folder_of(capture.node)
        place.mkdir(parents=True, exist_ok=True)
        if capture.out:
            (place / f"{_safe(capture.probe)}.out").write_bytes(capture.out)
        meta.setdefault(capture.node, {})[capture.probe] = told(capture)
        count += 1
    for node, probes in meta.items():
        (folder / folder_of(node) / "captures.json").write_text(as_text(probes))
    return count


def told(capture: Capture) -> dict[str, Any]:
    """What captures.json holds of one capture: all but its output, what is empty left out."""
    return {name: value for name in _META if (value := getattr(capture, name)) not in (None, "", False)}


def as_text(probes: dict[str, dict[str, Any]]) -> str:
    """The content of one captures.json."""
    return json.dumps(probes, indent=1, sort_keys=True) + "\n"


def folder_of(node: str) -> str:
    """The name of a node's folder: never one that a recording or a bundle has for something else."""
    safe = _safe(node)
    return f"{safe}_" if safe.lower() in (ABOUT, STAGES) else safe


def captures(folder: Path) -> Iterator[Capture]:
    """Every capture of a folder, nodes and probes in order of their names. Raises BundleError."""
    if not folder.is_dir():
        raise BundleError(f"{folder}: no such folder; expected FOLDER/<node>/<probe>.out")
    if not any(place.is_dir() for place in folder.iterdir()):
        raise BundleError(f"{folder}: holds no node folders; expected FOLDER/<node>/<probe>.out")
    empty = True
    for name in nodes(folder):
        empty = False
        yield from of_node(folder, name)
    if empty:
        raise BundleError(f"{folder}: its folders hold no captures; expected FOLDER/<node>/<probe>.out")


def nodes(folder: Path) -> list[str]:
    """The nodes that a folder holds captures of, by name."""
    return [place.name for place in node_folders(folder)]


def of_node(folder: Path, node: str) -> Iterator[Capture]:
    """The captures of one node, in the order of the probes' names; none when it is not there. Raises BundleError."""
    place = folder / _safe(node)
    meta = _meta(place / "captures.json")
    outs = {file.stem: file for file in place.glob("*.out")}
    for probe in sorted({*outs, *meta}):
        out = outs[probe].read_bytes() if probe in outs else b""
        yield _capture(place, probe, out, meta.get(probe, {"outcome": "ok"}))


def answers(folder: Path, node: str, stage: str = "", look: int = 1) -> dict[str, Capture]:
    """What a recording answers for a node, by probe: at a look of a stage, from 1 on. What that look lacks the look
    before it tells, and the first captures in the end. After its last look the last two answer in turn, so that a job
    which advanced is seen to advance again. Raises BundleError."""
    places = _looks(folder, stage) if stage else []
    if look > len(places) > 1:
        look = len(places) - (look - len(places)) % 2
    found: dict[str, Capture] = {}
    for place in (folder, *places[:look]):
        found.update((capture.probe, capture) for capture in of_node(place, node))
    return found


def _looks(folder: Path, stage: str) -> list[Path]:
    """The looks of a stage, in order."""
    places = [place for place in (folder / STAGES / _safe(stage)).glob("look-*") if place.name[5:].isdecimal()]
    return sorted(places, key=lambda place: int(place.name[5:]))


def _capture(place: Path, probe: str, out: bytes, said: Any) -> Capture:
    try:
        return saved_capture(place.name, probe, out, said)
    except ValueError as error:
        raise BundleError(f"{place}/captures.json: {error}") from None


def _meta(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        meta = json.loads(file.read_text())
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{file}: is not JSON: {error}") from None
    if not isinstance(meta, dict):
        raise BundleError(f"{file}: expected an object {{probe: {{...}}}}")
    return meta


def _safe(name: str) -> str:
    """A node's name as a folder name: never a path, whatever the name holds."""
    safe = "".join(c if c.isalnum() or c in "._-" else "_" for c in name)
    return safe if safe.strip(".") else "_"
