"""Nodes whose hardware is faked below real sshds: a mount namespace shows each its own /sys, tools print recordings.

Each family of probes finds the fault of the sick node and is quiet on its two healthy twins: no warning of any kind.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from probes import catalog, suites
from probes.core import Reading
from probes.diagnosis import diagnose
from probes.diagnosis.core import seen
from tests.support.asking import ask, nothing_left
from tests.support.sshd_nodes import Lab

pytestmark = pytest.mark.needs_root
FIXTURES = Path(__file__).parent / "fixtures/gpu.state"
GPUS, ADAPTERS = ("0000:3b:00.0", "0000:5e:00.0"), ("0000:3d:00.0", "0000:60:00.0")
NODES = ("well-1", "well-2", "sick")
# Of the two GPUs the second is asked for from another recording where the node is sick.
SMI = """#!/bin/sh
case "$*" in
  "-q -i "*) bus=$3; file={well}; [ "$bus" = 0000:5e:00.0 ] && file={second}
    sed "s/^GPU 0*:[0-9A-Fa-f:.]*/GPU 0000$bus/; /Bus Id/s/0*:[0-9A-Fa-f:.]*$/0000$bus/" $file ;;
  *) echo "the driver does not count these" >&2; exit 3 ;;
esac
"""
DMESG = """#!/bin/sh
cat <<END
2025-03-03T08:00:01,000000+00:00 usb 1-1: new high-speed USB device number 2 using xhci_hcd
{line}
END
"""
XID = "2025-03-03T09:00:05,000000+00:00 NVRM: Xid (PCI:0000:5e:00): 48, pid=4711, An uncorrectable double bit error"
SYSTEMCTL = """#!/bin/sh
[ "$1" = show ] || exit 0
printf 'Id=slurmd.service\\nLoadState=loaded\\nActiveState={state}\\nSubState={state}\\nResult=oom-kill\\n'
printf '\\nId=kubelet.service\\nLoadState=not-found\\nActiveState=inactive\\n'
"""
NO_JOURNAL = "#!/bin/sh\nexit 1\n"
CHRONYC = """#!/bin/sh
printf 'Reference ID    : CB00710F (203.0.113.15)\nSystem time     : 0.000000501 seconds slow of NTP time\n'
printf 'Last offset     : +0.000000132 seconds\nLeap status     : Normal\n'
"""


def write(root: Path, files: Mapping[str, object]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")


def pci(root: Path, sick: bool) -> None:
    """Two GPUs and two adapters; of the sick node one GPU has half its lanes and counts errors."""
    for slot in (*GPUS, *ADAPTERS):
        gpu, bad = slot in GPUS, sick and slot == GPUS[1]
        write(
            root / slot,
            {
                "class": "0x030200" if gpu else "0x020700", "vendor": "0x10de" if gpu else "0x15b3",
                "device": "0x2330" if gpu else "0x1021", "max_link_width": 16, "current_link_width": 8 if bad else 16,
                "max_link_speed": "32.0 GT/s PCIe", "current_link_speed": "32.0 GT/s PCIe",
                "aer_dev_correctable": f"RxErr 0\nTOTAL_ERR_COR {40_000 if bad else 2}",
                "aer_dev_nonfatal": "TOTAL_ERR_NONFATAL 0", "aer_dev_fatal": "TOTAL_ERR_FATAL 0",
            },
        )  # fmt: skip
        (root / slot / "config").write_bytes(b"\xde\x10" + bytes(254))
        if gpu:
            (root / slot / "driver").symlink_to("/sys/bus/pci/drivers/nvidia")


def classes(root: Path, sick: bool) -> None:
    """/sys/class with two ports and an Ethernet; of the sick node one port is down, and its Ethernet's MTU is small."""
    for at in range(2):
        down = sick and at == 1
        write(
            root / f"infiniband/mlx5_{at}",
            {
                "hca_type": "MT4129", "node_guid": f"9803:9b03:0000:000{at}", "fw_ver": "28.39.1002",
                "ports/1/link_layer": "InfiniBand", "ports/1/lid": hex(at + 1), "ports/1/sm_lid": "0x1",
                "ports/1/state": "1: DOWN" if down else "4: ACTIVE",
                "ports/1/phys_state": "2: Polling" if down else "5: LinkUp", "ports/1/rate": "400 Gb/sec (4X NDR)",
                "ports/1/counters/link_downed": 1 if down else 0, "ports/1/counters/symbol_error": 0,
                "device/uevent": f"PCI_SLOT_NAME={ADAPTERS[at]}",
            },
        )  # fmt: skip
    mtu = 1500 if sick else 9000
    write(
        root / "net/ens1f0",
        {
            "device/infiniband/mlx5_2/fw_ver": "28.39.1002", "type": 1, "carrier": 1, "speed": 100_000, "mtu": mtu,
            "device/vendor": "0x15b3", "statistics/rx_dropped": 0, "statistics/rx_crc_errors": 0,
        },
    )  # fmt: skip


def system(root: Path, sick: bool) -> None:
    """/sys/devices/system; of the sick node a memory module counts errors and the clock source is slow."""
    memory = {"edac/mc/mc0/dimm3/dimm_label": "CPU_SrcID#0_MC#0_Chan#1_DIMM#0",
        "edac/mc/mc0/dimm3/dimm_ce_count": 5120 if sick else 0, "edac/mc/mc0/dimm3/dimm_ue_count": 1 if sick else 0,
        "edac/mc/mc0/ce_count": 5120 if sick else 0, "edac/mc/mc0/ue_count": 1 if sick else 0}  # fmt: skip
    clock = {"clocksource/clocksource0/current_clocksource": "hpet" if sick else "tsc"}
    cpus = {"cpu/online": "0-1", **{f"cpu/cpu{at}/topology/core_id": at for at in range(2)}}
    write(root, {**memory, **clock, **cpus, **{f"cpu/cpu{at}/topology/physical_package_id": 0 for at in range(2)}})


def start(lab: Lab, name: str) -> None:
    sick, place = name == "sick", lab.folder / f"hardware-{name}"
    pci(place / "pci", sick)
    classes(place / "class", sick)
    system(place / "system", sick)
    well, broken = FIXTURES / "h100_590_load.out", FIXTURES / "h100_535_power_brake.out"
    pressure = "some avg10={0} avg60={0} avg300=0.00 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0"
    stat = re.sub(r"procs_(running|blocked) \d+", r"procs_\1 1", Path("/proc/stat").read_text())
    proc = {f"pressure/{what}": pressure.format("0.10") for what in ("cpu", "io", "memory")}
    proc |= {"loadavg": "0.20 0.21 0.20 1/300 4711", "stat": stat}  # however busy the machine of the tests may be
    write(place / "proc", proc | ({"pressure/cpu": pressure.format("91.20")} if sick else {}))
    mounts = (
        f"mount --bind {place}/pci /sys/bus/pci/devices\nmount --bind {place}/class /sys/class\n"
        "mount -t tmpfs tmpfs /run\nmkdir -p /run/sshd /run/systemd/system\n"
        f"mount --bind {place}/system /sys/devices/system\n"
    )
    mounts += "".join(f"mount --bind {place}/proc/{name} /proc/{name}\n" for name in proc)
    if sick:
        mounts += "mount -t tmpfs -o size=64k tmpfs /var/tmp; head -c 65536 /dev/zero >/var/tmp/full || true\n"
    tools = {
        "nvidia-smi": SMI.format(well=well, second=broken if sick else well),
        "dmesg": DMESG.format(line=XID if sick else ""),
        "journalctl": NO_JOURNAL,
        "chronyc": CHRONYC,
        "systemctl": SYSTEMCTL.format(state="failed" if sick else "active"),
    }
    lab.start(name, mounts=mounts, tools=tools)


def told(lab: Lab, nodes: tuple[str, ...], *asked: str) -> dict[tuple[str, str], Reading]:
    """What suites tell of nodes."""
    for name in nodes:
        start(lab, name)
    found: dict[tuple[str, str], Reading] = {}
    for suite in asked:
        captures, ends = ask(lab, list(nodes), suites.SUITES[suite].plan(), node_s=30, run_s=60)
        assert {end.reason for end in ends.values()} == {""}
        found |= {key: catalog.read(capture) for key, capture in captures.items()}
    nothing_left(lab)
    return found


def loud(reading: Reading) -> set[str]:
    return {finding.code for finding in reading.findings if finding.severity in ("warn", "bad")}


@pytest.fixture
def readings(lab: Lab) -> dict[tuple[str, str], Reading]:
    """What the suites capture, triage and fabric tell of the three nodes."""
    return told(lab, NODES, "capture", "triage", "fabric")


# Probe -> codes that it must tell of the sick node, and of no other.
FAULTS: dict[str, set[str]] = {
    "gpu.state": {"gpu.power_brake"},
    "host.pci": {"pci.width"},
    "host.aer_counters": {"gpu.aer_counted"},
    "host.hardware_log": {"host.hardware_counted"},
    "host.kernel_log": {"kernel.xid"},
    "host.load": {"host.cpu_pressure"},
    "host.services": {"host.service_down"},
    "host.storage": {"host.disk_full"},
    "ib.ports": {"ib.port_down"},
}
# Nothing is wrong with such a value by itself.
DIFFER = ("clock source", "MTU of RDMA interfaces", "RDMA ports that are up")


def test_each_family_finds_its_fault_and_is_quiet_on_the_healthy_twins(
    readings: dict[tuple[str, str], Reading],
) -> None:
    for probe, codes in FAULTS.items():
        answers = {name: readings[name, probe] for name in NODES}
        assert {one.outcome for one in answers.values()} == {"ok"}, (
            probe,
            [one.parse_error for one in answers.values()],
        )
        assert codes <= loud(answers["sick"]), (probe, loud(answers["sick"]))
    twins = {key: one for key, one in readings.items() if key[0] != "sick"}
    assert {key: loud(one) for key, one in twins.items() if loud(one)} == {}
    alone = diagnose([seen(reading) for reading in twins.values()], NODES[:2])
    assert alone.verdict.hypothesis.cause in ("none", "unknown"), alone.verdict
    assert alone.differences == ()


def test_what_is_wrong_only_beside_its_twins_is_a_difference(readings: dict[tuple[str, str], Any]) -> None:
    found = diagnose([seen(reading) for reading in readings.values()], NODES)
    differences = [one.says for one in found.differences]
    for what in DIFFER:
        assert any(what.lower() in says.lower() and "sick" in says for says in differences), (what, differences)
    assert found.verdict.hypothesis.subject.get("node") == "sick"


def test_what_verify_looks_at_again_tells_the_same_faults(lab: Lab) -> None:
    """After mending: a fault that is still there must be told, and a healthy node must not be kept out."""
    found = told(lab, ("well-1", "sick"), "verify")
    for probe in set(FAULTS) & set(suites.SUITES["verify"].probes):
        assert FAULTS[probe] <= loud(found["sick", probe]), (probe, found["sick", probe].capture.why)
    assert {key: loud(one) for key, one in found.items() if key[0] == "well-1" and loud(one)} == {}
