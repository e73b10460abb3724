"""gpu-off-bus: a GPU of gpu-205 has fallen off the bus (Xid 79); its rank raised, the other 63 wait for it.

Source   NVIDIA Xid catalogue: 79, and 154 on the node's GPUs after it; the driver's lines as recorded in
         tests/fixtures/host.kernel_log
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from probes.core import Capture
from tests.lab.drills import gpus, recorders
from tests.lab.drills.cluster import Job, Node, t0_of
from tests.lab.drills.logs import stamp, steps
from tests.lab.drills.ranks import PROGRAM, VENV
from tests.lab.drills.scene import VERIFY, Look

NAME = "gpu-off-bus"
NODE, GPU = 205, 6
VICTIM = 38  # rank of that GPU: local rank 6 of the fifth node
FELL = -26.0  # seconds before T0: the other ranks of the node still wait in the driver
RESTARTED, LOOKS = 388.0, (497.0, 519.0)  # seconds after T0
STEP_S = 2.31
HOT, OLD_XID = 202, 207  # nodes with an oddity
CUDA = "CUDA error: unspecified launch failure"


def nodes() -> tuple[Node, ...]:
    t0 = t0_of(NAME)
    return tuple(Node(NAME, f"gpu-{number}", number, t0) for number in range(201, 209))


def job_of(all_nodes: tuple[Node, ...]) -> Job:
    t0 = all_nodes[0].t0
    return Job("llm-13b-sft4", "60422", all_nodes, t0 - 3_120, 1_274, t0 + FELL - 0.3 * STEP_S, STEP_S)


def recording(fault: bool = True) -> Iterator[Capture]:
    """The first look at all nodes. Without the fault the job advances; what is odd elsewhere stays."""
    everything = nodes()
    job = job_of(everything)
    stalled = recorders.standing(job, everything[0].t0 + FELL, 133)
    for node in everything:
        until = node.t0 + (FELL if fault else 0)
        look = Look(
            job,
            node,
            node.t0,
            (lambda at: stalled) if fault else (lambda at: recorders.moving(job, at)),
            smi={},
            lines={rank.rank: steps(job, node, rank, until) for rank in job.ranks(node)},
        )
        _oddities(look)
        if fault and node.number == NODE:
            _fault(look)
        yield from look.captures()


def _oddities(look: Look) -> None:
    t0 = look.node.t0
    if look.node.number == HOT:
        look.smi = {
            2: {
                "GPU Current Temp": "86 C",
                "GPU T.Limit Temp": "-1 C",
                "Memory Current Temp": "93 C",
                "HW Slowdown": "Active",
                "HW Thermal Slowdown": "Active",
                "SM": "1305 MHz",
                "Graphics": "1305 MHz",
            }
        }
    elif look.node.number == OLD_XID:
        bus = look.node.gpus[1][:-2]
        what = "MMU Fault: ENGINE GRAPHICS GPC3 GPCCLIENT_T1_5 faulted @ 0x7f3a_c4000000. "
        what += "Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"
        old = f"NVRM: Xid (PCI:{bus}): 31, pid=2113078, name=python3, Ch 00000008, intr 00000000. {what}"
        look.kernel = ((t0 - 5_431.7, old),)


def _fault(look: Look) -> None:
    node, at = look.node, look.node.t0 + FELL
    rank = look.job.ranks(node)[GPU]
    bus = node.gpus[GPU]
    lines = [
        f"NVRM: GPU at PCI:{bus[:-2]}: {gpus.uuid(node, GPU)}",
        f"NVRM: Xid (PCI:{bus[:-2]}): 79, pid={rank.pid}, name=pt_main_thread, GPU has fallen off the bus.",
        f"NVRM: GPU {bus}: GPU has fallen off the bus.",
        f"NVRM: Xid (PCI:{bus[:-2]}): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
    ]
    look.kernel = tuple((at + 0.00004 * place, line) for place, line in enumerate(lines))
    look.lost, look.gone = (GPU,), (VICTIM,)
    look.lines = {**look.lines, VICTIM: [*look.lines[VICTIM], (at + 0.21, _traceback(node.clock(at + 0.21)))]}


def _traceback(at: float) -> str:
    """What Python writes when the next synchronisation meets the dead GPU."""
    frames = (
        ("<module>", PROGRAM, 402, "main()"),
        ("main", PROGRAM, 341, "train_step(model, batch)"),
        ("train_step", PROGRAM, 219, "torch.cuda.synchronize()"),
        ("synchronize", f"{VENV}/torch/cuda/__init__.py", 1040, "return torch._C._cuda_synchronize()"),
    )
    rows = [f"{stamp(at)} [rank{VICTIM}] ERROR training stopped", f"[rank{VICTIM}]: Traceback (most recent call last):"]
    for function, file, line, source in frames:
        rows += [f'[rank{VICTIM}]:   File "{file}", line {line}, in {function}', f"[rank{VICTIM}]:     {source}"]
    rows.append(f"[rank{VICTIM}]: RuntimeError: {CUDA}")
    return "\n".join(rows)


def stages() -> dict[str, list[list[Capture]]]:
    """`without`: the job was started again from its checkpoint on the other 7 nodes, looked at twice."""
    everything = nodes()
    t0 = everything[0].t0
    rest = tuple(node for node in everything if node.number != NODE)
    job = replace(
        job_of(rest), slurm="60431", began=t0 + RESTARTED, step=1_251, step_at=t0 + RESTARTED + 61, step_s=2.37
    )
    looks = []
    for after in LOOKS:
        found: list[Capture] = []
        for node in everything:
            lines = {rank.rank: steps(job, node, rank, t0 + after) for rank in job.ranks(node)}
            look = Look(job, node, t0 + after, lambda at: recorders.moving(job, at), lines=lines)
            found += look.captures(VERIFY)
        looks.append(found)
    return {"without": looks}
