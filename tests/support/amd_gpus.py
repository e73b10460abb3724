"""The files of amdgpu and amdkfd for AMD GPUs that are not there, as the kernel's source prints them.

Source   drivers/gpu/drm/amd/pm/amdgpu_pm.c (DOC: hwmon, pp_dpm_sclk, gpu_busy_percent, unique_id), amdgpu_ras.c (DOC:
         AMDGPU RAS sysfs Error Count Interface, gpu_vram_bad_pages), amdkfd/kfd_process.c and kfd_topology.c. The
         numbers are those of an MI300X: 192 GiB, 750 W, 2100 MHz
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

BUSES = ("0000:0c:00.0", "0000:22:00.0", "0000:38:00.0")
KFD_IDS = (28851, 51499, 57707)  # gpu_id of the topology: any number, which the files of processes use
HEALTHY = {
    "vendor": "0x1002", "class": "0x120000", "current_link_width": "16", "max_link_width": "16",
    "current_link_speed": "32.0 GT/s PCIe", "max_link_speed": "32.0 GT/s PCIe", "power/runtime_status": "active",
    "gpu_busy_percent": "97", "mem_info_vram_total": "206141652992", "mem_info_vram_used": "150323855360",
    "pp_dpm_sclk": "S: 133Mhz \n0: 500Mhz \n1: 2100Mhz *", "pcie_replay_count": "0",
    "vbios_version": "113-M3000100-102", "product_name": "AMD Instinct MI300X OAM",
    "hwmon/hwmon5/name": "amdgpu", "hwmon/hwmon5/temp2_label": "junction", "hwmon/hwmon5/temp2_input": "71000",
    "hwmon/hwmon5/temp3_label": "mem", "hwmon/hwmon5/temp3_input": "52000", "hwmon/hwmon5/power1_input": "612000000",
    "hwmon/hwmon5/power1_cap": "750000000", "hwmon/hwmon5/power1_cap_default": "750000000",
    "ras/umc_err_count": "ue: 0\nce: 3\nde: 0", "ras/gfx_err_count": "ue: 0\nce: 0",
    "ras/sdma_err_count": "ue: 0\nce: 0", "ras/gpu_vram_bad_pages": "",
}  # fmt: skip
HANGS = "(hangs)"  # in place of a text: who reads this file sleeps for ever


def make(root: Path, *sick: Mapping[str, str], driver: str = "amdgpu", pid: int = 4711) -> None:
    """`root`/pci and `root`/class: one healthy GPU, then one per mapping, which says what its files hold instead.
    Process `pid` computes on the first."""
    for at, odd in enumerate(({}, *sick)):
        place, files = root / "pci" / BUSES[at], {**HEALTHY, "unique_id": f"{0x9A7C1D00 + at:016x}", **odd}
        for name, text in files.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            if text == HANGS:
                os.mkfifo(place / name)
            else:
                (place / name).write_text(f"{text}\n" if text else "")
        if driver:
            (place / "driver").symlink_to(f"/sys/bus/pci/drivers/{driver}")
        bus = int(BUSES[at][5:7], 16)
        node = root / "class/kfd/kfd/topology/nodes" / str(at + 1)
        node.mkdir(parents=True)
        (node / "gpu_id").write_text(f"{KFD_IDS[at]}\n")
        (node / "properties").write_text(f"simd_count 1216\nlocation_id {bus << 8}\ndomain 0\nunique_id 1\n")
    cpu = root / "class/kfd/kfd/topology/nodes/0"
    cpu.mkdir()
    (cpu / "gpu_id").write_text("0\n")
    (cpu / "properties").write_text("cpu_cores_count 96\nlocation_id 0\ndomain 0\n")
    process = root / "class/kfd/kfd/proc" / str(pid)
    (process / "queues/0").mkdir(parents=True)
    (process / "queues/0/gpuid").write_text(f"{KFD_IDS[0]}\n")
    for number in KFD_IDS[: 1 + len(sick)]:
        (process / f"vram_{number}").write_text("2097152\n")
