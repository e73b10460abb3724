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
