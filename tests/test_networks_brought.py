"""Networks in further forms in which on-call people bring them: sizes of packets, names, policies, tables of nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes import intake
from probes.intake.tables import by_rows
from probes.intake.tools.network import ip_link, names, network_policy, reach, sockets, tcpdump
from tests.test_network_forms import first, named

NOTHING = ("unknown", "none")


# The size of packets ------------------------------------------------------------------------------------------------

POD = (
    "3: eth0@if9: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc noqueue state UP\n    link/ether 8e:10:5b:0f:77:c2\n"
)
OVERLAY = (
    "2: ens3: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu {} qdisc mq state UP\n    link/ether a8:a1:59:c4:21:0e\n"
    "7: overlay0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu {} qdisc noqueue state UNKNOWN\n"
    "    link/ether 4a:8b:8d:1e:99:03 promiscuity 0\n    geneve id 5 remote 10.0.0.7 dev ens3 dstport 6081 ttl auto\n"
)


def pinged(size: int, received: int) -> str:
    return (
        f"PING 10.9.2.4 (10.9.2.4) {size}({size + 28}) bytes of data.\n\n--- 10.9.2.4 ping statistics ---\n"
        f"4 packets transmitted, {received} received, {25 * (4 - received)}% packet loss, time 3050ms\n\n"
    )


def test_packets_of_usual_size_that_are_lost_where_smaller_ones_arrive_tell_of_the_mtu(tmp_path: Path) -> None:
    found = first(tmp_path, {"ping.txt": pinged(1372, 4) + pinged(1452, 0)})
    assert found.hypothesis.cause == "net.mtu_mismatch"
    assert found.probability >= 0.9


def test_packets_that_are_lost_whatever_their_size_tell_nothing_of_the_mtu(tmp_path: Path) -> None:
    assert first(tmp_path, {"ping.txt": pinged(56, 0) + pinged(1472, 0)}).hypothesis.cause != "net.mtu_mismatch"
    assert first(tmp_path / "b", {"ping.txt": pinged(1472, 4) + pinged(56, 3)}).hypothesis.cause in NOTHING


def test_a_tunnel_that_is_larger_than_what_carries_it_is_not_yet_settled(tmp_path: Path) -> None:
    files = {"gpu-001/link.txt": OVERLAY.format(1500, 1500), "gpu-002/link.txt": OVERLAY.format(1500, 1500)}
    found = first(tmp_path, files)
    assert found.hypothesis.cause == "net.mtu_mismatch"
    assert found.probability < 0.8
    right = {name: OVERLAY.format(1500, 1450) for name in files}
    assert first(tmp_path / "right", right).hypothesis.cause in NOTHING


def test_a_container_larger_than_its_tunnel_needs_lost_packets_to_be_believed(tmp_path: Path) -> None:
    files = {"w-0/link.txt": POD, "gpu-001/link.txt": OVERLAY.format(1500, 1450)}
    assert first(tmp_path, files).hypothesis.cause in NOTHING
    found = first(tmp_path / "lost", {**files, "w-0/ping.txt": pinged(1400, 4) + pinged(1472, 0)})
    assert found.hypothesis.cause == "net.mtu_mismatch"
    assert any("overlay0" in one.says for one in found.hypothesis.because)


SENT = "13:0{}:00.104511 IP 10.9.1.3.51230 > 10.9.2.4.36715: Flags [.], seq 609:1997, ack 40, win 502, length 1388\n"
OTHER = "13:01:02.000001 IP 10.9.2.4.36715 > 10.9.1.3.51230: Flags [.], ack 609, win 500, length 0\n"


def test_a_segment_that_tcpdump_shows_again_and_again_is_stuck() -> None:
    text = SENT.format(0) + OTHER + "".join(SENT.format(n) for n in range(1, 7))
    assert tcpdump.fits(text, "")
    (one,) = tcpdump.read(text).sockets
    assert (one.state, one.mss, one.retransmits, one.acked) == ("ESTAB", 1388, 6, 609)
    got = text + OTHER.replace("ack 609", "ack 1997")
    assert tcpdump.read(got).sockets == ()


def test_what_tcpdump_shows_of_attempts_to_connect_is_read() -> None:
    syn = "IP 10.9.1.3.5000 > 10.9.2.4.29500: Flags [S], seq 77, win 64240, options [mss 1460], length 0\n"
    assert [one.state for one in tcpdump.read(syn * 4).sockets] == ["SYN-SENT"]
    reset = "IP 10.9.2.4.29500 > 10.9.1.3.5000: Flags [R.], seq 0, ack 78, win 0, length 0\n"
    assert [(one.port, one.why) for one in tcpdump.read(syn + reset).reaches] == [(29500, "refused")]
    told = "IP 10.9.2.4 > 10.9.1.3: ICMP host 10.9.2.4 unreachable - admin prohibited, length 68\n"
    assert [(one.port, one.why) for one in tcpdump.read(syn + told).reaches] == [(29500, "no route")]
    big = "IP 10.9.1.1 > 10.9.1.3: ICMP 10.9.2.4 unreachable - need to frag (mtu 1400), length 556\n"
    assert [(one.smaller, one.router) for one in tcpdump.read(big).pings] == [(1400, True)]


def test_the_end_that_takes_nothing_now_is_no_question_of_size() -> None:
    head = "State Recv-Q Send-Q Local Address:Port Peer Address:Port Process\n"
    row = "ESTAB 0 90000 10.0.0.1:50 10.0.0.2:60 timer:({},1min,9)\n\t cubic mss:8948 backoff:9 bytes_acked:50 cwnd:1\n"
    kinds = {timer: sockets.read(head + row.format(timer)).sockets[0].probes_window for timer in ("on", "persist")}
    assert kinds == {"on": False, "persist": True}


def test_ports_that_nmap_and_busybox_looked_at_are_read() -> None:
    text = "Nmap scan report for gpu-4 (10.0.0.4)\nHost is up.\n\nPORT STATE SERVICE\n"
    text += "22/tcp open ssh\n41000/tcp filtered unknown\n"
    assert [(one.port, one.why) for one in reach.read(text).reaches] == [(22, ""), (41000, "timed out")]
    line = "Host: 10.0.0.4 (gpu-4)\tPorts: 22/open/tcp//ssh///, 41000/closed/tcp/////\n"
    assert [(one.peer, one.why) for one in reach.read(line).reaches] == [("gpu-4", ""), ("gpu-4", "refused")]
    box = "10.4.7.3 (10.4.7.3:29500) open\nnc: 10.4.7.3 (10.4.7.3:43127): Connection timed out\n"
    assert [(one.port, one.why) for one in reach.read(box).reaches] == [(29500, ""), (43127, "timed out")]


# Names and policies -------------------------------------------------------------------------------------------------

SERVER = "Server:\t10.96.0.10\nAddress:\t10.96.0.10#53\n\n"
DIG = ";; ->>HEADER<<- opcode: QUERY, status: {}, id: 1\n;; QUESTION SECTION:\n;w-0.x.\t\tIN\tA\n{}"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("127.0.0.1 localhost\n10.0.0.2\thead head.cl # new\n", (("head", "10.0.0.2"), ("head.cl", "10.0.0.2"))),
        (f"{SERVER}Name:\tw-0.x\nAddress: 10.2.7.3\n", (("w-0.x", "10.2.7.3"),)),
        (f"{SERVER}** server can't find w-0.x: NXDOMAIN\n", (("w-0.x", ""),)),
        (DIG.format("NXDOMAIN", ""), (("w-0.x", ""),)),
        (DIG.format("NOERROR", ";; ANSWER SECTION:\nw-0.x.\t30\tIN\tA\t10.0.0.4\n"), (("w-0.x", "10.0.0.4"),)),
        ("head.cl has address 10.1.1.1\n", (("head.cl", "10.1.1.1"),)),
        ("ping: head: Name or service not known\n", (("head", ""),)),
    ],
)
def test_the_addresses_of_names_are_read(text: str, want: tuple[tuple[str, str], ...]) -> None:
    assert names.fits(text, "hosts")
    assert names.read(text).names == want


HOSTS = "127.0.0.1 localhost\n{} head\n10.0.0.7 gpu-007\n"
LATE = "DistNetworkError: The client socket has timed out after 60s while trying to connect to (head, 29500).\n"


def test_the_node_on_which_the_name_of_the_store_leads_elsewhere_is_named(tmp_path: Path) -> None:
    right = {f"gpu-00{n}/hosts": HOSTS.format("10.0.0.2") for n in (1, 2, 3)}
    files = {**right, "gpu-003/hosts": HOSTS.format("10.0.9.2"), "gpu-003/job.log": LATE}
    assert named(first(tmp_path, files)) == ("fw.rendezvous_failed", {"node": "gpu-003"})
    looped = {**right, "gpu-003/hosts": HOSTS.format("127.0.1.1"), "gpu-003/job.log": LATE}
    assert named(first(tmp_path / "loop", looped)) == ("fw.rendezvous_failed", {"node": "gpu-003"})


def test_names_that_are_no_meeting_place_say_nothing(tmp_path: Path) -> None:
    files = {f"gpu-00{n}/hosts": HOSTS.format(f"10.0.{n}.2") for n in (1, 2)}
    assert first(tmp_path, files).hypothesis.cause in NOTHING


POLICY = """apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: a
spec:
  podSelector: {{}}
  ingress:
  - from:
    - podSelector: {{}}
{}  policyTypes:
  - Ingress
"""


def test_policies_that_let_in_some_ports_only_are_filters_and_open_ones_are_not() -> None:
    some = POLICY.format("    ports:\n    - port: 29500\n      protocol: TCP\n")
    assert [one.text for one in network_policy.read(some).filters] == ["network policies let in only ports 29500"]
    assert network_policy.read(POLICY.format("")).filters == ()
    assert network_policy.read(some + "---\n" + POLICY.format("")).filters == ()
    told = "Name:         a\nSpec:\n  PodSelector:     <none>\n  Allowing ingress traffic:\n    To Port: 29500/TCP\n"
    assert network_policy.fits(told, "")
    assert len(network_policy.read(told).filters) == 1


def test_a_policy_beside_ranks_that_cannot_connect_is_named_and_alone_it_is_not(tmp_path: Path) -> None:
    policy = {"k8s/netpol.yaml": POLICY.format("    ports:\n    - port: 29500\n")}
    assert first(tmp_path, policy).hypothesis.cause in NOTHING
    line = (
        "w-1:7:9 [0] misc/socket.cc:538 NCCL WARN socketPollConnect: Connect to 10.4.7.3<43127> returned 110(Connection"
    )
    found = first(tmp_path / "b", {**policy, "w-1.log": line + " timed out) errno 115(Operation now in progress)\n"})
    assert found.hypothesis.cause == "net.bootstrap_blocked"


# Tables with a row per node, and what stands beside other things -----------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "node,iface,mtu\n" + "".join(f"gpu-{n},ens1f0,{1500 if n == 3 else 9000}\n" for n in range(1, 5)),
        "HOST    IFACE   MTU   STATE\n"
        + "".join(f"gpu-{n}  ens1f0  {1500 if n == 3 else 9000}  UP\n" for n in range(1, 5)),
        "$ pdsh -w gpu-[1-4] cat /sys/class/net/ens1f0/mtu\n"
        + "".join(f"gpu-{n}: {1500 if n == 3 else 9000}\n" for n in range(1, 5)),
    ],
)
def test_mtus_of_many_nodes_in_one_table_are_compared(tmp_path: Path, text: str) -> None:
    found = first(tmp_path, {"mtu.csv" if "," in text[:20] else "mtu.txt": text})
    assert (found.hypothesis.cause, found.hypothesis.subject["node"]) == ("net.mtu_mismatch", "gpu-3")


def test_settings_of_many_nodes_in_one_table_are_compared(tmp_path: Path) -> None:
    rows = "node,NCCL_ALGO,NCCL_DEBUG\n" + "".join(f"gpu-{n},{'Tree' if n == 2 else 'Ring'},INFO\n" for n in range(4))
    assert named(first(tmp_path, {"env.csv": rows})) == ("nccl.env_mismatch", {"node": "gpu-2"})
    assert by_rows("step,seconds,node\n1,2.0,a-1\n2,2.1,a-2\n") == []


def test_mtus_of_netstat_are_read() -> None:
    text = (
        "Kernel Interface table\nIface      MTU    RX-OK RX-ERR RX-DRP RX-OVR    TX-OK TX-ERR TX-DRP TX-OVR Flg\n"
        "ens1f0    9000   183321      0      0 0        183321      0      0      0 BMRU\n"
    )
    assert ip_link.fits(text, "")
    assert [(one.name, one.mtu, one.up) for one in ip_link.read(text).links] == [("ens1f0", 9000, True)]


DROPPED = (
    "[ 88{}.123456] [UFW BLOCK] IN={} OUT= MAC=aa SRC=10.0.0.1 DST=10.0.0.2 LEN=60 PROTO=TCP SPT=50 DPT={} SYN URGP=0\n"
)
LOST = (
    "gpu-1:7:9 [0] misc/socket.cc:538 NCCL WARN socketPollConnect: Connect to 10.0.0.2<41877> returned 110(Connection"
)


def test_packets_that_a_filter_logged_name_the_node_where_the_ports_are_those_of_the_job(tmp_path: Path) -> None:
    log = {"rank0.log": LOST + "Connection timed out) errno 115(Operation now in progress)\n"}
    found = first(tmp_path, {**log, "gpu-2/dmesg.txt": DROPPED.format(10, "ens1", 41877) * 3})
    assert named(found) == ("net.bootstrap_blocked", {"node": "gpu-2"})
    other = first(tmp_path / "b", {**log, "gpu-2/dmesg.txt": DROPPED.format(10, "ens1", 161) * 3})
    assert "filter" not in other.hypothesis.says
    assert first(tmp_path / "c", {"gpu-2/dmesg.txt": DROPPED.format(10, "ens1", 41877)}).hypothesis.cause in NOTHING


@pytest.mark.parametrize(
    "line",
    [
        "NCCL Progress 3[4477]: segfault at 0 ip 00007f11aa05a3f0 sp 00007f11 error 4 in libnccl.so.2[7f11aa000+1]",
        "traps: pt_main_thread[4477] general protection fault ip:7f11aa sp:7f11 in libnccl.so.2[7f11aa000+1]",
    ],
)
def test_a_crash_inside_the_library_that_the_kernel_saw_is_its_fault(tmp_path: Path, line: str) -> None:
    found = first(tmp_path, {"gpu-3/dmesg.txt": f"[ 8812.100000] {line}\n"})
    assert (found.hypothesis.cause, found.hypothesis.subject["node"]) == ("nccl.library_fault", "gpu-3")


def test_what_a_pod_ended_of_is_read_beside_its_environment(tmp_path: Path) -> None:
    text = "Name:         w-0\nNamespace:    x\nContainers:\n  t:\n    State:          Terminated\n"
    text += "      Reason:       OOMKilled\n      Exit Code:    137\n    Environment:\n      NCCL_ALGO:  Ring\n"
    assert first(tmp_path, {"describe.txt": text}).hypothesis.cause == "host.memory_oom_kill"


def test_options_of_pods_are_compared(tmp_path: Path) -> None:
    pod = (
        "Name:         w-{0}\nNamespace:    x\n    Command:\n      torchrun\n      --nnodes=2\n      --rdzv-id=job{0}\n"
    )
    text = "".join(pod.format(n) + "      --rdzv-endpoint=w-0:29400\n      t\n" for n in (0, 1))
    assert "run id job0 on w-0" in first(tmp_path, {"d.txt": text}).hypothesis.says


@pytest.mark.parametrize(
    "told", ["(2, {}, 5)", "lrwxrwxrwx 1 root root 17 Mar  1 10:00 /usr/lib/libnccl.so.2 -> libnccl.so.2.{}.5"]
)
def test_versions_of_nccl_are_compared_by_what_torch_or_a_link_says(tmp_path: Path, told: str) -> None:
    head = "$ pdsh -w gpu-[1-3] \"python -c 'import torch; print(torch.cuda.nccl.version())'\"\n"
    text = head + "".join(f"gpu-{n}: {told.format(18 if n == 2 else 21)}\n" for n in (1, 2, 3))
    found = first(tmp_path, {"p.txt": text})
    assert named(found) == ("host.library_mismatch", {"node": "gpu-2"})
    assert found.probability < 0.8


MISSED = "torch.distributed.DistStoreError: Timed out after 121 seconds waiting for clients. 3/4 clients joined.\n"
NO_ANSWER = (
    "[E602 11:02:05.100200300 socket.cpp:1028] [c10d] The client socket has timed out after 120000ms while trying to "
    "connect to (172.18.4.9, 29400).\nException raised from throwTimeoutError at socket.cpp:1030 (most recent call "
    "first):\nframe #0: c10::Error::Error() + 0x98 (0x7f0a in /opt/libc10.so)\n"
)
TURNED_AWAY = (
    "[W602 11:00:05.100200300 socket.cpp:752] [c10d] The client socket has failed to connect to [172.18.4.9]:29400 "
    "(errno: 111 - Connection refused).\n"
)


def test_a_store_that_waited_for_a_client_which_got_no_answer_of_it_is_blocked(tmp_path: Path) -> None:
    found = first(tmp_path, {"gn-1/rank0.log": MISSED, "gn-2/rank3.log": NO_ANSWER})
    assert found.hypothesis.cause == "net.bootstrap_blocked"
    refused = first(tmp_path / "r", {"gn-1/rank0.log": MISSED, "gn-2/rank3.log": TURNED_AWAY + NO_ANSWER})
    assert refused.hypothesis.cause == "fw.rendezvous_failed"  # something on that node answered
    alone = first(tmp_path / "a", {"gn-1/rank0.log": MISSED})
    assert alone.hypothesis.cause == "fw.rendezvous_failed"


def test_frames_of_an_exception_in_c_are_no_stack_of_python_and_leave_the_log_a_log(tmp_path: Path) -> None:
    (tmp_path / "rank3.log").write_text(NO_ANSWER)
    assert not intake.read([tmp_path]).unread


SENDS = "State Recv-Q Send-Q Local Address:Port Peer Address:Port\nSYN-SENT 0 1 172.18.4.10:51000 172.18.4.9:29400\n"
LISTENS = "State Recv-Q Send-Q Local Address:Port Peer Address:Port\nLISTEN 0 4096 *:29400 *:*\n"


def test_one_connection_that_waits_for_a_port_that_listens_tells_more_where_ranks_gave_up(tmp_path: Path) -> None:
    files = {"gn-1/ss.txt": LISTENS, "gn-2/ss.txt": SENDS}
    assert first(tmp_path, files).hypothesis.cause in NOTHING
    failed = first(tmp_path / "f", {**files, "gn-2/rank3.log": NO_ANSWER})
    assert "syn_unanswered_listening" in failed.hypothesis.signals


FACING = (
    "7: {0}@if8: <{1}> mtu 9000 qdisc mq state DOWN mode DEFAULT group default qlen 1000\n"
    "    link/ether 7a:42:72:fb:23:a8 brd ff:ff:ff:ff:ff:ff\n"
    "    RX:  bytes packets errors dropped  missed   mcast\n      {2}    3089      0       0       0       0 \n"
    "    TX:  bytes packets errors dropped carrier collsns\n      88120    2883      0       0       0       0 \n"
)
TRIED = (
    "State Recv-Q Send-Q Local Address:Port Peer Address:Port Process\n"
    "ESTAB 0      4096   192.168.40.{}:41001 192.168.40.{}:52002 timer:(on,2.1sec,{})\n"
)


def test_an_interface_that_was_switched_off_under_connections_that_now_get_no_answer_is_down(tmp_path: Path) -> None:
    off, lost = "BROADCAST,MULTICAST", "NO-CARRIER,BROADCAST,MULTICAST,UP"
    files = {
        "tr-1/ip.txt": FACING.format("ens9", off, 77001),
        "tr-2/ip.txt": FACING.format("ens9", lost, 66001),
        "tr-1/ss.txt": TRIED.format(1, 2, 6),
        "tr-2/ss.txt": TRIED.format(2, 1, 7),
    }
    found = first(tmp_path, files)
    assert (found.hypothesis.cause, found.hypothesis.subject["node"]) == ("ib.link_down", "tr-1")
    never = {**files, "tr-1/ip.txt": FACING.format("ens9", off, 0), "tr-2/ip.txt": FACING.format("ens9", lost, 0)}
    assert first(tmp_path / "never", never).hypothesis.cause in NOTHING  # a port that nobody uses
    quick = {**files, "tr-1/ss.txt": TRIED.format(1, 2, 1), "tr-2/ss.txt": TRIED.format(2, 1, 1)}
    assert first(tmp_path / "quick", quick).hypothesis.cause in NOTHING  # a packet or two were lost
