"""Evidence of nodes as people bring it: folders of files, read through the files door and judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from probes import intake
from probes.core import Reading
from probes.diagnosis import diagnose
from probes.diagnosis.core import seen
from probes.diagnosis.judging import Diagnosis

TOOLS = Path(__file__).parents[1] / "fixtures" / "tools"
HEALTHY = TOOLS / "nvidia-smi.h100x8-550.txt"


def kernel_log(node: str, *lines: tuple[str, str]) -> str:
    """`journalctl -o short-iso` of one day; two harmless lines of a boot stand first."""
    told = (("07:00:01", "usb 1-1: new device"), ("07:00:02", "eth0: link up"), *lines)
    return "".join(f"2025-03-03T{at}+0000 {node} kernel: {text}\n" for at, text in told)


def job_log(node: str, rank: int, *lines: str) -> str:
    """A rank that began at 08:00 and was last seen to go on at 09:59, then what it wrote."""
    pid = 1000 + rank
    begin = f"{node}:{pid}:{pid} [0] NCCL INFO comm 0x55 rank {rank} nranks 4 cudaDev 0 busId 3b000 - Init COMPLETE\n"
    steps = "2025-03-03 08:00:10,000 - INFO - step 10 loss=2.1\n2025-03-03 09:59:00,000 - INFO - step 900 loss=1.9\n"
    return begin + steps + "".join(f"{line}\n" for line in lines)


def raised(rank: int, error: str) -> tuple[str, ...]:
    """A traceback as torch marks it."""
    where = '  File "/app/train.py", line 88, in main'
    told = ("Traceback (most recent call last):", where, "    step()", error)
    return tuple(f"[rank{rank}]: {line}" for line in told)


def waited(rank: int) -> str:
    """torch's watchdog of a rank that waited in vain."""
    return (
        f"[rank{rank}]:[E303 10:10:05.123456 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=1234, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, "
        "Timeout(ms)=600000) ran for 600034 milliseconds before timing out."
    )


def bring(folder: Path, files: dict[str, str]) -> intake.Intake:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return intake.read([folder])


def judged(folder: Path, files: dict[str, str]) -> Diagnosis:
    found = bring(folder, files)
    result = diagnose([seen(reading, ref) for ref, reading in found.readings], found.asked, found.expected)
    assert not result.failed
    return result


def shares(diagnosis: Diagnosis) -> dict[str, float]:
    """Cause -> its share, all subjects together."""
    found: dict[str, float] = {}
    for one in diagnosis.ranked:
        cause = one.hypothesis.cause
        found[cause] = found.get(cause, 0.0) + one.probability
    return found


def facts_of(path: Path) -> Any:
    """The facts of one recorded file, which must be read by its content whatever its name."""
    (reading,) = readings_of(path)
    return reading.facts


def readings_of(path: Path) -> list[Reading]:
    found = intake.read([path])
    assert not found.unread, found.unread
    # When somebody looked is told of every file, beside what it is.
    return [reading for _, reading in found.readings if reading.capture.probe != "evidence.looked"]
