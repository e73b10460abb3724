"""Celery's edge: an id comes in, a service does the work."""

import logging

from celery import shared_task
from django.db import close_old_connections

from incidents import asking, filing, mending
from incidents.models.runs import FILES
from incidents.services import actions, diagnosing, runs, scoping, verifying

log = logging.getLogger(__name__)


@shared_task(name=runs.TASK)
def run_shard(shard_id: int) -> None:
    """Ask one shard's nodes, or read the files that people brought. Safe to be delivered twice: one gets the lease."""
    close_old_connections()
    held = runs.claim(shard_id)
    if held is None:
        return
    try:
        if held.suite == FILES:
            filing.read_files(held)
        else:
            asking.ask_shard(held)
    except runs.LeaseLost as lost:
        log.warning("%s", lost)


@shared_task(name=diagnosing.TASK)
def judge(incident_id: int) -> None:
    """Judge what is new in an incident. Safe to be delivered twice: only who gets the lease judges."""
    close_old_connections()
    diagnosing.judge(incident_id)


@shared_task(name=runs.SETTLE)
def settle(incident_id: int) -> None:
    """A look at the fleet for a job has ended, or one whether training advances. Safe to be delivered twice."""
    close_old_connections()
    scoping.settle_scan(incident_id)
    verifying.settle_looks(incident_id)


@shared_task(name=actions.TASK)
def act(action_id: int) -> None:
    """Run a command that people chose. Safe to be delivered twice: only who begins it runs it."""
    close_old_connections()
    mending.mend(action_id)
