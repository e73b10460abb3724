"""dcgmi nvlink -s: a letter for each NVLink of each GPU and NVSwitch.

    gpuId 2:
        U U U U D D U U U U U U U U U U U U

Source   NVIDIA/DCGM, dcgmi's Nvlink.cpp: U up, D down, X disabled, _ not supported
Shape    facts gpu.nvlink
Errors   ParseError when no GPU is in it
"""

from __future__ import annotations

import re

from probes.catalog.gpu.links import LinkState, NvLinks, nvlink_findings
from probes.core import ParseError, lines_of
from probes.intake.tools import Tool

_OWNER = re.compile(r"\s{1,12}(gpuId|physicalId|nvSwitchId) {1,4}(\d{1,4}):\s{0,4}$")
_LINKS = re.compile(r"\s{1,40}[UDX_](?: [UDX_]){0,143}\s{0,4}$")


def read(text: str) -> NvLinks:
    """Links that are disabled or not there are left out. The speed is not told: 1 stands for up."""
    found: list[LinkState] = []
    owner = ("", 0)
    for line in lines_of(text, 600):
        if told := _OWNER.match(line):
            owner = (told[1], int(told[2]))
        elif owner[0] == "gpuId" and _LINKS.match(line) and len(found) < 256:
            letters = dict(enumerate(line.split()))
            speeds = {link: (1.0 if said == "U" else None) for link, said in letters.items() if said in "UD"}
            found.append(LinkState(owner[1], "", speeds))
            owner = ("", 0)
    if not found:
        raise ParseError("dcgmi nvlink: expected gpuId and a row of its links, found none")
    return NvLinks(tuple(found))


TOOL = Tool("dcgmi nvlink", "gpu.nvlink", lambda h, n: "NvLink Link Status" in h[:2000] and "gpuId" in h[:8192], read,
    nvlink_findings)  # fmt: skip
