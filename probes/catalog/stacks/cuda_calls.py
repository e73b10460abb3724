"""What a summary of a program's CUDA calls tells.

Units    ns of the program's time in these calls
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CudaCalls:
    """`sync`: calls that wait for the device, most of the time in `most`; `launches` of kernels; `copies` of memory.
    `device_ns` of `wall_ns`: how long the device worked, where the same report tells both; 0 for not told."""

    total_ns: int
    sync_ns: int
    syncs: int
    launches: int
    copies: int
    most: str
    device_ns: int = 0
    wall_ns: int = 0
    copy_ns: int = 0
    rank: int | None = None  # where the text itself tells it
