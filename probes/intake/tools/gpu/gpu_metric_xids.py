"""The last Xid of each GPU, as DCGM's exporter keeps it: a number that stays until the exporter starts anew.

Source   NVIDIA/dcgm-exporter, DCGM_FI_DEV_XID_ERRORS; dcgm_fields.h, field 230
Shape    facts gpu.verdicts
Errors   ParseError when the metric is not in it
"""

from __future__ import annotations

from probes.core import ParseError
from probes.intake.gpu_tables import tells
from probes.intake.samples import samples
from probes.intake.tools import Tool
from probes.intake.tools.gpu.gpu_metrics import host
from probes.intake.tools.gpu.gpu_verdicts import Verdict, Verdicts, findings

FIELD = "DCGM_FI_DEV_XID_ERRORS"
MOST = 512


def read(text: str) -> Verdicts:
    """GPUs whose last Xid is 0 had none."""
    found: dict[tuple[str, int], Verdict] = {}
    told = False
    for one in samples(text):
        told = told or one.name == FIELD
        number = int(one.value) if one.name == FIELD and 0 < one.value < 1000 else 0
        index = one.labels.get("gpu", "")
        if number and len(found) < MOST:
            gpu = int(index) if index.isdecimal() and len(index) < 4 else None
            key = (one.labels.get("uuid", index), number)
            found.setdefault(key, Verdict("gpu.xid_told", "warn", gpu, number, f"had Xid {number} as its last"))
    if not told:
        raise ParseError(f"GPU metrics: expected {FIELD}, found none")
    return Verdicts("its exporter", tuple(found.values()))


def fits(head: str, name: str) -> bool:
    """A table of many nodes is taken apart by node before."""
    return FIELD in head and not tells(head)


TOOL = Tool("the last Xid of an exporter", "gpu.verdicts", fits, read, findings, host=host)
