"""A CUDA error on the first rank that has one; the others follow, or lose their peer.

Errors of CUDA stick to their process and are reported by whatever call comes next, so the line of the program proves
nothing about where they arose (CUDA Runtime API, cudaError_t).
"""

from __future__ import annotations

from collections.abc import Iterator

from probes.catalog.logs.python import NAN_CHECK
from probes.diagnosis.core import Evidence, Hypothesis, Rule
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import Said, listed, node_of, when, whom

PROGRAM, MEMORY, NVLINK, SWITCH = "gpu.app_fault", "gpu.memory_error", "gpu.nvlink_error", "gpu.nvswitch_fabric"
OFF_BUS, DRIVER = "gpu.fell_off_bus", "gpu.driver_hang"
# Words of cudaGetErrorString -> cause, signal. Those in small letters count in any.
NAMES = (
    ("GPU is lost", OFF_BUS, "gpu_lost_told"),
    ("nvls.cc", SWITCH, "nvls_refused"),
    ("ECC", MEMORY, "ecc_error_told"),
    ("NVLink", NVLINK, "nvlink_error_told"),
    ("device-side assert", PROGRAM, "assert_on_gpu"),
    ("illegal memory access", PROGRAM, "illegal_access"),
    ("illegal_address", PROGRAM, "illegal_access"),
    ("errorillegaladdress", PROGRAM, "illegal_access"),
    ("errorassert", PROGRAM, "assert_on_gpu"),
    ("misaligned address", PROGRAM, "illegal_access"),
    ("invalid program counter", PROGRAM, "illegal_access"),
    ("illegal instruction", PROGRAM, "illegal_access"),
    ("operation not supported on global/shared address space", PROGRAM, "illegal_access"),
    ("Memory access fault by GPU", PROGRAM, "illegal_access"),
    ("HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION", PROGRAM, "illegal_access"),
    ("HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION", PROGRAM, "illegal_access"),
    ("HSA_STATUS_ERROR_EXCEPTION", PROGRAM, "launch_failure"),
    ("GPU Hang", DRIVER, "gpu_hang_told"),
    ("Invalid __", PROGRAM, "illegal_access"),
    ("Illegal Address", PROGRAM, "illegal_access"),
    ("Illegal Instruction", PROGRAM, "illegal_access"),
    ("Misaligned Address", PROGRAM, "illegal_access"),
    ("Out-of-range Address", PROGRAM, "illegal_access"),
    ("Assert", PROGRAM, "assert_on_gpu"),
    ("unspecified launch failure", PROGRAM, "launch_failure"),
    ("error: unknown error", PROGRAM, "launch_failure"),  # cudaErrorUnknown tells no reason either
)
# Error 802, also as a traceback or NCCL passes it on: of the fabric of a whole node, whichever rank meets it.
NOT_READY = ("error 802", "system not yet initialized", "cudaErrorSystemNotReady", "CUDA_ERROR_SYSTEM_NOT_READY")
TOLD_BY_KERNEL = ("kernel.gpu_problem", "kernel.gpu_off_bus", "kernel.xid", "gpu.ecc_uncorrected")
OF_HARDWARE = ("kernel.gpu_off_bus", "gpu.ecc_uncorrected", "gpu.remap_failed", "gpu.remap_pending", "gpu.lost")
NAN_CHECKS = ("checkForNaN", "CheckForNaN", "nan_check")


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    found: list[tuple[Said, str, str]] = []
    for one in evidence.job.said("cuda_error"):
        text = one[0].text
        named = next((row for row in NAMES if row[0] in text or (row[0].islower() and row[0] in text.lower())), None)
        nobodys = named is not None and named[1] == OFF_BUS and one[0].rank is None
        if named is not None and (named[1] == DRIVER or nobodys) and evidence.findings(*TOLD_BY_KERNEL):
            continue  # the kernel tells why
        if named is not None and not _by_nan_check(evidence, one):
            found.append((one, named[1], named[2]))
    yield from _not_ready(evidence)
    found.sort(key=lambda item: when(evidence, item[0]) or float("inf"))
    told: set[tuple[str, object]] = set()
    for one, cause, signal in found:
        event, node = one[0], node_of(evidence, one)
        whole = bool(node) and cause == SWITCH  # a fault of the node, whichever rank meets it
        key = (cause, node if whole else event.rank)
        if key in told:
            continue
        later = bool(told)
        told.add(key)
        subject: dict[str, str | int] = {"node": node} if node else {}
        if event.rank is not None and not whole:
            subject["rank"] = event.rank
        who = f"Rank {event.rank}" if event.rank is not None else "A rank"
        words = {
            PROGRAM: "broke a rule of CUDA",
            MEMORY: "met an error of its GPU's memory",
            OFF_BUS: "lost its GPU",
            DRIVER: "lost its GPU to a hang",
        }
        yield Hypothesis(
            cause,
            subject,
            f"{who} on {node or 'a node'} {words.get(cause, 'met an error of the GPU fabric')}: {event.name}",
            (quoted(*one),),
            ("cuda_error_later",) if later else (_beside(evidence, signal),),
            would_change=("an Xid in the kernel log that says otherwise", "an earlier failure of another rank"),
            ranks=frozenset({event.rank}) if event.rank is not None else frozenset(),
            nodes=frozenset({node}),
        )
        if len(told) >= 8:
            return


def _beside(evidence: Evidence, signal: str) -> str:
    """A failed launch tells no reason; where a GPU tells of a fault of its own, that may be it."""
    return "launch_failure_beside_fault" if signal == "launch_failure" and evidence.findings(*OF_HARDWARE) else signal


def _not_ready(evidence: Evidence) -> Iterator[Hypothesis]:
    told = [
        one
        for one in evidence.job.said("cuda_error", "traceback", "nccl_error", "nccl_warn")
        if any(words in one[0].text for words in NOT_READY)
    ]
    if not told:
        return
    nodes = {node_of(evidence, one) for one in told}
    down = {seen.node for seen, _ in evidence.findings("gpu.fabric_manager_down", "gpu.fabric_not_ready")} - {""}
    if len(down) == 1 and not nodes - down - {""}:
        nodes = down  # lines that do not say of which node they are
    yield Hypothesis(
        SWITCH,
        whom(nodes),
        f"CUDA on {listed(nodes)} says that the system is not ready (error 802): the NVLink fabric is not set up",
        tuple(quoted(*one) for one in told[:4]),
        ("fabric_not_ready_told",),
        would_change=("fabric manager running, and GPUs whose fabric state is completed",),
        ranks=frozenset(one[0].rank for one in told if one[0].rank is not None),
        nodes=frozenset(nodes),
    )


def _by_nan_check(evidence: Evidence, one: Said) -> bool:
    """TORCH_NCCL_NAN_CHECK stops a rank with an assert of its own, which any later call of that rank meets again."""
    event, log, _ = one
    if any(word in event.text or any(word in row for row in log.tail) for word in NAN_CHECKS):
        return True
    other = any("Assertion `" in row and "isnan" not in row for row in log.tail)
    if other or "device-side assert" not in event.text:
        return False
    checks = [said for said in evidence.job.said("nan") if said[0].name == NAN_CHECK]
    return any(said[0].rank == event.rank or (said[0].rank is None and said[1] is log) for said in checks)


RULE = Rule((PROGRAM, MEMORY, NVLINK, SWITCH, OFF_BUS, DRIVER), judge)
