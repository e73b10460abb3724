"""Findings of rank.process: what holds a rank, or a child it waits for, on this node."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from probes.catalog.host.storage_facts import waits_for
from probes.catalog.ranks.process_facts import Cgroup, Process, RankProcesses
from probes.catalog.ranks.rank_facts import ENDED
from probes.core import Finding, Severity

# As in host.load: our own judgement.
THROTTLED_WARN, THROTTLED_BAD, FEW_PERIODS = 5.0, 25.0, 5


def findings(found: RankProcesses) -> Iterator[Finding]:
    """Ranks and children that are stopped, traced, stuck in the kernel, ended; cgroups that kill or hold back."""
    for process in found.processes:
        if process.gone:
            yield _about(process, "rank.ended", "bad", "ended while it was looked at")
        elif process.state in ENDED:
            yield _about(process, "rank.zombie", "bad", "has ended (state Z), and its parent has not taken note of it")
    yield from _held(found, "rank.stopped", lambda process: process.state == "T", _stopped)
    yield from _held(found, "rank.traced", lambda process: process.state == process.state_before == "t", _traced)
    for process in found.processes:
        yield from _stuck(process)
        yield from _observed(process)
    for hidden in found.unread:
        if hidden.state in ENDED:
            says = (
                f"{hidden.comm} ({hidden.pid}) has ended (state Z), and the launcher of ranks has not taken note of it"
            )
            yield Finding("rank.zombie", "bad", f"{says}: one of its ranks is gone", {"pid": hidden.pid})
    for group in found.cgroups:
        # Events of cgroups v2 count what is below them too: the outer one, which has the limit, speaks for both.
        above = [other for other in found.cgroups if group.folder.startswith(other.folder + "/")]
        if all(other.oom_kills != group.oom_kills for other in above):
            yield from _killed(group)
        yield from _throttled(group)


def _name(process: Process) -> str:
    if process.worker_of is None:
        return f"rank {process.rank} ({process.comm}, {process.pid})"
    return f"{process.comm} ({process.pid}), a child of rank {process.rank},"


def _about(process: Process, code: str, severity: Severity, says: str) -> Finding:
    return Finding(code, severity, f"{_name(process)} {says}", {"rank": process.rank, "pid": process.pid})


def _held(
    found: RankProcesses, code: str, held: Callable[[Process], bool], says: Callable[[Process], str]
) -> Iterator[Finding]:
    """A rank is told by itself. Of its children one speaks for all, and none where the rank is held too."""
    told: set[int | None] = set()
    for process in found.processes:
        if held(process) and not process.gone and process.worker_of not in told:
            told.add(process.pid if process.worker_of is None else process.worker_of)
            yield _about(process, code, "bad", says(process))


def _stopped(process: Process) -> str:
    says = "is stopped by a signal (state T) and does nothing until SIGCONT"
    return f"{says}; it has been stopped since before we looked" if process.state_before == "T" else says


def _traced(process: Process) -> str:
    return f"is held by {process.tracer or 'a tracer'} ({process.tracer_pid}), a debugger (state t)"


def _observed(process: Process) -> Iterator[Finding]:
    """The same tracer in both looks: a profiler that takes one stack lets go at once, and ours may be that one."""
    if process.tracer_pid is None or process.tracer_pid != process.tracer_before:
        return
    if not process.state == process.state_before == "t":
        says = f"is traced by {process.tracer or 'process'} ({process.tracer_pid}), which slows it down"
        yield _about(process, "rank.observed", "warn", says)


def _stuck(process: Process) -> Iterator[Finding]:
    """State D in both looks, same function, no switch in between. Any thread: the main one may only wait for it."""
    places: dict[str, list[str]] = {}
    if process.stuck:
        places[process.wchan] = ["its main thread"]
    for thread in process.threads:
        if thread.stuck and thread.tid != process.pid:
            places.setdefault(thread.wchan, []).append(f"thread {thread.comm} ({thread.tid})")
    for wchan, who in places.items():
        about = waits_for(wchan)
        others = f" and {len(who) - 1} more" if len(who) > 1 else ""
        says = f"is stuck in the kernel (state D) in {wchan or 'an unknown function'}"
        says += f", waiting for {about}" if about else ""
        says += f": {who[0]}{others}"
        if process.kill_pending:
            says += "; it was killed and cannot end"
        subject: dict[str, str | int] = {"rank": process.rank, "pid": process.pid, "wchan": wchan or "unknown"}
        yield Finding("rank.stuck", "bad", f"{_name(process)} {says}", subject)


def _killed(group: Cgroup) -> Iterator[Finding]:
    if not group.oom_kills:
        return
    limit = "" if group.memory_limit_bytes is None else f" (limit {group.memory_limit_bytes / 2**30:.1f} GiB)"
    times = "once" if group.oom_kills == 1 else f"{group.oom_kills} times"
    says = f"the kernel killed a process of {group.folder}{limit} {times} for want of memory"
    now = group.oom_kills_now
    says += f", {now} of them while we looked" if now else " since that cgroup was made"
    yield Finding("rank.oom_kill", "bad" if now else "warn", says, {"cgroup": group.folder})


def _throttled(group: Cgroup) -> Iterator[Finding]:
    share = group.throttled_percent
    if share is None or (group.periods or 0) < FEW_PERIODS or share <= THROTTLED_WARN:
        return
    says = f"a quota of {group.cpus:g} CPUs stopped {len(group.pids)} processes of ranks in {share:g} % of the periods"
    severity: Severity = "bad" if share > THROTTLED_BAD else "warn"
    yield Finding("rank.throttled", severity, f"{says} ({group.folder})", {"cgroup": group.folder})
