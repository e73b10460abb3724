"""Tests between pairs of nodes, counts of carriers and rates of bit errors, in tables as people make them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.brought import told

PAIRS = ((1, 2), (1, 4), (2, 4), (1, 3), (2, 3), (3, 4))


def reached(a: int, b: int, slow: int = 3) -> float:
    return 96.1 if slow in (a, b) else 391.5


@pytest.mark.parametrize("line", [
    "kd{a:02d} kd{b:02d} {bw}\n",
    "kd{a:02d}-kd{b:02d}: {bw} Gb/s\n",
    "| kd{a:02d} | kd{b:02d} | {bw} |\n",
    "kd{a:02d} -> kd{b:02d}  busbw {bw}\n",
])  # fmt: skip
def test_the_one_that_is_in_every_slow_pair_is_named(tmp_path: Path, line: str) -> None:
    text = "ib_write_bw between pairs, BW average\n" + "".join(
        line.format(a=a, b=b, bw=reached(a, b)) for a, b in PAIRS
    )
    found = told(tmp_path, {"pairs.txt": text})
    assert (found.cause, found.subject) == ("ib.link_degraded", {"node": "kd03"})
    assert found.probability < 0.8  # what slows it down is not told


def test_outputs_of_perftest_are_of_the_two_in_their_files_names(tmp_path: Path) -> None:
    row = (
        " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
        " 65536      5000             {0:.2f}            {0:.2f}             0.18\n"
    )
    found = told(tmp_path, {f"bw_kd{a}_to_kd{b}.txt": row.format(reached(a, b)) for a, b in PAIRS})
    assert (found.cause, found.subject) == ("ib.link_degraded", {"node": "kd3"})


@pytest.mark.parametrize("slow", [0, 9])
def test_pairs_that_are_all_alike_name_nobody(tmp_path: Path, slow: int) -> None:
    text = "BW\n" + "".join(f"kd{a} kd{b} {reached(a, b, slow)}\n" for a, b in PAIRS)
    assert told(tmp_path, {"pairs.txt": text}).cause in ("unknown", "none")


def test_slow_pairs_without_a_common_end_name_nobody(tmp_path: Path) -> None:
    text = "BW\n" + "".join(f"kd{a} kd{b} {96 if (a, b) in ((1, 2), (3, 4)) else 391}\n" for a, b in PAIRS)
    assert told(tmp_path, {"pairs.txt": text}).cause in ("unknown", "none")


def test_a_carrier_that_changed_again_and_again_between_two_looks(tmp_path: Path) -> None:
    looks = "".join(
        f"### {clock}\n" + "".join(f"kd{n} eth2 carrier_changes {count if n == 3 else 2}\n" for n in range(1, 5))
        for clock, count in (("10:00:00", 12), ("10:20:00", 28))
    )
    found = told(tmp_path, {"carrier.txt": looks})
    assert (found.cause, found.subject) == ("ib.link_flapping", {"node": "kd3", "hca": "eth2", "port": 1})
    assert any("8 times" in reason.says for reason in found.diagnosis.verdict.hypothesis.because)


def test_rates_of_bit_errors_in_a_table(tmp_path: Path) -> None:
    rows = "".join(
        f"kd{n:02d}  mlx5_{m}  {'6E-9' if (n, m) == (2, 1) else '15E-255'}  1E-8\n" for n in range(1, 5) for m in (0, 1)
    )
    found = told(tmp_path, {"ber.txt": "host   dev     eff_BER     raw_BER\n" + rows})
    assert (found.cause, found.subject) == ("ib.link_degraded", {"node": "kd02", "hca": "mlx5_1", "port": 1})


def test_other_drivers_say_that_a_link_goes_down_and_comes_back(tmp_path: Path) -> None:
    """bnxt_en (bnxt.c, bnxt_report_link) and ice (ice_main.c, ice_print_link_msg)."""
    line = "[Mon May  4 10:0{}:{}1 2026] bnxt_en 0000:21:00.0 eth2: NIC Link is {}\n"
    log = "".join(line.format(n, 0, "Down") + line.format(n, 2, "Up, 200000 Mbps full duplex") for n in range(4))
    up = line.format(0, 0, "Up, 200000 Mbps full duplex").replace("10:0", "09:0")
    found = told(tmp_path, {"gpu-04/dmesg.txt": up + log})
    assert (found.cause, found.subject) == ("ib.link_flapping", {"node": "gpu-04", "hca": "eth2", "port": 1})


def test_headings_with_a_short_name_and_a_command(tmp_path: Path) -> None:
    block = (
        "===== kd{} mlxlink -d mlx5_{} -c =====\n\nPhysical Counters and BER Info\n------------------------------\n"
        "Effective Physical BER             : {}\nSymbol BER                         : 15E-255\n"
    )
    text = "".join(block.format(n, m, "6E-9" if (n, m) == (2, 1) else "15E-255") for n in (1, 2, 3) for m in (0, 1))
    found = told(tmp_path, {"mlxlink.txt": text})
    assert (found.cause, found.subject) == ("ib.link_degraded", {"node": "kd2", "hca": "mlx5_1", "port": 1})


def states() -> list[dict[str, object]]:
    return [
        {"node": f"kd{n}", "hca": f"mlx5_{m}", "state": "DOWN" if (n, m) == (2, 1) else "ACTIVE",
         "phys_state": "Polling" if (n, m) == (2, 1) else "LinkUp"}
        for n in range(1, 5) for m in range(2)
    ]  # fmt: skip


def test_states_of_ports_as_rows_of_json_and_of_csv(tmp_path: Path) -> None:
    rows = states()
    table = "\n".join(",".join(map(str, row.values())) for row in [dict(zip(rows[0], rows[0], strict=True)), *rows])
    for name, text in (("ports.json", json.dumps(rows)), ("ports.csv", table + "\n")):
        found = told(tmp_path / name, {name: text})
        assert (found.cause, found.subject) == ("ib.link_down", {"node": "kd2", "hca": "mlx5_1", "port": 1})


def test_states_of_ports_as_node_exporter_tells_them(tmp_path: Path) -> None:
    line = 'node_infiniband_{}{{device="mlx5_{}",port="1",instance="kd{}:9100"}} {}\n'
    text = "".join(
        line.format("state_id", m, n, 1 if (n, m) == (2, 1) else 4)
        + line.format("physical_state_id", m, n, 2 if (n, m) == (2, 1) else 5)
        for n in range(1, 5) for m in range(2)
    )  # fmt: skip
    found = told(tmp_path, {"metrics.txt": text})
    assert (found.cause, found.subject) == ("ib.link_down", {"node": "kd2", "hca": "mlx5_1", "port": 1})


def test_a_table_of_other_things_stays_no_evidence(tmp_path: Path) -> None:
    found = told(tmp_path, {"sales.csv": "node,price\nkd1,3\nkd2,4\n", "x.json": '[{"node": "kd1", "colour": "red"}]'})
    assert len(found.unread) == 2


@pytest.mark.parametrize(("count", "cause"), [(90_000_000, "ib.congestion"), (9_000, "unknown")])
def test_very_many_notifications_of_congestion_are_congestion(tmp_path: Path, count: int, cause: str) -> None:
    text = "".join(
        f"kd{n} {clock} mlx5_0 np_cnp_sent {rise} rp_cnp_handled {rise} out_of_sequence 0\n"
        for clock, rise in (("10:00:00", 0), ("10:01:00", count)) for n in range(1, 5)
    )  # fmt: skip
    found = told(tmp_path, {"cnp.txt": text})
    assert found.cause == cause
    assert found.share("ib.congestion") < 0.8


def test_a_manager_that_tells_of_congestion_again_and_again(tmp_path: Path) -> None:
    line = (
        "2026-05-04 10:0{}:01.101 [9] [134] MINOR [Hardware] IBPort [default / Switch: leaf-{} / 11] [dev_id: 9c]: "
        "Congested Bandwidth (%) Threshold Reached, normalized XmitWait 68 threshold 10\n"
    )
    often = told(tmp_path / "a", {"event.log": "".join(line.format(i, m) for i in range(3) for m in range(3))})
    assert often.cause == "ib.congestion"
    assert often.probability < 0.8
    assert told(tmp_path / "b", {"event.log": line.format(0, 1)}).cause in ("unknown", "none")
