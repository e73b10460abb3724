"""What a summary of a program's CUDA calls tells.

Units    ns of the program's time in these calls
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CudaCalls:
    """`sync`: calls that wait for the device, most of the time in `most`; `launches` of kernels; `copies` of memory."""

    total_ns: int
    sync_ns: int
    syncs: int
    launches: int
    copies: int
    most: str
