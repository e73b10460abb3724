"""Verdicts about GPUs, nodes and their clocks, from files as people bring them.

What is right follows from NVIDIA's Xid catalogue, the kernel's documentation and the recordings, never from a rule. A
verdict leads when it has most of the share; what is odd and stops no job must not lead, however loud it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from probes.diagnosis.judging import Diagnosis
from probes.diagnosis.paths import StepState
from probes.diagnosis.times import local
from tests.support.hardware import HEALTHY, TOOLS, job_log, judged, kernel_log, raised, shares, waited
from tests.test_hardware_files import topology

OFF = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python3, GPU has fallen off the bus."
TRACKING = "Reference ID    : 0A000001 (ntp1)\nSystem time     : {} seconds slow of NTP time\nLeap status     : {}\n"
KEY_ERROR = raised(3, "KeyError: 'labels'")


def xid(bus: str, code: int, text: str = "x", pid: int = 4242, name: str = "python3") -> str:
    return f"NVRM: Xid (PCI:0000:{bus}:00): {code}, pid={pid}, name={name}, {text}"


def node(*lines: tuple[str, str], name: str = "node-1") -> dict[str, str]:
    return {f"{name}/dmesg.log": kernel_log(name, *lines)}


def job(*of_rank_3: str) -> dict[str, str]:
    """Four ranks on two nodes whose watchdogs gave up, rank 3 with lines of its own."""
    found = {
        f"node-{1 + rank // 2}/rank{rank}.log": job_log(f"node-{1 + rank // 2}", rank, waited(rank))
        for rank in range(4)
    }
    if of_rank_3:
        found["node-2/rank3.log"] = job_log("node-2", 3, *of_rank_3)
    return found


def lead(diagnosis: Diagnosis) -> tuple[str, dict[str, Any]]:
    return diagnosis.verdict.hypothesis.cause, dict(diagnosis.verdict.hypothesis.subject)


# One fault and what follows from it ----------------------------------------------------------------------------------


def test_a_gpu_off_the_bus_leads_and_its_echoes_on_other_gpus_blame_nobody(tmp_path: Path) -> None:
    """154 comes on every GPU after one 79; its peers' links and processes err as well (Xid catalogue)."""
    action = "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
    found = judged(
        tmp_path,
        job()
        | node(
            ("10:00:05", OFF),
            *[("10:00:05", xid(bus, 154, action)) for bus in ("3b", "4c", "5d")],
            ("10:00:06", xid("4c", 74, "NVLink: fatal error detected on link 2")),
            ("10:00:06", xid("5d", 45, "Ch 00000008")),
            ("10:00:40", xid("5d", 119, "Timeout after 6s of waiting for RPC response from GPU3 GSP!")),
        ),
    )
    assert lead(found) == ("gpu.fell_off_bus", {"node": "node-1", "bus_id": "0000:3b:00"})
    assert found.verdict.probability > 0.95
    told = [one.hypothesis for one in found.ranked] + list(found.verdict.consequences)
    assert not any(one.subject.get("bus_id") in ("0000:4c:00", "0000:5d:00") for one in told)
    assert any("Node Reboot Required" in reason.says for reason in found.verdict.hypothesis.because)


def test_both_ends_of_a_link_are_one_fault(tmp_path: Path) -> None:
    found = judged(
        tmp_path, node(("10:00:05", xid("4c", 74)), ("10:00:05", xid("5d", 74)), ("10:00:09", xid("4c", 74)))
    )
    assert lead(found) == ("gpu.nvlink_error", {"node": "node-1", "bus_id": "0000:4c:00"})
    assert found.verdict.probability > 0.9


def test_an_uncorrectable_error_with_its_remap_and_its_containment_is_one_fault(tmp_path: Path) -> None:
    lines = [("10:00:05", xid("4c", code)) for code in (48, 63, 94)]
    assert lead(judged(tmp_path, node(*lines))) == ("gpu.memory_error", {"node": "node-1", "bus_id": "0000:4c:00"})


def test_one_program_that_faults_on_many_gpus_is_the_program(tmp_path: Path) -> None:
    found = judged(tmp_path, node(*[("10:00:05", xid(bus, 31, "MMU Fault")) for bus in ("3b", "4c", "5d")]))
    assert lead(found) == ("gpu.app_fault", {"node": "node-1"})


def test_of_faults_on_two_nodes_the_earliest_leads_by_corrected_clocks(tmp_path: Path) -> None:
    """node-2's clock is 300 s ahead, so its 10:04:00 was 09:59:00, before node-1's 10:00:05."""
    late = node(("10:00:05", xid("3b", 31, "MMU Fault"))) | node(
        ("10:04:00", xid("4c", 31, "MMU Fault")), name="node-2"
    )
    ahead = TRACKING.format("300.000000000", "Normal").replace("slow", "fast")
    assert lead(judged(tmp_path / "a", late))[1]["node"] == "node-1"
    assert lead(judged(tmp_path / "b", late | {"node-2/chronyc.txt": ahead}))[1]["node"] == "node-2"


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        ([xid("9b", 119, "Timeout after 6s of waiting for RPC response from GPU4 GSP!")], "gpu.driver_hang"),
        (["amdgpu 0000:83:00.0: amdgpu: ring sdma0 timeout, signaled seq=1, emitted seq=2"], "gpu.driver_hang"),
        (
            [
                "amdgpu 0000:83:00.0: amdgpu: 1 uncorrectable hardware errors detected in total in umc block",
                "amdgpu 0000:83:00.0: amdgpu: GPU reset begin!",
            ],
            "gpu.memory_error",
        ),
        (["nvidia-nvswitch1: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"], "gpu.nvswitch_fabric"),
        (["mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: bd80000000100134"], "host.machine_check"),
        (["BUG: unable to handle page fault", "Kernel panic - not syncing: Fatal exception"], "host.machine_check"),
        (
            ["Lustre: s-OST0003-osc-f: Connection to s-OST0003 (at 10.0.0.3@o2ib) was lost; in progress operations"],
            "host.storage_stall",
        ),
        (
            ["pcieport 0000:00:03.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer"],
            "gpu.pcie_degraded",
        ),
    ],
)
def test_a_line_of_the_kernel_that_stops_a_job_leads(tmp_path: Path, lines: list[str], cause: str) -> None:
    assert lead(judged(tmp_path, node(*[("10:00:05", line) for line in lines])))[0] == cause


STACK = ["Call Trace:", " __schedule+0x2d0/0x890"]


@pytest.mark.parametrize(
    ("frame", "cause"),
    [
        (" os_acquire_rwlock_write+0x35/0x50 [nvidia]", "gpu.driver_hang"),
        (" uvm_va_space_mm_shutdown+0x20/0x90 [nvidia_uvm]", "gpu.driver_hang"),
        (" nfs_wait_bit_killable+0x1e/0x30 [nfs]", "host.storage_stall"),
        (" xfs_log_commit_cil+0x20/0x90 [xfs]", "host.storage_stall"),
    ],
)
def test_a_hung_task_names_what_it_waits_for(tmp_path: Path, frame: str, cause: str) -> None:
    lines = ["INFO: task python3:99 blocked for more than 120 seconds.", *STACK, frame]
    assert lead(judged(tmp_path, node(*[("10:03:00", line) for line in lines])))[0] == cause


def test_a_server_that_many_nodes_miss_is_one_fault(tmp_path: Path) -> None:
    files: dict[str, str] = {}
    for n in range(6):
        files |= node(("10:00:05", "nfs: server fs1 not responding, still trying"), name=f"node-{n}")
    found = judged(tmp_path, files)
    assert lead(found) == ("host.storage_stall", {"server": "fs1"})
    assert found.verdict.probability > 0.8 and len(found.verdict.hypothesis.nodes) == 6


def test_processes_of_a_job_that_are_killed_one_after_another_are_one_fault(tmp_path: Path) -> None:
    kill = "Memory cgroup out of memory: Killed process {} (python3) total-vm:9kB, anon-rss:8kB, file-rss:0kB"
    found = judged(tmp_path, node(*[("10:00:05", kill.format(1000 + n)) for n in range(8)]))
    assert lead(found) == ("host.memory_oom_kill", {"node": "node-1"}) and found.verdict.probability > 0.9


def test_a_crash_inside_the_communication_library_is_told_as_such(tmp_path: Path) -> None:
    crash = "python3[1003]: segfault at 7f79 ip 00007f7c sp 00007f7d error 4 in {}[7f7c00000+d3d3000]"
    assert lead(judged(tmp_path / "a", node(("10:00:05", crash.format("libnccl.so.2")))))[0] == "nccl.library_fault"
    assert lead(judged(tmp_path / "b", node(("10:00:05", crash.format("ext.so")))))[0] == "fw.rank_exited"


def test_a_switch_is_named_as_a_switch(tmp_path: Path) -> None:
    line = "nvidia-nvswitch1: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"
    found = judged(tmp_path, node(("10:00:05", line)))
    assert lead(found) == ("gpu.nvswitch_fabric", {"node": "node-1", "switch": "0000:05:00"})
    assert "GPU 0000:05:00" not in found.verdict.hypothesis.says


# What must not lead --------------------------------------------------------------------------------------------------

CORRECTED = [
    ("10:00:00", "EDAC MC1: 300 CE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0 (channel:1)"),
    ("10:00:01", xid("4c", 63, "Row Remapper: New row marked for remapping")),
    ("10:00:01", xid("4c", 92, "High single-bit ECC error rate")),
    ("10:00:02", xid("5d", 45, "Ch 00000008")),
    ("10:00:02", xid("5d", 43, "Ch 00000008")),
    ("10:00:03", "nfs: server fs1 not responding, still trying"),
    ("10:00:30", "nfs: server fs1 OK"),
    ("10:00:31", "pcieport 0000:00:03.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Transmitter ID)"),
]


def test_what_was_corrected_or_recovered_leads_neither_alone_nor_beside_a_crash(tmp_path: Path) -> None:
    alone = judged(tmp_path / "a", node(*CORRECTED))
    assert lead(alone)[0] in ("unknown", "none")
    beside = judged(tmp_path / "b", job(*KEY_ERROR) | node(*CORRECTED, name="node-2"))
    assert lead(beside) == ("fw.rank_exited", {"rank": 3, "node": "node-2"})
    assert beside.verdict.probability > 0.9


def test_waiting_row_remaps_of_an_old_error_do_not_beat_a_crash(tmp_path: Path) -> None:
    head = "index, pci.bus_id, remapped_rows.correctable, remapped_rows.uncorrectable, remapped_rows.pending\n"
    pending = head + "0, 00000000:4C:00.0, 0, 4, Yes\n"
    done = head + "0, 00000000:4C:00.0, 0, 4, No\n"
    found = judged(tmp_path / "a", job(*KEY_ERROR) | {"node-2/rows.csv": pending})
    assert lead(found)[0] == "fw.rank_exited"
    assert "gpu.memory_error" in shares(found), "and it is told"
    assert "gpu.memory_error" not in shares(judged(tmp_path / "b", {"node-2/rows.csv": done}))


def test_an_error_before_the_job_does_not_lead_although_the_logs_zones_are_unknown(tmp_path: Path) -> None:
    before = judged(tmp_path / "a", job(*KEY_ERROR) | node(("06:10:05", OFF)))
    assert lead(before)[0] == "fw.rank_exited" and before.verdict.probability > 0.9
    a_day = kernel_log("node-1", ("10:00:05", OFF)).replace("2025-03-03", "2025-03-01")
    days = judged(tmp_path / "b", job() | {"node-1/dmesg.log": a_day})
    assert lead(days)[0] != "gpu.fell_off_bus"


def test_an_error_before_the_job_makes_no_step_of_a_path_suspect(tmp_path: Path) -> None:
    def step(at: str, day: str = "2025-03-03") -> StepState:
        logs = {f"node-{n}": kernel_log(f"node-{n}", (at, OFF)).replace("2025-03-03", day) for n in (1, 2)}
        files = {f"{name}/dmesg.log": log for name, log in logs.items()}
        found = judged(tmp_path / day / at[:2], job(*KEY_ERROR) | files)
        return next(step for step in found.paths["gpu-fault"].steps if step.id == "kernel")

    assert step("10:00:05").state == "suspect"
    assert step("06:10:05").state == "not known", "within 14 h: the job's log does not tell its zone"
    days = step("10:00:05", "2025-03-01")
    assert days.state == "ruled out" and days.why.startswith("only from before the job: GPU 0000:3b:00: Xid 79")


def test_a_gpu_that_answers_and_is_well_was_lost_before(tmp_path: Path) -> None:
    """A GPU off the bus does not come back without a reset of the node."""
    log = node(("10:00:05", OFF))
    assert lead(judged(tmp_path / "a", log))[0] == "gpu.fell_off_bus"
    well = judged(tmp_path / "b", log | {"node-1/nvidia-smi.txt": HEALTHY.read_text()})
    assert lead(well)[0] != "gpu.fell_off_bus" and shares(well)["gpu.fell_off_bus"] < 0.5


def test_another_programs_memory_kill_explains_no_exception(tmp_path: Path) -> None:
    killed = ("10:00:07", "Out of memory: Killed process 777 (mysqld) total-vm:1kB, anon-rss:1000kB, file-rss:0kB")
    found = judged(tmp_path, job(*KEY_ERROR) | node(killed, name="node-2"))
    assert lead(found)[0] == "fw.rank_exited" and found.verdict.probability > 0.9


def test_a_kill_within_the_jobs_control_group_is_the_jobs(tmp_path: Path) -> None:
    killed = (
        "10:00:07",
        "Memory cgroup out of memory: Killed process 1003 (python3) total-vm:9kB, anon-rss:8kB, file-rss:0kB",
    )
    found = judged(tmp_path, job() | node(killed, name="node-2"))
    assert lead(found)[0] == "host.memory_oom_kill" and found.verdict.probability > 0.95


def test_switched_on_acs_alone_proves_nothing(tmp_path: Path) -> None:
    found = judged(tmp_path, {"node-1/lspci.txt": (TOOLS / "lspci-vvv.acs.txt").read_text()})
    assert lead(found)[0] in ("unknown", "none")


def test_a_software_power_cap_is_how_a_loaded_gpu_works(tmp_path: Path) -> None:
    head = "index, pci.bus_id, name, clocks_event_reasons.active, clocks.current.sm [MHz], clocks.max.sm [MHz]\n"
    rows = "".join(
        f"{n}, 00000000:{n + 1:02X}:00.0, NVIDIA H100, 0x0000000000000004, 1755 MHz, 1980 MHz\n" for n in range(8)
    )
    assert "gpu.throttled" not in shares(judged(tmp_path, {"node-1/q.csv": head + rows}))


# Peers ---------------------------------------------------------------------------------------------------------------


def busy(slow: int | None = None, width: int = 16, gen: int = 5, use: int = 100, clock: int = 1980) -> str:
    """Eight GPUs under load; one of them differs."""
    head = (
        "index, pci.bus_id, name, utilization.gpu [%], clocks.current.sm [MHz], clocks.max.sm [MHz], "
        "pcie.link.gen.current, "
        "pcie.link.gen.max, pcie.link.width.current, pcie.link.width.max\n"
    )
    rows = ""
    for n in range(8):
        w, g, c = (width, gen, clock) if n == slow else (16, 5, 1980)
        rows += f"{n}, 00000000:{n + 1:02X}:00.0, NVIDIA H100, {use} %, {c} MHz, 1980 MHz, {g}, 5, {w}, 16\n"
    return head + rows


@pytest.mark.parametrize(
    ("table", "cause"),
    [
        (busy(3, width=8), "gpu.pcie_degraded"),
        (busy(3, gen=2), "gpu.pcie_degraded"),
        (busy(3, clock=600), "gpu.throttled"),
    ],
)
def test_a_gpu_that_differs_from_its_busy_peers_is_named(tmp_path: Path, table: str, cause: str) -> None:
    found = judged(tmp_path, {"node-1/q.csv": table})
    assert lead(found) == (cause, {"node": "node-1", "gpu": 3, "bus_id": "0000:04:00.0"})


def test_a_low_generation_at_idle_is_power_saving(tmp_path: Path) -> None:
    assert "gpu.pcie_degraded" not in shares(judged(tmp_path, {"node-1/q.csv": busy(3, gen=1, use=0)}))


def test_the_power_brake_on_all_gpus_of_a_node_is_the_nodes(tmp_path: Path) -> None:
    """The recording: eight H100 at 86 of 1980 MHz, 29 C, HW Power Brake active on all."""
    table = (TOOLS / "nvidia-smi-q.h100x8-power-brake.txt").read_text()
    found = judged(tmp_path, {"node-1/nvidia-smi-q.txt": table})
    assert lead(found) == ("gpu.throttled", {"node": "node-1"})
    assert 0.5 < found.verdict.probability < 0.9, "slow for certain; that it is the reason is not"


def test_a_gpu_without_the_nvlink_of_its_peers_is_named(tmp_path: Path) -> None:
    found = judged(tmp_path, {"node-1/topo.txt": topology(lone=2)})
    assert lead(found) == ("gpu.nvlink_error", {"node": "node-1", "gpu": 2})


def test_a_node_without_the_nvlink_of_its_peers_lost_its_fabric(tmp_path: Path) -> None:
    files = {f"node-{n}/topo.txt": topology(nvlink="SYS" if n == 2 else "NV18") for n in (1, 2, 3)}
    assert lead(judged(tmp_path, files)) == ("gpu.nvswitch_fabric", {"node": "node-2"})


def test_a_node_that_shows_fewer_gpus_than_its_peers_has_lost_one(tmp_path: Path) -> None:
    whole = HEALTHY.read_text().splitlines()
    at = next(number for number, line in enumerate(whole) if "00000000:4C:00.0" in line)
    seven = "\n".join(whole[:at] + whole[at + 4 :])
    files = {f"node-{n}/nvidia-smi.txt": HEALTHY.read_text() for n in (1, 2, 3)} | {"node-4/nvidia-smi.txt": seven}
    assert lead(judged(tmp_path, files)) == ("gpu.fell_off_bus", {"node": "node-4"})


def test_versions_are_compared_by_majority(tmp_path: Path) -> None:
    """NCCL must be one version; a driver may differ for weeks without harm."""
    nccl = {
        f"node-{n}/pip.txt": f"torch==2.3.0\nnvidia-nccl-cu12=={'2.18.1' if n == 2 else '2.20.5'}\n" for n in (1, 2, 3)
    }
    assert lead(judged(tmp_path / "a", nccl)) == ("host.library_mismatch", {"node": "node-2"})
    version = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.{}.03  Thu Oct 19 18:56:32 UTC 2023\n"
    driver = {f"node-{n}/version": version.format("86" if n == 2 else "129") for n in (1, 2, 3)}
    assert lead(judged(tmp_path / "b", driver))[0] in ("unknown", "none")


# The node itself -----------------------------------------------------------------------------------------------------

REBOOT = "reboot   system boot  5.15.0-91-generic Mon Mar  3 10:02:11 2025   still running\n"


@pytest.mark.parametrize(
    ("files", "probable"),
    [
        ({"node-2/last.txt": REBOOT}, 0.9),
        ({"node-2/last.txt": REBOOT.replace("Mar  3 10:02:11", "Feb  3 10:02:11")}, 0.0),
        (
            {
                "node-2/messages": "Mar  3 10:00:01 node-2 systemd-logind[812]: System is rebooting.\n"
                "Mar  3 10:00:02 node-2 kernel: reboot: Restarting system\n"
            },
            0.9,
        ),
        (
            {
                "node-2/messages": "Mar  3 10:00:00 node-2 kernel: usb 1-1: new\n"
                "Mar  3 10:00:01 node-2 aws-spot-handler[9]: Spot interruption notice received\n"
            },
            0.9,
        ),
    ],
)
def test_a_boot_while_the_job_ran_leads_and_an_older_one_does_not(
    tmp_path: Path, files: dict[str, str], probable: float
) -> None:
    found = shares(judged(tmp_path, job() | files)).get("host.rebooted", 0.0)
    assert found > probable if probable else found == 0.0


def test_a_full_file_system_explains_the_exception_that_it_caused(tmp_path: Path) -> None:
    df = "Filesystem      Size  Used Avail Use% Mounted on\n/dev/nvme0n1p2  879G  879G     0 100% /scratch\n"
    error = raised(3, "OSError: [Errno 28] No space left on device: '/scratch/ckpt/step900.pt'")
    found = judged(tmp_path, job(*error) | {"node-2/df.txt": df})
    assert lead(found) == ("host.disk_full", {"node": "node-2"})
    assert "fw.rank_exited" in [one.cause for one in found.verdict.consequences]
    other = judged(tmp_path / "b", job(*KEY_ERROR) | {"node-2/df.txt": df})
    assert lead(other)[0] == "fw.rank_exited", "a full disk that nobody wrote to explains no KeyError"


def test_a_worker_killed_for_shared_memory_is_the_shared_memory(tmp_path: Path) -> None:
    words = (
        "RuntimeError: DataLoader worker (pid 2345) is killed by signal: Bus error. It is possible that dataloader's "
        "workers are out of shared memory. Please try to raise your shared memory limit."
    )
    assert lead(judged(tmp_path, job(*raised(3, words))))[0] == "host.shm_full"


def test_error_802_is_the_fabric(tmp_path: Path) -> None:
    found = judged(tmp_path, job(*raised(3, "RuntimeError: CUDA error: system not yet initialized")))
    assert lead(found)[0] == "gpu.nvswitch_fabric"


def test_a_driver_whose_library_differs_stops_the_node(tmp_path: Path) -> None:
    words = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.161\n"
    assert lead(judged(tmp_path, {"node-1/nvidia-smi.txt": words})) == ("host.library_mismatch", {"node": "node-1"})


# Clocks and paths ----------------------------------------------------------------------------------------------------


def test_clocks_apart_matter_to_a_rendezvous_and_to_nothing_else(tmp_path: Path) -> None:
    clock = {"node-2/chronyc.txt": TRACKING.format("903.123456789", "Normal")}
    alone = judged(tmp_path / "a", clock)
    assert lead(alone)[0] in ("unknown", "none") and "host.clock_offset" in shares(alone)
    words = "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError: timed out"
    joined = judged(tmp_path / "b", clock | {"node-2/rank3.log": job_log("node-2", 3, *raised(3, words))})
    assert shares(joined)["host.clock_offset"] > shares(alone)["host.clock_offset"]


def test_a_clock_out_of_step_is_said_even_where_it_is_near(tmp_path: Path) -> None:
    found = judged(tmp_path, {"node-1/chronyc.txt": TRACKING.format("0.000000000", "Not synchronised")})
    steps = {step.id: (step.state, step.why) for step in found.paths["clock-offset"].steps}
    assert steps["offset"][0] == "ruled out"
    assert steps["service"][0] == "suspect" and "not synchronised" in steps["service"][1]


def test_a_step_that_files_alone_can_answer_says_which(tmp_path: Path) -> None:
    found = judged(tmp_path / "a", node(("10:00:05", OFF)))
    steps = {step.id: step for step in found.paths["gpu-fault"].steps}
    assert steps["links"].state == "not known" and "topo -m" in steps["links"].why
    whole = judged(tmp_path / "b", {"node-1/topo.txt": topology()})
    assert {step.id: step.state for step in whole.paths["gpu-fault"].steps}["links"] == "ruled out"


@pytest.mark.parametrize(
    ("stamp", "same_as"),
    [
        ("Mon Mar 03 10:00:05 2025", "2025-03-03 10:00:05"),
        ("2025-03-03T10:00:05,123456", "2025-03-03 10:00:05"),
        ("Mar  3 10:00:05", "2000-03-03 10:00:05"),
        ("03-03 10:00:05", "2000-03-03 10:00:05"),
    ],
)
def test_times_are_compared_in_whatever_form_they_are_printed(stamp: str, same_as: str) -> None:
    assert local(stamp) == local(same_as) is not None
    assert local("[  12.345678]") is None


NOT_READY = (
    "Traceback (most recent call last):\n"
    '  File "/job/train.py", line 31, in <module>\n'
    "    torch.cuda.set_device(local_rank)\n"
    "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling "
    "NumCudaDevices() that might have already set an error? Error 802: system not yet initialized\n"
)


def test_error_802_is_of_the_node_whose_fabric_manager_is_down_and_of_no_rank(tmp_path: Path) -> None:
    service = "nvidia-fabricmanager.service - NVIDIA fabric manager service\n     Active: {}\n"
    files = {
        f"node-{n}/fabricmanager.txt": service.format(s) for n, s in ((1, "active (running)"), (2, "inactive (dead)"))
    }
    cause, subject = lead(judged(tmp_path / "a", files | {"job.log": NOT_READY}))
    assert (cause, subject) == ("gpu.nvswitch_fabric", {"node": "node-2"})
    alone = judged(tmp_path / "b", {f"rank{rank}.log": NOT_READY for rank in range(4)})
    assert lead(alone) == ("gpu.nvswitch_fabric", {})
