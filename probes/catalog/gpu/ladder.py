"""Before anything calls the GPU driver: does something hang in it already?

SENT TO THE NODE (gpu.state, gpu.topo, gpu.nvlink): compiled there by Python 3.6 and later, so no newer syntax, and only
names of probes.runner beside its own.

A call into a driver that hangs never returns, and its process cannot be ended (state D). One is evidence; every further
one only takes a process more of a sick node. So what stands in D with a GPU open, or as one of the driver's tools, at
two looks, is left alone: normal calls pass through D for moments only.

Errors   Skipped, Absent
"""

from __future__ import annotations

from probes.runner import Absent, Skipped, holds_gpu, process_state, read, sh, which

HANGS = "hangs in the GPU driver (state D)"


def stuck() -> str:
    """The process that hangs in the driver, as people read it; "" where none does."""
    import os
    import time

    def in_d(pid: str) -> bool:
        """Of a rank a thread beside the main one may be the one that called."""
        if process_state(int(pid))[0] == "D":
            return True
        try:
            threads = os.listdir(f"/proc/{pid}/task")[:1024]
        except OSError:
            return False
        return any(thread_state(pid, tid) == "D" for tid in threads if tid != pid)

    def thread_state(pid: str, tid: str) -> str:
        try:
            return read(f"/proc/{pid}/task/{tid}/stat", 4096).rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            return ""

    def suspects(pids: list[str]) -> list[str]:
        tools = ("nvidia-smi", "nvidia-persiste", "rocm-smi", "amd-smi")
        return [pid for pid in pids if (name(pid) in tools or holds_gpu(pid)) and in_d(pid)]

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


def none_stuck(asked: str) -> None:
    """Raises Skipped where something hangs in the driver: what is `asked` would hang too."""
    who = stuck()
    if who:
        raise Skipped(f"not asked: {who} {HANGS}, and {asked} would hang too")


def printed(argv: list[str]) -> str:
    """What nvidia-smi prints. Raises Skipped where the driver hangs, Absent where there is no such tool or no GPU."""
    if not which(argv[0]):
        raise Absent(f"{argv[0]} is not installed")
    none_stuck(argv[0])
    status, out, err = sh(argv)
    if "No devices were found" in out + err:
        raise Absent(f"{argv[0]} says that no devices were found")
    if status and not out.strip():
        raise OSError(f"{' '.join(argv)} ended with exit status {status}: {err.strip()[:200]}")
    return out
