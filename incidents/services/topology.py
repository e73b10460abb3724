"""Asking for the fabric, and storing what it should be: when a person says that it is right, never by itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from django.db import transaction
from django.utils import timezone

from incidents import fabric
from incidents.fabric import FabricSeen
from incidents.models import ExpectedTopology, Fleet, Incident, Node, SuiteRun, User
from incidents.services.diagnosing import judge_again
from incidents.services.fleet import Refused
from incidents.services.runs import start_told
from incidents.services.timeline import tell
from probes import nodeset
from probes.catalog.ib_fabric import parse
from probes.core import ParseError
from probes.topology import Learned, Topology, learn

SWEEP_SUITE = "fabric"  # one node's ports, and the fabric as that node sees it
LEAVE_OUT, EXPECT = "leave out", "expect"  # what a person says of ports that are not up
SHOWN = 12  # ports named in a refusal


@transaction.atomic
def ask_fabric(incident: Incident, by: User, name: str) -> SuiteRun:
    """Ask one node of the fleet for the whole fabric. Any node will do that may send management datagrams.

    Raises Refused.
    """
    locked = Incident.objects.select_for_update(of=("self",)).get(pk=incident.pk)
    node = locked.fleet.nodes.select_related("fleet").filter(name=name.strip()).first()
    if node is None:
        raise Refused(f"There is no node {name.strip()[:60]!r} in fleet {locked.fleet}. Name one of it.")
    return _ask(locked, by, SWEEP_SUITE, [node])


@transaction.atomic
def ask_ports(incident: Incident, by: User) -> SuiteRun:
    """Ask every node of the incident for its ports again. Raises Refused."""
    locked = Incident.objects.select_for_update(of=("self",)).get(pk=incident.pk)
    return _ask(locked, by, fabric.PORTS, list(locked.nodes.select_related("fleet")))


def _ask(incident: Incident, by: User, suite: str, nodes: Sequence[Node]) -> SuiteRun:
    if incident.closed_at is not None:
        raise Refused("The incident is closed: its nodes are not asked any more.")
    if incident.runs.filter(suite=suite, finished_at=None).exists():
        raise Refused("That is being asked already. Its answer comes by itself.")
    return start_told(incident, suite, nodes, by)


@transaction.atomic
def learn_topology(incident: Incident, by: User, not_up: str = "", newest: int | None = None) -> ExpectedTopology:
    """Store what the incident's nodes and the fabric show now as what is expected of them.

    `not_up` is LEAVE_OUT or EXPECT, for ports that are not up: whether a cable belongs there only a person knows.
    `newest` is the last reading that the person saw: what came after it must be looked at first. Raises Refused.
    """
    _alone(incident.fleet)  # before any incident: storing touches several of them
    locked = Incident.objects.select_for_update(of=("self",)).get(pk=incident.pk)
    if locked.closed_at is not None:
        raise Refused(f"INC-{locked.pk} is closed: what it showed is old. Say it in an incident that is open.")
    seen = fabric.seen_in(locked)
    if newest is not None and seen.newest != newest:
        raise Refused("There are newer readings than those that you saw. Look at them, then say it again.")
    row, learned = store(locked.fleet, seen, by, not_up, f"readings of INC-{locked.pk}")
    left = [port.name for port in learned.not_up]
    tell(
        locked,
        "topology",
        by,
        topology=row.pk,
        ports=len(learned.topology(not_up == EXPECT).ports),
        nodes=nodeset.fold({port.node for port in learned.ports}),
        not_up=left[:SHOWN],
        not_up_count=len(left),
        how=not_up if left else "",
    )
    return row


@transaction.atomic
def learn_fleet(fleet: Fleet, by: User | None, text: str | None, source: str, not_up: str = "") -> tuple[int, Learned]:
    """The same for a whole fleet, from the latest readings of its nodes and, if given, a file of ibnetdiscover.

    Returns the stored version's number. Raises Refused, also for a file that cannot be read.
    """
    seen = fabric.seen_of(fleet)
    if text is not None:
        try:
            swept = parse(text)
        except ParseError as error:
            raise Refused(f"{source} is no output of ibnetdiscover: {error}") from error
        seen = replace(seen, fabric=swept, fabric_node=source)
    row, learned = store(fleet, seen, by, not_up, "the latest readings of its nodes")
    return row.pk, learned


def store(
    fleet: Fleet, seen: FabricSeen, by: User | None, not_up: str, source: str
) -> tuple[ExpectedTopology, Learned]:
    """One more version of a fleet's expected topology. Nodes that are not in `seen` stay as they were.

    Open incidents are judged again by it. Within a transaction. Raises Refused while something is not known, or when it
    would store a broken fabric as right.
    """
    _alone(fleet)
    before, _ = fabric.expected_of(fabric.stored_for(fleet))
    learned = checked(seen, before, not_up)
    mine = learned.topology(not_up == EXPECT)
    there = set(fleet.nodes.values_list("name", flat=True))
    kept = [port for port in before.ports if port.node in there and port.node not in seen.nodes] if before else []
    whole = Topology(tuple(sorted([*kept, *mine.ports], key=lambda port: (port.node, port.rail, port.port))))
    if seen.fabric is not None:
        source += f", fabric seen from {seen.fabric_node}"
    row = ExpectedTopology.objects.create(fleet=fleet, at=timezone.now(), by=by, source=source[:200], body=whole.body())
    judge_again(fleet)
    return row, learned


def _alone(fleet: Fleet) -> None:
    """Two people may say at once what is expected of a fleet."""
    Fleet.objects.select_for_update(no_key=True).get(pk=fleet.pk)


def adopt(fleet: Fleet, nodes: Iterable[str], told: Topology | None, source: str) -> None:
    """What a recording says of its own nodes, in place of whatever was expected of nodes of these names.

    Within a transaction. Incidents that were judged by what was expected before stay as they are.
    """
    _alone(fleet)
    before, _ = fabric.expected_of(fabric.stored_for(fleet))
    mine = set(nodes)
    others = [port for port in before.ports if port.node not in mine] if before else []
    whole = Topology((*others, *(told.of(mine).ports if told else ())))
    if before is None and not whole.ports or before is not None and set(before.ports) == set(whole.ports):
        return
    ExpectedTopology.objects.create(fleet=fleet, at=timezone.now(), by=None, source=source[:200], body=whole.body())


def checked(seen: FabricSeen, before: Topology | None, not_up: str) -> Learned:
    """What would be learned. Raises Refused, saying what stands against it and what to do."""
    answered = {name: answer for name, answer in seen.answers.items() if answer.outcome in ("ok", "absent")}
    if lacking := [name for name in seen.nodes if name not in answered]:
        raise Refused(
            f"Not known: the ports of {nodeset.fold(lacking)}. Ask these nodes for ib.ports again: what nobody saw "
            "cannot be called right."
        )
    facts = {name: answer.facts for name, answer in answered.items() if answer.facts}
    learned = learn(facts, seen.fabric, before.of(seen.nodes) if before else None)
    if learned.silent:
        raise Refused(f"These adapters did not answer: {_named(learned.silent)}. Nothing can be learned of them.")
    if not learned.ports and not learned.not_up:
        raise Refused("No InfiniBand or RoCE port was seen on these nodes: there is nothing to expect.")
    if learned.not_up and not_up not in (LEAVE_OUT, EXPECT):
        count = len(learned.not_up)
        names = _named(port.name for port in learned.not_up)
        raise Refused(
            f"{count} port{' is' if count == 1 else 's are'} not up, not there any more or slower: {names}. "
            "Say whether these must be up or are to be left out, so that no broken fabric is stored as right."
        )
    return learned


def _named(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
    return ", ".join(listed[:SHOWN]) + more
