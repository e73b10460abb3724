"""How RoCE is set up at nodes and at their switch, in one table: told by live nodes, and by what somebody pasted."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest
from django.test import Client
from django.utils import timezone

from incidents import tasks
from incidents.models import Incident
from incidents.services import diagnosing, files, runs
from incidents.services.fleet import Login, add_nodes
from probes import catalog
from probes.core import Capture, Reading
from probes.diagnosis import diagnose
from probes.diagnosis.core import seen
from probes.diagnosis.flow import COLUMNS, Row
from tests.support.brought import told
from tests.support.evidence import store
from tests.support.fleets import main, person

QOS = "DCBX mode: OS controlled\nPriority trust state: {trust}\nPFC configuration:\n"
QOS += "\tpriority    0   1   2   3   4   5   6   7\n"
QOS += "\tenabled     0   0   0   {on}   0   0   0   0\n"
CUMULUS = "cumulus@{}:~$ nv show qos roce\n                    operational  applied\n---  ---\nenable   {}   {}\n"
SONIC = "admin@{}:~$ show pfc priority\nInterface    Lossless priorities\n-----------  ---------------------\n{}"


def live(node: str, on: int = 1, trust: str = "dscp", mtu: int = 9000, ecn: bool | None = True) -> Reading:
    """What net.links brings of a node with one RoCE interface."""
    row = {"name": "ens1f0", "mtu": mtu, "type": 1, "up": True, "mbps": 400_000, "addresses": [], "master": "",
        "hca": "mlx5_0", "pause": False, "ecn": ecn}  # fmt: skip
    other = {**row, "name": "eno1", "hca": "", "mtu": 1500, "ecn": None}
    text = f"==> links <==\n{json.dumps(row)}\n{json.dumps(other)}\n\n==> mlnx_qos -i ens1f0 <==\n"
    return catalog.read(Capture(node, "net.links", "ok", (text + QOS.format(on=on, trust=trust)).encode()))


def table(*readings: Reading) -> tuple[Row, ...]:
    return diagnose([seen(one) for one in readings], [one.capture.node for one in readings]).flow


def said(row: Row) -> dict[str, str]:
    """Column -> what stands there, with what it is unlike."""
    cells = zip(COLUMNS, row.cells, strict=True)
    return {name: cell.says + (f" ({cell.odd})" if cell.odd else "") for name, cell in cells}


def test_the_one_node_that_is_set_up_unlike_the_others_says_so_in_each_cell() -> None:
    nodes = [live(f"n{at}") for at in range(1, 6)]
    rows = table(*nodes, live("n6", on=0, trust="pcp", mtu=4200, ecn=False))
    assert [(row.interface, row.where) for row in rows] == [("ens1f0", "n6"), ("ens1f0", "5 nodes")]
    assert said(rows[0]) == {
        "priorities without loss": "none (unlike 5 other nodes)", "at its switch": "not told",
        "MTU": "4200 (unlike 5 other nodes)", "ECN": "off (unlike 5 other nodes)",
        "trust": "pcp (unlike 5 other nodes)",
    }  # fmt: skip
    assert not rows[1].odd


def test_equal_nodes_without_a_switch_have_no_table_and_of_two_unequal_ones_each_is_told() -> None:
    assert table(live("a"), live("b")) == ()
    assert table(live("a"), live("b", ecn=None)) == ()
    rows = table(live("a"), live("b", mtu=1500))
    assert [said(row)["MTU"] for row in rows] == ["9000 (unlike the other node)", "1500 (unlike the other node)"]


@pytest.mark.parametrize(
    ("switches", "at_switch"),
    [
        ({"sw-1": ("on", 2)}, "3 (sw-1)"),
        ({"sw-1": ("off", 2)}, "none (sw-1) (unlike the node)"),
        ({"sw-1": ("off", 2), "sw-2": ("off", 2)}, "none (sw-1, sw-2) (unlike the node)"),
        ({"sw-1": ("on", 2), "sw-2": ("off", 2)}, "none or 3 (sw-1, sw-2) (unlike the node if that is its switch)"),
    ],
)
def test_the_configuration_of_switches_that_somebody_pasted_stands_beside_the_nodes_own(
    tmp_path: Path, switches: dict[str, tuple[str, int]], at_switch: str
) -> None:
    brought = {f"{name}.txt": CUMULUS.format(name, on, on) for name, (on, _) in switches.items()}
    brought |= {f"{node}/mlnx_qos_ens1f0.txt": QOS.format(on=1, trust="dscp") for node in ("gpu-1", "gpu-2")}
    (row,) = told(tmp_path, brought).diagnosis.flow
    assert (row.where, said(row)["at its switch"]) == ("gpu-1, gpu-2", at_switch)


def test_a_switch_of_sonic_that_has_other_priorities_without_loss_is_unlike_the_nodes(tmp_path: Path) -> None:
    ports = "".join(f"Ethernet{at}    {'4' if at else '3,4'}\n" for at in range(0, 16, 4))
    brought = {"tor7.txt": SONIC.format("tor7", ports), "gpu-1/mlnx_qos_ens1f0.txt": QOS.format(on=1, trust="dscp")}
    (row,) = told(tmp_path, brought).diagnosis.flow
    assert said(row)["at its switch"] == "4 (tor7) (unlike the node)"
    assert said(row)["priorities without loss"] == "3"


@pytest.mark.django_db
@pytest.mark.database
def test_the_page_has_one_table_of_live_nodes_and_the_pasted_switch(
    client: Client, rung: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "close_old_connections", lambda: None)  # a test has only this one
    add_nodes(main(), "gpu-[001-003]", Login(), None)
    incident = Incident.objects.create(fleet=main(), title="x", t0=timezone.now(), phase="triage")
    incident.nodes.set(main().nodes.all())
    store(incident, [live("gpu-001"), live("gpu-002"), live("gpu-003", on=0)], "triage")
    ada = person("ada", "responder")
    files.add_files(incident, [files.Brought("sw-9.txt", [CUMULUS.format("sw-9", "on", "on").encode()])], ada)
    for shard in runs.Shard.objects.filter(run__incident=incident, run__suite="files", finished_at=None):
        tasks.run_shard(shard.pk)
    diagnosing.judge(incident.pk)
    client.force_login(ada)
    page = client.get(f"/incidents/{incident.pk}").content.decode()
    (body,) = re.findall(r'<table class="cards flow">(.*?)</table>', page, re.S)
    words = [
        " ".join(html.unescape(re.sub(r"<[^>]*>", " ", row)).split()) for row in re.findall(r"<tr>.*?</tr>", body, re.S)
    ]
    assert words == [
        "Interface Priorities without loss At its switch MTU ECN Trust Evidence",
        "ens1f0 gpu-003 none ▲ unlike 2 other nodes 3 (sw-9) ▲ unlike the node 9000 on dscp evidence",
        "ens1f0 gpu-001, gpu-002 3 3 (sw-9) 9000 on dscp evidence",
    ]
