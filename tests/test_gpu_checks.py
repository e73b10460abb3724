"""What else people run to see whether GPUs are well: bandwidth tests, counters of PCIe, NVSM, health daemons, ps."""

from __future__ import annotations

import itertools
import json
import threading
from pathlib import Path

import pytest

from probes import intake
from probes.catalog import host_aer_counters
from probes.catalog.gpu.p2p import peer_findings, peers_in
from probes.core import ParseError
from probes.diagnosis import diagnose
from probes.diagnosis.core import seen
from probes.diagnosis.ranking import Ranked
from probes.intake.tools import tool_of
from probes.intake.tools.gpu import (
    amd_smi,
    dcgmi_nvlink,
    gpu_bandwidth,
    gpu_metric_xids,
    gpustat,
    nvidia_smi_csv,
    nvidia_smi_pmon,
    nvidia_smi_rows,
    nvsm,
    stuck_in_driver,
    xid_events,
)
from tests.support.collectors import capture_here


def judged(folder: Path, name: str, text: str) -> Ranked:
    (folder / name).write_text(text)
    return diagnose([seen(reading, ref) for ref, reading in intake.read([folder]).readings]).verdict


def matrix(title: str, values: list[list[float]]) -> str:
    head = "   D\\D" + "".join(f"{at:9d}" for at in range(len(values)))
    rows = [f"{at:6d}" + "".join(f"{value:9.2f}" for value in row) for at, row in enumerate(values)]
    return "\n".join([title, head, *rows]) + "\n"


def square(size: int, same: float, other: float, slow: int | None = None, low: float = 0.0) -> list[list[float]]:
    return [
        [same if a == b else low if slow in (a, b) else other for b in range(size)] for a in range(size)
    ]  # fmt: skip


TEST = "[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]\n"
OFF, ON = (
    "Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)",
    "Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)",
)


def test_copies_that_are_slower_with_peer_access_than_without_are_blocked(tmp_path: Path) -> None:
    text = (
        "gpu-b4:~# ./p2pBandwidthLatencyTest\n"
        + TEST
        + matrix(OFF, square(4, 640, 19.8))
        + matrix(ON, square(4, 640, 0.9))
    )
    found = judged(tmp_path, "out.txt", text).hypothesis
    assert (found.cause, found.subject) == ("gpu.p2p_blocked", {"node": "gpu-b4"})
    assert "0.9 GB/s with peer access and at 19.8 GB/s without" in found.says


def test_peers_that_are_as_fast_as_they_should_be_say_nothing() -> None:
    facts = gpu_bandwidth.read(TEST + matrix(OFF, square(4, 640, 19.8)) + matrix(ON, square(4, 640, 24.9)))
    assert [one.rows[0][1] for one in facts.matrices] == [19.8, 24.9]
    assert list(gpu_bandwidth.findings(facts)) == []


def test_one_gpu_that_is_slow_to_all_others_has_a_bad_link_of_the_kind_that_the_others_use() -> None:
    over_links = gpu_bandwidth.read(TEST + matrix(ON, square(8, 2500, 360.0, slow=5, low=42.0)))
    assert [(one.code, one.subject) for one in gpu_bandwidth.findings(over_links)] == [("gpu.nvlink_slow", {"gpu": 5})]
    rows = [["55.3", "55.1", "13.0", "55.2"]]
    said = {"nvbandwidth": {"testcases": [{"name": "host_to_device_memcpy_ce", "bandwidth_matrix": rows}]}}
    from_host = gpu_bandwidth.read(json.dumps(said))
    assert [(one.code, one.subject) for one in gpu_bandwidth.findings(from_host)] == [("gpu.copy_slow", {"gpu": 2})]


def test_rows_of_nvidia_smi_without_a_header_are_known_by_their_units() -> None:
    text = (
        "0, NVIDIA L40S, P0, 98 %, 311.20 W, 350.00 W, 2490 MHz, 40211 MiB, 46068 MiB\n"
        "1, NVIDIA L40S, P8, 0 %, 31.00 W, 350.00 W, 210 MHz, 1 MiB, 46068 MiB\n"
    )
    assert tool_of(text, "smi.csv") is nvidia_smi_rows.TOOL
    first, second = nvidia_smi_rows.read(text).gpus
    assert (first.utilisation_percent, first.power_w, first.power_limit_w, first.sm_mhz) == (98, 311.2, 350.0, 2490)
    assert (second.index, second.name, second.memory_used_mib, second.memory_total_mib) == (1, "NVIDIA L40S", 1, 46068)
    assert tool_of("1, 2, 3\n4, 5, 6\n", "numbers.txt") is not nvidia_smi_rows.TOOL


def test_counters_of_pcie_errors_are_compared_with_other_devices(tmp_path: Path) -> None:
    path = "/sys/bus/pci/devices/0000:{}:00.0/aer_dev_correctable"
    rows = [f"{path.format(bus)}:TOTAL_ERR_COR {count}" for bus, count in (("3b", 88_121), ("5e", 4), ("86", 2))]
    facts = host_aer_counters.parse("\n".join(rows))
    assert [one.subject for one in host_aer_counters.findings(facts)] == [{"bus_id": "0000:3b:00.0"}]
    alike = host_aer_counters.parse("\n".join(row.replace(" 4", " 71000").replace(" 2", " 90000") for row in rows))
    assert list(host_aer_counters.findings(alike)) == [], "all links of the machine are so"
    found = judged(
        tmp_path, "sys.txt", "sr4:~# grep . /sys/bus/pci/devices/*/aer_dev_correctable\n" + "\n".join(rows) + "\n"
    )
    assert found.probability < 0.8


def test_a_device_that_counts_pcie_errors_now_is_named_however_few_it_has(tmp_path: Path) -> None:
    """A node's tree whose one counter rises while it is looked at."""
    for bus, kind in (("3b", "0x030200"), ("5e", "0x020000"), ("00", "0x060000")):
        device = tmp_path / f"0000:{bus}:00.0"
        device.mkdir()
        (device / "class").write_text(f"{kind}\n")
        for name, total in (("correctable", "COR"), ("nonfatal", "NONFATAL"), ("fatal", "FATAL")):
            (device / f"aer_dev_{name}").write_text(f"RxErr 0\nTOTAL_ERR_{total} 0\n")
    ends = threading.Event()

    def count() -> None:
        for count in itertools.count():
            (tmp_path / "new").write_text(f"RxErr {20 * count}\nTOTAL_ERR_COR {20 * count}\n")
            (tmp_path / "new").replace(tmp_path / "0000:3b:00.0/aer_dev_correctable")
            if ends.wait(0.05):
                return

    counting = threading.Thread(target=count)
    counting.start()
    try:
        capture = capture_here(host_aer_counters.PROBE, instead={"/sys/bus/pci/devices": str(tmp_path)})
    finally:
        ends.set()
        counting.join()
    facts = host_aer_counters.parse(capture.text)
    assert {one.device for one in facts.totals} == {"0000:3b:00.0", "0000:5e:00.0"}, "bridges are not asked"
    (found,) = host_aer_counters.findings(facts)
    assert found.subject == {"bus_id": "0000:3b:00.0"} and "in the last second" in found.says


def test_links_that_dcgmi_shows_down_are_of_the_gpu_above_them() -> None:
    text = (
        "|  NvLink Link Status  |\nGPUs:\n    gpuId 0:\n        U U U X\n    gpuId 1:\n        U D D X\n"
        "NvSwitches:\n    physicalId 8:\n        U D\n"
    )
    facts = dcgmi_nvlink.read(text)
    assert [(one.gpu, [link for link, up in one.speeds.items() if up is None]) for one in facts.gpus] == [
        (0, []),
        (1, [1, 2]),
    ]


def test_nvsm_s_checks_that_fail_are_of_their_gpu_and_others_are_left_out() -> None:
    text = (
        "nvsm-> show health\nChecks\n------\n"
        "Verify installed DIMM memory sticks.............. Unhealthy\n"
        "GPU5: PCIe device link width [x8] expected [x16].......... Unhealthy\n"
        "GPU6: PCIe device link width [x16]........................ Healthy\n"
    )
    assert [(one.code, one.gpu, one.n) for one in nvsm.read(text).verdicts] == [("gpu.pcie_width_told", 5, 8)]


def test_the_last_xid_of_an_exporter_is_told_and_does_not_settle_it(tmp_path: Path) -> None:
    lines = [
        f'DCGM_FI_DEV_XID_ERRORS{{gpu="{gpu}",UUID="GPU-{gpu}",Hostname="hx-4"}} {xid}'
        for gpu, xid in ((0, 0), (1, 94))
    ]
    assert [(one.gpu, one.n) for one in gpu_metric_xids.read("\n".join(lines)).verdicts] == [(1, 94)]
    found = judged(tmp_path, "m.prom", "\n".join(lines) + '\nDCGM_FI_DEV_GPU_UTIL{gpu="1",Hostname="hx-4"} 99\n')
    assert (found.hypothesis.cause, found.hypothesis.subject) == ("gpu.memory_error", {"node": "hx-4", "gpu": 1})
    assert found.probability <= 0.8


def test_a_node_of_kubernetes_tells_xids_and_a_gpu_that_is_not_offered() -> None:
    text = (
        "Name:               gpu-node-14\nCapacity:\n  nvidia.com/gpu:     8\nAllocatable:\n  nvidia.com/gpu:     7\n"
        "Conditions:\n  GpuUnhealthy     True    XidError   GPU 3 Xid 79: it is gone\n"
    )
    told = xid_events.read(text).verdicts
    assert [(one.code, one.gpu, one.n) for one in told] == [("gpu.xid_told", 3, 79), ("gpu.not_offered", None, 1)]
    assert xid_events.TOOL.host(text) == "gpu-node-14"


def test_tasks_that_cannot_be_interrupted_in_a_gpu_driver_are_told_from_any_columns(tmp_path: Path) -> None:
    text = (
        "root      41102  0.0  0.0  12345  678 ?   D    08:12   0:00 nvidia-smi --query-gpu=uuid\n"
        " 39912 Dl   uvm_va_space_mm_shutdown       python\n  4110 S    nvidia_poll  python\n"
        "    77 D    rpc_wait_bit_killable  ls\n"
    )
    facts = stuck_in_driver.read(text)
    assert [(task.pid, task.what) for task in facts.tasks] == [
        (41102, "nvidia-smi"),
        (39912, "uvm_va_space_mm_shutdown"),
    ]
    with pytest.raises(ParseError):
        stuck_in_driver.read(" 77 D  rpc_wait_bit_killable  ls\n")
    found = judged(tmp_path, "ps.txt", "gx7:~# ps -eo pid,stat,wchan:30,comm | grep ' D'\n" + text)
    assert found.hypothesis.cause == "gpu.driver_hang"


def test_bad_pages_that_wait_for_a_reset_are_memory_that_is_broken_and_retired_ones_are_not() -> None:
    block = "GPU: {}\n    RETIRED:\n        PAGE_ADDRESS: 0x1\n    PENDING:{}\n    UN_RES: No bad pages found.\n"
    text = block.format(0, " No bad pages found.") + block.format(1, "\n        PAGE_ADDRESS: 0x7fd2ff")
    first, second = amd_smi.read(text).gpus
    assert (first.remap_pending, second.remap_pending, second.remap_failed) == (None, True, None)


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("========= Invalid __shared__ write of size 8 bytes", "gpu.app_fault"),
        ("CUDA Exception: Warp Misaligned Address", "gpu.app_fault"),
        ("Memory access fault by GPU node-2 (Agent handle: 0x5) on address 0x7f00. Reason: Unknown.", "gpu.app_fault"),
        (
            "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2147 bytes.",
            "gpu.out_of_memory",
        ),
        ("RuntimeError: CUDA driver error: CUDA_ERROR_OUT_OF_MEMORY", "gpu.out_of_memory"),
    ],
)
def test_the_words_of_other_runtimes_and_debuggers_name_the_cause(tmp_path: Path, line: str, cause: str) -> None:
    found = judged(tmp_path, "rank3.log", line + "\n").hypothesis
    assert (found.cause, found.subject.get("rank")) == (cause, 3)


SEEN = (
    "Every 5.0s: nvidia-smi --query-gpu=index,utilization.gpu,power.draw --format=csv     "
    "gpu-22: Wed May 14 20:31:08 2025\n\n"
    "index, utilization.gpu [%], power.draw [W]\n"
    + "".join(f"{at}, {0 if at == 5 else 100} %, {82.2 if at == 5 else 131.2} W\n" for at in range(8))
)


def test_an_idle_gpu_among_waiting_ones_counts_where_the_last_step_was_well_before_the_look(tmp_path: Path) -> None:
    (tmp_path / "gpu-22").mkdir()
    (tmp_path / "gpu-22" / "watch.txt").write_text(SEEN)
    steps = "2025-05-14 20:{0}:41 step 3990 loss 2.614 tgs 2210\n2025-05-14 20:{0}:57 step 3992 loss 2.620 tgs 2208\n"
    before = judged(tmp_path, "train.log", steps.format("02")).hypothesis
    assert (before.cause, before.subject["node"], before.subject["gpu"]) == ("gpu.silent_stall", "gpu-22", 5)
    assert judged(tmp_path, "train.log", steps.format("31")).hypothesis.cause == "unknown"


def test_the_last_xid_of_a_gpu_that_computes_is_over(tmp_path: Path) -> None:
    told = {"XID_ERRORS": 94, "GPU_UTIL": 99, "POWER_USAGE": 640}
    lines = [f'DCGM_FI_DEV_{name}{{gpu="1",UUID="a",Hostname="hx-4"}} {value}' for name, value in told.items()]
    assert judged(tmp_path, "m.prom", "\n".join(lines)).hypothesis.cause == "unknown"


def test_gpustat_is_read_as_text_and_as_json() -> None:
    text = (
        "gpu-017             Wed May 14 20:31:08 2025  535.161.08\n"
        "[0] NVIDIA A100-SXM4-80GB | 61'C,  99 %,  412 / 400 W | 72311 / 81920 MB | alice(72300M)\n"
        "[1] NVIDIA A100-SXM4-80GB | 34°C,   0 % |     3 / 81920 MB |\n"
    )
    assert tool_of(text, "x.txt") is gpustat.TOOL and gpustat.TOOL.host(text) == "gpu-017"
    first, second = gpustat.read(text).gpus
    assert (first.temperature_c, first.utilisation_percent, first.power_w, first.power_limit_w) == (
        61,
        99,
        412.0,
        400.0,
    )
    assert (second.temperature_c, second.utilisation_percent, second.memory_used_mib, second.power_w) == (
        34,
        0,
        3,
        None,
    )
    one = {"index": 4, "utilization.gpu": 7, "power.draw": 88, "memory.used": 12, "processes": []}
    said = {"hostname": "gpu-9", "gpus": [one]}
    gpu = gpustat.read(json.dumps(said)).gpus[0]
    assert (gpu.index, gpu.utilisation_percent, gpu.power_w, gpustat.TOOL.host(json.dumps(said))) == (
        4,
        7,
        88.0,
        "gpu-9",
    )


def test_pmon_tells_the_use_of_a_gpu_by_all_its_processes() -> None:
    text = (
        "# gpu         pid   type     sm    mem    enc    dec    command\n"
        "# Idx           #    C/G      %      %      %      %    name\n"
        "    0      21001     C     60     12      -      -    python\n"
        "    0      21009     C     38      2      -      -    python\n"
        "    1          -     -      -      -      -      -    -\n"
        "    0      21001     C     62     12      -      -    python\n"
        "    0      21009     C     36      2      -      -    python\n"
    )
    assert [(one.gpu, one.samples, one.sm_percent) for one in nvidia_smi_pmon.read(text).gpus] == [
        (0, 2, 98.0),
        (1, 1, 0.0),
    ]


def test_a_gpu_that_reaches_no_other_has_lost_its_links_and_where_none_does_the_machine_may_be_so() -> None:
    rows = [["X" if a == b else "NS" if 2 in (a, b) else "OK" for b in range(4)] for a in range(4)]
    facts = peers_in("".join(f" GPU{at}\t{chr(9).join(row)}\n" for at, row in enumerate(rows)))
    assert [(one.code, one.subject) for one in peer_findings(facts)] == [("gpu.nvlink_inactive", {"gpu": 2})]
    none = peers_in(" GPU0\tX\tCNS\n GPU1\tCNS\tX\n")
    assert [one.code for one in peer_findings(none)] == ["gpu.p2p_not_supported"]


def test_what_stands_above_the_header_of_a_query_is_passed_over() -> None:
    text = "# 09:12:43 30 Jul\nindex, temperature.gpu, utilization.gpu [%]\n0, 93, 100 %\n1, 60, 98 %\n"
    assert tool_of(text, "gpu.csv") is nvidia_smi_csv.TOOL
    assert [(gpu.index, gpu.temperature_c) for gpu in nvidia_smi_csv.read(text).gpus] == [(0, 93), (1, 60)]
