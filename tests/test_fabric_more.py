"""Faults of fabrics as other tools tell them: tables of addresses, subnet managers, UFM, switches, EFA."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.brought import told

SET = "".join(f"ax-{n}:11:12 [0] NCCL INFO NCCL_IB_GID_INDEX set by environment to 3.\n" for n in (1, 2, 3, 4))
REFUSED = (
    "ax-1:11:17 [0] misc/ibvwrap.cc:190 NCCL WARN Call to ibv_modify_qp failed with error No route to host errno 113\n"
)


def gids(node: int) -> str:
    """As `grep -H . .../gids/* .../gid_attrs/types/*` prints them; ax-3 got another address in between."""
    rows = [f"fe80:0000:0000:0000:0e42:a1ff:fe00:000{node}"] * 2
    rows += ["fd00:0000:0000:0000:0000:0000:0000:0001"] * 2 if node == 3 else []
    rows += [f"0000:0000:0000:0000:0000:ffff:0a00:000{node}"] * 2
    top = "/sys/class/infiniband/mlx5_0/ports/1"
    return "".join(
        f"{top}/gids/{n}:{gid}\n{top}/gid_attrs/types/{n}:{'RoCE v2' if n % 2 else 'IB/RoCE v1'}\n"
        for n, gid in enumerate(rows)
    )


def test_who_has_another_kind_of_address_at_the_index_is_named(tmp_path: Path) -> None:
    files = {f"ax-{n}.gids.txt": gids(n) for n in (1, 2, 3, 4)}
    found = told(tmp_path, files | {"job.log": SET + REFUSED})
    assert (found.cause, found.subject) == ("ib.gid_or_route", {"node": "ax-3"})


def test_without_an_index_that_was_set_nccl_looks_for_the_row_itself(tmp_path: Path) -> None:
    files = {f"ax-{n}.gids.txt": gids(n) for n in (1, 2, 3, 4)}
    assert told(tmp_path, files).cause in ("unknown", "none")


def test_the_table_alone_names_it_less_surely(tmp_path: Path) -> None:
    found = told(tmp_path, {f"ax-{n}.gids.txt": gids(n) for n in (1, 2, 3, 4)} | {"job.log": SET})
    assert (found.cause, found.subject) == ("ib.gid_or_route", {"node": "ax-3"})
    assert found.probability < 0.95


def ufm(*rows: tuple[str, str, str]) -> str:
    """UFM's event.log: (clock, what stands in front of the colon, the message)."""
    return "".join(
        f"2026-03-02 {clock}.101 [{900 + n}] [329] WARNING [Hardware] IBPort [default / {about}] [dev_id: 9c05]: "
        f"{says}\n"
        for n, (clock, about, says) in enumerate(rows)
    )


def lost(switch: str, port: int, other: str, clock: str = "10:00:01") -> tuple[str, str, str]:
    ends = f"(Switch:{switch}:1/{port}/1)9c0591030090e000:{port} - ({other})fc6a1c0300244e00:1"
    return clock, f"Switch: {switch} / 1/{port}/1", f"Link went down: {ends}, cable S/N: MT2330FT09118"


def test_ufm_names_both_ends_of_a_lost_link(tmp_path: Path) -> None:
    found = told(tmp_path, {"event.log": ufm(lost("T3-E21", 33, "Computer: bm-7 mlx5_4"))})
    assert (found.cause, found.subject) == ("ib.link_down", {"node": "bm-7", "hca": "mlx5_4"})
    assert found.probability >= 0.9


def test_a_link_that_came_back_once_is_not_lost(tmp_path: Path) -> None:
    clock, about, says = lost("T3-E21", 33, "Computer: bm-7 mlx5_4")
    back = ("10:00:44", about, says.replace("went down", "went up"))
    assert told(tmp_path, {"event.log": ufm((clock, about, says), back)}).share("ib.link_down") < 0.1


def test_links_of_one_switch_that_are_lost_together_are_their_switch(tmp_path: Path) -> None:
    rows = [lost("T3-E21", n, f"Computer: bm-{n} mlx5_4", f"10:00:0{n}") for n in range(1, 6)]
    found = told(tmp_path, {"event.log": ufm(*rows)})
    assert (found.cause, found.subject) == ("ib.switch_down", {"switch": "T3-E21"})


def test_all_links_of_one_node_at_once_are_more_likely_the_node(tmp_path: Path) -> None:
    rows = [lost(f"T3-E2{n}", 9, f"Computer: bm-7 mlx5_{n}") for n in range(4)]
    found = told(tmp_path, {"event.log": ufm(*rows)})
    assert found.subject in ({"node": "bm-7"}, {})
    assert found.probability < 0.8


def test_a_link_of_a_node_that_is_not_of_the_job_does_not_lead(tmp_path: Path) -> None:
    logs = {f"gpu-0{n}/rank{n}.log": f"gpu-0{n}:7:9 [0] NCCL INFO Init COMPLETE\n" for n in (1, 2)}
    found = told(tmp_path, logs | {"event.log": ufm(lost("T3-E21", 33, "Computer: bm-7 mlx5_4"))})
    assert found.cause in ("unknown", "none")


def test_opensm_tells_which_switch_it_removed(tmp_path: Path) -> None:
    """Forms of osm_drop_mgr.c and osm_port_info_rcv.c, as recorded with ibsim."""
    log = (
        "Jun 17 17:21:28 927893 [4F2006C0] 0x02 -> osm_pi_rcv_process: Switch 0x200000 core-a port 3 changed state "
        "from ACTIVE to DOWN\n"
        "Jun 17 17:21:28 932843 [3DA006C0] 0x02 -> drop_mgr_remove_port: Removed port with GUID:0x0000000000200001 "
        "LID range [3, 3] of node:leaf-b2\n"
    ) + "".join(
        f"Jun 17 17:21:28 93316{n} [3DA006C0] 0x02 -> drop_mgr_remove_port: Removed port with "
        f"GUID:0x000000000010000{n} LID range [{n + 5}, {n + 5}] of node:bm-{n} mlx5_1\n"
        for n in range(4)
    )
    found = told(tmp_path, {"opensm.log": log})
    assert (found.cause, found.subject) == ("ib.switch_down", {"switch": "leaf-b2"})


def test_ports_of_an_ethernet_switch_that_go_and_stay(tmp_path: Path) -> None:
    """portsorch.cpp of SONiC, and the message of Arista's EOS."""
    line = (
        "May  4 10:00:01.123456 tor-9 NOTICE swss#orchagent: :- updatePortOperStatus: Port Ethernet{} oper state set "
        "from up to down\n"
    )
    found = told(tmp_path, {"syslog": "".join(line.format(8 * n) for n in range(4))})
    assert (found.cause, found.subject) == ("ib.switch_down", {"switch": "tor-9"})
    line = (
        "May  4 10:00:01 tor-9 Ebra: %LINEPROTO-5-UPDOWN: Line protocol on Interface Ethernet7/1, changed state to {}\n"
    )
    alone = told(tmp_path / "eos", {"syslog": "".join(line.format(state) for state in ("down", "up", "down", "up"))})
    assert alone.probability < 0.8


def test_files_are_of_the_nodes_that_a_sweep_names(tmp_path: Path) -> None:
    sweep = "".join(
        f"CA: yy{n} mlx5_2:\n      0x0b83fd203001100{n}     3{n}    1[  ] ==( 4X        106.25 Gbps Active/  LinkUp)==>"
        f'       3    {n}[  ] "leaf-1" ( )\n'
        for n in (1, 2, 3, 4)
    )
    status = (
        "Infiniband device 'mlx5_2' port 1 status:\n\tdefault gid:\t fe80::1\n\tbase lid:\t 0xffff\n\tsm lid:\t\t 0x0\n"
        "\tstate:\t\t 1: DOWN\n\tphys state:\t 2: Polling\n\trate:\t\t 10 Gb/sec (4X SDR)\n\tlink_layer:\t InfiniBand\n"
    )
    found = told(tmp_path, {"iblinkinfo.txt": sweep, "yy3_ibstatus.txt": status})
    assert found.subject["node"] == "yy3"


def test_the_word_between_tool_and_adapter_is_the_node(tmp_path: Path) -> None:
    def ber(effective: str) -> str:
        return (
            '{"result": {"output": {"Operational Info": {"State": "Active"}, "Physical Counters and BER Info": '
            f'{{"Effective Physical BER": "{effective}", "Symbol BER": "15E-255"}}}}}}, "status": {{"code": 0}}}}'
        )

    files = {
        f"mlxlink_oak{n}_mlx5_{m}.json": ber("2E-7" if (n, m) == (7, 1) else "15E-255") for n in (6, 7) for m in (0, 1)
    }
    found = told(tmp_path, files)
    assert (found.cause, found.subject) == ("ib.link_degraded", {"node": "oak7", "hca": "mlx5_1", "port": 1})


def test_every_queue_pair_of_an_adapter_is_in_use_says_rdma_in_json(tmp_path: Path) -> None:
    show = (
        '[{"ifname": "rdmap16s27", "pd": 4, "cq": 9, "qp": 12}, {"ifname": "rdmap32s27", "pd": 4, "cq": 9, "qp": 256}]'
    )
    info = "hca_id:\trdmap32s27\n\tmax_qp:\t\t\t\t256\nhca_id:\trdmap16s27\n\tmax_qp:\t\t\t\t256\n"
    line = "gpu-3:81:90 [1] create_ep:201 NCCL WARN NET/OFI Couldn't enable endpoint. RC: -12, "
    line += "ERROR: Cannot allocate memory\n"
    files = {"gpu-3/rdma.json": show, "gpu-3/ibv_devinfo.txt": info, "gpu-3/rank0.log": line}
    found = told(tmp_path, files)
    assert (found.cause, found.subject) == ("ib.qp_exhausted", {"node": "gpu-3", "hca": "rdmap32s27"})


def test_an_endpoint_that_is_refused_for_another_reason_is_no_want_of_resources(tmp_path: Path) -> None:
    line = "gpu-3:81:90 [1] NCCL WARN NET/OFI Couldn't enable endpoint. RC: -22, ERROR: Invalid argument\n"
    assert told(tmp_path, {"gpu-3/rank0.log": line}).share("ib.qp_exhausted") < 0.2


def each(line: str, nodes: int = 5) -> str:
    """A line for each port of two of each node; {bad} is that of the fourth node's second."""
    return "".join(
        line.format(n=n, m=m, down="Down" if (n, m) == (4, 1) else "Active", rate=200 if (n, m) == (4, 1) else 400)
        for n in range(1, nodes + 1)
        for m in range(2)
    )


@pytest.mark.parametrize("line", [
    "kv{n:02d}  mlx5_{m}  State: {down}\n",
    "[kv{n:02d}] mlx5_{m} port 1 state={down}\n",
    "kv{n:02d}: State: {down}\nkv{n:02d}: Link layer: InfiniBand\n",
    "kv{n:02d}, mlx5_{m}, {down}\n",
])  # fmt: skip
def test_the_port_that_is_down_in_any_table_of_states(tmp_path: Path, line: str) -> None:
    found = told(tmp_path, {"states.txt": each(line)})
    assert (found.cause, found.subject) == ("ib.link_down", {"node": "kv04", "hca": "mlx5_1", "port": 1})


@pytest.mark.parametrize("line", [
    "kv{n:02d} mlx5_{m} {rate} Gb/sec (4X NDR)\n",
    "<kv{n:02d}> eth{m} Speed: {rate}000Mb/s\n",
    "kv{n:02d}: eth{m} Speed: {rate}000Mb/s Link detected: yes\n",
])  # fmt: skip
def test_the_port_that_is_slower_in_any_table_of_rates(tmp_path: Path, line: str) -> None:
    found = told(tmp_path, {"rates.txt": each(line)})
    assert (found.cause, found.subject["node"]) == ("ib.link_degraded", "kv04")


def test_tables_in_which_all_is_well_find_nothing(tmp_path: Path) -> None:
    text = "".join(f"kv{n:02d} mlx5_{m} state={'Active'} 400 Gb/sec (4X NDR)\n" for n in range(1, 6) for m in range(2))
    assert told(tmp_path, {"states.txt": text}).cause in ("unknown", "none")


def test_an_interface_of_roce_that_is_down_on_one_node_alone_says_ibdev2netdev(tmp_path: Path) -> None:
    text = "".join(
        f"kv{n:02d}: mlx5_{m} port 1 ==> ens{m}np0 ({'Down' if (n, m) == (2, 1) else 'Up'})\n"
        for n in range(1, 6) for m in range(2)
    )  # fmt: skip
    found = told(tmp_path, {"ibdev.txt": text})
    assert (found.cause, found.subject) == ("ib.link_down", {"node": "kv02", "device": "ens1np0", "hca": "mlx5_1"})
    everywhere = text.replace("(Up)", "(Down)")
    assert told(tmp_path / "pure", {"ibdev.txt": everywhere}).cause in ("unknown", "none")


def test_ibdiagnet_names_a_narrow_link_by_its_adapter(tmp_path: Path) -> None:
    line = "-E- Link: S248a07/N248a07(leaf-07)(17)<-->kv31 mlx5_2(U1)/P1 - Unexpected actual link width 1x\n"
    found = told(tmp_path, {"ibdiagnet2.log": "-I- Links Speed Check finished successfully\n" + line})
    assert (found.cause, found.subject) == ("ib.link_degraded", {"node": "kv31", "hca": "mlx5_2"})


def test_a_row_of_mlnx_qos_and_one_counter_of_each_node_are_enough(tmp_path: Path) -> None:
    rows = "".join(f"kv{n}: \tenabled     0   0   0   {int(n != 3)}   0   0   0   0   \n" for n in range(1, 6))
    counts = "".join(f"kv{n}:      rx_prio3_discards: {{}}{n}\n" for n in range(1, 6))
    command = "$ pdsh -w kv[1-5] '{} eth2{}'\n"
    paste = command.format("mlnx_qos -i", " | grep enabled") + rows
    paste += "".join(
        command.format("ethtool -S", " | grep prio3_disc") + counts.replace("{}", str(n)) for n in (12, 9912)
    )
    found = told(tmp_path, {"paste.txt": paste})
    assert (found.cause, found.subject["node"]) == ("ib.lossless_misconfigured", "kv3")
    assert found.probability >= 0.9


def test_one_of_two_switches_without_roce_where_packets_are_lost(tmp_path: Path) -> None:
    show = "cumulus@{}:~$ nv show qos roce\n                    operational  applied\n---  ---\nenable   {}   {}\n"
    lost = "h{0} {1} out_of_sequence {2}\n"
    loss = "".join(
        lost.format(n, at, (n > 2) * many) for at, many in (("10:00:00", 5), ("10:01:00", 90_000)) for n in (1, 2, 3, 4)
    )
    files = {
        "sw-1.txt": show.format("sw-1", "on", "on"),
        "sw-2.txt": show.format("sw-2", "off", "off"),
        "loss.txt": loss,
    }
    found = told(tmp_path, files)
    assert (found.cause, found.subject) == ("ib.lossless_misconfigured", {"switch": "sw-2"})


def test_pause_frames_of_a_switch_that_rise_are_congestion_and_old_ones_are_not(tmp_path: Path) -> None:
    def look(clock: str, frames: str) -> str:
        return (
            f"admin@leaf5:~$ date; show pfc counters\nMon May  4 {clock} UTC 2026\n"
            "  Port Rx       PFC0    PFC1    PFC2         PFC3    PFC4    PFC5    PFC6    PFC7\n"
            f"Ethernet0          0       0       0   {frames}       0       0       0       0\n"
            "Ethernet8          0       0       0   1       0       0       0       0\n"
        )

    rises = told(tmp_path, {"leaf.txt": look("10:00:00", "0") + look("10:01:00", "31,002,118")})
    assert (rises.cause, rises.subject["switch"]) == ("ib.congestion", "leaf5")
    old = told(tmp_path / "old", {"leaf.txt": look("10:00:00", "31,002,118") + look("10:01:00", "31,002,118")})
    assert old.cause in ("unknown", "none")
