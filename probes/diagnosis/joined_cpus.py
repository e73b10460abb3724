"""What files tell of the CPUs of no named node, added to those of the only node that is named.

Shape    join(here, nowhere) changes here
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from probes.diagnosis.cpus import NodeCpu


def join(here: NodeCpu, nowhere: NodeCpu) -> None:
    """What files tell that name no node, where all others name one and the same."""
    for name in ("pressure", "use", "runnable", "load1", "late_waits", "env"):
        if getattr(here, name) is None and (value := getattr(nowhere, name)) is not None:
            setattr(here, name, value)
            if name in nowhere.refs:
                here.refs[name] = nowhere.refs[name]
    for pid, one in nowhere.runners.items():
        there = here.runners.setdefault(pid, one)
        for part in ("cpu", "delay", "preempted", "threads", "rank"):
            if getattr(there, part) is None:
                setattr(there, part, getattr(one, part))
        if there.delay == one.delay:
            there.of_wanted = one.of_wanted
        there.mask, there.args = there.mask or one.mask, there.args or one.args
        there.user, there.ppid = there.user or one.user, there.ppid or one.ppid
        there.seen_on |= one.seen_on
        there.running = max(there.running, one.running)
    here.quotas += nowhere.quotas
    here.full |= nowhere.full
    here.free |= nowhere.free
