"""Output of tools, as recorded, is recognised by its content and read as its manual says."""

from __future__ import annotations

import os
import subprocess
from typing import Any, get_type_hints

import pytest

from probes.catalog.network.net_facts import Limit
from probes.core import ParseError, facts_as_json
from probes.intake.tools import tool_of, tools, tools_of
from probes.intake.tools._text import looks, time_in
from probes.stored import form_of, stored
from tests.support.brought import FIXTURES

TOOLS = FIXTURES / "tools"
MANIFEST = [line.split("\t") for line in (TOOLS / "MANIFEST.tsv").read_text().splitlines()[1:]]


def read(name: str, path: str = "") -> tuple[str, Any]:
    """(tool, facts) of a recording."""
    text = (TOOLS / name).read_text()
    tool = tool_of(text[:65_536], path or name)
    assert tool is not None, name
    return tool.name, tool.named(tool.read(text), path or name)


def tools_for(name: str) -> tuple[Any, ...]:
    return tools_of((TOOLS / name).read_text()[:65_536], name)


def test_every_recording_says_where_it_is_from() -> None:
    assert {row[0] for row in MANIFEST} | {"MANIFEST.tsv"} == {path.name for path in TOOLS.iterdir()}
    assert all(len(row) == 4 and all(row) for row in MANIFEST)


def test_ibstat_tells_each_port_and_the_state_words_of_sysfs() -> None:
    name, facts = read("ibstat_h100_some_down.txt")
    ports = {port.hca: port for port in facts.ports}
    assert (name, len(ports)) == ("ibstat", 12)
    assert (ports["mlx5_5"].state, ports["mlx5_5"].phys_state) == ("DOWN", "Disabled")
    assert (ports["mlx5_11"].state, ports["mlx5_11"].phys_state) == ("DOWN", "Polling")
    first = ports["mlx5_0"]
    assert (first.rate_gbps, first.link_layer, first.hca_type) == (400.0, "Ethernet", "MT4129")


def test_ibstat_that_fails_half_way_tells_what_came_before() -> None:
    _, facts = read("ibstat_a100_panic.txt")
    assert len(facts.ports) == 8
    assert (facts.ports[0].lid, facts.ports[0].sm_lid, facts.ports[0].rate_gbps) == (13247, 1, 200.0)


def test_ibstatus_tells_width_and_speed() -> None:
    _, facts = read("ibstatus_a100.txt")
    first = facts.ports[0]
    assert (first.hca, first.state, first.rate_gbps, first.width, first.speed) == ("mlx5_0", "ACTIVE", 200.0, 4, "HDR")
    assert first.lid == 0x33BF


def test_ibv_devinfo_tells_mtu_and_gids() -> None:
    text = (
        "hca_id:\tmlx5_0\n\ttransport:\t\t\tInfiniBand (0)\n\tfw_ver:\t\t\t\t20.31.1014\n"
        "\tnode_guid:\t\t\tb859:9f03:00a3:1234\n\tboard_id:\t\t\tMT_0000000224\n\tphys_port_cnt:\t\t\t1\n"
        "\t\tport:\t1\n\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n\t\t\tmax_mtu:\t\t4096 (5)\n\t\t\tactive_mtu:\t\t1024 (3)\n"
        "\t\t\tsm_lid:\t\t\t0\n\t\t\tport_lid:\t\t0\n\t\t\tlink_layer:\t\tEthernet\n\t\t\tactive_width:\t\t4X (2)\n"
        "\t\t\tactive_speed:\t\t50.0 Gbps (64)\n\t\t\tphys_state:\t\tLINK_UP (5)\n"
        "\t\t\tGID[  3]:\t\t::ffff:10.0.0.1, RoCE v2\n"
    )
    tool = tool_of(text, "x")
    assert tool is not None
    (port,) = tool.read(text).ports
    assert (port.state, port.phys_state, port.mtu, port.rate_gbps, port.speed) == (
        "ACTIVE",
        "LinkUp",
        1024,
        200.0,
        "HDR",
    )
    assert port.gids == ("3 RoCE v2 ::ffff:10.0.0.1",)


@pytest.mark.parametrize("name", ["iblinkinfo_faults.txt", "iblinkinfo_line_faults.txt"])
def test_iblinkinfo_tells_the_cables_and_what_is_not_there(name: str) -> None:
    """4 nodes of 8 rails in 8 leaves and 2 spines, of which one adapter was unplugged."""
    _, facts = read(name)
    kinds = [device.kind for device in facts.devices]
    assert (kinds.count("switch"), kinds.count("hca"), len(facts.links)) == (10, 31, 63)
    names = {device.guid: device.name for device in facts.devices}
    assert "node002 mlx5_3" not in names.values()
    link = next(one for one in facts.links if names[one.a] == "node003 mlx5_7")
    assert (names[link.b], link.b_port, link.lanes, link.speed) == ("leaf-su00-r7", 4, 4, "HDR")


def test_ibnetdiscover_with_one_port_a_line_tells_ports_without_a_peer() -> None:
    _, facts = read("ibnetdiscover_p.txt")
    names = {device.guid: device.name for device in facts.devices}
    ends = {(names[link.a], link.a_port, names[link.b], link.b_port) for link in facts.links}
    assert ("o0001 HCA-1", 1, "ib-i1l1s01", 10) in ends
    assert ("506b4b03005c2740", 37) in {(one.guid, one.port) for one in facts.down}
    assert facts.lids["134"] == "7cfe9003003b4bde"


def test_ibqueryerrors_leaves_sums_out_and_tells_the_other_end() -> None:
    _, facts = read("ibqueryerrors_details.txt")
    rows = {(one.label, one.port): one for one in facts.sets}
    assert set(rows) == {
        ("node002 mlx5_5", 1), ("leaf-su00-r5", 3), ("leaf-su00-r2", 2), ("leaf-su00-r1", 33), ("leaf-su00-r1", 34),
    }  # fmt: skip
    assert rows["leaf-su00-r5", 3].peer == "node002 mlx5_5 port 1"
    assert rows["leaf-su00-r5", 3].counters["port_rcv_errors"] == 1411
    assert rows["leaf-su00-r1", 34].counters["port_xmit_discards"] == 311  # the row of all ports says 255


def test_perfquery_tells_counters_by_lid_under_the_names_of_sysfs() -> None:
    _, facts = read("perfquery_x_hca.txt")
    (one,) = facts.sets
    assert (one.kind, one.name, one.port) == ("lid", "2052", 1)
    assert (one.counters["port_xmit_data"], one.counters["link_downed"]) == (178_791_657_177_235, 1)
    assert (one.counters["port_xmit_discards"], one.counters["port_xmit_wait"]) == (20_046, 41_864_608)
    assert [(one.name, one.port) for one in read("perfquery_x_switch.txt")[1].sets] == [("1719", 1), ("1719", 2)]
    assert read("perfquery_classic.txt")[1].sets[0].counters["symbol_error"] == 65_535


def test_ethtool_tells_speed_pause_and_the_modes_it_could_run_at() -> None:
    text = (
        "Settings for eth2:\n\tSupported ports: [ Backplane ]\n\tSupported link modes:   100000baseCR4/Full\n"
        "\t                        200000baseCR4/Full\n\tSpeed: 100000Mb/s\n"
        "\tLink detected: yes\n\nPause parameters for eth2:\nAutonegotiate:\toff\nRX:\t\ton\nTX:\t\ton\n"
    )
    tool = tool_of(text, "x")
    assert tool is not None
    (link,) = tool.read(text).links
    assert (link.speed_gbps, link.speed_max_gbps, link.up, link.pause) == (100.0, 200.0, True, True)


def test_ip_link_as_json_tells_the_same_as_its_text() -> None:
    json_ = (
        '[{"ifindex":3,"ifname":"eth2","flags":["BROADCAST","UP","LOWER_UP"],"mtu":9000,"link_type":"ether",'
        '"addr_info":[]}]'
    )
    text = (
        "3: eth2: <BROADCAST,UP,LOWER_UP> mtu 9000 qdisc mq state UP mode DEFAULT\n    link/ether 00:00:00:00:00:01\n"
    )
    one, other = (next(t for t in tools() if t.name == "ip link").read(form).links for form in (json_, text))
    assert one == other


def test_dcb_and_mlnx_qos_tell_the_same_priorities() -> None:
    qos = next(t for t in tools() if t.name == "mlnx_qos")
    table = (
        "Priority trust state: dscp\nPFC configuration:\n\tpriority    0   1   2   3   4   5   6   7\n"
        "\tenabled     0   0   0   1   0   0   0   0   \n"
    )
    dcb = "eth2 pfc-cap 8 macsec-bypass off delay 0\n  prio-pfc 0:off 1:off 2:off 3:on 4:off 5:off 6:off 7:off\n"
    assert [qos.named(qos.read(text), "qos_eth2.txt").links[0].pfc for text in (table, dcb)] == [(3,), (3,)]


def test_tables_of_the_cpu_are_read_with_their_units() -> None:
    _, ps = read("ps_axu.txt")
    assert any(one.args == "sleep 13" and one.pid == 4770 and one.lifetime for one in ps.processes)
    _, pidstat = read("pidstat_h.txt")
    assert pidstat.cpus == 1
    assert next(one for one in pidstat.processes if one.pid == 2297).cpu_percent == 0.5
    _, mpstat = read("mpstat_A.txt")
    assert (mpstat.cpus, mpstat.cpu.idle) == (1, 99.6)
    _, vmstat = read("vmstat.txt")
    assert (vmstat.runnable, vmstat.cpu.idle) == (2, 99.0)
    _, loads = read("loadavg.txt")
    assert (loads.load1, loads.load5, loads.load15, loads.runnable) == (0.02, 0.04, 0.05, 1)
    (loads,) = (tool for tool in tools_for("uptime.txt") if tool.probe == "host.load")
    assert loads.read((TOOLS / "uptime.txt").read_text()).load5 == 0.01
    _, pressure = read("pressure_io.txt")
    assert (pressure.io_pressure.some_avg10, pressure.io_pressure.full_avg60) == (0.1, 3.0)
    assert pressure.cpu_pressure is None


def test_settings_are_read_with_their_units() -> None:
    assert read("proc_limits.txt")[1].limits == (Limit(-1, 65_536),)
    assert (read("numactl_H.txt")[1].cpus, read("numactl_H.txt")[1].numa_nodes) == (36, 2)
    assert (read("lscpu.txt")[1].cpus, read("lscpu.txt")[1].cores) == (2, 1)
    assert {"bridge", "ipt_MASQUERADE"} <= set(read("lsmod.txt")[1].modules)
    shell = "core file size          (blocks, -c) 0\nmax locked memory       (kbytes, -l) 8192\n"
    tool = tool_of(shell, "ulimit.txt")
    assert tool is not None and tool.read(shell).limits == (Limit(0, 8192 * 1024),)


def test_the_times_that_date_prints_are_seconds_since_the_epoch() -> None:
    """`date -u -d @1764465000` is Sun Nov 30 01:10:00 2025."""
    seconds = 1_764_465_000.0
    zoned = "=== 2025-11-30T02:10:00+01:00 ==="
    for line in ("1764465000", "Sun Nov 30 01:10:00 UTC 2025", "2025-11-30T01:10:00Z", "# 2025-11-30 01:10:00", zoned):
        assert time_in(line) == seconds, line
    if os.path.exists("/bin/date"):
        argv = ["/bin/date", "-u", "-d", "@1764465000"]
        told = subprocess.run(argv, capture_output=True, text=True, env={"LC_ALL": "C"})
        assert time_in(told.stdout.strip()) == seconds
    assert time_in("PortXmitData:....................1764465000") is None


def test_a_time_heads_what_follows_or_stands_behind_each_look() -> None:
    assert list(looks("1764465000\na\n1764465010\nb\n")) == [(1_764_465_000.0, "a"), (1_764_465_010.0, "b")]
    assert list(looks("a\n1764465000\nb\n1764465010\n")) == [(1_764_465_000.0, "a"), (1_764_465_010.0, "b")]
    assert list(looks("a\n")) == [(None, "a\n")]


PROSE = (
    "On Monday we ran ibstat and perfquery -x on gpu-03; the port was Active. lsmod showed nvidia_peermem.\n"
    "ethtool -S eth2 had rx_discards_phy: 12, and load average was 3. PFC was enabled on priority 3.\n"
)


@pytest.mark.parametrize("tool", tools(), ids=lambda tool: tool.name)
def test_a_tool_takes_no_prose_and_no_log(tool: Any) -> None:
    assert not tool.fits(PROSE, "notes.txt")
    assert not tool.fits("[rank0]: step 12 loss 3.20 lr 0.001\n" * 20, "rank0.log")


@pytest.mark.parametrize("name", [row[0] for row in MANIFEST])
def test_two_tools_that_read_one_output_tell_different_facts(name: str) -> None:
    """`uptime` tells load and boot; two readers of the same facts would be two ways to do one thing."""
    told = [tool.probe for tool in tools_for(name)]
    assert len(told) == len(set(told)), told


@pytest.mark.parametrize("tool", tools(), ids=lambda tool: tool.name)
def test_garbage_is_refused_with_words_and_soon(tool: Any) -> None:
    for text in ("", "x" * 100_000, "[" * 20_000, ("a " * 40 + "\n") * 2_000, "\x00\x1b[31m{}"):
        with pytest.raises(ParseError):
            tool.read(text)


def test_no_two_tools_are_called_alike() -> None:
    assert len({tool.name for tool in tools()}) == len(tools())


@pytest.mark.parametrize(("name", "tool"), [(row[0], tool) for row in MANIFEST for tool in tools_for(row[0])])
def test_facts_come_back_from_the_database_as_they_were(name: str, tool: Any) -> None:
    facts = tool.named(tool.read((TOOLS / name).read_text()), name)
    assert stored("gpu-01", tool.probe, "ok", "", facts_as_json(facts), []).facts == facts


def test_tools_that_tell_one_kind_of_facts_have_one_form_for_them() -> None:
    """What comes back from the database is read by the name of the facts alone."""
    assert [tool.name for tool in tools() if get_type_hints(tool.read)["return"] is not form_of(tool.probe)] == []
