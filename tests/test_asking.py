"""From a claimed shard to rows: a whole suite on real nodes, and what happens when asking itself fails."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from incidents import asking
from incidents.models import Node, Reading, Shard, SuiteRun
from incidents.services import recording, runs
from incidents.services.fleet import Login, add_nodes
from incidents.tasks import run_shard
from probes import suites
from probes.core import Capture
from probes.core import Reading as Read
from probes.transport import ssh
from tests.support.fleets import main
from tests.support.sshd_nodes import Lab, free_port

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]


@pytest.fixture(autouse=True)
def workers_use_the_labs_configuration(lab: Lab, settings: Any) -> None:
    settings.SSH_CONFIG = str(lab.config)


def started(suite: str) -> tuple[SuiteRun, Shard]:
    run = runs.start_suite(suite, list(Node.objects.all()), None, ring=False)
    return run, run.shards.get()


def test_a_whole_suite_ends_up_in_rows_with_facts(lab: Lab) -> None:
    lab.start("gpu-001")
    lab.name("gpu-002", lab.address(), free_port())
    add_nodes(main(), "gpu-[001-002]", Login(), None)
    run, shard = started("capture")
    run_shard(shard.pk)
    run.refresh_from_db()
    assert run.finished_at is not None
    probes = set(suites.SUITES["capture"].probes)
    assert set(run.readings.filter(node__name="gpu-001").values_list("probe", flat=True)) == probes
    load = Reading.objects.get(node__name="gpu-001", probe="host.load")
    assert load.outcome == "ok"
    assert load.facts
    assert load.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    down = run.readings.filter(node__name="gpu-002")
    assert {reading.outcome for reading in down} == {"unreachable"}
    assert {reading.reason for reading in down} == {"refused"}
    assert down.count() == len(probes)


def test_a_shard_delivered_twice_is_asked_once(lab: Lab) -> None:
    lab.start("gpu-001")
    add_nodes(main(), "gpu-001", Login(), None)
    run, shard = started("check")
    run_shard(shard.pk)
    before = list(Reading.objects.values_list("recorded_at", flat=True))
    run_shard(shard.pk)
    assert list(Reading.objects.values_list("recorded_at", flat=True)) == before


def test_what_a_dead_worker_had_stored_is_not_asked_again(lab: Lab) -> None:
    lab.start("gpu-001")
    add_nodes(main(), "gpu-001", Login(), None)
    run, shard = started("check")
    dead = runs.claim(shard.pk)
    assert dead is not None
    kept = Capture("gpu-001", "host.clock", "failed", b"from the first worker", why="kept")
    recording.record(dead, [Read(kept)], [])
    Shard.objects.filter(pk=shard.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
    next_one = runs.claim(shard.pk)
    assert next_one is not None
    assert next_one.answered == {"gpu-001": {"host.clock"}}
    asking.ask_shard(next_one)
    assert {r.probe: r.why for r in run.readings.all()} == {"host.access": "", "host.clock": "kept"}
    run.refresh_from_db()
    assert run.finished_at is not None


def test_when_asking_itself_fails_the_shard_stays_open_for_the_next_worker(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_nodes(main(), "gpu-001", Login(), None)
    run, shard = started("check")

    async def fails(*_: Any) -> Any:
        raise RuntimeError("no more file handles")
        yield

    with monkeypatch.context() as patch:
        patch.setattr(ssh, "ask", fails)
        with pytest.raises(RuntimeError, match="file handles"):
            run_shard(shard.pk)
    run.refresh_from_db()
    assert run.finished_at is None
    assert not Reading.objects.exists()


def test_a_worker_that_lost_its_lease_stops_asking(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.start("gpu-001")
    add_nodes(main(), "gpu-001", Login(), None)
    _, shard = started("check")
    held = runs.claim(shard.pk)
    assert held is not None
    Shard.objects.filter(pk=shard.pk).update(token=held.token + 1)
    with pytest.raises(runs.LeaseLost):
        asking.ask_shard(held)
    assert not Reading.objects.exists()
