"""Versions that do not fit together: the driver's library and its module on a node, or a node against the others."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.gpus import gpus_of
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import Said, node_of

CAUSE = "host.library_mismatch"
TOO_OLD = (
    "driver version is insufficient",
    "driver on your system is too old",
    "forward compatibility was attempted",
    "CUDA driver version",
    "unsupported display driver",  # cudaErrorSystemDriverMismatch, 803
    "PTX was compiled",
    "unsatisfied condition: cuda",  # nvidia-container-cli: the image asks for a newer driver
    "unsatisfied condition: driver",
)
# ld.so(8), and what torch checks when it begins
NOT_LOADED = ("cannot open shared object file", "undefined symbol", "version `GLIBC", "cuDNN version incompatibility",
    "symbol lookup error", "wrong ELF class", "was compiled with CUDA")  # fmt: skip
# Libraries that a node has, or an image: a symbol that the program's own extension lacks is the program's fault.
OF_THE_NODE = re.compile(
    r"lib(?:nccl|cuda|cudart|cudnn|cublas|cufft|nvrtc|nvidia|torch|c10|stdc\+\+|ibverbs|mpi|rccl|amdhip|hsa)|GLIBC|cuDNN"
    r"|symbol: (?:nccl|cu[A-Z]|cudnn|_ZN(?:K?2at|K?3c10|K?5torch))|was compiled with CUDA"
)
_FAMILY = re.compile(r"^lib|[-\d]+$")  # libnccl is nccl, which its symbols begin with
# Told of the kernel, not of a library.
OF_KERNEL = ("kernel", "driver kind", "dma-buf")
IN_STEP = ("NCCL", "torch", "CUDA", "CUDA runtime", "ROCm")  # what all ranks of a job must share


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    for seen, finding in evidence.findings("gpu.driver_problem", "host.driver_mismatch", "kernel.gpu_problem"):
        mismatch = "mismatch" in finding.says or finding.subject.get("what") == "version mismatch"
        if not mismatch and finding.code != "host.driver_mismatch":
            continue
        yield _found(
            seen.node, finding.says, seen.ref, "driver_mismatch" if finding.severity == "bad" else "driver_waits"
        )
    for seen, finding in evidence.findings("host.library_missing"):
        yield _found(seen.node, finding.says, seen.ref, "library_not_found")
    yield from _not_loaded(evidence)
    for event, log, seen in evidence.job.said("cuda_error", "traceback"):
        if any(words in event.text for words in TOO_OLD):
            node = node_of(evidence, (event, log, seen))
            reason = quoted(event, log, seen)
            yield _found(node, reason.says, seen.ref, "driver_too_old", event.rank)
    yield from _against_peers(evidence)


def _not_loaded(evidence: Evidence) -> Iterator[Hypothesis]:
    """Ranks that the loader refused a library, or whose libraries say that they do not fit together."""
    by_node: dict[str, list[Said]] = {}
    steps: dict[int, int] = {}
    for event, log, _ in evidence.job.said("progress"):
        steps[id(log)] = max(steps.get(id(log), 0), event.last_place)
    for one in evidence.job.said("traceback", "library_refused"):
        text = one[0].text
        if one[0].kind == "library_refused" and one[0].last_place < steps.get(id(one[1]), 0):
            continue  # it went on without that library
        if not one[0].secondary and any(words in text for words in NOT_LOADED) and OF_THE_NODE.search(text):
            by_node.setdefault(node_of(evidence, one), []).append(one)
    for node, said in by_node.items():
        odd = _elsewhere(evidence, said[0][0].text) if not node else None
        node = odd[0] if odd is not None else node
        yield Hypothesis(
            CAUSE,
            {"node": node} if node else {},
            f"Libraries do not fit on {node or 'a node'}: {said[0][0].text[:160]}",
            (*(odd[1:] if odd is not None else ()), *(quoted(*one) for one in said[:3])),
            ("library_refused",),
            would_change=("the same library and its version on a node where the program starts",),
            ranks=frozenset(one[0].rank for one in said if one[0].rank is not None),
            nodes=frozenset({node}),
        )


def _elsewhere(evidence: Evidence, text: str) -> tuple[str, Reason] | None:
    """The one node where the loader takes a library that this text is of from another place than on all others; of two
    nodes the one that does not take it from the environment of the program."""
    places: dict[str, dict[str, tuple[str, str]]] = {}  # library -> node -> (place, reading)
    for seen in evidence.of("host.libraries"):
        for name, place in seen.facts.places.items():
            if seen.node and _FAMILY.sub("", name.partition(".")[0]).lower() in text.lower():
                places.setdefault(name, {})[seen.node] = (place, seen.ref)
    for name, nodes in places.items():
        counts = Counter(place for place, _ in nodes.values())
        odd = [node for node, (place, _) in nodes.items() if counts[place] == 1]
        if len(nodes) == 2 == len(counts):
            odd = [node for node in odd if "/site-packages/" not in nodes[node][0]]
        if len(counts) == 2 and len(odd) == 1:
            place, ref = nodes[odd[0]]
            usual = next(one for one in counts if one != place)
            return odd[0], Reason(f"{odd[0]} takes {name} from {place}, {len(nodes) - 1} other from {usual}", ref)
    return None


def _against_peers(evidence: Evidence) -> Iterator[Hypothesis]:
    """By majority: one node of several whose version is another."""
    told: dict[str, dict[str, tuple[str, str]]] = {}  # component -> node -> (version, reading)
    for seen in evidence.of("host.versions"):
        for component, version in seen.facts.found.items():
            told.setdefault(component, {})[seen.node] = (version, seen.ref)
    for node, there in gpus_of(evidence).items():
        for version, ref in there.drivers.items():
            told.setdefault("driver", {}).setdefault(node, (version, ref))
    for component, nodes in told.items():
        counts = Counter(_plain(version) for version, _ in nodes.values())
        usual, most = counts.most_common(1)[0]
        if len(nodes) == 2 == len(counts) and component in IN_STEP and "" not in nodes:
            says = " and ".join(f"{component} {version} on {node}" for node, (version, _) in nodes.items())
            one = _found("", says, next(iter(nodes.values()))[1], "versions_apart")
            yield dataclasses.replace(one, nodes=frozenset(nodes))
        if len(counts) < 2 or most * 2 <= len(nodes) or component in OF_KERNEL:
            continue
        for node, (version, ref) in nodes.items():
            if _plain(version) != usual:
                says = f"{node or 'a node'} has {component} {version}, {most} others have {usual}"
                yield _found(node, says, ref, "version_differs" if component in IN_STEP else "driver_differs")


def _plain(version: str) -> str:
    """2.18.5-1+cuda12.2 and 2.18.5 are one version."""
    return version.partition("+")[0].partition("-")[0]


def _found(node: str, says: str, ref: str, signal: str, rank: int | None = None) -> Hypothesis:
    sure = signal in ("driver_mismatch", "driver_too_old", "version_differs")
    return Hypothesis(
        CAUSE,
        {"node": node} if node else {},
        f"Versions do not fit on {node or 'a node'}: {says}",
        (Reason(says, ref),),
        (signal,),
        would_change=("the same versions on all nodes, and no such message after a reboot",),
        ranks=frozenset({rank}) if rank is not None else frozenset(),
        nodes=frozenset({node}) if sure else frozenset(),
    )


RULE = Rule((CAUSE,), judge)
