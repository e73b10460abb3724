"""What perf counted in which library: the part of it that tells of OpenMP's waiting and of call-backs into Python.

Units    percent of the samples
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PerfShares:
    """`openmp`: in an OpenMP runtime itself, which computes nothing, most in `openmp_at`. `callback`: an extension
    below which Python runs again, in `callback_percent`; "" for none."""

    rows: int
    openmp: float
    openmp_at: str
    callback: str
    callback_percent: float
