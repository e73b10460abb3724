"""What containers use and may use of the CPU, as their tools print it, as series like those of monitoring.

    NAME           CPU(cores)   MEMORY(bytes)            kubectl top pod, also with --containers and -A
    CONTAINER ID   NAME      CPU %     MEM USAGE / LIMIT    docker stats
    Control Group              Tasks   %CPU   Memory     systemd-cgtop
    Limits:  cpu: 4                                      kubectl describe pod, kubectl get pod -o json
    "NanoCpus": 4000000000                               docker inspect
    91.2% throttling of CPU in namespace ml for container main in pod trainer-2.    the alert CPUThrottlingHigh

Shape    is_table(head); series(text) -> Series named USED, LIMIT (CPUs) or SHARE (0 to 1)
Errors   none: what does not fit is passed over
Source   kubectl top, docker stats, docker inspect, systemd-cgtop(1); kubernetes-mixin's alerts
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from probes.core import clean, lines_of
from probes.intake.series import Series

USED, LIMIT, SHARE = "used_cpus", "limit_cpus", "throttled_share"
MOST = 4096
_TOP = re.compile(
    r"^(?:NAMESPACE\s{1,60})?(?:POD\s{1,80})?NAME\s{1,80}CPU\(cores\)\s{1,20}MEMORY\(bytes\)\s{0,4}$", re.M
)
_DOCKER = re.compile(r"^CONTAINER(?: ID)?\s{1,80}(?:NAME\s{1,80})?CPU %\s", re.M)
_CGTOP = re.compile(r"^(?:Control Group|CGroup|Path)\s{1,200}(?:Tasks|Processes|Proc)\s{1,20}%CPU\s", re.M | re.I)
_DESCRIBE = re.compile(r"^ {4,8}Limits:\s{0,4}$", re.M)
_ALERT = re.compile(
    r"(\d{1,3}(?:\.\d{1,4})?)\s?% throttling of CPU in namespace (\S{1,80}) for container (\S{1,80}) "
    r"in pod ([\w.-]{1,120}?)(?: on cluster|[\s.,;]|$)"
)
_NANO = re.compile(r'"(?:NanoCpus|CpuQuota)":\s{0,4}[1-9]')
_CORES = re.compile(r"(\d{1,7}(?:\.\d{1,4})?)(m|n|u)?$")
_CPU = re.compile(r" {6,12}cpu:\s{1,40}(\S{1,20})\s{0,4}")
_PARTS = {"m": 1e-3, "u": 1e-6, "n": 1e-9, None: 1.0}


def is_table(head: str) -> bool:
    if head.lstrip()[:1] in "[{":
        return bool(_NANO.search(head) or _ALERT.search(head)) or (
            '"kind"' in head and '"limits"' in head and '"containers"' in head
        )
    return bool(
        _TOP.search(head)
        or _DOCKER.search(head)
        or _CGTOP.search(head)
        or _ALERT.search(head)
        or (_DESCRIBE.search(head) and "\nContainers:" in head)
    )


def series(text: str) -> list[Series]:
    if text.lstrip()[:1] in "[{":
        found = [*_of_json(text), *_alerts(text)]
    else:
        found = [*_of_tables(text), *_described(text), *_alerts(text)]
    return found[:MOST]


def _one(name: str, value: float, **labels: str) -> Series:
    return Series(name, {key: clean(value)[:120] for key, value in labels.items() if value}, ((None, value),))


def cores(text: str) -> float | None:
    """Kubernetes writes 4, 3998m or 3998121312n for CPUs."""
    found = _CORES.match(text.strip().strip('"'))
    return float(found[1]) * _PARTS[found[2]] if found else None


def _of_tables(text: str) -> Iterator[Series]:
    kind, heads = "", list[str]()
    for line in lines_of(text, 1000):
        words = line.split()
        if _TOP.match(line):
            kind, heads = "top", [word for word in words if word != "NAMESPACE"]
            skip = len(words) - len(heads)
        elif _DOCKER.match(line):
            kind, skip = "docker", 1 if "ID" in words and "NAME" in words else 0
        elif _CGTOP.match(line):
            kind = "cgtop"
        elif kind == "top" and len(words) == len(heads) + skip and (used := cores(words[-2])) is not None:
            pod = words[skip]
            yield _one(USED, used, pod=pod, container=words[skip + 1] if len(heads) == 4 else "")
        elif kind == "docker" and len(words) > 2 and (share := _percent(words[1 + skip])) is not None:
            yield _one(USED, share / 100, container=words[skip])
        elif kind == "cgtop" and len(words) > 2 and words[0] != "/" and (share := _percent(f"{words[2]}%")) is not None:
            yield _one(USED, share / 100, container=words[0].lstrip("/"))


def _percent(text: str) -> float | None:
    found = re.fullmatch(r"(\d{1,7}(?:\.\d{1,3})?)%", text)
    return float(found[1]) if found else None


def _described(text: str) -> Iterator[Series]:
    """Limits of each container, below its name, in what `kubectl describe pod` prints of one pod or several."""
    pod = ""
    containers: list[tuple[str, float]] = []
    name, inside = "", False
    for line in [*lines_of(text, 400), "Name: "]:
        if line.startswith("Name:"):
            yield from _limits(pod, containers)
            pod, containers, name = line[5:].strip(), [], ""
        elif row := re.fullmatch(r" {2}([a-z0-9][a-z0-9-]{0,62}):\s{0,4}", line):
            name = row[1]
        elif re.fullmatch(r" {4,8}(Limits|Requests):\s{0,4}", line):
            inside = "Limits" in line
        elif inside and name and (row := _CPU.fullmatch(line)) and (value := cores(row[1])) is not None:
            containers.append((name, value))


def _limits(pod: str, containers: list[tuple[str, float]]) -> Iterator[Series]:
    for name, value in containers if pod else ():
        yield _one(LIMIT, value, pod=pod, container=name if len(containers) > 1 else "")


def _alerts(text: str) -> Iterator[Series]:
    for share, space, container, pod in _ALERT.findall(text[:1_048_576])[:MOST]:
        yield _one(SHARE, float(share) / 100, namespace=space, container=container, pod=pod)


def _of_json(text: str) -> Iterator[Series]:
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return
    for one in said if isinstance(said, list) else said.get("items", [said]) if isinstance(said, dict) else ():
        if isinstance(one, dict):
            yield from _of_docker(one)
            yield from _of_pod(one)


def _of_docker(one: dict[str, Any]) -> Iterator[Series]:
    limits = one.get("HostConfig")
    if not isinstance(limits, dict):
        return
    nano, quota, period = (limits.get(key) for key in ("NanoCpus", "CpuQuota", "CpuPeriod"))
    cpus = nano / 1e9 if isinstance(nano, int) and nano > 0 else 0.0
    if not cpus and isinstance(quota, int) and quota > 0:
        cpus = quota / (period if isinstance(period, int) and period > 0 else 100_000)
    if cpus:
        yield _one(LIMIT, cpus, container=str(one.get("Name", "")).lstrip("/"))


def _of_pod(one: dict[str, Any]) -> Iterator[Series]:
    meta, spec = one.get("metadata"), one.get("spec")
    rows = spec.get("containers") if isinstance(spec, dict) else None
    if not isinstance(meta, dict) or not isinstance(rows, list):
        return
    found = []
    for row in rows[:64]:
        limits = (row.get("resources") or {}).get("limits") if isinstance(row, dict) else None
        value = cores(str(limits.get("cpu", ""))) if isinstance(limits, dict) else None
        if value:
            found.append((str(row.get("name", "")), value))
    yield from _limits(str(meta.get("name", "")), found)
