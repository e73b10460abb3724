"""What shows that somebody waits for a CPU of a node: measured, not guessed from a high load.

Shape    waits_of(node) -> Reasons
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from probes.diagnosis.core import Reason

if TYPE_CHECKING:
    from probes.diagnosis.cpus import NodeCpu

WAIT_PRESSURE, IDLE = 20.0, 10.0  # judgement: field rows Load and PSI, as host.load warns
LATE_WAITS = 20.0  # percent; judgement: on a node with CPUs left nearly every wait is below 1 ms
FULL_SHARE = 0.8  # of all CPUs; judgement
CROWDED = 3.0  # tasks that run or wait, per CPU; judgement
RUNNABLE = 1.5  # tasks that want to run, per CPU; judgement


def waits_of(here: NodeCpu) -> list[Reason]:
    found = []
    if here.pressure is not None and (here.pressure.some_avg10 or 0.0) > WAIT_PRESSURE:
        says = f"for {here.pressure.some_avg10:g} % of the last 10 s a task waited for a CPU"
        found.append(Reason(says, here.refs.get("pressure", "")))
    late = sorted(
        (one for one in here.runners.values() if one.waits and here.is_job(one)),
        key=lambda one: -(one.delay or 0),
    )
    found += [Reason(f"{one.called} {one.delayed}", one.ref) for one in late[:3]]
    if (here.late_waits or 0.0) > LATE_WAITS:
        says = f"{here.late_waits:g} % of all waits for a CPU took 4 ms or more"
        found.append(Reason(says, here.refs.get("late_waits", "")))
    if here.cpus and (here.runnable or 0) > RUNNABLE * here.cpus:
        found.append(Reason(f"{here.runnable} tasks want to run on {here.cpus} CPUs", here.refs.get("runnable", "")))
    if (
        not found
        and here.cpus
        and here.use is not None
        and here.use.idle < IDLE
        and (here.load1 or 0.0) > RUNNABLE * here.cpus
    ):
        says = f"CPUs are idle for {here.use.idle:g} % only, and {here.load1:g} tasks run or wait on {here.cpus} CPUs"
        found.append(Reason(says, here.refs.get("use", "")))
    if not found and here.cpus and (here.load1 or 0.0) > RUNNABLE * here.cpus and _filled(here):
        says = f"{here.load1:g} tasks run or wait on {here.cpus} CPUs, which what is listed fills"
        found.append(Reason(says, here.refs.get("load1", "")))
    return found


def _filled(here: NodeCpu) -> bool:
    """Whether the processes that are listed take all CPUs, and the load is no queue for a disk. What they took since
    they started counts where the load is so high that they cannot have stopped since."""
    ever = (here.load1 or 0.0) > CROWDED * (here.cpus or 0)
    taken = sum(one.cpu or 0.0 for one in here.runners.values() if ever or not one.lifetime)
    return taken > FULL_SHARE * 100 * (here.cpus or 0)
