"""Reads what amdgpu tells of each AMD GPU in sysfs, so that a GPU that does not answer costs only its own part.

SENT TO THE NODE (gpu.amd): compiled there by Python 3.6 and later, so no newer syntax, and only names of probes.runner
beside its own. Never run on an AMD GPU: the tests make the files, as the kernel's source prints them.

- The GPUs come from the PCI bus, by the same classes as in host.pci. Each is then read by a process of its own: most
  files below ask the GPU's firmware, which can sleep for ever.
- A GPU that is suspended to save power is left alone: reading would wake it.
- Of /sys/class/kfd/kfd/proc only `queues/*/gpuid` and `vram_*` are read; `sdma_*` and `stats_*` wait for workers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from probes.catalog.gpu import ladder
from probes.runner import Absent, isolate, read


def collect() -> Mapping[str, str]:
    import json
    import os

    deadline_s = 4.0
    folder, kfd = "/sys/bus/pci/devices", "/sys/class/kfd/kfd"

    def text(path: str, limit: int = 4096) -> str:
        try:
            return read(path, limit).strip()
        except OSError:
            return ""

    def names(place: str, most: int = 4096) -> list[str]:
        try:
            return sorted(os.listdir(place))[:most]
        except OSError:
            return []

    def on_pci() -> list[dict[str, Any]]:
        found = []
        for bus in names(folder):
            place = f"{folder}/{bus}"
            if text(place + "/vendor") == "0x1002" and text(place + "/class")[2:6] in ("0302", "0380", "1200"):
                gpu = {"bus_id": bus, "width": text(place + "/current_link_width")}
                gpu["width_max"] = text(place + "/max_link_width")
                link = place + "/driver"
                gpu["driver"] = os.path.basename(os.readlink(link)) if os.path.islink(link) else ""
                gpu["power"] = text(place + "/power/runtime_status")
                found.append(gpu)
        return found

    def one(bus: str) -> Callable[[], str]:
        def work() -> str:
            place = f"{folder}/{bus}"
            files: dict[str, str] = {}
            errors: dict[str, str] = {}

            def take(name: str, limit: int = 4096) -> None:
                try:
                    files[name] = read(f"{place}/{name}", limit).strip()
                except OSError as error:
                    if error.errno != 2:
                        errors[name] = error.strerror or str(error)

            # What needs the least of the GPU first.
            for name in ("current_link_width", "max_link_width", "current_link_speed", "max_link_speed"):
                take(name)
            for name in ("unique_id", "product_name", "vbios_version", "mem_info_vram_total", "mem_info_vram_used",
                "pcie_replay_count"):  # fmt: skip
                take(name)
            for name in ("gpu_busy_percent", "pp_dpm_sclk"):
                take(name)
            for hwmon in names(place + "/hwmon")[:4]:
                for file in names(f"{place}/hwmon/{hwmon}", 256):
                    kind, _, what = file.partition("_")
                    known = kind[:4] == "temp" and what in ("input", "label")
                    if known or file in ("power1_average", "power1_input", "power1_cap", "power1_cap_default"):
                        take(f"hwmon/{hwmon}/{file}")
            for file in names(place + "/ras", 256):
                if file.endswith("_err_count"):
                    take("ras/" + file)
            take("ras/gpu_vram_bad_pages", 65536)
            return json.dumps({"files": files, "errors": errors})

        return work

    def processes() -> str:
        """Which process computes on which GPU: {bus id: [pid]}."""
        buses = {}
        for node in names(kfd + "/topology/nodes"):
            place = f"{kfd}/topology/nodes/{node}"
            told = dict(line.split(" ", 1) for line in text(place + "/properties").split("\n") if " " in line)
            location, domain = told.get("location_id", "0"), told.get("domain", "0")
            number = text(place + "/gpu_id")
            if number.isdigit() and int(number) and location.isdigit() and domain.isdigit():
                at = int(location)
                buses[number] = f"{int(domain):04x}:{at >> 8 & 255:02x}:{at >> 3 & 31:02x}.{at & 7:x}"
        found: dict[str, list[int]] = {}
        for pid in [pid for pid in names(kfd + "/proc") if pid.isdigit()]:
            place = f"{kfd}/proc/{pid}"
            used = {text(f"{place}/queues/{queue}/gpuid") for queue in names(place + "/queues", 256)} - {""}
            if not used:
                held = [name for name in names(place, 256) if name.startswith("vram_")]
                used = {name[5:] for name in held if text(f"{place}/{name}") not in ("", "0")}
            for number in used & set(buses):
                found.setdefault(buses[number], []).append(int(pid))
        return json.dumps(found)

    gpus = on_pci()
    if not gpus:
        raise Absent("no AMD GPU on the PCI bus (vendor 0x1002, class 0x0302, 0x0380 or 0x1200)")
    awake = [gpu["bus_id"] for gpu in gpus if gpu["driver"] == "amdgpu" and gpu["power"] != "suspended"]
    if awake:
        ladder.none_stuck("each GPU's own files")
    about = {"gpus": gpus, "driver": text("/sys/module/amdgpu/version")}
    parts = {}
    for answer in isolate([("kfd", processes)] + [(bus, one(bus)) for bus in awake], deadline_s):
        name, told = answer["name"], answer.pop("text")
        if name == "kfd":
            about["processes"] = json.loads(told) if answer["outcome"] == "ok" else {}
        elif answer["outcome"] == "ok":
            parts["golden15/amd " + name] = told
        else:
            parts["golden15/silent " + name] = json.dumps(answer)
    for gpu in gpus:
        if gpu["driver"] == "amdgpu" and gpu["power"] == "suspended":
            why = {"outcome": "skipped", "why": "not asked: it is suspended to save power"}
            parts["golden15/silent " + gpu["bus_id"]] = json.dumps(why)
    return dict({"golden15/amd-bus": json.dumps(about)}, **parts)
