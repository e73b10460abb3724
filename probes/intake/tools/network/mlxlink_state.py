"""Of mlxlink's first table whether the port is up: `State : Polling`, `Width : 4x`. What it counts reads mlxlink.py.

Source   NVIDIA MFT user manual, mlxlink: State is Active, Polling, Disable or Close Port
"""

from __future__ import annotations

import re
from dataclasses import replace

from probes.catalog.network.ib_facts import IbPorts
from probes.catalog.network.port_words import node_facts, port
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse
from probes.intake.tools.network import mlxlink

_STATE = re.compile(r"^\s{0,4}\"?State\"?\s{0,40}: ?\"?([A-Z][A-Za-z_ ]{2,30}?)\"?,?\s{0,4}$", re.M)
_WIDTH = re.compile(r"^\s{0,4}\"?Width\"?\s{0,40}: ?\"?(\d{1,2})x", re.M)
_DOWN = {"polling": "Polling", "disable": "Disabled", "disabled": "Disabled", "closeport": "Disabled", "down": None,
    "sleep": "Sleep", "portflowtest": None}  # fmt: skip
UNNAMED = "mlx5_0"


def fits(head: str, name: str) -> bool:
    return "Operational Info" in head and bool(_STATE.search(head)) and mlxlink.fits(head, name)


def read(text: str) -> IbPorts:
    found = _STATE.search(text[:65_536])
    if found is None:
        raise refuse("the state of a port as mlxlink prints it", text)
    word = found[1].replace(" ", "").lower()
    device = next((one.name for one in mlxlink.read(text).sets if one.name), "")
    width = _WIDTH.search(text[:65_536])
    state = "ACTIVE" if word == "active" else "DOWN" if word in _DOWN else found[1]
    return node_facts(
        [port(device or UNNAMED, 1, state=state, phys_state=_DOWN.get(word), width=int(width[1]) if width else None)]
    )


def named(facts: IbPorts, path: str) -> IbPorts:
    """The adapter by the file's name, where the text does not tell it."""
    found = re.search(r"mlx\d_\d{1,3}", path.rpartition("/")[2])
    if found is None or facts.ports[0].hca != UNNAMED:
        return facts
    return replace(facts, ports=(replace(facts.ports[0], hca=found[0]),))


TOOL = Tool("mlxlink's state", "ib.ports", fits, read, host=host_in, named=named)
