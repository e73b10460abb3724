"""Output of tools about GPUs and nodes, brought as files: recognised by content, and what it says.

Right values were read off the recordings by eye (tests/fixtures/tools/MANIFEST.tsv names their sources), or follow from
the tool's manual.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from probes import intake
from probes.catalog.host_kernel_log import parse
from probes.catalog.kernel.lines import Clock, log_lines
from tests.support.hardware import TOOLS, bring, facts_of, readings_of

XID79 = "NVRM: Xid (PCI:0000:1b:00): 79, pid=77, name=python3, GPU has fallen off the bus."


# nvidia-smi ----------------------------------------------------------------------------------------------------------


def test_the_table_gives_every_gpu_with_its_bus_id_power_and_memory() -> None:
    state = facts_of(TOOLS / "nvidia-smi.h100x8-550.txt")
    assert (state.driver, len(state.gpus), state.attached) == ("550.90.07", 8, 8)
    third = state.gpus[2]
    assert (third.index, third.bus_id, third.name) == (2, "0000:4c:00.0", "NVIDIA H100 80GB HBM3")
    assert (third.temperature_c, third.pstate, third.power_w, third.power_limit_w) == (23, "P0", 70.0, 700.0)
    assert (third.memory_used_mib, third.memory_total_mib, third.utilisation_percent) == (1, 81559, 0)
    assert third.ecc_uncorrected == 0 and third.persistence is True


def test_a_table_with_instances_lists_the_gpu_once_and_has_no_use_for_it() -> None:
    state = facts_of(TOOLS / "nvidia-smi.h100-mig-590.txt")
    (gpu,) = state.gpus
    assert (gpu.bus_id, gpu.utilisation_percent, gpu.power_w, gpu.ecc_uncorrected) == (
        "0000:00:09.0",
        None,
        432.0,
        None,
    )


def test_one_unreadable_value_makes_no_gpu_lost() -> None:
    (gpu,) = facts_of(TOOLS / "nvidia-smi.rtx4090-525-fan-err.txt").gpus
    assert gpu.answered and (gpu.temperature_c, gpu.power_w) == (38, 49.0)


def test_a_row_of_nothing_but_errors_is_a_lost_gpu(tmp_path: Path) -> None:
    healthy = (TOOLS / "nvidia-smi.h100x8-550.txt").read_text()
    lines = healthy.splitlines()
    at = next(number for number, line in enumerate(lines) if "00000000:4C:00.0" in line)
    lines[at] = lines[at].replace("|                    0 |", "|                 ERR! |")
    lines[at + 1] = "|ERR!  ERR! ERR!            ERR! /  ERR! |       1MiB /  81559MiB |    ERR!      Default |"
    found = bring(tmp_path, {"table.txt": "\n".join(lines)})
    (reading,) = [one for _, one in found.readings if one.capture.probe == "gpu.state"]
    assert [gpu.bus_id for gpu in reading.facts.gpus if not gpu.answered] == ["0000:4c:00.0"]
    assert [finding.code for finding in reading.findings] == ["gpu.lost"]


def test_a_query_is_read_by_the_names_in_its_header() -> None:
    (gpu,) = facts_of(TOOLS / "query-gpu.h100-590-load.csv").gpus
    assert (gpu.bus_id, gpu.recovery_action, gpu.sm_mhz, gpu.sm_max_mhz) == ("0000:00:09.0", "none", 1980, 1980)
    assert gpu.power_w == 631.95 and gpu.reasons == ()


def test_a_query_with_a_row_that_lacks_a_value_is_refused(tmp_path: Path) -> None:
    found = bring(tmp_path, {"q.csv": "index, pci.bus_id, temperature.gpu\n0, 00000000:19:00.0\n"})
    assert not found.readings and "expected 3 values, found 2" in found.unread[0].why


def test_the_reasons_of_a_query_are_read_as_a_mask(tmp_path: Path) -> None:
    """0x88 is HW Slowdown (0x8) and HW Power Brake (0x80), nvml.h."""
    head = "index, pci.bus_id, clocks_event_reasons.active, clocks.current.sm [MHz], clocks.max.sm [MHz]\n"
    found = bring(tmp_path, {"q.csv": head + "0, 00000000:19:00.0, 0x0000000000000088, 210 MHz, 1980 MHz\n"})
    ((_, reading),) = found.readings
    assert reading.facts.gpus[0].reasons == ("hw_slowdown", "hw_power_brake_slowdown")
    assert [finding.code for finding in reading.findings] == ["gpu.power_brake"]


def test_xml_gives_what_the_text_gives() -> None:
    """The recording holds one of four GPUs: it is not taken for the whole node, and not numbered."""
    state = facts_of(TOOLS / "nvidia-smi-q-x.a100-535.xml")
    (gpu,) = state.gpus
    assert (state.driver, state.attached, gpu.index, gpu.bus_id) == ("535.54.03", 4, None, "0000:01:00.0")
    assert (gpu.temperature_c, gpu.sm_mhz, gpu.sm_max_mhz, gpu.power_w) == (27, 1275, 1410, 67.03)
    assert (gpu.memory_used_mib, gpu.pcie_gen, gpu.pcie_width, gpu.mig) == (50, 4, 16, True)
    assert gpu.ecc_uncorrected == 0 and gpu.remap_pending is None and gpu.reasons == ()


def test_xml_never_expands_a_strangers_entities(tmp_path: Path) -> None:
    head = '<?xml version="1.0"?>\n<!DOCTYPE x [<!ENTITY a "&b;&b;"><!ENTITY b "boom">]>\n<nvidia_smi_log>\n'
    body = '<gpu id="00000000:01:00.0">\n<product_name>&a;</product_name>\n</gpu>\n</nvidia_smi_log>\n'
    ((_, reading),) = bring(tmp_path, {"x.xml": head + body}).readings
    assert reading.facts.gpus[0].name == "&a;"


def test_the_list_of_gpus_has_no_bus_ids_and_instances_are_none_of_its_gpus() -> None:
    (gpu,) = facts_of(TOOLS / "nvidia-smi-L.h200-mig.txt").gpus
    assert (gpu.index, gpu.bus_id, gpu.name) == (0, "", "NVIDIA H200")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error", "gpu.lost"),
        ("Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost.  Reboot the system", "gpu.lost"),
        ("Failed to initialize NVML: Driver/library version mismatch", "gpu.driver_problem"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "gpu.driver_problem"),
        ("No devices were found", "gpu.driver_problem"),
    ],
)
def test_what_nvidia_smi_says_instead_of_an_answer_is_evidence(tmp_path: Path, words: str, code: str) -> None:
    ((_, reading),) = bring(tmp_path, {"out.txt": f"{words}\n"}).readings
    assert (reading.capture.probe, [finding.code for finding in reading.findings]) == ("gpu.state", [code])


def test_links_of_every_gpu_are_read_and_a_board_without_any_is_no_fault() -> None:
    links = facts_of(TOOLS / "nvlink-s.a100x8.txt")
    assert [len(gpu.speeds) for gpu in links.gpus] == [12] * 8
    assert set(links.gpus[7].speeds.values()) == {25.0}
    (reading,) = readings_of(TOOLS / "nvlink-s.l40s.txt")
    assert reading.facts.gpus[0].speeds == {} and not reading.findings


def test_a_link_that_is_down_on_one_gpu_is_told_and_repaired_errors_are_not(tmp_path: Path) -> None:
    recorded = (TOOLS / "nvlink-s.a100x8.txt").read_text()
    down = recorded.replace("Link 3: 25 GB/s", "Link 3: <inactive>", 1)
    ((_, reading),) = bring(tmp_path / "a", {"nvlink.txt": down}).readings
    assert [(finding.code, finding.subject["gpu"]) for finding in reading.findings] == [("gpu.nvlink_inactive", 0)]
    gpu = "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-5269b708-678a-b1a8-60f0-c90406537486)\n"
    counts = gpu + "\t Link 0: Replay Errors: 4\n\t Link 0: Recovery Errors: 0\n\t Link 0: CRC Errors: 0\n"
    ((_, quiet),) = bring(tmp_path / "b", {"nvlink-e.txt": counts}).readings
    assert not quiet.findings
    ((_, bad),) = bring(tmp_path / "c", {"nvlink-e.txt": counts.replace("CRC Errors: 0", "CRC Errors: 9")}).readings
    assert [finding.severity for finding in bad.findings] == ["warn"]


def test_one_output_may_tell_two_things(tmp_path: Path) -> None:
    """A board all of whose links are inactive: it is listed, and its links are down."""
    lines = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-5269b708-678a-b1a8-60f0-c90406537486)\n\t All links are inActive\n"
    found = bring(tmp_path, {"nvlink.txt": lines})
    assert {reading.capture.probe for _, reading in found.readings} == {"gpu.nvlink", "gpu.state"}


def test_topology_of_a_node_names_the_gpu_that_has_no_nvlink(tmp_path: Path) -> None:
    assert facts_of(TOOLS / "topo-m.h200x1.txt").gpus == ("GPU0",)
    found = bring(tmp_path, {"topo.txt": topology(lone=2)})
    ((_, reading),) = found.readings
    assert len(reading.facts.pairs) == 28 and reading.facts.pairs["GPU0 GPU1"] == "NV18"
    assert [finding.subject for finding in reading.findings] == [{"gpu": 2}]


def topology(lone: int | None = None, nvlink: str = "NV18") -> str:
    """nvidia-smi topo -m of eight GPUs; `lone` has no NVLink."""
    head = "\t\x1b[4mGPU0" + "".join(f"\tGPU{n}" for n in range(1, 8)) + "\tCPU Affinity\tNUMA Affinity\x1b[0m\n"
    rows = ""
    for mine in range(8):
        cells = [" X " if mine == n else "NODE" if lone in (mine, n) else nvlink for n in range(8)]
        rows += "\t".join([f"GPU{mine}", *cells, "0-47", "0"]) + "\n"
    return head + rows + "\nLegend:\n\n  X    = Self\n"


def test_samples_are_told_by_their_median() -> None:
    (gpu,) = facts_of(TOOLS / "dmon.h100-load.txt").gpus
    assert (gpu.samples, gpu.power_w, gpu.temperature_c, gpu.sm_percent, gpu.clock_mhz) == (
        5,
        634.0,
        64.0,
        100.0,
        1980.0,
    )


# The bus, the fabric, the machine ------------------------------------------------------------------------------------


def test_lspci_counts_gpus_and_switches_and_knows_a_machine_of_metal() -> None:
    pci = facts_of(TOOLS / "lspci-nn.a100x8.txt")
    assert (len(pci.of("gpu")), len(pci.of("switch")), pci.detail) == (8, 6, False)
    assert pci.of("gpu")[7].slot == "000e:00:00.0"


def test_lspci_tells_links_and_acs_of_bridges() -> None:
    """In the recording four bridges (82:00.0 to 82:03.0) have ReqRedir+. Behind them are NVSwitches and no GPU."""
    (reading,) = readings_of(TOOLS / "lspci-vvv.acs.txt")
    redirecting = [device.slot for device in reading.facts.of("bridge") if device.redirects]
    assert redirecting == [f"0000:82:0{number}.0" for number in range(4)]
    bridge = next(device for device in reading.facts.devices if device.slot == "0000:00:0c.0")
    assert (bridge.speed, bridge.speed_max, bridge.width, bridge.width_max) == (5.0, 8.0, 1, 1)
    assert not reading.facts.virtual and "pci.acs" not in [finding.code for finding in reading.findings]


def test_acs_on_a_bridge_with_a_gpu_behind_it_is_told_on_bare_metal_only(tmp_path: Path) -> None:
    lines = (
        "3a:00.0 PCI bridge: Broadcom / LSI PEX890xx (rev b0)\n\tBus: primary=3a, secondary=3b, subordinate=3c\n"
        "\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-\n"
        "3b:00.0 3D controller: NVIDIA Corporation Device 2330 (rev a1)\n"
    )
    ((_, metal),) = bring(tmp_path / "a", {"lspci.txt": lines}).readings
    assert [finding.code for finding in metal.findings] == ["pci.acs"]
    ((_, virtual),) = bring(
        tmp_path / "b", {"lspci.txt": "00:01.0 PCI bridge: Red Hat, Inc. QEMU PCIe Root port\n" + lines}
    ).readings
    assert not virtual.findings


def test_a_device_that_no_longer_answers_on_the_bus_is_told(tmp_path: Path) -> None:
    name = "3D controller: NVIDIA Corporation Device 2330"
    lines = f"3a:00.0 {name} (rev a1)\n3b:00.0 {name} (rev ff)\n"
    ((_, reading),) = bring(tmp_path, {"lspci.txt": lines}).readings
    assert [(f.code, f.subject["bus_id"]) for f in reading.findings] == [("pci.dead", "0000:3b:00.0")]


def test_the_fabric_managers_log_and_its_service_are_one_kind_of_evidence(tmp_path: Path) -> None:
    manager = facts_of(TOOLS / "fabricmanager.log")
    (event,) = manager.events
    assert (event.switch, event.fatal, event.count, manager.active) == ("00000000:86:00.0", False, 1, None)
    unit = "● nvidia-fabricmanager.service - NVIDIA fabric manager service\n     Loaded: loaded (/lib/x; enabled)\n"
    failed = unit + "     Active: failed (Result: exit-code) since Mon 2025-03-03 09:12:11 UTC; 1h ago\n"
    ((_, reading),) = bring(tmp_path, {"fm.txt": failed}).readings
    assert reading.facts.active is False
    assert [finding.code for finding in reading.findings] == ["gpu.fabric_manager_down"]


SEL = """   1 | 03/03/2025 | 10:00:01 | Memory #0x53 | Uncorrectable ECC | Asserted
   2 | 03/03/2025 | 10:00:02 | Memory #0x53 | Correctable ECC | Asserted
   3 | 03/03/2025 | 10:00:02 | Power Supply #0x10 | Power Supply AC lost | Asserted
   4 | 03/03/2025 | 10:00:03 | System Event #0x01 | Timestamp Clock Sync | Asserted
"""
EDAC = "mc0: csrow0: CPU_SrcID#0_Ha#0_Chan#0_DIMM#0: 5 Corrected Errors\nmc0: 0 Uncorrected Errors with no DIMM info\n"
MCELOG = (
    "Hardware event. This is not a software error.\nMCE 0\nCPU 3 BANK 7\nMCA: MEMORY CONTROLLER RD_CHANNEL0_ERR\n"
    "STATUS 8c00004000010090 MCGSTATUS 0\n"
)


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        (SEL, ["uncorrected", "corrected", "power", "other"]),
        (EDAC, ["corrected"]),
        (MCELOG, ["corrected"]),
        (MCELOG.replace("8c00004000010090", "bc00004000010090"), ["uncorrected"]),
        ("edac-util: No errors to report.\n", []),
    ],
)
def test_the_machines_own_error_logs_tell_corrected_from_uncorrected(
    tmp_path: Path, text: str, kinds: list[str]
) -> None:
    """Bit 61 of MCi_STATUS says uncorrected: set in bc00..., clear in 8c00... (Intel SDM 3B)."""
    ((_, reading),) = bring(tmp_path, {"log.txt": text}).readings
    assert reading.capture.probe == "host.hardware_log"
    assert [error.kind for error in reading.facts.errors] == kinds


def test_df_gives_room_inodes_and_shared_memory(tmp_path: Path) -> None:
    storage = facts_of(TOOLS / "df-h.txt")
    assert {disk.mount: disk.used_percent for disk in storage.disks}["/"] == 11.0
    assert storage.shm[0].used_percent == 0.0
    full = (
        "Filesystem       Inodes   IUsed  IFree IUse% Mounted on\n/dev/nvme0n1p2 58605568 58605568     0  100% /data\n"
    )
    ((_, reading),) = bring(tmp_path, {"df-i.txt": full}).readings
    assert [finding.code for finding in reading.findings] == ["host.inodes_full"]


def test_mounts_tell_what_an_error_turned_read_only(tmp_path: Path) -> None:
    lines = (
        "proc on /proc type proc (rw,nosuid)\n/dev/nvme0n1p2 on / type ext4 (rw,relatime)\n"
        "/dev/nvme1n1 on /scratch type ext4 (ro,relatime,errors=remount-ro)\n"
        "fs1:/home on /home type nfs4 (rw,vers=4.2)\n"
    )
    ((_, reading),) = bring(tmp_path, {"mount.txt": lines}).readings
    assert [(f.code, f.subject["mount"]) for f in reading.findings] == [("host.fs_readonly", "/scratch")]
    assert [mount.mount for mount in reading.facts.network_mounts] == ["/home"]


@pytest.mark.parametrize(
    ("text", "uptime", "stamp"),
    [
        (None, 57780.0, ""),  # the recording: up 16:03
        (" 10:25:20 up 41 days,  3:05,  2 users,  load average: 0.00, 0.01, 0.05\n", 41 * 86400 + 11100.0, ""),
        ("         system boot  2025-03-03 10:02\n", None, "2025-03-03 10:02"),
        (
            "reboot   system boot  5.15.0-91-generic Mon Mar  3 10:02:11 2025   still running\n",
            None,
            "Mon Mar  3 10:02:11 2025",
        ),
    ],
)
def test_since_when_a_node_runs(tmp_path: Path, text: str | None, uptime: float | None, stamp: str) -> None:
    recorded = text if text is not None else (TOOLS / "uptime.txt").read_text()
    readings = [reading for _, reading in bring(tmp_path, {"boot.txt": recorded}).readings]
    (reading,) = (one for one in readings if one.capture.probe == "host.boots")
    assert (reading.facts.uptime_s, reading.facts.stamp) == (uptime, stamp)


@pytest.mark.parametrize(
    ("file", "synchronised", "offset_s"),
    [
        ("chronyc-sources.txt", True, -91e-6),  # ^* 10.64.108.95: the node is 91 us behind, chronyc(1)
        ("ntpq-pn.txt", True, -0.231e-3),  # *72.5.72.15, 0.231 ms: ntpq prints source minus node
        ("ntpq-n.unreachable.txt", False, None),
        ("timedatectl.txt", True, None),
    ],
)
def test_what_a_time_service_says_of_itself(file: str, synchronised: bool, offset_s: float | None) -> None:
    clock = facts_of(TOOLS / file)
    assert clock.synchronised is synchronised
    assert clock.service_offset_s == (None if offset_s is None else pytest.approx(offset_s))


VERSIONS = """NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023
GCC version:  gcc version 11.4.0 (Ubuntu 11.4.0-1ubuntu1~22.04)
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (VERSIONS, {"driver": "535.129.03", "driver kind": "closed kernel module"}),
        (
            "filename:       /lib/modules/5.15.0-91/kernel/nvidia.ko\nversion:        535.161.08\n",
            {"driver module file": "535.161.08"},
        ),
        ("torch==2.3.0+cu121\nnvidia-nccl-cu12==2.20.5\nnumpy==1.26.4\n", {"torch": "2.3.0+cu121", "NCCL": "2.20.5"}),
        (
            "Package            Version\n------------------ -------\n"
            "torch              2.3.0\nnvidia-nccl-cu12   2.20.5\n",
            {"torch": "2.3.0", "NCCL": "2.20.5"},
        ),
    ],
)
def test_versions_are_read_from_the_tools_that_print_them(tmp_path: Path, text: str, found: dict[str, str]) -> None:
    ((_, reading),) = bring(tmp_path, {"versions.txt": text}).readings
    assert reading.facts.found == found


def test_amd_gpus_are_read_from_each_of_their_tools(tmp_path: Path) -> None:
    gpus = facts_of(TOOLS / "rocm-smi.mi100.json").gpus
    assert [one.bus_id for one in gpus] == [f"0000:{bus}:00.0" for bus in ("83", "a3", "c3", "e3")]
    gpu = gpus[0]
    assert (gpu.bus_id, gpu.temperature_c, gpu.power_w, gpu.power_limit_w) == ("0000:83:00.0", 55, 36.0, 290.0)
    (told,) = facts_of(TOOLS / "amd-smi-ecc.txt").gpus
    assert (told.index, told.ecc_corrected, told.ecc_uncorrected) == (0, 0, 0)
    (row,) = facts_of(TOOLS / "amd-smi-monitor.txt").gpus
    assert row.index == 0


# Kernel logs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "at"),
    [
        (f"Tue 2025-01-21 02:21:33 UTC node-7 kernel: {XID79}", 1737426093.0),
        (f"Tue 2025-01-21 02:21:33 CET node-7 kernel: {XID79}", None),
        (f"Jan 21 02:21:33.500000 node-7 kernel: {XID79}", None),
        (f"2025-01-21 02:21:33 node-7 kernel: {XID79}", None),
        (f"[  400.000000] node-7 kernel: {XID79}", None),
    ],
)
def test_more_forms_of_the_journal_read_the_same(line: str, at: float | None) -> None:
    (xid,) = parse(f"{line}\n").xids
    assert (xid.bus_id, xid.xid, xid.first_at) == ("0000:1b:00", 79, at)


def test_a_journal_as_json_names_its_node_and_its_times(tmp_path: Path) -> None:
    row: dict[str, Any] = {"__REALTIME_TIMESTAMP": "1737426093500000", "_HOSTNAME": "node-7", "MESSAGE": XID79}
    lines = [json.dumps(row | {"SYSLOG_IDENTIFIER": "kernel"}), json.dumps(row | {"SYSLOG_IDENTIFIER": "app"})]
    ((_, reading),) = bring(tmp_path, {"journal.json": "\n".join(lines)}).readings
    assert reading.capture.node == "node-7"
    (xid,) = reading.facts.xids
    assert (xid.xid, xid.first_at, xid.count) == (79, 1737426093.5, 1), "what another program quotes does not count"


def test_another_programs_line_keeps_who_wrote_it() -> None:
    (line,) = log_lines("Jan 21 02:21:33 n systemd-logind[812]: System is rebooting.", Clock())
    assert (line.text, line.program, line.said) == ("", "systemd-logind", "System is rebooting.")


@pytest.mark.parametrize(
    ("message", "what"),
    [
        ("amdgpu 0000:83:00.0: amdgpu: ring sdma0 timeout, signaled seq=10, emitted seq=12", "ring timeout"),
        ("[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx timeout, signaled seq=1, emitted seq=2", "ring timeout"),
        ("amdgpu 0000:83:00.0: amdgpu: GPU reset begin!", "reset"),
        ("amdgpu 0000:83:00.0: amdgpu: GPU reset end with ret = -62", "reset failed"),
        (
            "amdgpu 0000:83:00.0: amdgpu: socket: 0, die: 0 3 uncorrectable hardware errors detected in umc block",
            "uncorrectable",
        ),
        ("amdgpu 0000:83:00.0: amdgpu: 1 correctable hardware errors detected in total in umc block", "corrected"),
        ("amdgpu 0000:83:00.0: amdgpu: [mmhub0] no-retry page fault (src_id:0 ring:24 vmid:3)", "page fault"),
        ("amdgpu: qcm fence wait loop timeout expired", "queue stuck"),
        ("NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x24:0x65:1424)", "init failed"),
        ("NVRM: API mismatch: the client has the version 535.1, but this kernel module has 535.2", "version mismatch"),
    ],
)
def test_what_drivers_say_without_an_xid(message: str, what: str) -> None:
    (problem,) = parse(f"[  1.000000] {message}\n").gpu_problems
    assert problem.what == what


@pytest.mark.parametrize(
    ("down", "up", "kind"),
    [
        ("nfs: server fs1 not responding, still trying", "nfs: server fs1 OK", "NFS"),
        (
            "Lustre: scratch-OST0003-osc-ff: Connection to scratch-OST0003 (at 10.0.0.3@o2ib) was lost; in progress "
            "operations using this service will wait for recovery to complete",
            "Lustre: scratch-OST0003-osc-ff: Connection restored to scratch-OST0003 (at 10.0.0.3@o2ib)",
            "Lustre",
        ),
        ("ceph: mds0 hung", "ceph: mds0 came back", "Ceph"),
        (
            r"CIFS: VFS: \\fs9 has not responded in 180 seconds. Reconnecting...",
            r"CIFS: VFS: \\fs9 reconnected",
            "CIFS",
        ),
    ],
)
def test_a_network_file_system_that_answers_again_is_over(down: str, up: str, kind: str) -> None:
    (silent,) = parse(f"[  1.0] {down}\n").nfs_stalls
    assert (silent.kind, silent.answering) == (kind, False)
    (back,) = parse(f"[  1.0] {down}\n[  9.0] {up}\n").nfs_stalls
    assert back.answering


def test_a_killed_process_keeps_its_own_control_group() -> None:
    line = (
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0-1,oom_memcg=/slurm/uid_1/job_77,"
        "task_memcg=/slurm/uid_1/job_77/step_0/task_3,task=python3,pid=4211,uid=1"
    )
    (kill,) = parse(f"[  1.0] {line}\n").oom_kills
    assert (kill.cgroup, kill.task_cgroup) == ("/slurm/uid_1/job_77", "/slurm/uid_1/job_77/step_0/task_3")


def test_prose_that_quotes_a_tool_is_none_of_its_output(tmp_path: Path) -> None:
    prose = "We saw this:\nUnable to determine the device handle for GPU0000:3B:00.0: Unknown Error\nand rebooted\n"
    assert not bring(tmp_path, {"mail.txt": prose}).readings


def test_hostile_output_is_read_in_no_time_or_refused(tmp_path: Path) -> None:
    lines = {
        "a.txt": "| NVIDIA-SMI |==" + "|" * 200_000,
        "b.txt": "GPU 0: " + "x" * 200_000 + "(UUID: GPU-",
        "c.csv": "index, pci.bus_id, temperature.gpu" + ", x" * 50_000 + "\n" + "," * 200_000,
        "d.txt": "00:00.0 PCI bridge: " + "a: " * 60_000,
        "e.txt": "   1 | 03/03/2025 | " + "10:00:01 | " * 30_000,
        "f.xml": "<nvidia_smi_log>" + "<gpu>" * 50_000,
        "g.txt": "Filesystem Size Used Avail Use% Mounted on\n" + "/" * 200_000,
    }
    found = bring(tmp_path, lines)
    assert len(found.readings) + len(found.unread) >= len(lines)


def test_every_recorded_output_is_known_by_its_content_alone(tmp_path: Path) -> None:
    for number, path in enumerate(sorted(TOOLS.iterdir())):
        if path.name == "MANIFEST.tsv":
            continue
        there = tmp_path / f"{number:02d}" / "evidence.txt"
        there.parent.mkdir()
        there.write_bytes(path.read_bytes())
        found = intake.read([there])
        assert found.readings and not found.unread, (path.name, found.unread)
