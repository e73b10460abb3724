"""A suite run in the database: leased shards, fencing tokens, and what happens when workers die."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import DataError, connection
from django.utils import timezone

from incidents.models import Node, NodeVisit, Reading, Shard, SuiteRun
from incidents.services import recording, runs
from incidents.services.fleet import Login, Refused, add_nodes
from probes import suites
from probes.core import Capture
from probes.core import Reading as Read
from probes.transport import NodeEnd
from tests.support.fleets import main

pytestmark = [pytest.mark.django_db, pytest.mark.database]


@pytest.fixture
def rung(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Shard ids for which workers were rung."""
    rung: list[int] = []
    monkeypatch.setattr(runs.current_app, "send_task", lambda name, args, **_: rung.extend(args))
    return rung


@pytest.fixture
def run(rung: list[int]) -> SuiteRun:
    add_nodes(main(), "gpu-[001-003]", Login(), None)
    return runs.start_suite("check", list(Node.objects.all()), None)


def read(node: str, probe: str = "host.clock", **how: Any) -> Read:
    return Read(Capture(node, probe, "unreachable", why="refused", reason="refused", **how))


def expire(shard: Shard) -> None:
    Shard.objects.filter(pk=shard.pk).update(
        lease_until=timezone.now() - timedelta(seconds=1), queued_at=timezone.now() - timedelta(minutes=1)
    )


def test_a_run_is_cut_into_shards_and_workers_are_rung_after_commit(
    rung: list[int], django_capture_on_commit_callbacks: Any
) -> None:
    add_nodes(main(), "gpu-[001-130]", Login(), None)
    with django_capture_on_commit_callbacks(execute=True):
        run = runs.start_suite("check", list(Node.objects.all()), None)
        assert rung == []
    assert [shard.nodes.count() for shard in run.shards.all()] == [64, 64, 2]
    assert rung == list(run.shards.values_list("pk", flat=True))


def test_a_broker_that_is_away_fails_nothing(
    monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    def away(*_: Any, **__: Any) -> None:
        raise ConnectionError("no broker")

    monkeypatch.setattr(runs.current_app, "send_task", away)
    add_nodes(main(), "gpu-001", Login(), None)
    with django_capture_on_commit_callbacks(execute=True):
        run = runs.start_suite("check", list(Node.objects.all()), None)
    assert run.shards.count() == 1


def test_no_nodes_or_an_unknown_suite_start_nothing() -> None:
    with pytest.raises(Refused, match="no nodes"):
        runs.start_suite("check", [], None)
    add_nodes(main(), "gpu-001", Login(), None)
    with pytest.raises(suites.Unknown, match="no suite"):
        runs.start_suite("nonsense", list(Node.objects.all()), None)
    assert not SuiteRun.objects.exists()


def test_of_two_workers_one_gets_the_shard(run: SuiteRun) -> None:
    shard = run.shards.get()
    first = runs.claim(shard.pk)
    assert first is not None and len(first.nodes) == 3
    assert runs.claim(shard.pk) is None


def test_a_worker_thought_dead_cannot_write_any_more(run: SuiteRun) -> None:
    shard = run.shards.get()
    slow = runs.claim(shard.pk)
    assert slow is not None
    expire(shard)
    quick = runs.claim(shard.pk)
    assert quick is not None and quick.token == slow.token + 1
    with pytest.raises(runs.LeaseLost):
        recording.record(slow, [read("gpu-001")], [])
    with pytest.raises(runs.LeaseLost):
        runs.renew(slow)
    with pytest.raises(runs.LeaseLost):
        runs.finish_shard(slow)
    assert not Reading.objects.exists()


def test_nodes_that_ended_are_not_asked_again_by_the_next_worker(run: SuiteRun) -> None:
    shard = run.shards.get()
    first = runs.claim(shard.pk)
    assert first is not None
    recording.record(first, [read("gpu-002")], [NodeEnd("gpu-002", "refused")])
    expire(shard)
    second = runs.claim(shard.pk)
    assert second is not None
    assert [node.name for node in second.nodes] == ["gpu-001", "gpu-003"]


def test_an_answer_stored_twice_is_stored_once_and_the_first_stands(run: SuiteRun) -> None:
    held = runs.claim(run.shards.get().pk)
    assert held is not None
    recording.record(held, [read("gpu-001", took_s=1.0)], [NodeEnd("gpu-001", "refused")])
    recording.record(held, [read("gpu-001", took_s=2.0)], [NodeEnd("gpu-001", "lost")])
    assert [reading.took_s for reading in Reading.objects.all()] == [1.0]
    assert [visit.reason for visit in NodeVisit.objects.all()] == ["refused"]


def test_the_run_is_finished_with_its_last_shard(rung: list[int]) -> None:
    add_nodes(main(), "gpu-[001-070]", Login(), None)
    run = runs.start_suite("check", list(Node.objects.all()), None)
    held = [runs.claim(shard.pk) for shard in run.shards.all()]
    for claim in held:
        run.refresh_from_db()
        assert run.finished_at is None
        assert claim is not None
        with pytest.raises(RuntimeError, match="have not ended"):
            runs.finish_shard(claim)
        recording.record(claim, [], [NodeEnd(node.name, "refused") for node in claim.nodes])
        runs.finish_shard(claim)
    run.refresh_from_db()
    assert run.finished_at is not None


def test_the_sweeper_rings_again_for_a_shard_whose_worker_died(
    run: SuiteRun, rung: list[int], django_capture_on_commit_callbacks: Any
) -> None:
    shard = run.shards.get()
    runs.claim(shard.pk)
    rung.clear()
    assert runs.sweep_shards() == 0, "a live lease is left alone"
    expire(shard)
    with django_capture_on_commit_callbacks(execute=True):
        assert runs.sweep_shards() == 1
    assert rung == [shard.pk]
    assert runs.sweep_shards() == 0, "rung a moment ago: not again at once"


def test_a_shard_that_kills_every_worker_ends_and_says_so(run: SuiteRun) -> None:
    shard = run.shards.get()
    for _ in range(runs.MOST_CLAIMS):
        assert runs.claim(shard.pk) is not None
        expire(shard)
    assert runs.claim(shard.pk) is None
    assert runs.sweep_shards() == 1
    run.refresh_from_db()
    assert run.finished_at is not None
    assert {visit.reason for visit in NodeVisit.objects.all()} == {"asker_lost"}
    assert NodeVisit.objects.count() == 3


def test_hostile_text_from_a_node_is_stored_cleaned_and_its_raw_bytes_kept(run: SuiteRun) -> None:
    import hashlib
    import zlib

    held = runs.claim(run.shards.get().pk)
    assert held is not None
    raw = b"nul\0 \x1b[31mred \xff\xfe"
    nasty = "nul\0 \x1b[31mred \ud800 <script>"
    capture = Capture("gpu-001", "host.clock", "ok", raw, err=nasty, why=nasty)
    recording.record(held, [Read(capture, facts_json={"k\0": [nasty, {"deep": nasty}]})], [])
    stored = Reading.objects.get()
    assert stored.facts == {"k␀": ["nul␀ red � <script>", {"deep": "nul␀ red � <script>"}]}
    assert stored.why == "nul␀ red � <script>"
    assert zlib.decompress(stored.out) == raw
    assert stored.sha256 == hashlib.sha256(raw).hexdigest()


def test_one_answer_that_the_database_refuses_costs_only_itself(run: SuiteRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """PostgreSQL refuses what is too long for a column; SQLite takes it, so here the refusal is made."""
    held = runs.claim(run.shards.get().pk)
    assert held is not None
    if connection.vendor == "sqlite":
        whole = Reading.objects.bulk_create

        def strict(rows: Any, **how: Any) -> Any:
            if any(len(row.wchan) > 128 for row in rows):
                raise DataError("value too long")
            return whole(rows, **how)

        monkeypatch.setattr(Reading.objects, "bulk_create", strict)
    too_long = Read(Capture("gpu-001", "host.clock", "ok", b"raw", wchan="x" * 500))
    recording.record(held, [too_long, read("gpu-002")], [NodeEnd("gpu-001"), NodeEnd("gpu-002", "refused")])
    assert Reading.objects.get(node__name="gpu-002").outcome == "unreachable"
    kept = Reading.objects.get(node__name="gpu-001")
    assert kept.outcome == "failed"
    assert "could not be stored" in kept.why
    assert NodeVisit.objects.count() == 2


def test_a_node_taken_out_during_a_run_costs_the_others_nothing(run: SuiteRun) -> None:
    held = runs.claim(run.shards.get().pk)
    assert held is not None
    Node.objects.get(name="gpu-001").delete()
    recording.record(
        held, [read(node.name) for node in held.nodes], [NodeEnd(node.name, "refused") for node in held.nodes]
    )
    runs.finish_shard(held)
    assert sorted(Reading.objects.values_list("node__name", flat=True)) == ["gpu-002", "gpu-003"]
    run.refresh_from_db()
    assert run.finished_at is not None


def test_a_worker_that_renewed_in_the_last_moment_is_not_given_up(run: SuiteRun) -> None:
    shard = run.shards.get()
    for _ in range(runs.MOST_CLAIMS - 1):
        assert runs.claim(shard.pk) is not None
        expire(shard)
    held = runs.claim(shard.pk)
    assert held is not None
    assert runs._give_up(shard.pk) == 0
    runs.renew(held)


def test_a_second_check_is_refused_while_one_runs(run: SuiteRun) -> None:
    with pytest.raises(Refused, match="running already"):
        runs.start_suite("check", list(Node.objects.all()), None)
    assert SuiteRun.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_two_runs_over_the_same_nodes_do_not_lock_each_other_out(rung: list[int]) -> None:
    """Both store the offered keys of the same nodes, in opposite order."""
    add_nodes(main(), "gpu-[001-040]", Login(), None)
    nodes = list(Node.objects.all())
    held = []
    for suite in ("check", "host.clock"):
        run = runs.start_suite(suite, nodes, None, ring=False)
        held.append(runs.claim(run.shards.get().pk))
    ends = [NodeEnd(node.name, "host_key_unknown", offered_key=f"{node.name} ssh-ed25519 AAAA") for node in nodes]
    together = threading.Barrier(2)
    failures: list[BaseException] = []

    def store(claim: Any, order: list[NodeEnd]) -> None:
        try:
            together.wait(10)
            recording.record(claim, [], order)
        except BaseException as error:
            failures.append(error)
        finally:
            connection.close()

    threads = [
        threading.Thread(target=store, args=(held[0], ends)),
        threading.Thread(target=store, args=(held[1], ends[::-1])),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert NodeVisit.objects.count() == 80
