"""What series of metrics tell of a node's CPUs: quotas of its containers, pressure, load, and the use of its CPUs.

Names and units are those of cAdvisor (container_*), node_exporter (node_*) and kube-state-metrics (kube_*). The result
of an expression has no name: the query that stands before it, or the file's name, says what it is.

Shape    load_of(text, hint) -> node: Load; "" for the node that the file is of
Units    shares as percent
Errors   ParseError where no series is of a CPU
Source   cadvisor docs/storage/prometheus.md; node_exporter collectors cpu, loadavg, pressure; kube-state-metrics docs
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from probes.catalog._load_facts import CpuUse, Load, Pressure, Quota
from probes.core import ParseError
from probes.intake.metrics import Series, series_of
from probes.intake.names import is_address
from probes.intake.tools._load import load
from probes.intake.tools.process_table import by_cpu

PERIOD_US = 100_000  # of the kernel's quota, unless told; cgroup-v2.rst
PER_S = 10  # periods a second, by that
MOST_NODES = 1024
# What runs beside a trainer in its pod or on its node, and no rank waits for.
_BESIDE = re.compile(
    r"istio|envoy|linkerd|fluent|filebeat|promtail|otel|telemetry|export|agent|side-?car|proxy|pause|^POD$|logg|log-|cilium"
    r"|calico|csi|kube-|coredns|dcgm|metrics|^init|cadvisor|prometheus|grafana|tensorboard|jupyter|operator|webhook|monitor",
    re.I,
)
_JOB = re.compile(r"train|rank|torch|worker|master|finetun|(?:^|[-_])(?:ft|sft|dpo|ddp|llm|grpo|rlhf)(?:[-_]|$)", re.I)
_NODE = ("node", "kubernetes_node", "node_name", "nodename", "exported_node", "kubernetes_io_hostname", "host",
    "hostname", "Hostname", "machine")  # fmt: skip
_POD = ("pod", "pod_name", "exported_pod", "container_label_io_kubernetes_pod_name", "kubernetes_pod_name")
_CONTAINER = (
    "container",
    "container_name",
    "exported_container",
    "container_label_io_kubernetes_container_name",
    "name",
)
_THROTTLE = re.compile(r"thrott\w{0,4}", re.I)
_RATIO = re.compile(r"ratio|percent|pct|share|frac", re.I)
_PLAIN = re.compile(r"second|time_total|_sec\b", re.I)
_WAITS = re.compile(r"(node|container)_pressure_cpu_waiting|cpu[_-]?(?:pressure|psi)|psi[_-]?cpu", re.I)
_PERCENT = " in percent"
BUSY = 0.2  # of the busiest container's CPU time: what uses less is none of the ranks; judgement


@dataclass(slots=True)
class _Container:
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


@dataclass(slots=True)
class _Node:
    containers: dict[str, _Container] = field(default_factory=dict)
    levels: dict[str, float] = field(default_factory=dict)
    modes: dict[tuple[str, str], float] = field(default_factory=dict)  # (CPU, mode): seconds between two looks
    cpus: set[str] = field(default_factory=set)


Taker = Callable[[_Node, Series, str], None]


def load_of(text: str, hint: str = "") -> dict[str, Load]:
    nodes: dict[str, _Node] = {}
    told = series_of(text)
    if any(value > 1.0 for one in told if not one.name for _, value in one.points):
        hint += _PERCENT  # shares go up to 1
    for series in told:
        known = _known(series, hint)
        if known is None:
            continue
        name = _node_of(series.labels)
        if name in nodes or len(nodes) < MOST_NODES:
            known(nodes.setdefault(name, _Node()), series, hint)
    found = {name: of for name, node in nodes.items() if (of := _load(node)) is not None}
    if not found:
        raise ParseError("expected series of the CPUs of nodes or containers, such as container_cpu_cfs_periods_total")
    return found


# Whose a series is --------------------------------------------------------------------------------------------------


def _first(labels: Mapping[str, str], names: Sequence[str]) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")


def _node_of(labels: Mapping[str, str]) -> str:
    """By the label that says it; else the scraped target, unless that is an address; else the pod, which has one node.
    What a node's own cAdvisor printed has no such label but the pods', and image or id: its file says the node."""
    told = _first(labels, _NODE)
    instance = labels.get("instance", "").rpartition(":")[0] or labels.get("instance", "")
    if told and told.partition(":")[0] != "localhost":
        return told.partition(":")[0][:80]
    pod = _first(labels, _POD)
    if instance and not is_address(instance) and instance != "localhost":
        return instance[:80]
    if pod and ("id" not in labels or instance):
        return pod[:80]
    return instance[:80] if instance and instance != "localhost" and not instance.startswith("127.") else ""


def _container(node: _Node, labels: Mapping[str, str]) -> _Container:
    pod, name = _first(labels, _POD), _first(labels, _CONTAINER)
    key = f"{pod}/{name}".strip("/") or labels.get("id", "")
    return node.containers.setdefault(key, _Container(pod, name or labels.get("id", "")))


# What a series is ----------------------------------------------------------------------------------------------------


def _known(series: Series, hint: str) -> Taker | None:
    if series.name:
        return _BY_NAME.get(re.sub(r"^cadvisor_", "", series.name))
    if _THROTTLE.search(hint) and (_RATIO.search(hint) or not _PLAIN.search(hint) or hint.count("periods_total") > 1):
        return _throttled_share
    if _WAITS.search(hint) and "rate" in hint:
        return _waits_rate
    return next((do for name, do in _BY_NAME.items() if name in hint and do in _LEVELS and "rate(" not in hint), None)


def _grown(series: Series) -> tuple[float, float, float]:
    """(last value, what it grew by, seconds) of a counter. It may begin anew."""
    values = [value for _, value in series.points]
    grown = sum(max(later - before, 0.0) for before, later in zip(values, values[1:], strict=False))
    first, last = series.points[0][0], series.points[-1][0]
    return values[-1], grown, (last - first) if first is not None and last is not None else 0.0


def _periods(node: _Node, series: Series, hint: str) -> None:
    _container(node, series.labels).periods = _grown(series)


def _throttled(node: _Node, series: Series, hint: str) -> None:
    _container(node, series.labels).throttled = _grown(series)


def _recent(series: Series) -> float:
    """What it is now, not what it once was: of many points the median of the later half."""
    values = [value for _, value in series.points]
    return statistics.median(values[len(values) // 2 :])


def _throttled_share(node: _Node, series: Series, hint: str) -> None:
    value = _recent(series) * (1 if hint.endswith(_PERCENT) else 100)
    if 0 <= value <= 100:
        _container(node, series.labels).share = value


def _used(node: _Node, series: Series, hint: str) -> None:
    last, grown, _ = _grown(series)
    _container(node, series.labels).used += grown or last


def _quota(node: _Node, series: Series, hint: str) -> None:
    _container(node, series.labels).quota = series.points[-1][1]


def _period(node: _Node, series: Series, hint: str) -> None:
    _container(node, series.labels).period = series.points[-1][1]


def _limit(node: _Node, series: Series, hint: str) -> None:
    if series.labels.get("resource", "cpu") == "cpu":
        _container(node, series.labels).limit = series.points[-1][1]


def _level(name: str) -> Taker:
    def take(node: _Node, series: Series, hint: str) -> None:
        node.levels[name] = series.points[-1][1]

    return take


def _waits(node: _Node, series: Series, hint: str) -> None:
    _, grown, seconds = _grown(series)
    if seconds > 0:
        node.levels["waits"] = max(node.levels.get("waits", 0.0), min(100 * grown / seconds, 100.0))


def _waits_rate(node: _Node, series: Series, hint: str) -> None:
    value = _recent(series) * (1 if hint.endswith(_PERCENT) else 100)
    if 0 <= value <= 100:
        node.levels["waits"] = max(node.levels.get("waits", 0.0), value)


def _modes(node: _Node, series: Series, hint: str) -> None:
    cpu, mode = series.labels.get("cpu", ""), series.labels.get("mode", "")
    node.cpus.add(cpu)
    node.modes[cpu, mode] = _grown(series)[1]


_LOAD1, _LOAD5, _LOAD15, _RUNNING = _level("load1"), _level("load5"), _level("load15"), _level("running")
_CORES = _level("cores")
_BY_NAME = {
    "container_cpu_cfs_periods_total": _periods,
    "container_cpu_cfs_throttled_periods_total": _throttled,
    "container_cpu_usage_seconds_total": _used,
    "container_spec_cpu_quota": _quota,
    "container_spec_cpu_period": _period,
    "kube_pod_container_resource_limits": _limit,
    "kube_pod_container_resource_limits_cpu_cores": _limit,
    "container_pressure_cpu_waiting_seconds_total": _waits,
    "node_pressure_cpu_waiting_seconds_total": _waits,
    "node_load1": _LOAD1,
    "node_load5": _LOAD5,
    "node_load15": _LOAD15,
    "node_procs_running": _RUNNING,
    "machine_cpu_cores": _CORES,
    "node_cpu_seconds_total": _modes,
}
_LEVELS = (_quota, _period, _limit, _LOAD1, _LOAD5, _LOAD15, _RUNNING, _CORES, _periods, _throttled, _used)


# What a node's series tell together ----------------------------------------------------------------------------------


def _load(node: _Node) -> Load | None:
    ranks = _ranks(node.containers)
    quotas = tuple(told for key in ranks if (told := _quota_of(key, node.containers[key])) is not None)
    level = node.levels
    use, idle = _use(node)
    waits = Pressure(round(level["waits"], 1), None, None, None) if "waits" in level else None
    cpus = len(node.cpus) or int(level.get("cores", 0)) or None
    if not (quotas or use or waits or {"load1", "running"} & set(level)):
        return None
    running = level.get("running")
    return load(
        load1=level.get("load1"), load5=level.get("load5"), load15=level.get("load15"), cpus=cpus,
        runnable=int(running) if running is not None else None, cpu=use, cpu_pressure=waits, quotas=quotas,
        **by_cpu(idle),
    )  # fmt: skip


def _ranks(containers: Mapping[str, _Container]) -> list[str]:
    """The containers that ranks may run in: those called so, else those that use the CPU; never what serves others."""
    able = {
        key: one
        for key, one in containers.items()
        if not _BESIDE.search(one.name) or (_JOB.search(one.name) and "sidecar" not in one.name)
    }
    pods = {one.pod for one in able.values() if one.pod and one.name and not one.name.startswith("/")}
    able = {key: one for key, one in able.items() if one.pod not in pods or (one.name and not one.name.startswith("/"))}
    called = {key for key, one in able.items() if _JOB.search(f"{one.pod} {one.name}")}
    most = max((one.used for one in able.values()), default=0.0)
    return [key for key, one in able.items() if (not called or key in called) and one.used >= BUSY * most]


def _quota_of(key: str, one: _Container) -> Quota | None:
    cpus = one.limit or 0.0
    if one.quota is not None and one.quota > 0:
        cpus = one.quota / (one.period or PERIOD_US)
    told = Quota(key, round(cpus, 3), (), False, None, None, None)
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
    return told if told.cpus or told.periods or told.total_periods or told.total_throttled else None


def _use(node: _Node) -> tuple[CpuUse | None, dict[int, float]]:
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
