"""What tells of a GPU and of its node in other places than a tool's own output: logs that were passed on, reasons of
schedulers, counts, lines that were grep-ed, tables of GPUs, names of files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from probes.diagnosis.core import Hypothesis
from probes.intake import gpu_tables
from tests.support.hardware import judged, raised

OFF = "NVRM: Xid (PCI:0000:c1:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
SMI = "nvidia-smi -q | grep -iE '^GPU|slowdown'"


def first(folder: Path, files: dict[str, str]) -> Hypothesis:
    return judged(folder / "incident", files).verdict.hypothesis


def loki(node: str, message: str) -> str:
    stream = {"stream": {"hostname": node, "job": "kernel"}, "values": [["1772449861000000000", message]]}
    return json.dumps({"status": "success", "data": {"resultType": "streams", "result": [stream]}})


def elastic(node: str, message: str) -> str:
    row = {"@timestamp": "2026-03-02T11:11:01Z", "host": {"name": node}, "message": message}
    return json.dumps({"hits": {"hits": [{"_source": row}]}}, indent=1)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("logcli.txt", f'2026-03-02T11:11:01Z {{host="kb31", transport="kernel"}} {OFF}\n'),
        ("loki.json", loki("kb31", OFF)),
        ("hits.json", elastic("kb31", OFF)),
        ("events.txt", f"LAST SEEN   TYPE   REASON   OBJECT   MESSAGE\n9m   Warning   XIDError   node/kb31   {OFF}\n"),
        ("alert.txt", f"[FIRING:1] KernelXid severity=page instance=kb31:9100\n  {OFF}\n"),
        ("export.csv", f'time,host,message\n2026-03-02 11:11:01,kb31,"host=kb31 {OFF}"\n'),
    ],
)  # fmt: skip
def test_a_message_of_the_kernel_is_of_the_node_that_its_line_names(tmp_path: Path, name: str, text: str) -> None:
    verdict = first(tmp_path, {name: text})
    assert (verdict.cause, verdict.subject["node"]) == ("gpu.fell_off_bus", "kb31")


@pytest.mark.parametrize(
    "reason",
    [
        "REASON               USER      TIMESTAMP           NODELIST\n"
        "Xid 95 uncontained E root      2026-03-02T11:14:02 kb31\n",
        "NodeName=kb31 Arch=x86_64\n   State=IDLE+DRAIN\n   Reason=Xid 95 on GPU 3 [root@2026-03-02T11:14:02]\n",
    ],
)  # fmt: skip
def test_a_reason_of_slurm_tells_which_nodes_gpu_a_rank_lost(tmp_path: Path, reason: str) -> None:
    error = "\n".join(raised(6, "RuntimeError: CUDA error: uncorrectable ECC error encountered"))
    verdict = first(tmp_path, {"slurm.txt": reason, "job.err": error})
    assert (verdict.cause, verdict.subject["node"], verdict.subject["rank"]) == ("gpu.memory_error", "kb31", 6)


@pytest.mark.parametrize(("here", "cause"), [(7, "gpu.fell_off_bus"), (8, "")])
def test_gpus_that_a_pipe_counts(tmp_path: Path, here: int, cause: str) -> None:
    counts = "".join(f"kb{node}: {count}\n" for node, count in ((29, 8), (30, 8), (31, here), (32, 8)))
    verdict = first(tmp_path, {"all.txt": f"$ pdsh -w kb[29-32] 'nvidia-smi -L | wc -l'\n{counts}"})
    assert (verdict.cause if cause else "", verdict.subject.get("node", "")) == (cause, "kb31" if cause else "")


def grepped(hot: int, names: bool) -> str:
    lines = []
    for gpu in range(4):
        state = "Active" if gpu == hot else "Not Active"
        lines += [f"GPU 00000000:{gpu + 1}1:00.0"] if names else []
        lines += [
            f"        HW Slowdown                       : {state}",
            f"            HW Thermal Slowdown           : {state}",
        ]
    return "\n".join(lines) + "\n"  # fmt: skip


@pytest.mark.parametrize("names", [True, False])
def test_lines_of_nvidia_smi_q_tell_which_gpu_is_hot(tmp_path: Path, names: bool) -> None:
    verdict = first(tmp_path, {"kb31.txt": f"root@kb31:~# {SMI}\n{grepped(2, names)}"})
    assert (verdict.cause, verdict.subject.get("gpu")) == ("gpu.throttled", 2)
    assert first(tmp_path / "well", {"kb31.txt": f"root@kb31:~# {SMI}\n{grepped(9, names)}"}).cause in (
        "none",
        "unknown",
    )


def test_lines_of_nvidia_smi_q_tell_that_the_fabric_is_not_ready(tmp_path: Path) -> None:
    section = (
        "    Fabric\n        State                             : {}\n        Status                            : N/A\n"
    )
    typed = "root@kb31:~# nvidia-smi -q -i 0 | grep -A4 Fabric\n"
    assert first(tmp_path, {"a.txt": typed + section.format("In Progress")}).cause == "gpu.nvswitch_fabric"
    assert first(tmp_path / "well", {"a.txt": typed + section.format("Completed")}).cause in ("none", "unknown")


def table(rows: list[tuple[Any, ...]], mark: str) -> str:
    return "".join(mark.join(map(str, row)) + "\n" for row in rows)


@pytest.mark.parametrize(
    ("name", "heads", "mark"),
    [
        ("gpus.csv", ("Time", "node", "gpu", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_SM_CLOCK"), ","),
        ("gpus.tsv", ("timestamp", "hostname", "gpu_id", "util %", "sm_mhz"), "\t"),
    ],
)
def test_a_table_with_a_row_for_each_gpu_tells_the_slow_one(
    tmp_path: Path, name: str, heads: tuple[str, ...], mark: str
) -> None:
    rows = [
        (f"2026-03-02 11:3{at}:00", f"kb{node}", gpu, 100, 600 if (node, gpu) == (31, 1) else 1980)
        for at in range(2)
        for node in (30, 31)
        for gpu in range(4)
    ]
    verdict = first(tmp_path, {name: table([heads, *rows], mark)})
    assert (verdict.cause, verdict.subject) == ("gpu.throttled", {"node": "kb31", "gpu": 1})


def nvlink(crc: int) -> str:
    lines = [f"GPU {gpu}: NVIDIA A100-SXM4-80GB (UUID: GPU-5269b708-0000-0000-0000-{gpu:012})" for gpu in range(2)]
    return "".join(
        f"{line}\n\t Link 0: Replay Errors: 3\n\t Link 0: Recovery Errors: 0\n\t Link 0: CRC Errors: {crc * gpu}\n"
        for gpu, line in enumerate(lines)
    )


@pytest.mark.parametrize(("later", "cause"), [(90_000, "gpu.nvlink_error"), (400, "")])
def test_errors_of_a_link_that_rise_are_of_now(tmp_path: Path, later: int, cause: str) -> None:
    looks = {f"nvlink.{n}.txt": f"Mon Mar  2 11:2{n}:00 UTC 2026\n{nvlink(crc)}" for n, crc in ((1, 400), (2, later))}
    verdict = first(tmp_path, looks)
    assert verdict.cause == cause if cause else verdict.cause in ("none", "unknown")
    assert not cause or verdict.subject == {"gpu": 1}


def test_a_task_that_proc_shows_in_the_driver_hangs_there(tmp_path: Path) -> None:
    told = (
        "==> /proc/4411/status <==\nName:\tpython\nState:\tD (disk sleep)\nPid:\t4411\n\n"
        "==> /proc/4411/stack <==\n[<0>] uvm_va_space_destroy+0x4a2/0x6d0 [nvidia_uvm]\n[<0>] __fput+0x96/0x270\n"
    )
    verdict = first(tmp_path, {"kb31/proc.txt": told})
    assert (verdict.cause, verdict.subject) == ("gpu.driver_hang", {"node": "kb31"})
    other = told.replace("D (disk sleep)", "S (sleeping)")
    assert first(tmp_path / "well", {"kb31/proc.txt": other}).cause in ("none", "unknown")


def test_an_amd_link_is_no_memory(tmp_path: Path) -> None:
    front = "[Mon Mar  2 11:11:00 2026] amdgpu 0000:65:00.0: amdgpu: socket: 3"
    line = f"{front} 1 uncorrectable hardware errors detected in {{}} block\n"
    assert first(tmp_path, {"dmesg.txt": line.format("xgmi_wafl")}).cause == "gpu.nvlink_error"
    assert first(tmp_path / "memory", {"dmesg.txt": line.format("umc")}).cause == "gpu.memory_error"


def test_a_pods_gpu_is_its_nodes(tmp_path: Path) -> None:
    pods = (
        "NAME        READY   STATUS    RESTARTS   AGE   IP         NODE   NOMINATED NODE   READINESS GATES\n"
        "train-w-3   1/1     Running   0          3h    10.4.0.7   kb31   <none>           <none>\n"
    )
    typed = (
        f"$ kubectl exec train-w-3 -- dmesg -T\n[Mon Mar  2 11:11:01 2026] {OFF}\n$ kubectl get pods -o wide\n{pods}"
    )
    verdict = first(tmp_path, {"paste.txt": typed})
    assert (verdict.cause, verdict.subject["node"]) == ("gpu.fell_off_bus", "kb31")


@pytest.mark.parametrize("wrong", [True, False])
def test_two_gpus_that_read_other_data_than_was_written(tmp_path: Path, wrong: bool) -> None:
    end = "Verification error @ element 1: val = 0.000000, ref = 4.000000\nTest failed!\n" if wrong else "Test passed\n"
    text = (
        f"[./simpleP2P] - Starting...\n> Peer access from A (GPU0) -> A (GPU1) : Yes\nPreparing host buffer ...\n{end}"
    )
    cause = first(tmp_path, {"p2p.txt": text}).cause
    assert (cause == "gpu.p2p_blocked") is wrong


@pytest.mark.parametrize(
    ("path", "node"),
    [
        ("dmesg-c0417.txt", "c0417"),
        ("n0042.remap.dmesg.txt", "n0042"),
        ("lspci-vv.pc-02.dmesg", "pc-02"),
        ("kb31_perf/dmesg.txt", "kb31"),
        # An index, an error, a version, a day and a ticket are none.
        ("dmesg-gpu3.txt", ""),
        ("xid79.txt", ""),
        ("dmesg-550.54.txt", ""),
        ("dmesg_20260302.txt", ""),
        ("ops-4411/dmesg.txt", ""),
        ("rank3/dmesg.txt", ""),
    ],
)
def test_the_only_word_that_can_be_a_nodes_name_is_it(tmp_path: Path, path: str, node: str) -> None:
    verdict = first(tmp_path, {path: f"[Mon Mar  2 11:11:01 2026] {OFF}\n"})
    assert (verdict.cause, verdict.subject.get("node", "")) == ("gpu.fell_off_bus", node)


GPUSTAT = "[{0}] NVIDIA A100-SXM4-80GB | {1}'C, 100 %,  {2} / 400 W | 70213 / 81920 MB | ml(70203M)"


@pytest.mark.parametrize(("heat", "watts", "cause"), [(92, 180, "gpu.throttled"), (92, 390, ""), (64, 180, "")])
def test_hot_at_little_power_among_busy_peers(tmp_path: Path, heat: int, watts: int, cause: str) -> None:
    lines = []
    for node in ("kb30", "kb31"):
        lines.append(f"{node}                        Mon Mar  2 11:30:01 2026  550.90.07")
        for index in range(4):
            odd = (node, index) == ("kb31", 3)
            lines.append(GPUSTAT.format(index, heat if odd else 61, watts if odd else 388))
    verdict = first(tmp_path, {"gpustat.txt": "\n".join(lines) + "\n"})
    if cause:
        assert (verdict.cause, verdict.subject) == (cause, {"node": "kb31", "gpu": 3})
    else:
        assert verdict.cause in ("none", "unknown")


def test_a_list_of_objects_is_a_table_too(tmp_path: Path) -> None:
    rows = [
        {"host": f"kb{node}", "gpu": index, "clocks.sm": f"{345 if node == 31 else 1980} MHz", "util": "99 %",
            "clocks_event_reasons.active": "0x0000000000000088" if node == 31 else "0x0000000000000000"}
        for node in (30, 31, 32)
        for index in range(4)
    ]  # fmt: skip
    verdict = first(tmp_path, {"gpus.json": json.dumps(rows)})
    assert (verdict.cause, verdict.subject) == ("gpu.throttled", {"node": "kb31"})


def test_a_column_for_each_gpu_under_a_title() -> None:
    text = "SM clocks (MHz)\n\nnode  gpu0  gpu1\nkb30  1980  1965\nkb31  345   1980\n"
    assert gpu_tables.tells(text)
    told = {(one.labels["node"], one.labels["gpu"]): one.points[-1][1] for one in gpu_tables.series(text)}
    assert told == {("kb30", "0"): 1980, ("kb30", "1"): 1965, ("kb31", "0"): 345, ("kb31", "1"): 1980}
    assert {one.name for one in gpu_tables.series(text)} == {"DCGM_FI_DEV_SM_CLOCK"}
    assert not gpu_tables.tells(text.replace("SM clocks (MHz)", "what we have"))


def test_advice_is_no_message_that_came(tmp_path: Path) -> None:
    advice = f"If you see `{OFF}` in dmesg, drain the node.\n"
    assert first(tmp_path, {"runbook.txt": advice}).cause in ("none", "unknown")
    seen = f"11:31:02 ana: kb-node-3 says {OFF}\n"
    assert first(tmp_path / "chat", {"chat.txt": seen}).cause == "gpu.fell_off_bus"


def test_a_reason_from_before_the_job_does_not_lead(tmp_path: Path) -> None:
    reason = "REASON               USER      TIMESTAMP           NODELIST\nXid 79 on GPU 3      root      {} kb31\n"
    job = "".join(f"2026-03-02 11:{at:02d}:00,114 INFO step {at} loss 2.1\n" for at in range(1, 50))
    old = {"sinfo.txt": reason.format("2026-02-12T11:14:02"), "job.log": job}
    assert first(tmp_path, old).cause in ("none", "unknown")
    new = {"sinfo.txt": reason.format("2026-03-02T11:50:02"), "job.log": job}
    assert first(tmp_path / "new", new).cause == "gpu.fell_off_bus"


def test_a_state_of_the_fabric_manager_by_the_command_that_asked(tmp_path: Path) -> None:
    text = "$ ssh kb31 systemctl is-active nvidia-fabricmanager\n{}\n"
    verdict = first(tmp_path, {"a.txt": text.format("failed")})
    assert (verdict.cause, verdict.subject) == ("gpu.nvswitch_fabric", {"node": "kb31"})
    assert first(tmp_path / "well", {"a.txt": text.format("active")}).cause in ("none", "unknown")


def test_a_condition_of_a_node_tells_in_dcgms_words(tmp_path: Path) -> None:
    words = "ErrorCode:[DCGM_FR_VOLATILE_DBE_DETECTED] GPU:3 PCI:0000:5d:00 GPU_UUID:GPU-0aa1 Detected 1 volatile"
    row = f"  GpuMemWatch   True    GpuMemWatchIsNotHealthy   {words} double-bit ECC error(s) in GPU 3. Drain it.\n"
    text = f"$ kubectl describe node kb31\nConditions:\n  Type   Status   Reason   Message\n{row}"
    error = "\n".join(raised(3, "RuntimeError: CUDA error: uncorrectable ECC error encountered"))
    verdict = first(tmp_path, {"node.txt": text, "job.err": error})
    assert (verdict.cause, verdict.subject["node"], verdict.subject["gpu"]) == ("gpu.memory_error", "kb31", 3)


def test_a_failed_launch_of_a_rank_that_nothing_places_is_explained_by_a_lost_gpu(tmp_path: Path) -> None:
    error = "\n".join(raised(14, "RuntimeError: CUDA error: unspecified launch failure"))
    verdict = first(tmp_path, {"kb31-dmesg.txt": f"[Mon Mar  2 11:11:01 2026] {OFF}\n", "job.err": error})
    assert verdict.cause == "gpu.fell_off_bus"
    assert first(tmp_path / "alone", {"job.err": error}).cause == "gpu.app_fault"


def test_cuda_refuses_a_peers_memory(tmp_path: Path) -> None:
    said = "Cuda failure 'peer access is not supported between these two devices'"
    line = f"kb31:4010:4055 [1] transport/p2p.cc:287 NCCL WARN {said}\n"
    verdict = first(tmp_path, {"job.log": line})
    assert (verdict.cause, verdict.subject) == ("gpu.p2p_blocked", {"node": "kb31"})


def test_logs_that_are_called_alike_are_of_the_nodes_that_they_are_called_by(tmp_path: Path) -> None:
    files = {f"kb{node}.log": f"[default{node % 8}]:waits\n" for node in (30, 32)}
    files["kb31.log"] = "[default5]:RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
    verdict = first(tmp_path, files)
    assert (verdict.cause, verdict.subject.get("node")) == ("gpu.memory_error", "kb31")


SQUEUE = "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n{}"
ROW = "              {} gpu   llm-ft     ana  R       30:02      4 {}\n"


@pytest.mark.parametrize(
    ("told", "names"),
    [
        (SQUEUE.format(ROW.format(7712, "gh[01-04]")), False),
        (SQUEUE.format(ROW.format(7712, "gh[19-22]")), True),
        # Of two jobs nobody tells which is meant, and one that was started again may have run elsewhere before.
        (SQUEUE.format(ROW.format(7712, "gh[01-04]") + ROW.format(7713, "gh[05-06]")), True),
        ("JobId=7712 JobName=llm\n   JobState=RUNNING Restarts=0\n   NodeList=gh[01-04]\n", False),
        ("JobId=7712 JobName=llm\n   JobState=RUNNING Restarts=1\n   NodeList=gh[01-04]\n", True),
    ],
)
def test_a_node_on_which_the_job_does_not_run_is_not_blamed(tmp_path: Path, told: str, names: bool) -> None:
    head = "REASON               USER      TIMESTAMP           NODELIST\n"
    reason = f"{head}Xid 79 on GPU 3      root      2026-03-02T11:50:02 gh21\n"
    verdict = first(tmp_path, {"sinfo.txt": reason, "job.txt": told})
    assert (verdict.cause == "gpu.fell_off_bus") is names


def test_what_an_exporter_says_of_a_lost_gpu_is_less_than_its_xid(tmp_path: Path) -> None:
    xid = "NVRM: Xid (PCI:0000:c3:00): 119, pid=9, name=python, Timeout after 45s of waiting for RPC response from GPU7"
    files = {
        "exporter.log": 'level=error msg="Failed to collect metrics" error="Error getting device busid: GPU is lost"\n',
        "kb31.kern.log": f"Mar  2 11:11:01 kb31 kernel: {xid}\n",
    }
    assert first(tmp_path, files).cause == "gpu.driver_hang"


COPIED = "rank local  D2H GB/s\n" + "".join(
    f" {24 + gpu}   {gpu}   {'6.9' if gpu == 4 else '25.8'}\n" for gpu in range(8)
)


def test_a_copy_far_slower_than_the_others_is_that_gpu_s_in_a_row_for_each(tmp_path: Path) -> None:
    found = first(tmp_path, {"opal5/copies.txt": COPIED, "opal6/copies.txt": COPIED.replace("6.9", "25.5")})
    assert (found.cause, found.subject["node"], found.subject["gpu"]) == ("gpu.pcie_degraded", "opal5", 4)


LINKS = "".join(
    f"{bus}:00.0 \t\tLnkSta:\tSpeed 16GT/s, Width x{8 if bus == '2d' else 16}\n" for bus in ("07", "2d", "5a", "9e")
)
AER = "[91.{at}] nvidia 0000:{bus}:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)\n"


@pytest.mark.parametrize(("bus", "told"), [("2d", True), ("5a", True), ("e1", False)])
def test_links_without_a_name_are_gpus_where_the_kernel_says_so_of_one(tmp_path: Path, bus: str, told: bool) -> None:
    log = "".join(AER.format(at=at, bus=bus) for at in range(3))
    found = judged(tmp_path / "incident", {"opal5/lnk.txt": LINKS, "opal5/dmesg.txt": log}).ranked
    narrow = [one.hypothesis for one in found if "lanes" in one.hypothesis.says]
    assert [one.subject["bus_id"] for one in narrow] == (["0000:2d:00.0"] if told else [])


def test_simple_p2p_is_known_without_its_first_lines(tmp_path: Path) -> None:
    text = (
        "> Peer access from NVIDIA L4 (GPU0) -> NVIDIA L4 (GPU1) : Yes\n"
        "cudaMemcpyPeer / cudaMemcpy between GPU0 and GPU1: 9.81GB/s\n"
        "Verification error @ element 3: val = 0.000000, ref = 12.000000\nTest failed!\n"
    )
    assert first(tmp_path, {"opal5.txt": text}).cause == "gpu.p2p_blocked"
    passed = text.replace(
        "Verification error @ element 3: val = 0.000000, ref = 12.000000\nTest failed!", "Test passed"
    )
    assert first(tmp_path / "passed", {"opal6.txt": passed}).cause != "gpu.p2p_blocked"


def test_rows_of_remapped_rows_have_the_columns_that_were_asked(tmp_path: Path) -> None:
    rows = "".join(
        f"nid00{node}: 00000000:C1:00.0, 1, {node % 2}, No, {'Yes' if node % 2 else 'No'}\n" for node in (7100, 7101)
    )
    asked = (
        "gpu_bus_id,remapped_rows.correctable,remapped_rows.uncorrectable,remapped_rows.pending,remapped_rows.failure"
    )
    text = f"$ pdsh -w nid00[7100-7101] nvidia-smi --query-remapped-rows={asked} --format=csv,noheader\n{rows}"
    found = first(tmp_path, {"remaps.txt": text})
    assert (found.cause, found.subject["node"]) == ("gpu.memory_error", "nid007101")
