"""Rows of ps in state D in a GPU's driver, or of a tool that asks it: of any columns, with or without a heading.

Source   ps(1): STAT begins with D for a task that cannot be interrupted; WCHAN is where it sleeps. Functions of the
         drivers: NVIDIA/open-gpu-kernel-modules (nv_, nvidia_, os_, uvm_, rm_), Linux amdgpu and amdkfd
Shape    facts gpu.stuck_tasks
Errors   ParseError when no row is such a task
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from probes.catalog.ranks.process_extract import Extract
from probes.core import Finding, ParseError, clean, lines_of
from probes.intake.tools import Tool

MOST = 64
ROW = re.compile(r"\s{0,12}(?:[a-z_][\w.+-]{0,31} {1,20})?(\d{2,8}) ([^\n]{0,400})")
STATE = re.compile(r"(?<=\s)D[sl<N+]{0,4}(?=\s)")
_WHERE = re.compile(
    r"(?<=\s)((?:uvm_|nv_|nvidia_|os_acquire|os_wait|rm_|_nv\d|amdgpu|kfd_|drm_sched|svm_range)\w{0,60})"
)
_ASKS = re.compile(r"(?<![\w-])(nvidia-smi|rocm-smi|amd-smi|dcgmi|nv-hostengine|nvidia-persiste\w{0,4})(?![\w-])")


@dataclass(frozen=True, slots=True)
class StuckTask:
    pid: int
    what: str  # the tool, or the function that it sleeps in


@dataclass(frozen=True, slots=True)
class StuckTasks:
    tasks: tuple[StuckTask, ...]


def _tasks(text: str) -> Iterator[StuckTask]:
    for line in lines_of(text, 600):
        row = ROW.match(line)
        if row is None or not STATE.search(f" {row[2]} "):
            continue
        what = _ASKS.search(row[2]) or _WHERE.search(f" {row[2]}")
        if what and "grep" not in row[2]:
            yield StuckTask(int(row[1]), clean(what[1])[:60])


def fits(head: str, name: str) -> bool:
    return next(_tasks(head), None) is not None


def read(text: str) -> StuckTasks:
    found = {task.pid: task for _, task in zip(range(MOST * 8), _tasks(text), strict=False)}
    if not found:
        raise ParseError("ps: no task that is stuck in a GPU's driver")
    return StuckTasks(tuple(found.values())[:MOST])


def of_extracts(extracts: Iterable[Extract]) -> StuckTasks | None:
    """The same of /proc/PID: a task in state D whose stack in the kernel, or wchan, is in a driver."""
    found = []
    for one in extracts:
        where = next((said for said in (one.wchan, *one.kernel[:8]) if _WHERE.match(f" {said}", 1)), "")
        if one.state[:1] == "D" and (where or _ASKS.fullmatch(one.comm)):
            found.append(StuckTask(one.pid, clean(where or one.comm)[:60]))
    return StuckTasks(tuple(found)[:MOST]) if found else None


def findings(facts: StuckTasks) -> Iterator[Finding]:
    names = ", ".join(dict.fromkeys(task.what for task in facts.tasks[:6]))
    count = len(facts.tasks)
    if count > 1:
        says = f"{count} tasks wait for the GPU driver and cannot be interrupted ({names})"
        yield Finding("gpu.tasks_stuck", "bad", says)
    else:
        says = f"a task waits for the GPU driver and cannot be interrupted ({names}, pid {facts.tasks[0].pid})"
        yield Finding("gpu.task_stuck", "bad", says)


TOOL = Tool("tasks stuck in a GPU driver", "gpu.stuck_tasks", fits, read, findings)
