"""One of five states for each expected port, from what its node and the fabric say of it. Unknown is never green."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from probes.catalog.ib_ports import MEANING
from probes.catalog.network.ib_fabric_facts import Fabric, guid_of
from probes.catalog.network.ib_facts import IbPorts, Port
from probes.core import clean
from probes.topology.expected import ExpectedPort, Topology
from probes.topology.learning import as_seen
from probes.topology.sources import Answer, Cables, End, is_up, rails_of

__all__ = ["STATES", "Answer", "PortState", "State", "View", "compare"]


@dataclass(frozen=True, slots=True)
class State:
    """A state's word, its level (ok, warn, bad, unknown) and its shape. Never told by colour alone."""

    word: str
    level: str
    glyph: str


OK, DIFFERS, DOWN, MISSING, UNKNOWN = "as expected", "differs", "down", "missing", "not known"
# In the order of the numbers in a figure.
STATES: dict[str, State] = {
    OK: State(OK, "ok", "■"),
    DIFFERS: State(DIFFERS, "warn", "▲"),
    DOWN: State(DOWN, "bad", "◆"),
    MISSING: State(MISSING, "bad", "✕"),
    UNKNOWN: State(UNKNOWN, "unknown", "◌"),
}


@dataclass(frozen=True, slots=True)
class PortState:
    """One port's state. `expected`: somebody said that it must be there; else judged by what was seen alone.

    `disagree`: what one source says against the other. `seen` and `end`: the port in its node's reading, and the other
    end of its cable in the fabric's.
    """

    port: ExpectedPort
    state: str
    says: str
    disagree: str = ""
    expected: bool = True
    seen: Port | None = None
    end: End | None = None

    @property
    def word(self) -> str:
        """The state's word; where nothing is expected, "as expected" would claim too much."""
        return "up" if self.state == OK and not self.expected else self.state


@dataclass(frozen=True, slots=True)
class View:
    """All ports of the asked nodes. `unexpected`: sentences about ports that are there and not expected.

    `comparable`: the fabric that was seen has switches of the expected one. `unswept`: names of expected switches that
    it has not, such as those of other rails: of their ports it says nothing.
    """

    nodes: tuple[str, ...]
    ports: tuple[PortState, ...]
    unexpected: tuple[str, ...]
    comparable: bool
    fabric_asked: bool
    unswept: tuple[str, ...] = ()

    @property
    def tally(self) -> Counter[str]:
        return Counter(port.state for port in self.ports)

    @property
    def any_expected(self) -> bool:
        return any(port.expected for port in self.ports)


def compare(
    nodes: Sequence[str],
    expected: Topology | None,
    answers: Mapping[str, Answer],
    fabric: Fabric | None = None,
    fabric_at: float = 0.0,
) -> View:
    """States of the ports of `nodes`. Nodes of which nothing is expected are judged by what was seen of them."""
    cables = Cables(fabric, fabric_at)
    mine: dict[str, list[ExpectedPort]] = {}
    for port in expected.of(nodes).ports if expected else ():
        mine.setdefault(port.node, []).append(port)
    states: list[PortState] = []
    unexpected: list[str] = []
    for node in nodes:
        answer = answers.get(node)
        if node in mine:
            states += (_state(port, answer, cables) for port in mine[node])
            unexpected += _unexpected(node, mine[node], answer)
        elif answer is not None and answer.facts is not None:
            seen = as_seen(node, answer.facts, cables)
            states += (_not_expected(_state(port, answer, cables)) for port in seen)
    states += _of_silent_nodes(nodes, states, answers)
    beyond = (port for ports in mine.values() for port in ports if cables.asked and not cables.covers(port))
    unswept = tuple(sorted({port.leaf for port in beyond}))
    return View(tuple(nodes), tuple(states), tuple(unexpected), _comparable(expected, cables), cables.asked, unswept)


def _not_expected(state: PortState) -> PortState:
    return PortState(state.port, state.state, state.says, state.disagree, False, state.seen, state.end)


def _comparable(expected: Topology | None, cables: Cables) -> bool:
    """Rails may be fabrics of their own: a sweep that has none of the expected switches was of another one."""
    leaves = {port.leaf_guid for port in expected.ports if port.leaf_guid} if expected else set()
    return cables.asked and (not leaves or bool(leaves & cables.guids))


def _of_silent_nodes(
    nodes: Sequence[str], states: Sequence[PortState], answers: Mapping[str, Answer]
) -> Iterator[PortState]:
    """Nodes of which nothing is known have as many rails as most others. A node without InfiniBand has none."""
    have = {state.port.node for state in states}
    counts = Counter(Counter(state.port.node for state in states).values())
    usual = max(counts, key=lambda count: (counts[count], count)) if counts else 0
    for node in nodes:
        answer = answers.get(node)
        if node in have or (answer is not None and answer.outcome in ("ok", "absent")):
            continue
        for rail in range(usual):
            yield PortState(ExpectedPort(node, "", 0, rail), UNKNOWN, _why_unknown(node, answer), expected=False)


def _why_unknown(node: str, answer: Answer | None) -> str:
    if answer is None:
        return f"{node} was not asked for its ports"
    return f"{node} did not answer for its ports: {answer.outcome}" + (f", {answer.why}" if answer.why else "")


def _found(port: ExpectedPort, facts: IbPorts) -> Port | None:
    """The expected port in its node's reading: by GUID, which stays when adapters are numbered anew; else by name."""
    same = [one for one in facts.ports if one.port == port.port]
    if port.guid and any(guid_of(one.node_guid) for one in same):
        return next((one for one in same if guid_of(one.node_guid) == port.guid), None)
    return next((one for one in same if one.hca == port.hca), None)


def _state(port: ExpectedPort, answer: Answer | None, cables: Cables) -> PortState:
    end = cables.end(port.guid, port.port)
    covered = cables.covers(port)
    # Only where the cable was seen once, and its switch was seen now, does its absence say anything.
    gone = covered and end is None and bool(port.leaf_guid and port.guid)
    if answer is None or answer.outcome not in ("ok", "absent"):
        return _unanswered(port, answer, end, gone)
    found = _found(port, answer.facts) if answer.facts is not None else None
    if found is None:
        return _not_on_node(port, answer, end, gone)
    if found.state is None:
        return PortState(port, UNKNOWN, f"{port.node} does not show the state of {found.hca}", seen=found, end=end)
    older = cables.at < answer.at
    if not is_up(found):
        still = "the fabric has its cable up" if end and not older else ""
        disagree = f"{port.name} is {clean(found.state)} on its node, but {still}" if still else ""
        return PortState(port, DOWN, _down(found), disagree, seen=found, end=end)
    return _up(port, found, _End(end, covered, gone, older))


def _unanswered(port: ExpectedPort, answer: Answer | None, end: End | None, gone: bool) -> PortState:
    why = _why_unknown(port.node, answer)
    if gone:
        return PortState(port, MISSING, f"not in the fabric that was seen; {why}")
    told = f"{why}; the fabric has its cable up" if end else why
    return PortState(port, UNKNOWN, told, end=end)


def _not_on_node(port: ExpectedPort, answer: Answer, end: End | None, gone: bool) -> PortState:
    if answer.facts is not None and any(one.hca == port.hca for one in answer.facts.silent):
        return PortState(port, UNKNOWN, f"{port.hca} does not answer on its node", end=end)
    what = "no InfiniBand adapter is on the node" if answer.facts is None else "the adapter is not on the node"
    also = ", nor in the fabric" if gone else ""
    disagree = f"{port.name} is not on its node, but the fabric has its cable up" if end else ""
    return PortState(port, MISSING, what + also, disagree, end=end)


def _down(found: Port) -> str:
    phys = found.phys_state or "not shown"
    meaning = MEANING.get(phys, "")
    return f"{clean(found.state or '')}, physical state {clean(phys)}" + (f": {meaning}" if meaning else "")


@dataclass(frozen=True, slots=True)
class _End:
    """What the sweep says of a cable. `covered`: it saw the switch where it belongs; `gone`: and not this port there;
    `older`: it was before the node's own answer."""

    end: End | None
    covered: bool
    gone: bool
    older: bool


def _up(port: ExpectedPort, found: Port, swept: _End) -> PortState:
    wrong = []
    disagree = ""
    end = swept.end
    if port.rate_gbps and found.rate_gbps is not None and found.rate_gbps < port.rate_gbps:
        lanes = f" on {found.width} lanes" if found.width in (1, 2) else ""
        wrong.append(f"runs at {found.rate_gbps:g} Gb/s{lanes} instead of {port.rate_gbps:g}")
    if end and port.leaf_guid and (end.guid, end.port) != (port.leaf_guid, port.leaf_port):
        if swept.covered:
            wrong.append(f"is cabled to {end.name} port {end.port} instead of {port.other_end}")
        else:
            disagree = f"{port.name} belongs into {port.other_end}, which the sweep did not see: it ends in {end.name}"
    if swept.gone:
        disagree = f"{port.name} is ACTIVE on its node, but the fabric that was seen does not have it"
        if not swept.older:
            wrong.append("is ACTIVE on its node, but not in the fabric that was seen after it")
    if wrong:
        return PortState(port, DIFFERS, " and ".join(wrong), disagree, seen=found, end=end)
    if port.rate_gbps and found.rate_gbps is None:  # half a rate is a fault, and nobody can say that it is not
        says = f"is {found.state}, but {port.node} does not show its rate, {port.rate_gbps:g} Gb/s expected"
        return PortState(port, UNKNOWN, says, disagree, seen=found, end=end)
    rate = f"{found.rate_gbps:g} Gb/s" if found.rate_gbps is not None else "up, rate not shown"
    renamed = f", now called {found.hca}" if found.hca != port.hca else ""
    cable = "" if end or swept.gone else ", switch side not asked"
    return PortState(port, OK, f"{rate}{cable}{renamed}", disagree, seen=found, end=end)


def _unexpected(node: str, expected: Sequence[ExpectedPort], answer: Answer | None) -> Iterator[str]:
    """Ports of the rails' kind that are up and that nobody expects. Storage and management adapters do not matter."""
    if answer is None or answer.facts is None:
        return
    matched = {found.name for port in expected if (found := _found(port, answer.facts)) is not None}
    for _, port in rails_of(answer.facts):
        if is_up(port) and port.name not in matched:
            guid = guid_of(port.node_guid)
            which = f", GUID {guid}" if guid else ""
            yield f"{node} {clean(port.hca)} port {port.port} is up and not expected{which}"
