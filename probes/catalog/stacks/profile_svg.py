"""Stacks of a flame graph: the SVG that py-spy record writes unless told otherwise, and that of flamegraph.pl.

Each frame is a title with its samples and a rectangle: what lies below another, and within its width, was called by it.
Source   inferno 0.11 (flamegraph), which py-spy uses; Brendan Gregg's flamegraph.pl
Units    samples
Shape    stacks_of_svg(text) -> (frames, outermost first, samples of its own)
Errors   none: a title without a rectangle is passed over
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

SVG = ("<?xml", "<svg", "<!DOCTYPE")  # how such a file begins
MOST = 50_000  # frames
_FRAME = re.compile(
    r"<title>([^<\n]{1,800}) \(([\d,]{1,15}) samples?, [\d.]{1,8}%\)</title>\s{0,20}<rect\s([^>]{1,400})>"
)
_ATTRIBUTE = re.compile(r'(?<![\w:])(x|y|width|fg:x|fg:w)="(-?\d{1,9}(?:\.\d{1,9})?)%?"')


def is_flame_graph(head: str) -> bool:
    return "<svg" in head[:4000] and ("flamegraph" in head[:65_536].lower() or "Flame Graph" in head[:65_536])


def stacks_of_svg(text: str) -> Iterator[tuple[list[str], int]]:
    """From the root on, a row of the picture after the other."""
    rows: dict[float, list[tuple[float, float, str, int]]] = {}
    for place, one in enumerate(_FRAME.finditer(text)):
        if place >= MOST:
            break
        drawn = {key: float(value) for key, value in _ATTRIBUTE.findall(one[3])}
        if "y" in drawn:
            begin, width = drawn.get("fg:x", drawn.get("x", 0.0)), drawn.get("fg:w", drawn.get("width", 0.0))
            samples = int(one[2].replace(",", ""))
            rows.setdefault(drawn["y"], []).append((begin, width, html.unescape(one[1]), samples))
    if not rows:
        return
    root = max(rows, key=lambda y: sum(samples for *_, samples in rows[y]) / len(rows[y]))
    above: list[tuple[float, float, list[str], int]] = []
    for y in sorted(rows, key=lambda one: abs(one - root)):
        row = sorted(rows[y])
        now: list[tuple[float, float, list[str], int]] = []
        called = [0] * len(above)
        at = 0
        for begin, width, name, samples in row:
            middle = begin + width / 2
            while at < len(above) and above[at][0] + above[at][1] < middle:
                at += 1
            inside = at < len(above) and above[at][0] <= middle
            frames = above[at][2] if inside else []
            if inside:
                called[at] += samples
            now.append((begin, width, [*frames, name] if name not in ("all", "root") else frames, samples))
        for (_, _, frames, samples), below in zip(above, called, strict=True):
            if frames and samples > below:
                yield frames, samples - below
        above = now
    for _, _, frames, samples in above:
        if frames:
            yield frames, samples
