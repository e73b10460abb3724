"""Tools that people ask a node or a cloud with, from one file each to the verdict that its facts carry.

Right values follow from the tools' manuals: quota(1), df(1), cgroup-v2.rst, Prometheus' text format and HTTP API, the
documentation of Compute Engine's operations, of EC2's spot interruptions and of Azure's scheduled events.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from probes.intake.tools import tool_of
from tests.support.hardware import judged

TOLD = "[rank5]: OSError: [Errno 28] No space left on device\n"
GAVE_UP = "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError\n"
WORKED = "".join(f"2026-06-01 09:5{minute}:00 INFO step={minute} loss=9.1 step_ms=900\n" for minute in (7, 8, 9))


def facts(text: str, name: str = "x.txt") -> Any:
    tool = tool_of(text[:65_536], name)
    assert tool is not None
    return tool.read(text)


def answer(*rows: tuple[str, dict[str, str], float]) -> str:
    """As /api/v1/query answers."""
    result = [
        {"metric": {"__name__": name, **labels}, "value": [1780309211, str(value)]} for name, labels, value in rows
    ]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}})


def disk(node: str, free: float) -> list[tuple[str, dict[str, str], float]]:
    labels = {"instance": f"{node}:9100", "device": "/dev/md0", "fstype": "xfs", "mountpoint": "/scratch"}
    return [("node_filesystem_avail_bytes", labels, free), ("node_filesystem_size_bytes", labels, 3.5e12)]


def exposed(rows: list[tuple[str, dict[str, str], float]]) -> str:
    text = ""
    for name, labels, value in rows:
        words = ",".join(f'{key}="{word}"' for key, word in labels.items())
        text += f"{name}{{{words}}} {value!r}\n"
    return text


USED = (("gn1", 54), ("gn2", 100))
DISKS = [*disk("gn1", 1.6e12), *disk("gn2", 0.0)]


@pytest.mark.parametrize(
    "files",
    [
        {"df.txt": "gn1: /dev/md0 3.5T 1.9T 1.6T 55% /scratch\ngn2: /dev/md0 3.5T 3.5T 0 100% /scratch\n"},
        {
            f"{node}/df.json": json.dumps([{"filesystem": "/dev/md0", "use_percent": used, "mounted_on": "/scratch"}])
            for node, used in USED
        },
        {
            f"{node}/findmnt.json": json.dumps({"filesystems": [{"target": "/scratch", "use%": f"{used}%"}]})
            for node, used in USED
        },
        {"metrics.txt": "# TYPE node_filesystem_avail_bytes gauge\n" + exposed(DISKS)},
        {"query.json": answer(*DISKS)},
    ],
    ids=["rows without a header", "jc", "findmnt", "exposition", "query"],
)
def test_who_wrote_where_there_is_no_room_is_on_the_one_node_that_has_none(
    tmp_path: Path, files: dict[str, str]
) -> None:
    verdict = judged(tmp_path / "evidence", {"train.log": TOLD} | files).verdict
    assert (verdict.hypothesis.cause, verdict.hypothesis.subject.get("node")) == ("host.disk_full", "gn2")


@pytest.mark.parametrize(
    ("text", "reached"),
    [
        (
            "Disk quotas for usr u (uid 5):\n     Filesystem    used   quota   limit   grace   files   quota   limit\n"
            "        /lustre    10T*    10T     10T       -  812331       0       0       -\n",
            ("/lustre",),
        ),
        (
            "Disk quotas for user u (uid 5): \n     Filesystem space   quota   limit   grace   files   quota   limit\n"
            "nas:/home        51000M*  50000M  52000M   6days    812k       0       0\n",
            (),
        ),
        (
            "Disk quotas for user u (uid 5): \n     Filesystem space   quota   limit   grace   files   quota   limit\n"
            "nas:/home          300M   50000M  52000M              1000k   900k   1000k\n",
            ("nas:/home",),
        ),
        (
            "                Block Limits                      |     File Limits\n"
            "Filesystem type    KB      quota      limit   in_doubt    grace |    files   quota    limit in_doubt\n"
            "gpfs1      USR   1048576 1048576 1048576          0     none |   812331       0        0        0\n",
            ("gpfs1",),
        ),
        (
            "      user/group     ||           size          ||    chunk files\n"
            "     name     |  id  ||    used    |    hard    ||  used   |  hard\n"
            "--------------|------||------------|------------||---------|---------\n"
            "       u|  5012||   10.00 TiB|   10.00 TiB||   812331|unlimited\n",
            ("u",),
        ),
    ],
    ids=["lfs", "soft only", "files", "mmlsquota", "beegfs"],
)
def test_a_quota_is_reached_where_what_is_used_is_its_hard_limit(text: str, reached: tuple[str, ...]) -> None:
    assert facts(text).reached == reached


def test_a_quota_of_one_user_that_is_used_up_leads_where_nothing_else_is_known(tmp_path: Path) -> None:
    text = "Disk quotas for usr u (uid 5):\n Filesystem used quota limit grace\n /lustre 10T 0 10T -\n"
    verdict = judged(tmp_path, {"quota.txt": text}).verdict
    assert verdict.hypothesis.cause == "host.disk_full" and verdict.probability < 0.8, "who was told of it is not known"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "ops.txt",
            "NAME  TYPE  TARGET  STATUS  TIMESTAMP\n"
            "op-1  compute.instances.hostError  europe-west4-b/instances/gn2  DONE  2026-06-01T09:59:30.1+00:00\n",
        ),
        (
            "ops.json",
            json.dumps([{"operationType": "compute.instances.preempted", "insertTime": "2026-06-01T09:59:30Z",
                         "targetLink": "https://compute/v1/projects/p/zones/z/instances/gn2"}]),
        ),
        (
            "karpenter.log",
            json.dumps({"level": "INFO", "message": "initiating delete from interruption message",
                        "messageKind": "spot_interrupted", "Node": {"name": "gn2"}}) + "\n",
        ),
        ("events.json", json.dumps({"Events": [{"EventType": "Preempt", "Resources": ["gn2"]}]})),
        (
            "instances.json",
            json.dumps({"Reservations": [{"Instances": [{"PrivateDnsName": "gn2", "InstanceId": "i-0a12b34c",
                "StateReason": {"Code": "Server.SpotInstanceTermination", "Message": "x"}}]}]}, indent=2),
        ),
        ("metrics.txt", exposed([("node_boot_time_seconds", {"instance": f"gn{n}:9100"}, at)
                                 for n, at in ((1, 1.7733e9), (2, 1780307990.0), (3, 1.7734e9))])),
        ("stat.txt", "gn1: btime 1773300000\ngn2: btime 1780307990\ngn3: btime 1773400000\n"),
    ],
    ids=["gcloud", "gcloud json", "karpenter", "azure", "aws", "boot metrics", "btime"],
)  # fmt: skip
def test_a_machine_that_its_cloud_took_or_that_booted_alone_is_named(tmp_path: Path, name: str, text: str) -> None:
    verdict = judged(tmp_path / "evidence", {"gn1/rank0.log": WORKED, name: text}).verdict
    assert (verdict.hypothesis.cause, verdict.hypothesis.subject) == ("host.rebooted", {"node": "gn2"})


def test_nodes_that_all_booted_lately_are_not_said_to_have_restarted_under_the_job(tmp_path: Path) -> None:
    """The job's own times have no zone: it may have begun after these boots."""
    rows = [("node_boot_time_seconds", {"instance": f"gn{n}:9100"}, 1780307990.0 + n) for n in (1, 2, 3)]
    verdict = judged(tmp_path, {"gn1/rank0.log": WORKED, "metrics.txt": exposed(rows)}).verdict
    assert verdict.hypothesis.cause in ("none", "unknown")


@pytest.mark.parametrize(
    ("offset", "cause"), [(-903.1, "host.clock_offset"), (0.00002, "fw.rendezvous_failed")], ids=["far", "well"]
)
def test_a_clock_that_node_exporter_shows_far_off_explains_a_failed_rendezvous(
    tmp_path: Path, offset: float, cause: str
) -> None:
    rows = [("node_timex_offset_seconds", {"instance": f"gn{n}:9100"}, value) for n, value in ((1, 1e-5), (2, offset))]
    verdict = judged(tmp_path, {"gn1/rank0.log": GAVE_UP, "clock.json": answer(*rows)}).verdict
    assert verdict.hypothesis.cause == cause


@pytest.mark.parametrize(("kills", "cause"), [(2, "host.memory_oom_kill"), (0, "unknown")])
def test_kills_that_a_control_group_counted_are_told_but_not_as_certain(tmp_path: Path, kills: int, cause: str) -> None:
    text = f"low 0\nhigh 0\nmax 18231\noom 3\noom_kill {kills}\noom_group_kill 0\n"
    verdict = judged(tmp_path, {"gn1/memory.events": text}).verdict
    assert verdict.hypothesis.cause == cause and verdict.probability < 0.8
