"""Xids as others than the kernel tell of them: gpud, NVSentinel, node-problem-detector, conditions and events of
Kubernetes, reasons for which Slurm drains nodes, alerts.

Source   leptonai/gpud (error_xid events); NVIDIA/NVSentinel, health events (errorCode, entitiesImpacted);
         kubectl describe node: conditions, capacity and allocatable
Shape    facts gpu.verdicts
Errors   ParseError when nothing in it tells of an Xid or of a GPU that is not allocatable
"""

from __future__ import annotations

import re

from probes.core import ParseError, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._told_of import node_in, placed
from probes.intake.tools.cluster import slurm_nodes
from probes.intake.tools.gpu.gpu_verdicts import Verdict, Verdicts, findings, known

MOST = 200
_XID = re.compile(r"(?<![A-Za-z])xid(?:[ _-](?:error|code))?(?:\"?[ :=]{1,3}\"?|\s)\(?(\d{1,3})(?!\d)", re.I)
_GPU = re.compile(r"(?<![A-Za-z])GPU[ :=#-]{0,2}(\d{1,2})(?![\da-f:])", re.I)
_COUNT = re.compile(r"\s{1,12}(?:nvidia\.com/gpu|amd\.com/gpu):\s{1,20}(\d{1,3})$")
_NAME = re.compile(r"^Name:\s{1,40}([A-Za-z][\w.-]{0,100})$", re.M)
_DRAINED = re.compile(r"(?:^\s{0,8}|\s)NodeName=(\S{1,120})|^REASON\s{1,60}USER", re.M)
_ALERT = re.compile(r"\[FIRING|\balertname\b|\"alerts?\"|\bfiring\b", re.I)
_DCGM = "ErrorCode:[DCGM_FR_"  # conditions that NVSentinel sets on a node
_KNOWN = ("error_xid", "accelerator-nvidia", "healthEvent", "entitiesImpacted", "nvsentinel", "XidCriticalError")


def _fits(head: str, name: str) -> bool:
    if "NVRM:" in head:
        return False  # lines of the kernel, which tell more
    described = "Capacity:" in head and "Allocatable:" in head and "com/gpu" in head
    known = any(word in head for word in _KNOWN) or bool(_DRAINED.search(head[:65_536]) or _ALERT.search(head[:65_536]))
    return described or _DCGM in head or (known and bool(_XID.search(head[:65_536])))


def read(text: str) -> Verdicts:
    found: dict[tuple[str, int | None], Verdict] = {}
    counts: list[int] = []
    for line in lines_of(text, 4096):
        if count := _COUNT.match(line):
            counts.append(int(count[1]))
        for one in known(None, line[:4096]) if _DCGM in line and len(found) < MOST else ():
            found.setdefault((one.code, one.gpu), one)
        for told in _XID.finditer(line[:4096]):
            number = int(told[1])
            gpu = _GPU.search(line[max(0, told.start() - 80) : told.end() + 80])
            index = int(gpu[1]) if gpu else None
            if 0 < number < 200 and len(found) < MOST:
                says = f"had Xid {number}"
                found.setdefault(
                    (str(number), index), Verdict("gpu.xid_told", "warn", index, number, says, _stamp(line))
                )
    if len(counts) >= 2 and 0 < counts[1] < counts[0]:
        missing = counts[0] - counts[1]
        # Which fault took it away is not told: it blames nothing, and tells people to look.
        says = f"is not offered to jobs any more ({counts[1]} of {counts[0]} are)"
        found["allocatable", None] = Verdict("gpu.not_offered", "warn", None, missing, says)
    if not found and not counts:
        raise ParseError("health events: none that tells of an Xid")
    return Verdicts("a health daemon", tuple(found.values()))


def _stamp(line: str) -> str:
    """The last time that the line tells, as printed."""
    found = re.findall(r"(?<!\d)20\d\d-[01]\d-[0-3]\d[T ][0-2]\d:[0-5]\d(?::[0-5]\d)?", line)
    return found[-1].replace("T", " ") if found else ""


def by_node(text: str) -> dict[str, Verdicts]:
    """Of each node that its rows name; of all of it where they name none, or where it is a description of one."""
    if _COUNT.search(text) or _NAME.search(text[:4096]):
        return {_host(text): read(text)}
    rows: dict[str, list[str]] = {}
    node = ""
    for line in lines_of(text, 4096):
        node = found[1] if (found := re.search(r"(?<!\S)NodeName=(\S{1,120})", line)) else node
        if told := _XID.search(line) or re.search(re.escape(_DCGM), line):
            row = slurm_nodes.ROW.fullmatch(line.strip())
            for one in slurm_nodes.nodes_in(row[4]) if row else [node or node_in(line, told.start()) or placed(line)]:
                rows.setdefault(one, []).append(line)
    return {one: read("\n".join(some)) for one, some in list(rows.items())[:MOST]} or {"": read(text)}


def _host(text: str) -> str:
    found = _NAME.search(text[:4096])
    return found[1] if found else ""


TOOL = Tool("health events of GPUs", "gpu.verdicts", _fits, read, findings, host=_host, log=True, by_node=by_node)
