"""The fabric as it should be against the fabric as it was seen: states, the sentence, the layout.

Readings are of a recorded node (tests/support/fabric.py); what is wrong with them is put in by each test, and so the
right answers come from there.
"""

from __future__ import annotations

import dataclasses
import json

import pytest

from probes import catalog
from probes.catalog import ib_ports
from probes.catalog.ib_fabric import guid_of
from probes.catalog.network.ib_fabric_facts import Fabric
from probes.catalog.network.ib_facts import Silent
from probes.diagnosis import Seen, diagnose
from probes.topology import Answer, FormError, Pattern, PortState, Topology, View, compare, learn, pattern_of, rails_of
from probes.topology.expected import switch_name
from probes.topology.layout import blocks_of
from probes.topology.sources import fabric_of, ports_of
from probes.topology.states import STATES
from tests.support import fabric as made
from tests.support.fabric import DOWN, HCAS, SLOW, Changes

COUNT = 16
NODES = [made.name(n) for n in range(1, COUNT + 1)]
OFF = {"ports/1/state": "1: DOWN", "ports/1/phys_state": "3: Disabled"}


def facts(n: int, changes: Changes | None = None, gone: tuple[str, ...] = ()) -> Answer:
    return Answer("ok", made.ports(n, changes, gone).facts)


WELL = {made.name(n): facts(n) for n in range(1, COUNT + 1)}
SWEEP = made.sweep(1, range(1, COUNT + 1)).facts


def learned(swept: bool = True) -> Topology:
    said = {node: answer.facts for node, answer in WELL.items() if answer.facts}
    return learn(said, SWEEP if swept else None).topology(False)


EXPECTED, RAILS_ONLY = learned(), learned(swept=False)


def view(changed: dict[int, Answer] | None = None, expected: Topology | None = EXPECTED, swept: object = SWEEP) -> View:
    answers = {**WELL, **{made.name(n): answer for n, answer in (changed or {}).items()}}
    return compare(NODES, expected, answers, swept)  # type: ignore[arg-type]


def port(found: View, n: int, rail: int) -> PortState:
    return next(one for one in found.ports if (one.port.node, one.port.rail) == (made.name(n), rail))


def odd(found: View) -> dict[str, str]:
    return {one.port.name: one.state for one in found.ports if one.state != "as expected"}


# What is learned -----------------------------------------------------------------------------------------------


def test_rails_are_the_adapters_of_one_kind_in_their_order_and_the_bond_is_none() -> None:
    rails = rails_of(made.ports(7).facts)
    assert [(rail, one.hca) for rail, one in rails] == list(enumerate(HCAS))


def test_cables_are_joined_by_guid_whatever_the_fabric_calls_the_adapters() -> None:
    text = made.sweep_text(range(1, COUNT + 1)).replace(
        '"gpu-005 mlx5_5"', '"MT4129 ConnectX7   Mellanox Technologies"'
    )
    swept = made.read_text("gpu-001", "ib.fabric", text).facts
    found = learn({"gpu-005": made.ports(5).facts}, swept).topology(False)
    assert [one.other_end for one in found.ports] == [f"leaf-{rail:02d} port 5" for rail in range(8)]
    assert found.ports[3].guid == f"{made.guid(5, 3):016x}"


def test_two_adapters_cabled_to_each_other_each_end_in_the_other() -> None:
    ids = {0x100000: made.guid(1, 0), 0x100002: made.guid(2, 0)}
    text = (made.BASE / "tests/fixtures/ib.fabric/back_to_back.out").read_text()
    for old, new in ids.items():
        text = text.replace(f"{old:016x}", f"{new:016x}")
    swept = made.read_text("gpu-001", "ib.fabric", text).facts
    said = {made.name(n): made.ports(n, gone=HCAS[1:]).facts for n in (1, 2)}
    found = learn(said, swept).topology(False)
    assert [one.other_end for one in found.ports] == ["gpu-002 mlx5_0 port 1", "gpu-001 mlx5_0 port 1"]


def test_what_is_stored_comes_back_and_another_form_is_refused() -> None:
    body = json.loads(json.dumps(EXPECTED.body()))
    assert body["form"] == 1
    assert Topology.from_body(body) == EXPECTED
    with pytest.raises(FormError, match="form 2, this version reads 1: learn it again"):
        Topology.from_body({**body, "form": 2})
    with pytest.raises(FormError, match="learn it again"):
        Topology.from_body({**body, "ports": [[1]]})


def test_ports_that_are_not_up_slow_or_gone_are_for_a_person_to_decide() -> None:
    said = {"gpu-001": facts(1, {"mlx5_0": DOWN, "mlx5_1": SLOW}, gone=("mlx5_9",)).facts}
    found = learn(said, SWEEP, EXPECTED.of(["gpu-001"]))  # type: ignore[arg-type]
    assert {one.name for one in found.not_up} == {"gpu-001 mlx5_0", "gpu-001 mlx5_1", "gpu-001 mlx5_9"}
    assert {one.rate_gbps for one in found.not_up} == {400.0}, "as they should be, not as they are"
    assert len(found.topology(False).ports) == 5
    assert len(found.topology(True).ports) == 8


# States --------------------------------------------------------------------------------------------------------


def test_a_whole_fabric_is_as_expected() -> None:
    found = view()
    assert found.tally == {"as expected": COUNT * 8}
    assert pattern_of(found) == Pattern("none", "ok", "All 128 ports are as expected.")
    assert found.unexpected == ()


def test_each_kind_of_trouble_has_its_own_state_word_level_and_shape() -> None:
    swept = made.sweep(1, range(1, COUNT + 1), moved={(9, 2): 60}).facts
    found = view(
        {
            3: facts(3, {"mlx5_5": DOWN}),
            4: facts(4, {"mlx5_1": SLOW}),
            5: facts(5, gone=("mlx5_9",)),
            6: Answer("timeout"),
        },
        swept=swept,
    )
    assert {name: state for name, state in odd(found).items() if not name.startswith("gpu-006")} == {
        "gpu-003 mlx5_5": "down",
        "gpu-004 mlx5_1": "differs",
        "gpu-005 mlx5_9": "missing",
        "gpu-009 mlx5_4": "differs",
    }
    assert found.tally["not known"] == 8
    assert port(found, 4, 1).says == "runs at 200 Gb/s instead of 400"
    assert port(found, 9, 2).says == "is cabled to leaf-02 port 60 instead of leaf-02 port 9"
    assert port(found, 3, 3).says.startswith("DOWN, physical state Polling: it sees no signal")
    assert "timeout" in port(found, 6, 0).says
    assert [(state.level, state.glyph) for state in STATES.values()] == [
        ("ok", "■"), ("warn", "▲"), ("bad", "◆"), ("bad", "✕"), ("unknown", "◌")
    ]  # fmt: skip


@pytest.mark.parametrize("outcome", ["failed", "timeout", "hung", "denied", "unreachable", "skipped", None])
def test_a_node_that_did_not_answer_is_never_as_expected(outcome: str | None) -> None:
    answers = dict(WELL)
    if outcome is None:
        del answers["gpu-002"]
    else:
        answers["gpu-002"] = Answer(outcome, why="no answer")
    found = compare(NODES, EXPECTED, answers, SWEEP)
    assert {one.state for one in found.ports if one.port.node == "gpu-002"} == {"not known"}
    assert pattern_of(found).level == "unknown"
    assert pattern_of(found).says == "No fault in what is known: 120 ports as expected, 8 not known."


def test_an_adapter_that_is_renumbered_is_known_by_its_guid() -> None:
    """mlx5_4 is pulled; at the next boot the ones behind it move up by one name."""
    text = made.ports_text(2, gone=("mlx5_4",)).replace("mlx5_5/", "mlx5_4/").replace("mlx5_6/", "mlx5_5/")
    answer = Answer("ok", made.read_text("gpu-002", "ib.ports", text).facts)
    found = compare(NODES, EXPECTED, {**WELL, "gpu-002": answer}, None)
    assert odd(found) == {"gpu-002 mlx5_4": "missing"}
    assert "now called mlx5_4" in port(found, 2, 3).says
    assert pattern_of(found).says.startswith("One adapter is gone: gpu-002 mlx5_4 → leaf-02 port 2.")


def test_a_port_that_is_there_and_not_expected_is_told_and_the_storage_bond_is_not() -> None:
    expected = Topology(tuple(one for one in EXPECTED.ports if (one.node, one.hca) != ("gpu-003", "mlx5_9")))
    found = view(expected=expected)
    assert found.unexpected == (f"gpu-003 mlx5_9 port 1 is up and not expected, GUID {made.guid(3, 7):016x}",)


def test_up_on_its_node_but_not_in_the_fabric_is_said_and_is_not_green() -> None:
    found = view(swept=made.sweep(1, range(1, COUNT + 1), gone=[(8, 4)]).facts)
    assert odd(found) == {"gpu-008 mlx5_6": "differs"}
    assert (
        port(found, 8, 4).disagree
        == "gpu-008 mlx5_6 is ACTIVE on its node, but the fabric that was seen does not have it"
    )


def test_down_on_its_node_but_linked_in_the_fabric_is_said() -> None:
    found = view({8: facts(8, {"mlx5_6": DOWN})})
    assert port(found, 8, 4).state == "down"
    assert port(found, 8, 4).disagree == "gpu-008 mlx5_6 is DOWN on its node, but the fabric has its cable up"


def test_a_sweep_of_another_fabric_makes_nothing_missing() -> None:
    other = catalog.load()["ib.fabric"].parse(
        made.sweep_text([1, 2]).replace("fc6a1c03", "fc6a1c99").replace("b83fd203", "b83fd299")
    )
    found = compare(NODES, EXPECTED, WELL, other)
    assert (found.comparable, odd(found)) == (False, {})


def swept_of(*rails: int) -> Fabric:
    """A sweep of a fabric that holds only the leaves of these rails, and what hangs on them."""
    apart = {f"{made.leaf_guid(rail):016x}" for rail in range(8) if rail not in rails}
    apart |= {f"{made.guid(n, rail):016x}" for n in ALL for rail in range(8) if rail not in rails}
    assert SWEEP is not None
    return dataclasses.replace(
        SWEEP,
        devices=tuple(one for one in SWEEP.devices if one.guid not in apart),
        links=tuple(one for one in SWEEP.links if one.a not in apart and one.b not in apart),
    )


def test_a_sweep_of_one_rail_says_nothing_of_the_ports_of_the_others() -> None:
    answers = {**WELL, "gpu-006": Answer("timeout"), "gpu-009": facts(9, {"mlx5_9": DOWN})}
    found = compare(NODES, EXPECTED, answers, swept_of(0), fabric_at=1.0)
    assert found.comparable
    assert found.unswept == tuple(f"leaf-{rail:02d}" for rail in range(1, 8))
    assert odd(found) == {f"gpu-006 {hca}": "not known" for hca in HCAS} | {"gpu-009 mlx5_9": "down"}
    assert not [one for one in found.ports if one.disagree]
    assert port(found, 3, 5).says == "400 Gb/s, switch side not asked"
    assert port(found, 3, 0).says == "400 Gb/s"


def test_of_the_rail_that_it_saw_it_still_tells_what_is_not_there() -> None:
    answers = {**WELL, "gpu-006": Answer("timeout")}
    sweep = swept_of(0)
    without = dataclasses.replace(sweep, links=tuple(x for x in sweep.links if x.a_port != 6 and x.b_port != 6))
    assert len(without.links) == COUNT - 1
    found = compare(NODES, EXPECTED, answers, without, fabric_at=1.0)
    assert odd(found) == {f"gpu-006 {hca}": "not known" for hca in HCAS} | {"gpu-006 mlx5_0": "missing"}


def test_a_cable_in_another_leaf_is_told_also_where_its_own_leaf_was_not_seen() -> None:
    """What stands against the sweep is only that it did not see where the cable belongs."""
    elsewhere = tuple(
        dataclasses.replace(one, leaf="leaf-77", leaf_guid="00000000000000aa")
        if (one.node, one.rail) == ("gpu-002", 3) else one
        for one in EXPECTED.ports
    )  # fmt: skip
    found = view(expected=Topology(elsewhere))
    assert odd(found) == {}
    assert port(found, 2, 3).disagree == (
        "gpu-002 mlx5_5 belongs into leaf-77 port 2, which the sweep did not see: it ends in leaf-03"
    )


def test_a_sweep_of_one_rail_makes_no_known_cable_of_another_forgotten() -> None:
    said = {node: answer.facts for node, answer in WELL.items() if answer.facts}
    again = learn(said, swept_of(0), EXPECTED)
    assert again.topology(False) == EXPECTED
    assert again.unseen == ()
    saw_it_gone = learn(said, made.sweep(1, ALL, gone=[(8, 4)]).facts, EXPECTED)
    assert [one.name for one in saw_it_gone.unseen] == ["gpu-008 mlx5_6"]


NO_RATE = {"ports/1/rate": ""}


def test_a_rate_that_nobody_can_read_is_not_the_expected_rate() -> None:
    found = view({4: facts(4, {"mlx5_1": NO_RATE})})
    assert port(found, 4, 1).seen.rate_gbps is None  # type: ignore[union-attr]
    assert odd(found) == {"gpu-004 mlx5_1": "not known"}
    assert port(found, 4, 1).says == "is ACTIVE, but gpu-004 does not show its rate, 400 Gb/s expected"
    assert pattern_of(found).level == "unknown"


def test_a_port_that_shows_no_state_is_not_known() -> None:
    found = view({4: facts(4, {"mlx5_1": {"ports/1/state": ""}})})
    assert odd(found) == {"gpu-004 mlx5_1": "not known"}
    assert port(found, 4, 1).says == "gpu-004 does not show the state of mlx5_1"


def test_a_cable_that_nobody_ever_saw_is_not_missed_in_the_fabric() -> None:
    """A rail may be a fabric of its own, and RoCE ports are in none: only a cable that was seen once can be gone."""
    answers = {**WELL, "gpu-006": Answer("timeout")}
    found = compare(NODES, RAILS_ONLY, answers, swept_of(0), fabric_at=1.0)
    assert odd(found) == {f"gpu-006 {hca}": "not known" for hca in HCAS}


def test_before_anything_is_expected_ports_are_up_not_as_expected() -> None:
    found = view({3: facts(3, {"mlx5_5": DOWN}), 6: Answer("timeout")}, expected=None, swept=None)
    assert {one.word for one in found.ports} == {"up", "down", "not known"}
    assert not found.any_expected
    assert found.tally == {"as expected": 119, "down": 1, "not known": 8}


def test_a_node_without_infiniband_among_others_has_no_ports_and_one_that_should_have_has_none_left() -> None:
    answer = Answer("absent", why="no InfiniBand or RoCE adapter")
    assert len(view({4: answer}, expected=None).ports) == (COUNT - 1) * 8
    found = view({4: answer})
    assert set(odd(found).values()) == {"missing"}
    assert (
        pattern_of(found).says == "All 8 known ports of gpu-004 are missing: the node itself, its power or its driver."
    )


# The sentence --------------------------------------------------------------------------------------------------


def down(places: list[tuple[int, int]]) -> dict[int, Answer]:
    numbers = {n for n, _ in places}
    return {n: facts(n, {HCAS[rail]: DOWN for m, rail in places if m == n}) for n in numbers}


ALL = range(1, COUNT + 1)


@pytest.mark.parametrize(
    ("places", "kind", "says"),
    [
        (
            [(12, 3)],
            "port",
            "One port, both neighbours fine: gpu-012 mlx5_5 → leaf-03 port 12 is the cable or its ends.",
        ),
        ([(12, 3), (12, 5)], "node", "2 of 8 known ports of gpu-012 are down, and no other node's: its adapters."),
        (
            [(12, r) for r in range(8)],
            "node",
            "All 8 known ports of gpu-012 are down: the node itself, its power or its driver.",
        ),
        (
            [(n, 3) for n in ALL],
            "leaf",
            "All 16 known ports of leaf-03 are down, and no other leaf's: the leaf switch.",
        ),
        (
            [(n, 3) for n in range(1, 12)],
            "leaf",
            "11 of 16 known ports of leaf-03 are down, and no other leaf's: leaf-03 or its cables.",
        ),
        (
            [(2, 3), (7, 3)],
            "scattered",
            "2 of 16 known ports of leaf-03 are down, and no other leaf's: leaf-03 or its cables.",
        ),
        (
            [(n, 3) for n in ALL] + [(4, 6)],
            "leaf",
            "All 16 known ports of leaf-03 are down: the leaf switch. Besides it 1 port on 1 node.",
        ),
        (
            [(1, 0), (5, 2), (9, 4)],
            "scattered",
            "3 ports on 3 nodes and 3 leaves are down: no node, leaf or rail in common.",
        ),
    ],
)
def test_the_sentence_follows_the_shape(places: list[tuple[int, int]], kind: str, says: str) -> None:
    found = pattern_of(view(down(places), swept=None))
    assert (found.kind, found.level, found.says) == (kind, "bad", says)


def only(n: int, changes: Changes, silent: int) -> Answer:
    """Node `n` with these changes, of which the last `silent` adapters do not answer."""
    answer = facts(n, changes, gone=HCAS[8 - silent :])
    assert answer.facts is not None
    mute = tuple(Silent(hca, "timeout", "no answer") for hca in HCAS[8 - silent :])
    return dataclasses.replace(answer, facts=dataclasses.replace(answer.facts, silent=mute))


def test_a_node_is_not_blamed_whole_on_two_of_its_eight_ports() -> None:
    two = view({12: only(12, {"mlx5_0": DOWN, "mlx5_1": DOWN}, silent=6)}, swept=None)
    assert two.tally == {"as expected": (COUNT - 1) * 8, "down": 2, "not known": 6}
    found = pattern_of(two)
    assert (found.kind, dict(found.subject), found.whole) == ("scattered", {}, False)
    assert found.says == ("All 2 known ports of gpu-012 are down: the node or the cables, 2 ports are too few to tell.")
    three = view({12: only(12, {"mlx5_0": DOWN, "mlx5_1": DOWN, "mlx5_4": DOWN}, silent=5)}, swept=None)
    assert (pattern_of(three).kind, pattern_of(three).whole) == ("node", True)


@pytest.mark.parametrize(
    ("slow", "kind", "says"),
    [
        (
            [(12, rail) for rail in range(8)],
            "node",
            "All 8 known ports of gpu-012 are not as expected: the node's settings or its cabling.",
        ),
        (
            [(12, 3), (12, 5)],
            "node",
            "2 of 8 known ports of gpu-012 are not as expected, and no other node's: its adapters or their cables.",
        ),
        (
            [(n, 3) for n in range(1, COUNT + 1)],
            "leaf",
            "All 16 known ports of leaf-03 are not as expected, and no other leaf's: "
            "the leaf's settings or its cabling.",
        ),
        (
            [(12, rail) for rail in range(8)] + [(3, 1)],
            "node",
            "All 8 known ports of gpu-012 are not as expected: the node's settings or its cabling. "
            "Besides it 1 port on 1 node.",
        ),
    ],
)
def test_what_is_up_and_differs_is_not_blamed_on_power_or_a_driver(
    slow: list[tuple[int, int]], kind: str, says: str
) -> None:
    numbers = {n for n, _ in slow}
    found = pattern_of(view({n: facts(n, {HCAS[r]: SLOW for m, r in slow if m == n}) for n in numbers}, swept=None))
    assert (found.kind, found.level, found.says) == (kind, "warn", says)


@pytest.mark.parametrize(("count", "kind"), [(8, "scattered"), (9, "leaf")])
def test_half_of_a_leaf_is_not_yet_the_leaf(count: int, kind: str) -> None:
    found = pattern_of(view(down([(n, 3) for n in range(1, count + 1)]), swept=None))
    assert (found.kind, dict(found.subject)) == (kind, {"switch": "leaf-03"} if kind == "leaf" else {})


@pytest.mark.parametrize(("count", "kind"), [(8, "scattered"), (9, "rail")])
def test_half_of_a_rail_is_not_yet_the_rail(count: int, kind: str) -> None:
    found = pattern_of(view(down([(n, 3) for n in range(1, count + 1)]), expected=RAILS_ONLY, swept=None))
    assert found.kind == kind


def test_a_leaf_is_not_named_on_two_known_ports() -> None:
    answers = {2: facts(2, {"mlx5_5": DOWN}), 7: facts(7, {"mlx5_5": DOWN})}
    answers |= {n: Answer("timeout") for n in ALL if n not in (2, 7)}
    found = pattern_of(view(answers, swept=None))
    assert (found.kind, dict(found.subject)) == ("scattered", {})
    assert "only 2 of its ports are known" in found.says


def test_a_port_whose_neighbours_are_not_known_is_not_called_a_cable() -> None:
    answers = {n: Answer("timeout") for n in ALL if n != 2} | {2: facts(2, {"mlx5_5": DOWN})}
    assert "Too little is known around it" in pattern_of(view(answers, swept=None)).says


def test_a_rail_is_named_where_no_leaf_is_known() -> None:
    found = pattern_of(view(down([(n, 3) for n in ALL]), expected=RAILS_ONLY, swept=None))
    assert found.kind == "rail"
    assert found.says == "Rail 3 is down on 16 of 16 nodes, and no other rail: which switches, nobody has seen."


def test_a_port_that_is_switched_off_is_no_cable() -> None:
    found = pattern_of(view({12: facts(12, {"mlx5_5": OFF})}, swept=None))
    assert (
        found.says
        == "One port is switched off: gpu-012 mlx5_5 → leaf-03 port 12, by an administrator or a fabric manager."
    )


def test_what_only_differs_is_second_to_what_is_down() -> None:
    found = pattern_of(view(down([(12, 3)]) | {4: facts(4, {"mlx5_1": SLOW})}, swept=None))
    assert found.says.startswith("One port is down: gpu-012") or found.says.startswith("One port, both neighbours fine")
    assert found.says.endswith("1 more port only differs.")
    alone = pattern_of(view({4: facts(4, {"mlx5_1": SLOW})}, swept=None))
    assert (alone.level, alone.says) == (
        "warn",
        "One port differs: gpu-004 mlx5_1 → leaf-01 port 4 runs at 200 Gb/s instead of 400.",
    )


def test_nothing_known_is_said_so() -> None:
    assert (
        pattern_of(compare(NODES, None, {}, None)).says == "No port is known yet: no node has answered for its ports."
    )
    assert pattern_of(compare(NODES, EXPECTED, {}, None)).says == "Nothing is known of 128 ports: no node has answered."
    answered = {"gpu-004": facts(4, dict.fromkeys(HCAS, NO_RATE))}
    assert pattern_of(compare(["gpu-004"], EXPECTED, answers=answered)).says == (
        "Nothing is known of 8 ports: no port shows enough."
    )


# The layout ----------------------------------------------------------------------------------------------------


def test_rows_are_leaves_and_columns_are_nodes_as_people_count() -> None:
    ports = view().ports
    (block,) = blocks_of(NODES, ports)
    assert [row.label for row in block.rows] == [f"leaf-{rail:02d}" for rail in range(8)]
    assert block.nodes == tuple(NODES)
    cell = block.rows[3].cells[11]
    assert cell is not None and cell.port.cable == "gpu-012 mlx5_5 → leaf-03 port 12"


def test_nodes_on_the_same_leaves_stand_together_whatever_their_names() -> None:
    """Odd nodes are cabled to other leaves than even ones."""
    moved = tuple(
        dataclasses.replace(one, leaf=one.leaf + "b", leaf_guid=one.leaf_guid.replace("fc6a", "fc6b"))
        if int(one.node[-3:]) % 2 else one
        for one in EXPECTED.ports
    )  # fmt: skip
    blocks = blocks_of(NODES, view(expected=Topology(moved), swept=None).ports)
    assert [[int(node[-3:]) % 2 for node in block.nodes] for block in blocks] == [[1] * 8, [0] * 8]
    assert [row.label for row in blocks[0].rows] == [f"leaf-{rail:02d}b" for rail in range(8)]


def test_where_all_ports_of_a_node_go_to_one_switch_each_has_a_row_of_its_own() -> None:
    one_switch = tuple(dataclasses.replace(one, leaf="tor", leaf_guid="00000000000000aa") for one in EXPECTED.ports)
    (block,) = blocks_of(NODES, view(expected=Topology(one_switch), swept=None).ports)
    assert len(block.rows) == 8
    assert all(cell is not None for row in block.rows for cell in row.cells)


# Reading what is stored ----------------------------------------------------------------------------------------


def test_stored_facts_come_back_as_they_were_and_other_forms_as_none() -> None:
    ports, swept = made.ports(3), made.sweep(1, [1, 2])
    again = ports_of(ports.facts_json)
    assert again is not None and [one.node_guid for one in again.ports] == [one.node_guid for one in ports.facts.ports]
    assert fabric_of(swept.facts_json) == swept.facts
    assert (ports_of({"ports": [{}]}), fabric_of({"devices": 3}), fabric_of(None)) == (None, None, None)


@pytest.mark.parametrize(
    ("text", "guid"),
    [("0a7f:bc12:45ef:d23b", "0a7fbc1245efd23b"), ("0xa7fbc1245efd23b", "0a7fbc1245efd23b"), ("", ""), (None, ""),
     ("0000:0000:0000:0000", ""), ("mlx5_0", ""), ("b83fd2030000000112", "")],
)  # fmt: skip
def test_guids_have_one_form(text: str | None, guid: str) -> None:
    assert guid_of(text) == guid


@pytest.mark.parametrize(
    ("name", "shown"),
    [("MF0;A09-P1-IBLEAF-04-04:MQM9701/U1", "A09-P1-IBLEAF-04-04"), ("leaf-su00-r7", "leaf-su00-r7"),
     ("MF0;rmd70-0101-0908-01ib1-A:MCS8500/L01/U1", "rmd70-0101-0908-01ib1-A/L01"), ("", "switch 00000000000000aa")],
)  # fmt: skip
def test_switches_are_called_as_people_call_them(name: str, shown: str) -> None:
    assert switch_name(name, "00000000000000aa") == shown


# What diagnosis makes of it ------------------------------------------------------------------------------------


def verdict(changed: dict[int, Answer], expected: Topology | None = EXPECTED) -> list[tuple[str, dict[str, object]]]:
    """(cause, subject) of what was named, most probable first."""
    answers = {**WELL, **{made.name(n): answer for n, answer in changed.items()}}
    seen = []
    for node, answer in answers.items():
        found = tuple(ib_ports.findings(answer.facts)) if answer.facts else ()
        seen.append(Seen(f"{node}/ib.ports", node, "ib.ports", answer.outcome, answer.why, answer.facts, found))  # type: ignore[arg-type]
    named = [one.hypothesis for one in diagnose(seen, NODES, expected).ranked]
    return [(one.cause, dict(one.subject)) for one in named if one.cause not in ("none", "unknown")]


def test_a_missing_adapter_leaves_no_error_and_is_named_by_what_was_expected_else_by_what_all_others_have() -> None:
    gone = {7: facts(7, gone=("mlx5_5",))}
    assert verdict(gone, None) == [("ib.link_down", {"node": "gpu-007", "hca": "mlx5_5"})]
    assert verdict({7: facts(7, gone=("mlx5_5",)), 8: facts(8, gone=("mlx5_1",))}, None) == []
    assert verdict(gone) == [("ib.link_down", {"node": "gpu-007", "hca": "mlx5_5", "port": 1})]
    assert verdict({}) == []


def test_a_leaf_whose_ports_are_all_down_is_the_switch_and_the_ports_are_its_consequences() -> None:
    assert verdict(down([(n, 3) for n in ALL])) == [("ib.switch_down", {"switch": "leaf-03"})]
    two = verdict(down([(n, 3) for n in (4, 9)]))
    assert {cause for cause, _ in two} == {"ib.link_down"}
    assert len(two) == 2


def test_three_ports_of_a_leaf_on_two_nodes_are_not_yet_the_switch_to_diagnosis() -> None:
    """All known ports of leaf-03 down, but of two nodes only: two cables to one of them are the likelier trouble."""
    shared = tuple(
        dataclasses.replace(one, leaf="leaf-03", leaf_guid=f"{made.leaf_guid(3):016x}", leaf_port=60)
        if (one.node, one.rail) == ("gpu-001", 2) else one
        for one in EXPECTED.ports
        if one.rail != 3 or one.node in ("gpu-001", "gpu-002")
    )  # fmt: skip
    places = [(1, 2), (1, 3), (2, 3)]
    assert pattern_of(view(down(places), Topology(shared), None)).whole
    named = verdict(down(places), Topology(shared))
    assert named
    assert {cause for cause, _ in named} == {"ib.link_down"}


def test_a_node_without_any_of_its_adapters_is_one_hypothesis() -> None:
    assert verdict({4: Answer("absent")}) == [("ib.link_down", {"node": "gpu-004"})]
