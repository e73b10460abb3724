"""What people wrote down of networks from memory or with words of their own around it: it is read, and as whose."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.intake.pasted import parts_of
from probes.intake.tools import counters_in_text, mlxlink, perfquery
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
