"""Before a tool attaches to all GPUs: does something hang in their driver already?

SENT TO THE NODE (gpu.topo, gpu.nvlink): compiled there by Python 3.6 and later, so no newer syntax, and only names of
probes.runner beside its own.

A call into a driver that hangs never returns, and its process cannot be ended (state D). One is evidence; every further
one only takes a process more of a sick node. So what stands in D with a GPU open, or as one of the driver's tools, at
two looks, is left alone: normal calls pass through D for moments only.

Errors   Skipped, Absent
"""

from __future__ import annotations

from probes.runner import Absent, Skipped, holds_gpu, process_state, sh, which


def stuck() -> str:
    """The process that hangs in the driver, as people read it; "" where none does."""
    import os
    import time

    def suspects(pids: list[str]) -> list[str]:
        found = []
        for pid in pids:
            state, _, _ = process_state(int(pid))
            if state == "D" and (
                name(pid) in ("nvidia-smi", "nvidia-persiste", "rocm-smi", "amd-smi") or holds_gpu(pid)
            ):
                found.append(pid)
        return found

    def name(pid: str) -> str:
        try:
            with open(f"/proc/{pid}/comm") as handle:
                return handle.read(64).strip()
        except OSError:
            return ""

    first = suspects([pid for pid in os.listdir("/proc") if pid.isdigit()])
    if not first:
        return ""
    time.sleep(0.5)
    still = suspects(first)
    return f"{name(still[0])} ({still[0]})" if still else ""


def printed(argv: list[str]) -> str:
    """What nvidia-smi prints. Raises Skipped where the driver hangs, Absent where there is no such tool or no GPU."""
    if not which(argv[0]):
        raise Absent(f"{argv[0]} is not installed")
    who = stuck()
    if who:
        raise Skipped(f"not asked: {who} hangs in the GPU driver (state D), and {argv[0]} would hang too")
    status, out, err = sh(argv)
    if "No devices were found" in out + err:
        raise Absent(f"{argv[0]} says that no devices were found")
    if status and not out.strip():
        raise OSError(f"{' '.join(argv)} ended with exit status {status}: {err.strip()[:200]}")
    return out
