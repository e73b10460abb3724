"""A switch that takes one rail of many nodes with it, as syslog servers, LLDP, sweeps and sorted logs tell it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from probes.intake import central_syslog
from probes.intake.tools.network import lldp
from tests.support.brought import told

DOWN = "2026-03-04T05:06:{s:02d}+01:00 mn-{n} kernel: mlx5_core 0000:5a:00.0 ens3f1np1: Link down\n"
SWITCH_SAYS = "2026-03-04T05:06:31+01:00 spine-2 Ebra: %LINK-3-UPDOWN: Interface Ethernet9/1, changed state to down\n"


def central(nodes: int) -> str:
    return "".join(DOWN.format(s=30 + n % 2, n=n) for n in range(1, nodes + 1)) + SWITCH_SAYS


def test_lines_of_a_syslog_server_belong_to_the_hosts_that_sent_them(tmp_path: Path) -> None:
    found = told(tmp_path, {"central.log": central(5)})
    assert (found.cause, found.subject) == ("ib.switch_down", {"device": "ens3f1np1"})
    assert {name for name, _ in central_syslog.sections(central(5))} == {"", *(f"mn-{n}" for n in range(1, 6))}


def test_a_syslog_of_one_host_is_one_log() -> None:
    assert central_syslog.sections(central(1)) == []
    one = "Mar  4 05:06:30 mn-1 kernel: x\nMar  4 05:06:31 mn-1 sshd[12]: Accepted\n"
    assert central_syslog.sections(one) == []


@pytest.mark.parametrize(
    "neighbour",
    [
        "lldp.ens3f1np1.chassis.name=tor-12\nlldp.ens3f1np1.port.ifname=swp{n}\n",
        "-----\nLLDP neighbors:\n-----\nInterface:    ens3f1np1, via: LLDP, RID: 3, Time: 2 days, 01:02:03\n"
        "  Chassis:\n    ChassisID:    mac 1c:34:da:00:00:01\n    SysName:      tor-12\n"
        "  Port:\n    PortID:       ifname swp{n}\n    PortDescr:    to mn\n",
        '{{"lldp": {{"interface": [{{"ens3f1np1": {{"chassis": {{"tor-12": {{"id": {{"type": "mac"}}}}}},'
        ' "port": {{"id": {{"type": "ifname", "value": "swp{n}"}}}}}}}}]}}}}',
    ],
)
def test_a_lost_rail_is_named_by_the_switch_that_lldp_told(tmp_path: Path, neighbour: str) -> None:
    files = {f"lldp/mn-{n}.out": neighbour.format(n=n) for n in range(1, 6)}
    found = told(tmp_path, {"central.log": central(5), **files})
    assert (found.cause, found.subject.get("switch")) == ("ib.switch_down", "tor-12")


def test_lldp_tells_the_port_of_the_switch() -> None:
    text = json.dumps({"lldp": {"interface": {"eth2": {
        "chassis": {"tor-9": {}}, "port": {"id": {"value": "Ethernet12/1"}, "descr": "x"}}}}})  # fmt: skip
    assert lldp.fits(text, "") and [one.peer for one in lldp.read(text).sets] == ["tor-9 port 12"]


def test_a_sorted_kernel_log_is_put_back_into_its_order(tmp_path: Path) -> None:
    """sort(1) puts Fri before Wed: the link that came up on Wednesday went down on Friday."""
    rows = [
        f"q{n}: [{stamp} 2026] mlx5_core 0000:9b:00.0 ens9np0: Link {what}\n"
        for n in range(1, 5)
        for stamp, what in (("Fri Mar  6 03:00:01", "down"), ("Wed Mar  4 08:00:00", "up"))
    ]
    states = [
        f"q{n}: link mlx5_{m}/1 {'state DOWN' if m == 2 else 'state ACTIVE physical_state LINK_UP'} netdev ens{m}np0 \n"
        for n in range(1, 5)
        for m in range(4)
    ]
    text = "$ pdsh -w q[1-4] rdma link | sort\n" + "".join(states)
    text += '$ pdsh -w q[1-4] "dmesg -T | grep mlx5" | sort\n' + "".join(rows)
    found = told(tmp_path, {"session.txt": text})
    assert (found.cause, found.subject.get("hca")) == ("ib.switch_down", "mlx5_2")
    up = told(tmp_path / "up", {"dmesg.txt": "".join(rows).replace("Fri Mar  6", "Mon Mar  2")})
    assert up.share("ib.switch_down") == 0


def test_two_rails_that_the_same_nodes_lose_are_one_switch(tmp_path: Path) -> None:
    rows = [
        f"q{n}: link mlx5_{m}/1 state {'DOWN' if m in (1, 3) else 'ACTIVE physical_state LINK_UP'} netdev eth{m} \n"
        for n in range(1, 5)
        for m in range(6)
    ]
    logs = [
        f"q{n}: [Fri Mar  6 03:00:01 2026] mlx5_core 0000:{m}b:00.0 eth{m}: Link down\n"
        for n in range(1, 5)
        for m in (1, 3)
    ]
    found = told(tmp_path, {"rdma.txt": "".join(rows), "dmesg.txt": "".join(logs)})
    assert (found.cause, dict(found.subject)) == ("ib.switch_down", {})
    assert " and " in found.says


def test_opensm_names_the_switch_that_it_removed(tmp_path: Path) -> None:
    guid = "with GUID:0x0000000000200009 LID range [4,4] of node:leaf-09"
    lost = f"0x01 -> __osm_drop_mgr_remove_switch: Removed switch {guid}"
    ports = "".join(
        f"Jan 12 02:03:04 11{n}000 [77FE700] 0x01 -> drop_mgr_remove_port: Removed port with GUID:0x00000000001000{n}d "
        f"LID range [2{n},2{n}] of node:cz{n} mlx5_3\n"
        for n in range(4)
    )
    found = told(tmp_path, {"opensm.log": f"Jan 12 02:03:04 100000 [77FE700] {lost}\n{ports}"})
    assert (found.cause, found.subject) == ("ib.switch_down", {"switch": "leaf-09"})


def test_ports_that_nccl_lost_together_are_those_of_the_switch_in_an_older_sweep(tmp_path: Path) -> None:
    sweep = "".join(
        f'0x00000000001000{n}1 "                ha{n} mlx5_1"     2{n}    1[  ] ==( 4X        53.125 Gbps Active/  '
        f'LinkUp)==>  0x0000000000200005      3    {n + 1}[  ] "leaf-b5" ( )\n'
        for n in range(4)
    )
    log = "".join(f"ha{n}:71{n}:72{n} [1] NCCL WARN NET/IB : mlx5_1:1 Got async event : port error\n" for n in range(4))
    found = told(tmp_path, {"iblinkinfo.txt": sweep, "train.log": log})
    assert (found.cause, found.subject.get("switch")) == ("ib.switch_down", "leaf-b5")


def test_a_rail_of_nodes_that_are_not_the_job_s_is_no_cause_of_its_stop(tmp_path: Path) -> None:
    """What grep left of scontrol tells the nodes, without the job's number."""
    shown = (
        "$ scontrol show job 871 | egrep 'JobState|NodeList'\n   JobState=RUNNING Reason=None\n   NodeList=mn-[11-14]\n"
    )
    assert told(tmp_path, {"central.log": central(5), "slurm.txt": shown}).share("ib.switch_down") == 0
    mine = {"central.log": central(5), "slurm.txt": shown.replace("[11-14]", "[3-6]")}
    assert told(tmp_path / "mine", mine).cause == "ib.switch_down"


def test_a_link_that_came_back_hours_later_is_not_lost(tmp_path: Path) -> None:
    rows = [
        f"{stamp} mn-{n} kernel: mlx5_core 0000:5a:00.0 ens3f1np1: Link {what}\n"
        for stamp, what in (("2026-03-04T01:06:30Z", "down"), ("2026-03-04T06:30:00Z", "up"))
        for n in range(1, 5)
    ]
    assert told(tmp_path, {"central.log": "".join(rows)}).share("ib.switch_down") == 0
    assert told(tmp_path / "down", {"central.log": "".join(rows[:4])}).cause == "ib.switch_down"


def test_a_switch_is_called_as_people_call_it(tmp_path: Path) -> None:
    """Its description holds its model as well."""
    names = ["MF0;leaf-21:MQM9700/U1", *(f"rk{n} mlx5_2" for n in range(1, 6))]
    rows = "".join(
        f"Jun 21 14:02:44 50{n}200 [591FC700] 0x02 -> drop_mgr_remove_port: Removed port with "
        f"GUID:0x00000000001{n}000d LID range [{20 + n}, {20 + n}] of node:{name}\n"
        for n, name in enumerate(names)
    )
    found = told(tmp_path, {"opensm.log": rows})
    assert (found.cause, found.subject) == ("ib.switch_down", {"switch": "leaf-21"})


def test_a_node_of_another_rack_is_not_the_job_s(tmp_path: Path) -> None:
    shown = "JobId=55 JobName=x\n   JobState=RUNNING Reason=None\n   NodeList=ka[01-04]\n"
    flaps = "".join(
        f"2026-05-11T02:{m:02d}:{s}Z {{node}} kernel: mlx5_core 0000:5a:00.0 ens3: Link {what}\n"
        for m in (13, 19, 24, 32, 41)
        for s, what in ((10, "down"), (17, "up"))
    )
    found = told(tmp_path, {"scontrol.txt": shown, "syslog.txt": flaps.format(node="kb09")})
    assert found.share("ib.link_flapping") == 0
    mine = told(tmp_path / "mine", {"scontrol.txt": shown, "syslog.txt": flaps.format(node="ka03")})
    assert (mine.cause, mine.subject.get("node")) == ("ib.link_flapping", "ka03")


def test_ports_without_a_cable_that_nodes_tell_of_as_they_boot_are_no_lost_rail(tmp_path: Path) -> None:
    boot = "2026-03-04T05:05:{s}+01:00 mn-{n} kernel: Linux version 5.15.0-101-generic (x@y) #111\n"
    started = "".join(boot.format(s=50 + n, n=n) for n in range(1, 6))
    assert told(tmp_path, {"central.log": started + central(5)}).share("ib.switch_down") == 0
    before = started.replace("T05:05", "T01:05")
    assert told(tmp_path / "before", {"central.log": before + central(5)}).cause == "ib.switch_down"
