"""Suites asked of nodes: started, claimed by workers, recorded, finished, and taken up again when a worker died.

The database is the truth, the broker only a doorbell: a lost task costs seconds (the sweeper rings again), never a
shard. Celery's own redelivery is not relied on: measured, it is slow and loses tasks of killed processes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from celery import current_app
from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone

from incidents.models import Fleet, Incident, Node, NodeVisit, Reading, Shard, SuiteRun, User
from incidents.models.runs import FILES, VERIFY
from incidents.models.runs import SCAN as SCAN
from incidents.services.fleet import RECORDED, Refused
from incidents.services.timeline import tell
from probes import suites

log = logging.getLogger(__name__)

SHARD_NODES = 64
LEASE = timedelta(seconds=15)  # a worker renews it with every batch and every few seconds between
RING_AGAIN = timedelta(seconds=6)  # after this a shard that nobody took is put into the queue again
MOST_CLAIMS = 4  # a shard that kills its worker each time must not go round for ever
TASK = "incidents.run_shard"
CHECK = "check"  # the suite that checks the fleet
SETTLE = "incidents.settle"
RING_AT_MOST = 64  # shards rung for by one sweep: without workers the queue must not grow for ever


class LeaseLost(Exception):
    """Another worker holds this shard now: what this one still wanted to write is not written."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to ask a shard's nodes, until the lease ends or somebody claims it again."""

    shard_id: int
    run_id: int
    fleet: Fleet
    suite: str
    token: int
    nodes: tuple[Node, ...]  # those still to be asked
    answered: Mapping[str, set[str]]  # probes by node that a worker before us stored: not asked again
    log_paths: tuple[str, ...] = ()  # patterns of log files, of the incident that it is asked for
    incident_id: int | None = None


def open_check(fleet: Fleet) -> SuiteRun | None:
    """The check of this fleet that has not ended, if there is one."""
    return SuiteRun.objects.filter(fleet=fleet, suite=CHECK, finished_at=None).first()


@transaction.atomic
def start_suite(
    suite: str, nodes: Sequence[Node], by: User | None, ring: bool = True, incident: Incident | None = None
) -> SuiteRun:
    """Ask a suite of nodes of one fleet. Workers hear of it when this transaction is committed, or the caller asks."""
    if not nodes:
        raise Refused("There are no nodes to ask. Add nodes to the fleet first.")
    suites.suite_or_probe(suite)
    fleet = incident.fleet if incident is not None else nodes[0].fleet
    if suite == CHECK and fleet.replay:
        raise Refused(RECORDED)
    if suite == CHECK:
        Fleet.objects.select_for_update(no_key=True).get(pk=fleet.pk)  # two people may click at once
    if suite == CHECK and open_check(fleet) is not None:
        raise Refused("A check of the fleet is running already.")
    now = timezone.now()
    run = SuiteRun.objects.create(
        fleet=fleet, suite=suite, incident=incident, started_at=now, started_by=by, node_count=len(nodes)
    )
    shards = []
    for number, begin in enumerate(range(0, len(nodes), SHARD_NODES)):
        shard = Shard.objects.create(run=run, number=number, queued_at=now)
        shard.nodes.set(nodes[begin : begin + SHARD_NODES])
        shards.append(shard.pk)
    if ring:
        ring_workers(shards)
    return run


@transaction.atomic
def start_told(incident: Incident, suite: str, nodes: Sequence[Node], by: User | None, **more: Any) -> SuiteRun:
    """Ask a suite of nodes of an incident, and say so in its timeline; `more` joins what is said. Raises Refused."""
    run = start_suite(suite, nodes, by, incident=incident)
    tell(incident, "suite_started", by, run=run.pk, suite=suite, nodes=len(nodes), **more)
    return run


def ring_workers(ids: Sequence[int], task: str = TASK) -> None:
    """Tell the workers after commit. A broker that is away fails nothing: the sweeper rings again."""

    def send() -> None:
        try:
            for one in ids:
                current_app.send_task(task, [one], retry=False)
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
    shard = Shard.objects.select_related("run__fleet", "run__incident").get(pk=shard_id)
    paths = tuple(shard.run.incident.log_paths) if shard.run.incident else ()
    asked = NodeVisit.objects.filter(run=shard.run_id).values("node_id")
    nodes = tuple(shard.nodes.exclude(pk__in=asked).select_related("fleet"))
    answered: dict[str, set[str]] = {}
    stored = Reading.objects.filter(run=shard.run_id, node__in=nodes)
    for name, probe in stored.values_list("node__name", "probe"):
        answered.setdefault(name, set()).add(probe)
    run = shard.run
    return Claim(shard.pk, run.pk, run.fleet, run.suite, shard.token, nodes, answered, paths, run.incident_id)


@transaction.atomic
def renew(held: Claim) -> None:
    """Say that this worker is alive. Raises LeaseLost when the shard is somebody else's now."""
    hold(held)


def hold(held: Claim) -> None:
    """Renew the lease within a transaction. Raises LeaseLost when the shard is somebody else's now."""
    mine = Shard.objects.filter(pk=held.shard_id, token=held.token, finished_at=None)
    if not mine.update(lease_until=timezone.now() + LEASE):
        raise LeaseLost(f"shard {held.shard_id} was taken over by another worker")


@transaction.atomic
def finish_shard(held: Claim) -> None:
    """Every node of the shard has ended. With its last shard the run is finished.

    Raises LeaseLost, and RuntimeError while a node has not ended: then the lease runs out and the shard is taken again.
    """
    hold(held)
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
        if ended and run.incident is not None and run.suite != FILES:
            answered = run.visits.filter(reason="").count()
            tell(run.incident, "suite_ended", run=run.pk, suite=run.suite, answered=answered, nodes=run.node_count)
            if run.suite in (SCAN, VERIFY):
                ring_workers([run.incident.pk], SETTLE)


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
        ring_workers(shard_ids)
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
