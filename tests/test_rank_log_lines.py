"""Every shape of line that rank.log knows: what it reads out of it, and that the node would have sent it.

The lines are written by hand after the formats of torch 1.10 to 2.13, NCCL 2.4 to 2.30, Slurm, tqdm and Python; the
right values are what the line says to a reader.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
import time
from typing import Any

import pytest

from probes.catalog.logs import reduce
from probes.catalog.logs.events import KINDS, LogEvent
from probes.catalog.logs.read import read_log
from tests.support.log_lines import LINES_OF_COMMUNICATION, LINES_OF_LAUNCHERS

C10 = "[rank7]:[E1206 18:44:12.715298746 ProcessGroupNCCL.cpp:607] "
WORK = (
    "WorkNCCL(SeqNum=42, OpType=ALLREDUCE, NumelIn=1024, NumelOut=512, Timeout(ms)=600000) ran for 600029 milliseconds"
)
INFO = "gpu-a:4100:4177 [3] NCCL INFO "
WARN = "gpu-a:4100:4177 [3] transport/net_ib.cc:1295 NCCL WARN "
IB = f"{WARN}NET/IB : Got completion from peer 10.0.0.4<41453> with "
DONE = "comm 0x55d0c8a0 rank 5 nranks 8"

LINES: list[tuple[str, str, dict[str, Any]]] = [
    *LINES_OF_COMMUNICATION,
    *LINES_OF_LAUNCHERS,
    # The watchdog, oldest first
    (
        "[E ProcessGroupNCCL.cpp:587] [Rank 1] Watchdog caught collective operation timeout: "
        "WorkNCCL(OpType=BROADCAST, Timeout(ms)=1800000) ran for 1802691 milliseconds before timing out.",
        "watchdog_timeout",
        {"rank": 1, "seq": None, "op": "BROADCAST", "sizes": (), "more.timeout_ms": 1800000, "more.ran_ms": 1802691},
    ),
    (
        "[E ProcessGroupNCCL.cpp:821] [Rank 1] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=42, OpType=BROADCAST, Timeout(ms)=1800000) ran for 1802691 milliseconds before timing out.",
        "watchdog_timeout",
        {"rank": 1, "seq": 42, "sizes": ()},
    ),
    (
        f"{C10}[PG 1 Rank 2] Watchdog caught collective operation timeout: {WORK} before timing out.",
        "watchdog_timeout",
        {"rank": 7, "seq": 42, "op": "ALLREDUCE", "sizes": (1024, 512), "group": "1", "more.group_rank": 2},
    ),
    (
        f"[E1206 18:44:12.7 P.cpp:616] [PG ID 0 PG GUID 0(default_pg) Rank 1] Watchdog caught collective: {WORK}",
        "watchdog_timeout",
        {"rank": 1, "group": "0", "more.group_name": "default_pg"},
    ),
    (
        f"[E1206 18:44:12.7 P.cpp:616] [PG ID 3 PG GUID 7 Rank 1] Watchdog caught collective: {WORK}",
        "watchdog_timeout",
        {"rank": None, "group": "7", "more.group_rank": 1},
    ),
    (
        "[rank3]:[E801 09:00:00.1 ProcessGroupNCCL.cpp:1537] [PG 1 Rank 3] Timeout at NCCL work: 158046, "
        "last enqueued NCCL work: 158047, last completed NCCL work: 158045.",
        "watchdog_status",
        {
            "rank": 3,
            "seq": 158046,
            "group": "1",
            "more.enqueued": 158047,
            "more.completed": 158045,
            "stamp": "08-01 09:00:00",
        },
    ),
    (
        f"{C10}[PG 1 Rank 0] Exception (either an error or timeout) detected by watchdog at work: 7753, "
        "last enqueued NCCL work: 7755, last completed NCCL work: 7752.",
        "watchdog_status",
        {"seq": 7753, "more.enqueued": 7755, "more.completed": 7752},
    ),
    (
        f"{C10}[PG ID 1 PG GUID 1 Rank 1]  failure detected by watchdog at work sequence id: 1 PG status: "
        "last enqueued work: 547, last completed work: -1",
        "watchdog_status",
        {"seq": 1, "more.enqueued": 547, "more.completed": -1, "group": "1"},
    ),
    (
        f"{C10}[PG ID 0 PG GUID 0(default_pg) Rank 7] Received a dump signal due to a collective timeout from this "
        "local rank and we will try our best to dump the debug info. Last enqueued NCCL work: 20589, last completed "
        "NCCL work: 20584.This is most likely caused by incorrect usages",
        "dump_signal",
        {"more.enqueued": 20589, "more.completed": 20584, "about": ()},
    ),
    (
        f"{C10}[PG ID 0 PG GUID 0(default_pg) Rank 7] Received a dump signal due to a collective timeout from  rank 1 "
        "and we will try our best to dump the debug info. Last enqueued NCCL work: 5, last completed NCCL work: 5.This",
        "dump_signal",
        {"about": (1,), "more.enqueued": 5, "more.completed": 5},
    ),
    ("Observed flight recorder dump signal from another rank via TCPStore.", "dump_signal", {}),
    ("Dump signal received through pipe, triggering FR dump.", "dump_signal", {}),
    (f"{C10}First PG on this rank to signal dumping.", "dump_signal", {"rank": 7}),
    (
        "[rank0]:[I1206 18:44:12.7 F.cpp:99] Finished writing Flight Recorder debug info to /scratch/fr_0",
        "dump_written",
        {"where": "/scratch/fr_0"},
    ),
    (
        "Finished writing NCCLPG debug info to /tmp/nccl_trace_rank_0",
        "dump_written",
        {"where": "/tmp/nccl_trace_rank_0"},
    ),
    (
        "Error opening file for writing Flight Recorder debug info: /home/a/.cache/torch/x0",
        "dump_failed",
        {"where": "/home/a/.cache/torch/x0"},
    ),
    (
        'Failed to check the "should dump" flag on TCPStore, (maybe TCPStore server has shut down too early)',
        "dump_failed",
        {},
    ),
    ("remote error detected from rank: 12", "remote_error", {"about": (12,), "secondary": True}),
    (
        "ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued "
        "collectives. This typically indicates a NCCL/CUDA API (e.g., CudaEventDestroy) hang",
        "heartbeat",
        {"more.stuck_s": 480},
    ),
    (
        "Heartbeat monitor timed out! Process will be terminated after dumping debug info. workMetaList_.size()=121",
        "heartbeat",
        {},
    ),
    (
        "/srv/moe/route.py:61: UserWarning: called a synchronizing CUDA operation (Triggered internally at a.cpp:3.)",
        "sync_warned",
        {"where": "/srv/moe/route.py:61"},
    ),
    ("Could not acquire GIL within 300 ms on exit, possible GIL induced hang", "gil_stuck", {"more.waited_ms": 300}),
    (f"{C10}{WORK[:75]}) timed out in blocking wait.", "blocking_wait", {"op": "ALLREDUCE"}),
    ("To avoid data inconsistency, we are taking the entire process down.", "watchdog_ended", {"secondary": True}),
    ("[Rank 14] NCCL watchdog thread terminated with exception: ...", "watchdog_ended", {"rank": 14}),
    ("Terminating the process after attempting to dump debug info, due to collective timeout.", "watchdog_ended", {}),
    # The desync report
    (
        "\t     [7] finished collective #182, but didn't join collective #183 (count from 1)",
        "desync",
        {"about": (7,), "seq": 182, "more.next": 183, "name": "never joined", "secondary": False},
    ),
    (
        "\t   - [3, 4] joined but didn't finish collective #9 (count from 1)",
        "desync",
        {"about": (3, 4), "seq": 9},
    ),
    ("\t - [0] Timeout at collective: ALLREDUCE, #315", "desync", {"op": "ALLREDUCE", "seq": 315, "secondary": True}),
    (
        "\t - To our best knowledge, ranks [2, 5] are the lagging ranks that caused this timeout. "
        "They never joined any collectives",
        "desync",
        {"about": (2, 5), "name": "never joined any"},
    ),
    # Who differs, who is missing
    (
        "Detected mismatch between collectives on ranks. Rank 2 is running collective: CollectiveFingerPrint("
        "SequenceNumber=5, OpType=ALLGATHER, TensorShape=[41, 3], TensorDtypes=Float, "
        "TensorDeviceTypes=TensorOptions(dtype=float (default))), but Rank 1 is running collective: "
        "CollectiveFingerPrint(SequenceNumber=5, OpType=ALLGATHER, TensorShape=[40, 3], TensorDtypes=Float",
        "collective_mismatch",
        {"seq": 5, "op": "ALLGATHER", "sizes": (41, 3), "about": (1,), "more.reporter": 2, "more.peer_shape": "40, 3"},
    ),
    (
        "[enforce fail at /w/gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 1368 vs 684. "
        "Received data size doesn't match expected size. Is there a distributed collective mismatch in your code?",
        "collective_mismatch",
        {"more.received": 1368, "more.expected": 684},
    ),
    (
        "[Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 5000 ms",
        "barrier_missed",
        {"about": (1, 3), "more.reporter": 0, "more.timeout_ms": 5000},
    ),
    (
        "Rank 2 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0. "
        "Please check rank 0 logs for faulty rank.",
        "barrier_victim",
        {"more.waiting": 2, "more.asked": 0, "secondary": True},
    ),
    (
        "Parameter indices which did not receive grad for rank 1: 2 3",
        "ddp_unused",
        {"about": (1,), "more.parameters": "2 3"},
    ),
    # gloo, stores, rendezvous
    (
        "[/w/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 22000ms for recv operation to complete",
        "gloo_timeout",
        {"op": "recv", "more.timeout_ms": 22000},
    ),
    (
        "[/w/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:898. This is typically caused by a "
        "remote worker crashing.",
        "peer_closed",
        {"peer": "[127.0.0.1]:898", "secondary": True},
    ),
    (
        "[/w/gloo/transport/tcp/pair.cc:537] Read error [10.1.0.7]:42139: Connection reset by peer.",
        "peer_closed",
        {"peer": "[10.1.0.7]:42139", "secondary": True},
    ),
    (
        "[1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', "
        "but store->get('0') got error: Timeout waiting for key: default_pg/0/0 after 1800000 ms",
        "setup_missed",
        {"about": (0,), "more.key": 0},
    ),
    (
        "[c10d] waitForInput: poll for socket SocketImpl(fd=44) returned 0, timed out after 1800000ms",
        "store_timeout",
        {"more.timeout_ms": 1800000},
    ),
    (
        "wait timeout after 300000ms, keys: /default_pg/0//cuda//timeout_dump",
        "store_timeout",
        {"more.timeout_ms": 300000},
    ),
    ("Timeout waiting for key: default_pg/0/0 after 1800000 ms", "store_timeout", {"more.key": "default_pg/0/0"}),
    (
        "[c10d] recvBytes failed on SocketImpl(fd=3, addr=[n1]:1, remote=[n2]:2): Connection reset by peer",
        "store_closed",
        {"secondary": True},
    ),
    ("RuntimeError: The server socket has failed to listen on any local network address. EADDRINUSE", "rendezvous", {}),
    (
        "[c10d] The client socket has failed to connect to any network address of (gpu-a, 29500).",
        "rendezvous",
        {"peer": "(gpu-a, 29500)", "name": "failed to connect"},
    ),
    (
        "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",
        "rendezvous",
        {"name": "RendezvousTimeoutError"},
    ),
    (
        "srun: error: Task launch for StepId=7.0 failed on node fox3: Invalid job credential",
        "credential",
        {"peer": "fox3", "name": "Invalid job credential"},
    ),
    ("error: Munge decode failed: Rewound credential", "credential", {"name": "Rewound credential"}),
    ("kinit: Clock skew too great while getting initial credentials", "credential", {"name": "Clock skew too great"}),
    # NCCL: InfiniBand
    (
        f"{IB}error 12, opcode 0, len 0, vendor err 129",
        "ib_completion",
        {
            "peer": "10.0.0.4<41453>",
            "code": 12,
            "name": "retries exhausted",
            "more.vendor_err": 129,
            "secondary": False,
        },
    ),
    (
        f"{IB}status=12 opcode=1 len=0 vendor err 129 (Send) localGid fe80::1 remoteGids fe80::2",
        "ib_completion",
        {"code": 12, "more.opcode": 1, "more.vendor_err": 129, "more.request": "Send", "more.remote_gid": "fe80::2"},
    ),
    (
        f"{WARN}NET/IB: Got completion from peer 10.0.0.4<41453> with status=5 opcode=32557 len=0 vendor err 249 "
        "(Recv) localGid ::ffff:10.0.0.3 remoteGids::ffff:10.0.0.4 hca mlx5_3",
        "ib_completion",
        {"code": 5, "name": "flushed", "secondary": True, "where": "mlx5_3", "more.remote_gid": "::ffff:10.0.0.4"},
    ),
    (
        f"{WARN}NET/IB: Got completion from peer 10.0.0.4<41453> with status=IBV_WC_RETRY_EXC_ERR(12) "
        "opcode=IBV_WC_SEND(0) reqSize=0 vendor_err=129 req_type=Send localGid fe80::1 remoteGids fe80::2 hca mlx5_0",
        "ib_completion",
        {"code": 12, "where": "mlx5_0", "more.opcode": 0, "more.vendor_err": 129, "more.request": "Send"},
    ),
    (f"{WARN}NET/IB : Got async event : port error", "ib_async", {"name": "port error"}),
    (f"{WARN}NET/IB : mlx5_0:1 Got async event : port error", "ib_async", {"name": "port error", "where": "mlx5_0:1"}),
    (f"{WARN}NET/IB : mlx5_0:1 async fatal event: local catastrophic error", "ib_async", {"where": "mlx5_0:1"}),
    (f"{WARN}NET/IB : mlx5_2:1 Got non-fatal async event: client reregistration(17)", "ib_async", {"code": 17}),
    (f"{WARN}NET/IB : mlx5_2:1 GID table changed", "ib_async", {"where": "mlx5_2:1"}),
    # NCCL: others
    (
        "gpu-a:41:49 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer gpu-b<41453>",
        "peer_closed",
        {"peer": "gpu-b<41453>", "secondary": True},
    ),
    (
        f"{INFO}[Service thread] Connection closed by localRank 2",
        "peer_closed",
        {"more.local_rank": 2, "secondary": True},
    ),
    (
        "gpu-a:41:49 [0] socket.cc:538 NCCL WARN Net : Call to recv from gpu-b<41453> failed : Connection timed out",
        "bootstrap",
        {"peer": "gpu-b<41453>", "name": "Connection timed out", "more.call": "recv"},
    ),
    (
        "gpu-a:41:49 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.0.0.4<41453> failed : "
        "Software caused connection abort",
        "bootstrap",
        {"peer": "10.0.0.4<41453>", "name": "Software caused connection abort"},
    ),
    (f"{WARN}Bootstrap Root : mismatch in rank count from procs 8 : 16", "bootstrap", {}),
    (f"{WARN}Mismatched NCCL version detected : rank 3", "nccl_version_mismatch", {"about": (3,)}),
    (
        f"{WARN}Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000",
        "duplicate_gpu",
        {"rank": 0, "about": (1,), "more.bus": 1000},
    ),
    (f"{WARN}Multiple Ranks are using the same GPU/Partition. Set NCCL_MULTI_RANK_GPU_ENABLE=1", "duplicate_gpu", {}),
    (f"{WARN}Cuda failure 'out of memory'", "cuda_error", {"name": "out of memory"}),
    (f"{WARN}Cuda failure 719 'unspecified launch failure'", "cuda_error", {"name": "unspecified launch failure"}),
    (f"{WARN}Call to posix_fallocate failed: extend of /dev/shm/nccl-a1B to 33554944 bytes", "shm_full", {}),
    (f"{WARN}NET/Plugin: something new", "nccl_warn", {"name": "NET/Plugin: something new"}),
    (f"{INFO}transport/net.cc:870 -> 2", "nccl_propagation", {"where": "transport/net.cc:870", "code": 2}),
    (
        "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:219, "
        "unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.14.3",
        "nccl_error",
        {"where": "../torch/csrc/distributed/c10d/NCCLUtils.hpp:219", "more.version": "2.14.3"},
    ),
    ("ncclRemoteError: A call failed possibly due to a network error", "nccl_error", {"name": "ncclRemoteError"}),
    (
        f"{INFO}ncclCommInitRankConfig {DONE} cudaDev 5 nvmlDev 5 busId 9b000 commId 0xab12 - Init START",
        "nccl_init_start",
        {"group": "0xab12", "more.comm_rank": 5, "more.ranks": 8, "more.cuda": 5},
    ),
    (
        f"{INFO}{DONE} cudaDev 5 busId 9b000 - Init COMPLETE",
        "nccl_init_done",
        {"more.comm": "0x55d0c8a0", "more.bus": "9b000"},
    ),
    (
        f"{INFO}comm 0x55d0c8a0 rank 5 nRanks 8 nNodes 2 localRanks 4 localRank 1 MNNVL 0",
        "nccl_topology",
        {"more.nodes": 2, "more.local_ranks": 4},
    ),
    (f"{INFO}Ring 00 : 7 -> 0 -> 1", "nccl_ring", {"more.prev": 7, "more.me": 0, "more.next": 1}),
    (f"{INFO}Channel 00/02 :    0   1   2   3", "nccl_ring", {"more.order": "   0   1   2   3", "more.channels": 2}),
    (f"{INFO}Trees [0] 1/8/-1->0->-1 [1] 1/-1/-1->0->8", "nccl_tree", {"name": "[0] 1/8/-1->0->-1 [1] 1/-1/-1->0->8"}),
    (
        f"{INFO}16 coll channels, 0 collnet channels, 8 nvls channels, 24 p2p channels, 2 p2p channels per peer",
        "nccl_channels",
        {"more.coll": 16, "more.nvls": 8, "more.per_peer": 2},
    ),
    (f"{INFO}Connected all rings, use ring PXN 0 GDR 1", "nccl_channels", {"name": "Connected all rings"}),
    (f"{INFO}Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read", "nccl_link", {"name": "P2P/CUMEM/read", "more.to": 1}),
    (f"{INFO}Channel 01 : 0[1b000] -> 1[43000] via SHM/direct/direct", "nccl_link", {"name": "SHM/direct/direct"}),
    (
        f"{INFO}Channel 02/0 : 3[3] -> 8[0] [send] via NET/IB/0/GDRDMA",
        "nccl_link",
        {"name": "NET/IB/0/GDRDMA", "more.direction": "send", "more.from": 3},
    ),
    (f"{INFO}Channel 00/0 : 8[0] -> 3[3] [receive] via NET/Socket/0", "nccl_link", {"name": "NET/Socket/0"}),
    (f"{INFO}Using network IB", "nccl_net", {"name": "IB"}),
    (
        f"{INFO}NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>",
        "nccl_net",
        {"name": "NET/IB", "more.devices": "[0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>"},
    ),
    (f"{INFO}NET/IB : No device found.", "nccl_net", {"more.devices": "No device found"}),
    ("NCCL version 2.27.7+cuda12.8", "nccl_version", {"name": "2.27.7+cuda12.8"}),
    (
        f"{INFO}AllReduce: opCount 13a0 sendbuff 0x7f0 recvbuff 0x7f1 count 554400 datatype 7 op 0 root 0 comm 0x5b2 "
        "[nranks=128] stream 0x6a",
        "nccl_call",
        {"op": "AllReduce", "sizes": (554400,), "more.op_count": "13a0", "more.comm": "0x5b2"},
    ),
    # The program
    (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79 GiB",
        "cuda_error",
        {"name": "CUDA out of memory", "more.asked": "2.00 GiB"},
    ),
    (
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "cuda_error",
        {"name": "an illegal memory access was encountered"},
    ),
    ("CUDA error: uncorrectable ECC error encountered", "cuda_error", {"name": "uncorrectable ECC error encountered"}),
    ("CUDA error: unknown error", "cuda_error", {"name": "unknown error"}),
    ("RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `x`", "cuda_error", {}),
    ("Fatal Python error: Segmentation fault", "fatal_signal", {"name": "Segmentation fault"}),
    (
        "terminate called after throwing an instance of 'c10::DistBackendError'",
        "fatal_signal",
        {"name": "c10::DistBackendError", "secondary": True},
    ),
    ("terminate called after throwing an instance of 'gloo::EnforceNotMet'", "fatal_signal", {"secondary": False}),
    ("Signal 9 (SIGKILL) received by PID 6767", "fatal_signal", {"code": -9, "name": "SIGKILL", "more.pid": 6767}),
    (
        "*** SIGSEGV (@0x0) received by PID 12 (TID 0x7f) from PID 0; stack trace: ***",
        "fatal_signal",
        {"name": "SIGSEGV"},
    ),
    ("[gpu-a:12:0:99] Caught signal 11 (Segmentation fault: address not mapped)", "fatal_signal", {"code": -11}),
    ("Signal 15 (SIGTERM) received by PID 7", "torchrun_signal", {"code": -15, "secondary": True}),
    (
        "slurmstepd: error: *** STEP 812.0 ON gpu-a CANCELLED AT 2026-11-29T14:13:49 DUE TO TIME LIMIT ***",
        "scheduler_kill",
        {"peer": "gpu-a", "name": "TIME LIMIT", "more.step": "812.0"},
    ),
    ("slurmstepd: error: Detected 1 oom_kill event in StepId=812.0.", "scheduler_kill", {"name": "oom_kill event"}),
    ("srun: error: gpu-a: task 3: Killed", "scheduler_kill", {"about": (3,), "name": "Killed", "secondary": False}),
    (
        "srun: error: gpu-b: tasks 8,10-12: Exited with exit code 1",
        "scheduler_kill",
        {"about": (8, 10, 11, 12), "name": "Exited with exit code 1"},
    ),
    ("srun: error: gpu-c: tasks 16-17: Terminated", "scheduler_kill", {"about": (16, 17), "secondary": True}),
    (
        "W1129 14:11:45.208000 12549 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 18955 "
        "closing signal SIGTERM",
        "torchrun_signal",
        {"more.pid": 18955, "stamp": "11-29 14:11:45", "secondary": True},
    ),
    (
        "E1129 14:17:38.387000 15612 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -9) "
        "local_rank: 2 (pid: 18957) of binary: /opt/venv/bin/python3.11",
        "torchrun_failure",
        {"code": -9, "more.local_rank": 2, "more.pid": 18957, "secondary": False},
    ),
    (
        "RuntimeError: DataLoader worker (pid(s) 1234, 1235) exited unexpectedly",
        "loader_killed",
        {"more.pids": "1234, 1235"},
    ),
    (
        "RuntimeError: DataLoader worker (pid 1234) is killed by signal: Killed. ",
        "loader_killed",
        {"name": "Killed", "more.pid": 1234},
    ),
    (
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm). "
        "It is possible that dataloader's workers are out of shared memory.",
        "shm_full",
        {},
    ),
    ("RuntimeError: unable to write to file </torch_77_1>: No space left on device (28)", "shm_full", {}),
    ("RuntimeError: DataLoader timed out after 120 seconds", "loader_timeout", {"more.timeout_s": 120}),
    ("step 12 loss=nan", "nan", {}),
    ("Epoch 4: 100%|##| 5/5 [00:09<00:00, v_num=3, train_loss=nan.0]", "nan", {}),
    ("found NaN on this rank: skipping step", "nan", {}),
    ("Saving checkpoint to /ckpt/step_800", "checkpoint", {"name": "Sav"}),
    ("torch._dynamo hit config.recompile_limit (8)", "compiling", {"name": "recompile_limit"}),
    ("grad.4 [missing ranks: 3, 5]", "desync", {"about": (3, 5), "name": "missing in Horovod"}),
    ("3: [DistributedOptimizer_Allreduce/grad.4, x]", "desync", {"about": (3,)}),
    ("Building extension module cpu_adam...", "compiling", {"name": "cpu_adam"}),
    ("Loading extension module cpu_adam...", "compiling", {"name": "built"}),
    ("Time to load cpu_adam op: 31.2 seconds", "compiling", {"name": "built"}),
    ("Emitting ninja build file /c/build.ninja...", "compiling", {}),
    ("> building document index and sample index on rank 0 ...", "preparing", {}),
    ("evaluating: 120/500 batches", "progress", {"name": "evaluating", "more.done": 120, "more.total": 500}),
    ("| number of nan iterations:   3 |", "nan", {}),
    ("Exception: Current loss scale already at minimum", "nan", {"name": "loss scale"}),
    ("Uploading consolidated state_dict to s3://m/step_9", "checkpoint", {"name": "Upload"}),
    ("Tokenized 4,000 of 90,000 samples", "progress", {"name": "Tokenized", "more.done": "4,000"}),
    (
        "[rank2]:[W911 17:20:44.000000957 ProcessGroup.hpp:940] Warning: At the time of process termination, there are "
        "still 27 unwaited collective calls.",
        "unwaited",
        {"rank": 2, "more.calls": 27},
    ),
    ("[rank3]: CUDASanitizerErrors: detected 4 errors", "stream_race", {"rank": 3, "more.races": 4}),
    ("CSAN detected a possible data race on tensor with data pointer 140377000000512", "stream_race", {}),
    (
        "RuntimeError: disagreement between rank0 and rank5: rank0: [7, 8], rank5: [8, 7]",
        "collective_mismatch",
        {"rank": 5, "name": "list of another rank"},
    ),
    ("[rank1]:   - Process 2: [4, 128]", "collective_mismatch", {"about": (2,), "more.shape": "[4, 128]"}),
    (
        "torch.multiprocessing.spawn.ProcessExitedException: process 6 terminated with signal SIGSEGV",
        "torchrun_failure",
        {"about": (6,), "code": -11},
    ),
    (
        "Tokenising:  88%|████████▊ | 440/500 [29:51<04:04,  4.07s/it]",
        "progress",
        {"name": "Tokenising", "more.percent": 88, "more.done": 440, "more.total": 500, "more.elapsed": "29:51"},
    ),
    (
        " iteration      800/  500000 | consumed samples: 1 | lm loss: 2.41E+00 | grad norm: 1.2",
        "progress",
        {"seq": 800, "more.total": 500000, "more.loss": "2.41E+00"},
    ),
]


def value(event: LogEvent, path: str) -> Any:
    field, _, key = path.partition(".")
    found = getattr(event, field)
    return found.get(key) if key else found


@pytest.mark.parametrize(("line", "kind", "says"), LINES, ids=[f"{n}-{kind}" for n, (_, kind, _) in enumerate(LINES)])
def test_a_line_becomes_the_event_that_it_tells(line: str, kind: str, says: dict[str, Any]) -> None:
    events, left_off = read_log(line)
    assert [event.kind for event in events][:1] == [kind], [(event.kind, event.name) for event in events]
    assert {path: value(events[0], path) for path in says} == says
    assert left_off == 0 and events[0].line == 1


@pytest.mark.parametrize("line", [line for line, _, _ in LINES])
def test_the_node_sends_every_line_that_the_parser_knows(line: str) -> None:
    """Far from the beginning and the end of a file that is otherwise without interest."""
    data = b"nothing to see\n" * 50 + line.encode() + b"\n" + b"nothing to see\n" * 50
    sent = [text for _, _, text in reduce.chosen_lines(data)[0]]
    assert " ".join(line.splitlines())[: reduce.LINE] in sent


def test_every_kind_of_event_has_a_line_here_or_a_test_of_its_own() -> None:
    blocks = {"traceback", "step_times"}
    assert set(KINDS) - {kind for _, kind, _ in LINES} == blocks


def test_a_line_in_the_middle_of_a_bar_is_still_read() -> None:
    """tqdm ends its lines with a carriage return, and two ranks may write at once."""
    text = f" 45%|####| 3/7 [00:10<00:12, 3s/it]{C10}[Rank 7] Watchdog caught: {WORK}\r 50%|##| 4/8 [00:10<00:12]\n"
    events, _ = read_log(text)
    assert [(event.kind, event.rank) for event in events] == [("progress", None), ("watchdog_timeout", 7)]
    assert events[0].more["done"] == 4  # of progress the newest counts


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("A" * 200_000_000, "one line of 200 MB"),
        ("[" * 9000 + "\n" + "Rank 1 is running collective: CollectiveFingerPrint(" * 3000, "brackets and repeats"),
        ("async event" + " " * 8000 + "x", "blanks before no end"),
        (("x" * 50 + " via " + "Channel 00 : ") * 600, "half of a link"),
        ("[rank1]:[E1" * 700 + "last completed" * 500, "glued pieces without end"),
    ],
    ids=lambda part: part if len(part) < 40 else "",
)
def test_hostile_lines_cost_no_more_than_their_length(text: str, why: str) -> None:
    began = time.process_time()
    read_log(text)
    assert time.process_time() - began < 3.0 + len(text) / 100e6, why


def test_of_thousands_of_lines_that_match_the_first_and_the_last_are_kept() -> None:
    lines = [f"[rank{n % 8}]:[E1206 18:44:12.7 P.cpp:1] Watchdog: {WORK.replace('42', str(n))}" for n in range(30_000)]
    events, left_off = read_log("\n".join(lines))
    assert len(events) == 1024 + 16 and left_off == 30_000 - 1040
    assert [event.seq for event in events][:2] == [0, 1] and events[-1].seq == 29_999


def test_lines_that_say_the_same_are_one_event_with_a_count() -> None:
    events, _ = read_log(
        "\n".join([f"2026-11-29 14:13:49,1 {INFO}Channel 0{n}/0 : 0[0] -> 1[1] via P2P/IPC" for n in range(4)])
    )
    assert [(event.kind, event.count) for event in events] == [("nccl_link", 4)]


def reduced(data: bytes, budget: int = 100_000, name: str = "x.log") -> tuple[dict[str, Any], list[str]]:
    with tempfile.TemporaryFile() as handle:
        handle.write(data)
        handle.seek(0)
        head, _, rest = reduce.reduced(handle, name, budget).partition("\n")
    return json.loads(head), rest.split("\n") if rest else []


def test_of_a_huge_file_the_beginning_and_the_end_are_read() -> None:
    """2 GB of nothing between the two lines that matter; a sparse file stands for it."""
    with tempfile.TemporaryFile() as handle:
        handle.write(b"NCCL version 2.27.7+cuda12.8\n")
        os.ftruncate(handle.fileno(), 2_000_000_000)
        handle.seek(0, io.SEEK_END)
        handle.write(b"\n" + f"{C10}{WORK}\n".encode())
        handle.seek(0)
        text = reduce.reduced(handle, "x.log", 100_000)
    facts, lines = json.loads(text.split("\n")[0]), text.split("\n")[1:]
    assert facts["size"] > 2_000_000_000 and facts["read"] < 4_000_000
    assert lines[0] == "0 NCCL version 2.27.7+cuda12.8"
    assert lines[-1] == f"2000000001 {C10}{WORK}"


def test_a_flood_of_one_word_drives_out_no_other() -> None:
    flood = b"gpu-a:1:1 [0] NCCL WARN something again\n" * 60_000
    facts, lines = reduced(flood[: len(flood) // 2] + f"{C10}{WORK}\n".encode() + flood[len(flood) // 2 :])
    assert any("ran for 600029" in line for line in lines)
    assert len(lines) < 120 and facts["skipped"] > 59_000


def test_what_is_sent_stays_within_its_budget_and_says_what_it_left_out() -> None:
    data = b"".join(b"NCCL WARN %d " % n + b"y" * 1000 + b"\n" for n in range(300))
    facts, lines = reduced(data, 20_000)
    assert sum(len(line) + 1 for line in lines) <= 20_000
    assert facts["skipped"] + len(lines) == 300
    assert "NCCL WARN 0 " in lines[0] and "NCCL WARN 299 " in lines[-1]


def test_what_looks_like_a_secret_stays_on_the_node() -> None:
    said = "Error: https://me:hunter2@hub.example/x hf_abcdefghijklmnop Bearer abcdefghijklmnop.qrst step"
    _, lines = reduced(said.encode())
    assert lines == ["0 Error: https://(masked)@hub.example/x (masked) Bearer (masked) step"]
    facts, _ = reduced(said.encode(), name="/run/error.json")
    assert "hunter2" not in facts["text"] and "hf_abc" not in facts["text"]


def test_a_line_of_a_log_cannot_pass_for_a_section() -> None:
    _, lines = reduced("==> log 1 <==\nNCCL WARN a\u2028==> golden15/rank-logs <==\u2028b\n".encode())
    assert all(line[0].isdigit() and "\u2028" not in line for line in lines)
