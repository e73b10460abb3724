"""Is every NVLink up, and which of them counts errors?

Source   nvidia-smi(1), nvlink -s and -e; recorded outputs of drivers 470 to 595. `-e` prints totals since boot. Asked
         only while nothing hangs in the driver. Never run on a GPU: replayed from recordings
Units    GB/s of one link; errors summed over the links of a GPU
Shape    NvLinks
Errors   ParseError when no GPU is in it
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from probes.catalog.gpu import ladder
from probes.catalog.gpu.links import LinkState, NvLinks, nvlink_findings
from probes.core import ParseError, Probe, clean, lines_of, sections

__all__ = ["GPU", "PROBE", "NvLinks", "findings", "parse", "printed_links"]

findings = nvlink_findings


def _collect() -> Mapping[str, str]:
    import contextlib

    parts = {"nvidia-smi nvlink -s": ladder.printed(["nvidia-smi", "nvlink", "-s"])}
    with contextlib.suppress(OSError):  # a driver that does not count them
        parts["nvidia-smi nvlink -e"] = ladder.printed(["nvidia-smi", "nvlink", "-e"])
    return parts


GPU = re.compile(r"GPU (\d{1,3}): (\S[^()\n]{0,80}?) {0,4}(?:\(UUID: |$)", re.M)  # without it where somebody retyped it
_SPEED = re.compile(r"Link (\d{1,3}): (?:([\d.]{1,10}) GB/s|(<?inactive>?))", re.I)
_ERROR = re.compile(r"Link (\d{1,3}): ([A-Za-z][\w /()-]{2,60}?)(?: Errors?| Count| Events?)?: (\d{1,18})\b", re.I)
_NONE = ("all links are inactive", "does not have or support nvlink", "not supported", "unable to retrieve nvlink")


def parse(text: str) -> NvLinks:
    """States and errors of both sections; a text without sections is what one of the two printed."""
    parts = list(sections(text).values()) if text.lstrip().startswith("==> ") else [text]
    gpus: dict[int, LinkState] = {}
    for part in parts:
        for one in printed_links(part).gpus:
            there = gpus.get(one.gpu)
            gpus[one.gpu] = one if there is None else replace(there, errors={**there.errors, **one.errors})
    return NvLinks(tuple(gpus[number] for number in sorted(gpus)))


def printed_links(text: str) -> NvLinks:
    gpus: list[tuple[int, str, dict[int, float | None], dict[str, int], list[str]]] = []
    for line in lines_of(text, 400):
        line = line.strip()
        if found := GPU.match(line):
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
    told = any(speeds or errors or why for _, _, speeds, errors, why in gpus)
    # People cut UUIDs away: then something of links must stand there.
    if not gpus or not (told or "(UUID:" in text):
        raise ParseError("nvidia-smi nvlink: expected lines 'GPU 0: NAME (UUID: ...)', found none")
    return NvLinks(tuple(LinkState(n, name, speeds, errors, (why or [""])[0]) for n, name, speeds, errors, why in gpus))


PROBE = Probe(
    "gpu.nvlink",
    "Is every NVLink up, and which of them counts errors?",
    parse,
    findings,
    collect=_collect,
    by_hand="nvidia-smi nvlink -s; nvidia-smi nvlink -e",
    timeout_s=6.0,
    touches="driver",
    brings=(ladder,),
    cost="not measured: there was no such hardware",
)
