"""Which CPUs a launcher gave to each process of a job, as it tells when it is asked to.

    cpu-bind=MASK - n5, task  0  0 [48120]: mask 0x3 set                      srun --cpu-bind=verbose
    [n5:48120] MCW rank 0 bound to socket 0[core 0[hwt 0-1]]: [BB/../..]      mpirun --report-bindings, to Open MPI 4
    [n5:48120] Rank 0 bound to package[0][hwt:0-1]                            Open MPI 5
    [0] MPI startup(): 0       48120    n5         {0,1,2,3}                  Intel MPI with I_MPI_DEBUG=4

Open MPI 4 draws a map: a letter a hardware thread, which are counted in their order.
Source: srun(1), Open MPI's orte/mca/rmaps and PRRTE, Intel MPI's developer reference
Shape   facts host.settings of each node
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from probes.catalog.host.load_facts import ranges_of
from probes.catalog.network.net_facts import Mask, Settings
from probes.core import clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import refuse
from probes.intake.tools.host.limits import quiet
from probes.intake.tools.host.masks import ranges

MOST = 20_000
_SRUN = re.compile(
    r"cpu[-_]bind(?:[-=]\w{1,20})?(?:=MASK|=NONE)? - ([\w.-]{1,80}), task\s{1,6}\d{1,7}\s{1,6}\d{1,7} \[(\d{1,10})\]: "
    r"mask (0x[0-9A-Fa-f,x]{1,600})"
)
_DRAWN = re.compile(
    r"\[([\w.-]{1,80}):(\d{1,10})\] (?:MCW )?rank \d{1,7} bound to [^\n]{1,4000}?: ((?:\[[B./]{1,2000}\]){1,64})"
)
_NAMED = re.compile(
    r"\[([\w.-]{1,80}):(\d{1,10})\] Rank \d{1,7} bound to package\[\d{1,4}\]\[(?:hwt|core):([\d,-]{1,600})\]"
)
_INTEL = re.compile(
    r"\[0\] MPI startup\(\): \d{1,7}\s{1,20}(\d{1,10})\s{1,20}([\w.-]{1,80})\s{1,20}\{([\d,-]{1,2000})\}"
)


def fits(head: str, name: str) -> bool:
    return next(_told(head), None) is not None


def by_node(text: str) -> dict[str, Settings]:
    found: dict[str, list[Mask]] = {}
    for place, (node, mask) in enumerate(_told(text[:8_388_608])):
        if place < MOST:
            found.setdefault(node, []).append(mask)
    if not found:
        raise refuse("lines in which a launcher tells the CPUs of its tasks", text)
    return {node: Settings(masks=tuple(masks)) for node, masks in found.items()}


def _told(text: str) -> Iterator[tuple[str, Mask]]:
    for line in lines_of(text, 6000):
        if "bind" not in line and " bound to " not in line and "MPI startup" not in line:
            continue
        if one := _SRUN.search(line):
            yield (
                one[1],
                Mask(int(one[2]), ranges(int(one[3].replace(",", "").replace("0x", "")[:1024] or "0", 16)), "python"),
            )
        elif one := _DRAWN.search(line):
            threads = [letter for letter in one[3] if letter in "B."]
            yield (
                one[1],
                Mask(int(one[2]), clean(ranges_of(at for at, letter in enumerate(threads) if letter == "B")), "python"),
            )
        elif one := _NAMED.search(line):
            yield one[1], Mask(int(one[2]), one[3], "python")
        elif one := _INTEL.search(line):
            yield one[2], Mask(int(one[1]), one[3], "python")


def read(text: str) -> Settings:
    return next(iter(by_node(text).values()))


TOOL = Tool("bindings", "host.settings", fits, read, quiet, log=True, by_node=by_node)
