"""One file of metrics as readings of host.load, one for each node that its series tell of.

Shape    node_files(item, text) -> NodeFiles
Errors   ParseError where no series is of a CPU
"""

from __future__ import annotations

import contextlib

from probes import catalog
from probes.core import Capture, ParseError, Reading
from probes.intake.brought import NodeFile
from probes.intake.container_tables import is_table
from probes.intake.items import HEAD, Item
from probes.intake.metric_facts import load_of

PROBE = "host.load"


def table_files(item: Item, text: str) -> list[NodeFile]:
    """What stands of containers' CPUs among lines that may be a log as well: the description of a pod has events."""
    if not is_table(text[:HEAD]):
        return []
    with contextlib.suppress(ParseError):
        return node_files(item, text)
    return []


def node_files(item: Item, text: str) -> list[NodeFile]:
    """What a series without a name is, its file or the command before it says."""
    judge = catalog.load()[PROBE].findings
    return [
        NodeFile(item.ref, item.inside, PROBE, Reading(Capture("", PROBE, "ok"), load, None, tuple(judge(load))), node)
        for node, load in load_of(text, item.inside.name).items()
    ]
