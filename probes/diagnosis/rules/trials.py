"""Somebody measured twice and changed one thing of the network between: what it is about is likely the fault."""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule

CAUSES = {
    "peermem": ("ib.gpudirect_off", "GPUDirect RDMA"),
    "topology": ("nccl.topology_degraded", "the topology NCCL is given"),
    "interface": ("net.wrong_interface", "the interface of NCCL's sockets"),
    "gid": ("ib.gid_or_route", "the GID index"),
    "lossless": ("ib.lossless_misconfigured", "PFC or ECN"), "mtu": ("net.mtu_mismatch", "the MTU"),
    "memlock": ("ib.memlock_limit", "locked memory"), "library": ("nccl.library_fault", "the version of NCCL"),
}  # fmt: skip
MANY = 4.0  # judgement: what a fallback to host memory or sockets costs at least


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    told: set[str] = set()
    for seen in evidence.of("evidence.trials"):
        for one in seen.facts.trials:
            cause, what = CAUSES[one.lever]
            if cause in told:
                continue
            told.add(cause)
            much = "it hangs or it runs" if one.times is None else f"{one.times:.1f} times apart"
            signal = "trial_decides" if one.times is None or one.times >= MANY else "trial_helps"
            yield Hypothesis(
                cause, {}, f"Two runs that differ in {what} are far apart: {much}",
                (Reason(f"worse: {one.worse[:200]}", seen.ref), Reason(f"better: {one.better[:200]}", seen.ref)),
                (signal,), would_change=("the same two runs again, with nothing else changed",),
            )  # fmt: skip


RULE = Rule(tuple(sorted({cause for cause, _ in CAUSES.values()})), judge)
