"""Faults of fabrics as alerts, counts, series and typed commands bring them, and what they must not be taken for."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath

import pytest

from probes.intake.items import Item
from probes.intake.texts import Recoded
from probes.intake.tools.network import reach
from tests.support.brought import told

NOTHING = ("unknown", "none")
BOND = "$ ip -br link\nens7f0 UP 0c:42:a1:00:00:01 <UP,LOWER_UP>\nens7f1 DOWN 0c:42:a1:00:00:02 <NO-CARRIER,UP>\n"


def alert(status: str, node: str, hca: str, at: str) -> dict[str, object]:
    labels = {"alertname": "IBPortDown", "instance": f"{node}:9100", "device": hca, "port": "1"}
    row: dict[str, object] = {"status": status, "labels": labels, "startsAt": at}
    return row | ({"endsAt": "2026-03-02T05:10:00Z"} if status == "resolved" else {})


def test_an_alert_that_fires_names_its_port(tmp_path: Path) -> None:
    text = json.dumps({"alerts": [alert("firing", "hgx-07", "mlx5_4", "2026-03-02T05:00:00Z")]})
    found = told(tmp_path, {"webhook.json": text})
    assert (found.cause, found.subject["node"], found.subject["hca"]) == ("ib.link_down", "hgx-07", "mlx5_4")


def test_an_alert_that_is_over_accuses_nobody(tmp_path: Path) -> None:
    text = json.dumps({"alerts": [alert("resolved", "hgx-07", "mlx5_4", "2026-03-02T05:00:00Z")]})
    assert told(tmp_path, {"webhook.json": text}).cause in NOTHING


def test_alerts_of_one_adapter_on_many_nodes_at_once_are_of_its_switch(tmp_path: Path) -> None:
    rows = [alert("firing", f"hgx-{n:02d}", "mlx5_4", f"2026-03-02T05:00:1{n}Z") for n in range(1, 6)]
    found = told(tmp_path, {"alerts.json": json.dumps(rows)})
    assert (found.cause, found.subject["hca"]) == ("ib.switch_down", "mlx5_4")
    assert found.probability < 0.8  # nobody told that one switch is behind them


def test_an_alert_on_a_disk_is_none_on_a_port(tmp_path: Path) -> None:
    mail = "[FIRING:1] DiskFull hgx-07\n - device = /dev/sdb1\n - instance = hgx-07:9100\n - note: that port is down\n"
    assert told(tmp_path, {"mail.txt": mail}).cause in NOTHING


def test_problems_of_zabbix_that_come_and_go_are_a_link_that_flaps(tmp_path: Path) -> None:
    one = (
        "Problem started at 0{n}:11:09 on 2026.03.02\nProblem name: mlx5_0 port 1: link is down\nHost: hgx-03\n"
        "Problem has been resolved at 0{n}:12:31 on 2026.03.02\nHost: hgx-03\n"
    )
    found = told(tmp_path, {"chat.txt": "".join(one.format(n=n) for n in (2, 3, 4))})
    assert (found.cause, found.subject["node"]) == ("ib.link_flapping", "hgx-03")


@pytest.mark.parametrize(
    ("command", "counts"),
    [("ibdev2netdev | grep -c Up", ("4", "3")), ("ls /sys/class/infiniband | wc -l", ("4", "3")),
        ("ibstat | grep -ci down", ("0", "1"))],
)  # fmt: skip
def test_a_node_that_counts_fewer_ports_than_the_others_is_named(
    tmp_path: Path, command: str, counts: tuple[str, str]
) -> None:
    rule = "-" * 16
    text = (
        f"$ clush -bw cn[01-12] '{command}'\n{rule}\ncn[01-08,10-12] (11)\n{rule}\n{counts[0]}\n{rule}\ncn09\n{rule}\n"
    )
    found = told(tmp_path, {"fan.txt": f"{text}{counts[1]}\n"})
    assert (found.cause, found.subject) == ("ib.link_down", {"node": "cn09"})


def test_nodes_of_two_kinds_count_other_ports(tmp_path: Path) -> None:
    rule = "-" * 16
    text = f"$ clush -bw cn[01-12] 'ibstat | grep -c Active'\n{rule}\ncn[01-06] (6)\n{rule}\n8\n{rule}\ncn[07-12] (6)\n"
    assert told(tmp_path, {"fan.txt": f"{text}{rule}\n4\n"}).cause in NOTHING


def test_states_and_mtu_are_read_from_an_answer_of_prometheus(tmp_path: Path) -> None:
    def row(name: str, node: int, value: int, device: str) -> dict[str, object]:
        return {"metric": {"__name__": name, "instance": f"cn{node}:9100", "device": device, "port": "1"},
            "value": [1.8e9, str(value)]}  # fmt: skip

    def answer(rows: list[dict[str, object]]) -> str:
        return json.dumps({"status": "success", "data": {"resultType": "vector", "result": rows}})

    states = [row("node_infiniband_state_id", n, 1 if (n, d) == (2, 1) else 4, f"mlx5_{d}")
        for n in (1, 2, 3) for d in (0, 1)]  # fmt: skip
    found = told(tmp_path / "states", {"q.json": answer(states)})
    assert (found.cause, found.subject["node"], found.subject["hca"]) == ("ib.link_down", "cn2", "mlx5_1")
    sizes = [row("node_network_mtu_bytes", n, 1500 if n == 3 else 9216, "ens7f0") for n in (1, 2, 3, 4, 5)]
    found = told(tmp_path / "sizes", {"q.json": answer(sizes)})
    assert (found.cause, found.subject["node"]) == ("net.mtu_mismatch", "cn3")


@pytest.mark.parametrize(
    ("line", "down"),
    [("[812004.118822] ice 0000:4b:00.1 ens7f1: NIC Link is Down", True),
        ("[    9.118822] ice 0000:4b:00.1 ens7f1: NIC Link is Down", False)],
)  # fmt: skip
def test_an_interface_that_went_down_long_after_boot_and_is_down_now_is_named(
    tmp_path: Path, line: str, down: bool
) -> None:
    found = told(tmp_path, {"cn4/dmesg.txt": f"{line}\n", "cn4/ip.txt": BOND})
    assert (found.cause == "ib.link_down") is down  # an unused port tells it while its node boots


def test_a_link_of_slingshot_that_is_lost_is_named(tmp_path: Path) -> None:
    line = "[Wed Nov  8 13:26:51 2023] cxi_core 0000:c3:00.0: cxi1[hsn1] CXI_EVENT_LINK_DOWN\n"
    links = "hsn0 UP 02:00:00:00:00:10 <UP,LOWER_UP>\nhsn1 DOWN 02:00:00:00:00:11 <NO-CARRIER,UP>\n"
    found = told(tmp_path, {"nid000042/dmesg.txt": line, "nid000042/ip.txt": f"$ ip -br link\n{links}"})
    assert (found.cause, found.subject) == ("ib.link_down", {"node": "nid000042", "device": "hsn1"})


def test_firmware_of_bnxt_that_failed_is_a_fault_of_the_adapter(tmp_path: Path) -> None:
    line = "[90100.55] bnxt_en 0000:46:00.0 ens2: Firmware fatal reset event, data1: 0x2, data2: 0x0\n"
    found = told(tmp_path, {"cn5/dmesg.txt": line.replace(".55", ".550101")})
    assert (found.cause, found.subject["hca"]) == ("ib.hca_fault", "0000:46:00.0")


def test_a_failed_adapter_is_called_as_the_others_call_it(tmp_path: Path) -> None:
    """The kernel names its place on the bus; the other nodes show an adapter that this one has lost."""
    kernel = "[90100.550101] mlx5_core 0000:5e:00.0: mlx5_error_sw_reset:252:(pid 88): start\n"
    typed = "$ ls /sys/class/infiniband\n"
    lists = {f"cn{n}/ls.txt": typed + " ".join(f"mlx5_{d}" for d in range(4) if (n, d) != (6, 2)) for n in (5, 6)}
    found = told(tmp_path, {"cn6/dmesg.txt": kernel, **lists})
    assert (found.cause, found.subject) == ("ib.hca_fault", {"node": "cn6", "hca": "mlx5_2"})


def test_colours_and_lost_blanks_do_not_hide_what_ibstat_says(tmp_path: Path) -> None:
    def ca(name: str, rate: int) -> str:
        return (
            f"$ ibstat {name}\nCA '{name}'\nCA type: MT4129\nNumber of ports: 1\nPort 1:\n"
            f"\x1b[01;31m\x1b[KState\x1b[m\x1b[K: Active\nPhysical state: LinkUp\nRate: {rate}\n"
            "Link layer: InfiniBand\n"
        )

    text = ca("mlx5_0", 400) + ca("mlx5_1", 100) + ca("mlx5_2", 400) + ca("mlx5_3", 400)
    found = told(tmp_path, {"cn7.txt": text.replace("\n", "\r\n")})
    assert (found.cause, found.subject["hca"]) == ("ib.link_degraded", "mlx5_1")


def test_colours_are_taken_away_also_where_a_block_ends_in_one() -> None:
    class Stream:
        def __init__(self) -> None:
            self.parts = [b"\x1b[01;3", b"1mState\x1b", b"[m\x1b[K: Down \x1b"]

        def read(self, size: int) -> bytes:
            return self.parts.pop(0) if self.parts else b""

    assert Recoded(Stream(), "utf-8").read(1000) == b"State: Down \x1b"
    assert Item("ibstat", PurePosixPath("ibstat.txt"), b"\x1b[31mState\x1b[m: Down\n").head == b"State: Down\n"


def test_an_ethernet_adapter_for_storage_may_be_slower(tmp_path: Path) -> None:
    rates = "".join(f"mlx5_{d}: {'100 Gb/sec (4X EDR)' if d == 4 else '400 Gb/sec (4X NDR)'}\n" for d in range(5))
    found = told(tmp_path, {"p.txt": f"=== cn-a ===\n{rates}=== cn-b ===\n{rates}"})
    assert found.cause in NOTHING


@pytest.mark.parametrize("said", ["shut", "124"])
def test_a_port_that_a_command_could_not_open_is_blocked(tmp_path: Path, said: str) -> None:
    tail = " && echo free || echo shut" if said == "shut" else "; echo $?"
    typed = f"cn1$ timeout 4 bash -c '</dev/tcp/10.8.0.1/29400'{tail}\n{said}\n"
    log = (
        "[W302 05:01:12.1 socket.cpp:752] [c10d] The client socket has timed out after 60000ms while trying to connect "
        "to (10.8.0.1, 29400).\n"
    )
    found = told(tmp_path, {"tried.txt": typed + "cn1$ uptime\n 05:09:11 up 9 days\n", "rank8.log": log})
    assert found.cause == "net.bootstrap_blocked"


@pytest.mark.parametrize(
    ("words", "why"),
    [("Verbindungsaufbau abgelehnt", "refused"), ("连接超时", "timed out"),
        ("Aucun chemin d'accès pour atteindre l'hôte cible", "no route")],
)  # fmt: skip
def test_words_of_other_languages_tell_why_no_connection_opened(words: str, why: str) -> None:
    facts = reach.read(f"nc: connect to 10.8.0.1 port 29400 (tcp) failed: {words}\n")
    assert facts.reaches[0].why == why


def test_a_counter_that_only_the_command_names_is_read_twice(tmp_path: Path) -> None:
    typed = "$ cat /sys/class/net/ens7f0/carrier_down_count"
    files = {
        f"cn{n}/carrier_{t}.txt": f"$ date\nMon Mar  2 05:{t}0:00 UTC 2026\n{typed}\n{3 + (9 * t if n == 2 else 0)}\n"
        for n in (1, 2, 3) for t in (0, 1)
    }  # fmt: skip
    found = told(tmp_path, files)
    assert (found.cause, found.subject["node"]) == ("ib.link_flapping", "cn2")


def test_a_matrix_of_bandwidths_names_the_slow_node(tmp_path: Path) -> None:
    names = ("cn1", "cn2", "cn3", "cn4")
    rows = "".join(f"{a} " + " ".join("-" if a == b else "49.1" if "cn4" in (a, b) else "194.8" for b in names) + "\n"
        for a in names)  # fmt: skip
    found = told(tmp_path, {"ib_write_bw_pairs.txt": f"     {' '.join(names)}\n{rows}"})
    assert (found.cause, found.subject["node"]) == ("ib.link_degraded", "cn4")


@pytest.mark.parametrize(
    "text",
    [
        "20260302 05:00:10 [cn-17] nhc: Health check failed:  check_hw_ib:  No IB port mlx5_3:1 is ACTIVE"
        " (LinkUp 200 Gb/sec).\n",
        "NodeName=cn-17 Arch=x86_64\n   State=IDLE+DRAIN\n   Reason=NHC: check_hw_ib:  No IB port mlx5_3:1 is ACTIVE"
        " (LinkUp 200 Gb/sec). [root@2026-03-02T05:00:10]\n",
        "cn-17$ gpud scan\n✘ 3 LinkUp ports are found, but expected 4 port(s) with rate >= 200 Gb/sec; device(s)"
        " physical state changed to Polling: mlx5_3\n",
        "$ kubectl describe node cn-17 | tail -3\n  Type        Status  Reason\n  IBPortDown  True    IBPortIsDown"
        "  port mlx5_3/1 state Down\n",
    ],
)
def test_a_health_check_that_misses_a_port_names_it(tmp_path: Path, text: str) -> None:
    found = told(tmp_path, {"pasted.txt": text})
    assert (found.cause, found.subject) == ("ib.link_down", {"node": "cn-17", "hca": "mlx5_3"})


def test_a_condition_that_is_false_is_none(tmp_path: Path) -> None:
    rows = "  IBPortDown  False   InfinibandPortUp  mlx5_3 is not down\n  Ready  True  KubeletReady  posts ready\n"
    text = f"$ kubectl describe node cn-17 | tail -4\nConditions:\n  Type  Status  Reason  Message\n{rows}"
    assert told(tmp_path, {"pasted.txt": text}).cause in NOTHING
