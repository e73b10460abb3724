"""The timeline: gapless, in the transaction of what it tells, and guarded by the database itself."""

from __future__ import annotations

import io
import threading
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.utils import timezone

from incidents.models import Event, Incident, User, guards
from incidents.queries.timeline import broken_links, events_after
from incidents.services.timeline import tell
from tests.support.fleets import main

pytestmark = [pytest.mark.django_db, pytest.mark.database]


@pytest.fixture
def incident() -> Incident:
    return Incident.objects.create(fleet=main(), title="all-reduce stalled", t0=timezone.now())


def told(incident: Incident, count: int) -> list[Event]:
    with transaction.atomic():
        return [tell(incident, "note", None, text=f"line {i} äöü", number=i) for i in range(count)]


def test_events_count_from_one_without_gaps_and_follow_each_other(incident: Incident) -> None:
    events = told(incident, 3)
    assert [event.seq for event in events] == [1, 2, 3]
    assert events[0].prev_hash == ""
    assert [event.prev_hash for event in events[1:]] == [event.hash for event in events[:2]]
    incident.refresh_from_db()
    assert (incident.last_seq, incident.head) == (3, events[2].hash)
    assert list(broken_links(incident)) == []


def test_what_was_not_committed_was_not_told(incident: Incident) -> None:
    told(incident, 1)
    with pytest.raises(RuntimeError, match="changed my mind"), transaction.atomic():
        tell(incident, "note", None, text="never")
        raise RuntimeError("changed my mind")
    told(Incident.objects.get(), 1)
    assert [event.seq for event in Event.objects.all()] == [1, 2]


@pytest.mark.django_db(transaction=True)
def test_an_event_outside_a_transaction_is_refused(incident: Incident) -> None:
    with pytest.raises(RuntimeError, match="transaction of what it tells"):
        tell(incident, "note", None)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("change", ["update", "delete", "raw", "truncate"])
def test_the_database_refuses_every_change_of_an_event(incident: Incident, change: str) -> None:
    told(incident, 2)
    if change == "truncate" and connection.vendor == "sqlite":
        change = "delete"  # SQLite has no TRUNCATE; a DELETE without a condition takes its place
    with pytest.raises((IntegrityError, DatabaseError), match="append-only"), transaction.atomic():
        if change == "update":
            Event.objects.filter(seq=1).update(kind="forged")
        elif change == "delete":
            Event.objects.all().delete()
        else:
            statement = {"raw": "UPDATE incidents_event SET payload = '{}'", "truncate": "TRUNCATE incidents_event"}
            with connection.cursor() as cursor:
                cursor.execute(statement[change])
    assert [event.payload["number"] for event in Event.objects.all()] == [0, 1]


def again(event: Event, clause: str = "", verb: str = "INSERT", **changed: Any) -> None:
    """An INSERT of the event's row as it is, but for what is changed."""
    row = Event.objects.filter(pk=event.pk).values().get() | {"payload": "{}"} | changed
    row = {name: value for name, value in row.items() if value is not None}
    places = ", ".join(["%s"] * len(row))
    with connection.cursor() as cursor, transaction.atomic():
        cursor.execute(f"{verb} INTO incidents_event ({', '.join(row)}) VALUES ({places}) {clause}", list(row.values()))


UPSERT = "ON CONFLICT ({}) DO UPDATE SET kind = excluded.kind"


@pytest.mark.parametrize("unique", ["id", "incident_id, seq"])
@pytest.mark.parametrize("way", ["upsert", "replace"])
def test_no_insert_takes_the_place_of_an_event(incident: Incident, unique: str, way: str) -> None:
    first, last = told(incident, 2)
    new = {"kind": "forged"} | ({"id": last.pk + 7} if "seq" in unique else {"seq": 77})
    with pytest.raises(IntegrityError, match="append-only"):
        if way == "replace" and connection.vendor == "sqlite":  # which alone knows it
            again(first, verb="INSERT OR REPLACE", **new)
        else:
            again(first, UPSERT.format(unique), **new)
    assert list(Event.objects.values_list("pk", "seq", "kind")) == [(first.pk, 1, "note"), (last.pk, 2, "note")]
    again(first, id=last.pk + 1, seq=3, kind="one more")
    assert Event.objects.count() == 3


def forge(statement: str) -> None:
    """A change by somebody who owns the database and takes the guard away first."""
    guards.unguard(connection, "incidents_event")
    with connection.cursor() as cursor:
        cursor.execute(statement)
    guards.guard(connection, "incidents_event")


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("UPDATE incidents_event SET kind = 'forged' WHERE seq = 2", "event 2 is not what was recorded"),
        ("UPDATE incidents_event SET payload = '{\"number\": 9}' WHERE seq = 2", "event 2 is not what was recorded"),
        ("UPDATE incidents_event SET at = '2020-01-01 00:00:00+00:00' WHERE seq = 2", "event 2 is not what"),
        ("DELETE FROM incidents_event WHERE seq = 2", "event 2 is missing"),
        ("DELETE FROM incidents_event WHERE seq = 4", "the timeline ends at 3, the incident says 4"),
        ("UPDATE incidents_event SET seq = 40 - seq WHERE seq IN (2, 3)", "event 2 is missing"),
    ],
)
def test_a_change_behind_the_programs_back_is_found(incident: Incident, statement: str, says: str) -> None:
    told(incident, 4)
    forge(statement)
    incident.refresh_from_db()
    assert any(says in line for line in broken_links(incident)), list(broken_links(incident))
    out = io.StringIO()
    with pytest.raises(CommandError, match="broken"):
        call_command("verify_timeline", stdout=out)
    assert says in out.getvalue()


def test_a_page_asks_for_what_came_after_its_seq(incident: Incident) -> None:
    told(incident, 5)
    assert [event.seq for event in events_after(incident, 3)] == [4, 5]
    assert [event.seq for event in events_after(incident, 0, limit=2)] == [1, 2]
    assert events_after(incident, 99) == []


@pytest.mark.django_db(transaction=True)
def test_eight_writers_at_once_leave_no_gap_and_no_double(incident: Incident) -> None:
    failures: list[BaseException] = []

    def write(number: int) -> None:
        try:
            for i in range(10):
                with transaction.atomic():
                    tell(incident_of(), "note", None, writer=number, line=i)
        except BaseException as error:
            failures.append(error)
        finally:
            connection.close()

    def incident_of() -> Incident:
        return Incident.objects.get(pk=incident.pk)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert failures == []
    assert [event.seq for event in Event.objects.all()] == list(range(1, 81))
    incident.refresh_from_db()
    assert list(broken_links(incident)) == []


def test_the_actor_is_part_of_what_is_sealed(incident: Incident, django_user_model: Any) -> None:
    ada, sam = (User.objects.create(username=name) for name in ("ada", "sam"))
    with transaction.atomic():
        tell(incident, "note", ada, text="mine")
    forge(f"UPDATE incidents_event SET actor_id = {sam.pk}")
    assert any("not what was recorded" in line for line in broken_links(Incident.objects.get()))


@pytest.mark.database
@pytest.mark.parametrize("table", guards.APPEND_ONLY)
def test_each_table_that_only_grows_refuses_changes(db: None, table: str) -> None:
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = %s", [table])
            assert sorted(name for (name,) in cursor.fetchall()) == [
                f"{table}_no_{verb}" for verb in ("DELETE", "INSERT", "UPDATE")
            ]
        else:
            cursor.execute("SELECT tgname FROM pg_trigger WHERE tgrelid = %s::regclass AND NOT tgisinternal", [table])
            assert sorted(name for (name,) in cursor.fetchall()) == [f"{table}_all", f"{table}_rows"]
