"""Rows of rank.env into its facts, and their findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from probes.catalog._collected import as_object, as_rows, whole, whole_or_none, wholes, word, word_or_none
from probes.core import Finding, ParseError, Severity, sections

WHAT = "golden15/ranks"

# A rank may well have its own: a file of its own, a GPU or an adapter near to its GPU, its numbers.
OWN_ENDS = ("_FILE", "_PATH", "_DIR", "_SOCKET", "_VISIBLE_DEVICES", "_PID", "_PIPE", "_NAME")
OWN_NAMES = frozenset(
    ("UCX_NET_DEVICES", "OMP_PLACES", "KMP_AFFINITY", "TORCH_FR_DUMP_TEMP_FILE", "TORCHELASTIC_ERROR_FILE")
)
# Often differs on purpose, and alone explains no hang: an adapter near to the GPU, one rank that says more than others.
OFTEN = frozenset(("NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS"))
OFTEN |= {"TORCH_LOGS", "TORCH_CPP_LOG_LEVEL"}
SAME_BEGINS = ("NCCL_", "TORCH_", "TORCHELASTIC_", "GLOO_", "UCX_", "UCC_", "FI_", "RCCL_", "OMP_NUM", "PYTORCH_")
DEVICES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


@dataclass(frozen=True, slots=True)
class RankVariables:
    """The variables of one rank beyond those that all ranks of its job on this node share."""

    rank: int
    pid: int
    ppid: int
    world_size: int
    local_rank: int | None
    run_id: str | None
    slurm_job: str | None
    master: str | None
    in_container: bool
    own: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Job:
    """Ranks of one job on this node. `shared`: the same value in every one of them."""

    shared: Mapping[str, str]
    ranks: tuple[RankVariables, ...]


@dataclass(frozen=True, slots=True)
class RankEnv:
    jobs: tuple[Job, ...]
    denied: int
    unread: int
    left_out: int


def parse(text: str) -> RankEnv:
    """One JSON object per rank."""
    parts = sections(text)
    if "golden15/scan" not in parts:
        raise ParseError(f"no section golden15/scan, only {', '.join(parts)[:120]}")
    about = as_object(parts["golden15/scan"], "golden15/scan")
    jobs: dict[tuple[object, ...], list[tuple[dict[str, Any], dict[str, str]]]] = {}
    for row in as_rows(parts.get(WHAT, ""), WHAT):
        key = (
            word_or_none(row, "run_id", WHAT),
            word_or_none(row, "slurm_job", WHAT),
            word_or_none(row, "master", WHAT),
        )
        jobs.setdefault((*key, whole(row, "world_size", WHAT)), []).append((row, _env(row)))
    return RankEnv(
        tuple(_job(rows) for rows in jobs.values()),
        whole(about, "denied", "golden15/scan"),
        whole(about, "unread", "golden15/scan"),
        whole(about, "left_out", "golden15/scan"),
    )


def _env(row: dict[str, Any]) -> dict[str, str]:
    env = row.get("env")
    if not isinstance(env, dict):
        raise ParseError(f"{WHAT}: expected an object as env, found {str(env)[:60]!r}")
    names = list(env)[:300]
    return {word({"": name}, "", WHAT, 100): word(env, name, WHAT, 1024) for name in names}


def _job(rows: list[tuple[dict[str, Any], dict[str, str]]]) -> Job:
    first = rows[0][1]
    shared = {name: value for name, value in first.items() if all(env.get(name) == value for _, env in rows)}
    ranks = tuple(_rank(row, {name: value for name, value in env.items() if name not in shared}) for row, env in rows)
    return Job(shared, ranks)


def _rank(row: dict[str, Any], own: dict[str, str]) -> RankVariables:
    return RankVariables(
        whole(row, "rank", WHAT),
        whole(row, "pid", WHAT),
        whole(row, "ppid", WHAT),
        whole(row, "world_size", WHAT),
        whole_or_none(row, "local_rank", WHAT),
        word_or_none(row, "run_id", WHAT),
        word_or_none(row, "slurm_job", WHAT),
        word_or_none(row, "master", WHAT),
        len(wholes(row, "ns_pids", WHAT)) > 1,
        own,
    )


def findings(found: RankEnv) -> Iterator[Finding]:
    """A variable NCCL does not know, values that differ where they should not, ranks that share one GPU."""
    for job in found.jobs:
        yield from _unknown(job)
        yield from _different(job)
        yield from _shared_gpu(job)


def _unknown(job: Job) -> Iterator[Finding]:
    having = [rank.rank for rank in job.ranks if "NCCL_DEVICE_LIST" in {**job.shared, **rank.own}]
    if having:
        says = "NCCL_DEVICE_LIST is set, but NCCL has no such variable: it changes nothing"
        says = f"{says}. CUDA_VISIBLE_DEVICES chooses the GPUs ({_ranks(having)})"
        yield Finding("rank.nccl_device_list", "warn", says, {"rank": having[0]})


def _different(job: Job) -> Iterator[Finding]:
    names = {name for rank in job.ranks for name in rank.own}
    for name in sorted(names):
        if not name.startswith(SAME_BEGINS) or name.endswith(OWN_ENDS) or name in OWN_NAMES:
            continue
        values: dict[str | None, list[int]] = {}
        for rank in job.ranks:
            values.setdefault(rank.own.get(name), []).append(rank.rank)
        groups = sorted(values.items(), key=lambda item: len(item[1]))
        told = "; ".join(f"{_value(value)} on {_ranks(ranks)}" for value, ranks in groups[:4])
        each = len(values) == len(job.ranks) > 2  # a value of its own in every rank is made on purpose
        severity: Severity = "info" if name in OFTEN or each else "warn"
        says = f"{name} differs between ranks of one job: {told}{'; ...' if len(groups) > 4 else ''}"
        yield Finding("rank.env_differs", severity, says, {"variable": name, "rank": groups[0][1][0]})


def _shared_gpu(job: Job) -> Iterator[Finding]:
    """Ranks that each see one GPU, and the same one. In containers each may have a GPU 0 of its own."""
    seen: dict[str, list[int]] = {}
    for rank in job.ranks:
        visible = next((value for name in DEVICES if (value := {**job.shared, **rank.own}.get(name))), "")
        if visible and "," not in visible and visible != "-1" and not rank.in_container:
            seen.setdefault(visible, []).append(rank.rank)
    for device, ranks in seen.items():
        if len(ranks) > 1:
            says = f"{_ranks(ranks)} can see only GPU {device} each: they share it, which NCCL refuses"
            yield Finding("rank.gpu_shared", "bad", says, {"rank": ranks[0]})


def _value(value: str | None) -> str:
    return "not set" if value is None else repr(value[:60])


def _ranks(numbers: list[int]) -> str:
    few = ", ".join(map(str, numbers[:8])) + (", ..." if len(numbers) > 8 else "")
    return f"rank {few}" if len(numbers) == 1 else f"ranks {few}"
