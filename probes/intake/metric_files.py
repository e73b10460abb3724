"""One file of metrics as readings of host.load, one for each node that its series tell of.

Shape    node_files(item, text) -> NodeFiles
Errors   ParseError where no series is of a CPU
"""

from __future__ import annotations

from probes import catalog
from probes.core import Capture, Reading
from probes.intake.brought import NodeFile
from probes.intake.items import Item
from probes.intake.metric_facts import load_of

PROBE = "host.load"


def node_files(item: Item, text: str) -> list[NodeFile]:
    """What a series without a name is, its file or the command before it says."""
    judge = catalog.load()[PROBE].findings
    return [
        NodeFile(item.ref, item.inside, PROBE, Reading(Capture("", PROBE, "ok"), load, None, tuple(judge(load))), node)
        for node, load in load_of(text, item.inside.name).items()
    ]
