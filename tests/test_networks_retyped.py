"""What people wrote down of networks from memory or with words of their own around it: it is read, and as whose."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.intake.documents import quoted_in
from probes.intake.node_values import by_values
from probes.intake.pasted import parts_of
from probes.intake.tools.host import devlink_health
from probes.intake.tools.network import counters_in_text, fabric_events, mlxlink, perfquery, ping, reach, sockets
from tests.support.brought import told

# Whose it is ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("heading", [
    "## h7 mlx5_3", "# h7 mlx5_3", "--- h7: mlx5_3 ---", "h7 mlx5_3, once more at 08:20", "== h7/mlx5_3 port 1 ==",
    "h7 mlx5_3 (only counters):",
])  # fmt: skip
def test_a_heading_of_a_node_and_its_adapter_says_whose_the_rows_below_are(heading: str) -> None:
    parts = parts_of(f"{heading}\nSymbol Errors     : 5\nSymbol BER        : 2E-9\n")
    assert [(part.nodes, part.label) for part in parts] == [(("h7",), "mlx5_3")]


def test_rows_that_only_list_nodes_and_adapters_are_no_headings() -> None:
    assert parts_of("h7 mlx5_3\nh7 mlx5_4\nh8 mlx5_3\n") == []


def test_two_marks_before_a_node_and_its_command_in_brackets_are_a_heading() -> None:
    text = "== q1 (srun -w q1 env | grep NCCL)\nNCCL_DEBUG=INFO\n== q2 (srun -w q2 env | grep NCCL)\nNCCL_PROTO=LL\n"
    assert [part.nodes for part in parts_of(text)] == [("q1",), ("q2",)]


def test_a_prompt_with_the_host_and_the_folder_alone_in_its_brackets_is_one() -> None:
    parts = parts_of("[vx-3 ~]$ ibstat\nCA 'mlx5_0'\n[vx-3 ckpt]$ ulimit -l\n64\n")
    assert [(part.nodes, part.label) for part in parts] == [(("vx-3",), "ibstat"), (("vx-3",), "ulimit_-l")]


def test_a_node_and_its_adapter_with_a_colon_between_them_are_both_read() -> None:
    text = "b4:mlx5_1:symbol_error 65535\nb4:mlx5_1:port_rcv_errors 20911\nb5:mlx5_1:port_rcv_errors 0\n"
    found = [(one.node, one.name, one.counters.get("port_rcv_errors")) for one in counters_in_text.read(text).sets]
    assert found == [("b4", "mlx5_1", 20911), ("b5", "mlx5_1", 0)]


# perfquery and mlxlink ------------------------------------------------------------------------------------------------

QUERY = (
    "Port extended counters: Lid {lid} port {port} (CapMask: 0x5300)\n"
    "PortSelect:......{port}\nPortXmitWait:......{wait}\n"
)


def test_perfquery_with_a_word_on_whose_port_it_is() -> None:
    ports = (("leaf-b uplink ", 65), ("k2 mlx5_0 ", 1), ("", 3))
    text = "".join(f"# {whose}" + QUERY.format(lid=9, port=port, wait=port) for whose, port in ports)
    found = [(one.kind, one.node, one.name, one.port) for one in perfquery.read(text).sets]
    assert found == [("switch", "", "leaf-b", 65), ("hca", "k2", "mlx5_0", 1), ("lid", "", "9", 3)]


def test_rows_that_were_cut_out_of_mlxlink_are_its_output_and_other_rows_are_not() -> None:
    assert mlxlink.fits("Symbol Errors      : 931877\nEffective Physical BER : 4E-9\n", "again.txt")
    assert not mlxlink.fits("Temperature [C] : 51\nSpeed : 400G\n", "x.txt")


def port(wait: int, sent: int, name: str) -> str:
    return (
        f"# {name} Port extended counters: Lid 7 port 1 (CapMask: 0x5300)\n"
        f"PortXmitData:.......{sent}\nPortXmitWait:........{wait}\n"
    )


def looks(folder: Path, waited: int, sent: int) -> dict[str, str]:
    """Two looks at four adapters, without a time. PortXmitData counts 4 bytes, PortXmitWait 8."""
    names = [f"k{n} mlx5_0" for n in range(1, 5)]
    return {
        "pq_before.txt": "".join(port(10**12, 10**13, name) for name in names),
        "pq_after.txt": "".join(port(10**12 + waited, 10**13 + sent, name) for name in names),
    }


def test_ports_that_wait_longer_than_they_send_are_full_though_no_time_is_told(tmp_path: Path) -> None:
    full = told(tmp_path / "a", looks(tmp_path, waited=4 * 10**10, sent=2 * 10**10))
    assert full.cause == "ib.congestion" and full.probability < 0.8


def test_ports_that_wait_for_a_small_part_of_what_they_send_are_not(tmp_path: Path) -> None:
    assert told(tmp_path / "b", looks(tmp_path, waited=2 * 10**10, sent=10**12)).cause == "unknown"


# Quantities of nodes in tables and lists of somebody's own ------------------------------------------------------------


def made(text: str, name: str = "x") -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for node, label, what in by_values(text, name):
        found.setdefault(label, {})[node] = what.split("\n")[-2].strip()
    return found


def test_a_column_is_what_its_head_says_it_is() -> None:
    table = "| node | rdma0 mtu | memlock |\n|---|---|---|\n| hz1 | 9000 | unlimited |\n| hz2 | 1500 | 64 |\n"
    assert made(table) == {
        "ip_link": {"hz1": "1: rdma0: <UP,LOWER_UP> mtu 9000", "hz2": "1: rdma0: <UP,LOWER_UP> mtu 1500"},
        "ulimit_-l": {"hz1": "unlimited", "hz2": "64"},
    }


@pytest.mark.parametrize(("text", "label", "of_second"), [
    ("active IB ports per node\nhz1: 8/8\nhz2: 7/8\n", "ibstat_grep_-c_Active", "7"),
    ("coll channels per node\nhz1 16\nhz2 2\n", "nccl.log",
        "hz2:1:1 [0] NCCL INFO 2 coll channels, 0 collnet channels, 0 nvls channels, 2 p2p channels"),
    ("hz1: nvidia_peermem 16384 0\nhz2: nvidia_peermem (not loaded)\n", "lsmod", "ib_uverbs 172032 10"),
    ("peermem loaded?\nhz1: yes\nhz2: no\n", "lsmod", "ib_uverbs 172032 10"),
    ("NCCL bootstrap interface\nhz1 bond0 10.2.0.1\nhz2 docker0 172.17.0.1\n", "nccl.log",
        "hz2:1:1 [0] NCCL INFO Bootstrap : Using docker0:172.17.0.1<0>"),
    ("hz1: NCCL_PROTO unset, NCCL_ALGO=Ring\nhz2: NCCL_PROTO=LL, NCCL_ALGO=Ring\n", "env", "NCCL_ALGO=Ring"),
    ("link flaps, last hour\nhz1 0\nhz2 17\n", "link_downs", "link_downed +17 in 3600 s"),
])  # fmt: skip
def test_a_list_is_of_what_stands_above_it_or_in_its_rows(text: str, label: str, of_second: str) -> None:
    assert made(text).get(label, {}).get("hz2", "") == of_second


@pytest.mark.parametrize("text", [
    "loss per node\nhz1 2.31\nhz2 2.30\n", "link flaps since boot\nhz1 2\nhz2 3\n", "one node\nhz1 mtu 9000\n",
    "We set the mtu on all nodes.\nThen it ran.\nhz1 was slow, hz2 was not.\n", "",
])  # fmt: skip
def test_other_lists_and_prose_tell_no_quantity(text: str) -> None:
    assert by_values(text, "x") == []


def test_a_table_in_a_document_is_read_and_its_sentences_are_not(tmp_path: Path) -> None:
    table = "| node | rdma0 mtu |\n|---|---|\n| hz1 | 9000 |\n| hz2 | 1500 |\n| hz3 | 9000 |\n| hz4 | 9000 |\n"
    one = told(tmp_path / "a", {"mtu.md": f"# MTU\nI think that hz4 is broken.\n\n{table}"})
    assert (one.cause, one.subject.get("node")) == ("net.mtu_mismatch", "hz2")
    assert told(tmp_path / "b", {"mtu.md": "# MTU\nThe mtu of hz2 is 1500, of all others 9000.\n"}).cause == "unknown"


def test_blocks_of_a_document_are_told_with_what_stands_above_them() -> None:
    text = "# Look\non hz1:\n```\n$ uname\nLinux\n```\nno more\n| a | b |\n|--|--|\n| 1 | 2 |\nend\n"
    assert quoted_in(text) == [("on hz1", "$ uname\nLinux\n"), ("no more", "| a | b |\n| 1 | 2 |\n")]


# Tools that were asked for less, or retyped ---------------------------------------------------------------------------


def test_sockets_of_the_state_that_was_asked_for_have_it(tmp_path: Path) -> None:
    rows = "Recv-Q Send-Q Local Address:Port Peer Address:Port\n0 1 10.0.0.1:51122 10.0.0.6:45211\n"
    assert sockets.fits(rows, "ss_-tn_state_syn-sent")
    facts = sockets.TOOL.named(sockets.read(rows), "hz1/ss_-tn_state_syn-sent")
    assert [(one.state, one.peer) for one in facts.sockets] == [("SYN-SENT", "10.0.0.6:45211")]


def test_a_table_of_ports_tells_which_of_them_did_not_answer() -> None:
    facts = reach.read("hz2 29500 open 50000 open\nhz4 29500 open 50000 filtered\n")
    assert [(one.peer, one.port, one.why) for one in facts.reaches if one.why] == [("hz4", 50000, "timed out")]
    assert not reach.fits("Dec 02 23:14:55 nodeB kernel: a 45 closed\nDec 02 23:14:56 nodeB kernel: b 45 closed\n", "k")


def test_a_table_of_large_pings_tells_who_gets_none() -> None:
    facts = ping.read("ping -M do -s 8972\nhz1->hz2 ok\nhz1->hz3 FAIL\n")
    assert [(one.source, one.peer, one.size, one.received) for one in facts.pings] == [
        ("hz1", "hz2", 9000, 10), ("hz1", "hz3", 9000, 0),
    ]  # fmt: skip


def test_only_a_firmware_reporter_that_is_in_error_now_is_a_fault_of_the_adapter() -> None:
    text = "pci/0000:9a:00.0:\n  reporter fw\n    state healthy error 3 recover 3\n  reporter fw_fatal\n    state {}\n"
    bad = devlink_health.read(text.format("error error 1 recover 0"))
    assert [(one.device, one.what) for one in bad.hca_notices] == [("0000:9a:00.0", "health")]
    assert devlink_health.read(text.format("healthy error 0 recover 0")).hca_notices == ()


def test_a_lost_switch_is_known_however_its_event_was_retyped() -> None:
    rows = (
        "03:02:11 Switch leaf07 (b8:ce:f6:00): Node is down / unreachable\nLink is down: leaf07 port 2 <-> hz2 mlx5_2\n"
    )
    found = [(one.what, one.ends[0].called, one.ends[-1].switch) for one in fabric_events.read(rows).events]
    assert [(what, switch) for what, _, switch in found] == [("gone", "leaf07"), ("down", "leaf07")]


def test_the_same_link_of_many_nodes_that_goes_at_once_is_their_switch_and_at_boot_it_is_not(tmp_path: Path) -> None:
    lost = "[Mon Nov 30 03:02:1{} 2026] mlx5_core 0000:3b:00.0 ibs2: Link down\n"
    late = told(tmp_path / "a", {f"hz{n}/dmesg.txt": lost.format(n) for n in range(1, 6)})
    assert late.cause == "ib.switch_down"
    boot = {f"hz{n}/dmesg.txt": f"[    9.20{n}] mlx5_core 0000:3b:00.0 ibs2: Link down\n" for n in range(1, 6)}
    assert told(tmp_path / "b", boot).cause == "unknown"


def test_a_kernel_that_refuses_peermem_turns_gpudirect_off(tmp_path: Path) -> None:
    refused = (
        "[Mon Nov 30 03:02:11 2026] nvidia_peermem: disagrees about version of symbol ib_register_peer_memory_client\n"
    )
    one = told(tmp_path, {"hz1/dmesg.txt": refused})
    assert (one.cause, one.subject.get("node")) == ("ib.gpudirect_off", "hz1") and one.probability < 0.8


def test_columns_before_and_after_are_looks_at_the_counter_above_them() -> None:
    text = "port_rcv_errors\nnode hca before after\nhz7 mlx5_0 110 48210\nhz8 mlx5_0 0 0\n"
    found = [(one.node, one.counters) for one in counters_in_text.read(text).sets if one.node == "hz7"]
    assert found == [("hz7", {"port_rcv_errors": 110}), ("hz7", {"port_rcv_errors": 48210})]


def test_columns_that_are_headed_by_times_are_so_long_apart() -> None:
    text = "node hca carrier_changes(10:00) carrier_changes(10:10)\nhz4 mlx5_0 19 61\nhz5 mlx5_0 2 2\n"
    one, two = [look for look in counters_in_text.read(text).sets if look.node == "hz4"]
    assert (one.counters, two.counters) == ({"carrier_changes": 19}, {"carrier_changes": 61})
    assert one.at is not None and two.at is not None and two.at - one.at == 600


def test_an_object_a_line_tells_the_states_of_the_ports_of_its_node(tmp_path: Path) -> None:
    row = '{{"host": "hz{}", "hca": "mlx5_{}", "state": "{}", "phys_state": "{}"}}\n'
    bad = (7, 3)
    rows = [
        row.format(node, hca, *(("DOWN", "Polling") if (node, hca) == bad else ("ACTIVE", "LinkUp")))
        for node in (5, 6, 7) for hca in range(4)
    ]  # fmt: skip
    one = told(tmp_path, {"ports.jsonl": "".join(rows)})
    assert (one.cause, one.subject.get("node"), one.subject.get("hca")) == ("ib.link_down", "hz7", "mlx5_3")


def test_a_line_of_nccl_with_only_its_host_before_it_is_that_hosts(tmp_path: Path) -> None:
    text = "".join(f"hz{n}: NCCL INFO GPU Direct RDMA {'Disabled' if n == 3 else 'Enabled'} for HCA 0 'mlx5_0'\n"
        for n in range(1, 5))  # fmt: skip
    assert told(tmp_path, {"job.log": f"all of it\n{text}"}).subject.get("node") == "hz3"


def test_rows_below_a_counters_name_are_of_that_counter() -> None:
    text = "tx_prio3_pause_duration delta over 10 s (us)\nhz1 rdma0 0\nhz2 rdma0 6100000\n"
    found = [(one.node, one.name, one.counters) for one in counters_in_text.read(text).sets]
    assert ("hz2", "rdma0", {"tx_prio3_pause_duration": 6_100_000}) in found


def test_a_table_with_a_column_for_each_port_tells_which_did_not_answer() -> None:
    facts = reach.read("to | 29500 | 45000\nhz2 | open | open\nhz3 | open | timeout\n")
    assert [(one.peer, one.port, one.why) for one in facts.reaches if one.why] == [("hz3", 45000, "timed out")]
