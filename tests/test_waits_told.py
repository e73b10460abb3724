"""Ports that wait to send, where notes around the counters tell the times and the speed; counters of other origins."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.diagnosis.looks import order_of
from probes.intake.tools.network._counter_sets import rate_in
from tests.support.brought import told

BLOCK = (
    "# Port extended counters: Lid {lid} port 1 (CapMask: 0x5300 CapMask2: 0x0000002)\n"
    "PortSelect:......................1\n"
    "PortXmitData:....................{sent}\nPortXmitWait:....................{wait}\n"
)
TICKS = 1_562_500_000  # of 8 bytes in a second of EDR: 100 Gb/s


def look(head: str, seconds: int, part: float) -> str:
    blocks = "".join(
        BLOCK.format(lid=lid, sent=10**12 + seconds * 10**9, wait=10**11 + int(seconds * TICKS * part))
        for lid in range(7, 13)
    )
    return f"{head}\n{blocks}"


@pytest.mark.parametrize("names", [("w_t0.txt", "w_t0+20s.txt"), ("perf.1.txt", "perf.2.txt")])
def test_the_time_and_speed_in_a_remark_count(tmp_path: Path, names: tuple[str, str]) -> None:
    files = {
        names[0]: look("# Tue Mar  3 10:00:00 UTC 2026, EDR 4X, all hosts of leaf-3", 0, 0.6),
        names[1]: look("# Tue Mar  3 10:00:20 UTC 2026, same ports", 20, 0.6),
    }
    found = told(tmp_path, files)
    assert found.cause == "ib.congestion" and "60 %" in found.says
    calm = dict(zip(files, (look("# EDR", 0, 0.0), look("# EDR", 20, 0.001)), strict=True))
    assert told(tmp_path / "calm", calm).share("ib.congestion") == 0


def test_without_a_speed_it_counts_what_ports_waited_beside_what_they_sent(tmp_path: Path) -> None:
    """0.6 of EDR is 7 % of the fastest port: by itself no judgement."""
    dates = ("# Tue Mar  3 10:00:00 UTC 2026", "# Tue Mar  3 10:00:20 UTC 2026")
    files = {f"perfquery_{n}.txt": look(date, 20 * n, 0.6) for n, date in enumerate(dates)}
    assert told(tmp_path, files).cause == "ib.congestion"


def test_a_column_may_say_ahead_that_it_is_a_difference(tmp_path: Path) -> None:
    rows = "".join(f"r{n}\tmlx5_{m}\t{37_000_000_000 if m else 90_000_000}\n" for n in range(1, 5) for m in range(2))
    text = f"# perfquery -x before and after, dt = 20.0 s, HDR\nnode\thca\tdelta_PortXmitWait\n{rows}"
    found = told(tmp_path, {"waits.txt": text})
    assert found.cause == "ib.congestion" and "59 %" in found.says


@pytest.mark.parametrize(
    ("says", "gbps"),
    [("HDR 4X", 200.0), ("2xNDR", 200.0), ("HDR100", 100.0), ("at 400 Gb/s", 400.0), ("IB-NDR", 400.0), ("HDRx", None)],
)  # fmt: skip
def test_a_speed_is_told_by_its_name(says: str, gbps: float | None) -> None:
    assert rate_in(says) == gbps


def test_files_of_looks_are_ordered_by_what_their_names_add() -> None:
    assert order_of("x/perf_t0.txt") < order_of("x/perf_t0+10s.txt") < order_of("x/perf_t1.txt")


def test_counters_of_mlxlink_are_no_second_look_at_those_of_sysfs(tmp_path: Path) -> None:
    """Each is cleared by itself: 40 in sysfs and 0 in mlxlink is no rise."""
    sysfs = "".join(
        f"/sys/class/infiniband/mlx5_{m}/ports/1/counters/{name}:{40 if m == 1 else 0}\n"
        for m in range(4)
        for name in ("link_error_recovery", "link_downed", "symbol_error")
    )
    mlxlink = (
        "$ mlxlink -d mlx5_1 -c\nOperational Info\n----------------\nState                              : Active\n"
        "Physical state                     : LinkUp\n\n"
        "Physical Counters and BER Info\n------------------------------\n"
        "Link Down Counter                  : 0\nLink Error Recovery Counter        : 0\n"
    )
    found = told(tmp_path, {"oak-3/a_mlxlink.txt": mlxlink, "oak-3/b_counters.txt": sysfs})
    assert found.cause in ("none", "unknown")


def test_a_heading_with_a_time_tells_whose_counters_follow(tmp_path: Path) -> None:
    look = "{at}\n/sys/class/infiniband/mlx5_1/ports/1/counters/link_downed:{n}\n"
    text = look.format(at="elm-4 11:00:00", n=3) + look.format(at="elm-4 11:40:00", n=12)
    found = told(tmp_path, {"two_looks.txt": text, "elm-5/dmesg.txt": "[Mon Mar  2 03:00:01 2026] x: y\n"})
    assert (found.cause, found.subject.get("node")) == ("ib.link_flapping", "elm-4")


def test_of_columns_that_commas_part_no_two_are_one_number(tmp_path: Path) -> None:
    """Port 1 and 700 errors are not 1700."""
    rows = "".join(
        f"2026-04-02 10:{5 * m:02d}:00,yew-{n}:9100,mlx5_2,1,{700 * m if n == 3 else 4}\n"
        for m in range(5)
        for n in range(1, 6)
    )
    found = told(tmp_path, {"panel.csv": f"Time,instance,device,port,port_rcv_errors\n{rows}"})
    assert (found.cause, found.subject.get("node")) == ("ib.link_degraded", "yew-3")


def scrapes(part: float) -> dict[str, str]:
    """A minute of two ports that wait for this part of 400 Gb/s, and two that do not wait."""
    row = 'node_infiniband_port_transmit_wait_total{{device="mlx5_{m}",port="1"}} {v}\n'
    return {
        f"fir{n}_{1780000000 + s}.prom": "".join(
            row.format(m=m, v=10**11 + int(s * part * 6.25e9) if m < 2 else 10) for m in range(4)
        )
        for n in range(1, 4)
        for s in (0, 60)
    }


def test_ports_that_wait_little_are_no_congestion_beside_idle_ones(tmp_path: Path) -> None:
    assert told(tmp_path, scrapes(0.01)).share("ib.congestion") == 0
    assert told(tmp_path / "much", scrapes(0.6)).cause == "ib.congestion"


def test_a_time_behind_a_heading_is_no_part_of_the_node_s_name(tmp_path: Path) -> None:
    look = "NIC statistics:\n     rx_prio3_pause: {v}\n     rx_prio3_pause_duration: {v}\n     out_of_sequence: 0\n"
    files = {
        f"{name}.txt": "".join(f"### ash{n} 10:0{at}:00\n" + look.format(v=30_000_000 * at) for n in range(1, 5))
        for name, at in (("before", 0), ("after", 1))
    }
    found = told(tmp_path, files)
    assert (found.cause, len(found.diagnosis.verdict.hypothesis.nodes)) == ("ib.congestion", 4)
