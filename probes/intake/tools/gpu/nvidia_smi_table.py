"""nvidia-smi without options: the box.

Source   nvidia-smi(1); the two forms of the table, drivers 450 to 535 and 545 to 595, as recorded
Shape    facts of gpu.state
Errors   ParseError when the box holds no GPU and no word of why
"""

from __future__ import annotations

import re
from dataclasses import replace

from probes.catalog.gpu.facts import GpuState
from probes.catalog.gpu.rows import gpu_of
from probes.core import ParseError, lines_of
from probes.intake.tools import Tool

_HEAD = re.compile(r"NVIDIA-SMI ([\d.]{3,20}) {1,40}(?:KMD Version|Driver Version): {0,3}([\d.]{3,20})")
_FIRST = re.compile(r"\| {1,4}(\d{1,3}) {1,4}(\S[^|]{0,60}?) {1,40}(On|Off|ERR!|N/A) {0,2}$")
_PERF = re.compile(
    r"\|? ?(\S{1,8}) {1,8}(\S{1,8}) {1,8}(P\d{1,2}|ERR!|N/A|Unk\S{0,12}) {1,40}(\S{1,12}) {0,8}/ {0,8}(\S{1,12})"
)
_BUS = re.compile(r"([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])")
_MEMORY = re.compile(r"(\S{1,14}) {0,6}/ {0,6}(\S{1,14})")
_PROCESS = re.compile(r"\| {1,6}(\d{1,3}) {1,8}(?:\S{1,6} {1,8}\S{1,6} {1,12})?(\d{1,8}) {1,8}(C|C\+G|M\+C|G) ")


def read(text: str) -> GpuState:
    """Two lines, and a third with MIG, for each GPU."""
    head = _HEAD.search(text[:4096])
    blocks: list[dict[str, str]] = []
    pids: dict[str, list[int]] = {}
    processes = False
    for line in lines_of(text, 400):
        processes = processes or line.startswith("| Processes:")
        if processes:
            found = _PROCESS.match(line)
            if found and found[3] != "G":
                pids.setdefault(found[1], []).append(int(found[2]))
            continue
        if line.startswith("| MIG devices:"):
            break
        cells = line.strip().strip("|").split("|")
        if len(cells) != 3:
            continue
        if (bus := _BUS.search(cells[1])) and (first := _FIRST.match("|" + cells[0].rstrip())):
            ecc = cells[2].strip()
            blocks.append(
                {
                    "index": first[1],
                    "name": first[2].removesuffix("..."),
                    "persistence_mode": first[3],
                    "pci.bus_id": bus[1],
                    "ecc.errors.uncorrected.volatile.total": ecc
                    if ecc.isdecimal() or ecc in ("ERR!", "N/A")
                    else "N/A",
                }
            )
        elif blocks and "pstate" not in blocks[-1] and (perf := _PERF.match(cells[0].strip())):
            blocks[-1] |= {
                "temperature.gpu": perf[2].removesuffix("C"),
                "pstate": perf[3],
                "power.draw": perf[4],
                "power.limit": perf[5],
                "utilization.gpu": (cells[2].split() or [""])[0],
            }
            if memory := _MEMORY.search(cells[1]):
                blocks[-1] |= {"memory.used": memory[1], "memory.total": memory[2]}
    if not blocks:
        raise ParseError("nvidia-smi: expected a table of GPUs, found none")
    gpus = tuple(gpu_of(block) for block in blocks)
    told = {number: tuple(dict.fromkeys(some))[:64] for number, some in pids.items()}
    gpus = tuple(replace(gpu, pids=told.get(str(gpu.index), ())) for gpu in gpus)
    return GpuState(head[2] if head else None, gpus, len(gpus))


TOOL = Tool("nvidia-smi", "gpu.state", lambda head, name: "| NVIDIA-SMI " in head[:16384] and "|==" in head, read)
