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

from probes.catalog.host.load_facts import Load
from probes.core import ParseError
from probes.intake.container_tables import LIMIT, SHARE, USED
from probes.intake.metric_nodes import Container, Node, is_job, load_of_node
from probes.intake.metrics import series_of
from probes.intake.names import is_address
from probes.intake.series import Series

MOST_NODES = 1024
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


Taker = Callable[[Node, Series, str], None]


def load_of(text: str, hint: str = "") -> dict[str, Load]:
    nodes: dict[str, Node] = {}
    told = series_of(text)
    if any(value > 1.0 for one in told if not one.name for _, value in one.points):
        hint += _PERCENT  # shares go up to 1
    for series in told:
        known = _known(series, hint)
        if known is None:
            continue
        name = _node_of(series.labels)
        if name in nodes or len(nodes) < MOST_NODES:
            known(nodes.setdefault(name, Node()), series, hint)
    pods = {name for name, node in nodes.items() if name in {one.pod for one in node.containers.values()}}
    if any(is_job(nodes[name]) for name in pods):  # beside the job's, pods of others are none of its nodes
        nodes = {name: node for name, node in nodes.items() if name not in pods or is_job(node)}
    found = {name: of for name, node in nodes.items() if (of := load_of_node(node)) is not None}
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


def _container(node: Node, labels: Mapping[str, str]) -> Container:
    pod, name = _first(labels, _POD), _first(labels, _CONTAINER)
    key = f"{pod}/{name}".strip("/") or labels.get("id", "")
    return node.containers.setdefault(key, Container(pod, name or labels.get("id", "")))


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


def _periods(node: Node, series: Series, hint: str) -> None:
    _container(node, series.labels).periods = _grown(series)


def _throttled(node: Node, series: Series, hint: str) -> None:
    _container(node, series.labels).throttled = _grown(series)


def _recent(series: Series) -> float:
    """What it is now, not what it once was: of many points the median of the later half."""
    values = [value for _, value in series.points]
    return statistics.median(values[len(values) // 2 :])


def _throttled_share(node: Node, series: Series, hint: str) -> None:
    value = _recent(series) * (1 if hint.endswith(_PERCENT) else 100)
    if 0 <= value <= 100:
        _container(node, series.labels).share = value


def _used(node: Node, series: Series, hint: str) -> None:
    last, grown, _ = _grown(series)
    _container(node, series.labels).used += grown or last


def _using(node: Node, series: Series, hint: str) -> None:
    one = _container(node, series.labels)
    one.using, one.used = series.points[-1][1], series.points[-1][1]


def _quota(node: Node, series: Series, hint: str) -> None:
    _container(node, series.labels).quota = series.points[-1][1]


def _period(node: Node, series: Series, hint: str) -> None:
    _container(node, series.labels).period = series.points[-1][1]


def _limit(node: Node, series: Series, hint: str) -> None:
    if series.labels.get("resource", "cpu") == "cpu":
        _container(node, series.labels).limit = series.points[-1][1]


def _level(name: str) -> Taker:
    def take(node: Node, series: Series, hint: str) -> None:
        node.levels[name] = series.points[-1][1]

    return take


def _waits(node: Node, series: Series, hint: str) -> None:
    _, grown, seconds = _grown(series)
    if seconds > 0:
        node.levels["waits"] = max(node.levels.get("waits", 0.0), min(100 * grown / seconds, 100.0))


def _waits_rate(node: Node, series: Series, hint: str) -> None:
    value = _recent(series) * (1 if hint.endswith(_PERCENT) else 100)
    if 0 <= value <= 100:
        node.levels["waits"] = max(node.levels.get("waits", 0.0), value)


def _modes(node: Node, series: Series, hint: str) -> None:
    cpu, mode = series.labels.get("cpu", ""), series.labels.get("mode", "")
    node.cpus.add(cpu)
    node.modes[cpu, mode] = _grown(series)[1]


def _group(node: Node, series: Series, hint: str) -> None:
    """process-exporter: what processes of one name used together."""
    _, grown, seconds = _grown(series)
    name = series.labels.get("groupname", "")
    if name and seconds > 0:
        node.groups[name] = node.groups.get(name, 0.0) + 100 * grown / seconds


_LOAD1, _LOAD5, _LOAD15, _RUNNING = _level("load1"), _level("load5"), _level("load15"), _level("running")
_CORES = _level("cores")
_BY_NAME = {
    "container_cpu_cfs_periods_total": _periods,
    "container_cpu_cfs_throttled_periods_total": _throttled,
    "container_cpu_usage_seconds_total": _used,
    LIMIT: _limit,
    USED: _using,
    SHARE: _throttled_share,
    "container_spec_cpu_quota": _quota,
    "container_spec_cpu_period": _period,
    "kube_pod_container_resource_limits": _limit,
    "kube_pod_container_resource_limits_cpu_cores": _limit,
    "container_pressure_cpu_waiting_seconds_total": _waits,
    "node_pressure_cpu_waiting_seconds_total": _waits,
    "namedprocess_namegroup_cpu_seconds_total": _group,
    "node_load1": _LOAD1,
    "node_load5": _LOAD5,
    "node_load15": _LOAD15,
    "node_procs_running": _RUNNING,
    "machine_cpu_cores": _CORES,
    "node_cpu_seconds_total": _modes,
}
_LEVELS = (_quota, _period, _limit, _LOAD1, _LOAD5, _LOAD15, _RUNNING, _CORES, _periods, _throttled, _used)
