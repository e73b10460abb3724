"""What monitoring tools tell of GPUs: exporters' metrics, DCGM's tables and verdicts, AMD's violations, collections."""

from __future__ import annotations

import json
from pathlib import Path

from probes import intake
from probes.core import Reading
from probes.diagnosis import diagnose
from probes.diagnosis.core import seen
from probes.diagnosis.ranking import Ranked
from probes.intake.pasted import parts_of
from probes.intake.tools import tool_of
from probes.intake.tools.gpu import amd_smi, dcgmi_dmon, gpu_metrics, gpu_verdicts

# dcgm-exporter's default counters; 68 is 0x44: power cap and hardware thermal slowdown (nvml.h).
FIELDS = {"DCGM_FI_DEV_SM_CLOCK": 1755, "DCGM_FI_DEV_GPU_TEMP": 61, "DCGM_FI_DEV_POWER_USAGE": 644.5,
    "DCGM_FI_DEV_GPU_UTIL": 100, "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": 4, "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": 3,
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": 0}  # fmt: skip
HELD = {"DCGM_FI_DEV_SM_CLOCK": 510, "DCGM_FI_DEV_GPU_TEMP": 91, "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": 68}


def exported(node: str, gpus: int, *, held: int | None = None) -> str:
    lines = []
    for name, usual in FIELDS.items():
        lines += [f"# HELP {name} words.", f"# TYPE {name} gauge"]
        for gpu in range(gpus):
            value = HELD.get(name, usual) if gpu == held else usual
            lines.append(
                f'{name}{{gpu="{gpu}",UUID="GPU-{node}-{gpu}",modelName="NVIDIA H200",Hostname="{node}"}} {value}'
            )
    return "\n".join(lines) + "\n"


def judged(readings: list[tuple[str, Reading]]) -> Ranked:
    return diagnose([seen(reading, ref) for ref, reading in readings]).verdict


def read(folder: Path) -> list[tuple[str, Reading]]:
    return list(intake.read([folder]).readings)


def test_an_exporter_s_metrics_are_the_facts_of_nvidia_smi() -> None:
    gpu = gpu_metrics.read(exported("h2", 1, held=0)).gpus[0]
    assert (gpu.index, gpu.sm_mhz, gpu.temperature_c, gpu.utilisation_percent, gpu.power_w) == (0, 510, 91, 100, 644.5)
    assert (gpu.reasons, gpu.remap_failed, gpu.pcie_replays) == (("sw_power_cap", "hw_thermal_slowdown"), False, 3)


def test_metrics_of_several_nodes_in_one_scrape_are_each_node_s_own(tmp_path: Path) -> None:
    (tmp_path / "all.prom").write_text(exported("h2-1", 4) + exported("h2-2", 4, held=3) + exported("h2-3", 4))
    first = judged(read(tmp_path)).hypothesis
    assert (first.cause, first.subject["node"], first.subject["gpu"]) == ("gpu.throttled", "h2-2", 3)
    assert "510 MHz, its peers 1755 MHz" in first.says


def test_prometheus_answer_to_a_query_is_read_as_the_exporter_s_own_text(tmp_path: Path) -> None:
    result = [
        {"metric": {"__name__": name, "gpu": "1", "Hostname": node, "UUID": f"GPU-{node}"},
         "values": [[1.0, "7"], [2.0, str(value)]]}
        for node in ("x-1", "x-2")
        for name, value in (("DCGM_FI_DEV_GPU_TEMP", 66), ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 2 if node == "x-2" else 0))
    ]  # fmt: skip
    (tmp_path / "query.json").write_text(
        json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})
    )
    told = {reading.capture.node: reading.facts.gpus[0] for _, reading in read(tmp_path)}
    assert {node: (gpu.temperature_c, gpu.ecc_uncorrected) for node, gpu in told.items()} == {
        "x-1": (66, 0),
        "x-2": (66, 2),
    }


def test_the_other_exporter_has_the_names_of_query_gpu_with_units() -> None:
    text = (
        'nvidia_smi_gpu_info{uuid="3f1",name="NVIDIA A40",driver_version="550.90"} 1\n'
        'nvidia_smi_clocks_current_sm_clock_hz{uuid="3f1"} 2.1e+08\n'
        'nvidia_smi_utilization_gpu_ratio{uuid="3f1"} 0.97\n'
        'nvidia_smi_memory_used_bytes{uuid="3f1"} 1048576\n'
        'nvidia_smi_clocks_throttle_reasons_hw_thermal_slowdown{uuid="3f1"} 1\n'
    )
    gpu = gpu_metrics.read(text).gpus[0]
    assert (gpu.sm_mhz, gpu.utilisation_percent, gpu.memory_used_mib) == (210, 97, 1)
    assert gpu.reasons == ("hw_thermal_slowdown",)


def test_dcgmi_dmon_tells_the_median_of_its_looks_and_rows_with_nothing_are_none() -> None:
    text = (
        "#Entity   GPUTL  POWER    SMCLK  PCILW\nID               W        MHz\n"
        "GPU 0     98     610.1    1755   16\nGPU 1     N/A    N/A      N/A    8\n"
        "GPU 0     100    630.3    1740   16\nGPU 1     N/A    N/A      N/A    8\nGPU 0     99     620.0    1735   16\n"
    )
    assert tool_of(text, "x.txt") is dcgmi_dmon.TOOL
    first, second = dcgmi_dmon.read(text).gpus
    assert (first.utilisation_percent, first.power_w, first.sm_mhz, first.pcie_width) == (99, 620.0, 1740, 16)
    assert (second.index, second.utilisation_percent, second.pcie_width) == (1, None, 8)


HEALTH = """+---------------------------+----------------------------------------------------------+
| Health Monitor Report                                                                    |
+===========================+==========================================================+
| Overall Health            | Failure                                                  |
| GPU                       |                                                          |
| -> 3                      | Failure                                                  |
|    -> Errors              |                                                          |
|       -> NVLINK system    | Failure                                                  |
|                           | GPU 3's NvLink link 11 is currently down Run a field      |
|                           | diagnostic on the GPU.                                   |
+---------------------------+----------------------------------------------------------+
"""


def test_dcgm_s_sentences_are_known_also_where_they_are_broken_over_rows() -> None:
    told = gpu_verdicts.read(HEALTH).verdicts
    assert [(one.code, one.gpu, one.n) for one in told] == [("gpu.nvlink_inactive", 3, 11)]


def test_the_json_of_dcgm_three_and_four_names_the_gpu_beside_its_sentence() -> None:
    three = {"DCGM GPU Diagnostic": {"test_categories": [{"tests": [{"name": "PCIe", "results": [
        {"gpu_id": "0", "status": "Pass"},
        {"gpu_id": "5", "status": "Fail", "warnings": [{"warning": "GPU 5 is running at PCI link width 4X, which "
            "is below the minimum allowed link generation of 16", "error_id": 63}]}]}]}]}}  # fmt: skip
    four = {"DCGM Diagnostic": {"test_categories": [{"tests": [{"name": "memory", "results": [
        {"entity_group": "GPU", "entity_id": 2, "status": "Fail", "warnings": [{"warning":
            "GPU had an uncontained error (XID 95)"}]}]}]}]}}  # fmt: skip
    health = {"body": {"GPU": {"children": {"7": {"children": {"Errors": {"children": {"Thermal system": {"children": {
        "Warnings": {"value": "Detected clocks event due to thermal violation in GPU 7."}}}}}}}}}},
        "header": ["Health Monitor Report"]}  # fmt: skip
    found = [gpu_verdicts.read(json.dumps(one)).verdicts for one in (three, four, health)]
    assert [(one.code, one.gpu) for some in found for one in some] == [
        ("gpu.pcie_width_told", 5),
        ("gpu.ecc_uncorrected", 2),
        ("gpu.throttle_told", 7),
    ]


def test_a_diagnostic_that_passes_says_nothing() -> None:
    table = (
        "| Diagnostic                | Result                |\n| PCIe                      | Pass - All            |\n"
    )
    assert gpu_verdicts.read(table).verdicts == ()


def test_an_amd_gpu_is_held_back_by_the_share_of_time_that_any_form_tells() -> None:
    table = (
        "GPU  XCP    PVIOL     TVIOL  PHOT_TVIOL  VR_TVIOL  HBM_TVIOL\n"
        "  0    0     88 %       1 %         0 %       0 %        0 %\n"
    )
    assert amd_smi.read(table).gpus[0].reasons == ("sw_power_cap",)
    block = "GPU: 4\n    THROTTLE:\n        HBM_THERMAL_VIOLATION_ACTIVITY: 61 %\n"
    assert amd_smi.read(block).gpus[0].reasons == ("hw_thermal_slowdown",)
    said = [{"gpu": 2, "power": {"socket_power": {"value": 300, "unit": "W"}},
             "throttle": {"vr_thermal_violation_activity": {"value": 2, "unit": "%"}}}]  # fmt: skip
    assert amd_smi.read(json.dumps(said)).gpus[0].reasons == (), "it touches its limit now and then"


def test_rocm_smi_tells_load_and_clock_as_table_and_as_lines() -> None:
    table = (
        "============ ROCm System Management Interface ============\n"
        "Device  Node  Temp        Power     SCLK     MCLK     Fan  Perf  PwrCap  VRAM%  GPU%\n"
        "0       2     41.0°C      139.0W    132Mhz   900Mhz   0%   auto  750.0W  71%    0%\n"
    )
    gpu = amd_smi.read(table).gpus[0]
    assert (gpu.temperature_c, gpu.power_w, gpu.sm_mhz, gpu.utilisation_percent) == (41, 139.0, 132, 0)
    lines = "GPU[0]\t\t: GPU use (%): 99\nGPU[0]\t\t: sclk clock level: 1: (1700Mhz)\nGPU[1]\t\t: GPU use (%): 3\n"
    first, second = amd_smi.read(lines).gpus
    assert (first.utilisation_percent, first.sm_mhz, second.utilisation_percent) == (99, 1700, 3)


def test_a_bug_report_is_many_files_of_the_node_that_it_names(tmp_path: Path) -> None:
    rule = "_" * 44
    (tmp_path / "nvidia-bug-report.log").write_text(
        f"{rule}\n\nStart of NVIDIA bug report log file.  Please.\n\nuname: Linux gx7 5.15.0-91-generic #1\n"
        f"{rule}\n\n*** /var/log/syslog\n*** ls: -rw-r----- 1 syslog adm 9 2026-03-05 /var/log/syslog\n"
        "Mar  5 07:41:19 gx7 kernel: NVRM: Xid (PCI:0000:81:00): 79, pid=1, name=python, GPU has fallen off the bus.\n"
        f"{rule}\n\n/usr/bin/nvidia-smi -L\n\n"
        f"GPU 0: NVIDIA A40 (UUID: GPU-11111111-2222-3333-4444-555555555555)\n{rule}\n"
    )
    told = read(tmp_path)
    assert {(one.capture.node, one.capture.probe) for _, one in told} == {
        ("gx7", "host.kernel_log"),
        ("gx7", "gpu.state"),
    }
    assert judged(told).hypothesis.cause == "gpu.fell_off_bus"


def test_prompts_without_a_user_and_watch_name_the_node_that_was_looked_at() -> None:
    text = (
        "inf-17# nvidia-smi -L\na\ng1k22:~ # dcgmi health -c\nb\n"
        "Every 2.0s: amd-smi monitor -p      amd-n05: Wed May 14 20:31:08 2025\nc\n"
    )
    parts = parts_of(text)
    assert [(part.nodes, part.text.strip()) for part in parts] == [
        (("inf-17",), "a"),
        (("g1k22",), "b"),
        (("amd-n05",), "c"),
    ]
    assert parts[2].at == 1747254668.0  # 2025-05-14 20:31:08, as if its zone were UTC
