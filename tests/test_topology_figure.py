"""The rail matrix as data for Plotly, and the picture of one node."""

from __future__ import annotations

import json

import plotly.graph_objects as go
import pytest

from incidents.figures import rail_matrix
from incidents.models import Incident
from incidents.queries import node_card
from incidents.queries.topology import page
from incidents.services import response
from incidents.services.fleet import Login, add_nodes
from probes.topology import Answer, compare, learn, pattern_of
from probes.topology.layout import blocks_of
from tests.support import fabric as made
from tests.support.evidence import read, store
from tests.support.fabric import DOWN, HCAS
from tests.support.fleets import main

NODES = [made.name(n) for n in range(1, 9)]
SAID = {made.name(n): made.ports(n).facts for n in range(1, 9)}
EXPECTED = learn(SAID, made.sweep(1, range(1, 9)).facts).topology(False)


def figure(**changed: Answer) -> dict:  # type: ignore[type-arg]
    answers = {node: Answer("ok", facts) for node, facts in SAID.items()}
    answers |= {name.replace("_", "-"): answer for name, answer in changed.items()}
    view = compare(NODES, EXPECTED, answers, None)
    return rail_matrix(blocks_of(NODES, view.ports), pattern_of(view))


def test_plotlys_own_schema_takes_it() -> None:
    built = figure(gpu_003=Answer("ok", made.ports(3, {"mlx5_5": DOWN}).facts), gpu_007=Answer("timeout"))
    go.Figure({"data": built["data"], "layout": built["layout"]})
    assert "template" not in built["layout"]
    assert "color" not in json.dumps(built["data"]), "colours are the page's"


def test_each_cell_has_the_number_of_its_state_and_says_what_it_is() -> None:
    built = figure(gpu_003=Answer("ok", made.ports(3, {"mlx5_5": DOWN}).facts), gpu_007=Answer("timeout"))
    heatmap, hatch, glyphs = built["data"]
    assert [row[2] for row in heatmap["z"]] == [0, 0, 0, 2, 0, 0, 0, 0]
    assert [row[6] for row in heatmap["z"]] == [4] * 8
    assert sum(value == 0 for row in heatmap["z"] for value in row) == 8 * 8 - 8 - 1
    assert (glyphs["x"], glyphs["y"], glyphs["text"]) == ([2], [3], ["◆"])
    assert hatch["x"].count(None) == 8, "one outline per cell that is not known"
    assert [(shape["x0"], shape["y0"]) for shape in built["layout"]["shapes"]] == [(1.5, 2.5)]
    cell = built["rows"][3]["cells"][2]
    assert cell[:4] == ["mlx5_5", "leaf-03 port 3", 2, "down"]
    assert (built["rows"][3]["label"], built["columns"][0][2]) == ("leaf-03", "gpu-003")


def test_a_whole_leaf_gets_one_border_along_its_row() -> None:
    down = {f"gpu_{n:03d}": Answer("ok", made.ports(n, {"mlx5_5": DOWN}).facts) for n in range(1, 9)}
    assert figure(**down)["layout"]["shapes"] == [{"type": "rect", "x0": -0.5, "x1": 7.5, "y0": 2.5, "y1": 3.5}]


@pytest.fixture
def incident(db: None) -> Incident:
    add_nodes(main(), "gpu-[001-002]", Login(), None)
    return response.declare(main(), "gpu-[001-002]", None)


@pytest.mark.database
def test_the_card_marks_only_what_is_wrong_and_says_what_nobody_knows(incident: Incident) -> None:
    store(
        incident,
        [
            made.ports(1, {"mlx5_5": DOWN}),
            made.ports(2),
            made.sweep(2, [1, 2]),
            read("gpu-001", "gpu.state", "h100_535_one_brake"),
        ],
        suite="fabric",
    )
    card = node_card.card(incident, page(incident), "gpu-001")
    assert card is not None
    assert [(box.name, box.level) for box in card.gpus if box.level] == [("GPU 2", "warn")]
    assert [box.name for box in card.hcas] == list(HCAS)
    assert [(box.name, box.level) for box in card.hcas if box.level] == [("mlx5_5", "bad")]
    assert [(box.name, box.below) for box in card.leaves] == [(f"leaf-{rail:02d}", "1") for rail in range(8)]
    assert (card.here, card.there) == ("gpu-001 mlx5_5", "leaf-03 port 1")
    rows = {row.what: (row.here, row.there) for row in card.cable}
    assert rows["state"] == ("DOWN / Polling", "linked")
    assert rows["link downed"] == ("0", "not asked")
    other = node_card.card(incident, page(incident), "gpu-001", "mlx5_1:1")
    assert other is not None and other.here == "gpu-001 mlx5_1"
    assert {row.what: row.here for row in other.cable}["link downed"] == "255", "as recorded"


@pytest.mark.database
def test_of_a_silent_node_and_of_a_stranger(incident: Incident) -> None:
    store(incident, [made.ports(1), made.silent(2)], suite="ib.ports")
    card = node_card.card(incident, page(incident), "gpu-002")
    assert card is not None
    assert (card.gpus_said, {box.level for box in card.hcas}) == ("GPUs: not asked.", {"unknown"})
    assert node_card.card(incident, page(incident), "nobody") is None
