"""Which nodes an alert is about: those it names, else those on record for its job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from django.db.models import Q

from incidents.alertmanager import Signal
from incidents.models import Fleet, Job, Node
from incidents.services.fleet import Refused
from incidents.services.response import in_fleet
from probes import nodeset
from probes.transport.targets import Target

_HERE = ("localhost", "127.", "::1", "0.0.0.0")  # the source's own machine, whichever that is


def nodes_of(fleet: Fleet, signals: Sequence[Signal], job: Job | None) -> tuple[list[Node], list[str]]:
    """Nodes to ask, and notes on what was odd. Raises Refused, with what to do, when there are none.

    A label that says `node` is believed, and a node that the fleet does not have is added, as for a person who types
    it. `instance` is what Prometheus scraped: if the fleet does not know it, it may be anything, so the job's nodes on
    record go before it.
    """
    named, odd = _named(signals)
    instances = [s.instance for s in signals if nodeset.is_name(s.instance) and not s.instance.startswith(_HERE)]
    known = _known(fleet, [*named, *instances])
    found = [known.get(name) or name for name in named] + [known[name] for name in instances if name in known]
    if not found and job is not None:
        found = list(job.nodes.all())
    found = found or list(instances)
    if not found:
        raise Refused(_no_nodes(signals, job))
    if strange := [name for name in dict.fromkeys(instances) if name not in known and name not in found]:
        odd.append(f"not in the fleet and left out: instance {', '.join(strange[:5])}")
    added = {
        node.name: node
        for node in in_fleet(fleet, [Target(n) for n in dict.fromkeys(found) if isinstance(n, str)], None)
    }
    nodes = [added[item] if isinstance(item, str) else item for item in found]
    return list(dict.fromkeys(nodes)), odd


def nodes_or_look(fleet: Fleet, firing: Sequence[Signal], job: Job | None) -> tuple[list[Node], list[str]]:
    """The nodes to ask; none where the job is named and the fleet can be looked through for it. Raises Refused."""
    try:
        return nodes_of(fleet, firing, job)
    except Refused:
        if job is None or not fleet.nodes.exists():
            raise
        return [], ["the alert names no nodes, and none are on record: the fleet is looked through for the job"]


def _no_nodes(signals: Sequence[Signal], job: Job | None) -> str:
    what = f"Alert {signals[0].name}" + (f" of job {job}" if job else "")
    on_record = "and no nodes of this job are on record" if job else "and no job"
    return (
        f"{what} names no nodes {on_record}, so no incident was opened. "
        f"Give the alert a label node, nodename or hostname; until then declare by hand."
    )


def _named(signals: Iterable[Signal]) -> tuple[list[str], list[str]]:
    """Names in the node labels, unfolded, in order; a label that is no list of nodes becomes a note."""
    found: dict[str, None] = {}
    odd = []
    unfolded = 0
    for label in dict.fromkeys(signal.nodes for signal in signals if signal.nodes):
        try:
            names = nodeset.expand(label)
        except nodeset.NodesetError as error:
            odd.append(f"a label is no list of nodes: {error}"[:300])
            continue
        unfolded += len(names)
        if unfolded > nodeset.MOST_NODES:
            odd.append(f"its labels name more than {nodeset.MOST_NODES} nodes; the rest was left out")
            break
        found |= dict.fromkeys(names)
    return list(found), odd[:5]


def _known(fleet: Fleet, names: Sequence[str]) -> dict[str, Node]:
    """Nodes of the fleet by the names an alert has for them: their own, their address, or their own with a domain."""
    short = {name.partition(".")[0] for name in names if not name[0].isdigit() and ":" not in name}
    found = fleet.nodes.filter(Q(name__in={*names, *short}) | Q(address__in=set(names)))
    by_name = {node.name: node for node in found}
    by_address = {node.address: node for node in found if node.address}
    known = {name: by_name.get(name) or by_address.get(name) or by_name.get(name.partition(".")[0]) for name in names}
    return {name: node for name, node in known.items() if node is not None}
