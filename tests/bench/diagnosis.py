"""The whole diagnosis of a job of 8 ranks a node: all readings at once, and again with a few new ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from probes import catalog
from probes.diagnosis import Diagnoser
from probes.diagnosis.core import seen
from tests.bench.measure import Cost, call
from tests.bench.rows import Row
from tests.lab.drills import port_down
from tests.lab.drills.cluster import Node, t0_of

NEW = 4  # nodes of which new readings come


def diagnosis(folder: Path, quick: bool) -> Iterator[Row]:
    """The first verdict over everything, and the next one after new readings of a few nodes."""
    count = 64 if quick else 1024
    nodes = tuple(
        Node(port_down.NAME, f"gpu-{number:04}", number, t0_of(port_down.NAME)) for number in range(1, count + 1)
    )
    readings = [seen(catalog.read(capture)) for capture in port_down.look_at(nodes)]
    names, told = [node.name for node in nodes], Diagnoser()
    cost, found = call(lambda: told.diagnose(readings, names))
    assert found.verdict.hypothesis.cause == "ib.link_down", found.verdict
    yield Row(f"{count:,} nodes, {len(readings):,} readings judged", "Golden15", Cost(cost, 0, 0), "2 s")
    newer = [
        dataclasses.replace(one) if one.node in names[-NEW:] and one.probe == "host.load" else one for one in readings
    ]
    cost, found = call(lambda: told.diagnose(newer, names))
    assert found.verdict.hypothesis.cause == "ib.link_down", found.verdict
    yield Row(f"again, with new readings of {NEW} nodes", "Golden15", Cost(cost, 0, 0))
