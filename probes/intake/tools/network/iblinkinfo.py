"""iblinkinfo(8), by device or with -l one port a line, read by the parser of ib.fabric."""

from __future__ import annotations

from probes.catalog.network.ib_linkinfo import is_port, swept
from probes.core import lines_of
from probes.intake.tools import Tool


def fits(head: str, name: str) -> bool:
    return "==>" in head and any(is_port(line) for line in lines_of(head, 600))


TOOL = Tool("iblinkinfo", "ib.fabric", fits, swept)
