"""The suite `triage` on sick nodes, over real sshds: what hangs there costs its own answer and no other's.

At the limits of a control group also the suite `capture`, which starts more processes than any other.
"""

from __future__ import annotations

import time

import pytest

from probes import catalog, suites
from tests.support.asking import ask, nothing_left
from tests.support.control_groups import MakeGroup
from tests.support.sshd_nodes import Lab

pytestmark = pytest.mark.needs_root
TRIAGE = suites.SUITES["triage"]
BOTH = pytest.mark.parametrize("suite", [TRIAGE, suites.SUITES["capture"]], ids=lambda suite: suite.name)
HANGS = "#!/bin/sh\nexec sleep 600\n"
# Programs that probes of this suite may start.
TOOLS = ("nvidia-smi", "systemctl", "dcb", "mlnx_qos", "ldconfig", "modinfo", "ethtool", "lspci", "dmidecode", "last")


def test_tools_that_never_end_cost_only_their_own_answers(lab: Lab) -> None:
    lab.start("slow", tools=dict.fromkeys(TOOLS, HANGS))
    began = time.monotonic()
    captures, ends = ask(lab, ["slow"], TRIAGE.plan(), node_s=25, run_s=40)
    assert time.monotonic() - began < 30, "the run ends within its deadline"
    assert ends["slow"].reason == ""
    outcomes = {name: captures["slow", name].outcome for name in TRIAGE.probes}
    assert {name for name, outcome in outcomes.items() if outcome == "timeout"} <= {"gpu.topo", "gpu.nvlink"}
    for name in ("host.pci", "host.versions", "host.settings", "host.boots", "host.hardware_log", "net.links"):
        reading = catalog.read(captures["slow", name])
        assert reading.outcome in ("ok", "absent"), (name, reading.capture.why, reading.parse_error)
    nothing_left(lab)


def test_full_disks_cost_nothing(lab: Lab) -> None:
    fill = "mount -t tmpfs -o size=4k tmpfs {0}; mkdir -p /run/sshd; head -c 4096 /dev/zero >{0}/full"
    lab.start("full", mounts="\n".join(fill.format(place) for place in ("/dev/shm", "/var/tmp", "/run")))
    captures, ends = ask(lab, ["full"], TRIAGE.plan(), node_s=25, run_s=40)
    assert ends["full"].reason == ""
    assert {captures["full", name].outcome for name in TRIAGE.probes} <= {"ok", "absent"}


def refused(lab: Lab, node: str, suite: suites.Suite) -> list[str]:
    """Why probes did not answer for want of room for a process; all others must answer."""
    captures, ends = ask(lab, [node], suite.plan(), node_s=25, run_s=40)
    answers = [captures[node, name] for name in suite.probes]
    assert ends[node].reason == ""
    assert {one.outcome for one in answers} <= {"ok", "absent", "denied", "failed", "skipped"}  # its time was up
    assert any(one.outcome in ("ok", "absent") for one in answers)
    whys = [one.why for one in answers if one.outcome == "failed"]
    assert all("no process could be started" in why or "unavailable" in why for why in whys), whys
    return whys


@BOTH
@pytest.mark.parametrize("more", [1, 2])
def test_a_login_at_its_limit_of_processes_still_tells_what_there_is_room_for(
    lab: Lab, more: int, suite: suites.Suite
) -> None:
    """Each probe has a process of its own, and what may hang within it another: with room for two, one by one, all is
    told; with room for one, those that need the other say so."""
    limit = 2 + more  # sshd's process and the runner are two; root's processes are not limited
    lab.start("crowded", account="watcher", mounts=f"ulimit -p {limit} 2>/dev/null || ulimit -u {limit}")
    assert bool(refused(lab, "crowded", suite)) == (more == 1)


@BOTH
def test_a_node_whose_control_group_is_full_of_processes_still_answers(
    lab: Lab, group: MakeGroup, suite: suites.Suite
) -> None:
    """pids.max counts all processes of the group, root's too: three besides sshd's own."""
    place = group("pids", {"pids.max": "6"})
    lab.start("full", mounts=f"echo 0 > {place}/cgroup.procs")
    assert not refused(lab, "full", suite)
    lab.stop(lab.nodes["full"])


@BOTH
def test_a_node_at_its_limit_of_cpu_tells_all_in_time(lab: Lab, group: MakeGroup, suite: suites.Suite) -> None:
    """A quarter of a CPU for the whole node."""
    place = group("cpu", {"cpu.max": "25000 100000", "cpu.cfs_quota_us": "25000"})
    lab.start("slow", mounts=f"echo 0 > {place}/cgroup.procs")
    began = time.monotonic()
    captures, ends = ask(lab, ["slow"], suite.plan(), node_s=25, run_s=40)
    assert time.monotonic() - began < 30, "the run ends within its deadline"
    assert ends["slow"].reason == ""
    told = [captures["slow", name] for name in suite.probes]
    assert {one.outcome for one in told} <= {"ok", "absent", "skipped", "timeout"}
    assert sum(one.outcome in ("ok", "absent") for one in told) > len(told) / 2
    lab.stop(lab.nodes["slow"])


def test_an_own_user_without_rights_is_told_what_it_may_not_see(lab: Lab) -> None:
    lab.start("plain", account="watcher")
    captures, _ = ask(lab, ["plain"], TRIAGE.plan(), node_s=25, run_s=40)
    for name in TRIAGE.probes:
        reading = catalog.read(captures["plain", name])
        assert reading.outcome in ("ok", "absent", "denied"), (name, reading.capture.why, reading.parse_error)
        assert reading.outcome != "denied" or reading.capture.why
