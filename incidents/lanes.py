"""The swim lanes of an incident as a Plotly figure, a plain dict. Pure: spans in, figure out.

Times become seconds from T0. Colours are names of tokens ("--ok"), which the page's script reads from the style sheet,
so that dark and light both fit. All words travel as they are, in `customdata`: the script escapes and shortens them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

CLOCK = "Clock rule"
LANES = ("Phase", CLOCK, "Probes", "Verdict", "People", "Job")
ROW = 34  # pixels of one row
MARGIN = {"l": 92, "r": 14, "t": 6, "b": 34}
LABEL = 0.1  # of the whole width, about as long as a label of a moment is
MOST_ROWS = 3  # of moments in one lane
BEFORE_S, LEAST_S = 300.0, 60.0  # before T0 at most, and not more than after it; after T0 at least
TOKENS = {
    "now": "--accent",
    "ok": "--ok",
    "warn": "--warn",
    "bad": "--bad",
    "unknown": "--unknown",
    "plain": "--ink-3",
}
OPACITY = {"plain": 0.18}


@dataclass(frozen=True, slots=True)
class Span:
    """Something in a lane from `start` to `end`, or at a moment (`end` is None). `level` is a key of TOKENS.

    `label` is the short form for the figure, `says` the whole sentence for the table; both may hold nodes' text.
    """

    lane: str
    start: datetime
    end: datetime | None
    label: str
    says: str
    level: str
    seq: int | None = None


def rows_of(spans: Sequence[Span]) -> list[tuple[int, Span]]:
    """Each span with its row, counted from 0 over all lanes: what overlaps within a lane lies in rows of its own. What
    happened at a moment takes some room for its label, while there are rows for that."""
    placed: list[tuple[int, Span]] = []
    label = LABEL * _whole(spans)
    first = 0
    for lane in LANES:
        mine = sorted((one for one in spans if one.lane == lane), key=lambda one: one.start)
        ends: list[datetime] = []
        for one in mine:
            row = next((i for i, end in enumerate(ends) if end <= one.start), len(ends))
            if one.end is None and row >= MOST_ROWS:
                row = min(range(len(ends)), key=ends.__getitem__)
            ends[row : row + 1] = [one.end or one.start + label]
            placed.append((first + row, one))
        first += max(1, len(ends))
    return placed


def _whole(spans: Sequence[Span]) -> timedelta:
    """How long the shown part of it all is, at most."""
    mine = [one for one in spans if one.lane != CLOCK]
    until = max((one.end or one.start for one in mine), default=None)
    return until - min(one.start for one in mine) if until else timedelta(0)


def figure(spans: Sequence[Span], t0: datetime) -> dict[str, Any]:
    """Bars and dots of all lanes: {"data": [...], "layout": {...}} as Plotly takes it."""
    placed = rows_of(spans)
    rows = max((row for row, _ in placed), default=len(LANES) - 1) + 1
    # What is due later than all that happened lies beyond the edge: a short incident must not be a line of dots.
    until = max([LEAST_S, *(_seconds(t0, one.end or one.start) for one in spans if one.lane != CLOCK)])
    since = max(-BEFORE_S, -until, min([0.0, *(_seconds(t0, one.start) for one in spans)]))
    bars = [_bars(level, t0, since, placed) for level in TOKENS]
    dots = _dots(t0, placed)
    return {
        "data": [trace for trace in (*bars, dots) if trace["y"]],
        "layout": {
            "height": rows * ROW + MARGIN["t"] + MARGIN["b"],
            "margin": MARGIN,
            "barmode": "overlay",
            "showlegend": False,
            "dragmode": "zoom",
            "hovermode": "closest",
            "xaxis": {"range": [since * 1.03 - 2, until * 1.12], "zeroline": False, "tickmode": "array"},
            "yaxis": {"range": [rows - 0.4, -0.6], "fixedrange": True, "zeroline": False, **_ticks(placed)},
        },
    }


def _ticks(placed: Sequence[tuple[int, Span]]) -> dict[str, Any]:
    """The lanes' names, each at the first of its rows; a lane with nothing in it keeps its place."""
    used = {lane: [row for row, one in placed if one.lane == lane] for lane in LANES}
    at, values = 0, []
    for lane in LANES:
        values.append(at)
        at = max(used[lane], default=at) + 1
    return {"tickvals": values, "ticktext": list(LANES)}


def _seconds(t0: datetime, at: datetime) -> float:
    return round((at - t0).total_seconds(), 1)


def _bars(level: str, t0: datetime, since: float, placed: Sequence[tuple[int, Span]]) -> dict[str, Any]:
    mine = [(row, one, one.end) for row, one in placed if one.level == level and one.end is not None]
    starts = [max(since, _seconds(t0, one.start)) for _, one, _ in mine]
    return {
        "type": "bar",
        "orientation": "h",
        "y": [row for row, _, _ in mine],
        "base": starts,
        "x": [max(1.0, _seconds(t0, end) - start) for (_, _, end), start in zip(mine, starts, strict=True)],
        "width": 0.68,
        "marker": {"color": TOKENS[level], "opacity": OPACITY.get(level, 0.4), "cornerradius": 4},
        "textposition": "inside",
        "insidetextanchor": "start",
        "constraintext": "none",
        "textangle": 0,
        "customdata": [[one.label, one.says] for _, one, _ in mine],
    }


def _dots(t0: datetime, placed: Sequence[tuple[int, Span]]) -> dict[str, Any]:
    mine = [(row, one) for row, one in placed if one.end is None]
    return {
        "type": "scatter",
        "mode": "markers+text",
        "x": [_seconds(t0, one.start) for _, one in mine],
        "y": [row for row, _ in mine],
        "marker": {"color": [TOKENS[one.level] for _, one in mine], "size": 10},
        "textposition": "middle right",
        "customdata": [[one.label, one.says] for _, one in mine],
    }
