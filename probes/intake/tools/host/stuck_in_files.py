"""Rows of ps in state D in a file system: of any columns, with or without a heading.

Source   ps(1); functions of Linux: fs/nfs, net/sunrpc, fs/fuse, fs/ceph, fs/smb, fs/9p, mm/filemap.c, block; of Lustre
         (ll_, cl_, osc_, ptlrpc_), GPFS (cxi), BeeGFS (Fhgfs)
Shape    facts host.stuck_in_files
Errors   ParseError when no row is such a task
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from probes.catalog.ranks.process_extract import Extract
from probes.core import Finding, ParseError, clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools.gpu.stuck_in_driver import MOST, ROW, STATE

# Of servers, which answer or do not; and of any file, where a healthy task sleeps for a moment too.
_REMOTE = re.compile(
    r"(?<=\s)((?:rpc_|nfs|__rpc|fuse_|request_wait_answer|ceph|cifs|smb2?_|p9_|v9fs|ll_|cl_|osc_|ptlrpc|ldlm|cxi|Fhgfs|beegfs)"
    r"\w{0,60})"
)
_ANY = re.compile(
    r"(?<=\s)((?:folio_wait|wait_on_page|__lock_page|io_schedule|jbd2_|xfs_|ext4_|blk_|wait_on_buffer)\w{0,60})"
)


# A file system that is frozen, by fsfreeze(8), a snapshot or an error of its volume: who writes waits for its thaw in
# a lock that others use too, so a caller must tell. fs/super.c: sb_start_write, mnt_want_write.
_LOCKS = ("percpu_rwsem_wait", "__percpu_down_read", "percpu_down_read")
_WRITES = re.compile(
    r"mnt_want_write|sb_start|file_start_write|vfs_|ksys_write|do_sys_open|path_openat|filename_|do_fallocate"
)


SEVERAL = 3  # judgement: one or two are in an access of their own at any moment


@dataclass(frozen=True, slots=True)
class TaskInFiles:
    pid: int
    where: str  # the function that it sleeps in
    remote: bool
    frozen: bool = False


@dataclass(frozen=True, slots=True)
class TasksInFiles:
    """`counted`: rows of `uniq -c`, whose first number is how many such tasks there are."""

    tasks: tuple[TaskInFiles, ...]
    counted: bool = False


def _tasks(text: str) -> Iterator[TaskInFiles]:
    for line in lines_of(text, 600):
        row = ROW.match(line)
        if row is None or not STATE.search(f" {row[2]} "):
            continue
        remote = _REMOTE.search(f" {row[2]}")
        where = remote or _ANY.search(f" {row[2]}")
        if where and "grep" not in row[2]:
            yield TaskInFiles(int(row[1]), clean(where[1])[:60], remote is not None)


def fits(head: str, name: str) -> bool:
    return next(_tasks(head), None) is not None


def read(text: str) -> TasksInFiles:
    found = {task.pid: task for _, task in zip(range(MOST * 8), _tasks(text), strict=False)}
    if not found:
        raise ParseError("ps: no task that is stuck in a file system")
    return TasksInFiles(tuple(found.values())[:MOST])


def of_extracts(extracts: Iterable[Extract]) -> TasksInFiles | None:
    """The same of /proc/PID: tasks in state D whose stack in the kernel, or wchan, is in a file system. A page that is
    waited for is a server's where a caller of the wait is its client. Of a stack alone the state is not told: those who
    wait there can be nothing else."""
    found = []
    for one in extracts:
        calls = [f" {said}" for said in (one.wchan, *one.kernel)]
        remote = next((told for said in calls if (told := _REMOTE.match(said, 1))), None)
        where = remote or next((told for said in calls[:4] if (told := _ANY.match(said, 1))), None)
        frozen = one.kernel[:1] and one.kernel[0] in _LOCKS and any(map(_WRITES.match, one.kernel[1:8]))
        stands = one.state[:1] == "D" or (not one.state and one.kernel)
        if stands and (where is not None or frozen):
            at = where[1] if where is not None else one.kernel[0]
            found.append(TaskInFiles(one.pid, clean(at)[:60], remote is not None, bool(frozen)))
    return TasksInFiles(tuple(found)[:MOST]) if found else None


def findings(facts: TasksInFiles) -> Iterator[Finding]:
    """One look tells little of a task that reads a local disk, and more of several that wait for one server."""
    frozen = [task for task in facts.tasks if task.frozen]
    if frozen:
        who = f"{len(frozen)} tasks wait" if len(frozen) > 1 else f"a task ({frozen[0].pid}) waits"
        says = f"{who} to write to a file system that is frozen ({frozen[0].where})"
        yield Finding("host.files_frozen", "bad", says)
    for remote in (True, False):
        some = [task for task in facts.tasks if task.remote is remote and not task.frozen]
        if some:
            names = ", ".join(dict.fromkeys(task.where for task in some[:6]))
            many = sum(task.pid for task in some) if facts.counted else len(some)
            who = f"{many} tasks wait" if many > 1 else f"a task ({some[0].pid}) waits"
            says = f"{who} for {'a file server' if remote else 'a file'} and cannot be interrupted ({names})"
            code = "host.tasks_wait_for_server" if remote and many >= SEVERAL else "host.tasks_wait_for_file"
            yield Finding(code, "bad" if remote else "warn", says)


def named(facts: TasksInFiles, path: str) -> TasksInFiles:
    return replace(facts, counted="uniq_-c" in path)


TOOL = Tool("tasks stuck in a file system", "host.stuck_in_files", fits, read, findings, named=named)
