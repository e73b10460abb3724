"""Reads for the fleet page and command: how each node stands, which keys wait for a person, how a check goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.db.models import Count, Max, OuterRef, Subquery

from incidents.models import Fleet, HostKey, Incident, Node, NodeVisit, Reading, SuiteRun
from probes.transport import sshconfig, trust
from probes.transport.reasons import ABOUT_THE_ADDRESS, REASONS

SLOW_S = 3.0  # a check takes 0.1-0.3 s on a node that is well; judgement, not a measurement of yours
ORDER = ("bad", "warn", "unknown", "ok")


def ssh_config_files() -> list[str]:
    """The SSH configuration files that the workers read."""
    return [settings.SSH_CONFIG] if settings.SSH_CONFIG else sshconfig.readable()


def ignored_ssh_options() -> list[str]:
    """Lines of those files and of the known_hosts files that have no effect here, each as a sentence."""
    options = [str(ignored) for ignored in sshconfig.ignored_options(ssh_config_files())]
    return options + trust.TrustedKeys().problems


def accepted_lines(fleet: Fleet) -> str:
    """known_hosts lines of every key of this fleet that people accepted and that was not replaced."""
    keys = HostKey.objects.filter(node__fleet=fleet, accepted_at__isnull=False, replaced_at=None)
    return "".join(f"{line}\n" for line in keys.values_list("line", flat=True))


@dataclass(frozen=True, slots=True)
class NodeState:
    """One node as the page shows it. `level` is ok, warn, bad or unknown; `says` what is so, `next` what to do."""

    node: Node
    level: str
    says: str
    next: str = ""
    checked_at: datetime | None = None
    took_s: float | None = None
    python: str = ""
    clock: str = ""
    reached: str = ""  # user@host:port that was tried last


def states(fleet: Fleet, name: str = "") -> list[NodeState]:
    """Every node of a fleet (or the one called `name`), those that need a person first. Three queries at any size."""
    # Only a check asks for all that a node needs: a capture that came through does not make a node ready.
    checks = NodeVisit.objects.filter(node=OuterRef("pk"), run__suite="check")
    last = checks.order_by("-run_id").values("pk")[:1]
    wanted_nodes = fleet.nodes.filter(name=name) if name else fleet.nodes.all()
    nodes = list(wanted_nodes.annotate(last_visit=Subquery(last), last_accepted=Max("host_keys__accepted_at")))
    visits = {visit.node_id: visit for visit in NodeVisit.objects.filter(pk__in=[n.last_visit for n in nodes])}
    runs = {visit.run_id for visit in visits.values()}
    readings: dict[tuple[int, int], list[Reading]] = {}
    wanted = Reading.objects.filter(run_id__in=runs, probe__in=("host.access", "host.clock"))
    for reading in wanted.defer("out", "err"):
        readings.setdefault((reading.run_id, reading.node_id or 0), []).append(reading)
    found = []
    for node in nodes:
        visit = visits.get(node.pk)
        found.append(_state(node, visit, readings.get((visit.run_id, node.pk), []) if visit else []))
    return sorted(found, key=lambda state: (ORDER.index(state.level), state.node.name))


def _state(node: Node, visit: NodeVisit | None, readings: list[Reading]) -> NodeState:
    if visit is None:
        return NodeState(node, "unknown", "not checked yet", "check the fleet")
    if stale := _overtaken(node, visit):
        return NodeState(node, "unknown", stale, "check the fleet", visit.at)
    clock = next((clock_offset(r.facts) for r in readings if r.probe == "host.clock" and r.facts), "")
    level, says, what_next = _judge(visit, readings)
    return NodeState(node, level, says, what_next, visit.at, visit.took_s, visit.python, clock, visit.reached)


def _overtaken(node: Node, visit: NodeVisit) -> str:
    """What happened since the visit that makes its answer old news, or ""."""
    if node.changed_at > visit.at:
        return "changed, not checked since"
    accepted = node.last_accepted  # type: ignore[attr-defined]  # annotated by states()
    if accepted and accepted > visit.at and visit.reason.startswith("host_key"):
        return "key accepted, not checked since"
    return ""


def _judge(visit: NodeVisit, readings: list[Reading]) -> tuple[str, str, str]:
    if visit.reason:
        known = REASONS[visit.reason]
        # The fingerprint stands beside the key that waits, the address in a column of its own: once is enough.
        shown_elsewhere = visit.reason.startswith("host_key") or visit.reason in ABOUT_THE_ADDRESS
        detail = "" if shown_elsewhere else visit.detail
        return "bad", known.says + (f" ({detail})" if detail else ""), known.next
    for reading in readings:
        for finding in reading.findings:
            if finding["code"] == "access.kernel_log":
                said, _, advice = finding["says"].partition(": ")
                return "warn", said, advice
    for reading in readings:
        if reading.outcome not in ("ok", "absent"):
            return "warn", f"{reading.probe}: {reading.outcome}", reading.why
        for finding in reading.findings:
            if finding["code"] == "host.clock_offset":
                return "warn", finding["says"], "fix its time service"
    if visit.took_s > SLOW_S:
        return "warn", f"slow: {visit.took_s:.1f} s for a check", "look at its load, its home directory and the network"
    unsynchronised = any(f["code"] == "host.clock_unsynchronised" for r in readings for f in r.findings)
    return "ok", "ready", "start a time service: its clock is not synchronised" if unsynchronised else ""


def clock_offset(facts: dict[str, float | None]) -> str:
    """What host.clock's facts say of the node's clock against ours: `+1.2 ± 0.3 ms`; "" when nothing."""
    offset, bound = facts.get("offset_s"), facts.get("bound_s")
    if offset is None or bound is None:
        return ""
    if abs(offset) < 0.00005:
        offset = 0.0  # no minus before a rounded zero
    if abs(offset) < 1:
        return f"{offset * 1000:+.1f} ± {bound * 1000:.1f} ms"
    return f"{offset:+.3f} ± {bound:.3f} s"


@dataclass(frozen=True, slots=True)
class Progress:
    """How the latest check stands."""

    run: SuiteRun
    answered: int

    @property
    def running(self) -> bool:
        return self.run.finished_at is None


def latest_check(fleet: Fleet) -> Progress | None:
    """The latest check of this fleet, or None."""
    run = SuiteRun.objects.filter(fleet=fleet, suite="check").first()
    return Progress(run, run.visits.count()) if run else None


def waiting_keys(fleet: Fleet) -> list[HostKey]:
    """Keys that nodes of this fleet showed and nobody accepted, changed ones first."""
    keys = HostKey.objects.select_related("node").filter(node__fleet=fleet, accepted_at=None, replaced_at=None)
    return sorted(keys, key=lambda key: (not key.changed, key.node.name))


def trusted_fingerprints(keys: list[HostKey]) -> dict[int, str]:
    """For nodes whose key changed: the fingerprint of the key that was accepted before, by node."""
    changed = [key.node_id for key in keys if key.changed]
    before = HostKey.objects.filter(node__in=changed, accepted_at__isnull=False, replaced_at=None)
    return dict(before.values_list("node_id", "fingerprint"))


def sizes(fleets: Sequence[Fleet]) -> list[tuple[Fleet, int, int]]:
    """Each fleet with how many nodes it has and how many incidents are open on it. Two queries."""
    nodes = dict(Node.objects.filter(fleet__in=fleets).values_list("fleet").annotate(Count("id")))
    open_ones = Incident.objects.filter(fleet__in=fleets, closed_at=None)
    incidents = dict(open_ones.values_list("fleet").annotate(Count("id")))
    return [(fleet, nodes.get(fleet.pk, 0), incidents.get(fleet.pk, 0)) for fleet in fleets]


def tally(found: list[NodeState]) -> Counter[str]:
    """How many nodes are at each level."""
    return Counter(state.level for state in found)


def keys_of(node: Node) -> list[HostKey]:
    """Every key the node ever showed, the latest first."""
    return list(node.host_keys.select_related("accepted_by").order_by("-offered_at"))


def last_readings(node: Node) -> list[Reading]:
    """The readings of the last run that asked this node, without those that only repeat why it did not answer."""
    last = node.visits.order_by("-run_id").first()
    if last is None:
        return []
    readings = Reading.objects.filter(node=node, run=last.run_id).defer("out")
    return list(readings.exclude(reason=last.reason) if last.reason else readings)
