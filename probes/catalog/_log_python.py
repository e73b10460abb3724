"""Lines of the program and what surrounds it: CUDA errors, crashes, the scheduler, the data loader, NaN, progress.

Source   torch (c10/cuda, utils/data), CPython's faulthandler, srun(1) and slurmstepd, tqdm, recorded runs
Units    none
Shape    read(line) -> LogEvent or None
Errors   none
"""

from __future__ import annotations

import dataclasses
import re

from probes.catalog._log_events import LogEvent
from probes.catalog._log_lines import Line
from probes.catalog._log_shapes import first, shape

_CUDA = (
    shape(
        "cuda_error",
        "out of memory",
        r"(?P<name>(?:CUDA|HIP) out of memory)\.(?: Tried to allocate (?P<asked>[\d.]{1,12} \w{1,5}))?",
    ),
    shape("cuda_error", " error: ", r"(?:CUDA|HIP) (?:driver )?error: (?P<name>[\w (),'/:-]{3,160})"),
    shape("cuda_error", "_STATUS_", r"(?P<name>(?:CUBLAS|CUDNN|CUSPARSE|CUFFT)_STATUS_\w{3,40})"),
)

_CRASHES = (
    shape("fatal_signal", "Fatal Python error", r"Fatal Python error: (?P<name>[\w ]{2,60})"),
    shape(
        "fatal_signal",
        "terminate called",
        r"terminate called(?: after throwing an instance of '(?P<name>[\w:<>, ]{1,120})')?",
    ),
    shape(
        "fatal_signal",
        "received by PID",
        r"[Ss]ignal (?P<signal>\d{1,2}) \((?P<name>SIG\w{2,8})\) received by PID (?P<pid>\d{1,9})",
    ),
    shape(
        "fatal_signal",
        "received by PID",
        r"(?P<name>SIG(?:SEGV|ABRT|BUS|FPE|ILL|KILL)) .{0,60}?received by PID (?P<pid>\d{1,9})",
    ),
    shape("fatal_signal", "Caught signal", r"Caught signal (?P<signal>\d{1,2}) \((?P<name>[\w ]{2,40})"),
    shape("fatal_signal", "Segfault encountered", name="Segmentation fault"),
    shape("fatal_signal", "core dumped", r"(?P<name>Segmentation fault|Bus error|Aborted|Illegal instruction)"),
)

_SCHEDULER = (
    shape(
        "scheduler_kill",
        "DUE TO",
        r"(?:STEP|JOB) (?P<step>[\w.+]{1,40}) ON (?P<peer>\S{1,120}) CANCELLED AT .{1,40}? "
        r"DUE TO (?P<name>[A-Z ]{3,60})",
    ),
    shape(
        "scheduler_kill",
        "CANCELLED AT",
        r"(?:STEP|JOB) (?P<step>[\w.+]{1,40}) ON (?P<peer>\S{1,120}) (?P<name>CANCELLED)",
    ),
    shape("scheduler_kill", "oom", r"slurmstepd.{0,80}(?P<name>oom[-_]kill event)"),
    shape(
        "scheduler_kill",
        "srun: error",
        r"srun: error: (?P<peer>\S{1,120}): tasks? (?P<tasks>[\d,-]{1,200}): (?P<name>[\w ]{3,60})",
    ),
    shape(
        "torchrun_signal",
        "closing signal",
        r"Sending process (?P<pid>\d{1,9}) closing signal (?P<name>SIG\w{2,8})",
        secondary=True,
    ),
    shape(
        "torchrun_failure",
        "failed (exitcode",
        r"failed \(exitcode: (?P<code>-?\d{1,4})\) local_rank: (?P<local_rank>\d{1,5}) \(pid: (?P<pid>\d{1,9})\)",
    ),
)

_LOADER = (
    shape("shm_full", "out of shared memory", r"(?:worker \(pid (?P<pid>\d{1,9})\) )?.{0,60}?out of shared memory"),
    shape(
        "shm_full",
        "No space left on device",
        r"(?P<where>(?:/dev/shm|</?torch_)\S{0,80}).{0,40}No space left on device",
    ),
    shape("shm_full", "unable to open shared memory object", r"shared memory object (?P<where><?\S{1,80})"),
    shape(
        "loader_killed",
        "DataLoader worker",
        r"DataLoader worker \(pid (?P<pid>\d{1,9})\) (?:is killed by signal: (?P<name>[\w ]{2,40})"
        r"|exited unexpectedly)",
    ),
    shape("loader_killed", "exited unexpectedly", r"worker \(pid\(s\) (?P<pids>[\d, ]{1,200})\) exited unexpectedly"),
    shape("loader_timeout", "DataLoader timed out", r"DataLoader timed out after (?P<timeout_s>\d{1,7}) seconds"),
)

_STEP = (
    r"(?i:\b(?P<name>global[_ ]step|step|iteration|iter|epoch)\b) {0,10}[=:#]? {0,10}\[? ?(?P<seq>\d{1,12})"
    r"(?: ?/ {0,4}(?P<total>\d{1,12}))?(?:.{0,200}?(?i:loss) ?[=:]? ?(?P<loss>-?[\w.+-]{1,20}))?"
)
_SAVE = (
    r"(?i:(?P<name>sav|load|writ|restor|resum)\w{0,4}\b.{0,60}?checkpoint"
    r"|checkpoint\w{0,3}\b.{0,60}?\b(?P<name2>sav|load|writ|restor|done|finish|complet)\w{0,4})"
)

_WORDS = (
    shape("nan", "NaN", r"\bNaNs?\b"),
    shape("nan", "nan", r"(?<![\w./])nan(?![\w./])"),
    shape("nan", "inf", r"(?i:loss|norm|scale)\W{1,4}-?inf(?!\w)"),
    *(shape("checkpoint", word, _SAVE) for word in ("heckpoint", "CHECKPOINT")),
    shape(
        "progress",
        "%|",
        r"(?P<name>[^|%]{0,80}?):? {0,4}(?P<percent>\d{1,3})%\|[^|]{0,200}\| ?(?P<done>[\d.]{1,14}[kMGT]?)/"
        r"(?P<total>[\d.]{1,14}[kMGT]?) \[(?P<elapsed>[\d:]{1,12})<(?P<left>[\d:?]{1,12})",
    ),
    *(shape("progress", word, _STEP) for word in ("step", "Step", "iter", "Iter", "poch")),
)

SHAPES = _CUDA + _CRASHES + _SCHEDULER + _LOADER + _WORDS
# A C++ exception of these types follows a failure that was told before it.
_AFTERWARDS = ("c10::DistBackendError", "c10d::", "gloo::IoException")


def read(line: Line) -> LogEvent | None:
    """The event of a line of the program's. What ends a process because another failed is marked as a consequence."""
    found = first(SHAPES, line)
    if found is None:
        return None
    if found.kind == "fatal_signal":
        if found.name == "SIGTERM":
            return dataclasses.replace(found, kind="torchrun_signal", code=-15, secondary=True)
        signal = found.more.get("signal")
        code = -signal if isinstance(signal, int) else None
        return dataclasses.replace(found, code=code, secondary=found.name.startswith(_AFTERWARDS))
    if found.kind == "scheduler_kill" and "tasks" in found.more:
        ended = found.name.startswith("Terminated")
        return dataclasses.replace(found, about=_tasks(str(found.more["tasks"])), secondary=ended)
    if found.kind == "torchrun_failure":
        return dataclasses.replace(found, secondary=found.code == -15)
    return found


def _tasks(text: str) -> tuple[int, ...]:
    """`0,3-5` as numbers, 64 at most: with srun a task's number is its rank."""
    found: list[int] = []
    for part in text.split(",")[:64]:
        ends = re.fullmatch(r"(\d{1,7})(?:-(\d{1,7}))?", part)
        if ends:
            found += range(int(ends[1]), min(int(ends[2] or ends[1]), int(ends[1]) + 63) + 1)
    return tuple(found[:64])
