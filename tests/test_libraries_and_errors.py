"""Libraries that do not fit, machines that err, and what of it is old: from files as people bring them.

Right values follow from ld.so(8), ldd(1), pip's and conda's output, sysfs' EDAC counters and signal(7).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from probes.intake.tools import tool_of
from tests.support.hardware import job_log, judged, raised, waited

NODES = ("node-1", "node-2", "node-3")


def job(rank: int | None = None, *lines: str) -> dict[str, str]:
    """Three ranks, of which one wrote lines of its own."""
    return {
        f"{node}/rank{number}.log": job_log(node, number, *(lines if number == rank else (waited(number),)))
        for number, node in enumerate(NODES)
    }


@pytest.mark.parametrize(
    "error",
    [
        "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory",
        "ImportError: /opt/x/libtorch_cuda.so: undefined symbol: ncclCommRegister",
        "ImportError: /lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.30' not found (required by _C.so)",
        "RuntimeError: cuDNN version incompatibility: PyTorch was compiled  against (9, 1, 0) but found (8, 9, 2).",
    ],
)
def test_a_rank_that_the_loader_refused_a_library_has_another_one_than_its_program(tmp_path: Path, error: str) -> None:
    verdict = judged(tmp_path, job(1, *raised(1, error))).verdict
    assert (verdict.hypothesis.cause, verdict.hypothesis.subject) == ("host.library_mismatch", {"node": "node-2"})


def test_a_symbol_that_a_program_s_own_extension_lacks_is_the_program_s_fault(tmp_path: Path) -> None:
    error = "ImportError: /work/sampler/_fast.so: undefined symbol: _Z6samplePfi"
    assert judged(tmp_path, job(1, *raised(1, error))).verdict.hypothesis.cause == "fw.rank_exited"


VERSIONS = ("2.21.5", "2.18.1", "2.21.5")


@pytest.mark.parametrize(
    "files",
    [
        {"pip.txt": "".join(f"{node}: nvidia-nccl-cu12     {v}\n" for node, v in zip(NODES, VERSIONS, strict=True))
         + "".join(f"{node}: torch     2.5.1\n" for node in NODES)},
        {f"{node}/pip.json": json.dumps([{"name": "nvidia-nccl-cu12", "version": v}, {"name": "x", "version": "1.0"}])
         for node, v in zip(NODES, VERSIONS, strict=True)},
        {f"{node}/conda.txt": f"# packages in environment at /opt/conda:\n#\n# Name  Version  Build  Channel\n"
         f"nccl      {v}.1      h12  conda-forge\n" for node, v in zip(NODES, VERSIONS, strict=True)},
    ],
    ids=["pip list by pdsh", "pip json", "conda"],
)  # fmt: skip
def test_the_node_with_another_nccl_than_most_is_named(tmp_path: Path, files: dict[str, str]) -> None:
    verdict = judged(tmp_path, job() | files).verdict
    assert (verdict.hypothesis.cause, verdict.hypothesis.subject) == ("host.library_mismatch", {"node": "node-2"})
    assert verdict.probability < 0.8, "another version alone may work"


def test_ldd_tells_what_the_loader_does_not_find() -> None:
    text = "\tlibnccl.so.2 => not found\n\tlibz.so.1 => not found\n\tlibm.so.6 => /lib/libm.so.6 (0x00007f0a)\n"
    tool = tool_of(text, "ldd.txt")
    assert tool is not None
    assert tool.read(text).missing == ("libnccl.so.2", "libz.so.1")
    assert tool.findings is not None
    assert [one.says for one in tool.findings(tool.read(text))] == ["the loader does not find libnccl.so.2"]


def test_the_rank_that_a_bus_error_ended_is_named_with_the_memory_that_failed(tmp_path: Path) -> None:
    edac = "/sys/devices/system/edac/mc/mc0/ce_count:12\n/sys/devices/system/edac/mc/mc0/ue_count:1\n"
    signal = "Signal 7 (SIGBUS) received by PID 1001"
    found = judged(tmp_path, job(1, signal) | {"node-2/edac.txt": edac}).verdict
    assert (found.hypothesis.cause, found.hypothesis.subject) == ("host.machine_check", {"node": "node-2", "rank": 1})
    other = judged(tmp_path / "b", job(1, signal) | {"node-3/edac.txt": edac}).verdict
    assert other.hypothesis.cause != "host.machine_check", "of another node's memory it tells nothing"
    calm = judged(
        tmp_path / "c", job(1, signal) | {"node-2/edac.txt": edac.replace("ue_count:1", "ue_count:0")}
    ).verdict
    assert calm.hypothesis.cause != "host.machine_check"


def test_a_fault_from_before_the_launcher_began_does_not_lead(tmp_path: Path) -> None:
    launched = (
        "[2025-03-03 09:14:20] torch.distributed.run: [WARNING] Setting OMP_NUM_THREADS environment variable\n"
        "[rank4 node-2] torch.distributed.DistStoreError: Timed out after 301 seconds waiting for clients. 8/12 "
        "clients joined.\n"
    )
    xid = "[Mon Jan 20 13:11:02 2025] NVRM: Xid (PCI:0000:61:00): 31, pid=20, name=python, Ch 0000000b, MMU Fault\n"
    verdict = judged(tmp_path, {"launch.log": launched, "node-1/dmesg.txt": xid}).verdict
    assert verdict.hypothesis.cause != "gpu.app_fault"


REDFISH = {
    "Members": [
        {"Created": "2025-03-03T10:00:04Z", "MessageId": "MEM0001", "Severity": "Critical",
         "Message": "Uncorrectable ECC error detected on DIMM A3"},
    ]
}  # fmt: skip
RACADM = (
    "Record:      12\nDate/Time:   03/03/2025 10:00:04\nSource:      system\nSeverity:    Critical\n"
    "Description: Multi-bit memory errors detected on a memory device at location(s) DIMM_B2.\n"
)


@pytest.mark.parametrize(
    ("name", "text", "kinds"),
    [
        ("sel.json", json.dumps(REDFISH), ["uncorrected"]),
        ("getsel.txt", RACADM, ["uncorrected"]),
        ("getsel.txt", RACADM.replace("Critical", "Ok").replace("Multi-bit memory errors", "Memory test passed"), []),
    ],
)
def test_a_controller_s_log_tells_uncorrected_errors_of_memory(name: str, text: str, kinds: list[str]) -> None:
    tool = tool_of(text, name)
    assert tool is not None
    assert [error.kind for error in tool.read(text).errors] == kinds


def test_an_image_that_asks_for_a_newer_driver_than_the_node_has_is_a_mismatch(tmp_path: Path) -> None:
    said = "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.4, please update your driver"
    found = judged(tmp_path, job() | {"node-2/start.log": f"{said}\n"}).verdict.hypothesis
    assert (found.cause, found.subject) == ("host.library_mismatch", {"node": "node-2"})
