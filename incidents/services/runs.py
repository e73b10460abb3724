"""Suites asked of nodes: started, claimed by workers, recorded, finished, and taken up again when a worker died.

The database is the truth, the broker only a doorbell: a lost task costs seconds (the sweeper rings again), never a
shard. Celery's own redelivery is not relied on: measured, it is slow and loses tasks of killed processes.
"""

from __future__ import annotations

import hashlib
import logging
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from celery import current_app
from django.db import DataError, transaction
from django.db.models import F, Q
from django.utils import timezone

from incidents.models import Incident, Node, NodeVisit, Reading, Shard, SuiteRun, User
from incidents.services.fleet import Refused, offer_key
from incidents.services.timeline import tell
from probes import suites
from probes.core import Reading as Read
from probes.core import clean
from probes.transport import NodeEnd

log = logging.getLogger(__name__)

SHARD_NODES = 64
LEASE = timedelta(seconds=15)  # a worker renews it with every batch and every few seconds between
RING_AGAIN = timedelta(seconds=6)  # after this a shard that nobody took is put into the queue again
MOST_CLAIMS = 4  # a shard that kills its worker each time must not go round for ever
TASK = "incidents.run_shard"
CHECK = "check"  # the suite that checks the fleet
RING_AT_MOST = 64  # shards rung for by one sweep: without workers the queue must not grow for ever


class LeaseLost(Exception):
    """Another worker holds this shard now: what this one still wanted to write is not written."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to ask a shard's nodes, until the lease ends or somebody claims it again."""

    shard_id: int
    run_id: int
    suite: str
    token: int
    nodes: tuple[Node, ...]  # those still to be asked
    answered: Mapping[str, set[str]]  # probes by node that a worker before us stored: not asked again


def open_check() -> SuiteRun | None:
    """The check of the fleet that has not ended, if there is one."""
    return SuiteRun.objects.filter(suite=CHECK, finished_at=None).first()


@transaction.atomic
def start_suite(
    suite: str, nodes: Sequence[Node], by: User | None, ring: bool = True, incident: Incident | None = None
) -> SuiteRun:
    """Ask a suite of these nodes. Workers hear of it when this transaction is committed, unless the caller asks."""
    if not nodes:
        raise Refused("There are no nodes to ask. Add nodes to the fleet first.")
    suites.suite_or_probe(suite)
    if suite == CHECK and open_check() is not None:
        raise Refused("A check of the fleet is running already.")
    now = timezone.now()
    run = SuiteRun.objects.create(suite=suite, incident=incident, started_at=now, started_by=by, node_count=len(nodes))
    shards = []
    for number, begin in enumerate(range(0, len(nodes), SHARD_NODES)):
        shard = Shard.objects.create(run=run, number=number, queued_at=now)
        shard.nodes.set(nodes[begin : begin + SHARD_NODES])
        shards.append(shard.pk)
    if ring:
        _ring(shards)
    return run


def _ring(shard_ids: Sequence[int]) -> None:
    """Tell the workers after commit. A broker that is away fails nothing: the sweeper rings again."""

    def send() -> None:
        try:
            for shard_id in shard_ids:
                current_app.send_task(TASK, [shard_id], retry=False)
        except Exception as error:  # whatever the broker's client raises: the rows are there, the sweeper finds them
            log.warning("the broker does not answer (%s): what waits is started by the sweeper", error)

    transaction.on_commit(send)


@transaction.atomic
def claim(shard_id: int) -> Claim | None:
    """Take a shard that is free or whose worker stopped renewing; None when there is nothing to do.

    The conditional update decides between two workers, not the read before it.
    """
    now = timezone.now()
    free = Q(lease_until=None) | Q(lease_until__lt=now)
    taken = Shard.objects.filter(free, pk=shard_id, finished_at=None, token__lt=MOST_CLAIMS)
    if not taken.update(token=F("token") + 1, lease_until=now + LEASE):
        return None
    shard = Shard.objects.select_related("run").get(pk=shard_id)
    asked = NodeVisit.objects.filter(run=shard.run_id).values("node_id")
    nodes = tuple(shard.nodes.exclude(pk__in=asked))
    answered: dict[str, set[str]] = {}
    stored = Reading.objects.filter(run=shard.run_id, node__in=nodes)
    for name, probe in stored.values_list("node__name", "probe"):
        answered.setdefault(name, set()).add(probe)
    return Claim(shard.pk, shard.run_id, shard.run.suite, shard.token, nodes, answered)


@transaction.atomic
def renew(held: Claim) -> None:
    """Say that this worker is alive. Raises LeaseLost when the shard is somebody else's now."""
    _hold(held)


def _hold(held: Claim) -> None:
    mine = Shard.objects.filter(pk=held.shard_id, token=held.token, finished_at=None)
    if not mine.update(lease_until=timezone.now() + LEASE):
        raise LeaseLost(f"shard {held.shard_id} was taken over by another worker")


@transaction.atomic
def record(held: Claim, readings: Sequence[Read], ends: Sequence[NodeEnd]) -> None:
    """Store a batch. Rows that are there already (a shard asked twice) stay as they were; nodes that were taken out of
    the fleet meanwhile are left out. Raises LeaseLost."""
    _hold(held)
    now = timezone.now()
    ids = {node.name: node.pk for node in held.nodes}
    # Locked in the order of their keys: two runs over the same nodes must not wait for each other in a circle.
    locked = Node.objects.select_for_update().filter(pk__in=ids.values()).order_by("pk")
    there = set(locked.values_list("pk", flat=True))
    rows = [_reading_row(held.run_id, ids[r.capture.node], r, now) for r in readings if ids[r.capture.node] in there]
    visits = [_visit_row(held.run_id, ids[end.node], end, now) for end in ends if ids[end.node] in there]
    _store(Reading, rows)
    _store(NodeVisit, visits)
    for end in sorted(ends, key=lambda end: ids[end.node]):
        if end.offered_key and ids[end.node] in there:
            offer_key(ids[end.node], end.offered_key, end.fingerprint, end.reason == "host_key_changed")
    _tell_batch(held, rows, visits)


def _tell_batch(held: Claim, rows: Sequence[Reading], visits: Sequence[NodeVisit]) -> None:
    """One event for the whole batch: which readings, and the hash of their content, so that they cannot be changed
    without it being seen. Outside an incident there is nothing to tell."""
    run = SuiteRun.objects.select_related("incident").get(pk=held.run_id)
    if run.incident is None:
        return
    content = "".join(sorted(f"{row.node_id} {row.probe} {row.outcome} {row.sha256}\n" for row in rows))
    tell(
        run.incident,
        "readings",
        run=run.pk,
        readings=[[row.node_id, row.probe] for row in rows],
        ended=[visit.node_id for visit in visits],
        digest=hashlib.sha256(content.encode()).hexdigest(),
    )


def _store(model: type[Reading] | type[NodeVisit], rows: Sequence[Reading | NodeVisit]) -> None:
    """All rows at once; if the database refuses one, each alone, so that one node's nonsense costs only its own row."""
    try:
        with transaction.atomic():
            model.objects.bulk_create(rows, batch_size=200, ignore_conflicts=True)  # type: ignore[arg-type]
    except (DataError, ValueError) as error:
        log.warning("a row could not be stored (%s): storing one by one", error)
        for row in rows:
            _store_alone(model, row)


def _store_alone(model: type[Reading] | type[NodeVisit], row: Reading | NodeVisit) -> None:
    try:
        with transaction.atomic():
            model.objects.bulk_create([row], ignore_conflicts=True)  # type: ignore[list-item]
    except (DataError, ValueError) as error:
        plain = row.without_nodes_words(f"the answer could not be stored: {str(error)[:200]}")
        with transaction.atomic():
            model.objects.bulk_create([plain], ignore_conflicts=True)  # type: ignore[list-item]


def _visit_row(run_id: int, node_id: int, end: NodeEnd, now: datetime) -> NodeVisit:
    return NodeVisit(
        run_id=run_id,
        node_id=node_id,
        at=now,
        reason=end.reason,
        detail=_text(end.detail),
        took_s=end.took_s,
        connect_s=end.connect_s,
        tries=end.tries,
        python=end.python,
        reached=end.reached,
    )


def _reading_row(run_id: int, node_id: int, reading: Read, now: datetime) -> Reading:
    capture = reading.capture
    return Reading(
        run_id=run_id,
        node_id=node_id,
        probe=capture.probe,
        outcome=reading.outcome,
        reason=capture.reason,
        why=_text(reading.parse_error or capture.why),
        facts=_json(reading.facts_json),
        findings=_json(
            [
                {"code": f.code, "severity": f.severity, "says": f.says, "subject": dict(f.subject)}
                for f in reading.findings
            ]
        ),
        out=zlib.compress(capture.out, 1),
        sha256=hashlib.sha256(capture.out).hexdigest(),
        truncated=capture.truncated,
        err=_text(capture.err),
        node_at=capture.at,
        node_mono=capture.mono,
        boot_id=capture.boot_id,
        state=capture.state,
        wchan=capture.wchan,
        took_s=capture.took_s,
        recorded_at=now,
    )


def _text(text: str) -> str:
    return clean(text)[:4000]


def _json(value: object) -> object:
    """Node text inside facts cleaned too: PostgreSQL refuses NUL in JSON, and surrogates anywhere."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(str(key)): _json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_json(item) for item in value]
    return value


@transaction.atomic
def finish_shard(held: Claim) -> None:
    """Every node of the shard has ended. With its last shard the run is finished.

    Raises LeaseLost, and RuntimeError while a node has not ended: then the lease runs out and the shard is taken again.
    """
    _hold(held)
    ended = NodeVisit.objects.filter(run=held.run_id).values("node_id")
    if open_nodes := Shard.objects.get(pk=held.shard_id).nodes.exclude(pk__in=ended).count():
        raise RuntimeError(f"shard {held.shard_id} was to be finished, but {open_nodes} of its nodes have not ended")
    _close(held.shard_id, held.run_id)


def _close(shard_id: int, run_id: int) -> None:
    now = timezone.now()
    # The run's row is locked first, so that of two last shards finishing at once one sees the other's end.
    run = SuiteRun.objects.select_for_update(of=("self",)).select_related("incident").get(pk=run_id)
    Shard.objects.filter(pk=shard_id).update(finished_at=now, lease_until=None)
    if not Shard.objects.filter(run=run_id, finished_at=None).exists():
        ended = SuiteRun.objects.filter(pk=run_id, finished_at=None).update(finished_at=now)
        if ended and run.incident is not None:
            answered = run.visits.filter(reason="").count()
            tell(run.incident, "suite_ended", run=run.pk, suite=run.suite, answered=answered, nodes=run.node_count)


def sweep_shards() -> int:
    """Ring again for shards that nobody holds; give up those that were claimed too often. Returns how many."""
    free = Q(lease_until=None) | Q(lease_until__lt=timezone.now())
    rung_before = Q(queued_at__lt=timezone.now() - RING_AGAIN)
    waiting = Shard.objects.filter(free & rung_before, finished_at=None)
    spent = sum(_give_up(shard_id) for shard_id in waiting.filter(token__gte=MOST_CLAIMS).values_list("pk", flat=True))
    return spent + _ring_again(list(waiting.filter(token__lt=MOST_CLAIMS).values_list("pk", flat=True)[:RING_AT_MOST]))


@transaction.atomic
def _ring_again(shard_ids: list[int]) -> int:
    Shard.objects.filter(pk__in=shard_ids).update(queued_at=timezone.now())
    if shard_ids:
        _ring(shard_ids)
    return len(shard_ids)


@transaction.atomic
def _give_up(shard_id: int) -> int:
    """Each worker that took this shard died. Its open nodes are said to be not known, and the run may end."""
    now = timezone.now()
    unheld = Q(lease_until=None) | Q(lease_until__lt=now)  # asked again under the lock: its worker may have renewed
    shard = Shard.objects.select_for_update().filter(unheld, pk=shard_id, finished_at=None).first()
    if shard is None:
        return 0
    asked = NodeVisit.objects.filter(run=shard.run_id).values("node_id")
    open_nodes: Iterable[Node] = shard.nodes.exclude(pk__in=asked)
    visits = [
        NodeVisit(
            run_id=shard.run_id,
            node=node,
            at=now,
            reason="asker_lost",
            detail=f"{MOST_CLAIMS} in a row",
            took_s=0,
            connect_s=0,
            tries=0,
        )
        for node in open_nodes
    ]
    NodeVisit.objects.bulk_create(visits, ignore_conflicts=True)
    _close(shard.pk, shard.run_id)
    return 1
