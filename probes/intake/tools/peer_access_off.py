"""The same run with and without peer access between GPUs, as somebody tried it: it ends well only without.

    NCCL_P2P_DISABLE=1: all_reduce 13.2 GB/s, ok        with NCCL_P2P_DISABLE=1 it trains, without it hangs at step 0
    NCCL_P2P_DISABLE=0: hangs in the first all_reduce

Source   NCCL's user guide, NCCL_P2P_DISABLE, and its troubleshooting of PCI access control (ACS)
Shape    facts gpu.verdicts
Errors   ParseError where no such pair of runs is told
"""

from __future__ import annotations

import re

from probes.core import ParseError, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._told_of import leading, node_in, placed
from probes.intake.tools.gpu_verdicts import Verdict, Verdicts, findings

LOOKED_AT, LONGEST = 65_536, 300
_OFF = re.compile(r"NCCL_P2P_(?:DISABLE ?= ?1|LEVEL ?= ?(?:LOC|0))\b")
_ON = re.compile(
    r"NCCL_P2P_DISABLE ?= ?0|NCCL_P2P_LEVEL ?= ?(?:SYS|PHB|PXB|NVL)|\b(?:without|unset|default|not set)\b", re.I
)
_WELL = re.compile(
    r"\b(?:ok|works?|fine|trains?|runs|passe[sd]|pass|finish\w{0,3}|success\w{0,5}|complete[sd]?"
    r"|[\d.]{1,8} ?(?:GB/s|it/s|s/it))",
    re.I,
)
_BADLY = re.compile(
    r"\b(?:hangs?|hung|stuck|never|time[sd]? ?out|fail\w{0,3}|wrong|corrupt\w{0,3}|NaNs?"
    r"|illegal|crash\w{0,3}|no (?:output|progress))\b",
    re.I,
)


def _pair(text: str) -> str | None:
    """The node, "" for none named; None where both runs are not told."""
    well = badly = False
    node = ""
    for line in lines_of(text[:LOOKED_AT], LONGEST + 1):
        node = node or leading(line, len(line))
        if len(line) > LONGEST or not (off := _OFF.search(line)):
            on = _ON.search(line) if len(line) <= LONGEST and "P2P" in line else None
            badly = badly or bool(on and _BADLY.search(line, on.start()))
            continue
        on = _ON.search(line, off.end())
        well = well or bool(_WELL.search(line, off.end(), on.start() if on else len(line)))
        badly = badly or bool(on and _BADLY.search(line, on.start()))
        node = node or node_in(line, off.start()) or placed(line)
    return node if well and badly else None


def fits(head: str, name: str) -> bool:
    return "NCCL_P2P_" in head and _pair(head) is not None


def read(text: str) -> Verdicts:
    if _pair(text) is None:
        raise ParseError("runs with and without peer access: not both are told")
    says = "cannot exchange data with its peers: the run ends well only with peer access off"
    return Verdicts("somebody who tried both", (Verdict("gpu.p2p_told", "bad", None, None, says),))


def _host(text: str) -> str:
    return _pair(text) or ""


TOOL = Tool("runs with and without peer access", "gpu.verdicts", fits, read, findings, host=_host, log=True)
