"""Ranks that see the wrong, shared or missing GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import Said, everyone, listed, node_of

CAUSE = "nccl.device_visibility"
NONE = "No CUDA GPUs are available"  # torch.cuda, where the driver shows the process none
VISIBLE = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
LEAST = 3  # different GPUs that the ranks of a node were given, before one that two have is odd; judgement
WRONG = ("invalid device ordinal", "no CUDA-capable device", "CUDA_VISIBLE_DEVICES")


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    shared = list(evidence.job.said("duplicate_gpu"))
    if shared:
        ranks = sorted({rank for one in shared for rank in (one[0].rank, *one[0].about) if rank is not None})
        who = f"ranks {', '.join(map(str, ranks[:8]))}" if len(ranks) > 1 else "two ranks"
        yield _of(evidence, shared, f"{who} use one GPU, which NCCL refuses", "gpu_shared_by_ranks")
    elif same := _same_bus(evidence):
        yield _of(evidence, list(same), "two ranks have set up their communicator on one GPU", "bus_id_twice")
    wrong = [one for one in evidence.job.said("cuda_error") if any(word in one[0].text for word in WRONG)]
    if wrong:
        yield _wrong(evidence, wrong, "no_such_device")
    none = [one for one in evidence.job.said("cuda_error", "traceback") if NONE in one[0].text]
    if none and not wrong:
        yield _wrong(evidence, none, "no_device_visible")
    yield from _in_environments(evidence)
    for seen, finding in evidence.findings("rank.gpu_shared", "rank.nccl_device_list"):
        shares = finding.code == "rank.gpu_shared"
        yield Hypothesis(
            CAUSE,
            {"node": seen.node} if seen.node else {},
            f"On {seen.node or 'a node'} {finding.says}",
            (Reason(finding.says, seen.ref),),
            ("gpu_shared_in_environment" if shares else "device_list_set",),
            would_change=("a GPU of its own for every local rank in CUDA_VISIBLE_DEVICES or torch.cuda.set_device",),
            ranks=everyone(evidence),
            nodes=frozenset({seen.node}),
        )


def _in_environments(evidence: Evidence) -> Iterator[Hypothesis]:
    """One GPU each, and two ranks with the same, of environments that somebody printed by rank. In a container of its
    own each rank may see GPU 0 as another one: then all have the same, which tells nothing."""
    for seen in evidence.of("host.settings"):
        owners: dict[tuple[str, str], list[int]] = {}
        for owner, env in seen.facts.envs.items():
            value = next((env[name] for name in VISIBLE if name in env), "")
            rank = int(owner[5:]) if owner.startswith("rank ") and owner[5:].isdecimal() else None
            if rank is not None and re.fullmatch(r"\d{1,2}|GPU-[0-9a-f-]{8,40}", value):
                node = seen.node or str(evidence.job.view(rank).node)
                owners.setdefault((node, value), []).append(rank)
        twice = {key: ranks for key, ranks in owners.items() if len(ranks) > 1}
        if len(twice) != 1 or len(owners) < LEAST:
            continue
        (node, value), ranks = next(iter(twice.items()))
        who = ", ".join(map(str, ranks[:8]))
        says = f"ranks {who} were all given GPU {value}, the others one of their own"
        yield Hypothesis(
            CAUSE, {"node": node} if node else {}, f"On {node or 'a node'} {says}",
            (Reason(says, seen.ref),), ("gpu_given_twice",),
            would_change=("a GPU of its own for every local rank in CUDA_VISIBLE_DEVICES or torch.cuda.set_device",),
            ranks=everyone(evidence), nodes=frozenset({node} - {""}),
        )  # fmt: skip


def _same_bus(evidence: Evidence) -> tuple[Said, ...]:
    """Two ranks of one communicator on one node with the same bus id. In a container of its own each may see GPU 0 as
    another one, but the bus id is the machine's."""
    seen: dict[tuple[object, ...], Said] = {}
    for one in evidence.job.said("nccl_init_done", "nccl_init_start"):
        more = one[0].more
        # Who writes another name in front of its lines is on another machine, whatever is known of the file.
        node = f"{more.get('host', '')} {node_of(evidence, one)}".strip()
        if not node or "bus" not in more or not one[0].group:
            continue
        key = (node, one[0].group, more["bus"])
        there = seen.setdefault(key, one)
        if there[0].more.get("comm_rank") != more.get("comm_rank"):
            return there, one
    return ()


def _of(evidence: Evidence, said: list[Said], says: str, signal: str) -> Hypothesis:
    nodes = {node_of(evidence, one) for one in said}
    where = listed(nodes)
    return Hypothesis(
        CAUSE,
        {"node": next(iter(nodes))} if len(nodes) == 1 and any(nodes) else {},
        f"On {where} {says}",
        tuple(quoted(*one) for one in said[:4]),
        (signal,),
        would_change=("a GPU of its own for every local rank in CUDA_VISIBLE_DEVICES or torch.cuda.set_device",),
        ranks=everyone(evidence),
        nodes=frozenset(nodes),
    )


def _wrong(evidence: Evidence, said: list[Said], signal: str) -> Hypothesis:
    event = said[0][0]
    ranks = {one[0].rank for one in said}
    nodes = {node_of(evidence, one) for one in said} - {""}
    who = f"Rank {event.rank}" if len(ranks) == 1 and event.rank is not None else f"{len(ranks)} ranks"
    subject: dict[str, str | int] = {"node": next(iter(nodes))} if len(nodes) == 1 else {}
    if len(ranks) == 1 and event.rank is not None:
        subject["rank"] = event.rank
    return Hypothesis(
        CAUSE,
        subject,
        f"{who} on {listed(nodes)} asked for a GPU that is not there: {event.name or NONE}",
        tuple(quoted(*one) for one in said[:4]),
        (signal,),
        would_change=("as many GPUs visible to the process as it asks for", "a GPU missing from nvidia-smi -L"),
        ranks=everyone(evidence),
        nodes=frozenset(nodes),
    )


RULE = Rule((CAUSE,), judge)
