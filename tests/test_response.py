"""The life of an incident: declared with one field, captured by itself, moved on with a word."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F

from incidents.models import Event, Incident, Node, User
from incidents.queries.timeline import broken_links
from incidents.services import response
from incidents.services.fleet import Login, Refused, add_nodes, remove_nodes
from incidents.tasks import run_shard
from tests.support.fleets import main
from tests.support.sshd_nodes import Lab, free_port

pytestmark = [pytest.mark.django_db, pytest.mark.database, pytest.mark.usefixtures("rung")]


@pytest.fixture
def ada() -> User:
    return User.objects.create(username="ada")


@pytest.fixture
def sam() -> User:
    return User.objects.create(username="sam")


def kinds(incident: Incident) -> list[str]:
    return list(incident.events.values_list("kind", flat=True))


def test_one_field_opens_an_incident_and_capture_starts_with_the_commit(
    ada: User, rung: list[int], django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        incident = response.declare(main(), "gpu-[001-130]", ada)
        assert rung == []
    assert incident.nodes.count() == 130, "nodes that the fleet does not have yet are added"
    assert rung == list(incident.runs.get().shards.values_list("pk", flat=True))
    assert kinds(incident) == ["declared", "suite_started"]
    assert incident.commander == ada
    due = {phase.name: phase.due_at - incident.t0 for phase in incident.phases.all()}
    assert due == {"capture": timedelta(minutes=3), "triage": timedelta(minutes=8), "decide": timedelta(minutes=15)}
    assert list(broken_links(incident)) == []


def test_a_known_job_name_is_enough(ada: User) -> None:
    add_nodes(main(), "gpu-[001-004]", Login(), ada)
    response.save_job(main(), "llm-70b-run7", list(Node.objects.filter(name__in=["gpu-001", "gpu-003"])))
    incident = response.declare(main(), "llm-70b-run7", ada)
    assert sorted(incident.nodes.values_list("name", flat=True)) == ["gpu-001", "gpu-003"]
    assert incident.title == "llm-70b-run7 does not advance"
    assert incident.job is not None


@pytest.mark.parametrize("what", ["", "a job nobody knows; really", "gpu-[1-"])
def test_what_is_neither_a_job_nor_nodes_opens_nothing(ada: User, what: str) -> None:
    with pytest.raises(Refused, match="no job that is known here"):
        response.declare(main(), what, ada)
    assert not Incident.objects.exists()
    assert not Event.objects.exists()


def test_a_phase_ends_with_a_word_and_the_next_one_begins(ada: User) -> None:
    incident = response.declare(main(), "gpu-001", ada)
    incident = response.advance(incident, ada, "all nodes answered")
    phases = {phase.name: phase for phase in incident.phases.all()}
    assert phases["capture"].ended_at == phases["triage"].started_at
    event = incident.events.last()
    assert event is not None
    assert (event.kind, event.actor) == ("phase", ada)
    assert event.payload == {"of": "capture", "to": "triage", "word": "all nodes answered"}
    incident = response.advance(incident, ada, "verdict accepted")
    with pytest.raises(Refused, match="last phase"):
        response.advance(incident, ada, "more")


def test_a_phase_does_not_end_without_a_word(ada: User) -> None:
    with pytest.raises(Refused, match="Say in a word"):
        response.advance(response.declare(main(), "gpu-001", ada), ada, "  ")


def test_of_two_people_who_move_at_once_one_wins_and_the_other_is_told(ada: User, sam: User) -> None:
    incident = response.declare(main(), "gpu-001", ada)
    seen_by_sam = Incident.objects.get(pk=incident.pk)
    response.advance(incident, ada, "all nodes answered")
    with pytest.raises(Refused, match="ada moved INC-"):
        response.advance(seen_by_sam, sam, "all nodes answered")
    assert kinds(incident).count("phase") == 1


def test_the_same_move_sent_twice_is_done_once_and_nobody_is_blamed(ada: User) -> None:
    incident = response.declare(main(), "gpu-001", ada)
    seen = Incident.objects.get(pk=incident.pk)
    response.advance(incident, ada, "all nodes answered ")
    assert response.advance(seen, ada, "all nodes answered").phase == "triage"
    assert kinds(incident).count("phase") == 1
    seen.phase = "capture"
    with pytest.raises(Refused, match="moved INC-"):
        response.advance(seen, ada, "another reason")


def test_a_phase_over_its_time_is_told_once_and_blocks_nothing(ada: User) -> None:
    incident = response.declare(main(), "gpu-001", ada)
    assert response.tell_overdue() == 0
    incident.phases.update(due_at=F("due_at") - timedelta(minutes=4))
    assert [response.tell_overdue(), response.tell_overdue()] == [1, 0]
    event = incident.events.last()
    assert event is not None
    assert (event.kind, event.actor, event.payload) == ("overdue", None, {"phase": "capture"})
    incident = response.advance(Incident.objects.get(), ada, "all nodes answered")
    assert response.tell_overdue() == 0, "the next phase is due four minutes from now"


def test_a_phase_that_ended_late_between_two_sweeps_was_overdue_all_the_same(ada: User) -> None:
    incident = response.declare(main(), "gpu-001", ada)
    incident.phases.filter(name="capture").update(due_at=F("due_at") - timedelta(minutes=4))
    response.advance(incident, ada, "late")
    assert kinds(incident)[-2:] == ["overdue", "phase"]
    assert response.tell_overdue() == 0


def test_of_two_who_take_command_at_once_the_second_is_told(ada: User, sam: User) -> None:
    incident = response.declare(main(), "gpu-001", None)
    response.take_command(incident, ada, seen=None)
    with pytest.raises(Refused, match="changed a moment ago: ada commands INC-"):
        response.take_command(incident, sam, seen=None)
    response.take_command(incident, sam, seen=ada.pk)
    assert kinds(incident).count("command") == 2


def test_command_is_handed_over_as_an_event(ada: User, sam: User) -> None:
    incident = response.declare(main(), "gpu-001", ada)
    incident = response.take_command(incident, sam)
    event = incident.events.last()
    assert event is not None
    assert event.payload == {"before": "ada", "now": "sam"}
    with pytest.raises(Refused, match="already"):
        response.take_command(incident, sam)


def test_nodes_of_an_incident_stay_for_their_readings_are_evidence(ada: User) -> None:
    response.declare(main(), "gpu-001", ada)
    add_nodes(main(), "gpu-002", Login(), ada)
    with pytest.raises(Refused, match="gpu-001 are evidence"):
        remove_nodes(main(), ["gpu-001", "gpu-002"])
    assert Node.objects.count() == 2
    assert remove_nodes(main(), ["gpu-002"]) == 1


@pytest.mark.django_db(transaction=True)
def test_readings_of_real_nodes_reach_the_timeline_as_sealed_batches(lab: Lab, ada: User, settings: Any) -> None:
    settings.SSH_CONFIG = str(lab.config)
    lab.start("gpu-001")
    lab.name("gpu-002", lab.address(), free_port())
    incident = response.declare(main(), "gpu-[001-002]", ada)
    run = incident.runs.get()
    run_shard(run.shards.get().pk)
    incident.refresh_from_db()
    assert kinds(incident)[:2] == ["declared", "suite_started"]
    assert kinds(incident)[-1] == "suite_ended"
    batches = incident.events.filter(kind="readings")
    named = [tuple(pair) for batch in batches for pair in batch.payload["readings"]]
    assert sorted(named) == sorted(run.readings.values_list("node_id", "probe")), "each reading is in one batch, once"
    ended = incident.events.get(kind="suite_ended")
    assert (ended.payload["answered"], ended.payload["nodes"]) == (1, 2)
    assert list(broken_links(incident)) == []
