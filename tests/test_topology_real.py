"""Cables pulled in a simulated fabric, seen by the real ibnetdiscover through the collector that runs on nodes.

Expected is what was learned before; truth is which cable was pulled.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from probes import catalog
from probes.catalog.ib_fabric import Fabric as Swept
from probes.core import Capture
from probes.topology import Answer, Topology, View, compare, learn, pattern_of
from probes.topology.sources import is_up
from tests.support.collectors import capture_here
from tests.support.ibsim import Fabric, net
from tests.support.wait import until

LEAVES, NODES = 2, 4
NAMES = [f"gpu-{n:03d}" for n in range(1, NODES + 1)]


@pytest.fixture
def fabric(tmp_path: Path) -> Iterator[Fabric]:
    with Fabric(tmp_path, net(LEAVES, NODES), "gpu-001 mlx5_0") as running:
        yield running


def sweep(fabric: Fabric) -> Swept:
    probe = catalog.load()["ib.fabric"]
    reading = catalog.read(capture_here(probe, path=str(fabric.tool_path("gpu-001 mlx5_0"))))
    assert reading.outcome == "ok", reading.capture.why or reading.parse_error
    return reading.facts  # type: ignore[no-any-return]


def answers(fabric: Fabric) -> dict[str, Answer]:
    found = {}
    for node in NAMES:
        text = fabric.ports_text({f"mlx5_{rail}": f"{node} mlx5_{rail}" for rail in range(LEAVES)})
        reading = catalog.read(Capture(node, "ib.ports", "ok", text.encode()))
        assert reading.parse_error == ""
        found[node] = Answer("ok", reading.facts)
    return found


def all_up(fabric: Fabric) -> bool:
    return all(is_up(port) for answer in answers(fabric).values() if answer.facts for port in answer.facts.ports)


def states(view: View, *wanted: str) -> set[str]:
    return {f"{port.port.node} {port.port.hca}" for port in view.ports if port.state in wanted}


def expected_of(fabric: Fabric) -> Topology:
    said = {node: answer.facts for node, answer in answers(fabric).items() if answer.facts}
    learned = learn(said, sweep(fabric))
    assert (learned.not_up, learned.unseen) == ((), ())
    return learned.topology(False)


def test_a_pulled_cable_is_named_with_both_ends_and_a_dead_leaf_as_a_leaf(fabric: Fabric) -> None:
    expected = expected_of(fabric)
    cables = {(port.node, port.hca): port.other_end for port in expected.ports}
    assert cables == {(node, f"mlx5_{r}"): f"leaf-0{r} port {n}" for n, node in enumerate(NAMES, 1) for r in (0, 1)}
    whole = compare(NAMES, expected, answers(fabric), sweep(fabric))
    assert pattern_of(whole).says == "All 8 ports are as expected."

    fabric.say('Unlink "gpu-003 mlx5_1"[1]')
    swept, said = sweep(fabric), answers(fabric)
    view = compare(NAMES, expected, said, swept)
    assert states(view, "down") == {"gpu-003 mlx5_1"}
    assert states(view, "as expected") == {f"{node} mlx5_{r}" for node in NAMES for r in (0, 1)} - {"gpu-003 mlx5_1"}
    pattern = pattern_of(view)
    assert pattern.subject == {"node": "gpu-003", "hca": "mlx5_1", "port": 1, "switch": "leaf-01"}
    assert pattern.says == "One port, both neighbours fine: gpu-003 mlx5_1 → leaf-01 port 3 is the cable or its ends."

    # The same when its node does not answer: no row of the sweep tells of it, only that it was expected does.
    silent = compare(NAMES, expected, {**said, "gpu-003": Answer("timeout")}, swept)
    assert states(silent, "missing") == {"gpu-003 mlx5_1"}
    assert states(silent, "not known") == {"gpu-003 mlx5_0"}

    fabric.say('Relink "gpu-003 mlx5_1"[1]')
    fabric.say('Unlink "leaf-01"')
    view = compare(NAMES, expected, answers(fabric), sweep(fabric))
    assert states(view, "down", "missing") == {f"{node} mlx5_1" for node in NAMES}
    pattern = pattern_of(view)
    assert (pattern.kind, pattern.subject) == ("leaf", {"switch": "leaf-01"})
    assert pattern.says == "All 4 known ports of leaf-01 are down, and no other leaf's: the leaf switch."


def test_a_cable_in_another_port_of_a_leaf_is_told(fabric: Fabric) -> None:
    expected = expected_of(fabric)
    for port in (2, 3):
        fabric.say(f'Unlink "leaf-00"[{port}]')
    fabric.say('Link "leaf-00"[3] "gpu-002 mlx5_0"[1]')
    fabric.say('Link "leaf-00"[2] "gpu-003 mlx5_0"[1]')
    until(lambda: all_up(fabric), 20, "the subnet manager to bring the new links up")
    view = compare(NAMES, expected, answers(fabric), sweep(fabric))
    told = {port.port.node: port.says for port in view.ports if port.state == "differs"}
    assert told == {
        "gpu-002": "is cabled to leaf-00 port 3 instead of leaf-00 port 2",
        "gpu-003": "is cabled to leaf-00 port 2 instead of leaf-00 port 3",
    }


def test_a_node_without_the_right_or_the_adapter_says_what_to_do(fabric: Fabric) -> None:
    """The real tool without the simulator: this machine has no adapter."""
    capture = capture_here(catalog.load()["ib.fabric"])
    assert capture.outcome == "absent"
    assert "adapter" in capture.why or "umad" in capture.why
