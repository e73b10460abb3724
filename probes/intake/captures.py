"""Captures among the files: folders that `python -m probes run --save` wrote, the output of one collector, sysfs trees.

Shape    Saved and Trees take items and give readings at the end; of_sections reads one collector's output
Errors   none: what is no capture is an Unread with why
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from probes import catalog
from probes.core import ABOUT, Capture, Reading, saved_capture, sections
from probes.intake.items import TEXT_BYTES, Item, Unread
from probes.intake.names import looks_like_a_node

META = "captures.json"
EXPECTED = "expected.json"  # there: how the fabric should be
BESIDE = ("incident.json", "timeline.json", "decisions.json", "review.md", "README.txt")  # in a bundle's folder ABOUT
# (part of a section's name, the probe whose collector writes such a section): the first that fits counts.
BY_SECTION = (
    ("golden15/tool", "rank.stack"),
    ("golden15/recorders", "rank.flight_recorder"),
    ("golden15/asked", "rank.flight_recorder_trigger"),
    ("golden15/rank-logs", "rank.log"),
    ("golden15/processes", "rank.process"),
    ("golden15/orphans", "rank.map"),
    ("golden15/scan", "rank.env"),
    ("golden15/amd", "gpu.amd"),
    ("golden15/nccl-files", "nccl.topology"),
    ("nvidia-smi", "gpu.state"),
    ("golden15/pci", "gpu.state"),
    ("infiniband/", "ib.ports"),
    ("journalctl", "host.kernel_log"),
    ("dmesg -", "host.kernel_log"),
    ("/bin/dmesg", "host.kernel_log"),
    ("/proc/self/mountinfo", "host.storage"),
    ("/proc/pressure/", "host.load"),
    ("/proc/loadavg", "host.load"),
    ("chronyc ", "host.clock"),
    ("ntpq ", "host.clock"),
    ("timedatectl", "host.clock"),
    ("poll 1", "nccl.ras"),
)
TREE_FILE, TREE_FILES = 4096, 20_000


_LATER = re.compile(r"(?:^|/)stages/[^/]+/look-\d+/[^/]+/[^/]+$")


def is_expected(item: Item) -> bool:
    """Whether it says how the fabric should be."""
    return _node(item) == ABOUT and item.name == EXPECTED


def beside(item: Item) -> bool:
    """Whether a file belongs to a recording and tells nothing of what was first seen: the description of a drill, its
    later looks, and what Golden15 itself wrote of the incident."""
    told = _node(item) == ABOUT and item.name in BESIDE
    return told or item.name == "drill.toml" or bool(_LATER.search(str(item.inside)))


class Saved:
    """FOLDER/<node>/<probe>.out with captures.json beside them; without it, each .out is ok."""

    def __init__(self) -> None:
        self._outs: dict[tuple[PurePosixPath, str], Item] = {}
        self._meta: dict[PurePosixPath, Item] = {}

    def take(self, item: Item) -> bool:
        """Whether it is of a saved capture."""
        place = item.inside.parent
        if item.name == META:
            item.upto(TEXT_BYTES)
            self._meta[place] = item
            return True
        if item.name.endswith(".out") and item.name[:-4] in catalog.load():
            item.upto(TEXT_BYTES)
            self._outs[place, item.name[:-4]] = item
            return True
        return False

    def readings(self) -> Iterator[tuple[str, Reading] | Unread]:
        """The captures, each with the file it is from. One without output stands in captures.json."""
        known = catalog.load()
        told = {place: self._told(item) for place, item in self._meta.items()}
        for place, said in told.items():
            if said is None:
                yield Unread(self._meta[place].ref, "expected an object {probe: {...}}, as `run --save` writes it")
        without = {(place, probe) for place, said in told.items() for probe in said or {}} - set(self._outs)
        for place, probe in [*self._outs, *sorted(without)]:
            item = self._outs.get((place, probe)) or self._meta[place]
            ref = item.ref if (place, probe) in self._outs else f"{item.ref}: {probe}"
            if probe not in known:
                yield Unread(ref, f"no probe here is called {probe}")
                continue
            out = item.data if (place, probe) in self._outs else b""
            node = _node(item)
            try:
                capture = saved_capture(node, probe, out, (told.get(place) or {}).get(probe, {"outcome": "ok"}))
            except ValueError as error:
                yield Unread(ref, str(error))
                continue
            reading = catalog.read(capture)
            if reading.parse_error:
                yield Unread(ref, reading.parse_error)
            yield ref, reading

    def asked(self) -> list[str]:
        """The nodes that have a captures.json, in order: they were asked, also those that it says nothing of."""
        return sorted({_node(item) for item in self._meta.values()} - {""})

    @staticmethod
    def _told(item: Item) -> dict[str, Any] | None:
        try:
            said = json.loads(item.data)
        except (ValueError, RecursionError):
            return None
        return said if isinstance(said, dict) else None


def _node(item: Item) -> str:
    """The node whose folder it lies in."""
    return item.path.absolute().parent.name if item.path is not None else item.inside.parent.name


def of_sections(item: Item, text: str) -> Reading | None:
    """The reading of one collector's output, by its sections. None when no probe writes such sections."""
    names = sections(text).keys()
    probe = next((probe for part, probe in BY_SECTION if any(part in name for name in names)), None)
    if probe is None or probe not in catalog.load():
        return None
    node = item.inside.parent.name
    node = node if looks_like_a_node(node) else ""
    return catalog.read(Capture(node, probe, "ok", text.encode("utf-8", "replace")))


class Trees:
    """Copies of /sys/class/infiniband: many small files, one reading of ib.ports per tree."""

    def __init__(self) -> None:
        self._files: dict[tuple[str, PurePosixPath], dict[str, str]] = {}

    def take(self, item: Item) -> bool:
        """Whether it is a file of such a tree."""
        parts = item.inside.parts
        if "infiniband" not in parts[:-2] or len(item.upto(TREE_FILE + 1)) > TREE_FILE:
            return False
        at = parts.index("infiniband")
        below = PurePosixPath(*parts[at + 1 :])
        root = item.ref[: len(item.ref) - len(str(below)) - 1]
        files = self._files.setdefault((root, PurePosixPath(*parts[:at])), {})
        if len(files) < TREE_FILES:
            files[f"/sys/class/infiniband/{below}"] = item.data.decode("utf-8", "replace")
        return True

    def readings(self) -> Iterator[tuple[str, Reading] | Unread]:
        for (root, above), files in self._files.items():
            text = "\n".join(f"==> {name} <==\n{body.rstrip()}\n" for name, body in files.items())
            node = next((part for part in reversed(above.parts) if looks_like_a_node(part)), "")
            reading = catalog.read(Capture(node, "ib.ports", "ok", text.encode("utf-8", "replace")))
            yield Unread(root, reading.parse_error) if reading.parse_error else (root, reading)
