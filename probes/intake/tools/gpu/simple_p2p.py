"""simpleP2P of NVIDIA's CUDA samples: two GPUs write to each other's memory, and what arrives is checked.

Source   NVIDIA/cuda-samples, simpleP2P.cu: `Verification error @ element %i: val = %f, ref = %f`, `Test failed!`
Shape    facts gpu.verdicts
Errors   ParseError when the check is not in it
"""

from __future__ import annotations

import re

from probes.core import ParseError
from probes.intake.tools import Tool
from probes.intake.tools.gpu.gpu_verdicts import Verdict, Verdicts, findings

_WRONG = re.compile(r"^Verification error @ element \d{1,9}:", re.M)


def _fits(head: str, name: str) -> bool:
    called = "simpleP2P" in head or "cudaMemcpyPeer / cudaMemcpy between" in head  # pasted without its first lines
    return called and ("Peer access from" in head or "Preparing host buffer" in head)


def read(text: str) -> Verdicts:
    if _WRONG.search(text[:4_194_304]):
        return Verdicts(
            "simpleP2P", (Verdict("gpu.p2p_told", "bad", None, None, "reads other data than a peer wrote"),)
        )
    if "Test passed" in text:
        return Verdicts("simpleP2P", ())
    raise ParseError("simpleP2P: it was cut before its check")


TOOL = Tool("simpleP2P", "gpu.verdicts", _fits, read, findings)
