"""Lines of NCCL, torch and launchers with the values that they tell a reader, for test_rank_log_lines.py.

Written by hand after the formats that NCCL's and torch's sources print; node names, pids and addresses are our own.
"""

from __future__ import annotations

from typing import Any

INFO = "gpu-a:4100:4177 [3] NCCL INFO "
WARN = "gpu-a:4100:4177 [3] misc/ibvwrap.cc:309 NCCL WARN "
SOCKET = "gpu-a:4100:4177 [3] misc/socket.cc:544 NCCL WARN "
Told = list[tuple[str, str, dict[str, Any]]]

LINES_OF_COMMUNICATION: Told = [
    # Verbs that fail: with words only (to 2.18), with words and number (2.19), number first and both ends (2.24)
    (
        f"{WARN}Call to ibv_modify_qp failed with error Connection timed out",
        "ib_route",
        {"code": 110, "name": "Connection timed out", "more.host": "gpu-a", "more.of_pid": 4100},
    ),
    (f"{WARN}Call to ibv_modify_qp failed with error Invalid argument errno 22", "ib_route", {"code": 22}),
    (
        f"{WARN}Call to ibv_modify_qp failed with 101 Network is unreachable, on dev mlx5_4:1, curr state INIT, "
        "next state RTR, local GID index 1, local GID  fe80::e61d:2dff, remote GID ::ffff:10.1.4.7",
        "ib_route",
        {
            "code": 101,
            "where": "mlx5_4:1",
            "more.gid_index": 1,
            "more.local_gid": "fe80::e61d:2dff",
            "more.remote_gid": "::ffff:10.1.4.7",
            "secondary": False,
        },
    ),
    (
        f"{INFO}Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_4:1, curr state INIT, next "
        "state RTR, local GID index 3, local GID ::, remote GID ::, retrying 1/4 after 100 msec of sleep",
        "ib_route",
        {"code": 110, "more.local_gid": "::", "secondary": True},
    ),
    (
        f"{WARN}Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory",
        "ib_resource",
        {"op": "ibv_reg_mr_iova2", "code": 12},
    ),
    (f"{WARN}Call to ibv_create_qp failed with error Unknown error -12", "ib_resource", {"code": 12}),
    (f"{WARN}Call to ibv_create_cq failed with error No space left on device errno 28", "ib_resource", {"code": 28}),
    (
        f"{WARN}NET/OFI Couldn't enable endpoint. RC: -12, ERROR: Cannot allocate memory",
        "ib_resource",
        {"op": "enable endpoint", "code": 12},
    ),
    (
        "libfabric:81:1741101122::efa:ep_ctrl:efa_base_ep_create_qp():247<warn> ibv_create_qp_ex failed. errno: 12",
        "ib_resource",
        {"op": "ibv_create_qp_ex", "code": 12},
    ),
    (f"{WARN}Call to ibv_create_qp failed", "ib_resource", {"op": "ibv_create_qp", "code": None}),
    (
        "[1764468000.123456] [gpu-a:4121 :0] ib_iface.c:1034 UCX  ERROR iface=0x55d0: failed to create RC QP TX wr:256 "
        "sge:6 inl:64 resp:0 RX wr:0 sge:0 resp:0: Cannot allocate memory",
        "ib_resource",
        {"op": "create RC QP", "name": "Cannot allocate memory"},
    ),
    (
        "[1764468000.1] [gpu-a:412 :0] ib_mlx5_log.c:171 UCX  ERROR Transport retry count exceeded on mlx5_1:1/IB "
        "(synd 0x15 vend 0x81 hw_synd 0/0)",
        "ib_completion",
        {"code": 12, "where": "mlx5_1:1", "more.host": "gpu-a"},
    ),
    (
        "[gpu-a:4121] btl_tcp_endpoint.c:626: connect() to 192.168.122.1 failed: Connection refused (111)",
        "bootstrap",
        {"name": "Connection refused", "peer": "192.168.122.1", "more.host": "gpu-a"},
    ),
    ("[E1130 03:01:12.1 device.cc:84] Unable to find address for: ib9", "bootstrap", {"where": "ib9"}),
    ("allocate some locked memory.  This typically can indicate that the", "ib_resource", {"op": "some locked memory"}),
    # Adapters of other makers
    (
        "n1: n1: n1:149:298 [5] register_mr_buffers:465 NCCL WARN NET/OFI Unable to register memory (type = 1) for "
        "device 0. RC: 12, Error: Cannot allocate memory",
        "ib_resource",
        {"op": "register memory", "code": 12, "more.host": "n1", "more.of_pid": 149},
    ),
    (
        "gpu-a:1:2 [0] transport/net_ib.cc:99 NCCL WARN NET/IB : bnxt_re0:1 async fatal event: device fatal",
        "ib_async",
        {"where": "bnxt_re0:1", "name": "device fatal"},
    ),
    # Connections, 2.4 to 2.30
    (
        f"{SOCKET}Net : Connect to 10.0.0.4<41453> failed : No route to host",
        "bootstrap",
        {"peer": "10.0.0.4<41453>", "name": "No route to host"},
    ),
    (
        f"{SOCKET}socketPollConnect: Connect to 10.0.0.4<41453> returned 113(No route to host) errno 115(In progress)",
        "bootstrap",
        {"peer": "10.0.0.4<41453>", "name": "No route to host"},
    ),
    (
        "gpu-a:1:1 [3] os/linux.cc:200 NCCL WARN ncclOsSocketPollConnect: connect to 10.0.0.4<36141> returned "
        "Connection refused, exceeded error retry count after 35 attempts",
        "bootstrap",
        {"peer": "10.0.0.4<36141>", "name": "Connection refused"},
    ),
    (f"{SOCKET}socketPollConnect: exceeded timeouts (20000)", "bootstrap", {"name": "exceeded timeouts"}),
    (
        f"{INFO}socketPollConnect: connect to 10.0.0.4<36141> returned Connection refused, retrying (3/34) after sleep",
        "nccl_retry",
        {"peer": "10.0.0.4<36141>", "name": "Connection refused"},
    ),
    (f"{INFO}Call to connect returned Connection refused, retrying", "nccl_retry", {"name": "Connection refused"}),
    (
        f"{SOCKET}socketProgressOpt: Call to recv from 10.0.0.4<36141> failed : Connection reset by peer",
        "peer_closed",
        {"peer": "10.0.0.4<36141>", "secondary": True},
    ),
    (f"{SOCKET}No interface found in the same subnet as remote address 10.0.0.4<36141>", "bootstrap", {}),
    (f"{INFO}Bootstrap : Using eth0:10.0.0.1<0>", "nccl_net", {"name": "Bootstrap"}),
    (f"{INFO}Bootstrap: Using docker0:172.17.0.1<0>", "nccl_net", {"more.devices": "docker0:172.17.0.1<0>"}),
    (
        "RuntimeError: [/w/gloo/transport/tcp/pair.cc:144] timed out connecting: SO_ERROR: Connection refused, "
        "remote=[10.0.0.4]:41453",
        "bootstrap",
        {"peer": "[10.0.0.4]:41453", "name": "Connection refused"},
    ),
    ("RuntimeError: [/w/gloo/transport/tcp/pair.cc:799] connect timeout [10.0.0.4]:5353", "bootstrap", {}),
    (
        "RuntimeError: [/w/gloo/transport/tcp/pair.cc:769] connect [127.0.1.1]:39011: Connection refused",
        "bootstrap",
        {"name": "Connection refused", "peer": "[127.0.1.1]:39011"},
    ),
    ("RuntimeError: Gloo connectFullMesh failed with [../pair.cc:144] no error", "bootstrap", {}),
    # Settings, GPUDirect, MTU
    ("NCCL_ALGO set by environment to Tree", "nccl_setting", {"name": "NCCL_ALGO", "more.value": "Tree"}),
    (
        f"{INFO}NET/OFI Initializing aws-ofi-nccl 1.14.0-aws",
        "nccl_setting",
        {"name": "aws-ofi-nccl", "more.value": "1.14.0-aws"},
    ),
    (f"{INFO}NCCL_IB_HCA set by environment to mlx5.", "nccl_setting", {"name": "NCCL_IB_HCA", "more.value": "mlx5"}),
    (
        f"{INFO}NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'",
        "nccl_gdr",
        {"name": "Disabled", "where": "mlx5_0"},
    ),
    (
        f"{INFO}NET/IB : GPU Direct RDMA (nvidia-peermem) enabled for HCA 1 'mlx5_1",
        "nccl_gdr",
        {"name": "enabled", "where": "mlx5_1"},
    ),
    (f"{INFO}GPU Direct RDMA Disabled for GPU 7 / HCA 0 (distance 4 > 3)", "nccl_gdr", {"name": "Disabled"}),
    (f"{INFO}NET/IB: Dev 0 Port 1 qpn 4211 mtu 3 LID 12", "nccl_qp", {"more.mtu": 3}),
    (
        f"{INFO}NET/IB: IbDev 2 Port 1 qpn 4211 mtu 5 query_ece={{supported=1}} GID 3 (80FE/1) fifoRkey=0x1",
        "nccl_qp",
        {"more.mtu": 5, "more.dev": 2},
    ),
    # The topology of a machine: graph/xml.cc, graph/topo.cc; maxWidth up to 2.12
    (
        "gpu-a:4100:4177 [3] graph/xml.cc:412 NCCL WARN Could not open XML topology file /etc/vm.xml : No such file",
        "nccl_topo_file",
        {"name": "Could not open", "where": "/etc/vm.xml", "more.why": "No such file"},
    ),
    (f"{INFO}Loading topology file /etc/vm.xml", "nccl_topo_file", {"name": "Loading", "where": "/etc/vm.xml"}),
    (
        f"{INFO}=== System : maxBw 24.0 totalBw 300.0 ===",
        "nccl_system",
        {"more.most": "24.0", "more.total": "300.0"},
    ),
    (f"{INFO}=== System : maxWidth 6.0 totalWidth 12.0 ===", "nccl_system", {"more.most": "6.0"}),
    (f"{INFO}              + NVL[300.0] - NVS/0", "nccl_hop", {"name": "NVL"}),
    (f"{INFO}          + PCI[24.0] - GPU/1B000 (3)", "nccl_hop", {"name": "PCI"}),
    (
        "GPU 0: NVIDIA A40 (UUID: GPU-11111111-2222-3333-4444-555555555555)",
        "gpu_name",
        {"name": "NVIDIA A40"},
    ),
    (
        f"{WARN}Mismatched NCCL version detected : rank 3 version 22703 rank 0 version 22705",
        "nccl_version_mismatch",
        {"about": (3,), "more.version": 22703, "more.other": 0, "more.other_version": 22705},
    ),
    ("  5  /usr/lib/x86_64-linux-gnu/libnccl.so.2(ncclLocalOpAppend+0x1b) [0x7f]", "nccl_frame",
        {"name": "ncclLocalOpAppend"}),
    # torch
    (
        "[rank3]:[E1206 18:44:12.7 P.cpp:1] [PG 0 Rank 3] Received a timeout signal from this local rank and will "
        "start to dump the debug info. Last enqueued NCCL work: 42, last completed NCCL work: 41.",
        "dump_signal",
        {"more.enqueued": 42, "more.completed": 41},
    ),
    (
        "Parameter at index 192 with name blocks.11.mlp.fc2.weight has been marked as ready twice. This means that "
        "multiple autograd engine hooks have fired",
        "hook_order",
        {"name": "blocks.11.mlp.fc2.weight", "more.parameters": 192},
    ),
    ("RuntimeError: Expected to mark a variable ready only once. This error is caused by", "hook_order", {}),
    (
        "[W1129 14:13:49.1 socket.cpp:752] [c10d] The client socket has failed to connect to [gpu-a]:29500 "
        "(errno: 111 - Connection refused).",
        "rendezvous",
        {"name": "failed to connect", "peer": "[gpu-a]", "code": 111},
    ),
    (
        "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to connect to "
        "(10.0.0.1, 29500).",
        "rendezvous",
        {"name": "timed out", "peer": "(10.0.0.1, 29500)"},
    ),
    (
        "[c10d] The IPv4 network addresses of (gpu-z, 29500) cannot be retrieved (gai error: -2 - Name or service not "
        "known).",
        "rendezvous",
        {"peer": "(gpu-z, 29500)", "name": "cannot be retrieved"},
    ),
    (
        "The node 'gpu-a_1_0' has failed to send a keep-alive heartbeat to the rendezvous 'j1' due to an error of type",
        "rendezvous",
        {"name": "keep-alive"},
    ),
]  # fmt: skip

LINES_OF_LAUNCHERS: Told = [
    (
        "OpenBLAS blas_thread_init: pthread_create failed for thread 12 of 96: Resource temporarily unavailable",
        "threads_refused",
        {"name": "96"},
    ),
    ("libgomp: Thread creation failed: Resource temporarily unavailable", "threads_refused", {"name": "libgomp"}),
    (
        "OMP: Error #34: System unable to allocate necessary resources for OMP thread:",
        "threads_refused",
        {"name": "OMP"},
    ),
    (
        "srun: error: Task launch for StepId=7.0 failed on node gn-3: Protocol authentication error",
        "credential",
        {"peer": "gn-3", "name": "Protocol authentication error"},
    ),
    (
        "[rank0] 04:24:02 wrote optim.pt    92.4 / 1091.8 GB  1.54 GB/s",
        "checkpoint",
        {"rank": 0},
    ),
    (
        "ERROR:composer.cli.launcher:Rank 3 crashed with exit code 139.",
        "torchrun_failure",
        {"about": (3,), "code": -11},
    ),
    (
        "Worker ID: 92 Worker IP address: 10.0.3.9 Worker port: 10013 Worker PID: 991 Worker exit type: SYSTEM_ERROR",
        "torchrun_failure",
        {"more.host": "10.0.3.9", "more.pid": 991},
    ),
    ("Detected KeyboardInterrupt, attempting graceful shutdown ...", "agent_signal", {"name": "SIGINT"}),
    ("exiting program after receiving SIGTERM.", "agent_signal", {"name": "SIGTERM"}),
    ("PyTorchJob a was active longer than specified deadline", "scheduler_kill", {"name": "TIME LIMIT"}),
    ("2025-06-03T10:11:12.331Z job.exception type=cancel severity=0", "scheduler_kill", {"name": "CANCELLED"}),
    (
        "Subject: Slurm Job_id=881 Name=sft Ended, Run time 03:10:14, CANCELLED, ExitCode 0",
        "scheduler_kill",
        {"name": "CANCELLED"},
    ),
    ("\tvia condor_rm (by user ana)", "scheduler_kill", {"name": "CANCELLED"}),
    ("004 (881.000.000) 2025-06-03 10:11:12 Job was evicted.", "scheduler_kill", {"name": "PREEMPTED"}),
    ("deleted_by   ana", "scheduler_kill", {"name": "CANCELLED"}),
    ("requeing job 88121...", "scheduler_kill", {"name": "JOB REQUEUE"}),
    ("Requeued SLURM job: 88121", "scheduler_kill", {"name": "JOB REQUEUE"}),
    ("- Caught signal SIGUSR2 on n12: this job is timed-out.", "scheduler_kill", {"name": "TIME LIMIT"}),
    ("Run was stopped: cancelled by user", "scheduler_kill", {"name": "CANCELLED"}),
    ("RuntimeError: Function 'MulBackward0' returned nan values in its 0th output.", "nan", {"name": "ends on NaN"}),
    ("AssertionError: Rank 21: found NaN in local forward loss calculation.", "nan", {"rank": 21}),
    (" 1 0x000000000006c1f1 ncclProxyProgress()  /build/src/proxy.cc:882", "nccl_frame", {"name": "ncclProxyProgress"}),
    ("{'eval_loss': 1.2, 'eval_runtime': 812.3}", "phase_time", {"more.wait_ms": 812300}),
    ("val mAP 0.371 took 117 s", "phase_time", {"name": "val", "more.wait_ms": 117000}),
    ("[batch=120/5000]:", "progress", {"name": "batch", "seq": 120}),
    # The end of the work
    (
        "I0311 08:59:04.002000 5100 torch/distributed/elastic/agent/server/api.py:864] [default] worker group "
        "successfully finished. Waiting 300 seconds for other agents to finish.",
        "finished",
        {"stamp": "03-11 08:59:04"},
    ),
    ("[2026-10-01 08:38:24,105] [INFO] [launch.py:351:main] Process 71 exits successfully.", "finished", {}),
    ("{'train_runtime': 2211.8, 'train_loss': 0.41, 'epoch': 2.0}", "finished", {"more.seconds": 2211}),
    ("`Trainer.fit` stopped: `max_epochs=3` reached.", "finished", {"name": "epochs"}),
    ("[after training is done] datetime: 2026-01-02 03:04:05", "finished", {}),
    ("2026-05-06 07:08:09 | INFO | fairseq_cli.train | done training in 3721.2 seconds", "finished", {}),
    ("Training completed. Do not forget to share your model", "finished", {"name": "completed"}),
    ("Finished training!", "finished", {}),
    ("2026-04-18 16:27:24,402 INFO loop: max_steps 12000 reached", "finished", {"name": "steps"}),
    ("wrapper: torchrun exited with code 0", "finished", {}),
    ("step 12/500 loss=2.1 step_time=95.2s", "progress", {"seq": 12, "more.step_ms": 95200}),
    ("iteration 12 took 950 ms", "progress", {"more.step_ms": 950}),
    ("    @     0x7f3a5c0d1e2b ncclLocalOpAppend", "nccl_frame", {"name": "ncclLocalOpAppend"}),
    (
        "#5  0x00007f3a5c0d1e2b in ncclProxyProgress () from /usr/lib/libnccl.so.2",
        "nccl_frame",
        {"name": "ncclProxyProgress"},
    ),
    ("812.0      train.sh   gpu        ops        128 OUT_OF_ME+    0:125 ", "scheduler_kill", {"name": "OUT_OF_ME"}),
    ("812|train|PREEMPTED|0:0|gpu-a", "scheduler_kill", {"name": "PREEMPTED", "more.step": 812}),
    (
        "812          train        gpu    128 CANCELLED by 1001      0:0",
        "scheduler_kill",
        {"name": "CANCELLED by 1001"},
    ),
    ("slurmstepd: error: Exceeded step memory limit at some point.", "scheduler_kill", {"rank": None}),
    ("[gpu-a:123] Signal: Segmentation fault (11)", "fatal_signal", {"code": -11, "name": "Segmentation fault"}),
    (
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized",
        "cuda_error",
        {"code": 802, "name": "system not yet initialized"},
    ),
    (
        "========= Invalid __global__ write of size 4 bytes",
        "cuda_error",
        {"name": "Invalid __global__ write"},
    ),
    (
        '========= Program hit cudaErrorIllegalAddress (error 700) due to "an illegal memory access was encountered" '
        "on CUDA API call to cudaMemcpyAsync.",
        "cuda_error",
        {"code": 700, "name": "an illegal memory access was encountered"},
    ),
    ("CUDA Exception: Warp Illegal Address", "cuda_error", {"name": "Warp Illegal Address"}),
    (
        'Thread 1 "python" received signal CUDA_EXCEPTION_14, Warp Illegal Address.',
        "cuda_error",
        {"name": "Warp Illegal Address"},
    ),
    (
        "gpu-a:1:2 [0] misc/nvmlwrap.cc:187 NCCL WARN nvmlDeviceGetHandleByPciBusId() failed: GPU is lost",
        "cuda_error",
        {"name": "GPU is lost", "more.host": "gpu-a"},
    ),
    (
        "[rank0]:[E1129 14:13:49.1 P.cpp:757] [PG ID 0 PG GUID 0(default_pg) Rank 0] Process group watchdog thread "
        "terminated with exception: CUDA error: an illegal memory access was encountered",
        "cuda_error",
        {"name": "an illegal memory access was encountered", "rank": 0},
    ),
    (
        "[rank0]:[W1129 14:13:49.1 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=3, addr=[n1]:1): reset",
        "store_closed",
        {"secondary": True},
    ),
    (
        "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 3/8 clients joined.",
        "rendezvous",
        {"more.joined": 3, "more.world": 8},
    ),
    (
        "RuntimeError: Timed out initializing process group in store based barrier on rank: 3, for key: "
        "store_based_barrier_key:1 (world_size=8, worker_count=7, timeout=0:30:00)",
        "rendezvous",
        {"more.joined": 7, "more.world": 8},
    ),
    (
        "slurmstepd: error: *** STEP 123.0 ON node01 CANCELLED AT 2026-11-29T14:13:49 DUE TO PREEMPTION ***",
        "scheduler_kill",
        {"peer": "node01", "name": "PREEMPTION"},
    ),
    (
        "slurmstepd: error: *** JOB 123 ON node01 CANCELLED AT 2026-11-29T14:13:49 DUE TO NODE FAILURE, SEE SLURMCTLD "
        "LOG FOR DETAILS ***",
        "scheduler_kill",
        {"name": "NODE FAILURE"},
    ),
    (
        "slurmstepd: error: *** STEP 123.0 ON node01 CANCELLED AT 2026-11-29T14:13:49 ***",
        "scheduler_kill",
        {"name": "CANCELLED"},
    ),
    ("srun: error: node07: task 56: Killed", "scheduler_kill", {"about": (56,), "code": -9, "peer": "node07"}),
    ("srun: error: node07: task 5: Segmentation fault (core dumped)", "scheduler_kill", {"code": -11}),
    ("srun: error: Node failure on node07", "scheduler_kill", {"peer": "node07", "name": "Node failure"}),
    (
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
        "torchrun_signal",
        {"secondary": True},
    ),
    ("    Reason:       OOMKilled", "scheduler_kill", {"name": "OOMKilled"}),
    (
        "Warning  Evicted  3m  kubelet  The node was low on resource: ephemeral-storage.",
        "scheduler_kill",
        {"name": "Evicted", "more.short_of": "ephemeral-storage"},
    ),
    ("Normal   Preempted  1m  default-scheduler  Preempted by team-b/big-0 on node n7", "scheduler_kill", {}),
    ("TaintManagerEviction: marking for deletion Pod team-a/train-0", "scheduler_kill", {}),
    ("Received spot instance interruption, 2 minutes left", "scheduler_kill", {}),
    # Ray's memory monitor; nobody was killed where it counts none
    (
        "(raylet, ip=10.8.0.3) [2026-06-01 10:00:05,218 E 38 38] (raylet) node_manager.cc:3064: 2 Workers (tasks / "
        "actors) killed due to memory pressure (OOM), 0 Workers crashed due to other reasons at node (ID: 7f1b, "
        "IP: 10.8.0.3) over the last time period.",
        "scheduler_kill",
        {"name": "OOMKilled", "peer": "10.8.0.3"},
    ),
    (
        "Memory on the node (IP: 10.8.0.3, ID: e5d9) where the task (task ID: 43, name=fit, pid=43362, memory "
        "used=1GB) was running was 27.71GB / 28.80GB (0.962273), which exceeds the memory usage threshold of 0.95.",
        "scheduler_kill",
        {"name": "OOMKilled", "peer": "10.8.0.3"},
    ),
    ("exit_type: NODE_OUT_OF_MEMORY, pid 41010", "scheduler_kill", {"name": "OOMKilled"}),
    ("Job raysubmit_8: Job was intentionally stopped.", "scheduler_kill", {"name": "CANCELLED"}),
    # LSF and PBS
    ("TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.", "scheduler_kill", {"name": "OOMKilled"}),
    ("Completed <exit>; TERM_SWAP: job killed", "scheduler_kill", {"name": "OOMKilled"}),
    *(
        (f"Completed <exit>; {word}: job killed", "scheduler_kill", {"name": name})
        for word, name in (
            ("TERM_RUNLIMIT", "TIME LIMIT"),
            ("TERM_DEADLINE", "TIME LIMIT"),
            ("TERM_WINDOW", "TIME LIMIT"),
            ("TERM_CPULIMIT", "TIME LIMIT"),
            ("TERM_PREEMPT", "PREEMPTED"),
            ("TERM_OWNER", "CANCELLED"),
            ("TERM_ADMIN", "CANCELLED"),
            ("TERM_FORCE_OWNER", "CANCELLED"),
            ("TERM_FORCE_ADMIN", "CANCELLED"),
            ("TERM_BUCKET_KILL", "CANCELLED"),
            ("TERM_REQUEUE_OWNER", "JOB REQUEUE"),
            ("TERM_RC", "taken away"),
        )
    ),
    ("=>> PBS: job killed: mem 1048576kb exceeded limit 838860kb", "scheduler_kill", {"name": "OOMKilled"}),
    ("=>> PBS: job killed: walltime 86432 exceeded limit 86400", "scheduler_kill", {"name": "TIME LIMIT"}),
    (
        "=>> PBS: job killed: node 3 (gn012) requested job terminate, 'EOF' (code 1099) - received SISTER_EOF",
        "scheduler_kill",
        {"name": "taken away", "peer": "gn012"},
    ),
    # time services, and a rendezvous that compares clocks
    (
        "Jun 01 09:58:05 n1 chronyd[700]: System clock wrong by -903.881204 seconds",
        "clock_wrong",
        {"peer": "n1", "more.seconds": "-903.881204"},
    ),
    ("Jun  1 09:58:05 n1 ntpd[70]: time reset +61.402 s", "clock_wrong", {"peer": "n1", "more.seconds": "+61.402"}),
    ("prober found high clock drift clock-drift=15m3s rtt=1ms", "clock_wrong", {"more.span": "15m3s"}),
    (
        "the clock difference against peer 8e9e05c52164694d is too high [15m3.1s > 1s]",
        "clock_wrong",
        {"more.span": "15m3.1s"},
    ),
    (
        "As part of the sync operation the node(s) 'gpu-b_4102_0' have been removed from the rendezvous 'ft' since "
        "they had no heartbeat.",
        "rendezvous",
        {"name": "no heartbeat", "peer": "gpu-b"},
    ),
    (
        "srun: error: Task launch for StepId=8.0 failed on node gpu-b: Protocol authentication error",
        "credential",
        {"peer": "gpu-b"},
    ),
    # the launcher, before any rank
    (
        "[2025-03-03 09:14:20,118] torch.distributed.run: [WARNING] Setting OMP_NUM_THREADS environment variable for "
        "each process to be 1 in default",
        "launched",
        {"stamp": "2025-03-03 09:14:20"},
    ),
    (
        "I0303 09:14:21.5 99 torch/distributed/launcher/api.py:188] Starting elastic_operator with configs",
        "launched",
        {},
    ),
    (
        'Jun 01 10:00:05 n1 kubelet[8]: I0601 10:00:05.1 8 eviction_manager.go:374] "Eviction manager: must evict '
        'pod(s) to reclaim" resourceName="ephemeral-storage"',
        "scheduler_kill",
        {"name": "Evicted", "peer": "n1", "more.short_of": "ephemeral-storage"},
    ),
    (
        'Jun 01 10:00:05 n1 kubelet[8]: I0601 10:00:05.1 8 eviction_manager.go:366] "Eviction manager: attempting to '
        'reclaim" resourceName="inodes"',
        "scheduler_kill",
        {"name": "DiskPressure", "peer": "n1", "more.short_of": "inodes"},
    ),
    # containers, and a cloud's agent
    (
        "2026-06-01T10:00:05.123Z container oom 4b1f0c2d3e4f5a6b (image=train:7, name=trainer)",
        "scheduler_kill",
        {"name": "OOMKilled"},
    ),
    ("OutOfMemoryError: Container killed due to memory usage", "scheduler_kill", {"name": "OOMKilled"}),
    (
        "Sending interruption event Kind:SPOT_ITN, EventID:spot-itn-1 NodeName:ip-10-0-0-4.ec2.internal",
        "scheduler_kill",
        {"name": "taken away", "peer": "ip-10-0-0-4.ec2.internal"},
    ),
    (
        "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.4, please update your driver",
        "cuda_error",
        {"name": "unsatisfied condition: cuda>=12.4, please update your driver"},
    ),
    # guards of memory on a node
    (
        "Jun 01 10:00:05 n1 systemd[1]: slurmstepd.scope: A process of this unit has been killed by the OOM killer.",
        "scheduler_kill",
        {"name": "OOMKilled", "peer": "n1"},
    ),
    (
        "Jun 01 10:00:05 n1 systemd-oomd[81]: Killed /kubepods.slice/x due to memory pressure for /kubepods",
        "scheduler_kill",
        {"name": "OOMKilled", "peer": "n1"},
    ),
    (
        'Jun 01 10:00:05 n1 earlyoom[82]: sending SIGTERM to process 4242 uid 1000 "python3": oom_score 1200',
        "scheduler_kill",
        {"name": "OOMKilled", "peer": "n1"},
    ),
    ("Pod was terminated in response to imminent node shutdown.", "scheduler_kill", {"name": "imminent node shutdown"}),
    (
        "W1129 14:11:45.2 99 torch/distributed/elastic/agent/server/api.py:723] Received 15 death signal, shutting "
        "down workers",
        "agent_signal",
        {"name": "SIGTERM"},
    ),
    ("Received Signals.SIGHUP death signal, shutting down workers", "agent_signal", {"name": "SIGHUP"}),
    (
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 1424368 got signal: 2",
        "agent_signal",
        {"name": "SIGINT", "more.pid": 1424368},
    ),
    (
        "I1129 14:11:45.2 99 torch/distributed/elastic/agent/server/api.py:933] [default] Worker group FAILED. 2/3 "
        "attempts left; will restart worker group",
        "ranks_restarted",
        {"more.left": 2},
    ),
    (
        "[2026-11-29 14:13:49,250] [INFO] [launch.py:319:sigkill_handler] Killing subprocess 4711",
        "torchrun_signal",
        {"secondary": True},
    ),
    (
        "[2026-11-29 14:13:49,250] [ERROR] [launch.py:325:sigkill_handler] ['/usr/bin/python', '-u'] exits with return "
        "code = -9",
        "torchrun_failure",
        {"code": -9, "secondary": False},
    ),
    (
        "mpirun noticed that process rank 3 with PID 0 on node gpu-b exited on signal 9 (Killed).",
        "torchrun_failure",
        {"about": (3,), "code": -9, "peer": "gpu-b"},
    ),
    (
        "RuntimeError: The NVIDIA driver on your system is too old (found version 12020). Please update your driver",
        "cuda_error",
        {"name": "driver on your system is too old"},
    ),
    (
        "ImportError: /lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.32' not found (required by /v/fa.so)",
        "library_refused",
        {"name": "ImportError"},
    ),
    (
        "/opt/conda/bin/python: symbol lookup error: /v/libtorch_cuda.so: undefined symbol: ncclCommSplit",
        "library_refused",
        {"name": "symbol lookup error"},
    ),
    (
        "Apr 14 02:09:11 ws2 systemd-oomd[812]: Killed /user.slice/user-1.slice/app.slice/train.scope due to memory "
        "used (63921221632) / total (67108864000) being more than 90.00%",
        "scheduler_kill",
        {"name": "OOMKilled", "peer": "ws2"},
    ),
    ("OSError: Not enough disk space. Needed: 811.22 GiB (download: 1 GiB)", "disk_full", {"name": "No space left"}),
    (
        "RuntimeError: [enforce fail at inline_container.cc:603] . unexpected pos 3191884736 vs 3191884624",
        "write_cut",
        {"name": "unexpected pos 3191884736 vs 3191884624"},
    ),
    (
        "RuntimeError: [enforce fail at inline_container.cc:783] . PytorchStreamWriter failed writing file data/7: "
        "file write failed",
        "write_cut",
        {"name": "PytorchStreamWriter failed"},
    ),
    (
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
        "shm_full",
        {"name": "bus error"},
    ),
    ("OSError: [Errno 28] No space left on device: '/scratch/ckpt/a.pt'", "disk_full", {"where": "/scratch/ckpt/a.pt"}),
    ("OSError: [Errno 122] Disk quota exceeded: '/home/a/x'", "disk_full", {"name": "Disk quota exceeded"}),
    ("Max locked memory         65536                65536                bytes", "memlock", {"more.bytes": 65536}),
    ("max locked memory         (kbytes, -l) 64", "memlock", {"more.bytes": 65536}),
    ("max locked memory         (kbytes, -l) unlimited", "memlock", {"name": "unlimited"}),
    ("ulimit -l: 8192", "memlock", {"more.bytes": 8388608}),
    ("node-4 memlock limit (kbytes): unlimited", "memlock", {"name": "unlimited"}),
    (
        "   536870912     134217728     float     sum      -1   4712.3  113.93  213.62      0   4708.1  114.03  213.81",
        "bandwidth",
        {"more.busbw": "213.62"},
    ),
    (
        "    33554432       4194304      half    none   1204.5   27.86   26.12    N/A   1203.1   27.89   26.15    N/A",
        "bandwidth",
        {"more.busbw": "26.12"},
    ),
    ("OSError: [Errno 24] Too many open files", "too_many_files", {}),
    (
        "train:  45%|####5     | 450/1000 [11:52:30<14:30:00, 95.02s/it]",
        "progress",
        {"more.rate": "95.02", "more.per": "s/it"},
    ),
    (
        " iteration      800/  500000 | consumed samples: 1 | elapsed time per iteration (ms): 95020.1 | lm loss: 2.4",
        "progress",
        {"seq": 800, "more.step_ms": 95020, "more.loss": "2.4"},
    ),
    ("metrics all_reduce took 512 ms", "phase_time", {"name": "all_reduce", "more.wait_ms": 512}),
    ("reward gather 21.8s", "phase_time", {"name": "gather", "more.wait_ms": 21800}),
    (
        "WARNING: some GPUs have worse relative performance. Affected ranks: [76]",
        "slow_rank",
        {"rank": 76, "more.speed_permille": 700},
    ),
    (
        "etcd.EtcdConnectionFailed: Connection to etcd failed due to timeout",
        "rendezvous",
        {"name": "EtcdConnectionError"},
    ),
    ("I0729 06:12:00 api.py:188]   run_id           : job-7", "launch", {"name": "run_id", "more.value": "job-7"}),
    ("  rdzv_endpoint    : head:29400", "launch", {"name": "rdzv_endpoint", "more.value": "head:29400"}),
    ("[rank0] wrote optim.pt  92.4 / 1091.8 GB", "checkpoint", {"name": "wrot"}),
    ("gathering distributed optimizer state to rank 0", "checkpoint", {"name": "gather"}),
    (
        f"{INFO}Pattern 4, crossNic 0, nChannels 16, bw 48.000000/24.000000, type XGMI/PIX, sameChannels 1",
        "nccl_graph",
        {"name": "4", "more.channels": 16, "more.intra": "48.000", "more.type_intra": "XGMI", "more.type_inter": "PIX"},
    ),
    (
        f"{INFO}Pattern 1, crossNic 1, nChannels 2, speed 12.000000/12.000000, type NVL/SYS, sameChannels 1",
        "nccl_graph",
        {"name": "1", "more.inter": "12.000"},
    ),
    (
        f"{WARN}Could not find a path for pattern 4, falling back to simple order",
        "nccl_graph",
        {"name": "simple order", "more.pattern": 4},
    ),
    (f"{INFO}Search 0 : 2 channels loaded from XML graph", "nccl_graph_file", {"name": "0", "more.channels": 2}),
]
