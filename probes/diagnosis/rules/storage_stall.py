"""Storage does not answer: a silent mount or disk, or the rank that the others wait for hangs in a file access."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from probes.catalog.stacks.waits import waits_in
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.going_on import steps_to_the_look
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import Said, node_of
from probes.diagnosis.rules._merge import as_one
from probes.diagnosis.suspects import Suspect
from probes.diagnosis.times import times_of

CAUSE = "host.storage_stall"
SIGNALS = {
    "host.nfs_silent": "storage_silent",
    "host.disk_silent": "storage_silent",
    "host.tasks_wait_for_server": "tasks_wait_for_server",
    "host.tasks_wait_for_file": "tasks_wait_for_file",
    "host.files_frozen": "files_frozen",
}
# Functions and modules of file systems and disks in which a hung task waits.
OF_STORAGE = ("nfs", "rpc", "sunrpc", "lustre", "ptlrpc", "ldlm", "ll_", "osc", "mdc", "lov", "ceph", "beegfs", "cifs",
    "mmfs", "jbd2", "ext4", "xfs", "btrfs", "io_schedule", "blk_", "nvme", "dm_", "submit_bio", "fuse",
    "writeback", "weka", "gluster", "pvfs2", "orangefs", "p9_", "v9fs", "virtio_blk", "virtio_fs", "dlm_",
    "gfs2")  # fmt: skip
FILES = ("nfs", "rpc_", "fuse", "lustre", "ll_", "cl_sync", "ceph", "io_schedule", "folio_wait", "wait_on_page",
    "fifo_open", "wait_for_partner", "jbd2", "xfs_", "ext4_", "blk_")  # fmt: skip

# errno(3) of an access to a file, with its path: no socket's
_GONE = re.compile(
    r"(?:Stale (?:NFS )?file handle|Transport endpoint is not connected|Input/output error|Remote I/O error"
    r"|Host is down|Cannot send after transport endpoint shutdown|Connection timed out): '?/"
)


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    told = list(_kernel(evidence))
    of_servers = [one for one in told if "server" in one.subject]
    by_server = list(as_one(of_servers, ("server",), "%d more nodes say the same"))
    # One node that misses many servers of one file system misses the file system.
    yield from as_one(
        [one for one in by_server if "node" in one.subject], ("node",), "%d more servers are silent to it"
    )
    yield from (one for one in by_server if "node" not in one.subject)
    hung = [one for one in told if one.signals[0] == "storage_hung_task"]
    yield from as_one(hung, (), "%d more tasks hang so")
    disks = [one for one in told if one not in of_servers and one not in hung]
    yield from as_one(
        [_of_drive(one) for one in disks if "device" in one.subject], ("node", "device"), "%d more say so"
    )
    yield from (one for one in disks if "device" not in one.subject)
    goes_on = bool(steps_to_the_look(evidence))  # then whoever was seen to wait has got what it waited for
    again = _same_twice(evidence)
    for seen, finding in evidence.findings(*SIGNALS):
        if goes_on and finding.code.startswith("host.tasks_wait"):
            continue
        if finding.severity == "bad" or finding.code == "host.tasks_wait_for_file":
            twice = finding.code == "host.tasks_wait_for_file" and seen.node in again
            subject = {key: finding.subject[key] for key in ("mount", "device", "server") if key in finding.subject}
            yield Hypothesis(
                CAUSE,
                {**({"node": seen.node} if seen.node else {}), **subject},
                f"Storage of {seen.node or 'a node'} does not answer: {finding.says}",
                (Reason(finding.says, seen.ref),),
                ("tasks_wait_for_file_twice",) if twice else (SIGNALS[finding.code],),
                would_change=("the same mount, answering",),
                nodes=frozenset({seen.node}),
            )
    yield from _told(evidence)
    for rank, suspect in evidence.suspects.items():
        if (reason := _in_files(suspect)) is not None:
            view = suspect.view
            stuck = view.process is not None and view.process.stuck
            yield Hypothesis(
                CAUSE,
                view.subject,
                f"{view.headline} hangs in a file access, and the others wait for it",
                (reason,),
                ("rank_stuck_in_storage",) if stuck else ("behind_in_file_access",),
                would_change=("a second look at which it is past that access",),
                ranks=frozenset({rank}),
                nodes=frozenset({view.node}),
            )


def _same_twice(evidence: Evidence) -> set[str]:
    """Nodes of which two looks show one task in one function: a read that ends is seen so once."""
    found: dict[str, set[tuple[int, str]]] = {}
    again: set[str] = set()
    for seen in evidence.of("host.stuck_in_files"):
        tasks = {(one.pid, one.where) for one in seen.facts.tasks if one.remote}
        if found.get(seen.node, set()) & tasks:
            again.add(seen.node)
        found[seen.node] = found.get(seen.node, set()) | tasks
    return again


def _of_drive(one: Hypothesis) -> Hypothesis:
    """nvme1n1p2 is a part of the drive nvme1, of which its controller writes."""
    drive = re.match(r"nvme\d{1,4}", str(one.subject["device"]))
    return dataclasses.replace(one, subject=dict(one.subject) | {"device": drive[0]}) if drive else one


def _told(evidence: Evidence) -> Iterator[Hypothesis]:
    """Ranks to whom an access of a file failed because its storage was gone: one hypothesis a node."""
    by_node: dict[str, list[Said]] = {}
    for one in evidence.job.said("traceback"):
        if not one[0].secondary and _GONE.search(one[0].text):
            by_node.setdefault(node_of(evidence, one), []).append(one)
    for node, said in by_node.items():
        yield Hypothesis(
            CAUSE,
            {"node": node} if node else {},
            f"Storage of {node or 'a node'} failed: {said[0][0].text[:160]}",
            tuple(quoted(*one) for one in said[:3]),
            ("storage_failed_told",),
            would_change=("the same file, read on another node at the same moment",),
            ranks=frozenset(one[0].rank for one in said if one[0].rank is not None),
            nodes=frozenset({node}),
        )


def _kernel(evidence: Evidence) -> Iterator[Hypothesis]:
    """Servers that are silent still, tasks that hang in a file system, disks that err. What answered again is over."""
    times = times_of(evidence)
    for seen in evidence.of("host.kernel_log"):
        facts = seen.facts
        for code, events in (
            ("kernel.nfs_stall", facts.nfs_stalls),
            ("kernel.hung_task", facts.hung_tasks),
            ("kernel.io_error", facts.io_errors),
            ("kernel.nvme", facts.nvme),
        ):
            said = [finding for finding in seen.findings if finding.code == code]
            for event, finding in zip(events, said, strict=False):
                signal = _signal(code, event)
                if finding.severity == "info" or not signal:
                    continue
                old = times.old(seen.node, event.last_at, event.last)
                if old == "yes":
                    continue
                kept = ("server", "device")
                subject = {key: finding.subject[key] for key in kept if key in finding.subject}
                sure = signal in ("storage_in_kernel_log", "storage_hung_task") and not old
                yield Hypothesis(
                    CAUSE,
                    ({"node": seen.node} if seen.node else {}) | subject,
                    f"Storage of {seen.node or 'a node'} does not answer: {finding.says}",
                    (Reason(finding.says, seen.ref),),
                    (signal, "fault_before_job") if old else (signal,),
                    would_change=("the same mount, answering",),
                    nodes=frozenset({seen.node}) if sure else frozenset(),
                )


def _signal(code: str, event: object) -> str:
    if code == "kernel.hung_task":
        where, modules = getattr(event, "where", ""), getattr(event, "modules", ())
        if any("nvidia" in name for name in modules):
            return ""  # told by gpu_driver_hang
        mine = any(part in where for part in OF_STORAGE) or any(name.startswith(OF_STORAGE) for name in modules)
        return "storage_hung_task" if mine else ""
    return {"kernel.nfs_stall": "storage_in_kernel_log"}.get(code, "disk_errors")


def _in_files(suspect: Suspect) -> Reason | None:
    """The rank, or a data-loader worker of it, waits in the kernel for a file."""
    view = suspect.view
    for stack in [*([view.stack] if view.stack else []), *view.worker_stacks]:
        kernel = next((part for part in FILES for line in (stack.wchan, *stack.kernel) if part in line), "")
        waits = waits_in(stack)
        if kernel and (stack.state == "D" or waits.kind == "input/output"):
            who = f"its worker {stack.pid or ''}" if stack.worker else f"rank {suspect.view.rank}"
            where = f" at {waits.at.short}" if waits.at is not None else ""
            return Reason(f"{who} is in {stack.wchan or kernel}{where}", view.ref("rank.stack"))
    process = view.process
    if process is not None and process.stuck and any(part in process.wchan for part in FILES):
        return Reason(f"rank {view.rank} is in state D in {process.wchan}, at both looks", view.ref("rank.process"))
    return None


RULE = Rule((CAUSE,), judge)
