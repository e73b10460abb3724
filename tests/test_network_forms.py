"""What on-call people bring of networks, NCCL's settings and stopped ranks, in the forms in which they bring it."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes import intake
from probes.diagnosis import diagnose
from probes.diagnosis.core import seen
from probes.diagnosis.ranking import Ranked
from probes.intake.pasted import parts_of
from probes.intake.tools.network import firewall, ip_link, net_dev, ping, reach
from probes.intake.tools.training import environment


def first(folder: Path, files: dict[str, str]) -> Ranked:
    folder = folder / "brought"  # what pytest calls its folders may look like a node's name
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    found = intake.read([folder])
    return diagnose([seen(one, ref) for ref, one in found.readings], found.asked).verdict


def named(one: Ranked) -> tuple[str, dict[str, str | int]]:
    return one.hypothesis.cause, dict(one.hypothesis.subject)


def nccl(node: str, rank: int, *lines: str) -> str:
    head = f"{node}:410:410 [0] NCCL INFO "
    comm = f"comm 0x55aa rank {rank} nranks 3 cudaDev 0 nvmlDev 0 busId 1b000 commId 0x9c1d - Init COMPLETE"
    return "".join(f"{head}{line}\n" for line in (*lines, comm))


# Topology -----------------------------------------------------------------------------------------------------------


def test_the_node_whose_topology_file_is_missing_is_named(tmp_path: Path) -> None:
    file = "/etc/topo/vm8.xml"
    system = "=== System : maxBw 24.0 totalBw 300.0 ==="
    files = {
        f"vm-{n}.log": nccl(f"gpu-vm-{n}", n, f"Loading topology file {file}", system) for n in (0, 1)
    }  # fmt: skip
    files["vm-2.log"] = (
        f"gpu-vm-2:410:410 [0] graph/xml.cc:412 NCCL WARN Could not open XML topology file {file} : Permission denied\n"
        + nccl("gpu-vm-2", 2, system.replace("24.0", "6.0"))
    )
    found = first(tmp_path, files)
    assert named(found) == ("nccl.topology_degraded", {"node": "gpu-vm-2"})
    assert found.probability >= 0.9


def test_a_default_topology_file_that_nobody_asked_for_may_be_missing(tmp_path: Path) -> None:
    said = "Could not open XML topology file /var/run/nvidia-topologyd/virtualTopology.xml : No such file or directory"
    files = {f"n{n}.log": nccl(f"gpu-{n}", n, *([said] if n else [])) for n in (0, 1, 2)}
    assert first(tmp_path, files).hypothesis.cause in ("unknown", "none")


# Settings -----------------------------------------------------------------------------------------------------------


def test_a_file_of_settings_unlike_those_of_other_nodes_is_found(tmp_path: Path) -> None:
    line = "NCCL_SOCKET_IFNAME=ens5\n"
    files = {f"gpu-00{n}/nccl.conf": line for n in (1, 2, 3)}
    files["gpu-003/nccl.conf"] += "# tried on friday\nNCCL_PROTO=LL128\n"
    found = first(tmp_path, files)
    assert named(found) == ("nccl.env_mismatch", {"node": "gpu-003"})


def test_settings_are_read_beside_comments() -> None:
    text = "# of the site\nNCCL_ALGO=Ring\n\nNCCL_IB_HCA=mlx5_0\n"
    assert environment.fits(text, "nccl.conf")
    assert environment.read(text).env["NCCL_ALGO"] == "Ring"


def test_a_setting_that_half_of_the_nodes_name_says_nothing(tmp_path: Path) -> None:
    both, one = "NCCL_SOCKET_IFNAME set by environment to ens5", "NCCL_ALGO set by environment to Tree"
    files = {"a.log": nccl("gpu-1", 0, both, one), "b.log": nccl("gpu-2", 1, both)}
    assert first(tmp_path, files).hypothesis.cause in ("unknown", "none")


# Interfaces ---------------------------------------------------------------------------------------------------------

BRIEF = "lo  UNKNOWN  127.0.0.1/8 ::1/128\nens1  UP  192.168.7.{n}/24\nens9f0  UP  10.9.0.{n}/24 fe80::1/64\n"
SPEEDS = "Settings for ens1:\n\tSpeed: 1000Mb/s\nSettings for ens9f0:\n\tSpeed: 200000Mb/s\n"


@pytest.mark.parametrize(("taken", "cause"), [("ens1:192.168.7.", "net.wrong_interface"), ("ens9f0:10.9.0.", None)])
def test_sockets_over_a_slow_port_beside_a_fast_one(tmp_path: Path, taken: str, cause: str | None) -> None:
    files = {}
    for n in (1, 2):
        at = f"{taken}{n}<0>"
        files[f"gpu-{n}/nccl.log"] = nccl(
            f"gpu-{n}", n, f"Bootstrap: Using {at}", f"NET/Socket : Using [0]{at}", "Using network Socket"
        )
        files[f"gpu-{n}/addr.txt"], files[f"gpu-{n}/speed.txt"] = BRIEF.format(n=n), SPEEDS
    found = first(tmp_path, files)
    assert found.hypothesis.cause == cause if cause else found.hypothesis.cause in ("unknown", "none")


def test_brief_lists_of_interfaces_are_read() -> None:
    text = BRIEF.format(n=4) + "veth1@if2  DOWN\n"
    assert ip_link.fits(text, "")
    links = {one.name: one for one in ip_link.read(text).links}
    assert links["ens9f0"].addresses == ("10.9.0.4", "fe80::1")
    assert (links["ens1"].up, links["lo"].up, links["veth1"].up) == (True, None, False)


def test_two_looks_at_what_interfaces_carried() -> None:
    row = "ens1: {rx} 9 0 3 0 0 0 0 {tx} 8 0 0 0 0 0 0\n"
    text = row.format(rx=100, tx=50) + row.format(rx=900, tx=60)
    assert net_dev.fits(text, "")
    assert [one.counters["rx_bytes"] for one in net_dev.read(text).sets] == [100, 900]
    assert [one.counters["tx_bytes"] for one in net_dev.read(text).sets] == [50, 60]


# Reachability -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("nc: connect to 10.1.1.9 port 45011 (tcp) failed: No route to host", ("10.1.1.9", 45011, "no route")),
        ("nc: connect to n9 (10.1.1.9) port 45011 (tcp) failed: Connection timed out", ("n9", 45011, "timed out")),
        ("n9 [10.1.1.9] 29500 (?) : Connection refused", ("n9", 29500, "refused")),
        ("n9 [10.1.1.9] 22 (ssh) open", ("n9", 22, "")),
        ("Connection to n9 (10.1.1.9) 22 port [tcp/ssh] succeeded!", ("n9", 22, "")),
        ("Ncat: Connected to 10.1.1.9:29500.", ("10.1.1.9", 29500, "")),
    ],
)
def test_connections_that_were_tried_by_hand(line: str, told: tuple[str, int, str]) -> None:
    assert reach.fits(line, "")
    one = reach.read(line).reaches[0]
    assert (one.peer, one.port, one.why) == told


def test_a_port_that_is_shut_on_a_node_that_answers_is_blocked(tmp_path: Path) -> None:
    text = (
        "Connection to 10.1.1.9 22 port [tcp/ssh] succeeded!\n"
        "nc: connect to 10.1.1.9 port 45011 (tcp) failed: Connection timed out\n"
    )
    found = first(tmp_path, {"gpu-3/nc.txt": text})
    assert found.hypothesis.cause == "net.bootstrap_blocked"
    assert found.probability < 0.95


def test_a_zone_of_firewalld_lets_in_only_what_it_lists() -> None:
    text = "work (active)\n  target: default\n  interfaces: ens5\n  services: ssh\n  ports: 29500/tcp\n"
    assert firewall.fits(text, "")
    rule = firewall.read(text).filters[0]
    assert (rule.action, rule.policy, "29500/tcp" in rule.text) == ("REJECT", True, True)
    assert not firewall.read(text.replace("default", "ACCEPT")).filters


def test_who_loses_large_packets_with_everybody_is_named(tmp_path: Path) -> None:
    lost = {("x1", "x2"), ("x2", "x1"), ("x3", "x2"), ("x2", "x3")}
    rows = [(a, b) for a in ("x1", "x2", "x3") for b in ("x1", "x2", "x3") if a != b]
    text = "".join(f"{a} -> {b} 56: 0% packet loss\n{a} -> {b} 8972: {100 if (a, b) in lost else 0}% packet loss\n"
        for a, b in rows)  # fmt: skip
    assert ping.fits(text, "")
    found = first(tmp_path, {"matrix.txt": text})
    assert named(found) == ("net.mtu_mismatch", {"node": "x2"})


# Ranks that somebody holds ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "NAMES      STATUS                  IMAGE\nllm-rank2  Up 3 hours (Paused)     llm:7\n"
        "llm-rank1  Up 3 hours              llm:7\n",
        "rank=1 pid 811 State:\tR (running)\nrank=2 pid 812 State:\tT (stopped)\n",
        "RANK=1 State:\tR (running) TracerPid:\t0\nRANK=2 State:\tt (tracing stop) TracerPid:\t4177\n",
        "rank1 pid 811 freeze=0\nfrozen 0\nrank2 pid 812 freeze=1\nfrozen 1\nState:\tS (sleeping)\n",
    ],
)
def test_a_rank_that_is_told_to_be_stopped_or_frozen_is_named(tmp_path: Path, text: str) -> None:
    cause, subject = named(first(tmp_path, {"look.txt": text}))
    assert (cause, subject["rank"]) == ("fw.rank_stopped", 2)


def test_ranks_that_all_run_are_nobodys_fault(tmp_path: Path) -> None:
    text = "rank=1 pid 811 State:\tR (running)\nrank=2 pid 812 State:\tS (sleeping)\n"
    assert first(tmp_path, {"look.txt": text}).hypothesis.cause in ("unknown", "none")


PS = "  PID   PPID STAT WCHAN    COMMAND\n    900     800 S    do_wait  torchrun --nproc_per_node {many} fit.py\n"


def test_torchruns_children_have_ranks_in_their_order(tmp_path: Path) -> None:
    rows = "".join(f"   {910 + n}     900 {'T' if n == 1 else 'R'}    -   python fit.py\n" for n in range(3))
    assert first(tmp_path / "a", {"ps.txt": PS.format(many=3) + rows}).hypothesis.subject["rank"] == 1
    other = first(tmp_path / "b", {"ps.txt": PS.format(many=4) + rows})  # one has gone: then the order tells nothing
    assert "rank" not in other.hypothesis.subject


# Polls, launchers, limits -------------------------------------------------------------------------------------------

POLL = """NCCL version 2.26.5 compiled with CUDA 12.9
CUDA runtime version 12090, driver version 12090

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          4            1          8        8

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2         4         8         8   RUNNING  MISMATCH

Warnings
========

#0-0 (77aa) MISMATCH
  Communicator ranks have different AllGather operation counts
  7 ranks have launched up to operation 512
  Rank 6 has launched up to operation {count} -- GPU 2 managed by process 771 on node gpu-2

"""


def test_polls_in_one_file_are_compared(tmp_path: Path) -> None:
    stands = first(tmp_path / "a", {"ras.txt": "Mon 1 Jun 10:00:00 UTC 2026\n" + POLL.format(count=511) * 2})
    assert (stands.hypothesis.cause, stands.hypothesis.subject["rank"]) == ("fw.rank_missing_collective", 6)
    caught_up = first(tmp_path / "b", {"ras.txt": POLL.format(count=400) + POLL.format(count=512)})
    assert caught_up.hypothesis.cause in ("unknown", "none")


def test_what_mpirun_tags_is_read(tmp_path: Path) -> None:
    text = "".join(f"[1,{n}]<stdout>:step 10 loss 2.{n}\n" for n in range(4))
    text += '[1,3]<stderr>:Traceback (most recent call last):\n[1,3]<stderr>:  File "fit.py", line 7, in <module>\n'
    text += "[1,3]<stderr>:ValueError: no such shard\n"
    cause, subject = named(first(tmp_path, {"mpirun.log": text}))
    assert (cause, subject["rank"]) == ("fw.rank_exited", 3)


WAITED = (
    "[rank{n}]:[E611 10:00:41.731108815 ProcessGroupNCCL.cpp:688] [Rank {n}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=70, OpType=ALLREDUCE, NumelIn=9, NumelOut=9, Timeout(ms)=45000) ran for 45003 "
    "milliseconds before timing out.\n"
)


def test_a_part_of_the_step_that_nears_the_limit_tells_that_it_is_short(tmp_path: Path) -> None:
    text = "".join(f"step {n}: rollout 90.0s, metrics all_reduce {t}s\n" for n, t in ((1, 31.5), (2, 38.0), (3, 43.9)))
    found = first(tmp_path, {"job.log": text + WAITED.format(n=0) + WAITED.format(n=1)})
    assert found.hypothesis.cause == "fw.timeout_too_short"
    assert "44 s" in found.hypothesis.says


def test_a_short_part_of_the_step_says_nothing_of_the_limit(tmp_path: Path) -> None:
    text = "".join(f"step {n}: rollout 90.0s, metrics all_reduce {n}.1s\n" for n in (1, 2, 3))
    found = first(tmp_path, {"job.log": text + WAITED.format(n=0) + WAITED.format(n=1)})
    assert found.hypothesis.cause != "fw.timeout_too_short"


def test_the_prompt_of_a_bare_shell_divides_what_was_pasted() -> None:
    text = "-bash-5.1$ cat train.log\n[rank1]: ValueError: no such shard\n-bash-5.1$ nvidia-smi -L\n"
    text += "GPU 0: NVIDIA A40 (UUID: GPU-11111111-2222-3333-4444-555555555555)\n"
    assert len(parts_of(text)) == 2


def test_the_node_whose_store_port_is_taken_is_named_by_those_who_looked_there(tmp_path: Path) -> None:
    text = (
        "[E616 19:02:33.119180633 socket.cpp:778] [c10d] The server socket has failed to listen on any local network "
        "address. port: 29611, useIpv6: 0, code: -98, name: EADDRINUSE, message: address already in use\n"
        "[W616 19:02:34.881009911 TCPStore.cpp:131] [c10d] recvValue failed on SocketImpl(fd=3, addr=[gpu-12]:38810, "
        "remote=[gpu-11]:{port}): failed to recv, got 0 bytes\n"
    )
    found = first(tmp_path / "a", {"job.log": text.format(port=29611)})
    assert named(found) == ("fw.rendezvous_failed", {"node": "gpu-11"})
    assert "node" not in first(tmp_path / "b", {"job.log": text.format(port=29999)}).hypothesis.subject
