"""host.settings: what the collector reads of ranks and machine, and what a low limit or a slow clock leads to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from probes.catalog.host_settings import PROBE, Settings, findings, parse
from probes.core import Capture, ParseError, interpret
from probes.diagnosis import diagnose
from probes.diagnosis.core import seen
from tests.support.collectors import capture_here, old_and_new_pythons

MACHINE: dict[str, Any] = {
    "modules": ["nvidia", "ib_uverbs", "mlx5_ib"], "online": "0-127", "cores": 64, "numa_nodes": 2,
    "clocksource": "tsc", "governors": ["performance"], "numa_balancing": "0",
}  # fmt: skip


def settings(*ranks: dict[str, Any], **odd: Any) -> str:
    return f"==> settings <==\n{json.dumps({**MACHINE, **odd, 'ranks': list(ranks)})}\n"


@pytest.fixture
def rank() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is a rank by its environment, with 64 KiB of locked memory and one CPU."""
    env = {**os.environ, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "x", "MASTER_PORT": "1"}
    code = (
        "import os, resource, sys; resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536)); "
        "os.sched_setaffinity(0, {0}); print('set', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as one:
        assert one.stdout is not None and one.stdin is not None
        assert one.stdout.readline() == b"set\n"
        yield one
        one.stdin.close()


@pytest.mark.parametrize("python", old_and_new_pythons())
def test_the_limit_and_the_mask_of_a_rank_are_read_from_its_own_files(
    rank: subprocess.Popen[bytes], python: str
) -> None:
    told: Settings = parse(capture_here(PROBE, python).text)
    assert [(one.memlock) for one in told.limits if one.pid == rank.pid] == [65536]
    assert [one.cpus for one in told.masks if one.pid == rank.pid] == ["0"]
    assert told.cpus == os.cpu_count()


@pytest.mark.needs_root
@pytest.mark.parametrize(("most", "near"), [(20, 1), (60, 0)])
def test_a_user_who_can_hardly_start_another_thread_is_told(most: int, near: int) -> None:
    """RLIMIT_NPROC counts the threads of all processes of a user, getrlimit(2): here one process with 19."""
    code = (
        "import sys, threading, time; [threading.Thread(target=time.sleep, args=(60,), daemon=True).start() "
        "for _ in range(18)]; print('set', flush=True); sys.stdin.read()"
    )
    env = {**os.environ, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "x", "MASTER_PORT": "1"}
    start = f'ulimit -u {most}; exec setpriv --reuid 64998 --clear-groups /usr/bin/python3 -c "{code}"'
    with subprocess.Popen(["bash", "-c", start], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as one:
        assert one.stdout is not None and one.stdin is not None
        assert one.stdout.readline() == b"set\n"
        told = parse(capture_here(PROBE).text)
        one.stdin.close()
    (room,) = [room for room in told.rooms if room.pid == one.pid]
    assert (room.user_tasks, room.processes) == (19, most)
    found = [finding for finding in findings(told) if finding.subject == {"pid": one.pid}]
    assert [finding.code for finding in found] == ["host.limit_near"] * near
    assert all("19 of 20 tasks" in finding.says for finding in found)


def test_machine_values_come_from_the_kernels_files(tmp_path: Path) -> None:
    cpu = tmp_path / "cpu"
    for number in range(4):
        topology = cpu / f"cpu{number}/topology"
        topology.mkdir(parents=True)
        (topology / "core_id").write_text(f"{number // 2}\n")  # two threads a core
        (topology / "physical_package_id").write_text("0\n")
        (cpu / f"cpu{number}/cpufreq").mkdir()
        (cpu / f"cpu{number}/cpufreq/scaling_governor").write_text("powersave\n")
    (cpu / "online").write_text("0-3\n")
    (tmp_path / "modules").write_text("nvidia_peermem 16384 0 - Live 0x0\nnvidia 9 1 nvidia_peermem, Live 0x0\n")
    (tmp_path / "clock").write_text("hpet\n")
    places = {
        "/sys/devices/system/cpu": str(cpu), "/proc/modules": str(tmp_path / "modules"),
        "/sys/devices/system/clocksource/clocksource0/current_clocksource": str(tmp_path / "clock"),
    }  # fmt: skip
    told = parse(capture_here(PROBE, instead=places).text)
    assert (told.cpus, told.cores, told.governors, told.modules) == (4, 2, ("powersave",), ("nvidia_peermem", "nvidia"))
    assert [finding.code for finding in findings(told)][:2] == ["host.slow_clocksource", "host.governor"]


def test_a_machine_that_is_set_up_for_training_says_nothing() -> None:
    assert list(findings(parse(settings()))) == []


def test_a_rank_that_may_lock_less_memory_than_those_of_other_nodes_is_told() -> None:
    low = settings({"pid": 7, "comm": "python", "memlock": "65536", "cpus": "0-127", "preempted": 3})
    free = settings({"pid": 7, "comm": "python", "memlock": "unlimited", "cpus": "0-127", "preempted": 3})
    texts = {"gpu-1": low, "gpu-2": free, "gpu-3": free}
    readings = [
        seen(interpret(PROBE, Capture(node, "host.settings", "ok", text.encode())), f"{node}: host.settings")
        for node, text in texts.items()
    ]
    named = [ranked.hypothesis for ranked in diagnose(readings, list(texts)).ranked]
    assert [(one.cause, one.subject.get("node")) for one in named if one.cause == "ib.memlock_limit"] == [
        ("ib.memlock_limit", "gpu-1")
    ]


@pytest.mark.parametrize(
    "odd",
    [{"online": "0-x"}, {"modules": "nvidia"}, {"ranks": [3]}, {"cores": "many"}],
    ids=lambda odd: next(iter(odd)),
)
def test_what_the_collector_does_not_write_is_refused(odd: dict[str, Any]) -> None:
    with pytest.raises(ParseError):
        parse(f"==> settings <==\n{json.dumps({**MACHINE, 'ranks': [], **odd})}\n")


def test_modules_that_a_container_may_not_see_are_not_known_rather_than_absent() -> None:
    assert parse(settings(modules=[])).modules is None
