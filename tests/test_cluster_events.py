"""What Kubernetes tells of a job's pods and nodes, in the forms in which kubectl prints it.

What is right follows from the reasons of events in Kubernetes' sources and from its documentation of node pressure and
of graceful node shutdown, never from the reader.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.hardware import judged

WATCHDOG = (
    "[rank{0}]:[E601 10:10:0{0}.118203311 ProcessGroupNCCL.cpp:632] [Rank {0}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=71, OpType=ALLREDUCE, NumelIn=64, NumelOut=64, Timeout(ms)=600000) ran for 600012 "
    "milliseconds before timing out.\n"
)
PODS = """\
NAME            READY   STATUS      RESTARTS     AGE   IP           NODE       NOMINATED NODE   READINESS GATES
seg-worker-0    0/1     Error       0            3h    10.1.0.4     metal-a7   <none>           <none>
seg-worker-1    0/1     {0}   1 (4m ago)   3h    10.1.1.4     metal-b2   <none>           <none>
"""
SINFO = """\
REASON               USER      TIMESTAMP           NODELIST
Node unexpectedly re slurm     {} gn3
"""
KILLED = """\
Name:             seg-worker-1
Namespace:        vision
Node:             metal-b2/192.168.7.12
Status:           Running
Containers:
  main:
    State:          Running
      Started:      Mon, 01 Jun 2026 10:04:11 +0000
    Last State:     Terminated
      Reason:       OOMKilled
      Exit Code:    137
      Started:      Mon, 01 Jun 2026 07:00:11 +0000
      Finished:     Mon, 01 Jun 2026 10:00:05 +0000
    Restart Count:  1
    Limits:
      nvidia.com/gpu:  8
"""


def pod(name: str, node: str, status: dict[str, Any], space: str = "vision") -> dict[str, Any]:
    spec = {"nodeName": node, "containers": [{"resources": {"limits": {"nvidia.com/gpu": "8"}}}]}
    return {"kind": "Pod", "metadata": {"name": name, "namespace": space}, "spec": spec, "status": status}


def ended(reason: str, key: str = "state") -> dict[str, Any]:
    return {"phase": "Failed", "containerStatuses": [{"name": "main", key: {"terminated": {"reason": reason}}}]}


def event(kind: str, name: str, reason: str, message: str, **more: Any) -> dict[str, Any]:
    about = {"kind": kind, "name": name, "namespace": "vision" if kind == "Pod" else ""}
    return {"kind": "Event", "involvedObject": about, "reason": reason, "message": message,
            "lastTimestamp": "2026-06-01T10:00:05Z", **more}  # fmt: skip


def lead(tmp_path: Path, files: dict[str, str]) -> tuple[str, dict[str, Any], float]:
    logs = {f"seg-worker-0.rank{rank}.log": WATCHDOG.format(rank) for rank in (0, 1)}
    verdict = judged(tmp_path, logs | files).verdict
    return verdict.hypothesis.cause, dict(verdict.hypothesis.subject), verdict.probability


TWO = [
    pod("seg-worker-0", "metal-a7", ended("Error")),
    pod("seg-worker-1", "metal-b2", ended("OOMKilled", "lastState")),
]


@pytest.mark.parametrize(
    "files",
    [
        {"describe.txt": KILLED},
        {"custom.txt": "POD NODE REASON\nseg-worker-0 metal-a7 Error\nseg-worker-1 metal-b2 OOMKilled\n"},
        {"notes.txt": f"$ kubectl -n vision describe pod seg-worker-1\n{KILLED}"},
        {"pods.txt": PODS.format("OOMKilled")},
        {"pods.json": json.dumps({"kind": "List", "apiVersion": "v1", "items": TWO}, indent=4)},
        {"pod.json": json.dumps(TWO[1], indent=2)},
        {"pods.jsonl": "".join(json.dumps(one) + "\n" for one in TWO)},
        {
            "pod.yaml.txt": "apiVersion: v1\nkind: Pod\nmetadata:\n  labels:\n    app: seg\n  name: seg-worker-1\n"
            "  namespace: vision\nspec:\n  nodeName: metal-b2\nstatus:\n  containerStatuses:\n  - lastState:\n"
            "      terminated:\n        exitCode: 137\n        reason: OOMKilled\n    name: main\n  phase: Running\n"
        },
        # node-problem-detector and kubelet see the kernel's kill on the node
        {
            "events.txt": PODS.format("Error    ")
            + "\n"
            + "LAST SEEN   TYPE      REASON       OBJECT          MESSAGE\n"
            "6m      Warning   OOMKilling   node/metal-b2   Memory cgroup out of memory: Killed process 8 (pt_data)\n"
        },
        {
            "events.jsonl": json.dumps(
                event("Node", "metal-b2", "SystemOOM", "System OOM encountered, victim process: python, pid: 812")
            )
            + "\n"
        },
    ],
    ids=[
        "describe",
        "custom columns",
        "prompt",
        "get pods",
        "list",
        "one object",
        "lines",
        "yaml",
        "problem detector",
        "kubelet",
    ],
)
def test_a_pod_that_was_killed_for_memory_names_its_node(tmp_path: Path, files: dict[str, str]) -> None:
    cause, subject, share = lead(tmp_path, files)
    assert (cause, subject) == ("host.memory_oom_kill", {"node": "metal-b2"})
    assert share > 0.9


SHORT = "The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, available: 9871236Ki."


@pytest.mark.parametrize(
    "files",
    [
        {
            "a.txt": PODS.format("Evicted  ")
            + f"\n$ kubectl get events\n6m   Warning   Evicted   pod/seg-worker-1   {SHORT}\n"
        },
        {
            "pods.json": json.dumps(
                {"items": [pod("seg-worker-1", "metal-b2", {"phase": "Failed", "reason": "Evicted", "message": SHORT})]}
            )
        },
        # events.k8s.io/v1, as an exporter writes it
        {
            "events.jsonl": json.dumps(
                {
                    "event": {
                        "regarding": {"kind": "Pod", "name": "seg-worker-1"},
                        "reason": "Evicted",
                        "note": SHORT,
                        "deprecatedSource": {"component": "kubelet", "host": "metal-b2"},
                    }
                }
            )
            + "\n"
        },
        {
            "wide.txt": "LAST SEEN   TYPE      REASON    OBJECT             SUBOBJECT   SOURCE              MESSAGE\n"
            "6m30s       Warning   Evicted   pod/seg-worker-1               kubelet, metal-b2   Pod ephemeral local "
            "storage usage exceeds the total limit of containers 200Gi.\n"
        },
    ],
    ids=["get events", "json", "events.k8s.io", "wide"],
)
def test_a_pod_that_was_evicted_for_room_names_its_node(tmp_path: Path, files: dict[str, str]) -> None:
    cause, subject, share = lead(tmp_path, files)
    assert (cause, subject) == ("host.disk_full", {"node": "metal-b2"})
    assert share > 0.9


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("Rebooted", "Node metal-b2 has been rebooted, boot id: 7d2c8a10-11f2-4a0e-8d0c-93b1c44c1c55"),
        ("DeletingNode", "Deleting node metal-b2 because it does not exist in the cloud provider"),
        ("SpotInterruption", "Spot interruption notice received. Instance will be interrupted at 2026-06-01T10:02:00Z"),
        ("TerminateScheduled", "Terminate event received for this node"),
    ],
)
def test_a_node_that_was_taken_away_is_named_and_another_pool_s_is_not(
    tmp_path: Path, reason: str, message: str
) -> None:
    mine = event("Node", "metal-b2", reason, message)
    other = event("Node", "cpu-pool-9", reason, message.replace("metal-b2", "cpu-pool-9"))
    files = {"pods.txt": PODS.format("Error    "), "events.json": json.dumps({"items": [other, mine]})}
    cause, subject, share = lead(tmp_path, files)
    assert (cause, subject) == ("host.rebooted", {"node": "metal-b2"})
    assert share > 0.9


@pytest.mark.parametrize("now", ["Pending   0   4m   <none>     <none>", "Running   0   4m   10.1.1.9   metal-a9"])
def test_a_node_that_was_deleted_is_the_job_s_where_one_of_its_pods_went_with_a_node(tmp_path: Path, now: str) -> None:
    pods = PODS.format("Error    ").split("seg-worker-1")[0] + f"seg-worker-1   0/1   {now}   <none>   <none>\n"
    gone = event("Node", "metal-a3", "DeletingNode", "Deleting node metal-a3 because it does not exist in the cloud")
    pod_went = event("Pod", "seg-worker-1", "TaintManagerEviction", "Marking for deletion Pod vision/seg-worker-1")
    files = {"pods.txt": pods, "events.json": json.dumps({"items": [gone, pod_went]})}
    assert lead(tmp_path, files)[:2] == ("host.rebooted", {"node": "metal-a3"})
    alone = {"pods.txt": pods, "events.json": json.dumps({"items": [gone]})}
    assert lead(tmp_path / "alone", alone)[0] in ("unknown", "none")  # perhaps another job's


@pytest.mark.parametrize(
    "files",
    [
        # of a system of the cluster's own, and of another team's job
        {
            "pods.txt": PODS.format("Error    "),
            "all.txt": "NAMESPACE     LAST SEEN   TYPE      REASON      OBJECT\n"
            "monitoring    5m   Warning   OOMKilling   pod/prometheus-0   Memory cgroup out of memory\n"
            "nlp           5m   Warning   Evicted      pod/bert-worker-1  " + SHORT + "\n",
        },
        # a helper process that the kernel killed beside the job
        {
            "pods.txt": PODS.format("Error    "),
            "events.jsonl": json.dumps(
                event("Node", "metal-b2", "OOMKilling", "Memory cgroup out of memory: Killed process 812 (fluent-bit)")
            )
            + "\n",
        },
        # a node that does not answer may have any fault
        {
            "pods.txt": PODS.format("Error    "),
            "nodes.txt": "NAME       STATUS     ROLES    AGE    VERSION\n"
            "metal-a7   Ready      <none>   118d   v1.31.5\nmetal-b2   NotReady   <none>   118d   v1.31.5\n"
            "$ kubectl get events\n4m   Normal   TaintManagerEviction   pod/seg-worker-1   Marking for deletion Pod\n",
        },
        {
            "node.txt": "Name:               metal-b2\nRoles:              <none>\nConditions:\n"
            "  Type             Status  LastHeartbeatTime\n"
            "  DiskPressure     False   Mon, 01 Jun 2026 10:00:05 +0000\n  Ready            True    x\n"
        },
    ],
    ids=["others", "helper", "silent node", "well"],
)
def test_what_is_of_others_or_tells_no_cause_accuses_nobody(tmp_path: Path, files: dict[str, str]) -> None:
    cause, _, share = lead(tmp_path, files)
    assert cause in ("unknown", "none"), (cause, share)


def test_a_preempted_pod_is_no_failure(tmp_path: Path) -> None:
    said = event("Pod", "seg-worker-1", "Preempted", "Preempted by pod 5c1e9 on node metal-b2")
    verdict = judged(tmp_path, {"events.json": json.dumps([said])}).verdict
    assert verdict.hypothesis.cause == "job.cancelled"


def test_lines_of_the_job_below_a_table_are_read_as_well(tmp_path: Path) -> None:
    mark = "[rank1]: "
    raised = f"{mark}Traceback (most recent call last):\n{mark}  File \"a.py\", line 3, in main\n{mark}KeyError: 'x'\n"
    verdict = judged(tmp_path, {"all.txt": PODS.format("Error    ") + "\n" + raised}).verdict
    assert (verdict.hypothesis.cause, verdict.hypothesis.subject.get("rank")) == ("fw.rank_exited", 1)


SHOWN = "JobId=881 JobName=seg\n   JobState={} Reason=None Dependency=(null)\n   NodeList={}\n   BatchHost=gn7\n"


@pytest.mark.parametrize(
    ("files", "cause", "node"),
    [
        ({"job.txt": SHOWN.format("OUT_OF_MEMORY", "gn7")}, "host.memory_oom_kill", "gn7"),
        ({"job.txt": SHOWN.format("OUT_OF_MEMORY", "gn[7-9]")}, "host.memory_oom_kill", None),
        ({"job.txt": SHOWN.format("COMPLETED", "gn7")}, "unknown", None),
        (
            {"seff.txt": "Job ID: 881\nCluster: c\nState: OUT_OF_MEMORY (exit code 0)\nNodes: 4\n"},
            "host.memory_oom_kill",
            None,
        ),
        (
            {
                "sacct.json": json.dumps(
                    {"jobs": [{"job_id": 8, "state": {"current": ["OUT_OF_MEMORY"]}, "nodes": "gn7"}]}
                )
            },
            "host.memory_oom_kill",
            "gn7",
        ),
        ({"sinfo.txt": SINFO.format("2026-06-01T10:00:05")}, "host.rebooted", "gn3"),
        ({"sinfo.txt": SINFO.format("2026-05-01T10:00:05")}, "unknown", None),
        (
            {
                "node.txt": "NodeName=gn3 Arch=x86_64\n   State=DOWN ThreadsPerCore=1\n"
                "   Reason=Node unexpectedly rebooted [slurm@2026-06-01T10:00:05]\n"
            },
            "host.rebooted",
            "gn3",
        ),
    ],
)
def test_what_slurm_s_tools_tell_of_a_job_and_of_nodes(
    tmp_path: Path, files: dict[str, str], cause: str, node: str | None
) -> None:
    """scontrol(1), sinfo(1), seff; `sinfo -R` cuts its reasons after 20 characters."""
    steps = {"gn1.rank0.log": "2026-06-01 09:59:55 INFO step=120 loss=2.1 step_ms=900\n" + WATCHDOG.format(0)}
    verdict = judged(tmp_path, steps | files).verdict
    assert (verdict.hypothesis.cause, verdict.hypothesis.subject.get("node")) == (cause, node)


def test_a_rank_known_by_its_pod_is_of_the_node_that_the_pod_runs_on(tmp_path: Path) -> None:
    """In its container the rank has another number than in the node's kernel log, and another node's name."""
    kill = (
        "[Mon Jun  1 10:00:05 2026] Memory cgroup out of memory: Killed process 812331 (python3) total-vm:9kB, "
        "anon-rss:8kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:1kB oom_score_adj:985\n"
    )
    failed = (
        "E0601 10:00:08.102000 12 torch/distributed/elastic/multiprocessing/api.py:882] failed (exitcode: -9) "
        "local_rank: 1 (pid: 61) of binary: /usr/bin/python3\n"
        "seg-worker-1:61:702 [1] NCCL INFO comm 0x55 rank 3 nranks 4 cudaDev 1 busId 3b000 - Init COMPLETE\n"
    )
    files = {
        "pods.txt": PODS.format("Error    "),
        "nodes/metal-b2/dmesg.txt": kill,
        "nodes/metal-a7/dmesg.txt": "[Mon Jun  1 09:00:05 2026] usb 1-1: new device\n",
        "logs/seg-worker-0.log": WATCHDOG.format(0),
        "logs/seg-worker-1.log": failed,
    }
    verdict = judged(tmp_path, files).verdict
    assert verdict.hypothesis.cause == "host.memory_oom_kill"
    assert verdict.hypothesis.subject.get("node") == "metal-b2" and verdict.probability > 0.9


STEPS = "".join(f"2026-06-01 09:{minute}:00 INFO step={minute} loss=2.1 step_ms=900\n" for minute in range(30, 60))


@pytest.mark.parametrize(
    "files",
    [
        # the container was killed hours ago, and what runs since then made its steps
        {"describe.txt": KILLED.replace("01 Jun 2026 10:00:05", "01 Jun 2026 07:00:05")},
        {
            "pods.txt": PODS.format("Error    "),
            "node.txt": "Name:               metal-b2\nRoles:              <none>\nEvents:\n"
            "  Type     Reason     Age   From     Message\n  ----     ------     ----  ----     -------\n"
            "  Warning  Rebooted   41d   kubelet  Node metal-b2 has been rebooted, boot id: 12\n",
        },
        {
            "events.jsonl": "".join(
                json.dumps(event("Job", "seg", reason, "Job " + reason)) + "\n" for reason in ("Suspended", "Resumed")
            )
        },
        {
            "sacct.json": json.dumps(
                {"jobs": [{"job_id": n, "state": {"current": [state]}, "nodes": "x1"}
                          for n, state in ((880, "OUT_OF_MEMORY"), (881, "FAILED"))]}
            )
        },
    ],
    ids=["an earlier container", "an old boot", "resumed", "another job"],
)  # fmt: skip
def test_what_was_before_the_job_or_is_of_another_does_not_lead(tmp_path: Path, files: dict[str, str]) -> None:
    verdict = judged(tmp_path, {"seg-worker-0.rank0.log": STEPS + WATCHDOG.format(0)} | files).verdict
    assert verdict.hypothesis.cause in ("none", "unknown")


def test_a_logger_s_lines_that_only_look_like_a_cluster_s_are_read_as_a_log(tmp_path: Path) -> None:
    """`kind` is a field of many loggers."""
    lines = ("Traceback (most recent call last):", '  File "a.py", line 3, in main', "KeyError: 'x'")
    rows = [{"kind": "Pod", "rank": 1, "message": line} for line in lines]
    verdict = judged(tmp_path, {"train.jsonl": "".join(json.dumps(row) + "\n" for row in rows)}).verdict
    assert (verdict.hypothesis.cause, verdict.hypothesis.subject.get("rank")) == ("fw.rank_exited", 1)


WITHOUT_HEADER = """\
ops@jump:~$ kubectl -n vision get po -o wide | grep seg
seg-worker-0   1/1   Running            0             3h    10.1.0.4   metal-a7   <none>   <none>
seg-worker-1   0/1   CrashLoopBackOff   5 (3m ago)    3h    10.1.1.4   metal-b2   <none>   <none>
ops@jump:~$ kubectl -n vision logs seg-worker-1 | tail -2
    torch._C._cuda_init()
RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized
"""


def test_rows_of_pods_without_their_header_tell_on_which_machine_a_gpu_is(tmp_path: Path) -> None:
    (tmp_path / "paste.txt").write_text(WITHOUT_HEADER)
    verdict = judged(tmp_path, {}).verdict
    assert verdict.hypothesis.cause == "gpu.nvswitch_fabric"
    assert verdict.hypothesis.subject["node"] == "metal-b2"


NCCL_GDR = "{0}:77:301 [0] NCCL INFO NET/IB : GPU Direct RDMA {1} for HCA 0 'mlx5_0'\n"


@pytest.mark.parametrize(
    "modules",
    [
        "metal-a7: nvidia_peermem 16384 0\n"
        "metal-b2: modprobe: ERROR: could not insert 'nvidia_peermem': Invalid argument\n",
        "metal-a7  nvidia-peermem: loaded\nmetal-b2  nvidia-peermem: not loaded\n",
        "metal-a7 lsmod | grep peermem: nvidia_peermem 16384 0\nmetal-b2 lsmod | grep peermem: (nothing)\n",
        "metal-a7: nvidia_peermem 16384 0\n"
        "metal-b2: nvidia_peermem: Unknown symbol ib_register_peer_memory_client (err -22)\n",
    ],
)
def test_the_machine_whose_module_does_not_load_is_named_where_logs_name_pods(tmp_path: Path, modules: str) -> None:
    logs = NCCL_GDR.format("seg-worker-0", "Enabled") + NCCL_GDR.format("seg-worker-1", "Disabled")
    verdict = judged(tmp_path, {"job.log": logs, "modules.txt": modules}).verdict
    assert verdict.hypothesis.cause == "ib.gpudirect_off"
    assert verdict.hypothesis.subject == {"node": "metal-b2"}


def test_two_machines_without_the_module_name_none_for_one_pod(tmp_path: Path) -> None:
    logs = NCCL_GDR.format("seg-worker-0", "Enabled") + NCCL_GDR.format("seg-worker-1", "Disabled")
    modules = (
        "metal-a7: nvidia_peermem not loaded\nmetal-b2: nvidia_peermem not loaded\nmetal-c3: nvidia_peermem loaded\n"
    )
    verdict = judged(tmp_path, {"job.log": logs, "modules.txt": modules}).verdict
    assert verdict.hypothesis.subject.get("node") not in ("metal-a7", "metal-b2") or verdict.probability < 0.8
