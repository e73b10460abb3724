"""Notes: kept as typed, shown clean, once however often they are sent, after the end too."""

from __future__ import annotations

import threading
import uuid
from typing import Any

import pytest
from django.db import connections
from django.test import Client
from django.utils import timezone

from incidents.models import Event, Incident, User
from incidents.queries.lines import lines
from incidents.queries.timeline import broken_links
from incidents.services.fleet import Refused
from incidents.services.notes import add_note
from tests.support.fleets import main, person

pytestmark = [pytest.mark.django_db, pytest.mark.database]


@pytest.fixture
def ada() -> User:
    return person("ada", "responder")


@pytest.fixture
def incident() -> Incident:
    return Incident.objects.create(fleet=main(), title="x", t0=timezone.now())


def key() -> str:
    return str(uuid.uuid4())


def notes(incident: Incident) -> list[str]:
    return [event.payload["text"] for event in incident.events.filter(kind="note")]


def test_a_note_is_an_event_of_the_person_who_wrote_it(incident: Incident, ada: User) -> None:
    event = add_note(incident, ada, "two spares are idle", key())
    assert (event.kind, event.actor, event.seq) == ("note", ada, 1)
    assert [(line.who, line.says) for line in lines(incident)] == [("ada", "“two spares are idle”")]
    assert list(broken_links(Incident.objects.get(pk=incident.pk))) == []


def test_a_closed_incident_takes_notes_too(incident: Incident, ada: User) -> None:
    Incident.objects.filter(pk=incident.pk).update(closed_at=timezone.now())
    add_note(incident, ada, "the vendor confirms the optics", key())
    assert notes(incident) == ["the vendor confirms the optics"]


def test_the_same_note_sent_again_is_not_stored_again(incident: Incident, ada: User) -> None:
    same = key()
    first = add_note(incident, ada, "ring it is", same)
    again = add_note(incident, ada, "ring it is", same.upper())
    assert again == first
    assert add_note(incident, ada, "ring it is", key()).seq == 2, "said twice on purpose"


def test_the_same_key_in_another_incident_is_another_note(incident: Incident, ada: User) -> None:
    other = Incident.objects.create(fleet=main(), title="y", t0=timezone.now())
    same = key()
    add_note(incident, ada, "a", same)
    assert add_note(other, ada, "a", same).incident_id == other.pk


def test_other_words_or_another_person_with_a_used_key_are_told_apart_and_not_swallowed(
    incident: Incident, ada: User
) -> None:
    same = key()
    add_note(incident, ada, "a", same)
    with pytest.raises(Refused, match="other words"):
        add_note(incident, ada, "b", same)
    with pytest.raises(Refused, match="Somebody else") as refused:
        add_note(incident, User.objects.create(username="sam"), "a", same)
    assert refused.value.field == "key"
    assert notes(incident) == ["a"]


@pytest.mark.parametrize(
    ("text", "says"), [("", "empty"), (" \n\t", "empty"), ("x" * 2001, "2001 characters, 2000 fit")]
)
def test_what_is_no_note_is_refused_with_what_to_do(incident: Incident, ada: User, text: str, says: str) -> None:
    with pytest.raises(Refused, match=says):
        add_note(incident, ada, text, key())
    assert notes(incident) == []


@pytest.mark.parametrize("bad", ["", "7", "x" * 36])
def test_a_note_without_a_key_is_refused(incident: Incident, ada: User, bad: str) -> None:
    with pytest.raises(Refused, match="reload the page"):
        add_note(incident, ada, "a", bad)


def test_the_longest_note_fits_however_the_browser_ends_its_lines(incident: Incident, ada: User) -> None:
    typed = "x\r\n" * 1000
    add_note(incident, ada, typed, key())
    assert notes(incident) == ["x\n" * 1000]


def test_hostile_text_is_kept_as_typed_and_shown_clean(incident: Incident, ada: User) -> None:
    typed = "right\u202eto left \x1b[2J zero\u200bwidth <script>x</script>"
    add_note(incident, ada, typed, key())
    assert notes(incident) == [typed]
    assert [line.says for line in lines(incident)] == ["“right‹U+202E›to left  zero‹U+200B›width <script>x</script>”"]
    add_note(incident, ada, "nul\x00byte", key())
    assert notes(incident)[1] == "nul␀byte", "PostgreSQL keeps no NUL in JSON"


@pytest.mark.django_db(transaction=True)
def test_of_two_that_arrive_at_once_one_is_stored(incident: Incident, ada: User) -> None:
    same, seqs, start = key(), [], threading.Barrier(4)

    def send() -> None:
        try:
            start.wait(10)
            seqs.append(add_note(incident, ada, "at once", same).seq)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert seqs == [1, 1, 1, 1]
    assert Event.objects.filter(kind="note").count() == 1


class TestTheForm:
    """What the page's form and script get back."""

    @pytest.fixture
    def client(self, client: Client, ada: User) -> Client:
        client.force_login(ada)
        return client

    def test_without_a_script_the_page_comes_back_with_the_note(self, client: Client, incident: Incident) -> None:
        path = f"/incidents/{incident.pk}/note"
        answer = client.post(path, {"text": "a note", "key": key()}, follow=True)
        assert answer.redirect_chain == [(f"/incidents/{incident.pk}", 302)]
        assert "“a note”" in answer.content.decode()

    def test_without_a_script_a_refused_note_stays_in_the_field_and_is_said(
        self, client: Client, incident: Incident
    ) -> None:
        same = key()
        path = f"/incidents/{incident.pk}/note"
        client.post(path, {"text": "one", "key": same})
        answer = client.post(path, {"text": "<b>two</b>", "key": same})
        page = answer.content.decode()
        assert answer.status_code == 422
        assert "&lt;b&gt;two&lt;/b&gt;</textarea>" in page
        assert "Not sent: A note with other words" in page
        assert same not in page, "the next try has a key of its own"

    def test_a_script_gets_the_seq_or_the_reason(self, client: Client, incident: Incident) -> None:
        path, said = f"/incidents/{incident.pk}/note", {"text": "a", "key": key()}
        headers: Any = {"accept": "application/json"}
        assert client.post(path, said, headers=headers).json() == {"seq": 1}
        assert client.post(path, said, headers=headers).json() == {"seq": 1}
        refused = client.post(path, {"text": " ", "key": key()}, headers=headers)
        assert (refused.status_code, refused.json()) == (422, {"error": "The note is empty.", "field": "text"})

    def test_a_viewer_sees_no_field_and_may_not(self, client: Client, incident: Incident, ada: User) -> None:
        ada.memberships.update(role="viewer")
        assert "data-note" not in client.get(f"/incidents/{incident.pk}").content.decode()
        assert client.post(f"/incidents/{incident.pk}/note", {"text": "a", "key": key()}).status_code == 403
