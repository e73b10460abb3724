"""Rendezvous, limits, native stacks and rings in further forms in which on-call people bring them."""

from __future__ import annotations

from pathlib import Path

import cattrs
import pytest

from probes.catalog.network.net_facts import Launch, Settings
from probes.intake.tools.training import native_stacks
from probes.stored import stored
from tests.test_network_forms import first, named, nccl

NOTHING = ("unknown", "none")


GAVE_UP = (
    "[rank{0}]:[E1203 04:33:04.02 ProcessGroupNCCL.cpp:688] [Rank {0}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=48, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600092 milliseconds "
    "before timing out.\n"
)


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


def test_an_abort_that_a_native_stack_shows_is_a_weak_sign_against_the_library(tmp_path: Path) -> None:
    text = "Thread 1 (Thread 0x7f (LWP 71)):\n#0  0x7f in pthread_join () from /lib64/libc.so.6\n"
    text += "#1  0x7f in ncclCommAbort () from /usr/lib/libnccl.so.2\n"
    found = first(tmp_path, {"gpu-001/pstack.txt": text})
    assert found.hypothesis.cause == "nccl.library_fault"
    assert found.probability < 0.6


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
