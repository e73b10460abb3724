"""Counters of ports in whatever text or JSON they were kept: what matters is that they are read, and as whose."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from probes.catalog.network.net_facts import CounterSet
from probes.intake.tools.network import counters_in_json, counters_in_text
from probes.intake.tools.network._counter_names import canonical
from probes.intake.when import moment_in, seconds_in
from tests.support.brought import told

Brief = tuple[str, str, int | None, float | None, dict[str, int | None]]


def brief(sets: tuple[CounterSet, ...]) -> list[Brief]:
    return [(one.node, one.name, one.port, one.at, dict(one.counters)) for one in sets]


def in_text(text: str) -> list[Brief]:
    assert counters_in_text.fits(text, "notes.out")
    return brief(counters_in_text.read(text).sets)


def in_json(said: object) -> list[Brief]:
    text = json.dumps(said, indent=1)
    assert counters_in_json.fits(text, "x.json")
    return brief(counters_in_json.read(text).sets)


@pytest.mark.parametrize(("word", "name"), [
    ("PortXmitWait", "port_xmit_wait"),
    ("node_infiniband_port_transmit_wait_total", "port_xmit_wait"),
    ("pfc_pri3_rx_duration_us", "rx_prio3_pause_duration"),
    ("rx_pfc_ena_frames_pri5", "rx_prio5_pause"),
    ("seq_err_naks_rcvd", "packet_seq_err"),
    ("node_ethtool_received_prio3_pause", "rx_prio3_pause"),
    ("retrans_pkts", "retrans_pkts"),
    ("iteration", ""), ("loss", ""), ("rx_bytes", ""),
])  # fmt: skip
def test_drivers_and_exporters_call_one_counter_by_other_names(word: str, name: str) -> None:
    assert canonical(word) == name


@pytest.mark.parametrize(("line", "at"), [
    ("# 2026-05-04T10:00:01Z n1", 1777888801.0),
    ("=== r1  Mon 4 May 10:00:01 UTC 2026", 1777888801.0),
    ("Mon May  4 10:00:01 UTC 2026", 1777888801.0),
    ("t=1777888801 mlx5_0", 1777888801.0),
    ("[10:00:01.5] eth4", 36001.5),
    ("rx_prio3 10:00", None), ("29:00:00", None), ("2026-02-31 10:00:00", None),
])  # fmt: skip
def test_a_time_is_found_anywhere_in_a_line(line: str, at: float | None) -> None:
    assert moment_in(line) == at


def test_how_long_lay_between_two_reads_is_said_in_many_ways() -> None:
    said = ("in 30 s", "two reads, 2 min apart", "interval=10s", "over 1 h", "mlx5_3 s")
    assert [seconds_in(one) for one in said] == [30.0, 120.0, 10.0, 3600.0, None]


def test_many_counters_of_a_host_in_one_line_with_the_time_before_them() -> None:
    assert in_text(
        "w07 09:00:00 mlx5_1 port_xmit_wait 100 port_xmit_discards=0 rate 400 Gb/s\n"
        "w08 09:00:00 mlx5_1 port_xmit_wait 200 port_xmit_discards=1\n"
    ) == [
        ("w07", "mlx5_1", None, 32400.0, {"port_xmit_wait": 100, "port_xmit_discards": 0}),
        ("w08", "mlx5_1", None, 32400.0, {"port_xmit_wait": 200, "port_xmit_discards": 1}),
    ]
    assert counters_in_text.read("w07 mlx5_1 400 Gb/s port_xmit_wait 1\n").sets[0].rate_gbps == 400.0


def test_a_table_with_a_row_for_each_host_and_look() -> None:
    assert in_text(
        "interval 30 s\nhost      hca     xmit_wait    out_of_sequence\n"
        "gpu-a01   mlx5_0  1,200   0\ngpu-a01   mlx5_0  9,200   4\n"
    ) == [
        ("gpu-a01", "mlx5_0", None, 0.0, {"port_xmit_wait": 1200, "out_of_sequence": 0}),
        ("gpu-a01", "mlx5_0", None, 30.0, {"port_xmit_wait": 9200, "out_of_sequence": 4}),
    ]


def test_a_table_with_a_column_for_each_host() -> None:
    found = in_text("                   kx1   kx2\nrx_prio3_pause     12    40\nrx_discards_phy    0     7\n")
    assert [(node, values) for node, *_, values in found] == [
        ("kx1", {"rx_prio3_pause": 12, "rx_discards_phy": 0}), ("kx2", {"rx_prio3_pause": 40, "rx_discards_phy": 7}),
    ]  # fmt: skip


def test_differences_and_rates_are_two_looks() -> None:
    found = in_text("rise over 60 s on nx7 (mlx5_1):\n  out_of_sequence   +91231\n  packet_seq_err    +80211\n")
    assert found[:2] == [
        ("nx7", "mlx5_1", None, 0.0, {"out_of_sequence": 0}), ("nx7", "mlx5_1", None, 60.0, {"out_of_sequence": 91231}),
    ]  # fmt: skip
    found = in_text("gpu-17 mlx5_4: port_xmit_wait 1.2e9 -> 9.9e11 in 60 s\ngpu-17 mlx5_4: np_cnp_sent 500/s\n")
    assert [values for *_, values in found] == [
        {"port_xmit_wait": 1_200_000_000}, {"port_xmit_wait": 990_000_000_000}, {"np_cnp_sent": 0},
        {"np_cnp_sent": 30_000},
    ]  # fmt: skip


def test_the_same_port_behind_words_that_nobody_knows_is_of_several_hosts() -> None:
    """Their values must not look as if one port's counter had risen."""
    found = in_text("alpha  out_of_sequence 3  packet_seq_err 1\nbeta   out_of_sequence 900000  packet_seq_err 1\n")
    assert [(node, values["out_of_sequence"]) for node, *_, values in found] == [("alpha", 3), ("beta", 900_000)]


def test_files_as_tail_prints_them_and_names_above_their_values() -> None:
    path = "==> /sys/class/infiniband/mlx5_2/ports/1/hw_counters/{} <==\n{}\n\n"
    assert in_text(path.format("out_of_sequence", 4) + path.format("packet_seq_err", 5)) == [
        ("", "mlx5_2", 1, None, {"out_of_sequence": 4, "packet_seq_err": 5})
    ]


def test_an_exposition_of_an_exporter_and_lines_of_telegraf() -> None:
    text = 'node_infiniband_{}_total{{device="mlx5_0",port="1"}} 8.8e+10\n'
    assert in_text(text.format("port_transmit_wait") + text.format("link_downed")) == [
        ("", "mlx5_0", 1, None, {"port_xmit_wait": 88_000_000_000, "link_downed": 88_000_000_000})
    ]
    line = "infiniband,device=mlx5_0,host=n1,port=1 port_xmit_wait={}i,symbol_error=2i 174843600{}000000000\n"
    assert [at for _, _, _, at, _ in in_text(line.format(1, 0) + line.format(9, 9))] == [1748436000.0, 1748436009.0]


def test_json_of_any_shape_and_the_answer_of_prometheus() -> None:
    tree = {"gpu-01": {"mlx5_0": {"1": {"port_xmit_wait": 7, "symbol_error": 0}}}}
    assert in_json(tree) == [("gpu-01", "mlx5_0", 1, None, {"port_xmit_wait": 7, "symbol_error": 0})]
    rows = [
        {"host": "n1", "ifname": "eth4", "ts": 1748436000 + s, "rx_prio3_pause": s, "rx_discards_phy": 0}
        for s in (0, 60)
    ]
    assert [(node, name, at) for node, name, _, at, _ in in_json(rows)] == [
        ("n1", "eth4", 1748436000.0), ("n1", "eth4", 1748436060.0),
    ]  # fmt: skip
    labels = {
        "__name__": "node_infiniband_port_transmit_wait_total",
        "device": "mlx5_0",
        "instance": "n9:9100",
        "port": "1",
    }
    series = {"metric": labels, "values": [[1748436000, "100"], [1748436030, "150"], [1748436060, "900"]]}
    assert in_json({"data": {"result": [series, series | {"metric": labels | {"device": "mlx5_1"}}]}})[::2] == [
        ("n9", "mlx5_0", 1, 1748436000.0, {"port_xmit_wait": 100}),
        ("n9", "mlx5_0", 1, 1748436060.0, {"port_xmit_wait": 900}),
    ]


@pytest.mark.parametrize("text", [
    "step 12 loss 2.1\nstep 13 loss 2.0\n", "the counter out_of_sequence should be looked at\n",
    "".join(f"iter {n} loss 2.{n}\n" for n in range(60)) + "port_xmit_wait 3 port_xmit_discards 4\n",
])  # fmt: skip
def test_a_log_that_mentions_a_counter_is_no_table_of_counters(text: str) -> None:
    assert not counters_in_text.fits(text, "train.log")


def test_pauses_of_all_hosts_in_a_paste_of_two_reads_are_congestion(tmp_path: Path) -> None:
    lines = "".join(
        f"<q{n}> {clock} enp1s0 rx_prio3_pause_duration: {base + n} tx_prio3_pause_duration: 4 rx_discards_phy: 0\n"
        for clock, base in (("11:00:00", 5_000_000), ("11:01:00", 35_000_000)) for n in range(1, 6)
    )  # fmt: skip
    found = told(tmp_path, {"paste.txt": lines})
    assert (found.cause, found.subject) == ("ib.congestion", {})


def test_a_heading_with_node_and_time_gives_both_to_the_counters_below_it(tmp_path: Path) -> None:
    def look(clock: str, count: int) -> str:
        return "".join(
            f"##### gpu-0{n}  Mon 4 May {clock} UTC 2026\nout_of_sequence {count if n == 2 else 3}\npacket_seq_err 0\n"
            for n in (1, 2, 3)
        )

    found = told(tmp_path, {"roce.txt": look("10:00:00", 10) + look("10:00:30", 91_000)})
    assert (found.cause, found.subject["node"]) == ("ib.lossless_misconfigured", "gpu-02")
    assert any("in 30 s" in reason.says for reason in found.diagnosis.verdict.hypothesis.because)


def test_lifetime_counts_that_do_not_rise_are_no_loss(tmp_path: Path) -> None:
    text = "".join(
        f"gpu-0{n} {clock} out_of_sequence 90{n}11 packet_seq_err 7{n}\n"
        for clock in ("10:00:00", "10:05:00")
        for n in (1, 2)
    )
    assert told(tmp_path, {"counters.txt": text}).cause in ("unknown", "none")


def test_perfquery_of_switches_is_of_the_ports_that_a_sweep_names(tmp_path: Path) -> None:
    sweep = (
        "Switch: 0x0002c90300a1b2c3 leaf-x1:\n"
        '          21   33[  ] ==( 4X        106.25 Gbps Active/  LinkUp)==>      30    1[  ] "spine-x1" ( )\n'
        '          21   34[  ] ==( 4X        106.25 Gbps Active/  LinkUp)==>      31    1[  ] "spine-x2" ( )\n'
    )

    def query(moment: str, wait: int) -> str:
        return f"# {moment}\n" + "".join(
            f"# Port extended counters: Lid 21 port {port} (CapMask: 0x5A00 CapMask2: 0x0000002)\n"
            f"PortSelect:......................{port}\nPortXmitWait:....................{wait + port}\n"
            for port in (33, 34)
        )

    rate = "n1 mlx5_0 400 Gb/s port_xmit_wait 1 symbol_error 0\n"
    files = {
        "iblinkinfo.txt": sweep, "pq_1.txt": query("Mon May  4 10:00:00 UTC 2026", 0), "hca.txt": rate,
        "pq_2.txt": query("Mon May  4 10:00:30 UTC 2026", 90_000_000_000),
    }  # fmt: skip
    found = told(tmp_path, files)
    assert (found.cause, found.subject) == ("ib.congestion", {"switch": "leaf-x1"})


def test_rates_of_a_counter_that_the_file_s_name_tells_are_told_as_how_far_it_rose_of_late() -> None:
    values = [[1_800_000_000 + 30 * n, str(v)] for n, v in enumerate([9.5, 8, 9, 7, 600, 640, 580, 620, 590])]
    labels = {"device": "mlx5_3", "instance": "gn07:9100", "port": "1"}
    text = json.dumps({"data": {"resultType": "matrix", "result": [{"metric": labels, "values": values}]}})
    name = "grafana_port_transmit_wait_rate5m.json"
    assert counters_in_json.fits(text, name) and not counters_in_json.fits(text, "panel-7.json")
    facts = counters_in_json.named(counters_in_json.read(text), f"x/{name}")
    first, last = facts.sets
    assert (first.node, first.name, first.port) == ("gn07", "mlx5_3", 1)
    assert dict(first.counters) == {"port_xmit_wait": 0}
    assert dict(last.counters) == {"port_xmit_wait": int((620 + 590 + 580) / 3 * 240)}
    assert (last.at or 0) - (first.at or 0) == 240


def test_a_counter_that_is_reset_once_is_a_counter_and_no_rate() -> None:
    values = [[1_800_000_000 + 30 * n, str(v)] for n, v in enumerate([50, 60, 70, 0, 10, 20, 30, 40])]
    labels = {"__name__": "port_rcv_errors", "device": "mlx5_3", "instance": "gn07:9100", "port": "1"}
    other = {**labels, "__name__": "symbol_error"}
    series = [{"metric": one, "values": values} for one in (labels, other)]
    found = in_json({"data": {"resultType": "matrix", "result": series}})
    assert [row["symbol_error"] for *_, row in found if "symbol_error" in row] == [50, 40]


def test_increases_of_a_counter_are_told_as_how_far_it_rose_in_the_time_that_the_file_s_name_tells() -> None:
    ports = [({"device": f"mlx5_{n}", "instance": "gn07:9100", "port": "1"}, str(9 * n)) for n in range(2)]
    series = [{"metric": labels, "value": [1_800_000_000, value]} for labels, value in ports]
    text = json.dumps({"data": {"resultType": "vector", "result": series}})
    facts = counters_in_json.named(counters_in_json.read(text), "link_downed_increase_30m.json")
    looks = [(one.name, one.at, dict(one.counters)) for one in facts.sets if one.name == "mlx5_1"]
    before, now = 1_800_000_000 - 1800, 1_800_000_000
    assert looks == [("mlx5_1", before, {"link_downed": 0}), ("mlx5_1", now, {"link_downed": 9})]
