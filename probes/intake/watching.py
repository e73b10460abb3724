"""The line that watch prints above what it ran: the command, on newer ones the node, and when.

    Every 2.0s: amd-smi monitor -ptu        amd-n05: Wed May 14 20:31:08 2025

Source   procps-ng, watch(1)
Shape    watched(line) -> Watched, None for another line
Errors   none
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from probes.intake.tools._text import time_in

_LINE = re.compile(
    r"Every \d{1,6}[.,]\d{1,2}s: (\S[^\n]{0,400}?)(?: {2,400}([A-Za-z0-9][\w.-]{0,62}): (\S[^\n]{4,40}))?$"
)


@dataclass(frozen=True, slots=True)
class Watched:
    """`node` "" and `at` None where it does not tell them. `at`: as if the node's zone were UTC."""

    command: str
    node: str
    at: float | None


def watched(line: str) -> Watched | None:
    found = _LINE.match(line.rstrip()[:2000])
    return Watched(found[1], found[2] or "", time_in(found[3]) if found[3] else None) if found else None
