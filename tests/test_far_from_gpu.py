"""A rank that may run only far from its GPU: masks, PCI addresses and processes on GPUs put together."""

from __future__ import annotations

import pytest

from probes.catalog.gpu.facts import Gpu, GpuState
from probes.catalog.host.pci import Pci, PciDevice
from probes.catalog.network.net_facts import Mask, Settings
from probes.diagnosis import Seen, diagnose
from probes.diagnosis.ranking import Ranked

NEAR = ("0-31", "0-31", "32-63", "32-63")  # of the four GPUs, two on each socket


def found(masks: tuple[str, ...], near: tuple[str, ...] = NEAR) -> list[Ranked]:
    slots = [f"0000:{bus:02x}:00.0" for bus in (0x19, 0x3B, 0x9B, 0xDB)]
    gpus = tuple(Gpu(slot, at, pids=(4000 + at,)) for at, slot in enumerate(slots))
    devices = tuple(PciDevice(slot, "gpu", "nvidia", "H100", cpus=cpus) for slot, cpus in zip(slots, near, strict=True))
    bound = tuple(Mask(4000 + at, cpus, "python") for at, cpus in enumerate(masks))
    told = {
        "gpu.state": GpuState("550.54.15", gpus),
        "host.pci": Pci(devices, virtual=False, detail=True),
        "host.settings": Settings(masks=bound, cpus=64),
    }
    evidence = [Seen(f"n7/{probe}", "n7", probe, "ok", "", facts, (), None) for probe, facts in told.items()]
    return [one for one in diagnose(evidence).ranked if "near CPUs" in one.hypothesis.says]


def test_a_rank_bound_to_the_other_socket_than_its_gpu_is_named_and_never_leads() -> None:
    (one,) = found(("0-31", "32-63", "32-63", "32-63"))
    assert one.hypothesis.says.startswith("Process 4001 on n7 may use CPUs 32-63 only, its GPU 1 is near CPUs 0-31")
    assert (one.hypothesis.cause, one.hypothesis.subject) == ("cpu.affinity_collision", {"node": "n7"})
    assert one.probability < 0.5


@pytest.mark.parametrize(
    ("masks", "near"),
    [
        (("0-31", "0-31", "32-63", "32-63"), NEAR),  # each near to its own
        (("0-63",) * 4, NEAR),  # bound to nothing
        (("32-63", "32-63", "0-31", "0-31"), NEAR),  # all far: how the site runs them
        (("0-31", "32-63", "32-63", "32-63"), ("",) * 4),  # the firmware does not tell
    ],
)
def test_ranks_that_are_near_or_all_alike_say_nothing(masks: tuple[str, ...], near: tuple[str, ...]) -> None:
    assert found(masks, near) == []
