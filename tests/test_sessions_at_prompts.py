"""Pasted sessions: loops that call a node by part of its name, remarks at a prompt, dates asked for in UTC."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from probes.intake import pasted
from probes.intake.commands import looped
from probes.intake.tools.host import time_service
from tests.support.brought import told

GIDS = (
    "DEV\tPORT\tINDEX\tGID\t\t\t\t\tIPv4  \t\tVER\tDEV\n---\t----\t-----\t---\t\t\t\t\t------------  \t---\t---\n"
    "mlx5_0\t1\t3\t0000:0000:0000:0000:0000:ffff:0a50:000{n}\t10.80.0.{n}  \tv2\tnet1\n"
)


@pytest.mark.parametrize(
    ("typed", "nodes"),
    [
        ('for p in w-0 w-1; do echo "-- $p"; kubectl exec bert-$p -- w; done', {"w-0": "bert-w-0", "w-1": "bert-w-1"}),
        ("for n in a7 a8; do echo $n; ssh -o BatchMode=y root@r2-$n w; done", {"a7": "r2-a7", "a8": "r2-a8"}),
        ("for n in n7 n8; do echo $n; ssh $n.cluster.local uptime; done", {"n7": "n7", "n8": "n8"}),
        ("for n in n7 n8; do echo $n; ssh $n uptime; done", {"n7": "n7", "n8": "n8"}),
    ],
)  # fmt: skip
def test_a_loop_tells_the_whole_name_of_whom_it_asks(typed: str, nodes: dict[str, str]) -> None:
    assert looped(typed) == nodes


def test_a_turn_of_a_loop_is_of_the_pod_that_it_asked() -> None:
    text = '$ for p in w-0 w-1; do echo "-- $p"; kubectl exec bert-$p -- show_gids; done\n'
    text += "".join(f"-- w-{n}\n{GIDS.format(n=n)}" for n in range(2))
    assert [part.nodes for part in pasted.parts_of(text)] == [("bert-w-0",), ("bert-w-1",)]


def test_a_remark_at_a_prompt_ends_what_was_printed_above(tmp_path: Path) -> None:
    text = "$ kubectl logs tr-0 --tail=2\nstep 11 loss 2.1\nstep 12 loss 2.0\n$ # and then it stood\n"
    assert [part.text.strip() for part in pasted.parts_of(text)] == ["step 11 loss 2.1\nstep 12 loss 2.0"]


def test_what_date_says_of_utc_needs_no_zone(tmp_path: Path) -> None:
    clocks = "".join(
        f"---------------\nuu{n}\n---------------\n2026-02-03T04:0{5 if n == 3 else 1}:06.1{n}\n" for n in range(1, 5)
    )
    asked = f"$ clush -b -w uu[1-4] 'date -u +%FT%T.%2N'\n{clocks}"
    trace = "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection has failed.\n"
    found = told(tmp_path, {"dates.txt": asked, "uu3/torchrun.log": trace})
    assert (found.cause, found.subject) == ("host.clock_offset", {"node": "uu3"})
    assert not time_service.TOOL.fits("2026-02-03T04:05:06\n", "date_+_F")


def test_a_network_for_logins_whose_mtu_varies_stops_no_job(tmp_path: Path) -> None:
    """The same nodes send large frames by another interface, alike on all."""
    row = "{at}: {name}: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu {mtu} qdisc mq state UP mode DEFAULT qlen 1000\n"
    files = {
        f"e{n}/ip_link.txt": row.format(at=2, name="mgmt0", mtu=9000 if n == 1 else 1500)
        + row.format(at=3, name="ens1", mtu=4200)
        for n in range(1, 6)
    }
    assert told(tmp_path, files).share("net.mtu_mismatch") == 0
    alone = {name: text.split("3: ens1")[0] for name, text in files.items()}
    assert told(tmp_path / "alone", alone).share("net.mtu_mismatch") > 0.2


FALLBACK = (
    "[W socket.cpp:1] x\n[W1130 09:00:00.1 ProcessGroupGloo.cpp:545] Warning: Unable to resolve hostname to a (local) "
    "address. Using the loopback address as fallback. "
    "Manually set the network interface to bind to with GLOO_SOCKET_IFNAME. "
    "(function operator())\n"
)
MESH = "RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error\n"


def test_gloo_that_falls_back_to_the_loopback_address_is_not_reached(tmp_path: Path) -> None:
    found = told(tmp_path, {"kea-1/rank0.log": FALLBACK + MESH, "kea-2/rank1.log": MESH})
    assert (found.cause, found.subject) == ("net.wrong_interface", {"node": "kea-1"})
    within = told(tmp_path / "one", {"kea-1/rank0.log": FALLBACK, "kea-1/rank1.log": FALLBACK})
    assert within.share("net.wrong_interface") == 0


def test_logs_that_are_only_counted_are_of_the_node_where_the_ranks_meet(tmp_path: Path) -> None:
    address = (
        "root@{name}:~# ip -br -4 a\nlo               UNKNOWN        127.0.0.1/8\n"
        "eno1             UP             10.3.0.{n}/24\n"
    )
    files = {
        "run_node0.log": MESH, "run_node1.log": FALLBACK + MESH,
        "ada.txt": address.format(name="ada", n=1) + "root@ada:~# env | grep MASTER\nMASTER_ADDR=10.3.0.1\n",
        "eva.txt": address.format(name="eva", n=2),
    }  # fmt: skip
    found = told(tmp_path, files)
    assert (found.cause, found.subject) == ("net.wrong_interface", {"node": "eva"})


# More forms of ports --------------------------------------------------------------------------------------------------


def test_a_journal_of_many_hosts_tells_of_each(tmp_path: Path) -> None:
    rows = "".join(
        json.dumps({
            "__REALTIME_TIMESTAMP": str(1780000000000000 + n), "_HOSTNAME": f"yak-{n}", "SYSLOG_IDENTIFIER": "kernel",
            "MESSAGE": "mlx5_core 0000:9a:00.0 ibp154s0: Link down",
        }) + "\n"
        for n in range(1, 6)
    )  # fmt: skip
    found = told(tmp_path, {"export.json": rows})
    assert (found.cause, found.subject) == ("ib.switch_down", {"device": "ibp154s0"})


def test_what_grep_left_of_ibstat_is_read(tmp_path: Path) -> None:
    rows = (
        "CA 'mlx5_0'", "\tPort 1:", "\t\tState: {state}", "\t\tPhysical state: {phys}", "\t\tRate: 200",
        "\t\tLink layer: InfiniBand",
    )  # fmt: skip
    text = "".join(
        f"emu{n}: {row.format(state='Down' if n == 3 else 'Active', phys='Polling' if n == 3 else 'LinkUp')}\n"
        for n in range(1, 6)
        for row in rows
    )
    found = told(tmp_path, {"pdsh.txt": text})
    assert (found.cause, found.subject.get("node")) == ("ib.link_down", "emu3")


def test_a_member_of_a_bond_without_a_link_is_down(tmp_path: Path) -> None:
    bond = (
        "Ethernet Channel Bonding Driver: v5.15\n\nBonding Mode: IEEE 802.3ad Dynamic link aggregation\n"
        "MII Status: up\n\nSlave Interface: ens1f0\nMII Status: {}\nSpeed: {}\n\n"
        "Slave Interface: ens1f1\nMII Status: up\nSpeed: 100000 Mbps\n"
    )
    files = {
        f"elk{n}/proc_net_bonding_bond0": bond.format(*(("down", "Unknown") if n == 2 else ("up", "100000 Mbps")))
        for n in range(1, 5)
    }
    found = told(tmp_path, files)
    assert (found.cause, found.subject) == ("ib.link_down", {"node": "elk2", "device": "ens1f0"})
