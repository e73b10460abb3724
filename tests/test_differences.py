"""What should be equal along a job and is not, said in one line each."""

from __future__ import annotations

import json
from typing import Any

from probes import catalog
from probes.catalog.gpu.facts import Gpu, GpuState
from probes.core import Capture, interpret
from probes.diagnosis import diagnose, telling
from probes.diagnosis.core import Seen, seen
from tests.support.rank_facts import mapped


def reading(node: str, probe: str, text: str) -> Seen:
    return seen(interpret(catalog.load()[probe], Capture(node, probe, "ok", text.encode())))


def versions(node: str, **told: str) -> Seen:
    lines = "\n".join(f"{component}\t{version}" for component, version in told.items())
    return reading(node, "host.versions", f"==> versions <==\n{lines}\n")


def settings(node: str, **told: Any) -> Seen:
    usual: dict[str, Any] = {
        "modules": ["nvidia", "nvidia_peermem"], "online": "0-127", "cores": 64, "numa_nodes": 2, "clocksource": "tsc",
        "governors": ["performance"], "numa_balancing": "0", "ranks": [],
    }  # fmt: skip
    return reading(node, "host.settings", f"==> settings <==\n{json.dumps({**usual, **told})}\n")


def said(readings: list[Seen]) -> list[str]:
    nodes = sorted({one.node for one in readings})
    return [one.says for one in diagnose(readings, nodes).differences]


def test_one_node_of_sixty_four_with_another_driver_is_named() -> None:
    nodes = [f"gpu-{number:03d}" for number in range(64)]
    readings = [versions(node, driver="550.54" if node == "gpu-017" else "535.183.01") for node in nodes]
    assert said(readings) == ["NVIDIA driver: 535.183.01 on 63 nodes, 550.54 on gpu-017"]


def test_equal_nodes_differ_in_nothing_and_one_node_alone_cannot() -> None:
    assert said([settings(node) for node in ("a", "b", "c")]) == []
    assert said([settings("a", governors=["powersave"])]) == []


def test_settings_of_the_machine_are_compared_the_fewest_odd_nodes_first() -> None:
    readings = [settings(node) for node in ("gpu-1", "gpu-2", "gpu-3")]
    readings += [settings("gpu-4", modules=["nvidia"], clocksource="hpet"), settings("gpu-5", modules=["nvidia"])]
    assert said(readings) == [
        "clock source: tsc on gpu-1, gpu-2, gpu-3, gpu-5, hpet on gpu-4",
        "module for GPUDirect RDMA: loaded on gpu-1, gpu-2, gpu-3, not loaded on gpu-4, gpu-5",
    ]


def test_a_node_with_another_cpu_or_without_a_module_that_the_others_have_loaded_is_named() -> None:
    usual = ["nvidia", "nvidia_uvm", "nvidia_peermem", "ib_uverbs", "mlx5_ib", "rdma_ucm", "gdrdrv", "fuse"]
    readings = [settings(node, modules=usual, cpu_model="Intel(R) Xeon(R) Platinum 8480C") for node in "abc"]
    readings.append(settings("d", modules=[one for one in usual if one not in ("gdrdrv", "fuse")], cpu_model="Intel(R)"
        " Xeon(R) Platinum 8468"))  # fmt: skip
    assert said(readings) == [
        "model of CPU: Intel(R) Xeon(R) Platinum 8480C on a, b, c, Intel(R) Xeon(R) Platinum 8468 on d",
        "module gdrdrv: loaded on a, b, c, not loaded on d",
    ]


def holding(node: str, kib: int) -> Seen:
    load = f"==> /proc/loadavg <==\n1.00 1.00 1.00 1/100 9\n==> /proc/meminfo <==\nMemTotal: {kib} kB\n"
    return reading(node, "host.load", load)


def test_a_node_that_has_lost_a_module_of_memory_is_named_and_what_firmware_keeps_is_no_difference() -> None:
    """Of 32 modules of 64 GiB one is gone; a reservation for crash dumps is 2 GiB."""
    whole = [holding("a", 2_113_372_160), holding("b", 2_113_372_160 - 2 * 2**20), holding("c", 2_113_371_904)]
    assert said(whole) == []
    assert said([*whole, holding("d", 2_113_372_160 - 64 * 2**20)]) == [
        "memory of the node: 2015 GiB on a, b, c, 1951 GiB on d"
    ]


def test_what_a_node_does_not_tell_is_no_difference() -> None:
    assert said([settings("a"), settings("b", clocksource="", governors=[], modules=[])]) == []


def computing(node: str, *pids: int) -> Seen:
    """A node whose GPUs hold these processes, one each."""
    gpus = tuple(Gpu(f"0000:{at:02x}:00", index=at, pids=(pid,)) for at, pid in enumerate(pids))
    return Seen(f"{node}/gpu.state", node, "gpu.state", "ok", "", GpuState(None, gpus, len(gpus)), ())


def test_a_process_that_is_no_rank_and_holds_a_gpu_is_named() -> None:
    ranks = [mapped("a", [0, 1], 4, pid=100), mapped("b", [2, 3], 4, pid=100)]  # pids are 100 and the rank
    told = said([*ranks, computing("a", 100, 101), computing("b", 102, 103, 4711)])
    assert "processes on GPUs that are no ranks: 4711 on GPU 2 on b, none on a" in told
    other_namespace = said([*ranks, computing("a", 7, 8), computing("b", 9, 10)])
    assert not any("no ranks" in one for one in other_namespace), "these numbers are a container's"


def test_two_kinds_of_machines_are_compared_each_with_its_own() -> None:
    head = "index, name, pci.bus_id, driver_version\n"
    kinds = {"gpu-1": "NVIDIA H100", "gpu-2": "NVIDIA H100", "old-1": "NVIDIA A100", "old-2": "NVIDIA A100"}
    from probes.intake.tools.gpu.nvidia_smi_csv import TOOL

    readings = []
    for node, model in kinds.items():
        driver = "535.183.01" if node.startswith("gpu") else "525.85.12"
        facts = TOOL.read(head + f"0, {model}, 00000000:1B:00.0, {driver}\n")
        readings.append(Seen(f"{node}/gpu.state", node, "gpu.state", "ok", "", facts, ()))
    assert said(readings) == ["model of GPU: NVIDIA A100 on old-1, old-2, NVIDIA H100 on gpu-1, gpu-2"]


def topo(node: str, *rows: str) -> Seen:
    """Two GPUs and two adapters; `rows`: how each GPU reaches these."""
    text = "\tGPU0\tGPU1\tmlx5_0\tmlx5_1\tCPU Affinity\tNUMA Affinity\n"
    cells = zip((" X \tNV18", "NV18\t X "), rows, strict=True)
    return reading(
        node, "gpu.topo", text + "".join(f"GPU{n}\t{own}\t{row}\t0-47\t0\n" for n, (own, row) in enumerate(cells))
    )


def test_the_adapter_near_each_gpu_is_compared_and_of_far_ones_only_the_path() -> None:
    usual = [topo(node, "PXB\tPXB", "NODE\tPIX") for node in ("a", "b")]
    assert said(usual) == []
    assert said([*usual, topo("c", "PXB\tNODE", "NODE\tPIX")]) == [
        "adapter nearest to each GPU: PIX: GPU1 mlx5_1; PXB: GPU0 mlx5_0+mlx5_1 on a, b, "
        "PIX: GPU1 mlx5_1; PXB: GPU0 mlx5_0 on c"
    ]  # fmt: skip
    far = [topo(node, "PHB\tPHB", row) for node, row in (("a", "SYS\tPHB"), ("b", "PHB\tSYS"))]
    assert said(far) == [], "by the CPU: which of them is nearer does not matter"
    assert said([topo("a", "SYS\tSYS", "PIX\tSYS"), topo("b", "SYS\tSYS", "SYS\tPIX")]) != [], "cabled another way"


def test_a_difference_is_told_with_the_readings_of_the_odd_nodes() -> None:
    readings = [versions("gpu-1", NCCL="2.21.5"), versions("gpu-2", NCCL="2.21.5"), versions("gpu-3", NCCL="2.20.3")]
    (told,) = telling.told(diagnose(readings, ["gpu-1", "gpu-2", "gpu-3"]))["differences"]
    assert told["readings"] == [{"says": "gpu-3: 2.20.3", "reading": "gpu-3/host.versions"}]
