"""One fault of a GPU that several sources name each in its own way, and a GPU that stands still beside its peers.

Right values: what ranks, buses and bridges are on the machines that the evidence tells of; NVIDIA's NVLink bridges join
two GPUs, and a hung collective keeps a GPU fully used at little power.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.catalog import gpu_state
from tests.support.hardware import judged

LINE = "{0}[rank{1}]:[E0502 07:11:{2:02}.300111222 ProcessGroupNCCL.cpp:632] [Rank {1}] "
TIMEOUT = (
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum={}, OpType=ALLREDUCE, NumelIn=4096, "
    "NumelOut=4096, Timeout(ms)=600000) ran for 600040 milliseconds before timing out.\n"
)
ACCOUNT = (
    "failure detected by watchdog at work sequence id: {0} PG status: last enqueued work: {1}, "
    "last completed work: {2}\n"
)
CSV = "index, pci.bus_id, utilization.gpu [%], power.draw [W]\n"


def timed_out(places: list[int], enqueued: int = 99) -> str:
    """The watchdog's lines of one job's ranks, each with the place of its oldest work."""
    lines = []
    for rank, place in enumerate(places):
        head = LINE.format("", rank, rank % 60)
        status = head.replace("[Rank", "[PG ID 0 PG GUID 0(default_pg) Rank") + " "
        lines += [head + TIMEOUT.format(place), status + ACCOUNT.format(place, enqueued, place - 1)]
    return "".join(lines)


def table(odd: int | None = None, watts: float = 88.0) -> str:
    rows = [f"{g}, 00000000:{0x11 + g * 16:02X}:00.0, {0 if g == odd else 100} %, " for g in range(8)]
    return CSV + "".join(f"{row}{watts if g == odd else 121.5 + g:.2f} W\n" for g, row in enumerate(rows))


def test_where_every_rank_timed_out_in_one_collective_the_gpu_that_idles_is_at_fault(tmp_path: Path) -> None:
    files = {"dgx-5/smi.csv": table(), "dgx-6/smi.csv": table(2), "stderr.txt": timed_out([71] * 16)}
    found = judged(tmp_path, files).verdict.hypothesis
    assert (found.cause, found.subject["node"], found.subject["gpu"]) == ("gpu.silent_stall", "dgx-6", 2)


def test_a_rank_whose_device_is_one_collective_behind_has_launched_it_all_the_same(tmp_path: Path) -> None:
    places = [71] * 10 + [70] + [71] * 5
    files = {"dgx-5/smi.csv": table(), "dgx-6/smi.csv": table(2), "stderr.txt": timed_out(places)}
    verdict = judged(tmp_path, files).verdict
    assert (verdict.hypothesis.cause, verdict.hypothesis.subject["node"]) == ("gpu.silent_stall", "dgx-6")
    assert verdict.probability > 0.7


def test_a_rank_that_has_not_launched_the_collective_is_not_excused_by_its_idle_gpu(tmp_path: Path) -> None:
    lines = timed_out([71] * 16).split("\n")
    late = [line for line in lines if "ank10]" not in line and "Rank 10]" not in line]
    files = {"dgx-5/smi.csv": table(), "dgx-6/smi.csv": table(2), "stderr.txt": "\n".join(late)}
    verdict = judged(tmp_path, files).verdict
    assert verdict.hypothesis.cause != "gpu.silent_stall" or verdict.probability < 0.8


@pytest.mark.parametrize("head", ["## rank {} host {}\n", "=== rank {} on {} ===\n", "rank {} pid 77 node {}:\n"])
def test_stacks_below_words_that_name_rank_and_host_tell_whose_gpu_idles(tmp_path: Path, head: str) -> None:
    stack = 'Process {0}: python t.py\nPython v3.11.4 (/usr/bin/python3.11)\n\nThread {0} (idle): "MainThread"\n'
    stack += "    synchronize (torch/cuda/streams.py:105)\n    end_step (loop.py:{1})\n    <module> (t.py:9)\n\n"
    places = {0: "dgx-5", 7: "dgx-5", 8: "dgx-6", 10: "dgx-6"}
    stacks = "".join(head.format(r, node) + stack.format(600 + r, 52) for r, node in places.items())
    found = judged(tmp_path, {"dgx-5/smi.csv": table(), "dgx-6/smi.csv": table(2), "stacks.txt": stacks}).verdict
    assert (found.hypothesis.cause, found.hypothesis.subject["rank"]) == ("gpu.silent_stall", 10)


def test_a_look_at_some_values_does_not_hide_which_processes_the_table_tells(tmp_path: Path) -> None:
    """Two nodes whose tables list processes, and one of which a shorter query came first."""
    short = "index, remapped_rows.pending\n" + "".join(f"{g}, No\n" for g in range(8))
    files = {
        "dgx-5/smi.csv": table(),
        "dgx-6/a_rows.csv": short,
        "dgx-6/smi.csv": table(2),
        "dgx-6/unnamed.csv": "remapped_rows.pending, remapped_rows.failure\n" + "No, No\n" * 8,
        "stderr.txt": timed_out([71] * 16),
    }
    found = judged(tmp_path, files).verdict.hypothesis
    assert (found.cause, found.subject["node"]) == ("gpu.silent_stall", "dgx-6")


@pytest.mark.parametrize(("attached", "index"), [("", None), ("Attached GPUs : 8\n", None), ("Attached GPUs : 1\n", 0)])
def test_one_gpu_cut_out_of_nvidia_smi_q_has_no_number_that_nothing_tells(attached: str, index: int | None) -> None:
    head = "Driver Version : 550.90.07\n" + attached
    block = "GPU 00000000:AB:00.0\n    Performance State : P0\n    Utilization\n        GPU : 0 %\n"
    assert gpu_state.PROBE.parse(head + block).gpus[0].index == index


XID = "[Sat May  2 07:01:02 2026] NVRM: Xid (PCI:0000:{}:00): {}\n"
EVENT = (
    "149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 03 (0x021425c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)"
)
RAISED = (
    "[rank{}]: torch.AcceleratorError: CUDA error: an uncorrectable NVLink error was detected during the execution\n"
)
OUT = (
    " 0: step 41 loss 2.11\n 0: step 42 loss 2.10\n 8: starting\n"
    f"13: {RAISED.format(13)}srun: error: gpu-07: task 13: Aborted (core dumped)\n"
)


def speeds(down: dict[int, tuple[int, ...]], gpus: int = 4) -> str:
    rows = ""
    for gpu in range(gpus):
        rows += f"GPU {gpu}: NVIDIA A100 80GB PCIe (UUID: GPU-0000000{gpu}-aaaa-bbbb-cccc-0123456789ab)\n"
        rows += "".join(
            f"\t Link {link}: {'<inactive>' if link in down.get(gpu, ()) else '25 GB/s'}\n" for link in range(12)
        )
    return rows


def test_a_rank_a_bus_id_and_an_index_of_one_node_are_one_gpu(tmp_path: Path) -> None:
    files = {
        "gpu-07/dmesg.txt": XID.format("ab", EVENT),
        "gpu-07/nvlink.txt": speeds({5: (3,)}, gpus=8),
        "job.out": OUT,
    }
    found = judged(tmp_path, files)
    assert found.verdict.hypothesis.subject == {"node": "gpu-07", "bus_id": "0000:ab:00", "gpu": 5, "rank": 13}
    assert found.verdict.probability > 0.95


def test_two_gpus_are_not_one_because_a_rank_met_an_error(tmp_path: Path) -> None:
    files = {
        "gpu-07/dmesg.txt": XID.format("ab", EVENT),
        "gpu-07/nvlink.txt": speeds({5: (3,), 6: (1, 2)}, gpus=8),
        "job.out": OUT,
    }
    subjects = [dict(one.hypothesis.subject) for one in judged(tmp_path, files).ranked]
    assert {"node": "gpu-07", "gpu": 6} in subjects


def test_both_gpus_of_a_bridge_that_is_down_are_told_as_one_fault_of_the_node(tmp_path: Path) -> None:
    found = judged(tmp_path, {"rig4/nvlink.txt": speeds({0: (4, 5), 1: (4, 5)})}).verdict.hypothesis
    assert (found.cause, found.subject) == ("gpu.nvlink_error", {"node": "rig4"})
    one = judged(tmp_path / "one", {"rig4/nvlink.txt": speeds({1: (4, 5)})}).verdict.hypothesis
    assert one.subject == {"node": "rig4", "gpu": 1}


def test_a_gpu_of_a_mesh_that_lost_its_links_is_told_once_though_its_neighbours_miss_theirs(tmp_path: Path) -> None:
    """Six links each, joined directly as in a hybrid cube mesh: every lost link has two ends."""
    lost = {6: tuple(range(6)), 2: (0,), 4: (1, 5), 5: (3,), 7: (0, 2)}
    found = judged(tmp_path, {"gpu-07/nvlink.txt": speeds(lost, gpus=8)}).verdict
    assert found.hypothesis.subject == {"node": "gpu-07", "gpu": 6}
    assert "GPU 6: NVLink links 0, 1, 2, 3, 4, 5 are inactive" in found.hypothesis.says


def test_a_gpu_that_holds_no_memory_of_the_job_is_no_silent_one(tmp_path: Path) -> None:
    head = "index, utilization.gpu [%], power.draw [W], memory.used [MiB]\n"
    rows = [f"{g}, 100, {120.0 + g}, 61000\n" for g in range(7)]
    for memory, silent in ((4, False), (60990, True)):
        smi = head + "".join(rows) + f"7, 0, 64.0, {memory}\n"
        log = timed_out([71] * (8 if silent else 7))
        found = judged(tmp_path / str(memory), {"gpu-07/smi.csv": smi, "stderr.txt": log}).verdict.hypothesis
        assert (found.cause == "gpu.silent_stall") is silent


@pytest.mark.parametrize("title", ["kit-9 console, typed by hand:", "on kit-9 (dmesg)", "kit-9 kernel log"])
def test_lines_without_a_host_are_of_the_one_that_stands_above_them(tmp_path: Path, title: str) -> None:
    text = f"{title}\nNVRM: GPU 0000:e3:00.0: GPU has fallen off the bus.\nNVRM: A GPU crash dump has been created.\n"
    found = judged(tmp_path, {"note_from_dc.txt": text}).verdict.hypothesis
    assert (found.cause, found.subject["node"]) == ("gpu.fell_off_bus", "kit-9")


def test_a_line_without_a_rank_is_of_the_one_node_on_which_the_whole_job_runs(tmp_path: Path) -> None:
    init = "{0}:{1}:{1} [{2}] NCCL INFO comm 0x5{2} rank {2} nranks {3} cudaDev {2} nvmlDev {2} busId {2}1000 "
    init += "commId 0x7 - Init COMPLETE\n"
    here = "".join(init.format("rig4", 700 + rank, rank, 4) for rank in range(4))
    error = RAISED.replace("[rank{}]: ", "")
    found = judged(tmp_path, {"out.txt": here + error}).verdict.hypothesis
    assert (found.cause, found.subject) == ("gpu.nvlink_error", {"node": "rig4"})
    half = "".join(init.format("rig4", 700 + rank, rank, 8) for rank in range(4))
    assert judged(tmp_path / "half", {"out.txt": half + error}).verdict.hypothesis.subject == {}


DSA = "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"


@pytest.mark.parametrize("between", ["", "\n", "[rank6]:[W502 07:00:01.000000001 socket.cpp:460] retrying\n"])
def test_the_advice_to_enable_assertions_is_no_assertion(tmp_path: Path, between: str) -> None:
    error = "[rank6]: torch.AcceleratorError: CUDA error: invalid device ordinal\n"
    found = judged(tmp_path, {"fox2/out.log": f"{error}{between}[rank6]: {DSA}"})
    assert found.verdict.hypothesis.cause == "nccl.device_visibility"
    assert all(one.hypothesis.cause != "gpu.app_fault" for one in found.ranked)


def test_an_assertion_that_failed_stays_one(tmp_path: Path) -> None:
    error = "[rank6]: torch.AcceleratorError: CUDA error: device-side assert triggered\n"
    assert judged(tmp_path, {"fox2/out.log": f"{error}[rank6]: {DSA}"}).verdict.hypothesis.cause == "gpu.app_fault"


LINKS = {"class": "0x030200", "vendor": "0x10de", "device": "0x2330", "max_link_width": "16", "max_link_speed":
    "32.0 GT/s PCIe", "current_link_width": "16", "current_link_speed": "32.0 GT/s PCIe"}  # fmt: skip


@pytest.mark.parametrize("below", ["sys/bus/pci/devices", "sys/devices/pci0000:00/0000:00:01.0", "pci"])
@pytest.mark.parametrize("colon", [":", "_"])
def test_a_copy_of_sysfs_tells_which_gpu_has_fewer_lanes(tmp_path: Path, below: str, colon: str) -> None:
    files = {}
    for node in ("kit1", "kit2"):
        for bus in ("1b", "2c", "3d", "4e"):
            narrow = {"current_link_width": "8"} if (node, bus) == ("kit2", "3d") else {}
            for name, value in (LINKS | narrow).items():
                files[f"{node}/{below}/0000:{bus}:00.0/{name}".replace(":", colon)] = value + "\n"
    found = judged(tmp_path, files).verdict.hypothesis
    assert (found.cause, found.subject) == ("gpu.pcie_degraded", {"node": "kit2", "bus_id": "0000:3d:00.0"})


@pytest.mark.parametrize("form", ["{path}:{value}\n", "{path} {value}\n", "{path} = {value}\n"])
def test_lines_of_sysfs_tell_it_too(tmp_path: Path, form: str) -> None:
    lines = "".join(
        form.format(path=f"/sys/bus/pci/devices/0000:{bus}:00.0/{name}", value=value)
        for bus in ("1b", "2c", "3d", "4e")
        for name, value in (LINKS | ({"current_link_width": "1"} if bus == "2c" else {})).items()
    )
    found = judged(tmp_path, {"gpu-07.sysfs.txt": lines}).verdict.hypothesis
    assert (found.cause, found.subject) == ("gpu.pcie_degraded", {"node": "gpu-07", "bus_id": "0000:2c:00.0"})


def test_lspci_is_read_beside_the_counts_that_somebody_made_of_it(tmp_path: Path) -> None:
    lost = "8\n7\n5d:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev ff)\n"
    found = judged(tmp_path, {"kit2/gpus.txt": lost}).verdict.hypothesis
    assert (found.cause, found.subject["node"]) == ("gpu.fell_off_bus", "kit2")


def test_the_last_xid_in_a_table_of_many_nodes_is_of_its_row(tmp_path: Path) -> None:
    rows = "".join(
        f"07:0{t}:00,kit{n},{g},{48 if (n, g) == (3, 1) else 0}\n" for t in (1, 2) for n in (2, 3) for g in (0, 1)
    )
    found = judged(tmp_path, {"panel.csv": "time,host,gpu,DCGM_FI_DEV_XID_ERRORS\n" + rows}).verdict.hypothesis
    assert (found.cause, found.subject["node"], found.subject["gpu"]) == ("gpu.memory_error", "kit3", 1)


def test_a_gpu_that_gives_no_handle_has_the_number_that_nvidia_smi_prints() -> None:
    lost = "Unable to determine the device handle for GPU{}: GPU is lost.  Reboot the system to recover this GPU\n"
    head = "Driver Version : 570.86.15\nAttached GPUs : 8\n"
    assert gpu_state.PROBE.parse(head + lost.format("5: 0000:AB:00.0")).gpus[0].index == 5
    assert gpu_state.PROBE.parse(head + lost.format(" 0000:AB:00.0")).gpus[0].index is None


def test_an_unknown_error_of_cuda_is_explained_by_the_gpu_that_is_gone(tmp_path: Path) -> None:
    error = f"[rank9]: RuntimeError: CUDA error: unknown error\n[rank9]: {DSA}"
    gone = XID.format("ab", "79, pid=811, name=python, GPU has fallen off the bus.")
    found = judged(tmp_path, {"gpu-07/dmesg.txt": gone, "job.out": error}).verdict
    assert (found.hypothesis.cause, found.probability > 0.95) == ("gpu.fell_off_bus", True)
