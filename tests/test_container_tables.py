"""What containers use and may use of the CPU: kubectl, docker, systemd and an alert."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from probes.intake.container_tables import LIMIT, SHARE, USED, is_table, series
from tests.support.hardware import judged, shares

CAUSE = "cpu.quota_throttled"
TOP = """\
NAME             CPU(cores)   MEMORY(bytes)
bert-train-0     31870m       201330Mi
bert-train-1     3997m        200114Mi
prometheus-0     2000m        4011Mi
"""
TOP_CONTAINERS = """\
POD            NAME        CPU(cores)   MEMORY(bytes)
bert-train-0   main        3998m        201330Mi
bert-train-0   log-agent   100m         90Mi
"""
DOCKER = """\
CONTAINER ID   NAME      CPU %     MEM USAGE / LIMIT     MEM %     NET I/O           BLOCK I/O        PIDS
77aa0b1c2d3e   sd-ft-0   398.71%   88.12GiB / 503.6GiB   17.50%    1.2GB / 900MB     12GB / 1.1GB     711
"""
CGTOP = """\
Control Group                          Tasks   %CPU   Memory  Input/s Output/s
/                                       2910 1702.1   401.2G        -        -
train.slice                              711  399.2   301.1G        -        -
"""
DESCRIBED = """\
Name:             bert-train-1
Namespace:        ml
Node:             a3-7/10.0.0.7
Containers:
  main:
    Image:      registry/bert:4
    Limits:
      cpu:             4
      nvidia.com/gpu:  8
    Requests:
      cpu:             2
Events:            <none>
"""


def told(text: str) -> dict[tuple[str, str], float]:
    return {(one.name, one.labels.get("pod") or one.labels["container"]): one.points[0][1] for one in series(text)}


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        (TOP, (USED, "bert-train-1"), 3.997),
        (TOP.replace("NAME  ", "NAMESPACE   NAME  ").replace("bert", "ml  bert"), (USED, "bert-train-1"), 3.997),
        (DOCKER, (USED, "sd-ft-0"), 3.9871),
        (CGTOP, (USED, "train.slice"), 3.992),
        (DESCRIBED, (LIMIT, "bert-train-1"), 4.0),
        (DESCRIBED.replace("4\n", "3500m\n"), (LIMIT, "bert-train-1"), 3.5),
        ('[{"Name": "/sd-ft-0", "HostConfig": {"NanoCpus": 4000000000, "CpuQuota": 0}}]', (LIMIT, "sd-ft-0"), 4.0),
        ('[{"Name": "/sd-ft-0", "HostConfig": {"NanoCpus": 0, "CpuQuota": 250000}}]', (LIMIT, "sd-ft-0"), 2.5),
        (
            "FIRING 91.25% throttling of CPU in namespace ml for container main in pod bert-train-1.",
            (SHARE, "bert-train-1"),
            0.9125,
        ),
    ],
)
def test_each_form_tells_cpus_of_its_containers(text: str, key: tuple[str, str], value: float) -> None:
    assert is_table(text)
    assert told(text)[key] == pytest.approx(value)


def test_a_description_as_json_tells_the_same() -> None:
    pod = {
        "kind": "Pod",
        "metadata": {"name": "w-3"},
        "spec": {"containers": [{"name": "main", "resources": {"limits": {"cpu": "6", "nvidia.com/gpu": "8"}}}]},
    }
    assert told(json.dumps({"kind": "List", "items": [pod]})) == {(LIMIT, "w-3"): 6.0}


def test_the_one_pod_that_uses_up_a_limit_is_suspected_but_not_sure(tmp_path: Path) -> None:
    files = {"top.txt": TOP, "describe.txt": DESCRIBED}
    found = judged(tmp_path / "full", files)
    assert found.verdict.hypothesis.cause == CAUSE
    assert found.verdict.hypothesis.subject["node"] == "bert-train-1"
    assert 0.4 < shares(found)[CAUSE] < 0.8
    roomy = {"top.txt": TOP, "describe.txt": DESCRIBED.replace("cpu:             4", "cpu:             32")}
    assert shares(judged(tmp_path / "roomy", roomy)).get(CAUSE, 0.0) == 0
    assert shares(judged(tmp_path / "alone", {"top.txt": TOP})).get(CAUSE, 0.0) == 0


def test_a_container_of_docker_at_its_limit_is_suspected(tmp_path: Path) -> None:
    inspect = '[{"Name": "/sd-ft-0", "State": {"OOMKilled": false}, "HostConfig": {"NanoCpus": 4000000000}}]'
    assert shares(judged(tmp_path, {"stats.txt": DOCKER, "inspect.json": inspect}))[CAUSE] > 0.4


@pytest.mark.parametrize(("container", "found"), [("main", True), ("istio-proxy", False)])
def test_an_alert_about_what_serves_a_pod_is_none_about_its_ranks(tmp_path: Path, container: str, found: bool) -> None:
    says = f"CPUThrottlingHigh: 91.25% throttling of CPU in namespace ml for container {container} in pod bert-train-1."
    assert (shares(judged(tmp_path, {"alert.log": f"{says}\n"})).get(CAUSE, 0.0) > 0.4) is found


def test_the_events_of_a_pod_are_read_beside_its_limits(tmp_path: Path) -> None:
    ended = DESCRIBED.replace(
        "    Limits:",
        "    Last State:     Terminated\n      Reason:       OOMKilled\n      Exit Code:    137\n    Limits:",
    )
    assert shares(judged(tmp_path, {"describe.txt": ended}))["host.memory_oom_kill"] > 0.4
