"""Settings and devices of ranks as people paste them below headings, and what NCCL's plug-ins print of themselves."""

from __future__ import annotations

from pathlib import Path

from tests.support.brought import told

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
