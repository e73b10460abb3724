"""host.versions: what a node's files and its ranks' memory tell, and a node that differs from the others."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from probes.catalog.host_versions import PROBE, Versions, parse
from probes.core import Capture, ParseError, Reading
from probes.diagnosis import diagnose
from probes.diagnosis.core import seen
from tests.support.collectors import capture_here, old_and_new_pythons
from tests.support.namespaces import unshare_mounts

HOLDS = """
import mmap, sys
files = [open(path, "rb") for path in sys.argv[1:]]
held = [mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) for file in files]
print("holds", flush=True)
sys.stdin.read()
"""
DRIVER = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.90.07  Release Build\n"


def installed(site: Path, torch: str, nccl: str) -> list[Path]:
    """The files of pip's torch and NCCL that a rank maps, and those beside them that name a version."""
    files = [site / "torch/lib/libtorch_cpu.so", site / "nvidia/nccl/lib/libnccl.so.2"]
    for path in files:
        path.parent.mkdir(parents=True)
        path.write_bytes(b"\x7fELF" + bytes(4092))
    told = f"__version__ = '{torch}'\ndebug = False\ncuda: Optional[str] = '12.4'\nhip: Optional[str] = None\n"
    (site / "torch/version.py").write_text(told)
    (site / f"nvidia_nccl_cu12-{nccl}.dist-info").mkdir()
    return files


@pytest.fixture
def rank(tmp_path: Path) -> Iterator[Path]:
    """A process that is a rank by its environment and holds these libraries; its site-packages."""
    site = tmp_path / "site-packages"
    files = installed(site, "2.5.1+cu124", "2.21.5")
    env = {**os.environ, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "x", "MASTER_PORT": "1"}
    command = [sys.executable, "-c", HOLDS, *map(str, files)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == b"holds\n"
        yield site
        process.stdin.close()


def told(python: str, places: dict[str, str]) -> Versions:
    capture = capture_here(PROBE, python, instead=places)
    assert capture.outcome == "ok", capture.why
    return parse(capture.text)


@pytest.mark.parametrize("python", old_and_new_pythons())
def test_what_a_rank_holds_and_what_the_node_loads_are_named(rank: Path, tmp_path: Path, python: str) -> None:
    (tmp_path / "nvidia").write_text(DRIVER)
    library = tmp_path / "lib"
    library.mkdir()
    (library / "libcuda.so.550.54.15").write_bytes(b"x")
    (library / "libcuda.so.1").symlink_to("libcuda.so.550.54.15")
    adapter = tmp_path / "ib/mlx5_0"
    adapter.mkdir(parents=True)
    (adapter / "board_id").write_text("MT_0000000838\n")
    (adapter / "fw_ver").write_text("28.39.2048\n")
    places = {
        "/proc/driver/nvidia/version": str(tmp_path / "nvidia"),
        "/usr/lib64": str(library),
        "/sys/class/infiniband": str(tmp_path / "ib"),
        "/proc/config.gz": str(tmp_path / "config.gz"),
    }
    (tmp_path / "config.gz").write_bytes(gzip.compress(b"# Linux\nCONFIG_DMA_SHARED_BUFFER=y\nCONFIG_X=m\n"))
    found = dict(told(python, places).found)
    assert found.pop("kernel") == os.uname().release
    found.pop("driver module file", None)
    assert found == {
        "driver": "550.90.07", "driver library": "550.54.15", "firmware of MT_0000000838": "28.39.2048",
        "torch": "2.5.1+cu124", "CUDA runtime": "12.4", "NCCL": "2.21.5", "driver kind": "open kernel module",
        "dma-buf": "built in",
    }  # fmt: skip


def test_a_closed_driver_and_a_kernel_without_dma_buf_are_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "nvidia").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 2024\n")
    (tmp_path / f"config-{os.uname().release}").write_text("# Linux\n# CONFIG_DMA_SHARED_BUFFER is not set\n")
    places = {
        "/proc/driver/nvidia/version": str(tmp_path / "nvidia"),
        "/boot/config-": str(tmp_path / "config-"),
        "/proc/config.gz": str(tmp_path / "none"),
    }
    found = told(sys.executable, places).found
    assert (found["driver kind"], found["dma-buf"]) == ("closed kernel module", "not built in")
    assert "dma-buf" not in told(sys.executable, {**places, "/boot/config-": str(tmp_path / "none")}).found


def reading(node: str, **versions: str) -> Reading:
    lines = "\n".join(f"{component.replace('_', ' ')}\t{version}" for component, version in versions.items())
    capture = Capture(node, "host.versions", "ok", f"==> versions <==\n{lines}\n".encode())
    facts = PROBE.parse(capture.text)
    return Reading(capture, facts, None, tuple(PROBE.findings(facts)))


def test_a_library_that_is_not_the_loaded_drivers_is_the_cause() -> None:
    one = reading("gpu-1", driver="550.90.07", driver_library="550.54.15")
    assert [(finding.code, finding.severity) for finding in one.findings] == [("host.driver_mismatch", "bad")]
    first = diagnose([seen(one, "gpu-1: host.versions")], ["gpu-1"]).verdict.hypothesis
    assert (first.cause, first.subject.get("node")) == ("host.library_mismatch", "gpu-1")


def test_the_image_of_a_rank_is_told_where_it_runs_in_one(tmp_path: Path) -> None:
    """A mount namespace of its own with another os-release, as a container has; the name as NVIDIA's images set it."""
    (tmp_path / "os-release").write_text('NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 22.04.4 LTS"\n')
    env = {**os.environ, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "x", "MASTER_PORT": "1"}
    inside = f"mount --bind {tmp_path}/os-release /etc/os-release && exec {sys.executable} -c '{HOLDS}'"
    command = ["unshare", *unshare_mounts(), "sh", "-c", inside]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=env | {"NVIDIA_PYTORCH_VERSION": "24.05"}, **pipes) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == b"holds\n"
        found = told(sys.executable, {}).found
        process.stdin.close()
    assert "NGC PyTorch 24.05, Ubuntu 22.04.4 LTS" in found["image of ranks"].split(" and ")


def test_one_node_with_another_nccl_than_all_others_is_named() -> None:
    nodes = {"gpu-1": "2.21.5", "gpu-2": "2.20.3", "gpu-3": "2.21.5"}
    readings = [seen(reading(node, NCCL=version), f"{node}: host.versions") for node, version in nodes.items()]
    first = diagnose(readings, list(nodes)).verdict.hypothesis
    assert (first.cause, first.subject.get("node")) == ("host.library_mismatch", "gpu-2")
    assert "2.20.3" in first.says and "2.21.5" in first.says


def test_ranks_of_one_node_that_differ_are_told_together() -> None:
    assert parse("==> versions <==\nNCCL\t2.21.5\nNCCL\t2.20.3\n").found == {"NCCL": "2.20.3 and 2.21.5"}


@pytest.mark.parametrize("text", ["NCCL 2.21.5", "\t2.21.5", "NCCL\t"])
def test_a_line_that_the_collector_does_not_write_is_refused(text: str) -> None:
    with pytest.raises(ParseError, match="versions"):
        parse(f"==> versions <==\n{text}\n")
