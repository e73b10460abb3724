"""GPUs as NVML tells them (raw values, see probes/catalog/gpu/nvml.py) and as `nvidia-smi -q -i BUS` prints them.

Source   the values of an H100 under load: tests/fixtures/gpu.state/h100_590_load.out, which is also the template;
         what a GPU says that is off the bus: NVML error 15; nvidia-smi: "GPU is lost"; its PCI registers read all ones
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.lab.drills.cluster import Node, Rank, sections, uuid_of

DRIVER = "590.48.01"
TEMPLATE = Path(__file__).resolve().parents[2] / "fixtures" / "gpu.state" / "h100_590_load.out"
MEMORY_MIB = 81_559


def uuid(node: Node, gpu: int) -> str:
    return f"GPU-{uuid_of(node.rng(f'gpu {gpu}'))}"


def _pci(node: Node, lost: Sequence[int]) -> str:
    """A GPU whose registers read all ones tells a width of 63."""
    rows = [
        {
            "bus_id": bus,
            "width": "63" if gpu in lost else "16",
            "width_max": "63" if gpu in lost else "16",
            "driver": "nvidia",
        }
        for gpu, bus in enumerate(node.gpus)
    ]
    return json.dumps({"gpus": rows})


def by_nvml(node: Node, ranks: Sequence[Rank], odd: Mapping[int, Mapping[str, Any]] | None = None) -> str:
    """All GPUs of a node through libnvidia-ml. `odd`: by GPU, values that are not as usual."""
    parts = {"golden15/pci": _pci(node, [])}
    for gpu, bus in enumerate(node.gpus):
        values = {**_values(node, gpu, ranks), **(odd or {}).get(gpu, {})}
        told = {"way": "libnvidia-ml.so.1", "driver": DRIVER, "values": values, "errors": {}}
        parts[f"golden15/nvml {bus}"] = json.dumps(told)
    return sections(parts)


def _values(node: Node, gpu: int, ranks: Sequence[Rank]) -> dict[str, Any]:
    rng = node.rng(f"nvml {gpu}")
    used = rng.randrange(69_000, 74_500) * 1024 * 1024
    return {
        "field_230": 0,
        "field_74": 0,
        "field_76": 0,
        "field_269": 0,
        "field_270": 0,
        "field_271": 0,
        "index": gpu,
        "name": "NVIDIA H100 80GB HBM3",
        "uuid": uuid(node, gpu),
        "persistence": 1,
        "mig": [0, 0],
        "pstate": 0,
        "temperature": rng.randrange(41, 58),
        "sm": 1980,
        "sm_max": 1980,
        "reasons": 0,
        "power": rng.randrange(118_000, 161_000),
        "power_limit": 700_000,
        "power_default": 700_000,
        "utilisation": 100,
        "memory_used": used,
        "memory_total": MEMORY_MIB * 1024 * 1024,
        "ecc_corrected": 0,
        "ecc_uncorrected": 0,
        "sram_threshold": 0,
        "remapped": [0, 0, 0, 0],
        "pcie_gen": 5,
        "pcie_gen_max": 5,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "fabric_state": 3,
        "fabric_status": 0,
        "pids": [rank.pid for rank in ranks if rank.local == gpu],
    }


def by_smi(
    node: Node,
    at: str,
    ranks: Sequence[Rank],
    odd: Mapping[int, Mapping[str, str]] | None = None,
    lost: Sequence[int] = (),
) -> str:
    """All GPUs through nvidia-smi. `odd`: by GPU, {label: value} of lines that are not as usual. `at`: as it prints."""
    parts = {"golden15/pci": _pci(node, lost)}
    for gpu, bus in enumerate(node.gpus):
        name = f"nvidia-smi -q -i {bus}"
        if gpu in lost:
            parts[name] = (
                f"Unable to determine the device handle for gpu {bus.upper()}: GPU is lost.  "
                "Reboot the system to recover this GPU\n"
            )
            continue
        parts[name] = _page(node, gpu, at, ranks, len(node.gpus) - len(lost), (odd or {}).get(gpu, {}))
    return sections(parts)


def _page(node: Node, gpu: int, at: str, ranks: Sequence[Rank], attached: int, odd: Mapping[str, str]) -> str:
    rng = node.rng(f"smi {gpu}")
    bus = node.gpus[gpu]
    used = rng.randrange(69_000, 74_500)
    heat = rng.randrange(41, 58)
    lines = {
        "Timestamp": at,
        "Attached GPUs": str(attached),
        "Serial Number": f"16{rng.randrange(10**11, 10**12)}",
        "GPU UUID": uuid(node, gpu),
        "GPU PDI": f"0x{rng.getrandbits(64):016x}",
        "Minor Number": str(gpu),
        "Module Id": str(gpu + 1),
        "Bus": f"0x{bus[5:7].upper()}",
        "Device": "0x00",
        "Bus Id": f"0000{bus.upper()}",
        "Replays Since Reset": str(rng.choice((0, 0, 0, 1, 4))),
        "GPU Current Temp": f"{heat} C",
        "GPU T.Limit Temp": f"{85 - heat} C",
        "Memory Current Temp": f"{heat + rng.randrange(4, 9)} C",
        "ClusterUUID": uuid_of(node.rng("fabric")),
        **odd,
    }
    text = TEMPLATE.read_text()
    for label, value in lines.items():
        text = re.sub(rf"(?m)^( *{re.escape(label)} +: ).*$", rf"\g<1>{value}", text, count=1)
    text = text.replace("GPU 00000000:00:09.0", f"GPU 0000{bus.upper()}")
    text = re.sub(r"(FB Memory Usage\n.*\n.*\n +Used +: )\d+", rf"\g<1>{used}", text)
    text = re.sub(r"(FB Memory Usage\n(?:.*\n){3} +Free +: )\d+", rf"\g<1>{MEMORY_MIB - 479 - used}", text)
    return _processes(text, [rank.pid for rank in ranks if rank.local == gpu], used)


def _processes(text: str, pids: Sequence[int], used: int) -> str:
    """The block of the one process that uses the GPU in place of those of the template."""
    before, _, rest = text.partition("    Processes\n")
    after = "    Capabilities\n" + rest.partition("    Capabilities\n")[2]
    block = "".join(
        "        GPU instance ID                   : N/A\n        Compute instance ID               : N/A\n"
        f"        Process ID                        : {pid}\n            Type                          : C\n"
        f"            Name                          : /opt/venv/bin/python3\n"
        f"            Used GPU Memory               : {used - 512} MiB\n"
        for pid in pids
    )
    head = "    Processes\n" if pids else "    Processes                                          : None\n"
    return before + head + block + after
