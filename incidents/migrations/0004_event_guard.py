"""The database itself refuses changes of events, whoever asks."""

from typing import Any

from django.db import migrations

from incidents.models import timeline


def guard(apps: Any, schema_editor: Any) -> None:
    timeline.guard(schema_editor.connection)


def unguard(apps: Any, schema_editor: Any) -> None:
    timeline.unguard(schema_editor.connection)


class Migration(migrations.Migration):
    dependencies = [("incidents", "0003_incidents")]
    operations = [migrations.RunPython(guard, unguard)]
