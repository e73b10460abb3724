"""What came back from nodes becomes rows: a batch at a time, one sealed event per batch of an incident."""

from __future__ import annotations

import hashlib
import logging
import zlib
from collections.abc import Sequence
from datetime import datetime

from django.db import DataError, transaction
from django.utils import timezone

from incidents.models import Incident, Node, NodeVisit, Reading, SuiteRun
from incidents.services.diagnosing import ring_on_commit
from incidents.services.fleet import offer_key
from incidents.services.runs import Claim, hold
from incidents.services.timeline import tell
from probes.core import Reading as Read
from probes.core import clean, finding_as_json
from probes.transport import NodeEnd

log = logging.getLogger(__name__)


@transaction.atomic
def record(held: Claim, readings: Sequence[Read], ends: Sequence[NodeEnd]) -> None:
    """Store a batch. Rows that are there already (a shard asked twice) stay as they were; nodes that were taken out of
    the fleet meanwhile are left out. Raises LeaseLost."""
    hold(held)
    # The incident's row first, as everybody who asks nodes for it does; and so its readings get their numbers in the
    # order of their commits, which who judges "up to number n" counts on.
    list(Incident.objects.select_for_update(of=("self",)).filter(runs=held.run_id).values_list("pk"))
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
    ring_on_commit(run.incident.pk)


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
        detail=text(end.detail),
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
        why=text(reading.parse_error or capture.why),
        facts=plain(reading.facts_json),
        findings=plain([finding_as_json(finding) for finding in reading.findings]),
        out=zlib.compress(capture.out, 1),
        sha256=hashlib.sha256(capture.out).hexdigest(),
        truncated=capture.truncated,
        err=text(capture.err),
        node_at=capture.at,
        node_mono=capture.mono,
        boot_id=capture.boot_id,
        state=capture.state,
        wchan=capture.wchan,
        took_s=capture.took_s,
        recorded_at=now,
    )


def text(said: str) -> str:
    """A sentence that is kept: without what a terminal would obey, and not for ever."""
    return clean(said)[:4000]


def plain(value: object) -> object:
    """Node text inside facts cleaned too: PostgreSQL refuses NUL in JSON, and surrogates anywhere."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value
