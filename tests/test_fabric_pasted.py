"""Faults of fabrics and settings as people paste them: whose each part is, and who is unlike the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.intake.keyed import keyed
from tests.support.brought import told

AGENT = (
    "I0301 09:00:0{n}.000000 4100 torch/distributed/launcher/api.py:195] Starting elastic_operator with launch "
    "configs:\n"
    "I0301 09:00:0{n}.000000 4100 torch/distributed/launcher/api.py:195]   run_id           : {run}\n"
    "I0301 09:00:0{n}.000000 4100 torch/distributed/launcher/api.py:195]   rdzv_endpoint    : kb-1:29400\n"
    "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError\n"
)


def ruled(head: str, body: str) -> str:
    return f"---------------\n{head}\n---------------\n{body}"


def states(down: int | None) -> str:
    return "".join(f"mlx5_{n}/ports/1/state:{'1: DOWN' if n == down else '4: ACTIVE'}\n" for n in range(4))


def test_who_was_started_with_another_run_id_is_named(tmp_path: Path) -> None:
    files = {f"kb-{n}.err": AGENT.format(n=n, run="old" if n == 2 else "new") for n in range(1, 5)}
    found = told(tmp_path, files)
    assert (found.cause, found.subject) == ("fw.rendezvous_failed", {"node": "kb-2"})


def test_of_two_that_differ_in_their_run_id_none_is_named(tmp_path: Path) -> None:
    found = told(tmp_path, {f"kb-{n}.err": AGENT.format(n=n, run=f"run{n}") for n in (1, 2)})
    assert (found.cause, found.subject) == ("fw.rendezvous_failed", {})


def test_what_clush_puts_between_rules_are_nodes_whatever_they_are_called(tmp_path: Path) -> None:
    text = '$ clush -bw q[1-4] "grep -H . /sys/class/infiniband/*/ports/1/state"\n'
    text += ruled("q[1-3] (3)", states(None)) + ruled("q4", states(2))
    found = told(tmp_path, {"paste.txt": text})
    assert (found.cause, found.subject) == ("ib.link_down", {"node": "q4", "hca": "mlx5_2", "port": 1})


def test_a_rail_that_is_down_everywhere_is_the_switch_that_the_manager_lost(tmp_path: Path) -> None:
    text = '[me@admin ~]$ clush -bw q[1-4] "grep -H . /sys/class/infiniband/*/ports/1/state"\n'
    text += ruled("q[1-4] (4)", states(1))
    log = (
        "Mar 03 10:00:00 100000 [5D2D7700] 0x02 -> osm_drop_mgr_process: Removing node ib-leaf7 (0xb8599f0300a1b2c3)\n"
        "Mar 03 10:00:01 100000 [5D2D7700] 0x02 -> SUBNET UP\n"
    )
    found = told(tmp_path, {"paste.txt": text, "opensm.log": log})
    assert (found.cause, found.subject) == ("ib.switch_down", {"switch": "ib-leaf7"})


def test_a_port_that_nobody_places_blames_no_machine(tmp_path: Path) -> None:
    found = told(tmp_path, {"state.txt": states(3)})
    assert (found.cause, found.subject) == ("ib.link_down", {"hca": "mlx5_3", "port": 1})


def test_folders_that_are_addresses_are_nodes(tmp_path: Path) -> None:
    def link(mtu: int) -> str:
        return f"5: ens7f0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu {mtu} qdisc mq state UP mode DEFAULT qlen 1000\n"

    files = {f"10.9.0.{n}/ip_link.txt": link(1500 if n == 13 else 9000) for n in (11, 12, 13)}
    files |= {
        f"10.9.0.{n}/ibv_devinfo.txt": "hca_id:\tmlx5_0\n\t\tport:\t1\n\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n"
        f"\t\t\tactive_mtu:\t\t{'1024 (3)' if n == 13 else '4096 (5)'}\n\t\t\tlink_layer:\t\tEthernet\n"
        for n in (11, 12, 13)
    }
    found = told(tmp_path, files)
    assert (found.cause, found.subject.get("node")) == ("net.mtu_mismatch", "10.9.0.13")


def test_replies_alone_tell_which_sizes_arrive(tmp_path: Path) -> None:
    """The first line of ping was cut off: the command tells the size."""
    text = (
        "root@gpu-01:~# ping -M do -c 3 -s 8972 gpu-02\n"
        "--- gpu-02 ping statistics ---\n3 packets transmitted, 0 received, 100% packet loss, time 2040ms\n"
        "root@gpu-01:~# ping -M do -c 1 -s 1472 gpu-02\n1480 bytes from gpu-02: icmp_seq=1 ttl=64 time=0.1 ms\n"
    )
    assert told(tmp_path, {"paste.txt": text}).share("net.mtu_mismatch") > 0.5
    healthy = "root@gpu-01:~# ping -M do -c 1 -s 8972 gpu-02\n8980 bytes from gpu-02: icmp_seq=1 ttl=64 time=0.1 ms\n"
    assert told(tmp_path, {"paste.txt": healthy}).share("net.mtu_mismatch") == 0


def environments(odd: str) -> str:
    return "".join(
        f"rank={rank} host=xa{1 + rank // 2} pid={900 + rank}\nRANK={rank}\nWORLD_SIZE=8\nNCCL_DEBUG=WARN\n"
        f"NCCL_PROTO={'Simple' if f'xa{1 + rank // 2}' == odd else 'LL128'}\n\n"
        for rank in range(8)
    )


def test_environments_below_headings_with_keys_are_those_of_the_nodes(tmp_path: Path) -> None:
    found = told(tmp_path, {"environ.txt": environments("xa3")})
    assert (found.cause, found.subject) == ("nccl.env_mismatch", {"node": "xa3"})
    assert told(tmp_path, {"environ.txt": environments("")}).share("nccl.env_mismatch") == 0


@pytest.mark.parametrize(
    ("line", "node"),
    [
        ("rank=0 host=xa1 pid=900", "xa1"),
        ("# node: gpu-017", "gpu-017"),
        ("=== host=10.0.0.4, rank=3 ===", "10.0.0.4"),
        ("host=xa1 level=info msg=started", ""),
        ("rank=0 pid=900", ""),
        ("NCCL_PROTO=LL128", ""),
    ],
)
def test_a_heading_of_keys_tells_nothing_else(line: str, node: str) -> None:
    assert keyed(line) == node


def test_of_two_the_one_that_sets_what_nccl_chooses_is_named(tmp_path: Path) -> None:
    files = {"w1/etc_nccl.conf": "NCCL_DEBUG=INFO\n", "w2/etc_nccl.conf": "NCCL_DEBUG=INFO\nNCCL_ALGO=Ring\n"}
    found = told(tmp_path, files)
    assert (found.cause, found.subject) == ("nccl.env_mismatch", {"node": "w2"})
    files = {"w1/etc_nccl.conf": "NCCL_DEBUG=INFO\nNCCL_ALGO=Tree\n", "w2/etc_nccl.conf": "NCCL_ALGO=Ring\n"}
    assert told(tmp_path, files).subject == {}


def pfc(on: bool) -> str:
    bits = ",".join("true" if on and place == 3 else "false" for place in range(8))
    return f'{{"pfc_cap":8,"macsec_bypass":false,"delay":0,"prio_pfc":[{bits}]}}\n'


def test_who_has_no_priority_without_loss_by_dcb_in_json(tmp_path: Path) -> None:
    found = told(tmp_path, {f"dq-{n}/dcb_pfc.json": pfc(n != 4) for n in range(1, 5)})
    assert (found.cause, found.subject) == ("ib.lossless_misconfigured", {"node": "dq-4"})
    alike = told(tmp_path / "alike", {f"dq-{n}/dcb_pfc.json": pfc(True) for n in range(1, 5)})
    assert alike.share("ib.lossless_misconfigured") == 0


def test_half_of_a_rail_that_is_down_is_more_likely_its_leaf_than_its_cables(tmp_path: Path) -> None:
    files = {f"gx0{n}/ports.txt": states(1 if n < 5 else None) for n in range(1, 9)}
    found = told(tmp_path, files)
    assert (found.cause, found.subject) == ("ib.switch_down", {"hca": "mlx5_1", "port": 1})
    two = told(tmp_path / "two", {f"gx0{n}/ports.txt": states(1 if n < 3 else None) for n in range(1, 9)})
    assert two.cause == "ib.link_down"


def test_the_store_that_is_still_tried_is_told_by_its_warnings(tmp_path: Path) -> None:
    line = (
        "[W1130 03:01:12.1 socket.cpp:752] [c10d] The client socket cannot be initialized to connect to [mg-1]:29500 "
        "(errno: 110 - Connection timed out).\n"
    )
    assert told(tmp_path, {"mg-2.err": line}).cause == "net.bootstrap_blocked"
