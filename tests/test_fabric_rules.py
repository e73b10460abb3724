"""Faults of the fabric and of a node's network, told from files: who is named, how surely, and who is not accused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.brought import told

NDR = 50e9 / 8  # ticks of 8 bytes in a second of waiting: 400 Gb/s are 50 GB/s (NVIDIA ibdiagnet manual)


def ibstat(**ports: str) -> str:
    """mlx5_0="Active LinkUp 400" and so on, as ibstat prints them."""
    parts = []
    for number, (hca, told_) in enumerate(ports.items()):
        state, physical, rate = told_.split()
        parts.append(
            f"CA '{hca}'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tFirmware version: 28.39.1002\n"
            f"\tNode GUID: 0xa088c20300ade{number:03x}\n\tPort 1:\n\t\tState: {state}\n\t\tPhysical state: {physical}\n"
            f"\t\tRate: {rate}\n\t\tBase lid: {number + 10}\n\t\tSM lid: {0 if state == 'Initializing' else 1}\n"
            f"\t\tPort GUID: 0xa088c20300ade{number:03x}\n\t\tLink layer: InfiniBand\n"
        )
    return "".join(parts)


FINE = {f"mlx5_{n}": "Active LinkUp 400" for n in range(4)}


def sysfs(at: float, counters: dict[str, dict[str, int]], rate: str = "400 Gb/sec (4X NDR)") -> str:
    """One look of `grep -H .` with the time behind it, as our manual tells people to take it."""
    lines = []
    for hca, values in counters.items():
        told_ = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": rate, "link_layer": "InfiniBand"}
        lines += [f"{hca}/ports/1/{name}:{value}" for name, value in told_.items()]
        lines += [f"{hca}/ports/1/counters/{name}:{value}" for name, value in values.items()]
    return "\n".join(lines) + f"\n{at:.9f}\n"


NODES = ("gpu-01", "gpu-02", "gpu-03", "gpu-04")
ZERO = {"symbol_error": 0, "link_error_recovery": 0, "port_rcv_errors": 0, "link_downed": 0,
    "port_rcv_remote_physical_errors": 0, "port_xmit_wait": 0, "port_xmit_data": 100, "port_rcv_data": 100}  # fmt: skip


def two_looks(changes: dict[tuple[str, str], dict[str, int]], rate: str = "400 Gb/sec (4X NDR)") -> dict[str, str]:
    """Two looks at four nodes of two rails, ten seconds apart; {(node, HCA): what its counters are in the second}."""
    files = {}
    for node in NODES:
        rails = ("mlx5_0", "mlx5_1")
        files[f"{node}/counters.before"] = sysfs(1_764_465_100.0, dict.fromkeys(rails, ZERO), rate)
        after = {hca: ZERO | {"port_xmit_data": 10**9} | changes.get((node, hca), {}) for hca in rails}
        files[f"{node}/counters.after"] = sysfs(1_764_465_110.0, after, rate)
    return files


# Links --------------------------------------------------------------------------------------------------------------


def test_a_port_that_is_down_beside_working_ones_is_named(tmp_path: Path) -> None:
    files = {f"{node}/ibstat.txt": ibstat(**FINE) for node in NODES}
    files["gpu-03/ibstat.txt"] = ibstat(**(FINE | {"mlx5_2": "Down Polling 40"}))
    found = told(tmp_path, files)
    assert (found.cause, found.subject) == ("ib.link_down", {"node": "gpu-03", "hca": "mlx5_2", "port": 1})
    assert found.probability >= 0.9
    assert found.step("rdma", "ports")[0] == "implicated"


def test_a_port_that_is_down_on_every_node_was_never_cabled_and_does_not_lead(tmp_path: Path) -> None:
    text = ibstat(**(FINE | {"mlx5_4": "Down Polling 40"})).replace("Base lid: 14", "Base lid: 65535")
    found = told(tmp_path, {f"{node}/ibstat.txt": text for node in NODES})
    assert found.cause == "unknown"
    assert found.share("ib.link_down") < 0.2


def test_a_rail_that_is_down_on_every_node_and_once_had_addresses_has_lost_its_switch(tmp_path: Path) -> None:
    text = ibstat(**(FINE | {"mlx5_3": "Down Polling 40"}))
    found = told(tmp_path, {f"ibstat-{node}.txt": text for node in NODES})
    assert (found.cause, found.subject) == ("ib.switch_down", {"hca": "mlx5_3", "port": 1})
    assert found.probability >= 0.9


def test_the_same_rail_down_on_every_node_after_traffic_is_its_switch(tmp_path: Path) -> None:
    files = {f"{node}/ibstat.txt": ibstat(**(FINE | {"mlx5_2": "Down Polling 40"})) for node in NODES}
    for node in NODES:
        files[f"{node}/dmesg.txt"] = (
            "2026-11-30T01:00:00,000000+00:00 mlx5_core 0000:1a:00.0 mlx5_2: Link up\n"
            "2026-11-30T01:12:00,000000+00:00 mlx5_core 0000:1a:00.0 mlx5_2: Link down\n"
        )
    found = told(tmp_path, files)
    assert found.cause == "ib.switch_down"
    assert found.probability > 0.8


def test_a_port_that_waits_for_its_subnet_manager_is_not_called_a_dead_cable(tmp_path: Path) -> None:
    files = {f"{node}/ibstat.txt": ibstat(**FINE) for node in NODES}
    files["gpu-02/ibstat.txt"] = ibstat(**(FINE | {"mlx5_1": "Initializing LinkUp 400"}))
    found = told(tmp_path, files)
    assert (found.cause, found.subject["node"], found.subject["hca"]) == ("ib.gid_or_route", "gpu-02", "mlx5_1")
    assert found.probability >= 0.9
    assert found.share("ib.link_down") == 0


def test_a_slow_rail_is_named_against_the_same_rail_of_other_nodes(tmp_path: Path) -> None:
    slow = dict.fromkeys(FINE, "Active LinkUp 400") | {"mlx5_3": "Active LinkUp 100"}
    files = {f"{node}/ibstat.txt": ibstat(**(slow if node == "gpu-04" else FINE)) for node in NODES}
    found = told(tmp_path, files)
    assert (found.cause, found.subject) == ("ib.link_degraded", {"node": "gpu-04", "hca": "mlx5_3", "port": 1})
    assert found.probability >= 0.9


def test_errors_that_rise_on_one_port_are_its_cable(tmp_path: Path) -> None:
    found = told(tmp_path, two_looks({("gpu-02", "mlx5_1"): {"port_rcv_errors": 900, "link_error_recovery": 3}}))
    assert (found.cause, found.subject) == ("ib.link_degraded", {"node": "gpu-02", "hca": "mlx5_1", "port": 1})
    assert found.probability >= 0.9
    assert "port_rcv_errors by 900 in 10 s" in found.says


def test_symbol_errors_of_ndr_are_noise_before_correction(tmp_path: Path) -> None:
    found = told(tmp_path, two_looks({("gpu-02", "mlx5_1"): {"symbol_error": 5000}}))
    assert found.share("ib.link_degraded") == 0
    again = told(tmp_path / "edr", two_looks({("gpu-02", "mlx5_1"): {"symbol_error": 5000}}, "100 Gb/sec (4X EDR)"))
    assert again.cause == "ib.link_degraded"


def test_packets_marked_bad_upstream_do_not_accuse_the_port_that_gets_them(tmp_path: Path) -> None:
    found = told(tmp_path, two_looks({("gpu-02", "mlx5_1"): {"port_rcv_remote_physical_errors": 500}}))
    assert found.probability < 0.8
    both = {
        ("gpu-02", "mlx5_1"): {"port_rcv_remote_physical_errors": 500},
        ("gpu-03", "mlx5_1"): {"port_rcv_errors": 500},
    }
    found = told(tmp_path / "both", two_looks(both))
    assert (found.cause, found.subject["node"]) == ("ib.link_degraded", "gpu-03")


def test_a_counter_that_is_stuck_is_not_known_neither_fine_nor_bad(tmp_path: Path) -> None:
    stuck = {"link_downed": 255, "symbol_error": 65535}
    files = {}
    for node in NODES:
        files[f"{node}/counters.1"] = sysfs(1_764_465_100.0, {"mlx5_0": ZERO | stuck})
        files[f"{node}/counters.2"] = sysfs(1_764_465_110.0, {"mlx5_0": ZERO | stuck})
    found = told(tmp_path, files)
    assert found.cause == "unknown"
    state, why = found.step("rdma", "errors")
    assert (state, "saturated" in why) == ("not known", True)


def test_counters_that_went_down_were_cleared_and_are_no_event(tmp_path: Path) -> None:
    files = {
        "gpu-01/counters.1": sysfs(1_764_465_100.0, {"mlx5_0": ZERO | {"port_rcv_errors": 4000, "link_downed": 9}}),
        "gpu-01/counters.2": sysfs(1_764_465_110.0, {"mlx5_0": ZERO}),
    }
    found = told(tmp_path, files)
    assert found.cause == "unknown"
    assert "reset" in found.step("rdma", "errors")[1]


def test_one_reading_of_counters_says_that_a_second_is_needed(tmp_path: Path) -> None:
    found = told(tmp_path, {"gpu-01/c.txt": sysfs(1_764_465_100.0, {"mlx5_0": ZERO | {"port_rcv_errors": 40_000}})})
    assert found.cause == "unknown"
    assert "read once" in found.step("rdma", "errors")[1]


def test_a_count_of_downs_that_rises_is_a_flapping_link(tmp_path: Path) -> None:
    found = told(tmp_path, two_looks({("gpu-04", "mlx5_0"): {"link_downed": 3}}))
    assert (found.cause, found.subject) == ("ib.link_flapping", {"node": "gpu-04", "hca": "mlx5_0", "port": 1})
    assert found.probability >= 0.9


FLAPS = "".join(
    f"2026-11-30T01:1{n}:00,000000+00:00 mlx5_core 0000:1a:00.0 ib2: Link {'down' if n % 2 else 'up'}\n"
    for n in range(7)
)


def test_a_kernel_log_with_ups_and_downs_is_a_flapping_link(tmp_path: Path) -> None:
    files = {f"{node}/ibstat.txt": ibstat(**FINE) for node in NODES}
    found = told(tmp_path, files | {"gpu-02/dmesg.txt": FLAPS})
    assert (found.cause, found.subject["node"]) == ("ib.link_flapping", "gpu-02")
    assert found.probability >= 0.9


# Switches, sweeps -----------------------------------------------------------------------------------------------------


def test_a_sweep_with_one_slow_cable_names_its_adapter_and_both_ends(tmp_path: Path) -> None:
    rows = []
    for number in range(6):
        lanes = "1X" if number == 4 else "4X"
        rows.append(
            f'0x00000000001000{number:02x} "        gpu-{number:02} mlx5_0"     {20 + number}    1[  ] ==( {lanes}'
            f'        106.25 Gbps Active/  LinkUp)==>  0x0000000000200007     12    {number + 1}[  ] "leaf-7" ( )'
        )
    found = told(tmp_path, {"iblinkinfo.txt": "\n".join(rows) + "\n"})
    assert (found.cause, found.subject["node"], found.subject["hca"]) == ("ib.link_degraded", "gpu-04", "mlx5_0")
    assert "leaf-7 port 5" in found.says


def sweep(leaves: int) -> str:
    parts = ["# Topology file: generated on Mon Nov 30 01:00:00 2026", ""]
    for leaf in range(leaves):
        parts.append(f'Switch\t40 "S-00000000002000{leaf:02x}"\t\t# "leaf-{leaf}" enhanced port 0 lid {leaf + 1} lmc 0')
        for n in range(3):
            guid = f"00000000001{leaf}0{n:03x}"
            parts.append(
                f'[{n + 1}]\t"H-{guid}"[1]({guid}) \t\t# "gpu-{n:02} mlx5_{leaf}" lid {leaf * 10 + n + 20} 4xHDR'
            )
        parts.append("")
    for leaf in range(leaves):
        for n in range(3):
            guid = f"00000000001{leaf}0{n:03x}"
            parts.append(f'Ca\t1 "H-{guid}"\t\t# "gpu-{n:02} mlx5_{leaf}"')
            lids = f'# lid {leaf * 10 + n + 20} lmc 0 "leaf-{leaf}" lid {leaf + 1} 4xHDR'
            parts.append(f'[1]({guid}) \t"S-00000000002000{leaf:02x}"[{n + 1}]\t\t{lids}')
            parts.append("")
    return "\n".join(parts)


def test_a_switch_of_the_earlier_sweep_that_the_later_has_not_is_lost(tmp_path: Path) -> None:
    found = told(tmp_path, {"ibnetdiscover.before": sweep(4), "ibnetdiscover.after": sweep(3)})
    assert (found.cause, found.subject) == ("ib.switch_down", {"switch": "leaf-3"})
    assert found.probability >= 0.9


# Congestion, RoCE -----------------------------------------------------------------------------------------------------


def test_all_rails_that_wait_are_a_full_fabric_and_no_port_is_accused(tmp_path: Path) -> None:
    waits = {(node, hca): {"port_xmit_wait": int(4 * NDR)} for node in NODES for hca in ("mlx5_0", "mlx5_1")}
    found = told(tmp_path, two_looks(waits))
    assert (found.cause, dict(found.subject)) == ("ib.congestion", {})
    assert found.probability >= 0.9
    assert "40 %" in found.says


def test_a_million_ticks_are_no_congestion(tmp_path: Path) -> None:
    """1e6 ticks are 160 us of waiting in all on NDR."""
    found = told(tmp_path, two_looks({("gpu-01", "mlx5_0"): {"port_xmit_wait": 1_000_000}}))
    assert found.share("ib.congestion") == 0
    assert found.step("rdma", "waiting")[0] == "ruled out"


def ethtool(netdev: str, **values: int) -> str:
    return "NIC statistics:\n     rx_packets: 1\n" + "".join(
        f"     {name}: {value}\n" for name, value in values.items()
    )


def qos(*priorities: int, trust: str = "dscp") -> str:
    bits = "   ".join("1" if n in priorities else "0" for n in range(8))
    return (
        f"DCBX mode: OS controlled\nPriority trust state: {trust}\nPFC configuration:\n"
        f"\tpriority    0   1   2   3   4   5   6   7\n\tenabled     {bits}   \n"
    )


def roce(odd: str = "") -> dict[str, str]:
    files = {}
    for node in NODES:
        files[f"{node}/rdma_link.txt"] = "link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev eth2\n"
        files[f"{node}/mlnx_qos_eth2.txt"] = qos(trust="pcp") if node == odd else qos(3)
        for look, at, lost in (("before", 100, 0), ("after", 160, 90_000 if node == odd else 0)):
            text = f"{1_764_465_000 + at}\n" + ethtool("eth2", rx_discards_phy=lost)
            files[f"{node}/ethtool_S_eth2.{look}.txt"] = text
    return files


def test_one_node_without_flow_control_that_loses_packets_is_named(tmp_path: Path) -> None:
    found = told(tmp_path, roce("gpu-03"))
    assert (found.cause, found.subject["node"]) == ("ib.lossless_misconfigured", "gpu-03")
    assert found.probability >= 0.9


def test_equal_settings_without_loss_rule_it_out(tmp_path: Path) -> None:
    found = told(tmp_path, roce())
    assert found.share("ib.lossless_misconfigured") == 0
    assert found.step("rdma", "lossless")[0] == "ruled out"


def test_who_sends_pauses_is_slow_and_who_gets_them_is_the_victim(tmp_path: Path) -> None:
    files = roce()
    for node in NODES:
        name = "tx_prio3_pause_duration" if node == "gpu-02" else "rx_prio3_pause_duration"
        for look, at, us in (("before", 100, 0), ("after", 160, 30_000_000)):
            files[f"{node}/ethtool_S_eth2.{look}.txt"] = f"{1_764_465_000 + at}\n" + ethtool("eth2", **{name: us})
    found = told(tmp_path, files)
    assert (found.cause, found.subject["node"]) == ("ib.congestion", "gpu-02")
    assert found.probability >= 0.9


# Settings -------------------------------------------------------------------------------------------------------------


def link(mtu: int, name: str = "eth2") -> str:
    return (
        "1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN mode DEFAULT group default qlen 1000\n"
        f"3: {name}: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu {mtu} qdisc mq state UP mode DEFAULT qlen 1000\n"
        "    link/ether 0c:42:a1:00:00:01 brd ff:ff:ff:ff:ff:ff\n"
        f"9: docker0: <NO-CARRIER,BROADCAST,MULTICAST,UP> mtu {mtu - 100} qdisc noqueue state DOWN mode DEFAULT\n"
    )


def test_another_mtu_on_a_training_interface_is_named(tmp_path: Path) -> None:
    files = roce() | {f"{node}/ip_link.txt": link(1500 if node == "gpu-04" else 9000) for node in NODES}
    found = told(tmp_path, files)
    assert (found.cause, found.subject) == ("net.mtu_mismatch", {"node": "gpu-04", "device": "eth2"})
    assert found.probability >= 0.9


def test_another_mtu_on_an_interface_that_nobody_uses_does_not_lead_surely(tmp_path: Path) -> None:
    files = {f"{node}/ip_link.txt": link(1500 if node == "gpu-04" else 9000, "eno1") for node in NODES}
    assert told(tmp_path, files).probability < 0.8


def begins(*says: str, per_node: int = 1) -> str:
    """The same lines of NCCL of every rank of all nodes, in one file."""
    return "".join(
        f"{node}:{4000 + rank}:{4300 + rank} [0] NCCL INFO {said}\n"
        for rank, node in enumerate(NODES * per_node)
        for said in (*says, f"comm 0x5f rank {rank} nRanks 4 nNodes 4 localRanks 1 localRank 0 MNNVL 0")
    )


def ping(peer: str, size: int, came: int, says: str = "") -> str:
    return (
        f"PING {peer} ({peer}) {size}({size + 28}) bytes of data.\n{says}"
        f"\n--- {peer} ping statistics ---\n3 packets transmitted, {came} received, {100 - came * 33}% packet loss\n"
    )


def test_large_pings_that_are_lost_while_small_ones_arrive_tell_of_a_smaller_mtu_between(tmp_path: Path) -> None:
    small, large = ping("10.0.0.4", 56, 3), ping("10.0.0.4", 8972, 0)
    found = told(tmp_path / "a", {"gpu-01/ping.txt": small + large})
    assert (found.cause, found.subject) == ("net.mtu_mismatch", {})
    assert found.probability >= 0.9
    assert told(tmp_path / "b", {"gpu-01/ping.txt": large}).probability < 0.8
    assert told(tmp_path / "c", {"gpu-01/ping.txt": small + ping("10.0.0.4", 8972, 3)}).cause == "unknown"
    router = ping("10.0.0.4", 8972, 0, "From 10.0.0.254 icmp_seq=1 Frag needed and DF set (mtu = 1500)\n")
    assert told(tmp_path / "d", {"gpu-01/ping.txt": router}).cause == "net.mtu_mismatch"


def test_a_node_that_refuses_the_size_that_others_send_is_named(tmp_path: Path) -> None:
    files = {f"{node}/ping.txt": ping("10.0.0.9", 8972, 3) for node in NODES}
    files["gpu-03/ping.txt"] = ping("10.0.0.9", 8972, 0, "ping: local error: message too long, mtu=1500\n")
    found = told(tmp_path, files)
    assert (found.cause, found.subject) == ("net.mtu_mismatch", {"node": "gpu-03"})


STUCK = (
    "State Recv-Q Send-Q Local Address:Port Peer Address:Port Process\n"
    "ESTAB 0      913404      10.0.0.1:41331     10.0.0.4:50112 timer:(on,11sec,7) cubic wscale:10,10 rto:25600 "
    "backoff:7 rtt:0.2/0.1 mss:{mss} pmtu:{mtu} cwnd:1 bytes_sent:72000 bytes_acked:2100 retrans:1/8 lost:8\n"
)
ALIVE = (
    "ESTAB 0      0      10.0.0.1:29500     10.0.0.4:50100 cubic rto:204 rtt:0.2/0.1 mss:8948 cwnd:10 bytes_acked:900\n"
)


def test_a_connection_that_sends_long_segments_in_vain_beside_one_that_lives_is_suspected(tmp_path: Path) -> None:
    jumbo = STUCK.format(mss=8948, mtu=9000)
    alive = told(tmp_path / "a", {"gpu-01/ss.txt": jumbo + ALIVE})
    assert alive.cause == "net.mtu_mismatch"
    dead = told(tmp_path / "b", {"gpu-01/ss.txt": jumbo})
    assert dead.share("net.mtu_mismatch") < 0.5 < alive.share("net.mtu_mismatch")
    lossy = jumbo.replace("backoff:7 ", "").replace("bytes_acked:2100", "bytes_acked:720001114163")
    assert told(tmp_path / "d", {"gpu-01/ss.txt": lossy + ALIVE}).cause == "unknown"
    assert told(tmp_path / "c", {"gpu-01/ss.txt": STUCK.format(mss=1448, mtu=1500) + ALIVE}).cause == "unknown"


NO_GDR = ("NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>", "Using network IB",
    "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'")  # fmt: skip
ROW = (
    "   536870912     134217728     float     sum      -1  90000.0    5.96   {}      0  90000.0    5.96   4.51      0\n"
)
BARE = (
    "Module                  Size  Used by\nnvidia              56717312  2\nib_uverbs             188416  3 mlx5_ib\n"
)


def test_no_direct_path_anywhere_and_no_module_for_it_is_gpudirect(tmp_path: Path) -> None:
    modules = {f"{node}/lsmod.txt": BARE for node in NODES}
    quick, crawling = ROW.format("44.71"), ROW.format("4.47")
    found = told(tmp_path / "a", modules | {"log.txt": begins(*NO_GDR) + crawling})
    assert (found.cause, found.subject) == ("ib.gpudirect_off", {})
    assert found.probability >= 0.9
    assert told(tmp_path / "b", modules | {"log.txt": begins(*NO_GDR) + quick}).probability < 0.8
    assert told(tmp_path / "c", {"log.txt": begins(*NO_GDR)}).cause == "unknown"
    small = crawling.replace("   536870912     134217728", "        2048           512")
    assert told(tmp_path / "d", {"log.txt": begins(*NO_GDR) + small}).cause == "unknown"
    assert told(tmp_path / "e", {"gpu-01/lsmod.txt": BARE, "log.txt": begins(*NO_GDR)}).cause == "unknown"


def test_sockets_beside_a_fabric_that_is_up_are_a_degraded_topology(tmp_path: Path) -> None:
    log = begins("NET/IB : No device found.", "NET/Socket : Using [0]eth0:10.0.0.1<0>", "Using network Socket")
    ports = {f"{node}/ibstat.txt": ibstat(**FINE) for node in NODES}
    found = told(tmp_path / "a", ports | {"log.txt": log})
    assert (found.cause, found.subject) == ("nccl.topology_degraded", {})
    assert found.probability >= 0.9
    slow = {
        name: text.replace("InfiniBand", "Ethernet").replace("Rate: 400", "Rate: 25") for name, text in ports.items()
    }
    assert told(tmp_path / "b", slow | {"log.txt": log}).cause == "unknown"
    assert told(tmp_path / "c", {"log.txt": log}).cause == "unknown"


REFUSED = (
    "gpu-02:4121:4300 [1] transport/net_ib.cc:850 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate "
    "memory\n"
    "gpu-02:4121:4300 [1] NCCL INFO transport/net_ib.cc:900 -> 2\n"
)
LIMITS = (
    "Limit                     Soft Limit           Hard Limit           Units     \n"
    "Max locked memory         {}              {}              bytes     \n"
)


def test_a_refused_registration_and_a_low_limit_of_the_rank_are_the_memlock_limit(tmp_path: Path) -> None:
    files = {"gpu-02/rank1.log": REFUSED, "gpu-02/limits.txt": "/proc/4121/limits\n" + LIMITS.format(8388608, 8388608)}
    files["gpu-01/limits.txt"] = LIMITS.format("unlimited", "unlimited")
    found = told(tmp_path, files)
    assert (found.cause, found.subject.get("node")) == ("ib.memlock_limit", "gpu-02")
    assert found.probability >= 0.9


def test_a_module_that_one_node_lacks_is_the_direct_path(tmp_path: Path) -> None:
    lack = "Module                  Size  Used by\nnvidia              56717312  2 nvidia_uvm\n"
    have = lack + "nvidia_peermem         16384  0\n"
    found = told(tmp_path, {f"{node}/lsmod.txt": lack if node == "gpu-03" else have for node in NODES})
    assert (found.cause, found.subject) == ("ib.gpudirect_off", {"node": "gpu-03"})
    assert found.probability < 0.9  # dma-buf does without it


NVRM = "NVRM version: NVIDIA UNIX {}Kernel Module{}  570.133.20  Release Build  (dvs-builder@U22)\n"


@pytest.mark.parametrize(
    ("kind", "kernel", "nccl", "accused"),
    [
        ("open", "6.8.0-60-generic", "2.21.5", False),
        ("closed", "6.8.0-60-generic", "2.21.5", True),
        ("open", "5.4.0-216-generic", "2.21.5", True),
        ("open", "6.8.0-60-generic", "2.12.10", True),
    ],
)
def test_a_node_whose_driver_has_dma_buf_needs_no_module(
    tmp_path: Path, kind: str, kernel: str, nccl: str, accused: bool
) -> None:
    lack = "Module                  Size  Used by\nnvidia              56717312  2 nvidia_uvm\n"
    files = {f"{node}/lsmod.txt": lack + "nvidia_peermem         16384  0\n" * (node != "gpu-03") for node in NODES}
    files["gpu-03/version"] = NVRM.format(*(("Open ", " for x86_64") if kind == "open" else ("x86_64 ", "")))
    files["gpu-03/proc-version.txt"] = f"Linux version {kernel} (buildd@lcy02) (gcc-13) #63-Ubuntu SMP\n"
    files["gpu-03/pip.txt"] = f"nvidia-nccl-cu12=={nccl}\ntorch==2.6.0\n"
    found = told(tmp_path, files)
    assert (found.share("ib.gpudirect_off") > 0.5) is accused, found.diagnosis.ranked[:3]
    if not accused:
        log = begins(*NO_GDR)
        off = told(tmp_path / "off", {**files, "gpu-03/log.txt": log})
        assert off.share("ib.gpudirect_off") > found.share("ib.gpudirect_off"), "NCCL itself says that it is off"


def test_a_filter_that_drops_the_port_of_the_store_is_named(tmp_path: Path) -> None:
    rules = (
        "Chain INPUT (policy ACCEPT 1209 packets, 80K bytes)\n"
        " pkts bytes target     prot opt in     out     source               destination\n"
        "  912 54720 DROP       tcp  --  *      *       0.0.0.0/0            0.0.0.0/0            tcp dpt:29500\n"
    )
    log = (
        "[rank3]:[W1130 01:10:00.000000000 socket.cpp:752] [c10d] The client socket has timed out after 600000ms while "
        "trying to connect to (gpu-01, 29500).\n"
        "[rank3]: torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to "
        "connect to (gpu-01, 29500).\n"
    )
    found = told(tmp_path, {"gpu-01/iptables.txt": rules, "gpu-02/rank3.log": log})
    assert (found.cause, found.subject) == ("net.bootstrap_blocked", {"node": "gpu-01"})


@pytest.mark.parametrize(
    "line", ["mlx5_core 0000:1a:00.0: poll_health:840:(pid 0): device's health compromised - reached miss count"]
)
def test_a_driver_that_gives_its_adapter_up_explains_the_port_that_is_down(tmp_path: Path, line: str) -> None:
    files = {f"{node}/ibstat.txt": ibstat(**FINE) for node in NODES}
    files["gpu-03/ibstat.txt"] = ibstat(**(FINE | {"mlx5_2": "Down Disabled 40"}))
    files["gpu-03/dmesg.txt"] = f"2026-11-30T01:10:00,000000+00:00 {line}\n"
    found = told(tmp_path, files)
    assert (found.cause, found.subject["node"]) == ("ib.hca_fault", "gpu-03")
    assert found.probability >= 0.9


# One file for many ---------------------------------------------------------------------------------------------------


def test_one_file_of_many_commands_is_taken_apart_and_its_two_looks_are_compared(tmp_path: Path) -> None:
    files = {}
    for node in NODES:
        lost = 90_000 if node == "gpu-03" else 0
        files[f"{node}.txt"] = (
            f"root@{node}:~# rdma link\nlink mlx5_0/1 state ACTIVE physical_state LINK_UP netdev eth2 \n"
            f"root@{node}:~# date\nMon Nov 30 01:10:00 UTC 2026\n"
            f"root@{node}:~# ethtool -S eth2\n{ethtool('eth2', rx_discards_phy=0)}"
            f"root@{node}:~# date\nMon Nov 30 01:11:00 UTC 2026\n"
            f"root@{node}:~# ethtool -S eth2\n{ethtool('eth2', rx_discards_phy=lost)}"
            f"root@{node}:~# mlnx_qos -i eth2\n{qos(*([] if lost else [3]))}"
        )
    found = told(tmp_path, files)
    assert (found.cause, found.subject["node"]) == ("ib.lossless_misconfigured", "gpu-03")
    assert "in 60 s" in " ".join(one.says for one in found.diagnosis.verdict.hypothesis.because)


def test_lines_of_pdsh_are_given_to_their_nodes(tmp_path: Path) -> None:
    lines = []
    for node in NODES:
        text = ibstat(**(FINE | {"mlx5_2": "Down Polling 40"} if node == "gpu-03" else FINE))
        lines += [f"{node}: {line}" for line in text.splitlines()]
    found = told(tmp_path, {"ibstat.txt": "\n".join(lines) + "\n"})
    assert (found.cause, found.subject["node"], found.subject["hca"]) == ("ib.link_down", "gpu-03", "mlx5_2")


def test_a_file_that_names_its_node_needs_no_folder(tmp_path: Path) -> None:
    files = {f"ibstat_{node}.txt": ibstat(**FINE) for node in NODES}
    files["ibstat_gpu-03.txt"] = ibstat(**(FINE | {"mlx5_2": "Down Polling 40"}))
    assert told(tmp_path, files).subject["node"] == "gpu-03"


def test_lines_of_nccl_are_not_taken_for_those_of_pdsh(tmp_path: Path) -> None:
    found = told(tmp_path, {"rank1.log": REFUSED * 3})
    assert any("gpu-02:4121:4300" in one.says for one in found.diagnosis.verdict.hypothesis.because)


def test_a_queue_pair_refused_for_want_of_memory_leaves_two_causes_open(tmp_path: Path) -> None:
    line = (
        "gpu-02:4121:4300 [1] misc/ibvwrap.cc:252 NCCL WARN Call to ibv_create_qp failed with error "
        + "Cannot allocate memory\n"
    )
    found = told(tmp_path, {"gpu-02/rank1.log": line})
    assert found.share("ib.qp_exhausted") > 0.3
    assert found.share("ib.memlock_limit") > 0.1
    assert found.probability < 0.8


@pytest.mark.parametrize("where", ["gpu-02/ulimit-l.txt", "gpu-02/rank1.log"])
def test_what_is_refused_under_a_low_limit_of_locked_memory_is_that_limit(tmp_path: Path, where: str) -> None:
    """`ulimit -l` alone prints KiB; a job's script often prints `ulimit -a` at the top of the same log."""
    line = "gpu-02:4121:4300 [1] misc/ibvwrap.cc:252 NCCL WARN Call to ibv_create_qp failed with error "
    files = {"gpu-02/rank1.log": line + "Cannot allocate memory\n"}
    told_ = "max locked memory       (kbytes, -l) 64\n" if where in files else "64\n"
    found = told(tmp_path, files | {where: told_ + files.get(where, "")})
    assert (found.cause, found.subject) == ("ib.memlock_limit", {"node": "gpu-02"})
    assert found.share("ib.qp_exhausted") < 0.05


def test_a_completion_queue_locks_pages_first(tmp_path: Path) -> None:
    line = "gpu-02:4121:4300 [1] misc/ibvwrap.cc:252 NCCL WARN Call to ibv_create_cq failed with error "
    assert told(tmp_path, {"gpu-02/rank1.log": line + "Cannot allocate memory\n"}).cause == "ib.memlock_limit"


NO_PAIR = "gpu-02:4121:4300 [1] misc/ibvwrap.cc:252 NCCL WARN Call to ibv_create_qp failed with error {}\n"
DEVINFO = "hca_id:\tmlx5_2\n\ttransport:\t\t\tInfiniBand (0)\n\tmax_qp:\t\t\t\t{}\n"
USED = "1: mlx5_2: pd 12 cq 480 qp {} cm_id 0 mr 410 ctx 9 srq 2\n"


@pytest.mark.parametrize(
    ("error", "more", "cause", "least"),
    [
        ("Resource temporarily unavailable", {}, "ib.qp_exhausted", 0.9),
        ("Cannot allocate memory", {"gpu-02/limits.txt": LIMITS.format(65536, 65536)}, "ib.memlock_limit", 0.9),
        (
            "Cannot allocate memory",
            {"gpu-02/limits.txt": LIMITS.format("unlimited", "unlimited")},
            "ib.qp_exhausted",
            0.9,
        ),
        (
            "Cannot allocate memory",
            {"gpu-02/ibv_devinfo.txt": DEVINFO.format(131072), "gpu-02/rdma.txt": USED.format(131070)},
            "ib.qp_exhausted",
            0.9,
        ),
        ("Cannot allocate memory", {"gpu-02/job.sh.out": "ulimit -l: 64\n" * 2}, "ib.memlock_limit", 0.8),
    ],
)
def test_what_the_rank_may_lock_and_what_the_adapter_has_left_tell_why_a_queue_pair_was_refused(
    tmp_path: Path, error: str, more: dict[str, str], cause: str, least: float
) -> None:
    found = told(tmp_path, {"gpu-02/rank1.log": NO_PAIR.format(error), **more})
    full = {"hca": "mlx5_2"} if "gpu-02/rdma.txt" in more else {}
    assert (found.cause, found.subject) == (cause, {"node": "gpu-02", **full})
    assert found.probability >= least


def test_a_table_of_queue_pairs_with_room_left_accuses_nobody(tmp_path: Path) -> None:
    files = {"gpu-02/ibv_devinfo.txt": DEVINFO.format(131072), "gpu-02/rdma.txt": USED.format(60000)}
    assert told(tmp_path, files).cause == "unknown"


def test_an_adapter_that_all_other_nodes_have_is_missed(tmp_path: Path) -> None:
    files = {f"{node}/ibstat.txt": ibstat(**FINE) for node in NODES}
    files["gpu-02/ibstat.txt"] = ibstat(**{hca: told_ for hca, told_ in FINE.items() if hca != "mlx5_3"})
    found = told(tmp_path, files)
    assert (found.cause, found.subject) == ("ib.link_down", {"node": "gpu-02", "hca": "mlx5_3"})


def test_a_port_error_that_nccl_saw_and_a_port_that_is_up_again_is_a_flapping_link(tmp_path: Path) -> None:
    line = "gpu-02:4121:4300 [1] transport/net_ib.cc:123 NCCL WARN NET/IB : mlx5_1:1 Got async event : port error\n"
    files = {f"{node}/ibstat.txt": ibstat(**FINE) for node in NODES} | {"gpu-02/rank1.log": line}
    found = told(tmp_path, files)
    assert (found.cause, found.subject["node"], found.subject["hca"]) == ("ib.link_flapping", "gpu-02", "mlx5_1")


def test_a_port_error_without_a_port_to_look_at_is_not_settled(tmp_path: Path) -> None:
    line = "gpu-02:4121:4300 [1] transport/net_ib.cc:123 NCCL WARN NET/IB : mlx5_1:1 Got async event : port error\n"
    found = told(tmp_path, {"gpu-02/rank1.log": line})
    assert found.share("ib.link_down") > 0.5
    assert found.probability < 0.85


def test_a_port_error_of_a_port_that_is_active_again_is_a_flap(tmp_path: Path) -> None:
    line = "gpu-02:4121:4300 [1] transport/net_ib.cc:123 NCCL WARN NET/IB : mlx5_1:1 Got async event : port error\n"
    found = told(tmp_path, {"gpu-02/rank1.log": line, "gpu-02/ibstat.txt": ibstat(**FINE)})
    assert (found.cause, found.subject) == ("ib.link_flapping", {"node": "gpu-02", "hca": "mlx5_1", "port": 1})


PERFQUERY = (
    "# Port extended counters: Lid {lid} port {port} (CapMask: 0x5A00 CapMask2: 0x0000002)\n"
    "PortSelect:......................{port}\nPortXmitData:....................{data}\n"
    "PortXmitWait:....................{wait}\n"
)


@pytest.mark.parametrize("names", ["pq-20260527T1300{}Z.txt", "pq.17798880{}.txt", "2026-05-27_13-00-{}/perfquery.txt"])
def test_times_in_the_names_of_files_make_rates_of_counters(tmp_path: Path, names: str) -> None:
    """Two uplinks of a leaf whose rate nobody told: 400 Gb/s like the adapters, 50e9 bytes a second, 8 a tick."""
    files = {f"{node}/ibstat.txt": ibstat(**FINE) for node in NODES}
    for seconds, ticks in (("00", 0), ("20", int(0.6 * 20 * 50e9 / 8))):
        files[names.format(seconds)] = "".join(
            PERFQUERY.format(lid=900, port=port, data=10**9, wait=10**10 + ticks) for port in (33, 34)
        )
    found = told(tmp_path, files)
    assert found.cause == "ib.congestion"
    assert found.probability >= 0.8
    assert "60 % of the time" in found.diagnosis.verdict.hypothesis.because[0].says


def test_a_rail_that_is_slower_on_every_node_is_built_so(tmp_path: Path) -> None:
    slow = ibstat(**(FINE | {"mlx5_3": "Active LinkUp 200"}))
    assert told(tmp_path, {f"{node}/ibstat.txt": slow for node in NODES}).share("ib.link_degraded") == 0
