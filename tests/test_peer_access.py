"""The way between the GPUs of a node: access control on bridges, and the IOMMU. Odd settings alone are no fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.hardware import judged, kernel_log, shares

# drivers/iommu/amd/iommu.c prints the device first where it knows it, else in the brackets; Intel names it alone.
AMD = "{} 0000:2a:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0011 address=0x2f0000000 flags=0x0020]"
INTEL = "DMAR: [DMA Write NO_PASID] Request device [2a:00.0] fault addr 0x2f0000000 [fault reason 0x05] PTE Write"
WAITED = (
    "[rank{0}]:[E303 10:10:05.123456 ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective operation timeout:"
    " WorkNCCL(SeqNum={1}, OpType=BROADCAST, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600034 milliseconds"
)
LINK = "gx{0}:9{0}:9{0} [0] NCCL INFO Channel 00/0 : {0}[0] -> {1}[1] via P2P/IPC\n"


def bridges(bit: str, virtual: bool = False) -> str:
    name = "Red Hat, Inc. QEMU PCIe Root port" if virtual else "Broadcom / LSI PEX890xx PCIe Gen 5 Switch"
    return (
        f"2{{}}:00.0 PCI bridge: {name} (rev b0) (prog-if 00 [Normal decode])\n"
        "\tBus: primary=27, secondary=28, subordinate=2f, sec-latency=0\n"
        f"\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir{bit} CmpltRedir{bit} UpstreamFwd{bit} EgressCtrl- DirectTrans-\n"
        "2a:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)\n\tLnkSta: Speed 32GT/s, Width x16\n"
    ).format(7)


def job(seq: int = 1, steps: str = "") -> dict[str, str]:
    lines = "".join(LINK.format(rank, rank + 1) + WAITED.format(rank, seq) + "\n" for rank in (1, 2))
    return {"job.log": steps + lines}


def share(folder: Path, files: dict[str, str]) -> float:
    return shares(judged(folder / "incident", files)).get("gpu.p2p_blocked", 0.0)


@pytest.mark.parametrize(("line", "sure"), [(AMD.format("nvidia"), True), (AMD.format("amdgpu"), True),
    (AMD.format("mpt3sas"), False), (INTEL, False)])  # fmt: skip
def test_an_access_of_a_gpu_that_the_iommu_refuses(tmp_path: Path, line: str, sure: bool) -> None:
    found = share(tmp_path, {"gx1/dmesg": kernel_log("gx1", ("10:00:00", line), ("10:00:01", line))})
    assert found > 0.9 if sure else found < 0.1


def test_intels_line_names_a_gpu_where_another_file_says_that_it_is_one(tmp_path: Path) -> None:
    log = kernel_log("gx1", ("10:00:00", INTEL))
    assert share(tmp_path, {"gx1/dmesg": log, "gx1/lspci.txt": bridges("-")}) > 0.9


def test_redirection_with_first_collectives_that_never_end_leads_and_alone_it_does_not(tmp_path: Path) -> None:
    unlike = {"gx1/lspci.txt": bridges("-"), "gx2/lspci.txt": bridges("+")}
    assert share(tmp_path / "hangs", job() | unlike) > 0.9
    assert share(tmp_path / "late", job(seq=4711) | unlike) < 0.5, "after 4,710 collectives the way was open"
    assert share(tmp_path / "well", unlike) < 0.5
    everywhere = {f"gx{number}/lspci.txt": bridges("+") for number in (1, 2)}
    assert share(tmp_path / "all", everywhere) < 0.2, "many machines run so"
    assert share(tmp_path / "guest", job() | {"gx2/lspci.txt": bridges("+", virtual=True)}) == 0.0
