"""The database itself refuses changes of events, whoever asks."""

from typing import Any

from django.db import migrations

from incidents.models import guards


def guard(apps: Any, schema_editor: Any) -> None:
    guards.guard(schema_editor.connection, "incidents_event")


def unguard(apps: Any, schema_editor: Any) -> None:
    guards.unguard(schema_editor.connection, "incidents_event")


class Migration(migrations.Migration):
    dependencies = [("incidents", "0003_incidents")]
    operations = [migrations.RunPython(guard, unguard)]
