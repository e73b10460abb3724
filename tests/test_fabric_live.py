"""The suite `fabric` on a real sshd node that takes part in a simulated fabric: real ibnetdiscover, iblinkinfo and
ibqueryerrors, real opensm; and the rights that they need, by the real sudo."""

from __future__ import annotations

import contextlib
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from probes import catalog, suites
from probes.core import Capture, Reading
from probes.diagnosis import diagnose
from probes.diagnosis.core import Hypothesis, seen
from probes.topology import Topology, learn
from probes.transport import Plan
from tests.support.asking import ask, nothing_left
from tests.support.collectors import capture_here
from tests.support.ibsim import DISCOVERS, TOOLS, Fabric, net
from tests.support.sshd_nodes import OWN_DEV, Lab
from tests.support.wait import until

LEAVES, NODES = 2, 4
NAMES = [f"gpu-{n:03d}" for n in range(1, NODES + 1)]
ASKED = "gpu-001"
pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.skipif(shutil.which("ibsim", path=TOOLS) is None, reason="cannot run here: needs ibsim and opensm"),
]
# A /dev of the node's own, with the device of management datagrams that only root may open.
UMAD = f"{OWN_DEV}mkdir /dev/infiniband; touch /dev/infiniband/umad0; chmod 600 /dev/infiniband/umad0\n"
# What libibumad prints, and the status, where it may not open that device.
REFUSED = '[ "$(id -u)" = 0 ] || { echo "ibwarn: mad_rpc_open_port: can\'t open UMAD port ((null):0)" >&2; exit 1; }'


@pytest.fixture
def fabric(tmp_path: Path) -> Iterator[Fabric]:
    (tmp_path / "sim").mkdir()
    with Fabric(tmp_path / "sim", net(LEAVES, NODES), f"{ASKED} mlx5_0") as running:
        yield running


def hcas(node: str) -> dict[str, str]:
    return {f"mlx5_{rail}": f"{node} mlx5_{rail}" for rail in range(LEAVES)}


def own(lab: Lab, name: str) -> Path:
    """A folder that the node sees and that is none of those in which something could be left behind."""
    place = lab.folder / f"simulated-{name}"
    place.mkdir(exist_ok=True)
    return place


def start(lab: Lab, fabric: Fabric) -> None:
    """The node of the fabric that is asked: its /sys/class is what the simulator lays out for its adapters."""
    place = own(lab, ASKED)
    (place / "class/net").mkdir(parents=True)
    lab.start(
        ASKED,
        mounts=f"mount --bind {place}/class /sys/class\n",
        tools=fabric.tools(f"{ASKED} mlx5_0", place),
    )


def look(lab: Lab, fabric: Fabric) -> list[Reading]:
    """What suite `fabric` tells of that node, and what the ports of the others tell."""
    place = own(lab, ASKED) / "class/infiniband"
    shutil.rmtree(place, ignore_errors=True)
    for name, laid_out in fabric.ports_files(hcas(ASKED)).items():
        shutil.copytree(laid_out, place / name)
    captures, ends = ask(lab, [ASKED], suites.SUITES["fabric"].plan(), node_s=60, run_s=90)
    assert ends[ASKED].reason == ""
    found = [catalog.read(capture) for capture in captures.values()]
    outcomes = {one.capture.probe: (one.outcome, one.capture.why, one.parse_error) for one in found}
    assert {name for name, told in outcomes.items() if told[0] == "ok"} >= {"ib.ports", "ib.fabric", "ib.fabric_errors"}
    others = (Capture(node, "ib.ports", "ok", fabric.ports_text(hcas(node)).encode()) for node in NAMES[1:])
    return found + [catalog.read(capture) for capture in others]


@contextlib.contextmanager
def rising(fabric: Fabric, port: str) -> Iterator[None]:
    """Receive errors of that port go on rising."""
    over = threading.Event()

    def work() -> None:
        for count in range(1000, 60_000, 100):
            fabric.say(f"PerformanceSet {port} PortCounters.PortRcvErrors={count}")
            if over.wait(0.2):
                return

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def of(readings: list[Reading], probe: str) -> Any:
    return next(one for one in readings if one.capture.probe == probe and one.capture.node == ASKED).facts


def expected(fabric: Fabric) -> Topology:
    """What is learned of the whole fabric while it is sound."""
    sweep = catalog.read(capture_here(catalog.load()["ib.fabric"], path=str(fabric.tool_path(f"{ASKED} mlx5_0"))))
    texts = {node: fabric.ports_text(hcas(node)).encode() for node in NAMES}
    ports = {node: catalog.read(Capture(node, "ib.ports", "ok", text)).facts for node, text in texts.items()}
    found = learn(ports, sweep.facts).topology(False)
    assert len(found.ports) == LEAVES * NODES
    return found


def verdict(readings: list[Reading], expected: Topology) -> Hypothesis:
    return diagnose([seen(one) for one in readings], NAMES, expected).verdict.hypothesis


def test_a_healthy_fabric_with_counts_of_old_is_quiet(lab: Lab, fabric: Fabric) -> None:
    start(lab, fabric)
    fabric.say('PerformanceSet "leaf-00"[2] PortCounters.PortRcvErrors=41000')
    fabric.say('PerformanceSet "leaf-01"[5] PortCounters.SymbolErrorCounter=65535')
    healthy = look(lab, fabric)
    assert [finding.code for one in healthy for finding in one.findings if finding.severity != "info"] == []
    assert of(healthy, "ib.fabric").down == ()
    counted = [one.counters for one in of(healthy, "ib.fabric_errors").sets if one.label == "leaf-00"]
    assert counted == [{"port_rcv_errors": 41_000}] * 2
    assert verdict(healthy, expected(fabric)).cause == "unknown"
    nothing_left(lab)


def test_errors_that_rise_are_found_through_one_node(lab: Lab, fabric: Fabric) -> None:
    start(lab, fabric)
    fabric.say('PerformanceSet "leaf-00"[2] PortCounters.PortRcvErrors=41000')  # of old
    with rising(fabric, '"leaf-01"[3]'):
        found = verdict(look(lab, fabric), expected(fabric))
    assert (found.cause, found.subject) == ("ib.link_degraded", {"node": "gpu-003", "hca": "mlx5_1", "port": 1})
    assert "leaf-01" in found.says


def test_a_lost_leaf_is_found_through_one_node(lab: Lab, fabric: Fabric) -> None:
    start(lab, fabric)
    before = expected(fabric)
    fabric.say('Unlink "leaf-01"')
    lost = look(lab, fabric)
    assert "leaf-01" not in {device.name for device in of(lost, "ib.fabric").devices}
    found = verdict(lost, before)
    assert (found.cause, found.subject) == ("ib.switch_down", {"switch": "leaf-01"})


def test_a_port_that_no_subnet_manager_makes_active_is_told(fabric: Fabric) -> None:
    fabric._started[1].kill()  # opensm
    fabric.say('Unlink "gpu-002 mlx5_1"[1]')
    fabric.say('Unlink "gpu-004 mlx5_0"[1]')
    fabric.say('ReLink "gpu-002 mlx5_1"[1]')
    path = str(fabric.tool_path(f"{ASKED} mlx5_0"))
    read = catalog.read(capture_here(catalog.load()["ib.fabric"], path=path))
    assert [finding.code for finding in read.findings] == ["ib.fabric_not_active"]
    names = {device.guid: device.name for device in read.facts.devices}
    down = {(names[one.guid], one.port, one.state, one.phys) for one in read.facts.down}
    assert down >= {("gpu-002 mlx5_1", 1, "Initialize", "LinkUp"), ("leaf-00", 4, "Down", "Polling")}
    assert "gpu-002 mlx5_1 port 1" in read.findings[0].says and "leaf-00 port 4" not in read.findings[0].says


def test_without_iblinkinfo_the_sweep_still_tells_the_cables(fabric: Fabric) -> None:
    path = fabric.tool_path(f"{ASKED} mlx5_0")
    (path / "iblinkinfo").write_text("#!/bin/sh\necho 'ibwarn: [9] no answer' >&2\nexit 255\n")
    capture = capture_here(catalog.load()["ib.fabric"], path=str(path))
    assert "==> golden15/without iblinkinfo <==\n" in capture.text
    read = catalog.read(capture)
    assert (read.outcome, len(read.facts.links), read.facts.down) == ("ok", LEAVES * NODES + LEAVES, ())


def restricted(lab: Lab, fabric: Fabric, name: str, sudoers: str) -> None:
    """A node on which the tools refuse all but root, as where /dev/infiniband/umad0 is root's."""
    place = own(lab, name)
    place.chmod(0o777)
    lines = [UMAD, f"mkdir -p {place}/class/infiniband/mlx5_0", f"mount --bind {place}/class /sys/class"]
    for tool, script in fabric.tools(f"{ASKED} mlx5_0", place).items():
        shutil.copy(f"/usr/sbin/{tool}", place / f"real-{tool}")
        head, _, rest = script.replace(f"/usr/sbin/{tool}", f"{place}/real-{tool}").partition("\n")
        (place / tool).write_text(f"{head}\n{REFUSED}\n{rest}")
        (place / tool).chmod(0o755)
        lines.append(f"mount --bind {place}/{tool} /usr/sbin/{tool}")
    lab.start(name, account="ops", sudoers=sudoers, mounts="\n".join(lines))


def test_refused_datagrams_name_the_line_that_would_allow_them_and_that_line_is_enough(
    lab: Lab, fabric: Fabric
) -> None:
    known = catalog.load()
    plan = Plan((known["ib.fabric"], known["ib.fabric_errors"]), deadline_s=45)
    restricted(lab, fabric, "refused", "")
    captures, _ = ask(lab, ["refused"], plan, node_s=60, run_s=90)
    assert {one.outcome for one in captures.values()} == {"denied"}
    (line,) = {match[0] for one in captures.values() if (match := re.search(r"ops ALL=.*", one.why))}
    assert line == "ops ALL=(root) NOPASSWD: " + ", ".join(f"/usr/sbin/{tool}" for tool in DISCOVERS)

    restricted(lab, fabric, "allowed", line)
    restricted(lab, fabric, "partly", "ops ALL=(root) NOPASSWD: /usr/sbin/ibnetdiscover")
    captures = {}
    for name in ("allowed", "partly"):  # one by one: the simulator tells its clients apart by their process ids
        captures |= ask(lab, [name], plan, node_s=60, run_s=90)[0]
    outcomes = {key: one.outcome for key, one in captures.items()}
    assert outcomes == {
        ("allowed", "ib.fabric"): "ok", ("allowed", "ib.fabric_errors"): "ok",
        ("partly", "ib.fabric"): "ok", ("partly", "ib.fabric_errors"): "denied",
    }  # fmt: skip
    assert catalog.read(captures["allowed", "ib.fabric"]).facts.lids
    partly = catalog.read(captures["partly", "ib.fabric"]).facts
    assert (len(partly.links), partly.lids) == (LEAVES * NODES + LEAVES, {})
    until(lambda: not lab.nodes["allowed"].processes(), 10, "the node to be rid of its processes")
