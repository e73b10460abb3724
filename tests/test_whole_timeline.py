"""The page of the whole timeline: every event, in pages by seq, with hash and actor."""

from __future__ import annotations

import re

import pytest
from django.db import transaction
from django.test import Client
from django.utils import timezone

from incidents.models import Incident, User
from incidents.services.timeline import tell
from tests.support.fleets import main, person

pytestmark = [pytest.mark.django_db]


@pytest.fixture
def long(client: Client) -> Incident:
    """An incident of 450 events, of which each third is a batch of readings."""
    ada = person("ada", "viewer")
    client.force_login(ada)
    incident = Incident.objects.create(fleet=main(), title="x", t0=timezone.now())
    with transaction.atomic():
        for i in range(450):
            if i % 3:
                tell(incident, "note", ada, text=f"note {i}", key="k")
            else:
                tell(incident, "readings", None, run=1, readings=[[1, "gpu.state"]], ended=[], digest="d")
    return incident


def page(client: Client, incident: Incident, query: str = "") -> str:
    return client.get(f"/incidents/{incident.pk}/timeline{query}").content.decode()


def seqs(text: str) -> list[int]:
    return [int(seq) for seq in re.findall(r'<th scope="row" class="num">(\d+)</th>', text)]


def links(text: str) -> dict[str, str]:
    return {name: query for query, name in re.findall(r'<a class="button" href="(\?after=\d+)">(\w+)</a>', text)}


def test_the_pages_together_are_every_event_once_with_its_hash(client: Client, long: Incident) -> None:
    text, seen, shown = page(client, long), [], ""
    while True:
        seen += seqs(text)
        shown += text
        if "Later" not in links(text):
            break
        text = page(client, long, links(text)["Later"])
    assert seen == list(range(1, 451))
    for event in long.events.all():
        assert event.hash in shown
    assert "1 reading stored" in shown


def test_each_page_leads_to_the_others(client: Client, long: Incident) -> None:
    first = page(client, long)
    assert links(first) == {"Later": "?after=200", "Last": "?after=400"}
    last = page(client, long, "?after=400")
    assert seqs(last) == list(range(401, 451))
    assert links(last) == {"First": "?after=0", "Earlier": "?after=200"}


@pytest.mark.parametrize("query", ["?after=", "?after=-1", "?after=x", "?after=99999999999999999999", "?after=451"])
def test_an_address_that_means_nothing_shows_a_page(client: Client, long: Incident, query: str) -> None:
    assert client.get(f"/incidents/{long.pk}/timeline{query}").status_code == 200


def test_who_did_it_stands_there_and_hostile_words_are_words(client: Client) -> None:
    client.force_login(person("vera", "viewer"))
    incident = Incident.objects.create(fleet=main(), title="x", t0=timezone.now())
    with transaction.atomic():
        tell(incident, "note", User.objects.create(username="ada"), text="<img src=x>\u202e", key="k")
        tell(incident, "from_the_future", None, what="y" * 100_000)
    text = page(client, incident)
    assert "<td>ada</td>" in text and "<td>Golden15</td>" in text
    assert "<img" not in text and "\u202e" not in text
    assert text.count("&lt;img src=x&gt;‹U+202E›") == 2
    assert len(text) < 20_000 and "more characters" in text
