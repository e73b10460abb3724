"""Tables and loops in which the first word of every line is its node: `n01 mlx5_0 1: DOWN`, `[e1] eth4 Speed: ...`.

For files that no reader knows as they stand: without that word each node's lines may be what a tool prints.

Shape    parts_by_first_word(text) -> Parts of nodes, [] where the first words are no nodes
Errors   none
"""

from __future__ import annotations

import re

from probes.core import lines_of
from probes.intake.hosts import alike
from probes.intake.names import is_address, is_host, is_other, looks_like_a_node
from probes.intake.pasted import Part
from probes.intake.prefixed import MOST_NODES
from probes.intake.tools.network._counter_sets import candidates, device

_FIRST = re.compile(
    r"^[\s\[(<|]{0,8}([A-Za-z][\w.-]{0,62}|\d{1,3}(?:\.\d{1,3}){3})[\])>]?(?:\s{0,4}[:,;|]\s{0,4}|\s{1,40}|$)"
)
_OF_NODES = ("host", "node", "hostname", "nodename", "server", "machine")
_HEADS = (*_OF_NODES, "name")
SHARE = 0.8  # of the lines begin with a node; remarks and heads of tables do not
LONGEST = 2000
MOST_LINES = 100_000


def parts_by_first_word(text: str) -> list[Part]:
    lines = [line for line in lines_of(text[:8_388_608], LONGEST) if line.strip()][:MOST_LINES]
    found = [(line, match) for line in lines if line[:1] not in "#$" and (match := _FIRST.match(line))]
    words = {match[1] for _, match in found}
    if not 2 <= len(words) <= 20 * MOST_NODES:
        return []
    named = {word for word in words if looks_like_a_node(word) and not device(word)}
    nodes = alike(candidates(words)) | named | {word for word in words if is_address(word)}
    if any(match[1].lower() in _OF_NODES for _, match in found):  # it says that they are nodes: also sirius and vega
        nodes |= {
            word for word in words if is_host(word) and not (device(word) or is_other(word) or word.lower() in _HEADS)
        }
    rows = [(line, match) for line, match in found if match[1] in nodes]
    if not 2 <= len(nodes) <= MOST_NODES or len(rows) < SHARE * (len(lines) - _remarks(lines)):
        return []
    head = next((line[match.end() :] for line, match in found if match[1].lower() in _HEADS), "")
    by_node: dict[str, list[str]] = {}
    for line, match in rows:
        by_node.setdefault(match[1], [head] if head else []).append(line[match.end() :])
    return [Part((node,), "", "\n".join(some) + "\n") for node, some in by_node.items()]


def _remarks(lines: list[str]) -> int:
    return sum(line.lstrip()[:1] in "#$-=+|" or line.split()[0].lower().strip(":|") in _HEADS for line in lines)
