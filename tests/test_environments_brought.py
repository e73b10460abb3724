"""Environments and checkpoints in further forms in which on-call people bring them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from probes.intake.pasted import parts_of
from probes.intake.tools.training import environment
from tests.test_network_forms import first, named, nccl

NOTHING = ("unknown", "none")


# Environments -------------------------------------------------------------------------------------------------------


def envs(text: str) -> dict[str, dict[str, str]]:
    assert environment.fits(text, "env.txt")
    return {owner: dict(env) for owner, env in environment.read(text).envs.items()}


def test_environments_of_several_containers_are_read_from_docker_inspect() -> None:
    told = [{"Name": f"/{n}", "Config": {"Hostname": n, "Env": [f"NCCL_ALGO={v}", "PATH=/bin"]}}
        for n, v in (("c1", "Ring"), ("c2", "Tree"))]  # fmt: skip
    assert envs(json.dumps(told, indent=4)) == {"c1": {"NCCL_ALGO": "Ring"}, "c2": {"NCCL_ALGO": "Tree"}}


def test_environments_of_pods_are_read_from_json_yaml_and_describe() -> None:
    def pod(name: str, value: str) -> dict[str, object]:
        env = [{"name": "NCCL_PROTO", "value": value}]
        return {"metadata": {"name": name}, "spec": {"containers": [{"name": "main", "image": "x", "env": env}]}}

    want = {"w-0": {"NCCL_PROTO": "LL"}, "w-1": {"NCCL_PROTO": "Simple"}}
    assert envs(json.dumps({"items": [pod("w-0", "LL"), pod("w-1", "Simple")]})) == want
    yaml = "kind: Pod\nmetadata:\n  name: {}\nspec:\n  containers:\n  - env:\n    - name: NCCL_PROTO\n      value: {}\n"
    assert envs(yaml.format("w-0", "LL") + "---\n" + yaml.format("w-1", '"Simple"')) == want
    words = "Name:         {}\nNamespace:    x\n    Environment:\n      NCCL_PROTO:  {}\n"
    assert envs(words.format("w-0", "LL") + "\n" + words.format("w-1", "Simple")) == want


def test_environments_of_ranks_are_read_from_prefixes_and_differences() -> None:
    srun = "0: NCCL_ALGO=Ring\n1: NCCL_ALGO=Ring\n2: NCCL_ALGO=Tree\n"
    assert envs(srun)["rank 2"] == {"NCCL_ALGO": "Tree"}
    mpi = "".join(f"[1,{n}]<stdout>:FI_PROVIDER={v}\n" for n, v in ((0, "efa"), (9, "tcp")))
    assert envs(mpi) == {"rank 0": {"FI_PROVIDER": "efa"}, "rank 9": {"FI_PROVIDER": "tcp"}}
    unified = "--- /tmp/gpu-1.env\n+++ /tmp/gpu-2.env\n@@ -3 +3 @@\n-NCCL_ALGO=Ring\n+NCCL_ALGO=Tree\n"
    assert envs(unified) == {"gpu-1": {"NCCL_ALGO": "Ring"}, "gpu-2": {"NCCL_ALGO": "Tree"}}
    assert envs("2c2\n< NCCL_NET=IB\n---\n> NCCL_NET=Socket\n")["the second"] == {"NCCL_NET": "Socket"}


def test_the_log_of_a_job_is_no_environment() -> None:
    assert not environment.fits("NCCL_DEBUG=INFO\nn1:1:1 [0] NCCL INFO Bootstrap : Using eth0\n", "job.log")
    assert not environment.fits("step 1\nstep 2\nstep 3\nNCCL_DEBUG=INFO\n", "job.log")


def test_the_rank_whose_environment_is_unlike_the_others_is_named(tmp_path: Path) -> None:
    files = {f"rank{n}.env": f"RANK={n}\nWORLD_SIZE=4\nNCCL_PROTO={'LL' if n == 2 else 'Simple'}\n" for n in range(4)}
    cause, subject = named(first(tmp_path, files))
    assert (cause, subject["rank"]) == ("nccl.env_mismatch", 2)


def test_a_library_path_that_hides_the_plugin_explains_the_slower_network(tmp_path: Path) -> None:
    shell = '$ for h in gpu-1 gpu-2; do echo "== $h"; ssh $h cat /tmp/env.$h; done\n== gpu-1\n{}\n== gpu-2\n{}\n'
    paths = [f"LD_LIBRARY_PATH={extra}/usr/local/cuda/lib64\nNCCL_DEBUG=INFO" for extra in ("/opt/nccl-ofi/lib:", "")]
    logs = nccl("gpu-1", 0, "Using network AWS Libfabric") + nccl("gpu-2", 1, "Using network Socket")
    found = first(tmp_path, {"paste.txt": shell.format(*paths), "job.log": logs})
    assert found.hypothesis.cause == "nccl.env_mismatch"
    assert [one.cause for one in found.consequences] == ["nccl.topology_degraded"]


def test_a_library_path_that_differs_elsewhere_says_nothing(tmp_path: Path) -> None:
    files = {f"gpu-00{n}/env.txt": f"LD_LIBRARY_PATH=/home/u{n}/lib\nNCCL_DEBUG=INFO\n" for n in (1, 2, 3)}
    assert first(tmp_path, files).hypothesis.cause in NOTHING


def test_a_library_path_that_differs_where_the_network_does_not_stays_below_unknown(tmp_path: Path) -> None:
    files = {f"gpu-00{n}/env.txt": f"LD_LIBRARY_PATH=/opt/cuda{n // 3}/lib\nNCCL_DEBUG=INFO\n" for n in (1, 2, 3)}
    assert first(tmp_path, files).hypothesis.cause in NOTHING


def test_an_environment_that_was_copied_as_it_is_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "brought"
    for n, value in ((1, "Ring"), (2, "Ring"), (3, "Tree")):
        (folder / f"gpu-00{n}").mkdir(parents=True)
        (folder / f"gpu-00{n}" / "environ").write_bytes(f"PATH=/bin\0NCCL_ALGO={value}\0HOME=/root\0".encode())
    assert named(first(tmp_path, {})) == ("nccl.env_mismatch", {"node": "gpu-003"})


def test_what_a_pod_does_not_say_may_be_in_its_image(tmp_path: Path) -> None:
    debug, algo = {"name": "NCCL_DEBUG", "value": "INFO"}, {"name": "NCCL_ALGO", "value": "Ring"}
    env = {"launcher": [debug], "w-0": [debug, algo], "w-1": [debug, algo]}
    pods = [{"metadata": {"name": n}, "spec": {"containers": [{"name": "t", "env": e}]}} for n, e in env.items()]
    assert first(tmp_path, {"pods.json": json.dumps({"items": pods})}).hypothesis.cause in NOTHING


def test_turns_of_a_loop_are_parts_of_its_nodes() -> None:
    text = '$ for n in cn{07..08} 10.0.0.9; do echo "[$n]"; ssh $n id; done\n'
    text += "[cn07]\na\n[cn08]\nb\n10.0.0.9:\nc\n$ uptime\nd\n"
    assert [(part.nodes, part.text.strip()) for part in parts_of(text)] == [
        (("cn07",), "a"), (("cn08",), "b"), (("10.0.0.9",), "c"), ((), "d"),
    ]  # fmt: skip


# Checkpoints --------------------------------------------------------------------------------------------------------

GAVE_UP = (
    "[rank{0}]:[E1203 04:33:04.02 ProcessGroupNCCL.cpp:688] [Rank {0}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=48, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600092 milliseconds "
    "before timing out.\n"
)


@pytest.mark.parametrize(
    "wrote",
    [
        "uploading shard_00.distcp to s3: 41 of 300 GiB",
        "writing model.safetensors 12% ",
        "flushed optim_states/00.pt 3/64",
    ],
)
def test_the_rank_that_says_how_much_of_its_file_is_written_is_named(tmp_path: Path, wrote: str) -> None:
    text = "saving checkpoint at iteration 90\n" + "".join(f"[rank3] {wrote}\n" for _ in range(3))
    found = first(tmp_path, {"out.log": text + "".join(GAVE_UP.format(n) for n in (0, 1, 2, 4, 5))})
    assert (found.hypothesis.cause, found.hypothesis.subject["rank"]) == ("fw.checkpoint_stall", 3)
