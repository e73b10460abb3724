"""What the series of one node tell together: the quotas of the containers that ranks may run in, and its CPUs.

Shape    Node is filled by metric_facts; load_of_node(node) -> Load, None where it tells nothing of a CPU
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from probes.catalog.host.load_facts import CpuUse, Load, Pressure, Quota
from probes.intake.tools.host._load import load, nameless, process
from probes.intake.tools.host.process_table import by_cpu

PERIOD_US = 100_000  # of the kernel's quota, unless told; cgroup-v2.rst
PER_S = 10  # periods a second, by that
# What runs beside a trainer in its pod or on its node, and no rank waits for.
_BESIDE = re.compile(
    r"istio|envoy|linkerd|fluent|filebeat|promtail|otel|telemetry|export|agent|side-?car|proxy|pause|^POD$|logg|log-|cilium"
    r"|calico|csi|kube-|coredns|dcgm|metrics|^init|cadvisor|prometheus|grafana|tensorboard|jupyter|operator|webhook|monitor",
    re.I,
)
_JOB = re.compile(r"train|rank|torch|worker|master|finetun|(?:^|[-_])(?:ft|sft|dpo|ddp|llm|grpo|rlhf)(?:[-_]|$)", re.I)
# Names of work that no training job waits for, where no container beside it is called as a job is.
_OTHER = re.compile(
    r"(?:^|[-_.])(?:(?:vec|elastic|mongo|influx)?db|re-?index\w*|index(?:er|ing)?|re-?build\w*|elastic\w*|opensearch|postgres\w*"
    r"|mysql|redis|kafka|spark|flink|clickhouse|milvus|qdrant|minio|backup\w*|scan(?:ner)?|transcod\w*|ffmpeg|compil\w*"
    r"|ci|runner|jenkins|gitlab\w*|crawl\w*|etl)(?:[-_.]|$)",
    re.I,
)
_SERVICE = re.compile(r"system\.slice/([\w@.:-]{1,80})\.(?:service|scope)")
_RUNS_JOBS = re.compile(r"slurm|docker|containerd|kubelet|cri|podman|ssh|user|run-")
BUSY = 0.2  # of the busiest container's CPU time: what uses less is none of the ranks; judgement


@dataclass(slots=True)
class Container:
    """Counters as (first, last) of what was told, seconds between, and levels."""

    pod: str
    name: str
    periods: tuple[float, float, float] | None = None
    throttled: tuple[float, float, float] | None = None
    share: float | None = None
    quota: float | None = None
    period: float | None = None
    limit: float | None = None
    used: float = 0.0
    using: float | None = None


@dataclass(slots=True)
class Node:
    containers: dict[str, Container] = field(default_factory=dict)
    groups: dict[str, float] = field(default_factory=dict)  # name: percent of one CPU
    levels: dict[str, float] = field(default_factory=dict)
    modes: dict[tuple[str, str], float] = field(default_factory=dict)  # (CPU, mode): seconds between two looks
    cpus: set[str] = field(default_factory=set)


def load_of_node(node: Node) -> Load | None:
    ranks = _ranks(node.containers)
    quotas = tuple(told for key in ranks if (told := _quota_of(key, node.containers[key])) is not None)
    level = node.levels
    use, idle = _use(node)
    waits = Pressure(round(level["waits"], 1), None, None, None) if "waits" in level else None
    cpus = len(node.cpus) or int(level.get("cores", 0)) or None
    beside = [*_services(node.containers), *_strangers(node.containers)]
    groups = node.groups | {name: 100 * used for name, used in beside}
    busy = tuple(process(nameless(name), name, round(used, 1)) for name, used in groups.items() if used >= 1)
    if not (quotas or use or waits or busy or {"load1", "running"} & set(level)):
        return None
    running = level.get("running")
    return load(
        load1=level.get("load1"), load5=level.get("load5"), load15=level.get("load15"), cpus=cpus,
        runnable=int(running) if running is not None else None, cpu=use, cpu_pressure=waits, quotas=quotas,
        processes=tuple(sorted(busy, key=lambda one: -(one.cpu_percent or 0.0))[:400]),
        **by_cpu(idle),
    )  # fmt: skip


def _services(containers: Mapping[str, Container]) -> Iterator[tuple[str, float]]:
    """Services of the system beside the job, as systemd-cgtop tells them; not those that jobs run below."""
    for one in containers.values():
        found = _SERVICE.fullmatch(one.name)
        if found and one.using is not None and not _RUNS_JOBS.match(found[1]):
            yield found[1], one.using


def _strangers(containers: Mapping[str, Container]) -> Iterator[tuple[str, float]]:
    """What other containers use beside one that is called as a part of a training job is; where none is called so, one
    whose name says that it does something else. One of the same pod, or whose name is a path of control groups, may be
    the job's too."""
    pods = {one.pod for one in containers.values() if _JOB.search(f"{one.pod} {one.name}")}
    for one in containers.values():
        called = one.pod or one.name
        if not pods and not _OTHER.search(called):
            continue
        mine = _JOB.search(f"{one.pod} {one.name}") or (one.pod and one.pod in pods)
        if one.using is not None and "/" not in called and not mine:
            yield called, one.using


def is_job(node: Node) -> bool:
    """Whether a pod or container on it is called as a part of a training job is."""
    return any(_JOB.search(f"{one.pod} {one.name}") for one in node.containers.values())


def _ranks(containers: Mapping[str, Container]) -> list[str]:
    """The containers that ranks may run in: those called so, else those that use the CPU; never what serves others."""
    able = {
        key: one
        for key, one in containers.items()
        if not _BESIDE.search(one.name or one.pod) or (_JOB.search(one.name) and "sidecar" not in one.name)
    }
    pods = {one.pod for one in able.values() if one.pod and one.name and not one.name.startswith("/")}
    able = {key: one for key, one in able.items() if one.pod not in pods or (one.name and not one.name.startswith("/"))}
    called = {key for key, one in able.items() if _JOB.search(f"{one.pod} {one.name}")}
    most = max((one.used for one in able.values()), default=0.0)
    return [key for key, one in able.items() if (not called or key in called) and one.used >= BUSY * most]


def _quota_of(key: str, one: Container) -> Quota | None:
    cpus = one.limit or 0.0
    if one.quota is not None and one.quota > 0:
        cpus = one.quota / (one.period or PERIOD_US)
    told = Quota(key, round(cpus, 3), (), False, None, None, None, using=one.using)
    if one.periods is not None:
        told = replace(told, total_periods=int(one.periods[0]))
    if one.throttled is not None:
        told = replace(told, total_throttled=int(one.throttled[0]))
    if one.periods is not None and one.throttled is not None and one.periods[1] > 0:
        periods, throttled = int(one.periods[1]), int(one.throttled[1])
        told = replace(
            told, periods=periods, throttled=throttled, throttled_percent=round(100 * throttled / max(periods, 1), 1)
        )
    elif one.share is not None:  # of how many periods is not told; a panel covers minutes
        told = replace(told, periods=60 * PER_S, throttled_percent=round(one.share, 1))
    return told if told.cpus or told.periods or told.total_periods or told.total_throttled or told.using else None


def _use(node: Node) -> tuple[CpuUse | None, dict[int, float]]:
    """Percent of all CPUs' time between the first and the last point, and each CPU's idle share."""
    total = sum(node.modes.values())
    if total <= 0:
        return None, {}

    def of(*modes: str) -> float:
        return round(100 * sum(spent for (_, mode), spent in node.modes.items() if mode in modes) / total, 2)

    idle = {}
    for cpu in node.cpus:
        whole = sum(spent for (one, _), spent in node.modes.items() if one == cpu)
        if cpu.isdecimal() and whole > 0:
            idle[int(cpu)] = 100 * node.modes.get((cpu, "idle"), 0.0) / whole
    use = CpuUse(of("user", "nice"), of("system", "irq", "softirq"), of("iowait"), of("steal"), of("idle"))
    return use, idle
