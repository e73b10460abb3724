"""Ranks that wait for each other in a circle: strongly connected parts of who waits where, and for whom.

Shape    circle(blocked, awaited) -> ranks and places of the largest circle
Errors   none

Tarjan's algorithm over ranks and the places in which they wait, without recursion: linear in both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Node = tuple[str, int]  # ("rank", its number) or ("place", which of the stalls)


def circle(blocked: Mapping[int, Iterable[int]], awaited: Mapping[int, Iterable[int]]) -> tuple[set[int], set[int]]:
    """(ranks, places) that wait for each other. `blocked`: rank -> places in which it waits; `awaited`: place -> ranks
    that have not come there."""
    edges: dict[Node, list[Node]] = {}
    for rank, places in blocked.items():
        edges[("rank", rank)] = [("place", place) for place in places]
    for place, ranks in awaited.items():
        edges[("place", place)] = [("rank", rank) for rank in ranks]
    largest = max(_parts(edges), key=len, default=[])
    if len(largest) < 2:
        return set(), set()
    return ({number for kind, number in largest if kind == "rank"}, {n for kind, n in largest if kind == "place"})


def _parts(edges: Mapping[Node, list[Node]]) -> list[list[Node]]:
    index: dict[Node, int] = {}
    low: dict[Node, int] = {}
    open_nodes: list[Node] = []
    is_open: set[Node] = set()
    parts: list[list[Node]] = []
    for root in edges:
        if root in index:
            continue
        todo: list[tuple[Node, int]] = [(root, 0)]
        while todo:
            node, at = todo.pop()
            if at == 0:
                index[node] = low[node] = len(index)
                open_nodes.append(node)
                is_open.add(node)
            after = edges.get(node, [])
            deeper = False
            for place in range(at, len(after)):
                other = after[place]
                if other not in index:
                    todo += [(node, place + 1), (other, 0)]
                    deeper = True
                    break
                if other in is_open:
                    low[node] = min(low[node], index[other])
            if deeper:
                continue
            if low[node] == index[node]:
                part: list[Node] = []
                while not part or part[-1] != node:
                    part.append(open_nodes.pop())
                    is_open.discard(part[-1])
                parts.append(part)
            if todo:
                above = todo[-1][0]
                low[above] = min(low[above], low[node])
    return parts
