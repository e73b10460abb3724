"""nvidia-smi nvlink -s and -e: speed and error counters of every NVLink.

Source   nvidia-smi(1), nvlink; recorded outputs of drivers 470 to 595. `-e` prints totals since boot
Shape    facts gpu.nvlink
Errors   ParseError when no GPU is in it
"""

from __future__ import annotations

import re

from probes.catalog._gpu_links import LinkState, NvLinks, nvlink_findings
from probes.core import ParseError, clean, lines_of
from probes.intake.tools import Tool

_GPU = re.compile(r"GPU (\d{1,3}): (\S[^()]{0,80}?) {0,4}\(UUID: ")
_SPEED = re.compile(r"Link (\d{1,3}): (?:([\d.]{1,10}) GB/s|(<?inactive>?))", re.I)
_ERROR = re.compile(r"Link (\d{1,3}): ([A-Za-z][\w /()-]{2,60}?)(?: Errors?| Count| Events?)?: (\d{1,18})\b", re.I)
_NONE = ("all links are inactive", "does not have or support nvlink", "not supported", "unable to retrieve nvlink")


def _fits(head: str, name: str) -> bool:
    return bool(_GPU.match(head.lstrip())) and ("Link 0" in head or "link" in head.partition("\n")[2][:400].lower())


def read(text: str) -> NvLinks:
    gpus: list[tuple[int, str, dict[int, float | None], dict[str, int], list[str]]] = []
    for line in lines_of(text, 400):
        line = line.strip()
        if found := _GPU.match(line):
            gpus.append((int(found[1]), clean(found[2]), {}, {}, []))
        elif not gpus:
            continue
        elif found := _SPEED.match(line):
            gpus[-1][2][int(found[1])] = float(found[2]) if found[2] else None
        elif found := _ERROR.match(line):
            kind = found[2].strip().lower().removesuffix(" errors")
            if len(gpus[-1][3]) < 64 or kind in gpus[-1][3]:
                gpus[-1][3][kind] = gpus[-1][3].get(kind, 0) + int(found[3])
        elif any(word in line.lower() for word in _NONE):
            gpus[-1][4].append(clean(line)[:120])
    if not gpus:
        raise ParseError("nvidia-smi nvlink: expected lines 'GPU 0: NAME (UUID: ...)', found none")
    return NvLinks(tuple(LinkState(n, name, speeds, errors, (why or [""])[0]) for n, name, speeds, errors, why in gpus))


TOOL = Tool("nvidia-smi nvlink", "gpu.nvlink", _fits, read, nvlink_findings)
