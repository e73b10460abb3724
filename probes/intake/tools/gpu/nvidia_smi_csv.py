"""nvidia-smi --query-gpu=... --format=csv, with its header line.

Source   nvidia-smi(1), --help-query-gpu; units in brackets behind the names ("power.draw [W]")
Shape    facts of gpu.state
Errors   ParseError when a row has another number of values than the header
"""

from __future__ import annotations

import re
from itertools import islice

from probes.catalog.gpu.facts import GpuState
from probes.catalog.gpu.rows import gpu_of
from probes.core import ParseError, clean, lines_of
from probes.intake.names import is_host
from probes.intake.tools import Tool

ABOVE = 4  # lines that may stand above the header
_UNIT = re.compile(r"\s{0,4}\[[^\]]{1,12}\]$")
_KNOWN = re.compile(
    r"(?:^|, ?)(?:pci\.bus_id|gpu_bus_id|temperature\.gpu|utilization\.gpu|pstate|power\.draw|driver_version"
    r"|(?:gpu_)?name(?=,|$)|index(?=,|$)|vbios_version|serial(?=,|$)|clocks\.(?:current\.)?sm|memory\.used|ecc\.errors\.|remapped_rows\.|pcie\.link\.|uuid|clocks_(?:event|throttle)|fabric\.(?:state|status)|gpu_recovery_action|mig\.mode|ecc\.mode|power\.(?:limit|default)"
    r"|enforced\.power|temperature\.memory|utilization\.memory|memory\.(?:total|free)|clocks\.(?:max\.)?(?:gr|mem|current))"
)


def _fits(head: str, name: str) -> bool:
    first = _first(head)
    return (
        "," in first and len(_KNOWN.findall(first[:8192])) >= 2 and "pid" not in first and "retired" not in first[:99]
    )


def _first(text: str) -> str:
    """The header. What somebody wrote above it, such as when it was taken, is none."""
    lines = [line for line in islice(lines_of(text[:65536], 16384), 64) if line.strip()][:ABOVE]
    known = next((line for line in lines if "," in line and len(_KNOWN.findall(line[:8192])) >= 2), "")
    return known or (lines[0] if lines else "")


def read(text: str) -> GpuState:
    """Rows by the names in the header. The last row of each GPU counts where `-l` repeated them."""
    rows = [line for line in lines_of(text, 16384) if line.strip()]
    if not rows:
        raise ParseError("nvidia-smi csv: expected a header, found nothing")
    rows = rows[rows.index(head) :] if (head := _first(text)) in rows else rows
    names = [_UNIT.sub("", part.strip()) for part in rows[0].split(",")]
    gpus, driver, count = {}, None, None
    for at, line in enumerate(rows[1:20_001]):
        cells = [part.strip() for part in line.split(",")]
        if cells[: len(names)] == [part.strip() for part in rows[0].split(",")]:
            continue  # the header again
        if len(cells) == 1 and len(names) > 1:
            continue  # a word of whoever pasted it
        if len(cells) != len(names):
            raise ParseError(
                f"nvidia-smi csv: expected {len(names)} values, found {len(cells)} in {clean(line)[:60]!r}"
            )
        values = dict(zip(names, cells, strict=True))
        gpu = gpu_of(values)
        driver = values.get("driver_version") or driver
        count = int(values["count"]) if values.get("count", "").isdecimal() and len(values["count"]) < 4 else count
        gpus[gpu.bus_id or gpu.uuid or (gpu.index if gpu.index is not None else f"row {at}")] = gpu
    if not gpus:
        raise ParseError("nvidia-smi csv: a header without a row")
    return GpuState(driver, tuple(gpus.values()), count)


_NODE = re.compile(r"(?:node|host|machine|server)(?:_?name)?", re.I)


def by_node(text: str) -> dict[str, GpuState]:
    """Of each node, where somebody put a column of nodes beside those of nvidia-smi."""
    names = [part.strip() for part in _first(text).split(",")]
    column = next((at for at, name in enumerate(names) if _NODE.fullmatch(name)), None)
    if column is None:
        return {"": read(text)}
    head, rows = ", ".join(names[:column] + names[column + 1 :]), dict[str, list[str]]()
    for line in islice(lines_of(text, 16384), 20_001):
        cells = [part.strip() for part in line.split(",")]
        if len(cells) == len(names) and cells != names and is_host(cells[column]):
            rows.setdefault(cells[column], []).append(", ".join(cells[:column] + cells[column + 1 :]))
    return {node: read("\n".join((head, *some))) for node, some in rows.items()} or {"": read(text)}


TOOL = Tool("nvidia-smi --query-gpu", "gpu.state", _fits, read, by_node=by_node)
