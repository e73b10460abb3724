"""What is asked without a click: the suspects closer, once per node; all ranks a second time, once."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from incidents.models import Incident, Ranking, SuiteRun
from incidents.services import looking
from incidents.services.diagnosing import judge
from incidents.services.fleet import Login, add_nodes
from probes.core import Reading
from tests.support.evidence import read, stopped_rank, store
from tests.support.fleets import main

pytestmark = [pytest.mark.django_db, pytest.mark.database]


@pytest.fixture
def incident() -> Incident:
    add_nodes(main(), "gpu-[001-002]", Login(), None)
    one = Incident.objects.create(fleet=main(), title="x", t0=timezone.now())
    one.nodes.set(main().nodes.all())
    return one


def without_stacks(node: str) -> list[Reading]:
    """A rank that was seen to be stopped, on a node without py-spy."""
    failed = read(node, "rank.stack", outcome="failed", why="py-spy is not installed")
    return [read(node, "rank.process", "stopped"), failed]


def asked(incident: Incident, suite: str) -> list[list[str]]:
    """The nodes that each run of this suite asks."""
    runs = SuiteRun.objects.filter(incident=incident, suite=suite).order_by("pk")
    return [sorted(run.shards.values_list("nodes__name", flat=True)) for run in runs]


def captured(incident: Incident, ago: timedelta, readings: list[Reading]) -> None:
    run = store(incident, readings, suite="capture")
    SuiteRun.objects.filter(pk=run.pk).update(finished_at=timezone.now() - ago)


class TestSuspects:
    def test_the_node_of_a_suspect_without_stacks_is_asked_closer_and_no_other(self, incident: Incident) -> None:
        store(incident, [*without_stacks("gpu-002"), read("gpu-001", "rank.process", "training")])
        judge(incident.pk)
        assert asked(incident, "suspects") == [["gpu-002"]]
        told = incident.events.filter(kind="suite_started").values_list("payload__suite", "payload__nodes")
        assert list(told) == [("suspects", 1)]

    def test_it_is_asked_once_however_often_it_is_suspected(self, incident: Incident) -> None:
        store(incident, without_stacks("gpu-002"))
        judge(incident.pk)
        store(incident, [*without_stacks("gpu-002"), read("gpu-001", "ib.ports", "h100_five_bad_ports")])
        assert judge(incident.pk) == 1
        assert asked(incident, "suspects") == [["gpu-002"]]

    def test_where_its_stack_was_seen_already_nobody_is_asked(self, incident: Incident) -> None:
        store(incident, stopped_rank("gpu-002"))
        judge(incident.pk)
        assert asked(incident, "suspects") == []

    def test_a_rank_that_works_while_others_wait_is_sampled_though_its_stack_was_seen(self, incident: Incident) -> None:
        store(incident, stopped_rank("gpu-002"))
        busy = {"cause": "fw.rank_busy", "probability": 0.7, "subject": {"rank": 1, "node": "gpu-002"}}
        stopped = {"cause": "fw.rank_stopped", "probability": 0.7, "subject": {"rank": 1, "node": "gpu-002"}}
        assert looking.look_closer(incident, Ranking(body={"hypotheses": [stopped]})) == 0
        assert looking.look_closer(incident, Ranking(body={"hypotheses": [busy]})) == 1
        assert looking.look_closer(incident, Ranking(body={"hypotheses": [busy]})) == 0, "once"
        assert asked(incident, "suspects") == [["gpu-002"]]

    def test_what_is_unlikely_or_no_rank_or_out_of_reach_is_left_alone(self, incident: Incident) -> None:
        unreachable = read("gpu-002", "rank.stack", outcome="unreachable", why="nobody answers")
        store(incident, [read("gpu-001", "ib.ports", "h100_five_bad_ports")])
        judge(incident.pk)
        store(incident, [read("gpu-002", "rank.process", "stopped"), unreachable])
        judge(incident.pk)
        assert asked(incident, "suspects") == []

    def test_a_closed_incident_asks_nobody(self, incident: Incident) -> None:
        store(incident, without_stacks("gpu-002"))
        Incident.objects.filter(pk=incident.pk).update(closed_at=timezone.now())
        judge(incident.pk)
        assert asked(incident, "suspects") == []


class TestTheSecondLook:
    RANKS = "loader-workers"  # a recorded rank.map

    def test_some_seconds_after_the_capture_the_nodes_with_ranks_are_asked_again_once(self, incident: Incident) -> None:
        nowhere = read("gpu-001", "rank.map", outcome="unreachable", why="nobody answers")
        captured(incident, timedelta(seconds=11), [read("gpu-002", "rank.map", self.RANKS), nowhere])
        assert [looking.sweep_second_looks() for _ in range(3)] == [1, 0, 0]
        assert asked(incident, "hang") == [["gpu-002"]]

    def test_of_two_sweepers_that_see_it_at_once_one_asks(self, incident: Incident) -> None:
        captured(incident, timedelta(seconds=11), [read("gpu-002", "rank.map", self.RANKS)])
        assert [looking._look_again(incident.pk) for _ in range(2)] == [1, 0]

    def test_not_before(self, incident: Incident) -> None:
        captured(incident, timedelta(seconds=5), [read("gpu-002", "rank.map", self.RANKS)])
        assert looking.sweep_second_looks() == 0

    def test_without_ranks_or_after_the_end_nobody_is_asked(self, incident: Incident) -> None:
        captured(incident, timedelta(minutes=1), [read("gpu-002", "ib.ports", "h100_connectx7")])
        assert looking.sweep_second_looks() == 0
        store(incident, [read("gpu-002", "rank.map", self.RANKS)], suite="ranks")
        Incident.objects.filter(pk=incident.pk).update(closed_at=timezone.now())
        assert looking.sweep_second_looks() == 0
        Incident.objects.filter(pk=incident.pk).update(closed_at=None)
        assert looking.sweep_second_looks() == 1


class TestTheSetUp:
    def test_once_the_capture_is_over_the_nodes_that_answered_are_asked_how_they_are_set_up(
        self, incident: Incident
    ) -> None:
        nowhere = read("gpu-001", "host.clock", outcome="unreachable", why="nobody answers")
        run = store(incident, [read("gpu-002", "ib.ports", "h100_connectx7"), nowhere], suite="capture")
        SuiteRun.objects.filter(pk=run.pk).update(finished_at=None)
        assert looking.sweep_set_ups() == 0, "what may vanish goes first"
        SuiteRun.objects.filter(pk=run.pk).update(finished_at=timezone.now())
        assert [looking.sweep_set_ups() for _ in range(3)] == [1, 0, 0]
        assert asked(incident, "triage") == [["gpu-002"]]

    def test_neither_a_closed_incident_nor_a_drill_asks(self, incident: Incident) -> None:
        captured(incident, timedelta(seconds=1), [read("gpu-002", "ib.ports", "h100_connectx7")])
        Incident.objects.filter(pk=incident.pk).update(closed_at=timezone.now())
        assert looking.sweep_set_ups() == 0
        Incident.objects.filter(pk=incident.pk).update(closed_at=None)
        incident.fleet.replay = True
        incident.fleet.save()
        assert looking.sweep_set_ups() == 0
