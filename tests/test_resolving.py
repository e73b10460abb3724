"""The end of an incident: who may say it, when it is refused, and that it is said once."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from django.db import connections
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from incidents.models import Incident, SuiteRun, User
from incidents.models.endings import verified
from incidents.queries.lines import lines
from incidents.queries.timeline import broken_links
from incidents.services import deciding, notes, response, scoping
from incidents.services.fleet import Login, Refused, add_nodes
from incidents.services.resolving import resolve
from tests.support.fleets import main, person
from tests.support.reviews import act, told_training

pytestmark = [pytest.mark.django_db, pytest.mark.database]
KEY = "6f1c0e8e-6f5b-4f0e-9d51-0d5fd3f8c0aa"


@pytest.fixture
def incident() -> Incident:
    add_nodes(main(), "gpu-[001-002]", Login(), None)
    return response.declare(main(), "gpu-[001-002]", None, title="all-reduce stalled")


@pytest.fixture
def ada() -> User:
    return person("ada", "commander")


def test_it_closes_with_how_who_and_why_and_ends_the_open_phase(incident: Incident, ada: User) -> None:
    resolve(incident, ada, "handed over", "the network team has it")
    kept = Incident.objects.get()
    assert kept.closed_at is not None
    assert (kept.resolution, kept.resolved_by) == ("handed over", ada)
    assert kept.phases.filter(started_at__isnull=False, ended_at=None).count() == 0
    assert kept.phases.get(name="capture").ended_at == kept.closed_at
    assert lines(kept)[0].says == "closed the incident: handed over. Why: “the network team has it”"
    assert lines(kept)[0].who == "ada"
    assert list(broken_links(kept)) == []


def test_a_phase_that_is_over_its_time_is_said_so_before_it_ends(incident: Incident, ada: User) -> None:
    incident.phases.filter(name="capture").update(due_at=timezone.now() - timedelta(seconds=1))
    resolve(incident, ada, "other", "x")
    kinds = list(incident.events.order_by("seq").values_list("kind", flat=True))
    assert kinds[-2:] == ["overdue", "resolved"]


@pytest.mark.parametrize("how", ["handed over", "false alarm", "other"])
def test_all_but_training_again_need_a_reason(incident: Incident, ada: User, how: str) -> None:
    with pytest.raises(Refused, match="Say why") as refused:
        resolve(incident, ada, how, "  ")
    assert refused.value.field == "why"
    assert Incident.objects.get().closed_at is None


def test_an_end_that_is_none_is_refused(incident: Incident, ada: User) -> None:
    with pytest.raises(Refused, match="Choose how"):
        resolve(incident, ada, "abandoned", "x")


def test_training_again_needs_a_reading_that_says_so(incident: Incident, ada: User) -> None:
    with pytest.raises(Refused, match="Nothing read after the last action says that training advances"):
        resolve(incident, ada, "training again", "it looks fine")
    told_training(incident, "advances")
    resolve(incident, ada, "training again", "")
    assert Incident.objects.get().resolution == "training again"


class TestVerified:
    def test_not_by_a_reading_that_says_that_it_stands_or_is_not_known(self, incident: Incident) -> None:
        told_training(incident, "stands")
        told_training(incident, "not known")
        assert verified(incident) is None

    def test_not_by_a_reading_from_before_the_last_action_ended(self, incident: Incident, ada: User) -> None:
        told_training(incident, "advances")
        act(incident, ada, "done")
        assert verified(incident) is None
        event = told_training(incident, "advances")
        assert verified(incident) == event

    def test_not_by_a_look_that_began_before_the_action_ended(self, incident: Incident, ada: User) -> None:
        early = SuiteRun.objects.create(
            fleet=incident.fleet, suite="hang", incident=incident, started_at=timezone.now(), node_count=2
        )
        act(incident, ada, "done")
        told_training(incident, "advances", run=early.pk)
        assert verified(incident) is None

    def test_an_action_that_never_began_changes_nothing(self, incident: Incident, ada: User) -> None:
        event = told_training(incident, "advances")
        act(incident, ada, "declined", begun=False)
        assert verified(incident) == event

    def test_a_reading_that_says_that_it_stands_again_takes_it_back(self, incident: Incident) -> None:
        told_training(incident, "advances")
        told_training(incident, "stands")
        assert verified(incident) is None
        again = told_training(incident, "advances")
        told_training(incident, "advances")
        assert verified(incident) == again, "since then"

    def test_a_job_that_is_not_seen_any_more_takes_it_back_too(self, incident: Incident) -> None:
        told_training(incident, "advances")
        told_training(incident, "not known")
        assert verified(incident) is None

    def test_the_first_look_too_must_have_begun_after_the_action(self, incident: Incident, ada: User) -> None:
        def look() -> SuiteRun:
            about = {"fleet": incident.fleet, "incident": incident, "started_at": timezone.now(), "node_count": 2}
            return SuiteRun.objects.create(suite="verify", **about)

        first = look()
        act(incident, ada, "done")
        told_training(incident, "advances", first=first.pk, run=look().pk)
        assert verified(incident) is None


def test_after_an_action_that_may_have_run_training_must_be_seen_to_advance(incident: Incident, ada: User) -> None:
    told_training(incident, "advances")
    act(incident, ada, "unknown")
    with pytest.raises(Refused, match="Nothing read after the last action"):
        resolve(incident, ada, "training again", "")
    told_training(incident, "advances")
    resolve(incident, ada, "training again", "")


@pytest.mark.parametrize("state", ["ready", "running"])
def test_it_is_refused_while_an_action_runs(incident: Incident, ada: User, state: str) -> None:
    act(incident, ada, state)
    with pytest.raises(Refused, match="continue_rank on gpu-002"):
        resolve(incident, ada, "other", "enough")
    assert Incident.objects.get().closed_at is None


@pytest.mark.parametrize("state", ["waiting", "done", "failed", "declined", "expired"])
def test_actions_that_ended_or_never_began_do_not_keep_it_open(incident: Incident, ada: User, state: str) -> None:
    act(incident, ada, state, begun=state in ("done", "failed"))
    resolve(incident, ada, "other", "enough")
    assert Incident.objects.get().closed_at is not None


def test_a_double_click_closes_once_and_another_word_is_refused(incident: Incident, ada: User) -> None:
    bob = person("bob", "commander")
    for _ in range(2):
        resolve(incident, ada, "handed over", "to network ")
    assert incident.events.filter(kind="resolved").count() == 1
    for who, how, why in (
        (ada, "other", "to network"),
        (ada, "handed over", "later"),
        (bob, "handed over", "to network"),
    ):
        with pytest.raises(Refused, match="ada closed INC-.* already: handed over"):
            resolve(incident, who, how, why)


@pytest.mark.django_db(transaction=True)
def test_of_two_at_once_one_closes_it(incident: Incident) -> None:
    people = [person(name, "commander") for name in ("ada", "bob")]
    start, ends = threading.Barrier(2), []

    def close(by: User) -> None:
        try:
            start.wait(10)
            resolve(incident, by, "other", f"says {by}")
            ends.append("closed")
        except Refused:
            ends.append("refused")
        finally:
            connections.close_all()

    threads = [threading.Thread(target=close, args=(by,)) for by in people]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(ends) == ["closed", "refused"]
    assert incident.events.filter(kind="resolved").count() == 1


def test_a_closed_incident_takes_notes_and_nothing_else(incident: Incident, ada: User) -> None:
    resolve(incident, ada, "other", "x")
    closed = Incident.objects.get()
    for write in (
        lambda: response.advance(closed, ada, "go on"),
        lambda: response.take_command(closed, ada),
        lambda: scoping.set_scope(closed, "gpu-001", ada, False),
        lambda: deciding.decide_verdict(closed, ada, "commander", 1, 0, "accept"),
    ):
        with pytest.raises(Refused, match="is closed"):
            write()
    notes.add_note(closed, ada, "the cable was replaced", KEY)
    assert lines(closed)[0].says == "“the cable was replaced”"
    assert response.tell_overdue() == 0


class TestPage:
    def test_the_form_offers_what_can_be_chosen(self, client: Client, incident: Incident, ada: User) -> None:
        client.force_login(ada)
        page = client.get(reverse("incident", args=[incident.pk])).content.decode()
        assert '<option value="training again">' not in page
        assert "is not offered: nothing read after the last action says that training advances" in page
        told_training(incident, "advances")
        page = client.get(reverse("incident", args=[incident.pk])).content.decode()
        assert page.index('<option value="training again">') < page.index('<option value="handed over">')

    def test_a_responder_sees_no_form_and_may_not_close(self, client: Client, incident: Incident) -> None:
        client.force_login(person("rosa", "responder"))
        assert "Resolve…" not in client.get(reverse("incident", args=[incident.pk])).content.decode()
        said = {"how": "other", "why": "x"}
        assert client.post(reverse("resolve", args=[incident.pk]), said).status_code == 403

    def test_a_closed_one_says_how_and_by_whom_and_leads_to_its_review(
        self, client: Client, incident: Incident, ada: User
    ) -> None:
        client.force_login(ada)
        client.post(reverse("resolve", args=[incident.pk]), {"how": "false alarm", "why": "a planned stop"})
        page = client.get(reverse("incident", args=[incident.pk])).content.decode()
        assert "<b>false alarm</b>, by ada" in page
        assert f'href="{reverse("review", args=[incident.pk])}">Read the review' in page
        assert "Resolve…" not in page and "Take command" not in page
        listed = client.get(reverse("incidents")).content.decode()
        assert "<span>false alarm</span>" in listed
        assert f'href="{reverse("review", args=[incident.pk])}"' in listed

    def test_a_refusal_is_said(self, client: Client, incident: Incident, ada: User) -> None:
        client.force_login(ada)
        answer = client.post(reverse("resolve", args=[incident.pk]), {"how": "other"}, follow=True)
        assert "Say why it ends as “other”" in answer.content.decode()
