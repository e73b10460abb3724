"""What the ports that are not as expected have in common, decided from their shape, in one sentence.

One port is a cable, several of one node are the node, all of a leaf are the leaf, one rail over many nodes is what that
rail shares. No node and no leaf is named whole on fewer than three known ports, and nothing that is not known counts as
fine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from probes.topology.states import DIFFERS, DOWN, MISSING, OK, UNKNOWN, PortState, View

FEWEST = 3  # known ports of a leaf or of a whole node, or nodes of a rail, before it may be named; judgement
MOST_SHARE = 0.5  # of a group's known ports, before it is more likely the group than some of its members; judgement


@dataclass(frozen=True, slots=True)
class Pattern:
    """`kind`: port, node, leaf, rail, scattered, none or unknown. `subject` names what is blamed (see diagnosis.core).

    `ports` are those that the sentence is about; `whole`: they are all known ones of the node or leaf.
    """

    kind: str
    level: str
    says: str
    subject: Mapping[str, str | int] = field(default_factory=dict)
    ports: tuple[PortState, ...] = ()
    whole: bool = False


def pattern_of(view: View) -> Pattern:
    """The sentence. Ports that are down or missing come before those that only differ."""
    known = [port for port in view.ports if port.state != UNKNOWN]
    if not view.ports:
        return Pattern("unknown", "unknown", "No port is known yet: no node has answered for its ports.")
    if not known:
        why = "no port shows enough" if any(port.seen for port in view.ports) else "no node has answered"
        return Pattern("unknown", "unknown", f"Nothing is known of {_ports(len(view.ports))}: {why}.")
    bad = [port for port in known if port.state in (DOWN, MISSING)]
    odd = bad or [port for port in known if port.state == DIFFERS]
    rest = len(view.ports) - len(known)
    if not odd:
        return _fine(view, len(known), rest)
    level = "bad" if bad else "warn"
    judges = (_one_port, _one_node, _one_leaf, _one_rail, _largest, _scattered)
    found = next(said for judge in judges if (said := judge(odd, known, level)) is not None)
    differ = sum(port.state == DIFFERS for port in known) if bad else 0
    if differ:
        more = f"{differ} more port{' only differs' if differ == 1 else 's only differ'}"
        found = replace(found, says=f"{found.says} {more}.")
    return found


def _fine(view: View, known: int, rest: int) -> Pattern:
    word = "as expected" if view.any_expected else "up"
    if rest:
        says = f"No fault in what is known: {_ports(known)} {word}, {rest} not known."
        return Pattern("none", "unknown", says)
    return Pattern("none", "ok", f"All {_ports(known)} {'are' if known != 1 else 'is'} {word}.")


def _ports(count: int) -> str:
    return f"{count} port{'' if count == 1 else 's'}"


def _what(odd: Sequence[PortState]) -> str:
    """down, missing, differ: one word for all of them."""
    words = {port.state for port in odd}
    if words == {DIFFERS}:
        return "not as expected"
    return "down or missing" if len(words) > 1 else words.pop()


def _one_port(odd: Sequence[PortState], known: Sequence[PortState], level: str) -> Pattern | None:
    if len(odd) != 1:
        return None
    one = odd[0]
    port = one.port
    subject: dict[str, str | int] = {"node": port.node, "hca": port.hca, "port": port.port}
    if port.leaf:
        subject["switch"] = port.leaf
    on_node = [other for other in known if other.port.node == port.node and other is not one]
    beside = [other for other in known if other is not one and _beside(other, one)]
    fine = bool(on_node and beside) and all(other.state == OK for other in (*on_node, *beside))
    if one.state == DIFFERS:
        says = f"One port differs: {port.cable} {one.says}."
    elif one.state == MISSING and one.says.startswith(("the adapter", "no InfiniBand")):
        says = f"One adapter is gone: {port.cable}. Its slot, its power or its driver, not the cable."
    elif one.seen is not None and one.seen.phys_state == "Disabled":
        says = f"One port is switched off: {port.cable}, by an administrator or a fabric manager."
    elif fine:
        says = f"One port, both neighbours fine: {port.cable} is the cable or its ends."
    else:
        says = f"One port is {one.state}: {port.cable}. Too little is known around it to say where it broke."
    return Pattern("port", level, says, subject, (one,))


def _beside(other: PortState, one: PortState) -> bool:
    """On the same leaf; where no leaf is known, on the same rail of another node."""
    if one.port.leaf:
        return other.port.leaf_guid == one.port.leaf_guid and other.port.leaf == one.port.leaf
    return other.port.rail == one.port.rail and other.port.node != one.port.node


def _one_node(odd: Sequence[PortState], known: Sequence[PortState], level: str) -> Pattern | None:
    nodes = {port.port.node for port in odd}
    if len(nodes) != 1:
        return None
    node = nodes.pop()
    of_node = [port for port in known if port.port.node == node]
    leaves = {_leaf(port) for port in odd}
    if len(leaves) == 1 and "" not in leaves:
        of_leaf = [port for port in known if _leaf(port) == next(iter(leaves))]
        if len(of_leaf) == len(odd) and _without(of_node, odd):
            return None  # its other ports, on other leaves, are fine: perhaps the leaf
    if len(odd) < len(of_node):
        some = f"{len(odd)} of {len(of_node)} known ports of {node} are {_what(odd)}, and no other node's"
        blame = "its adapters" if level == "bad" else "its adapters or their cables"
        return Pattern("node", level, f"{some}: {blame}.", {"node": node}, tuple(odd))
    all_known = f"All {len(odd)} known ports of {node} are {_what(odd)}"
    if len(odd) < FEWEST:
        says = f"{all_known}: the node or the cables, {len(odd)} ports are too few to tell."
        return Pattern("scattered", level, says, {}, tuple(odd))
    return Pattern("node", level, f"{all_known}: {_blame('node', level)}.", {"node": node}, tuple(odd), whole=True)


def _blame(kind: str, level: str) -> str:
    """What a whole node or leaf has in common. Ports that are up at the wrong rate or place have power and a driver."""
    if level != "bad":
        return f"the {'node' if kind == 'node' else 'leaf'}'s settings or its cabling"
    return "the leaf switch" if kind == "leaf" else "the node itself, its power or its driver"


def _leaf(port: PortState) -> str:
    return port.port.leaf_guid or port.port.leaf


def _one_leaf(odd: Sequence[PortState], known: Sequence[PortState], level: str) -> Pattern | None:
    leaves = {_leaf(port) for port in odd}
    if len(leaves) != 1 or "" in leaves:
        return None
    of_leaf = [port for port in known if _leaf(port) in leaves]
    name = odd[0].port.leaf
    if len(of_leaf) < FEWEST:
        says = (
            f"{_ports(len(odd))} of {name} are {_what(odd)}, and only {len(of_leaf)} of its ports are known: "
            "the switch or the cables, more of its ports would tell."
        )
        return Pattern("scattered", level, says, {}, tuple(odd))
    if len(odd) == len(of_leaf):
        says = f"All {len(odd)} known ports of {name} are {_what(odd)}, and no other leaf's: {_blame('leaf', level)}."
        return Pattern("leaf", level, says, {"switch": name}, tuple(odd), whole=True)
    some = f"{len(odd)} of {len(of_leaf)} known ports of {name}"
    says = f"{some} are {_what(odd)}, and no other leaf's: {name} or its cables."
    kind = "leaf" if len(odd) >= FEWEST and len(odd) > MOST_SHARE * len(of_leaf) else "scattered"
    return Pattern(kind, level, says, {"switch": name} if kind == "leaf" else {}, tuple(odd))


def _one_rail(odd: Sequence[PortState], known: Sequence[PortState], level: str) -> Pattern | None:
    rails = {port.port.rail for port in odd}
    nodes = {port.port.node for port in odd}
    if len(rails) != 1 or len(nodes) < FEWEST:
        return None
    rail = rails.pop()
    of_rail = [port for port in known if port.port.rail == rail]
    if len(odd) <= MOST_SHARE * len(of_rail):
        return None
    leaves = {_leaf(port) for port in odd}
    which = "which switches, nobody has seen" if leaves == {""} else f"over {len(leaves)} leaves"
    says = f"Rail {rail} is {_what(odd)} on {len(nodes)} of {len(of_rail)} nodes, and no other rail: {which}."
    return Pattern("rail", level, says, {}, tuple(odd))


def _largest(odd: Sequence[PortState], known: Sequence[PortState], level: str) -> Pattern | None:
    """A whole leaf, else a whole node, within a larger trouble: it is named, and so is what it leaves over."""
    for key, kind in ((_leaf, "leaf"), (_node, "node")):
        whole = _whole_groups(odd, known, key)
        if len(whole) != 1:
            continue
        ports = whole[0]
        rest = _without(odd, ports)
        name = ports[0].port.leaf if kind == "leaf" else ports[0].port.node
        says = f"All {len(ports)} known ports of {name} are {_what(ports)}: {_blame(kind, level)}."
        subject = {"switch" if kind == "leaf" else "node": name}
        return Pattern(
            kind, level, f"{says} Besides it {_ports(len(rest))} on {_nodes(rest)}.", subject, tuple(ports), whole=True
        )
    return None


def _without(ports: Sequence[PortState], some: Sequence[PortState]) -> list[PortState]:
    """By identity: comparing thousands of ports by value takes seconds."""
    gone = {id(port) for port in some}
    return [port for port in ports if id(port) not in gone]


def _node(port: PortState) -> str:
    return port.port.node


def _whole_groups(
    odd: Sequence[PortState], known: Sequence[PortState], key: Callable[[PortState], str]
) -> list[list[PortState]]:
    """The groups of which every known port is odd, FEWEST at least."""
    groups: dict[str, list[PortState]] = {}
    sizes: dict[str, int] = {}
    for port in known:
        sizes[key(port)] = sizes.get(key(port), 0) + 1
    for port in odd:
        groups.setdefault(key(port), []).append(port)
    return [ports for name, ports in groups.items() if name and len(ports) == sizes[name] >= FEWEST]


def _nodes(ports: Sequence[PortState]) -> str:
    count = len({port.port.node for port in ports})
    return f"{count} node{'' if count == 1 else 's'}"


def _scattered(odd: Sequence[PortState], known: Sequence[PortState], level: str) -> Pattern:
    whole = len(_whole_groups(odd, known, _leaf)), len(_whole_groups(odd, known, _node))
    if whole[0] > 1 or whole[1] > 1:
        many = f"{whole[0]} whole leaves" if whole[0] > 1 else f"{whole[1]} whole nodes"
        says = f"{_ports(len(odd))} on {_nodes(odd)} are {_what(odd)}, {many} among them: what those share."
    else:
        leaves = {_leaf(port) for port in odd}
        where = f" and {len(leaves)} leaves" if "" not in leaves else ""
        says = f"{_ports(len(odd))} on {_nodes(odd)}{where} are {_what(odd)}: no node, leaf or rail in common."
    return Pattern("scattered", level, says, {}, tuple(odd))
