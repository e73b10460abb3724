"""Figures as plain data for Plotly in the page: no colours, which the page takes from its style sheet, and no template.

Built by hand, not by plotly.graph_objects: that takes 27 MB and 0.2 s of each process for what is a list of numbers
here. The tests hold what is built against plotly.py's own schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from probes.topology import STATES, Pattern
from probes.topology.layout import Block
from probes.topology.states import UNKNOWN, PortState

NUMBER = {word: number for number, word in enumerate(STATES)}
TALLEST, LOWEST = 36, 7  # pixels of one row
ROOM = 300  # pixels for the rows, until they get too low
LABELS = 8  # names below the columns
ABOVE, BELOW = 4, 26  # pixels
MOST_GLYPHS = 1500  # each is text of its own; beyond, colour and hatch must do, and the table of words


def rail_matrix(blocks: Sequence[Block], pattern: Pattern) -> dict[str, Any]:
    """{"data", "layout", "rows", "columns"}: one cell per port, its number the place of its state in STATES.

    `rows` is for looking up what a cell is: {label, nodes (its block's number), cells: [[hca, other end, number, says]
    or null]}; null rows part the blocks. `columns` are the nodes of each block.
    """
    rows: list[dict[str, Any] | None] = []
    for number, block in enumerate(blocks):
        if number:
            rows.append(None)
        for row in block.rows:
            cells = [_cell(port) for port in row.cells]
            rows.append({"label": row.label, "block": number, "cells": cells})
    width = max((len(block.nodes) for block in blocks), default=0)
    height = max(LOWEST, min(TALLEST, ROOM // max(1, len(rows))))
    return {
        "data": [_heatmap(rows, width), _hatch(rows), _glyphs(rows)],
        "layout": _layout(blocks, rows, width, height) | {"shapes": list(_borders(blocks, pattern))},
        "rows": rows,
        "columns": [list(block.nodes) for block in blocks],
    }


def _cell(port: PortState | None) -> list[Any] | None:
    if port is None:
        return None
    hca = port.port.name.removeprefix(f"{port.port.node} ") if port.port.hca else ""
    said = [hca, port.port.other_end, NUMBER[port.state], port.word]
    return said if port.state == "as expected" and port.expected else [*said, port.says]


def _heatmap(rows: Sequence[dict[str, Any] | None], width: int) -> dict[str, Any]:
    z = [
        [row["cells"][x][2] if row and x < len(row["cells"]) and row["cells"][x] else None for x in range(width)]
        for row in rows
    ]
    return {
        "type": "heatmap", "z": z, "zmin": -0.5, "zmax": len(STATES) - 0.5, "showscale": False, "hoverinfo": "none",
        "xgap": 2 if width <= 64 else 1, "ygap": 3 if len(rows) <= 16 else 1,
    }  # fmt: skip


def _numbered(rows: Sequence[dict[str, Any] | None]) -> Iterator[tuple[int, int, int]]:
    for y, row in enumerate(rows):
        for x, cell in enumerate(row["cells"] if row else ()):
            if cell:
                yield x, y, cell[2]


def _hatch(rows: Sequence[dict[str, Any] | None]) -> dict[str, Any]:
    """One path over all cells that are not known, filled with a pattern: however many they are."""
    xs: list[float | None] = []
    ys: list[float | None] = []
    for x, y, number in _numbered(rows):
        if number == NUMBER[UNKNOWN]:
            xs += [x - 0.44, x + 0.44, x + 0.44, x - 0.44, x - 0.44, None]
            ys += [y - 0.44, y - 0.44, y + 0.44, y + 0.44, y - 0.44, None]
    return {
        "type": "scatter", "mode": "lines", "x": xs, "y": ys, "line": {"width": 0}, "fill": "toself",
        "fillpattern": {"shape": "/", "size": 5, "solidity": 0.35}, "hoverinfo": "skip", "showlegend": False,
    }  # fmt: skip


def _glyphs(rows: Sequence[dict[str, Any] | None]) -> dict[str, Any]:
    """The shape of each cell that is known not to be as expected."""
    glyphs = [state.glyph for state in STATES.values()]
    plain = (NUMBER["as expected"], NUMBER[UNKNOWN])
    shown = [(x, y, glyphs[number]) for x, y, number in _numbered(rows) if number not in plain][:MOST_GLYPHS]
    return {
        "type": "scatter", "mode": "text", "x": [x for x, _, _ in shown], "y": [y for _, y, _ in shown],
        "text": [glyph for _, _, glyph in shown], "textposition": "middle center", "hoverinfo": "skip",
        "showlegend": False, "cliponaxis": False,
    }  # fmt: skip


def _layout(blocks: Sequence[Block], rows: Sequence[dict[str, Any] | None], width: int, height: int) -> dict[str, Any]:
    labelled = [y for y, row in enumerate(rows) if row and (height >= 14 or not y or rows[y - 1] is None)]
    labels = [_short(rows[y]["label"]) for y in labelled]  # type: ignore[index]
    longest = max((len(label) for label in labels), default=0)
    axis = {
        "fixedrange": True,
        "showgrid": False,
        "zeroline": False,
        "ticks": "",
        "automargin": False,
        "ticklabelstandoff": 3,
    }
    return {
        "margin": {"l": max(30, min(150, 12 + 7 * longest)), "r": 2, "t": ABOVE, "b": BELOW},
        "height": len(rows) * height + ABOVE + BELOW,
        "xaxis": axis | {"range": [-0.5, width - 0.5], **_names(blocks, width)},
        "yaxis": axis | {"range": [len(rows) - 0.5, -0.5], "tickvals": labelled, "ticktext": labels},
        "hovermode": "closest",
        "dragmode": False,
        "showlegend": False,
        "uirevision": "same",
    }


def _short(label: str) -> str:
    """The end of a long name is what tells switches apart."""
    return label if len(label) <= 20 else "…" + label[-19:]


def _names(blocks: Sequence[Block], width: int) -> dict[str, Any]:
    """Names of nodes below the columns, as many as there is room for; with several blocks a column is no one node."""
    if len(blocks) != 1:
        return {"tickvals": [], "ticktext": []}
    nodes = blocks[0].nodes
    at = list(range(0, width, max(1, -(-width // LABELS))))
    return {"tickvals": at, "ticktext": [_short(nodes[x]) for x in at], "tickangle": 0}


def _borders(blocks: Sequence[Block], pattern: Pattern) -> Iterator[dict[str, Any]]:
    """A border round what the sentence is about: each port, neighbours in a row together."""
    if pattern.kind not in ("port", "node", "leaf", "rail"):
        return
    blamed = {id(port) for port in pattern.ports}
    y = -1
    for number, block in enumerate(blocks):
        y += 1 if number else 0
        for row in block.rows:
            y += 1
            start = None
            for x, port in enumerate((*row.cells, None)):
                if port is not None and id(port) in blamed:
                    start = x if start is None else start
                elif start is not None:
                    yield {"type": "rect", "x0": start - 0.5, "x1": x - 0.5, "y0": y - 0.5, "y1": y + 0.5}
                    start = None
