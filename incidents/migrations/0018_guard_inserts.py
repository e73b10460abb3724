"""On SQLite an INSERT OR REPLACE may not take the place of an event, a ranking or a decision either."""

from typing import Any

from django.db import migrations

from incidents.models import guards


def guard(apps: Any, schema_editor: Any) -> None:
    guards.guard_inserts(schema_editor.connection)


def unguard(apps: Any, schema_editor: Any) -> None:
    guards.unguard_inserts(schema_editor.connection)


class Migration(migrations.Migration):
    dependencies = [("incidents", "0017_ranking_topology")]
    operations = [migrations.RunPython(guard, unguard)]
