"""What keeps ranks from meeting, in the forms in which people paste it: grep-ed lines, ps, ss, packages."""

from __future__ import annotations

from pathlib import Path

from tests.support.brought import told

REFUSED = "n9:41:43 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to {where} failed : No route to host\n"


def test_grep_through_proc_tells_each_environment(tmp_path: Path) -> None:
    lines = (f"xb{n}: /proc/{70 + n}/environ:NCCL_ALGO={'Tree' if n == 3 else 'Ring'}\n" for n in (1, 2, 3, 4))
    found = told(tmp_path, {"grep.txt": "".join(lines)})
    assert (found.cause, found.subject) == ("nccl.env_mismatch", {"node": "xb3"})


def test_ps_with_environments_tells_them(tmp_path: Path) -> None:
    def rows(n: int) -> str:
        algo = "Tree" if n == 1 else "Ring"
        return (
            "    PID TTY      STAT   TIME COMMAND\n"
            f"   90{n} ?        Rl   12:01 python train.py RANK={n} WORLD_SIZE=3 NCCL_ALGO={algo}\n"
        )

    found = told(tmp_path, {f"xb{n}/ps_eww.txt": rows(n) for n in (0, 1, 2)})
    assert (found.cause, found.subject) == ("nccl.env_mismatch", {"node": "xb1"})


def test_packages_tell_on_which_node_the_other_nccl_is(tmp_path: Path) -> None:
    warn = (
        "xb1:8:9 [0] init.cc:1500 NCCL WARN Mismatched NCCL version detected : rank 2 version 22005 rank 0 version "
        "22105\n"
    )
    files = {f"xb{n}/pip_freeze.txt": f"nvidia-nccl-cu12=={'2.20.5' if n == 3 else '2.21.5'}\ntorch==2.5.1\n"
        for n in (1, 2, 3)}  # fmt: skip
    found = told(tmp_path, files | {"job.log": warn})
    assert (found.cause, found.subject) == ("nccl.env_mismatch", {"node": "xb3"})


def test_the_interface_of_a_vpn_leads_to_no_peer(tmp_path: Path) -> None:
    files = {
        "lab-1.log": "lab-1:8:9 [0] NCCL INFO Bootstrap : Using enp5s0:192.168.10.11<0>\n"
        + REFUSED.replace("n9", "lab-1").format(where="100.101.7.3<33121>"),
        "lab-2.log": "lab-2:8:9 [0] NCCL INFO Bootstrap : Using tailscale0:100.101.7.3<0>\n",
    }
    found = told(tmp_path, files)
    assert (found.cause, found.subject) == ("net.wrong_interface", {"node": "lab-2"})


def test_a_rank_that_finds_no_interface_says_so_for_itself(tmp_path: Path) -> None:
    log = (
        "lab-2:8:9 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to ib9\n"
        "lab-2:8:9 [0] bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface found\n"
    )
    found = told(tmp_path, {"lab-2.log": log})
    assert (found.cause, found.subject) == ("net.wrong_interface", {"node": "lab-2"})


def test_connections_that_wait_at_a_port_where_somebody_listens(tmp_path: Path) -> None:
    waits = "".join(
        f'SYN-SENT 0      1      10.0.0.2:5111{n}      10.0.0.1:29500    users:(("python",pid=441{n},fd=20))\n'
        for n in (1, 2)
    )
    head = "State    Recv-Q Send-Q Local Address:Port  Peer Address:Port Process\n"
    listens = 'LISTEN 0      2048   *:29500             *:*    users:(("python",pid=8,fd=3))\n'
    found = told(tmp_path, {"gpu-2/ss.txt": head + waits, "gpu-1/ss.txt": listens})
    assert (found.cause, found.subject) == ("net.bootstrap_blocked", {"node": "gpu-2"})
    assert found.probability < 0.8
    assert told(tmp_path / "alone", {"gpu-2/ss.txt": head + waits}).share("net.bootstrap_blocked") == 0


def test_mtus_that_grep_left_over_are_compared(tmp_path: Path) -> None:
    lines = (f"xb{n}: \t\t\tactive_mtu:\t\t{'1024 (3)' if n == 3 else '4096 (5)'}\n" for n in (1, 2, 3, 4))
    found = told(tmp_path, {"clush.txt": "".join(lines)})
    assert (found.cause, found.subject) == ("net.mtu_mismatch", {"node": "xb3", "device": "mlx5_0"})


def test_bare_mtus_in_a_file_that_is_called_so_are_compared(tmp_path: Path) -> None:
    lines = "".join(f"gpu-{n:02d}: {1500 if n == 5 else 9000}\n" for n in range(1, 9))
    found = told(tmp_path, {"mtu.txt": lines})
    assert (found.cause, found.subject) == ("net.mtu_mismatch", {"node": "gpu-05"})
    assert told(tmp_path / "alike", {"mtu.txt": lines.replace("1500", "9000")}).share("net.mtu_mismatch") == 0


def test_a_log_beside_the_folder_of_its_name_is_of_that_machine(tmp_path: Path) -> None:
    log = (
        "[W1130 03:01:12.1 socket.cpp:462] [c10d] The server socket has failed to listen on [::]:29500 (errno: 98 - "
        "Address already in use).\n"
    )
    ss = 'LISTEN 0      2048         *:29500            *:*    users:(("python",pid=3312,fd=13))\n'
    found = told(tmp_path, {"zt7.err": log, "zt7/ss.txt": ss})
    assert (found.cause, found.subject) == ("fw.rendezvous_failed", {"node": "zt7"})


def test_a_truncated_message_alone_decides_nothing(tmp_path: Path) -> None:
    log = (
        "n3:4:5 [0] transport/net_socket.cc:493 NCCL WARN NET/Socket : peer 10.4.0.52<50110> message truncated : "
        "receiving 65536 bytes instead of 16384. If you believe your socket network is in healthy state, there may be "
        "a mismatch in collective sizes or environment settings (e.g. NCCL_PROTO, NCCL_ALGO) between ranks\n"
    )
    found = told(tmp_path, {"err.log": log})
    assert found.cause == "unknown" and found.share("nccl.env_mismatch") > 0


def test_gloo_names_an_interface_that_is_not_there(tmp_path: Path) -> None:
    log = (
        "[rank2]: Traceback (most recent call last):\n"
        '[rank2]:   File "t.py", line 3, in <module>\n'
        "[rank2]: RuntimeError: [enforce fail at ../third_party/gloo/gloo/transport/tcp/device.cc:84] ifa != nullptr. "
        "Unable to find address for: ib9\n"
    )
    assert told(tmp_path, {"out.err": log}).cause == "net.wrong_interface"


def test_files_that_begin_alike_are_of_one_machine(tmp_path: Path) -> None:
    kernel = "".join(
        f"[81{n}20.1] bnxt_en 0000:06:00.0 ens6np0: NIC Link is Down\n"
        f"[81{n}24.1] bnxt_en 0000:06:00.0 ens6np0: NIC Link is Up, 400000 Mbps full duplex\n"
        for n in range(1, 6)
    )
    for number, name in enumerate(("am-2.dmesg.txt", "dmesg_am-2.txt")):
        found = told(tmp_path / str(number), {name: kernel})
        assert (found.cause, found.subject.get("node")) == ("ib.link_flapping", "am-2")
    assert "node" not in told(tmp_path / "ticket", {"dmesg_INC-4711.txt": kernel}).subject


def test_pairs_in_a_table_of_commas_are_compared(tmp_path: Path) -> None:
    rows = "".join(
        f"qa{a:02d},qa{b:02d},{9.8 if 7 in (a, b) else 48.1}\n" for a in range(5, 9) for b in range(a + 1, 9)
    )
    found = told(tmp_path, {"pairs.csv": f"src,dst,GB/s\n{rows}"})
    assert (found.cause, found.subject) == ("ib.link_degraded", {"node": "qa07"})


def test_queue_pairs_in_use_against_one_grep_ed_limit(tmp_path: Path) -> None:
    text = (
        "gpu-9$ rdma res show\n0: mlx5_0: pd 91 cq 130990 qp 131060 cm_id 0 mr 240112 ctx 91 srq 4\n"
        "gpu-9$ ibv_devinfo -v -d mlx5_0 | grep max_qp:\n\tmax_qp:\t\t\t\t131072\n"
    )
    assert told(tmp_path, {"paste.txt": text}).cause == "ib.qp_exhausted"
    assert told(tmp_path / "few", {"paste.txt": text.replace("131060", "4100")}).share("ib.qp_exhausted") == 0


def test_the_faster_interface_beside_the_one_that_nccl_took(tmp_path: Path) -> None:
    log = "".join(
        f"xq{n}:8:9 [0] NCCL INFO NET/Socket : Using [0]eno1:10.0.0.{n}<0>\n"
        f"xq{n}:8:9 [0] NCCL INFO Using network Socket\n"
        for n in (1, 2)
    )
    speeds = "".join(
        f"Settings for {name}:\n\tSpeed: {speed}Mb/s\n\tLink detected: yes\n"
        for name, speed in (("eno1", 1000), ("ens2f0", 100_000))
    )
    places = "".join(
        f"{n}: {name}: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc mq state UP\n"
        f"    inet {at}/24 scope global {name}\n"
        for n, name, at in ((2, "eno1", "10.0.0.1"), (3, "ens2f0", "192.168.50.1"))
    )
    found = told(tmp_path, {"train.log": log, "xq1/ethtool.txt": speeds, "xq1/ip_addr.txt": places})
    assert found.cause == "net.wrong_interface"


def test_the_bridge_of_virtual_machines_leads_to_no_peer(tmp_path: Path) -> None:
    line = "[yy1:4121] btl_tcp_endpoint.c:626: connect() to {} failed: Connection refused (111)\n"
    assert told(tmp_path, {"m.err": line.format("192.168.122.1")}).cause == "net.wrong_interface"
    assert told(tmp_path / "plain", {"m.err": line.format("10.1.0.4")}).cause == "net.bootstrap_blocked"


def test_a_diff_of_two_environments_is_read_whatever_it_is_called(tmp_path: Path) -> None:
    text = (
        "--- lx1.env\t2026-11-30\n+++ lx2.env\t2026-11-30\n@@ -1,2 +1,2 @@\n-NCCL_P2P_LEVEL=SYS\n+NCCL_P2P_LEVEL=LOC\n"
    )
    assert told(tmp_path, {"env.diff": text}).cause == "nccl.env_mismatch"


def test_two_that_were_started_as_the_same_part_of_a_job_are_both_meant(tmp_path: Path) -> None:
    files = {
        f"wo-{n}.sh": f"#!/bin/bash\nexport NODE_RANK={place}\ntorchrun --nnodes 3 --node_rank {place} "
        "--nproc_per_node 8 --master_addr 10.0.0.1 --master_port 29500 train.py\n"
        for n, place in ((0, 0), (1, 1), (2, 1))
    }
    found = told(tmp_path, files)
    assert (found.cause, found.subject) == ("fw.rendezvous_failed", {})


def test_a_connection_over_loopback_that_is_reset_blames_no_interface(tmp_path: Path) -> None:
    """It was there: a peer that ended reset it. So it looks where several nodes of a laboratory share one machine."""
    reset = (
        "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:30371: "
        "Connection reset by peer. This is typically caused by a remote worker hanging or bugs\n"
    )
    files = {f"n{node}/rank{node}.log": reset for node in (1, 2, 3)}
    assert told(tmp_path, files).cause != "net.wrong_interface"
