"""Settings and devices of ranks as people paste them below headings, and what NCCL's plug-ins print of themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.brought import told
from tests.support.hardware import judged

NOTHING = ("unknown", "none")


def places(conf: dict[int, str], said: dict[int, str]) -> str:
    none = "cat: /etc/nccl.conf: No such file or directory"
    return "".join(
        f"== trainer-worker-{n} ==\n$ cat /etc/nccl.conf\n{conf.get(n, none)}\n$ grep -ho 'NCCL_.*' /tmp/nccl.log\n"
        f"{said.get(n, '')}NCCL_IB_HCA set to mlx5\n"
        for n in range(4)
    )


def test_a_file_of_settings_that_one_pod_alone_has_is_named(tmp_path: Path) -> None:
    text = places({2: "NCCL_PROTO=LL"}, {2: "NCCL_PROTO set by environment to LL\n"})
    found = told(tmp_path, {"all.txt": text})
    assert (found.cause, found.subject) == ("nccl.env_mismatch", {"node": "trainer-worker-2"})
    assert "not set on trainer-worker-0" in found.says


def test_a_file_of_settings_that_nobody_has_tells_nothing(tmp_path: Path) -> None:
    assert told(tmp_path, {"all.txt": places({}, {})}).cause in NOTHING
    assert told(tmp_path, {"all.txt": places({1: "NCCL_DEBUG=INFO"}, {})}).cause in NOTHING


def test_versions_of_the_network_plug_in_that_differ_are_told(tmp_path: Path) -> None:
    log = "".join(
        f"ip-10-2-0-{n}:71:99 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.{'9.1' if n == 3 else '14.0'}-aws\n"
        for n in range(1, 6)
    )
    found = told(tmp_path, {"job.log": log})
    assert (found.cause, found.subject) == ("nccl.env_mismatch", {"node": "ip-10-2-0-3"})
    assert found.probability < 0.8


def visible(*devices: int) -> str:
    rows = "".join(f"{rank}: CUDA_VISIBLE_DEVICES={device}\n" for rank, device in enumerate(devices))
    return f"$ srun -l env | grep CUDA_VISIBLE | sort -n\n{rows}"


def test_two_ranks_that_were_given_one_gpu_are_named(tmp_path: Path) -> None:
    found = told(tmp_path, {"env.txt": visible(0, 1, 2, 2)})
    assert found.cause == "nccl.device_visibility"
    assert "ranks 2, 3" in found.says
    assert found.probability < 0.8


def test_ranks_of_two_nodes_or_of_containers_may_have_the_same_numbers(tmp_path: Path) -> None:
    assert told(tmp_path / "nodes", {"env.txt": visible(0, 1, 2, 3, 0, 1, 2, 3)}).cause in NOTHING
    assert told(tmp_path / "pods", {"env.txt": visible(0, 0, 0, 0)}).cause in NOTHING


BLOCK = "CUDA_VISIBLE_DEVICES={1}\nLOCAL_RANK={2}\nRANK={0}\nWORLD_SIZE=8\n"
LOOPS = {
    "a line with its pid": "== {3}\n",
    "a path": "/proc/{3}/environ\n",
    "words": "--- pid {3} ---\n",
    "nothing": "",
}


@pytest.mark.parametrize("between", LOOPS)
def test_environments_that_a_loop_printed_are_each_of_its_own_rank(tmp_path: Path, between: str) -> None:
    gpus = (0, 1, 1, 3)
    text = "".join((LOOPS[between] + BLOCK).format(4 + at, gpu, at, 7700 + at, 0) for at, gpu in enumerate(gpus))
    found = judged(tmp_path, {"gpu-12/environ.txt": text}).verdict.hypothesis
    assert (found.cause, found.subject["node"]) == ("nccl.device_visibility", "gpu-12")
    assert "ranks 5, 6 were all given GPU 1" in found.says


def test_a_rank_is_of_the_machine_where_its_environment_was_read_not_where_its_lines_were_printed(
    tmp_path: Path,
) -> None:
    """The launcher of the first machine prints what the ranks of all say."""
    refused = "[rank{0}]: Duplicate GPU detected : rank {0} and rank {1} both on CUDA device 1a000\n"
    session = "me@box-1:~$ torchrun --nnodes 2 sft.py\n" + refused.format(2, 3) + refused.format(3, 2)
    loop = "me@box-2:~$ for p in $(pgrep -f sft); do echo \"== $p\"; tr '\\0' '\\n' </proc/$p/environ; done\n"
    blocks = "".join(("== {3}\n" + BLOCK).format(2 + at, 0, at, 7700 + at) for at in range(2))
    found = judged(tmp_path, {"terminal.txt": session + loop + blocks}).verdict.hypothesis
    assert (found.cause, found.subject["node"]) == ("nccl.device_visibility", "box-2")
