"""A database of an earlier version keeps what it holds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BASE = Path(__file__).parent.parent

# In a process of its own: the tests' database is of this version from the start.
SCRIPT = """
import django
django.setup()
from django.core.management import call_command
from django.db import connection, transaction
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone

call_command("migrate", "incidents", "0006", verbosity=0)
old = MigrationExecutor(connection).loader.project_state([("incidents", "0006_roles")]).apps.get_model
now = timezone.now()
old("incidents", "User").objects.create(username="root", is_superuser=True)
old("incidents", "User").objects.create(username="cam", role="commander")
node = old("incidents", "Node").objects.create(name="gpu-001", changed_at=now)
job = old("incidents", "Job").objects.create(name="run7")
incident = old("incidents", "Incident").objects.create(title="stalled", t0=now, job=job)
incident.nodes.add(node)
old("incidents", "Event").objects.create(incident=incident, seq=1, kind="note", at=now, hash="x" * 64)
old("incidents", "SuiteRun").objects.create(suite="check", started_at=now, node_count=1, incident=incident)

call_command("migrate", verbosity=0)
from incidents.models import Event, Fleet, Incident, Job, Membership, Node, SuiteRun

print(*Fleet.objects.all(), *(model.objects.get().fleet for model in (Node, Job, Incident, SuiteRun)))
print(*Membership.objects.all(), sep="; ")
print(Event.objects.count(), Incident.objects.get().nodes.get())
try:
    with transaction.atomic():
        Event.objects.update(kind="changed")
except Exception as error:
    print(error)
"""


BACK_AND_FORTH = """
import django
django.setup()
from django.core.management import call_command
from django.db import connection

for target in ("0016", "0017", "0016", "0017"):
    call_command("migrate", "incidents", target, verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute("SELECT tbl_name, COUNT(*) FROM sqlite_master WHERE type = 'trigger' GROUP BY 1 ORDER BY 1")
        print(target, *(f"{table.removeprefix('incidents_')}:{count}" for table, count in cursor.fetchall()))
"""


@pytest.mark.long
def test_tables_that_only_grow_keep_their_guards_when_a_migration_is_undone_and_done_again(data_folder: Path) -> None:
    """SQLite drops the triggers of a table that is remade."""
    told = "decision:3 event:3 ranking:3"
    assert ran(BACK_AND_FORTH, data_folder) == [f"{target} {told}" for target in ("0016", "0017", "0016", "0017")]


def ran(script: str, data_folder: Path) -> list[str]:
    environment = {**os.environ, "GOLDEN15_DATA": str(data_folder), "DJANGO_SETTINGS_MODULE": "config.settings"}
    environment.pop("DATABASE_URL", None)
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=BASE, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_what_was_one_common_fleet_becomes_main_and_roles_become_memberships(data_folder: Path) -> None:
    fleets, memberships, kept, guard = ran(SCRIPT, data_folder)
    assert fleets == "main main main main main"
    assert memberships == "cam, commander of main"
    assert kept == "1 gpu-001"
    assert "append-only" in guard, "the timeline is still guarded after its incident's table was changed"


GUARDS = """
import django
django.setup()
from django.core.management import call_command
from django.db import connection, transaction
from django.utils import timezone

def triggers():
    with connection.cursor() as cursor:
        cursor.execute("SELECT name FROM sqlite_master WHERE type = 'trigger' ORDER BY name")
        return [name for (name,) in cursor.fetchall()]

if OLD:  # as a version left it whose guards knew UPDATE and DELETE only
    call_command("migrate", "incidents", "0016", verbosity=0)
    with connection.cursor() as cursor:
        for name in triggers():
            if name.endswith("_no_INSERT"):
                cursor.execute(f"DROP TRIGGER {name}")
    assert len(triggers()) == 6, triggers()
call_command("migrate", verbosity=0)
print(*triggers())

from incidents.models import Decision, Fleet, Incident, Ranking, User
main, _ = Fleet.objects.get_or_create(name="main")
incident = Incident.objects.create(fleet=main, title="stalled", t0=timezone.now())
ada = User.objects.create(username="ada")
Ranking.objects.create(incident=incident, at=timezone.now(), readings=0, probability=1, body={})
said = {"question": "q", "options": [], "chosen": "a", "phase": "decide"}
Decision.objects.create(incident=incident, at=timezone.now(), by=ada, **said)
for table in ("incidents_ranking", "incidents_decision"):
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"INSERT OR REPLACE INTO {table} SELECT * FROM {table}")
    except Exception as error:
        print(error)

call_command("migrate", "incidents", "0015", verbosity=0)
print(*triggers())
"""


@pytest.mark.parametrize("old", [False, True])
def test_a_new_database_and_an_older_one_both_refuse_an_insert_in_place_of_a_row(data_folder: Path, old: bool) -> None:
    environment = {**os.environ, "GOLDEN15_DATA": str(data_folder), "DJANGO_SETTINGS_MODULE": "config.settings"}
    environment.pop("DATABASE_URL", None)
    command = [sys.executable, "-c", f"OLD = {old}\n{GUARDS}"]
    done = subprocess.run(command, cwd=BASE, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    triggers, ranking, decision, undone = done.stdout.splitlines()
    tables = ("incidents_decision", "incidents_event", "incidents_ranking")
    assert triggers.split() == [f"{table}_no_{verb}" for table in tables for verb in ("DELETE", "INSERT", "UPDATE")]
    assert "a ranking is never changed" in ranking
    assert "a decision is never changed" in decision
    assert undone.split() == ["incidents_event_no_DELETE", "incidents_event_no_UPDATE"], "and it can be undone"
