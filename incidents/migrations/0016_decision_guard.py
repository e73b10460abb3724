"""The database itself refuses changes of decisions and rankings, as it does of events."""

from typing import Any

from django.db import migrations

from incidents.models import guards

TABLES = ("incidents_ranking", "incidents_decision")


def guard(apps: Any, schema_editor: Any) -> None:
    guards.guard(schema_editor.connection, *TABLES)


def unguard(apps: Any, schema_editor: Any) -> None:
    guards.unguard(schema_editor.connection, *TABLES)


class Migration(migrations.Migration):
    dependencies = [("incidents", "0015_runbooks_topology_drills")]
    operations = [migrations.RunPython(guard, unguard)]
