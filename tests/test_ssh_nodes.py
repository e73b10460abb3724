"""Real sshd nodes, one of each kind of trouble. What a tired engineer sees must be right."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from probes import catalog, suites
from probes.core import Capture
from probes.transport import NodeEnd, Plan, Target, ssh
from tests.support.asking import ask, nothing_left, occupied, probe, settings_of
from tests.support.sshd_nodes import ROOT, FrozenMount, Lab, free_port
from tests.support.wait import until

NVIDIA_SMI_FLOODS = "#!/bin/sh\nexec yes 'GPU 0: forty-two'\n"


@pytest.mark.needs_root
def test_one_run_over_a_healthy_node_and_one_of_each_trouble(lab: Lab) -> None:
    """The promise of the capture suite, on real sshds: healthy answers complete, each bad node says what is wrong,
    the run ends within its deadline, and nothing is left on any node."""
    suite = suites.SUITES["capture"]
    with FrozenMount(lab.folder) as frozen:
        lab.start("healthy")
        lab.name("down", lab.address(), free_port())
        lab.start("flooding", tools={"nvidia-smi": NVIDIA_SMI_FLOODS})
        lab.start(
            "chatty",
            sshd=f"Banner {lab.known_hosts}",
            rc="echo 'Welcome to'; printf 'the cluster @golden15 '; cat >/dev/null </dev/null\n",
        )
        lab.start("wedged", tools={"nvidia-smi": f"#!/bin/sh\necho x > {frozen.mount}/nvidia\n"})
        lab.start("busy", sshd="MaxStartups 3")
        names = ["healthy", "down", "flooding", "chatty", "wedged", "busy"]
        with occupied(lab.nodes["busy"].address, lab.nodes["busy"].port, 3, seconds=2.0):
            began = time.monotonic()
            captures, ends = ask(lab, names, suite.plan(), node_s=25, run_s=40)
            took = time.monotonic() - began

        assert took < 30, "the run ends within its deadline"
        for name in ("healthy", "chatty", "busy"):
            for probe_name in suite.probes:
                reading = catalog.read(captures[name, probe_name])
                assert reading.outcome in ("ok", "absent"), (name, probe_name, reading.capture.why, reading.parse_error)
            assert ends[name].reason == ""
        assert ends["busy"].tries > 1, "turned away at first, then let in"
        assert "Welcome to" in ends["chatty"].chatter
        assert ends["down"].reason == "refused"
        assert {captures["down", p].outcome for p in suite.probes} == {"unreachable"}
        assert (
            captures["flooding", "gpu.state"].outcome == "failed"
            or catalog.read(captures["flooding", "gpu.state"]).parse_error
        )
        assert captures["flooding", "host.load"].outcome == "ok", "one probe's flood costs the others nothing"
        wedged = captures["wedged", "gpu.state"]
        told = wedged.state == "D" or '"D"' in wedged.text or "state D" in wedged.text
        assert told, "the wedged driver call is named with its state"
        assert captures["wedged", "host.load"].outcome == "ok"
        assert captures["wedged", "host.kernel_log"].outcome == "ok"
        frozen.thaw()
        nothing_left(lab)


@pytest.mark.needs_root
def test_a_shell_that_hangs_and_a_shell_that_floods_are_told_apart(lab: Lab) -> None:
    lab.start("stale-home", rc="sleep 600\n")
    lab.start("endless", rc="yes\n")
    began = time.monotonic()
    _, ends = ask(lab, ["stale-home", "endless"], start_s=2)
    assert time.monotonic() - began < 8
    assert ends["stale-home"].reason == "shell_hung"
    assert ends["endless"].reason == "flood"
    assert len(ends["endless"].chatter) <= 300
    until(lambda: not lab.nodes["endless"].processes(), 10, "the flooding shell to end")


@pytest.mark.needs_root
def test_a_node_that_dies_in_the_middle_keeps_what_it_had_told(lab: Lab) -> None:
    node = lab.start("dying")
    plan = Plan((probe("a.first", "echo", "told"), probe("a.last", "sleep", "60", timeout_s=50)), deadline_s=60)

    async def collect() -> list[Capture | NodeEnd]:
        items = []
        async for item in ssh.ask([Target("dying")], plan, settings_of(lab, node_s=30)):
            items.append(item)
            if isinstance(item, Capture) and item.probe == "a.first":
                lab.stop(node) if ROOT else subprocess.run(["pkill", "-9", "-P", str(node.sshd_pid)])
        return items

    first, last, end = asyncio.run(collect())
    assert isinstance(first, Capture) and isinstance(last, Capture) and isinstance(end, NodeEnd)
    assert (first.outcome, first.text) == ("ok", "told\n")
    assert (last.outcome, last.reason) == ("unreachable", "lost")
    assert end.reason == "lost"


def test_a_run_ends_at_its_deadline_and_says_what_was_not_asked(lab: Lab) -> None:
    lab.start("slow")
    lab.start("waiting")
    plan = Plan((probe("a.sleep", "sleep", "60", timeout_s=50),), deadline_s=60)
    began = time.monotonic()
    captures, _ = ask(lab, ["slow", "waiting"], plan, fanout=1, run_s=2)
    assert time.monotonic() - began < 5
    assert captures["slow", "a.sleep"].outcome == "timeout"
    assert captures["waiting", "a.sleep"].outcome == "skipped"
    assert "run's time was over" in captures["waiting", "a.sleep"].why


def test_what_was_answered_before_is_not_asked_again(lab: Lab) -> None:
    """A probe that says whether it was asked: it leaves a mark on the node."""
    node = lab.start("node")
    marks = [probe(f"a.p{i}", "touch", str(node.home / f"asked-{i}")) for i in range(2)]

    async def names() -> list[str]:
        stream = ssh.ask([Target("node")], Plan(tuple(marks), deadline_s=5), settings_of(lab), {"node": {"a.p0"}})
        return [item.probe for item in [i async for i in stream] if isinstance(item, Capture)]

    assert asyncio.run(names()) == ["a.p1"]
    assert sorted(path.name for path in node.home.glob("asked-*")) == ["asked-1"]


def test_a_reader_slower_than_the_nodes_loses_nothing(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the database is slow: the node's deadline passes while its answers wait to be taken."""
    lab.start("node")
    plan = Plan(tuple(probe(f"a.p{i}", "echo", str(i)) for i in range(8)), deadline_s=5)
    monkeypatch.setattr(ssh, "WAITING", 1)

    async def slowly() -> list[Capture]:
        captures = []
        async for item in ssh.ask([Target("node")], plan, settings_of(lab, node_s=1.5)):
            if isinstance(item, Capture):
                captures.append(item)
                await asyncio.sleep(0.4)  # the slow reader itself
        return captures

    captures = asyncio.run(slowly())
    assert sorted(capture.text for capture in captures) == [f"{i}\n" for i in range(8)]
    assert {capture.outcome for capture in captures} == {"ok"}


def test_a_failure_inside_does_not_look_like_the_end(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.start("node")

    async def fails(*_: object) -> None:
        raise MemoryError("simulated")

    monkeypatch.setattr(ssh._Visit, "_account", fails)
    with pytest.raises(ExceptionGroup):
        ask(lab, ["node"])


def test_stopping_the_reader_early_leaves_nothing_behind(lab: Lab) -> None:
    lab.start("node")
    plan = Plan((probe("a.first", "echo", "x"), probe("a.last", "sleep", "600", timeout_s=500)), deadline_s=600)

    async def first_only() -> None:
        stream = ssh.ask([Target("node")], plan, settings_of(lab, node_s=600))
        async for _ in stream:
            break
        await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(first_only())
    if ROOT:
        nothing_left(lab)


@pytest.mark.needs_root
def test_nothing_is_left_on_any_node_after_the_controller_was_killed_in_the_middle(lab: Lab) -> None:
    slow = {"nvidia-smi": "#!/bin/sh\nsleep 600\n"}
    names = [f"node-{i}" for i in range(3)]
    for name in names:
        lab.start(name, tools=slow)
    command = [
        sys.executable,
        "-m",
        "probes",
        "run",
        "--nodes",
        "node-[0-2]",
        "--suite",
        "capture",
        "--json",
        "-F",
        str(lab.config),
    ]
    controller = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    for name in names:
        until(lambda name=name: any("sleep" in p for p in lab.nodes[name].processes()), 20, f"{name} to be busy")  # type: ignore[misc]
    controller.send_signal(signal.SIGKILL)
    controller.communicate()
    nothing_left(lab)


@pytest.mark.needs_root
def test_a_node_whose_disks_are_full_still_answers(lab: Lab) -> None:
    fill = "mount -t tmpfs -o size=4k tmpfs {0}; mkdir -p /run/sshd; head -c 4096 /dev/zero >{0}/full"
    lab.start("full", mounts="\n".join(fill.format(place) for place in ("/dev/shm", "/var/tmp", "/run")))
    captures, ends = ask(lab, ["full"])
    assert ends["full"].reason == ""
    assert {capture.outcome for capture in captures.values()} == {"ok"}


@pytest.mark.needs_root
def test_a_time_service_that_hangs_does_not_cost_the_measured_offset(lab: Lab) -> None:
    hangs = "#!/bin/sh\nexec sleep 60\n"
    lab.start("hangs", tools={"chronyc": hangs, "ntpq": hangs, "timedatectl": hangs})
    captures, _ = ask(lab, ["hangs"])
    told = catalog.read(captures["hangs", "host.clock"])
    assert told.outcome == "ok", told.capture.why
    assert told.facts.service == "", "nothing said it"
    assert abs(told.facts.offset_s) <= told.facts.bound_s
    nothing_left(lab)


@pytest.mark.needs_root
def test_a_clock_that_is_903_seconds_ahead_is_measured_within_its_bound(lab: Lab) -> None:
    faketime = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
    # The monotonic clock is shifted as well: told to leave it alone, libfaketime 0.9.10 makes every sleep fail.
    shim = f'#!/bin/sh\nLD_PRELOAD={faketime} FAKETIME=+903 exec /usr/bin/python3 "$@"\n'
    lab.start("ahead", tools={"python3": shim})
    lab.start("right")
    captures, _ = ask(lab, ["ahead", "right"])
    assert captures["ahead", "host.clock"].outcome == "ok", captures["ahead", "host.clock"].why
    ahead = catalog.read(captures["ahead", "host.clock"])
    assert abs(ahead.facts.offset_s - 903) <= ahead.facts.bound_s + 0.001
    assert ahead.facts.bound_s < 0.5
    assert [f.severity for f in ahead.findings if f.code == "host.clock_offset"] == ["bad"]
    right = catalog.read(captures["right", "host.clock"])
    assert abs(right.facts.offset_s) <= right.facts.bound_s
    assert not [f for f in right.findings if f.code == "host.clock_offset"]
