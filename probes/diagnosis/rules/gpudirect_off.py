"""Some nodes move GPU memory through the host: the module is not loaded there, or NCCL took no direct path."""

from __future__ import annotations

import re
from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule, Seen
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import Said, everyone, listed, node_of, number, whom

CAUSE = "ib.gpudirect_off"
MODULES = ("nvidia_peermem", "nv_peer_mem", "nv_peermem")
# From when on GPUDirect RDMA goes by dma-buf, without a module: NVIDIA's GPU Operator manual, "GPUDirect RDMA" (open
# driver, CUDA 11.7, kernel 5.12); NCCL's release notes 2.13 and init.cc, dmaBufSupported.
DRIVER, KERNEL, NCCL = (515, 0), (5, 12), (2, 13)
SWITCH = "NCCL_DMABUF_ENABLE"
LARGE = 64 * 2**20  # bytes of a message: smaller ones do not fill the links; judgement
SLOW_GBYTES = 4.0  # bus bandwidth per adapter; judgement: a third of 100 Gb/s, and GPUDirect reaches nearly all of it


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    on, off = _paths(evidence)
    have, lack = _modules(evidence)
    off = _by_the_machine(on, off, have, lack)
    named: set[str] = set()
    for seen, reason in _refused(evidence):
        signals = ["peermem_refused"] + ["gpudirect_differs" if on else "gpudirect_off_everywhere"] * (seen.node in off)
        if seen.node not in on and seen.node not in named:
            named.add(seen.node)
            because = [reason, *(quoted(*off[node]) for node in (seen.node,) if node in off)]
            yield _off(evidence, {seen.node} - {""}, set(on), because, signals)
    without = _dma_buf(evidence)
    for seen in lack:
        if seen.node in named or (not have and not (on and seen.node in off)):
            continue
        named.add(seen.node)
        elsewhere = f", on {len(have)} other nodes it is" if have else ""
        because = [Reason(f"nvidia_peermem is not loaded on {seen.node or 'this node'}{elsewhere}", seen.ref)]
        signals = ["peermem_missing"]
        against: tuple[Reason, ...] = ()
        if seen.node in on:
            against = (quoted(*on[seen.node], "NCCL uses a direct path there all the same, by dma-buf"),)
            signals = ["peermem_not_needed"]
        elif seen.node in without and seen.node not in off:
            against = (without[seen.node],)
            signals = ["peermem_not_needed"]
        elif seen.node in off:
            because.append(quoted(*off[seen.node]))
            signals.append("gpudirect_differs" if on else "gpudirect_off_everywhere")
        yield _off(evidence, {seen.node}, set(on), because, signals, against)
    rest = {node: one for node, one in off.items() if node not in named}
    if rest:
        because = [quoted(*one) for one in (*list(rest.values())[:3], *list(on.values())[:1])]
        signals = ["gpudirect_differs" if on else "gpudirect_off_everywhere"]
        if not on:
            lacks, slow = _modules_missing(evidence, set(rest)), slow_test(evidence)
            because += [*lacks[:2], *slow]
            signals += ["peermem_missing_everywhere"] * bool(lacks) + ["bandwidth_low"] * bool(slow)
        yield _off(evidence, set(rest), set(on), because, signals)


def _refused(evidence: Evidence) -> Iterator[tuple[Seen, Reason]]:
    """Nodes whose kernel refused the module: it was built for other RDMA modules than those that are loaded."""
    for seen in evidence.of("host.kernel_log"):
        if any(one.refused for one in seen.facts.peermem):
            says = (
                f"the kernel of {seen.node or 'a node'} refused nvidia-peermem: it does not fit the loaded RDMA modules"
            )
            yield seen, Reason(says, seen.ref)


def _paths(evidence: Evidence) -> tuple[dict[str, Said], dict[str, Said]]:
    """Nodes on which NCCL uses GPUDirect RDMA, and those on which it does not on any link, by its own log."""
    on: dict[str, Said] = {}
    off: dict[str, Said] = {}
    linked: set[str] = set()
    refused: dict[str, Said] = {}  # of one GPU and one adapter, which counts before what an adapter is able to
    for one in evidence.job.said("nccl_gdr", "nccl_link"):
        event = one[0]
        if event.kind == "nccl_link" and ("NET/" not in event.name or "NET/Socket" in event.name):
            continue
        used = event.name.lower() == "enabled" if event.kind == "nccl_gdr" else "GDR" in event.name
        (on if used else off).setdefault(node_of(evidence, one), one)
        if used and event.kind == "nccl_link":
            linked.add(node_of(evidence, one))
        elif not used and "gpu" in event.more:
            refused.setdefault(node_of(evidence, one), one)
    for node in set(refused) - linked:
        on.pop(node, None)
        off[node] = refused[node]
    return on, {node: one for node, one in off.items() if node not in on}


def _by_the_machine(on: dict[str, Said], off: dict[str, Said], have: list[Seen], lack: list[Seen]) -> dict[str, Said]:
    """Logs name pods where modules name machines: the only one without a direct path is the only one without the
    module, where each has as many others."""
    machines = {seen.node for seen in (*have, *lack)}
    apart = not machines & {*on, *off} and "" not in machines
    if not apart or len(off) != 1 or len({seen.node for seen in lack}) != 1 or not on or not have:
        return off
    return {lack[0].node: next(iter(off.values()))}


def _modules(evidence: Evidence) -> tuple[list[Seen], list[Seen]]:
    """Nodes with NVIDIA's driver whose lsmod has the module, and those whose has not."""
    have: list[Seen] = []
    lack: list[Seen] = []
    for seen in evidence.of("host.settings"):
        if seen.facts.modules is not None and any(name.startswith("nvidia") for name in seen.facts.modules):
            (have if set(MODULES) & set(seen.facts.modules) else lack).append(seen)
    return have, lack


def _dma_buf(evidence: Evidence) -> dict[str, Reason]:
    """Nodes that need no module: NVIDIA's open driver gives GPU memory to the kernel as dma-buf, and NCCL takes it."""
    told: dict[str, dict[str, str]] = {}
    refs: dict[str, str] = {}
    for seen in evidence.of("host.versions"):
        told.setdefault(seen.node, {}).update(seen.facts.found)
        refs.setdefault(seen.node, seen.ref)
    switched_off = {node_of(evidence, one) for one in evidence.job.said("nccl_setting") if _switched_off(one)}
    for seen in evidence.of("host.settings"):
        switched_off |= {seen.node} if seen.facts.env.get(SWITCH) == "0" else set()
    for seen in evidence.of("rank.env"):
        envs = [{**job.shared, **rank.own} for job in seen.facts.jobs for rank in job.ranks]
        switched_off |= {seen.node} if any(env.get(SWITCH) == "0" for env in envs) else set()
    found = {}
    for node, versions in told.items():
        able = versions.get("driver kind", "").startswith("open") and versions.get("dma-buf") != "not built in"
        new = _at_least(versions.get("driver", ""), DRIVER) and _at_least(versions.get("kernel", ""), KERNEL)
        if able and new and _at_least(versions.get("NCCL", "9"), NCCL) and node not in switched_off:
            says = f"NVIDIA's open driver {versions['driver']} on kernel {versions['kernel']} does without, by dma-buf"
            found[node] = Reason(says, refs[node])
    return found


def _at_least(version: str, least: tuple[int, int]) -> bool:
    """Of several versions on one node the oldest counts: `2.10.3 and 2.21.5`."""
    some = [re.match(r"(\d{1,4})(?:\.(\d{1,4}))?", one) for one in version.split(" and ")]
    return all(one is not None and (int(one[1]), int(one[2] or 0)) >= least for one in some)


def _switched_off(one: Said) -> bool:
    return one[0].name == SWITCH and str(one[0].more.get("value", "")).strip() == "0"


def _modules_missing(evidence: Evidence, nodes: set[str]) -> list[Reason]:
    """That no node has the module, where one was asked. Its adapter's driver must be there: else no RDMA is meant."""
    have, lack = _modules(evidence)
    able = _dma_buf(evidence)
    lack = [seen for seen in lack if seen.node not in able]
    without = [seen for seen in lack if "ib_uverbs" in seen.facts.modules and (seen.node in nodes or not seen.node)]
    if have or 2 * len(without) < len(nodes):
        return []
    says = "no module for GPUDirect RDMA is loaded on"
    return [Reason(f"{says} {seen.node or 'a node'}", seen.ref) for seen in without]


def slow_test(evidence: Evidence) -> list[Reason]:
    """What nccl-tests measured, where its best is far below what that many adapters carry."""
    adapters = max(
        (str(one[0].more.get("devices", "")).count(":1/") for one in evidence.job.said("nccl_net")
         if one[0].name == "NET/IB"), default=0
    )  # fmt: skip
    measured = [
        (number(one[0].more.get("busbw")), one)
        for one in evidence.job.said("bandwidth")
        if number(one[0].more.get("bytes")) >= LARGE
    ]
    if not measured or not adapters:
        return []
    best, (event, log, seen) = max(measured, key=lambda one: one[0])
    if best >= SLOW_GBYTES * adapters:
        return []
    return [quoted(event, log, seen, f"nccl-tests measured {best:g} GB/s of bus bandwidth over {adapters} adapters")]


def _off(
    evidence: Evidence, nodes: set[str], on: set[str], because: list[Reason], signals: list[str],
    against: tuple[Reason, ...] = (),
) -> Hypothesis:  # fmt: skip
    differs = "gpudirect_off_everywhere" not in signals
    works = f", and works on {listed(on - nodes)}" if on - nodes else ""
    return Hypothesis(
        CAUSE,
        whom(nodes) if differs else {},
        f"GPUDirect RDMA is off on {listed(nodes)}{works}: its data goes through host memory",
        tuple(because),
        tuple(signals),
        against=against,
        would_change=(
            "links of NCCL `via NET/IB/.../GDRDMA` on it, by nvidia_peermem or dma-buf",
            "ACS off on its PCIe bridges",
        ),
        ranks=everyone(evidence),
        nodes=frozenset(nodes),
    )


RULE = Rule((CAUSE,), judge)
