"""Facts and findings of lspci: GPUs and adapters on the PCI bus, their links, ACS on bridges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from probes.core import Finding


@dataclass(frozen=True, slots=True)
class PciDevice:
    """Speeds in GT/s, widths in lanes; None where lspci was run without -vv or not as root."""

    slot: str  # dddd:bb:dd.f
    kind: str  # gpu, nic, switch (NVSwitch), bridge, other; unnamed where only its link is told
    vendor: str
    name: str
    speed: float | None = None
    speed_max: float | None = None
    width: int | None = None
    width_max: int | None = None
    redirects: bool | None = None  # ACSCtl has ReqRedir+ : peers' traffic goes up to the root complex
    below: tuple[int, int] | None = None  # of a bridge: the buses behind it, first and last
    dead: bool = False  # rev ff: nothing answers at its address
    errors: tuple[str, ...] = ()  # bits of UESta that are set
    corrected: tuple[str, ...] = ()  # bits of CESta that are set
    numa: int | None = None
    cpus: str = ""  # that are near to it, as ranges


@dataclass(frozen=True, slots=True)
class Pci:
    devices: tuple[PciDevice, ...]
    virtual: bool  # a virtual machine: its bridges are the hypervisor's
    detail: bool  # link states are there

    def of(self, kind: str) -> tuple[PciDevice, ...]:
        return tuple(device for device in self.devices if device.kind == kind)


def pci_findings(pci: Pci) -> Iterator[Finding]:
    """Devices that do not answer, narrow links, errors that PCIe itself keeps, redirection by ACS on bare metal."""
    for device in pci.devices:
        if device.kind not in ("gpu", "nic", "switch") or not device.vendor:
            continue
        subject: dict[str, str | int] = {"bus_id": device.slot}
        if device.dead:
            says = f"{device.name[:60]} at {device.slot} does not answer on the PCI bus (rev ff)"
            yield Finding("pci.dead", "bad", says, subject)
            continue
        if device.width and device.width_max and device.width < device.width_max:
            says = f"{device.name[:60]} at {device.slot} runs on {device.width} of {device.width_max} PCIe lanes"
            yield Finding("pci.width", "warn", says, subject)
        serious = [bit for bit in device.errors if bit not in ("UnsupReq", "UncorrIntErr")]
        if serious:
            says = f"PCIe keeps uncorrectable errors of {device.slot}: {', '.join(serious)}"
            yield Finding("pci.uncorrectable", "warn", says, subject)
    bridges = [bridge for bridge in pci.of("bridge") if _above_a_gpu(bridge, pci)] if pci.of("gpu") else []
    if bridges and pci.detail and not pci.virtual and all(bridge.redirects is None for bridge in bridges):
        says = "whether ACS redirects traffic between GPUs is not known: root alone sees it"
        yield Finding("pci.acs_hidden", "info", says)
    acs = [bridge.slot for bridge in pci.of("bridge") if bridge.redirects and _above_a_gpu(bridge, pci)]
    if acs and not pci.virtual:
        says = (
            f"ACS redirects peer traffic on {len(acs)} PCIe bridges ({', '.join(acs[:4])}): GPUs talk by way of the CPU"
        )
        yield Finding("pci.acs", "warn", says, {"bridges": len(acs)})


def _above_a_gpu(bridge: PciDevice, pci: Pci) -> bool:
    """Bridges of NVSwitches and disks redirect on healthy machines too; only the way between GPUs matters."""
    for gpu in pci.of("gpu"):
        domain, bus, _ = gpu.slot.split(":")
        if bridge.below is None or (
            bridge.slot.startswith(f"{domain}:") and bridge.below[0] <= int(bus, 16) <= bridge.below[1]
        ):
            return True
    return False
