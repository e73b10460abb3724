"""Two runs that differ in one setting, as somebody tried them: what the worse of them suffers from."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.explain import explain
from probes.intake.tools.training import trials

HANGS = None


@pytest.mark.parametrize(("text", "lever"), [
    ("OMP_NUM_THREADS=64: 31 it/s\nOMP_NUM_THREADS=8: 200 it/s\n", "threads"),
    ("default: 31 it/s\nOMP_NUM_THREADS=8: 200 it/s\n", "threads"),
    ("num_workers=2 1.9 s/step\nsynthetic data 0.4 s/step\n", "loader"),
    ("cpu limit 4: 0.1 it/s, no limit: 0.9\n", "quota"),
    ("with taskset -c 0-3: 9.1 s/step, without: 1.2\n", "binding"),
    ("srun --cpu-bind=none : 1.1 s/it\nsrun --cpu-bind=cores (site default): 7.4 s/it\n", "binding"),
    ("limits.cpu: 8 -> 0.4 it/s\nno cpu limit -> 3.1 it/s\n", "quota"),
    ("as is, 41 samples/s\nwithout taskset, 0.3k samples/s\n", "binding"),
    ("loss.item() every step: 410 ms/step; no .item(): 190 ms/step\n", "synchronising"),
    ("pin_memory=True 0.9 s/step vs pin_memory=False 0.3 s/step\n", "lock"),
    ("step time 3.2 s\nstep time 0.8 s after kill of clamscan\n", "other program"),
    ("NCCL_P2P_DISABLE=1 13 GB/s vs NCCL_P2P_DISABLE=0 151 GB/s\n", "peer access off"),
])  # fmt: skip
def test_two_runs_that_differ_in_a_setting_tell_which_of_it_is_slow(text: str, lever: str) -> None:
    assert trials.TOOL.fits(text, "ab.txt")
    assert [one.lever for one in trials.read(text).trials] == [lever]


@pytest.mark.parametrize(("text", "lever", "times"), [
    ("with NCCL_TOPO_FILE=/etc/x.xml: busbw 60 GB/s; without: 360 GB/s\n", "topology", 6.0),
    ("as is: 20 GB/s\nafter modprobe nvidia_peermem: 180 GB/s\n", "peermem", 9.0),
    ("mtu 1500: 40 Gb/s\nmtu 9000: 92 Gb/s\n", "mtu", 2.3),
    ("NCCL 2.19.3: hangs after 400 steps\nNCCL 2.21.5: runs\n", "library", HANGS),
    ("NCCL_SOCKET_IFNAME unset: init hangs / =eth0: init in 4 s\n", "interface", HANGS),
    ("with NCCL_P2P_DISABLE=1 it trains, without it hangs at step 0\n", "peer access", HANGS),
])  # fmt: skip
def test_two_runs_that_differ_in_one_setting_are_compared(text: str, lever: str, times: float | None) -> None:
    (one,) = trials.read(text).trials
    assert (one.lever, one.times) == (lever, times)


@pytest.mark.parametrize("text", [
    "OMP_NUM_THREADS=64: 200 it/s\nOMP_NUM_THREADS=8: 31 it/s\n",  # fewer are slower
    "num_workers=2 1.9 s/step\nnum_workers=8 1.8 s/step\n",  # the same
    "num_workers=2 1.9 s/step\n",
    "step 1 3.2 s/step\nstep 2 0.4 s/step\n",
    "with NCCL_TOPO_FILE: 362 GB/s; without: 364 GB/s\n",
    "NCCL 2.21.5 runs on all nodes\njob hangs at step 400\n",
    "hz1: 20 GB/s\nhz2: 180 GB/s\n",
    "hz1 with peermem: 20 GB/s\nhz2 with peermem: 180 GB/s\n",  # two nodes with the same setting
    "mtu 9000: 40 Gb/s\nmtu 9000: 92 Gb/s\n",
    "num_workers=8: hangs\nnum_workers=2: runs\n",  # that it hangs tells nothing of how fast data come
    "OMP_NUM_THREADS=64: 31 it/s\nOMP_NUM_THREADS=8: 200 samples/s\n",  # other units
])  # fmt: skip
def test_runs_that_are_alike_or_differ_in_nothing_that_counts_tell_nothing(text: str) -> None:
    assert trials.trials(text) == []
    assert not trials.fits(text, "ab.txt")


def test_what_was_tried_is_never_sure_by_itself(tmp_path: Path) -> None:
    for text in (
        "num_workers=0: 41 samples/s\nnum_workers=8: 300 samples/s\n",
        "with .item(): 41 it/s\nno .item(): 300 it/s\n",
    ):
        (tmp_path / "ab.txt").write_text(text)
        first = explain([tmp_path]).diagnosis.verdict
        assert first.hypothesis.cause.startswith("cpu.")
        assert first.probability < 0.8


def test_a_run_that_ends_well_only_without_peer_access_tells_that_it_is_blocked(tmp_path: Path) -> None:
    tried = "kd07, 8x L40S\nNCCL_P2P_DISABLE=1: all_reduce 13.2 GB/s, ok\nNCCL_P2P_DISABLE=0: hangs at once\n"
    (tmp_path / "tried.txt").write_text(tried)
    verdict = explain([tmp_path]).diagnosis.verdict
    assert (verdict.hypothesis.cause, verdict.hypothesis.subject) == ("gpu.p2p_blocked", {"node": "kd07"})
    (tmp_path / "tried.txt").write_text(tried.replace("hangs at once", "12.9 GB/s, ok too"))
    assert explain([tmp_path]).diagnosis.verdict.hypothesis.cause in ("none", "unknown")
