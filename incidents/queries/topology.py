"""Reads for the topology tab: the matrix with its sentence, the same in words, and what may be stored."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from incidents import clock, fabric
from incidents.fabric import FabricSeen
from incidents.figures import rail_matrix
from incidents.models import ExpectedTopology, Incident
from probes import nodeset
from probes.topology import STATES, Learned, Pattern, PortState, View, learn, pattern_of
from probes.topology.layout import blocks_of, natural
from probes.topology.states import OK, UNKNOWN

MOST_ROWS = 300  # of the table of words; what is not as expected comes first
MOST_NAMED = 12


@dataclass(frozen=True, slots=True)
class Words:
    """One row of the table: ports that are alike in state and words, of one node."""

    node: str
    ports: str
    other_ends: str
    state: PortState


@dataclass(frozen=True, slots=True)
class Storing:
    """What "this is how it should be" would store. `against`: why it cannot be stored now, "" when it can."""

    ports: int
    not_up: tuple[str, ...]
    spare: int
    unseen: int
    against: str
    newest: int


@dataclass(frozen=True, slots=True)
class TopologyPage:
    """All of the page but the card of one node."""

    view: View
    pattern: Pattern
    stored: ExpectedTopology | None
    unreadable: str
    figure: dict[str, Any]
    title: str
    rows_are: str
    words: list[Words]
    words_left: int
    seen: FabricSeen
    fabric_age: str
    disagree: tuple[str, ...]
    tally: list[tuple[str, str, str, int]]  # level, glyph, word, count
    as_expected: int  # of ports of which something is expected
    storing: Storing
    nothing: str  # an honest sentence where there is no matrix, else ""


def page(incident: Incident) -> TopologyPage:
    """What the nodes of an incident show of the fabric, against what is expected of it. A handful of queries.

    Everybody who looks at one moment of an incident gets the same: 512 nodes take half a second.
    """
    head = Incident.objects.values_list("head", flat=True).get(pk=incident.pk)
    stored = fabric.stored_for(incident.fleet)
    return _page(incident.pk, head, stored.pk if stored else 0)


@functools.lru_cache(8)
def _page(pk: int, head: str, stored_pk: int) -> TopologyPage:
    """`head` is the hash of the last event: whatever changes the readings has changed it."""
    incident = Incident.objects.select_related("fleet").get(pk=pk)
    seen = fabric.seen_in(incident)
    stored = ExpectedTopology.objects.select_related("by").filter(pk=stored_pk).first()
    expected, unreadable = fabric.expected_of(stored)
    view = seen.view(expected)
    pattern = pattern_of(view)
    blocks = blocks_of(view.nodes, view.ports)
    words = _words(view)
    leaves = any(port.port.leaf for port in view.ports)
    return TopologyPage(
        view=view,
        pattern=pattern,
        stored=stored,
        unreadable=unreadable,
        figure=rail_matrix(blocks, pattern),
        title=_title(view, max((len(block.rows) for block in blocks), default=0), leaves),
        rows_are="row = one leaf switch" if leaves else "row = one rail, its switch is not known",
        words=words[:MOST_ROWS],
        words_left=max(0, len(words) - MOST_ROWS),
        seen=seen,
        fabric_age=clock.t_plus(incident.t0, seen.fabric_at) if seen.fabric_at else "",
        disagree=tuple(port.disagree for port in view.ports if port.disagree)[:MOST_NAMED],
        tally=_tally(view),
        as_expected=sum(port.expected and port.state == OK for port in view.ports),
        storing=_storing(seen, expected.of(view.nodes) if expected else None),
        nothing="" if view.ports else _nothing(seen),
    )


def _title(view: View, rails: int, leaves: bool) -> str:
    nodes = len({port.port.node for port in view.ports})
    return f"{nodes} node{'' if nodes == 1 else 's'} × {rails} {'leaves' if leaves else 'rails'}"


def _tally(view: View) -> list[tuple[str, str, str, int]]:
    words = {OK: "as expected" if view.any_expected else "up"}
    glyphs = {UNKNOWN: "▨"}  # as it looks in the matrix
    return [
        (state.level, glyphs.get(word, state.glyph), words.get(word, word), view.tally[word])
        for word, state in STATES.items()
    ]


def _nothing(seen: FabricSeen) -> str:
    """Why there is no matrix."""
    if not seen.nodes:
        return "The nodes of this incident are not known yet. Once they are, their ports are asked for."
    without = [name for name, answer in seen.answers.items() if answer.outcome == "absent"]
    if len(without) == len(seen.nodes):
        return (
            "None of these nodes has an InfiniBand or RoCE adapter, so there is no fabric to show. If they should have "
            "one, the driver is not loaded or the adapter is gone: look at host.kernel_log."
        )
    silent = [name for name in seen.nodes if name not in without]
    if any(answer.outcome == "ok" for answer in seen.answers.values()):
        return "The adapters of these nodes make no rails: no InfiniBand port, and no Ethernet port that is configured."
    return f"No node has answered for its ports yet: {nodeset.fold(silent)}."


def _words(view: View) -> list[Words]:
    """What is not as expected first, one row per port; the rest of a node in one row."""
    odd = [port for port in view.ports if port.state not in (OK, UNKNOWN) or port.disagree]
    order = list(STATES)
    odd.sort(key=lambda port: (-order.index(port.state), natural(port.port.node), port.port.rail))
    rows = [Words(port.port.node, _hca(port), port.port.other_end, port) for port in odd]
    odd_ids = {id(port) for port in odd}
    alike: dict[tuple[str, str, str], list[PortState]] = {}
    for port in view.ports:
        if id(port) not in odd_ids:
            alike.setdefault((port.state, port.port.node, port.says), []).append(port)
    rest = sorted(alike.items(), key=lambda item: (item[0][0] != UNKNOWN, natural(item[0][1])))
    for (_, node, _), ports in rest:
        ends = [port.port.other_end for port in ports if port.port.other_end]
        shown = ", ".join(ends[:2]) + (f" and {len(ends) - 2} more" if len(ends) > 2 else "")
        rows.append(Words(node, _fold(tuple(_hca(port) for port in ports)), shown, ports[0]))
    return rows


def _hca(port: PortState) -> str:
    return port.port.name.removeprefix(f"{port.port.node} ")


@functools.lru_cache(1024)
def _fold(names: tuple[str, ...]) -> str:
    """mlx5_[0-7] where the names allow it."""
    try:
        return nodeset.fold(names) if all(nodeset.is_name(name) for name in names) else ", ".join(names)
    except nodeset.NodesetError:
        return ", ".join(names)


def _storing(seen: FabricSeen, before: Any) -> Storing:
    answered = {name: answer.facts for name, answer in seen.answers.items() if answer.outcome in ("ok", "absent")}
    learned: Learned = learn({name: facts for name, facts in answered.items() if facts}, seen.fabric, before)
    lacking = [name for name in seen.nodes if name not in answered]
    against = ""
    if lacking:
        against = f"{nodeset.fold(lacking)} has not answered for its ports."
    elif learned.silent:
        against = f"{learned.silent[0]} does not answer."
    elif not learned.ports and not learned.not_up:
        against = "no port was seen."
    names = tuple(port.name for port in learned.not_up)
    return Storing(len(learned.ports), names, learned.spare, len(learned.unseen), against, seen.newest)
