"""What people write down about GPUs: lines they retyped or cut short, and tables they made.

Right values: the words are the driver's and fabric manager's as in their recordings; what follows from an Xid is
NVIDIA's table of Xids. Nothing here is taken from the readers.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.hardware import judged

OTHERS = "kd06 and kd08 look fine\nstep time was 2.1 s until 10:40, then it stopped\n"


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("kd07: Xid 79, gpu 5, fallen off bus", "gpu.fell_off_bus"),
        ("kd07 dmesg: NVRM: GPU at 0000:4e:00.0 has fallen off bus", "gpu.fell_off_bus"),
        ("kd07 kernel: Xid 149 (0000:1b:00) NETIR_LINK_EVT Fatal XC0 i0 Link 09", "gpu.nvlink_error"),
        ("saw xid 74 on kd07 (GPU 2)", "gpu.nvlink_error"),
        ("kd07 | Xid (PCI:0000:9a:00): 95, Uncontained: L2", "gpu.memory_error"),
        ("kd07: nvidia-nvswitch1 SXid 20034 Fatal, link 12", "gpu.nvswitch_fabric"),
        ("kd07  nvidia-fabricmanager: failed, on the two others active", "gpu.nvswitch_fabric"),
        ("kd07: gres/gpu count reported lower than configured (7 < 8)", "gpu.fell_off_bus"),
        ("kd07: nvidia-smi hangs, ctrl-c does nothing", "gpu.driver_hang"),
        ("Node kd07, GPU 4: DBE count went 0 -> 3", "gpu.memory_error"),
        ("kd07 GPU5: PCIe width x4 (expected x16)", "gpu.pcie_degraded"),
    ],
)
def test_a_retyped_line_tells_the_fault_and_its_node(tmp_path: Path, line: str, cause: str) -> None:
    verdict = judged(tmp_path, {"seen.txt": f"{line}\n{OTHERS}"}).verdict
    assert verdict.hypothesis.cause == cause
    assert verdict.hypothesis.subject["node"] == "kd07"


@pytest.mark.parametrize(
    "line",
    [
        "kd07: no xids, ecc all zero",
        "kd07: Xid 79 was last week, board replaced since",
        "kd07: should we look for xid 79?",
        "if you see Xid 79 on kd07 drain it",
        "kd07: nvidia-nvswitch1 SXid 12028, Non-fatal, Link 32",
        "kd07: xid none",
        "kd07: Xid 43 from debugging on friday",
    ],
)
def test_what_did_not_happen_now_blames_no_gpu(tmp_path: Path, line: str) -> None:
    verdict = judged(tmp_path, {"seen.txt": f"{line}\n{OTHERS}"}).verdict
    assert verdict.hypothesis.cause in ("none", "unknown")


def test_one_xid_that_somebody_wrote_down_is_not_certain(tmp_path: Path) -> None:
    assert judged(tmp_path, {"seen.txt": f"kd07: Xid 79, gpu 5\n{OTHERS}"}).verdict.probability < 0.9


MEMORY = "| host | gpu | uncorrectable (volatile) | correctable | remap pending |\n|---|---|---|---|---|\n"
SEEN = (
    "| node | GPUs in nvidia-smi | GPUs in lspci |\n|---|---|---|\n"
    + "| kd06 | 8 | 8 |\n| kd07 | {0} | 8 |\n| kd08 | 8 | 8 |\n"
)


@pytest.mark.parametrize(
    ("name", "text", "cause", "gpu"),
    [
        ("ecc.md", f"{MEMORY}| kd06 | 1 | 0 | 3 | no |\n| kd07 | 1 | 6 | 210 | yes |\n", "gpu.memory_error", 1),
        ("t.csv", "node,gpu,dram double bit,row remap failure\nkd06,0,0,no\nkd07,0,9,yes\n", "gpu.memory_error", 0),
        ("count.md", SEEN.format(7), "gpu.fell_off_bus", None),
        ("nv.csv", "host,gpu,nvlinks up\nkd06,0,18\nkd06,1,18\nkd07,0,18\nkd07,1,16\n", "gpu.nvlink_error", 1),
        (
            "fm.txt",
            "node   fabric manager   driver\nkd06   running          550.90.07\nkd07   failed           550.90.07\n",
            "gpu.nvswitch_fabric",
            None,
        ),
        ("smi.txt", "host  nvidia-smi  gpus\nkd06  ok          8\nkd07  hangs       -\n", "gpu.driver_hang", None),
    ],
)
def test_a_table_names_the_node_that_differs(tmp_path: Path, name: str, text: str, cause: str, gpu: int | None) -> None:
    verdict = judged(tmp_path, {name: text}).verdict
    assert verdict.hypothesis.cause == cause
    assert verdict.hypothesis.subject.get("node") == "kd07"
    assert gpu is None or verdict.hypothesis.subject.get("gpu") == gpu


def test_a_table_in_which_all_are_alike_blames_nobody(tmp_path: Path) -> None:
    verdict = judged(tmp_path, {"count.md": SEEN.format(8)}).verdict
    assert verdict.hypothesis.cause in ("none", "unknown")


def test_a_node_with_half_as_many_gpus_is_another_kind_of_node(tmp_path: Path) -> None:
    rows = "host,gpus,driver\nkd06,8,550.90.07\nkd07,4,550.90.07\nkd08,8,550.90.07\n"
    assert judged(tmp_path / "a", {"inv.csv": rows}).verdict.hypothesis.cause in ("none", "unknown")
    one_less = judged(tmp_path / "b", {"inv.csv": rows.replace("kd07,4", "kd07,7")}).verdict
    assert (one_less.hypothesis.cause, one_less.hypothesis.subject["node"]) == ("gpu.fell_off_bus", "kd07")
    assert one_less.probability < 0.8


def test_a_fragment_of_nvidia_smi_is_read_without_its_columns(tmp_path: Path) -> None:
    asked = "{0}$ nvidia-smi -q | grep -A2 Fabric\nFabric\n  State: {1}\n  Status: {2}\n"
    pasted = asked.format("kd06", "Completed", "Success") + asked.format("kd07", "In Progress", "N/A")
    verdict = judged(tmp_path, {"p.txt": pasted}).verdict
    assert (verdict.hypothesis.cause, verdict.hypothesis.subject["node"]) == ("gpu.nvswitch_fabric", "kd07")


def test_a_file_that_has_only_its_nodes_name_is_of_that_node(tmp_path: Path) -> None:
    log = "[ 8812.1] amdgpu 0000:c1:00.0: amdgpu: 2 uncorrectable hardware errors detected in umc block\n"
    assert judged(tmp_path / "a", {"kd-7.txt": log}).verdict.hypothesis.subject["node"] == "kd-7"
    assert "node" not in judged(tmp_path / "b", {"terminal2.txt": log}).verdict.hypothesis.subject


CLOCKS = (
    "SM clock under load, MHz\n       gpu0 gpu1 gpu2 gpu3\nkd06     1755 1755 1740 1755\nkd07     1755  {0} 1755 1755\n"
)
COPIES = "h2d copy GB/s\nkd06 gpu0 54.9 gpu1 55.0\nkd07 gpu0 55.0 gpu1 {0}\nkd08 gpu0 55.1 gpu1 54.8\n"


@pytest.mark.parametrize(
    ("text", "cause"), [(CLOCKS.format(615), "gpu.throttled"), (COPIES.format(6.6), "gpu.pcie_degraded")]
)
def test_the_one_gpu_that_measures_far_below_all_others_is_named(tmp_path: Path, text: str, cause: str) -> None:
    verdict = judged(tmp_path, {"measured.txt": text}).verdict
    assert verdict.hypothesis.cause == cause
    assert verdict.hypothesis.subject == {"node": "kd07", "gpu": 1}


@pytest.mark.parametrize("text", [CLOCKS.format(1740), COPIES.format(54.1), CLOCKS.format(615).replace("load", "no")])
def test_gpus_that_measure_alike_or_at_rest_are_well(tmp_path: Path, text: str) -> None:
    assert judged(tmp_path, {"measured.txt": text}).verdict.hypothesis.cause in ("none", "unknown")


LOOP = "ops@jump:~$ for n in kd06 kd07; do echo $n; ssh $n timeout 20 nvidia-smi -L | wc -l; echo rc=$?; done\n"


def test_a_tool_that_ran_out_of_its_time_tells_that_the_driver_does_not_answer(tmp_path: Path) -> None:
    verdict = judged(tmp_path / "a", {"p.txt": f"{LOOP}kd06\n8\nrc=0\nkd07\n0\nrc=124\n"}).verdict
    assert (verdict.hypothesis.cause, verdict.hypothesis.subject) == ("gpu.driver_hang", {"node": "kd07"})
    well = judged(tmp_path / "b", {"p.txt": f"{LOOP}kd06\n8\nrc=0\nkd07\n8\nrc=0\n"}).verdict
    assert well.hypothesis.cause in ("none", "unknown")


def test_a_column_of_nodes_beside_those_of_nvidia_smi_tells_whose_gpu_it_is(tmp_path: Path) -> None:
    head = "host,index,clocks.sm,temperature.gpu,clocks_event_reasons.hw_thermal_slowdown\n"
    rows = "kd06,2,1755 MHz,60,Not Active\nkd07,2,720 MHz,93,Active\n"
    verdict = judged(tmp_path, {"smi.csv": head + rows}).verdict
    assert (verdict.hypothesis.cause, verdict.hypothesis.subject.get("node")) == ("gpu.throttled", "kd07")


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("rank5: CUDA error: device-side assert triggered", "gpu.app_fault"),
        ("rank 5 | torch.OutOfMemoryError: CUDA out of memory, tried to allocate 2.5 GiB (GPU 5)", "gpu.out_of_memory"),
        ("[rank5]: terminate called: CUDA error 700 an illegal memory access was encountered", "gpu.app_fault"),
    ],
)
def test_what_a_rank_met_is_its_own_however_its_mark_is_written(tmp_path: Path, line: str, cause: str) -> None:
    steps = "".join(f"2026-03-02 11:10:{at:02d},114 INFO step {at}/500 loss 2.31\n" for at in range(10, 20))
    verdict = judged(tmp_path, {"job.log": f"{steps}{line}\nrank0: watchdog timeout\n"}).verdict
    assert verdict.hypothesis.cause == cause
    assert verdict.hypothesis.subject.get("rank") == 5
