"""Storage does not answer: a silent mount or disk, or the rank that the others wait for hangs in a file access."""

from __future__ import annotations

from collections.abc import Iterator

from probes.catalog._stack_waits import waits_in
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.suspects import Suspect

CAUSE = "host.storage_stall"
SIGNALS = {
    "host.nfs_silent": "storage_silent",
    "host.disk_silent": "storage_silent",
    "kernel.nfs_stall": "storage_in_kernel_log",
}
FILES = ("nfs", "rpc_", "fuse", "lustre", "ll_", "cl_sync", "ceph", "io_schedule", "folio_wait", "wait_on_page",
    "fifo_open", "wait_for_partner", "jbd2", "xfs_", "ext4_", "blk_")  # fmt: skip


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    for seen, finding in evidence.findings(*SIGNALS):
        if finding.severity == "bad":
            subject = {key: finding.subject[key] for key in ("mount", "device", "server") if key in finding.subject}
            yield Hypothesis(
                CAUSE,
                {"node": seen.node, **subject},
                f"Storage of {seen.node or 'a node'} does not answer: {finding.says}",
                (Reason(finding.says, seen.ref),),
                (SIGNALS[finding.code],),
                would_change=("the same mount, answering",),
                nodes=frozenset({seen.node}),
            )
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
