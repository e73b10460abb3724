"""Networks, environments and set-up in further forms in which on-call people bring them."""

from __future__ import annotations

import json
from pathlib import Path

import cattrs
import pytest

from probes.catalog._net_facts import Launch, Settings
from probes.intake.pasted import parts_of
from probes.intake.tools import environment, names, native_stacks, network_policy, reach, sockets, tcpdump
from probes.stored import stored
from tests.test_network_forms import first, named, nccl

NOTHING = ("unknown", "none")


# Environments -------------------------------------------------------------------------------------------------------


def envs(text: str) -> dict[str, dict[str, str]]:
    assert environment.fits(text, "env.txt")
    return {owner: dict(env) for owner, env in environment.read(text).envs.items()}


def test_environments_of_several_containers_are_read_from_docker_inspect() -> None:
    told = [{"Name": f"/{n}", "Config": {"Hostname": n, "Env": [f"NCCL_ALGO={v}", "PATH=/bin"]}}
        for n, v in (("c1", "Ring"), ("c2", "Tree"))]  # fmt: skip
    assert envs(json.dumps(told, indent=4)) == {"c1": {"NCCL_ALGO": "Ring"}, "c2": {"NCCL_ALGO": "Tree"}}


def test_environments_of_pods_are_read_from_json_yaml_and_describe() -> None:
    def pod(name: str, value: str) -> dict[str, object]:
        env = [{"name": "NCCL_PROTO", "value": value}]
        return {"metadata": {"name": name}, "spec": {"containers": [{"name": "main", "image": "x", "env": env}]}}

    want = {"w-0": {"NCCL_PROTO": "LL"}, "w-1": {"NCCL_PROTO": "Simple"}}
    assert envs(json.dumps({"items": [pod("w-0", "LL"), pod("w-1", "Simple")]})) == want
    yaml = "kind: Pod\nmetadata:\n  name: {}\nspec:\n  containers:\n  - env:\n    - name: NCCL_PROTO\n      value: {}\n"
    assert envs(yaml.format("w-0", "LL") + "---\n" + yaml.format("w-1", '"Simple"')) == want
    words = "Name:         {}\nNamespace:    x\n    Environment:\n      NCCL_PROTO:  {}\n"
    assert envs(words.format("w-0", "LL") + "\n" + words.format("w-1", "Simple")) == want


def test_environments_of_ranks_are_read_from_prefixes_and_differences() -> None:
    srun = "0: NCCL_ALGO=Ring\n1: NCCL_ALGO=Ring\n2: NCCL_ALGO=Tree\n"
    assert envs(srun)["rank 2"] == {"NCCL_ALGO": "Tree"}
    mpi = "".join(f"[1,{n}]<stdout>:FI_PROVIDER={v}\n" for n, v in ((0, "efa"), (9, "tcp")))
    assert envs(mpi) == {"rank 0": {"FI_PROVIDER": "efa"}, "rank 9": {"FI_PROVIDER": "tcp"}}
    unified = "--- /tmp/gpu-1.env\n+++ /tmp/gpu-2.env\n@@ -3 +3 @@\n-NCCL_ALGO=Ring\n+NCCL_ALGO=Tree\n"
    assert envs(unified) == {"gpu-1": {"NCCL_ALGO": "Ring"}, "gpu-2": {"NCCL_ALGO": "Tree"}}
    assert envs("2c2\n< NCCL_NET=IB\n---\n> NCCL_NET=Socket\n")["the second"] == {"NCCL_NET": "Socket"}


def test_the_log_of_a_job_is_no_environment() -> None:
    assert not environment.fits("NCCL_DEBUG=INFO\nn1:1:1 [0] NCCL INFO Bootstrap : Using eth0\n", "job.log")
    assert not environment.fits("step 1\nstep 2\nstep 3\nNCCL_DEBUG=INFO\n", "job.log")


def test_the_rank_whose_environment_is_unlike_the_others_is_named(tmp_path: Path) -> None:
    files = {f"rank{n}.env": f"RANK={n}\nWORLD_SIZE=4\nNCCL_PROTO={'LL' if n == 2 else 'Simple'}\n" for n in range(4)}
    cause, subject = named(first(tmp_path, files))
    assert (cause, subject["rank"]) == ("nccl.env_mismatch", 2)


def test_a_library_path_that_hides_the_plugin_explains_the_slower_network(tmp_path: Path) -> None:
    shell = '$ for h in gpu-1 gpu-2; do echo "== $h"; ssh $h cat /tmp/env.$h; done\n== gpu-1\n{}\n== gpu-2\n{}\n'
    paths = [f"LD_LIBRARY_PATH={extra}/usr/local/cuda/lib64\nNCCL_DEBUG=INFO" for extra in ("/opt/nccl-ofi/lib:", "")]
    logs = nccl("gpu-1", 0, "Using network AWS Libfabric") + nccl("gpu-2", 1, "Using network Socket")
    found = first(tmp_path, {"paste.txt": shell.format(*paths), "job.log": logs})
    assert found.hypothesis.cause == "nccl.env_mismatch"
    assert [one.cause for one in found.consequences] == ["nccl.topology_degraded"]


def test_a_library_path_that_differs_elsewhere_says_nothing(tmp_path: Path) -> None:
    files = {f"gpu-00{n}/env.txt": f"LD_LIBRARY_PATH=/home/u{n}/lib\nNCCL_DEBUG=INFO\n" for n in (1, 2, 3)}
    assert first(tmp_path, files).hypothesis.cause in NOTHING


def test_turns_of_a_loop_are_parts_of_its_nodes() -> None:
    text = '$ for n in cn{07..08} 10.0.0.9; do echo "[$n]"; ssh $n id; done\n'
    text += "[cn07]\na\n[cn08]\nb\n10.0.0.9:\nc\n$ uptime\nd\n"
    assert [(part.nodes, part.text.strip()) for part in parts_of(text)] == [
        (("cn07",), "a"), (("cn08",), "b"), (("10.0.0.9",), "c"), ((), "d"),
    ]  # fmt: skip


# Checkpoints --------------------------------------------------------------------------------------------------------

GAVE_UP = (
    "[rank{0}]:[E1203 04:33:04.02 ProcessGroupNCCL.cpp:688] [Rank {0}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=48, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600092 milliseconds "
    "before timing out.\n"
)


@pytest.mark.parametrize(
    "wrote",
    [
        "uploading shard_00.distcp to s3: 41 of 300 GiB",
        "writing model.safetensors 12% ",
        "flushed optim_states/00.pt 3/64",
    ],
)
def test_the_rank_that_says_how_much_of_its_file_is_written_is_named(tmp_path: Path, wrote: str) -> None:
    text = "saving checkpoint at iteration 90\n" + "".join(f"[rank3] {wrote}\n" for _ in range(3))
    found = first(tmp_path, {"out.log": text + "".join(GAVE_UP.format(n) for n in (0, 1, 2, 4, 5))})
    assert (found.hypothesis.cause, found.hypothesis.subject["rank"]) == ("fw.checkpoint_stall", 3)


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


# Rendezvous ---------------------------------------------------------------------------------------------------------

AGENT = "/opt/conda/lib/python3.10/site-packages/torch/distributed/elastic"
OVER = "\nDuring handling of the above exception, another exception occurred:\n\n"


def raised(name: str, *files: str) -> str:
    frames = "".join(f'  File "{file}", line 7, in f\n    g()\n' for file in files)
    return f"Traceback (most recent call last):\n{frames}{name}\n"


def test_what_an_agent_met_on_the_way_to_its_rendezvous_is_no_end_of_a_rank(tmp_path: Path) -> None:
    store = f"{AGENT}/rendezvous/c10d_rendezvous_backend.py"
    last = "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection has failed."
    text = raised("TimeoutError: timed out", "/opt/conda/lib/python3.10/socket.py") + OVER + raised(last, store)
    found = first(tmp_path, {f"w-{n}.log": text for n in (0, 1, 2)})
    assert found.hypothesis.cause == "fw.rendezvous_failed"
    assert not found.consequences
    etcd = raised("OSError: [Errno 113] No route to host", "/usr/lib/python3.10/socket.py") + OVER
    etcd += raised("etcd.EtcdConnectionFailed: Connection to etcd failed due to None", "/x/etcd/client.py")
    assert first(tmp_path / "etcd", {f"w-{n}.log": etcd for n in (0, 1)}).hypothesis.cause == "fw.rendezvous_failed"


def test_an_exception_raised_over_another_still_ends_its_rank(tmp_path: Path) -> None:
    text = raised("KeyError: 'loss'", "/app/a.py") + OVER + raised("ValueError: no loss", "/app/b.py")
    found = first(tmp_path, {"rank2.log": text, "rank0.log": GAVE_UP.format(0), "rank1.log": GAVE_UP.format(1)})
    assert (found.hypothesis.cause, found.hypothesis.subject["rank"]) == ("fw.rank_exited", 2)


TYPED = "{}$ torchrun --nnodes {} --rdzv_backend=c10d --rdzv-endpoint={} --rdzv_id {} --nproc_per_node 8 t.py\n"


def started(*commands: tuple[str, str, str, str]) -> dict[str, str]:
    return {"tmux.txt": "".join(TYPED.format(*command) + "^C\n" for command in commands)}


def test_nodes_that_were_started_under_two_run_ids_never_meet(tmp_path: Path) -> None:
    found = first(tmp_path, started(("gpu-1", "2", "head:29400", "a"), ("gpu-2", "2", "head:29400", "b")))
    assert found.hypothesis.cause == "fw.rendezvous_failed"
    assert "run id" in found.hypothesis.says
    assert found.probability < 0.8 or "meeting_failed" in found.hypothesis.signals


@pytest.mark.parametrize(
    ("second", "says"),
    [(("gpu-2", "3", "head:29400", "a"), "number of nodes"), (("gpu-2", "2", "head:29500", "a"), "port"), (None, "")],
)
def test_other_options_that_nodes_must_share_are_compared(
    tmp_path: Path, second: tuple[str, str, str, str] | None, says: str
) -> None:
    found = first(tmp_path, started(("gpu-1", "2", "head:29400", "a"), second or ("gpu-2", "2", "head:29400", "a")))
    assert says in found.hypothesis.says
    assert (found.hypothesis.cause == "fw.rendezvous_failed") == bool(second)


def test_two_jobs_on_two_nodes_are_no_disagreement(tmp_path: Path) -> None:
    files = started(("gpu-1", "1", "gpu-1:29400", "a"), ("gpu-2", "1", "gpu-2:29400", "b"))
    assert first(tmp_path, files).hypothesis.cause in NOTHING


def test_one_rank_of_a_node_given_twice_is_found_in_tables_of_processes(tmp_path: Path) -> None:
    row = "  PID S COMMAND\n  410 S python -m torch.distributed.launch --nnodes=2 --node_rank={} --master_addr=h1 t\n"
    files = {"gpu-001/ps.txt": row.format(0), "gpu-002/ps.txt": row.format(0)}
    assert "rank of the node 0" in first(tmp_path, files).hypothesis.says
    assert first(tmp_path / "b", {**files, "gpu-002/ps.txt": row.format(1)}).hypothesis.cause in NOTHING


def test_agents_that_list_another_run_id_in_their_logs_disagree(tmp_path: Path) -> None:
    rows = (
        "I0729 06:12:00 api.py:188]   run_id           : {}\nI0729 06:12:00 api.py:188]   rdzv_endpoint    : h:29400\n"
    )
    files = {f"gpu-00{n}/agent.log": rows.format(f"j{n}") for n in (1, 2)}
    assert "run id j1" in first(tmp_path, files).hypothesis.says


# Limits that are shorter than the work ------------------------------------------------------------------------------


def gave_up_all(limit_ms: int) -> str:
    return "".join(GAVE_UP.format(n) for n in range(4)).replace("600000", str(limit_ms))


@pytest.mark.parametrize(
    "step",
    [
        "step {n} loss 2.1 step_s {s}", "step={n} loss=2.1 iter_time_ms={ms}", "step {n}: loss 2.1, time {ms}ms",
        "step {n} | loss 2.1 | train_step_timing in s: {s}", '{{"step": {n}, "loss": 2.1, "step_time": {s}}}',
        "completed step: {n}, seconds: {s}, loss: 2.1", "2025-03-01 10:{m}:00,000 INFO step {n} loss 2.1",
    ],
)  # fmt: skip
def test_a_limit_near_to_the_time_of_a_step_is_suspected_in_whatever_words_it_is_told(
    tmp_path: Path, step: str
) -> None:
    rows = "".join(step.format(n=n, s=f"{60 + n / 10:.1f}", ms=60000 + n, m=10 + n) + "\n" for n in range(5))
    found = first(tmp_path, {"job.log": rows + gave_up_all(70_000)})
    assert found.hypothesis.cause == "fw.timeout_too_short"
    assert "takes 60 s" in found.hypothesis.says


def test_one_long_step_is_not_how_long_steps_take(tmp_path: Path) -> None:
    rows = "step 1 loss 2.1 step_s 95.0\n" + "".join(f"step {n} loss 2.1 step_s 3.1\n" for n in range(2, 9))
    rows += "step 9 loss 2.1 step_s 80.0\n"
    found = first(tmp_path, {"job.log": rows + gave_up_all(60_000)})
    assert found.hypothesis.cause != "fw.timeout_too_short"


DMON = "#Time        gpu    pwr  gtemp     sm    mem   pclk\n#HH:MM:SS    Idx      W      C      %      %    MHz\n"


def test_gpus_that_work_until_the_limit_speak_for_it_and_those_that_wait_do_not(tmp_path: Path) -> None:
    rows = "".join(f"step {n} loss 2.1 step_s 61.0\n" for n in range(5)) + gave_up_all(70_000)

    def share(name: str, watts: int) -> float:
        dmon = DMON + "".join(f" 10:11:0{n}   {n % 4}   {watts}   60   99   50   1980\n" for n in range(8))
        return first(tmp_path / name, {"job.log": rows, "gpu-1.dmon": dmon}).probability

    assert share("works", 640) > share("waits", 140)


# Stacks of native code ----------------------------------------------------------------------------------------------

SPINS = """Thread 9 (Thread 0x7f52f1bfe640 (LWP 71) "python"):
#0  0x00007f569c51899f in __GI___poll (fds=0x7f, nfds=1, timeout=-1) at ../sysdeps/unix/sysv/linux/poll.c:29
#1  0x00007f56510ff2b1 in ncclPollProxyResponse (comm=0x56, opId=0x7f) at proxy.cc:1203
#2  0x00007f565110022e in ncclProxyCallBlocking (comm=0x56) at proxy.cc:1257

Thread 4 (Thread 0x7f5634dfe640 (LWP 88) "NCCL Service 2"):
#0  0x00007f569c528b87 in {inner} (fd=61) at ../sysdeps/unix/sysv/linux/x.c:32
#1  0x00007f56510f1b54 in {middle} (sock=0x7f) at misc/socket.cc:690
#2  0x00007f5651102a8d in ncclProxyService (_args=0x7f) at proxy.cc:1611
"""
EU = "PID 60 - process\nTID 71:\n#0  0x00007f569c51899f __poll\n#1  0x00007f56510ff2b1 ncclPollProxyResponse\n"
CORE = """           PID: 4410 (python)
        Signal: {number} ({word})
                Stack trace of thread 4477:
                #0  0x00007f11aa ncclTopoTune (libnccl.so.2 + 0x5a3f0)
                #1  0x00007f11ab n/a (libnccl.so.2 + 0x6a001)
                #2  0x00007f11ac start_thread (libc.so.6 + 0x94ac3)
"""


def test_native_stacks_are_read_from_several_tools() -> None:
    one = native_stacks.read(SPINS.format(inner="accept4", middle="ncclSocketAccept"))
    assert [(thread.tid, thread.name) for thread in one.threads] == [(71, "python"), (88, "NCCL Service 2")]
    assert one.threads[1].frames == ("accept4", "ncclSocketAccept", "ncclProxyService")
    assert native_stacks.fits(EU, "")
    assert native_stacks.read(EU).threads[0].frames == ("__poll", "ncclPollProxyResponse")
    core = native_stacks.read(CORE.format(number=11, word="SEGV"))
    assert (core.pid, core.signal, core.threads[0].frames[0]) == (4410, 11, "ncclTopoTune@libnccl.so")
    bare = "Program terminated with signal SIGSEGV, Segmentation fault.\n"
    bare += "#0  0x7f in f () from /lib/libx.so.1\n#1  0x7f in g ()\n"
    assert native_stacks.fits(bare, "")
    assert native_stacks.read(bare).signal == 11


def test_a_service_thread_that_is_stuck_in_taking_a_connection_is_the_fault_of_the_library(tmp_path: Path) -> None:
    text = SPINS.format(inner="accept4", middle="ncclSocketAccept")
    warned = "gpu-001:60:88 [2] misc/socket.cc:484 NCCL WARN socketFinalizeAccept: wrong magic 2f20544547 != 79706\n"
    found = first(tmp_path, {"gpu-001/gdb.txt": text, "gpu-001/job.log": warned})
    assert named(found) == ("nccl.library_fault", {"node": "gpu-001"})
    waits = SPINS.format(inner="poll", middle="ncclProxyGetPostedOps")
    assert first(tmp_path / "well", {"gpu-001/gdb.txt": waits}).hypothesis.cause in NOTHING


def test_a_core_that_ended_inside_the_library_is_its_crash_and_an_abort_is_not(tmp_path: Path) -> None:
    found = first(tmp_path, {"gpu-001/coredump.txt": CORE.format(number=11, word="SEGV")})
    assert found.hypothesis.cause == "nccl.library_fault"
    aborted = first(tmp_path / "b", {"gpu-001/coredump.txt": CORE.format(number=6, word="ABRT")})
    assert aborted.hypothesis.cause in NOTHING


def test_what_is_kept_of_an_environment_and_of_a_stack_comes_back_from_the_database() -> None:
    told = Settings(envs={"rank 1": {"NCCL_ALGO": "Ring"}}, launches=(Launch("gpu-1", (("nnodes", "2"),)),))
    back = stored("gpu-1", "host.settings", "ok", "", cattrs.unstructure(told), [])
    assert back.facts == told
    stacks = native_stacks.read(CORE.format(number=11, word="SEGV"))
    assert stored("gpu-1", "rank.native", "ok", "", cattrs.unstructure(stacks), []).facts == stacks


# Rings --------------------------------------------------------------------------------------------------------------


def rings(node: str, rank: int, intra: str, speed: str, *more: str) -> str:
    line = f"Pattern 4, crossNic 0, nChannels 4, bw {speed}/{speed}, type {intra}/PIX, sameChannels 1"
    return nccl(node, rank, line, *more)


def test_the_node_whose_rings_are_worse_than_those_of_the_others_is_named(tmp_path: Path) -> None:
    files = {f"{n}.log": rings(f"gpu-{n}", n, *(("PHB", "12.0") if n == 2 else ("NVL", "40.0"))) for n in (0, 1, 2)}
    assert named(first(tmp_path, files)) == ("nccl.topology_degraded", {"node": "gpu-2"})
    alike = {f"{n}.log": rings(f"gpu-{n}", n, "NVL", "38.0" if n == 2 else "40.0") for n in (0, 1, 2)}
    assert first(tmp_path / "b", alike).hypothesis.cause in NOTHING


def test_rings_in_the_order_of_gpus_where_other_nodes_found_paths_are_named(tmp_path: Path) -> None:
    gave_up = "gpu-1:410:410 [0] graph/search.cc:1094 NCCL WARN Could not find a path for pattern 4, "
    gave_up += "falling back to simple order\n"
    files = {"0.log": rings("gpu-0", 0, "XGMI", "40.0"), "1.log": gave_up + rings("gpu-1", 1, "XGMI", "0.1")}
    assert named(first(tmp_path, files)) == ("nccl.topology_degraded", {"node": "gpu-1"})


GRAPH = (
    '<graphs version="1">\n <graph id="0" pattern="4" nchannels="{}" speedintra="{}" typeintra="{}" typeinter="SYS">\n'
)
GRAPH += '  <channel><net dev="0"/><gpu dev="0"/><gpu dev="1"/><net dev="0"/></channel>\n </graph>\n</graphs>\n'
TOPO = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV12\t0-31\nGPU1\tNV12\t X \t0-31\n"


def test_a_file_of_rings_that_leaves_nvlink_aside_is_suspected_and_a_fitting_one_is_not(tmp_path: Path) -> None:
    said = "NCCL_GRAPH_FILE set by environment to /opt/g.xml"
    loaded = "Search 0 : 1 channels loaded from XML graph"
    files = {"job.log": nccl("gpu-1", 0, said, loaded), "gpu-1/topo.txt": TOPO}
    bad = first(tmp_path, {**files, "gpu-1/g.xml": GRAPH.format(1, 12, "PHB")})
    assert bad.hypothesis.cause == "nccl.topology_degraded"
    good = first(tmp_path / "good", {**files, "gpu-1/g.xml": GRAPH.format(12, 20, "NVL")})
    assert good.hypothesis.cause in NOTHING


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
