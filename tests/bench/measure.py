"""CPU time and memory of a command with all its children, and of a call in this process.

Units    seconds of CPU (user and system), MB of 10^6 bytes. Memory is the largest sum over the processes of the
         command of what each holds alone (PSS), looked at every 20 ms
"""

from __future__ import annotations

import gc
import os
import resource
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psutil

LOOK_S = 0.02


@dataclass(frozen=True, slots=True)
class Cost:
    cpu_s: float
    wall_s: float
    peak_mb: float


def command(argv: Sequence[str], env: Mapping[str, str] | None = None) -> tuple[Cost, str]:
    """Run it to its end; its cost, and what it printed. Raises CalledProcessError when a signal ended it."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    process = subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **(env or {})}
    )
    peak = [0]
    watcher = threading.Thread(target=_watch, args=(process, peak))
    watcher.start()
    out, _ = process.communicate()
    watcher.join()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode < 0:
        raise subprocess.CalledProcessError(process.returncode, argv, out)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(cpu, time.monotonic() - begun, peak[0] / 1e6), out


def _watch(process: subprocess.Popen[str], peak: list[int]) -> None:
    root = psutil.Process(process.pid)
    while process.poll() is None:
        total = 0
        try:
            for one in [root, *root.children(recursive=True)]:
                total += one.memory_full_info().pss
        except psutil.Error:
            pass  # one that has just ended
        peak[0] = max(peak[0], total)
        time.sleep(LOOK_S)


def call(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of CPU of one call in this process, and what it gave."""
    gc.collect()
    begun = time.process_time()
    found = work()
    return time.process_time() - begun, found
