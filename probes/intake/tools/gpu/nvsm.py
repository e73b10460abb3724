"""nvsm show health of a DGX: checks with dots and a word behind them.

Source   NVIDIA System Management user guide, "show health": Healthy, Unhealthy, Unknown, Informational
Shape    facts gpu.verdicts: only checks of GPUs, NVLinks and NVSwitches that are not healthy
Errors   ParseError when no check is in it
"""

from __future__ import annotations

import re

from probes.core import ParseError, Severity, clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools.gpu.gpu_verdicts import Verdict, Verdicts, findings

MOST = 200
_CHECK = re.compile(r"\s{0,8}(\S[^\n]{3,200}?)\.{2,200} ?(Healthy|Unhealthy|Unknown|Informational)\b")
_GPU = re.compile(r"GPU[ -]?(\d{1,3})\b")
_KINDS: tuple[tuple[str, str, Severity], ...] = (
    (r"link width", "gpu.pcie_width_told", "bad"),
    (r"link speed|PCIe", "gpu.pcie_told", "warn"),
    (r"remap|retire|ECC|DBE|memory", "gpu.ecc_uncorrected", "bad"),
    (r"NVSwitch|fabric", "gpu.switch_told", "bad"),
    (r"NVLink", "gpu.nvlink_inactive", "bad"),
    (r"temperature|thermal|throttl", "gpu.throttle_told", "warn"),
)
_WIDTH = re.compile(r"\[x(\d{1,2})\]")


def _fits(head: str, name: str) -> bool:
    if not ("Health Summary" in head or "Checks" in head[:4000] or "nvsm" in head[:400].lower()):
        return False
    return len(_CHECK.findall(head[:32_768])) > 2


def read(text: str) -> Verdicts:
    found: dict[tuple[str, int | None], Verdict] = {}
    seen = 0
    for line in lines_of(text, 600):
        row = _CHECK.match(line)
        if row is None:
            continue
        seen += 1
        gpu = _GPU.search(row[1])
        if row[2] != "Unhealthy" or not (gpu or "NVSwitch" in row[1]):
            continue
        code, severity = next(((c, s) for words, c, s in _KINDS if re.search(words, row[1], re.I)), ("", "warn"))
        index = int(gpu[1]) if gpu else None
        if code and len(found) < MOST:
            width = _WIDTH.search(row[1])
            says = f"fails the check '{clean(row[1])[:120]}'"
            verdict = Verdict(code, severity, index, int(width[1]) if width else None, says)
            found.setdefault((code, index), verdict)
    if not seen:
        raise ParseError("nvsm: no check in it")
    return Verdicts("nvsm", tuple(found.values()))


TOOL = Tool("nvsm show health", "gpu.verdicts", _fits, read, findings)
