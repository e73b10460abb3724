"""host.pci: the collector on made sysfs trees, and what narrow links, errors and ACS on bridges lead to."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.catalog.host_pci import PROBE, Pci, findings, parse
from probes.core import ParseError, interpret
from probes.diagnosis import diagnose
from probes.diagnosis.core import Seen, seen
from tests.support.collectors import capture_here, old_and_new_pythons

GPU, NIC, BRIDGE, SWITCH = ("10de", "030200"), ("15b3", "020700"), ("1000", "060400"), ("10de", "068000")
COUNTED = "Undefined 0\nDLP 0\nSDES 0\nTLP 0\nCmpltTO {n}\nUnsupReq 3\nTOTAL_ERR_NONFATAL {n}\n"


def config(vendor: str, below: tuple[int, int] = (0, 0), acs: int | None = None) -> bytes:
    """Configuration space: ids, the buses of a bridge at 0x19 and 0x1a, extended capabilities from 0x100 on (PCIe base
    specification 7.6.3: id, version and next one in 32 bits)."""
    data = bytearray(4096)
    data[0:2] = int(vendor, 16).to_bytes(2, "little")
    data[0x19], data[0x1A] = below
    data[0x100:0x104] = (0x0001 | 1 << 16 | 0x148 << 20).to_bytes(4, "little")  # AER first
    if acs is not None:
        data[0x148:0x14C] = (0x000D | 1 << 16).to_bytes(4, "little")
        data[0x14E:0x150] = acs.to_bytes(2, "little")
    return bytes(data)


def device(
    bus: Path, slot: str, what: tuple[str, str], width: str = "16", data: bytes | None = None, timeouts: int = 0
) -> None:
    folder = bus / slot
    folder.mkdir(parents=True)
    vendor, kind = what
    told = {
        "class": f"0x{kind}", "vendor": f"0x{vendor}", "device": "0x2330", "current_link_speed": "32.0 GT/s PCIe",
        "current_link_width": width, "max_link_speed": "32.0 GT/s PCIe", "max_link_width": "16",
        "aer_dev_nonfatal": COUNTED.format(n=timeouts),
    }  # fmt: skip
    for name, text in told.items():
        (folder / name).write_text(text + "\n")
    (folder / "config").write_bytes(config(vendor) if data is None else data)


def node(bus: Path, acs: int = 0, **odd: object) -> Path:
    device(bus, "0000:15:01.0", BRIDGE, data=config("1000", (0x18, 0x1B), acs))
    device(bus, "0000:18:00.0", NIC)
    device(bus, "0000:19:00.0", SWITCH)
    device(bus, "0000:1b:00.0", GPU, **odd)  # type: ignore[arg-type]
    device(bus, "0000:5d:00.0", GPU)
    device(bus, "0000:9b:00.0", GPU)
    device(bus, "0000:00:1f.2", ("8086", "010601"), width="1")  # a disk controller
    device(bus, "0000:02:00.0", ("8086", "020000"), width="1")  # the board's own network
    return bus


def asked(bus: Path, python: str = "") -> Seen:
    stand_in = {"/sys/bus/pci/devices": str(bus), "/proc/cpuinfo": str(bus.parent / "cpuinfo")}
    (bus.parent / "cpuinfo").write_text("processor : 0\nflags\t\t: fpu vme de\n")
    capture = capture_here(PROBE, **({"python": python} if python else {}), instead=stand_in)  # type: ignore[arg-type]
    assert capture.outcome == "ok", capture.why
    return seen(interpret(PROBE, capture), "here: host.pci")


def said(one: Seen) -> list[tuple[str, str]]:
    return [(finding.code, str(finding.subject.get("bus_id", ""))) for finding in one.findings]


@pytest.mark.parametrize("python", old_and_new_pythons())
def test_a_node_whose_links_are_whole_says_nothing(tmp_path: Path, python: str) -> None:
    one = asked(node(tmp_path / "pci", acs=0b1), python)
    pci: Pci = one.facts
    assert [(found.slot, found.kind) for found in pci.devices] == [
        ("0000:02:00.0", "nic"), ("0000:15:01.0", "bridge"), ("0000:18:00.0", "nic"), ("0000:19:00.0", "switch"),
        ("0000:1b:00.0", "gpu"), ("0000:5d:00.0", "gpu"), ("0000:9b:00.0", "gpu"),
    ]  # fmt: skip
    assert (pci.devices[-1].width, pci.devices[-1].width_max, pci.devices[-1].speed) == (16, 16, 32.0)
    assert (pci.devices[1].below, pci.devices[1].redirects, pci.virtual) == ((0x18, 0x1B), False, False)
    assert said(one) == []


def test_a_gpu_on_fewer_lanes_is_found_and_named_as_the_cause(tmp_path: Path) -> None:
    one = asked(node(tmp_path / "pci", width="8"))
    assert said(one) == [("pci.width", "0000:1b:00.0")]
    first = diagnose([one], ["here"]).verdict.hypothesis
    assert (first.cause, first.subject.get("bus_id")) == ("gpu.pcie_degraded", "0000:1b:00.0")


def test_uncorrected_errors_are_told_but_not_requests_that_nobody_supports(tmp_path: Path) -> None:
    assert said(asked(node(tmp_path / "pci", timeouts=4))) == [("pci.uncorrectable", "0000:1b:00.0")]


def test_a_device_that_answers_nothing_is_dead(tmp_path: Path) -> None:
    one = asked(node(tmp_path / "pci", data=b"\xff" * 64, width="63"))
    assert said(one) == [("pci.dead", "0000:1b:00.0")]


@pytest.mark.parametrize(("acs", "found"), [(0b00100, True), (0b01000, True), (0b00001, False), (0b10000, False)])
def test_acs_on_a_bridge_above_a_gpu_is_told_where_it_redirects(tmp_path: Path, acs: int, found: bool) -> None:
    assert (("pci.acs", "") in said(asked(node(tmp_path / "pci", acs=acs)))) == found


@pytest.mark.parametrize(
    ("devices", "virtual"),
    [
        ("{", "no"), ('{"slot": 3}', "no"), ('{"slot": "0000:1b:00.0", "class": "0302", "vendor": "10de"}', "no"),
        ("", "perhaps"),
    ],
)  # fmt: skip
def test_what_the_collector_does_not_write_is_refused(devices: str, virtual: str) -> None:
    with pytest.raises(ParseError):
        parse(f"==> devices <==\n{devices}\n\n==> virtual <==\n{virtual}\n")


def test_a_bus_without_links_is_read(tmp_path: Path) -> None:
    """A virtual machine's bus."""
    assert list(findings(parse("==> devices <==\n\n==> virtual <==\nyes\n"))) == []


def test_a_login_that_may_not_see_acs_is_told_so_once(tmp_path: Path) -> None:
    """Without root the kernel shows the first 64 bytes of the configuration space (pci-sysfs.c)."""
    bus = node(tmp_path)
    (bus / "0000:15:01.0/config").write_bytes(config("1000", (0x18, 0x1B), 8)[:64])
    (finding,) = asked(bus).findings
    assert (finding.code, finding.severity) == ("pci.acs_hidden", "info")
