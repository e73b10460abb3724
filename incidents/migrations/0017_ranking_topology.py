"""Which expected topology a ranking was judged by. SQLite remakes the table when that is undone, and drops its guard."""

from typing import Any

import django.db.models.deletion
from django.db import migrations, models

from incidents.models import guards

TABLE = "incidents_ranking"


def guard_again(apps: Any, schema_editor: Any) -> None:
    connection = schema_editor.connection
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("SELECT 1 FROM sqlite_master WHERE type = 'trigger' AND tbl_name = %s", [TABLE])
            if cursor.fetchone() is None:
                guards.guard(connection, TABLE)


class Migration(migrations.Migration):
    dependencies = [("incidents", "0016_decision_guard")]
    operations = [
        migrations.RunPython(migrations.RunPython.noop, guard_again),
        migrations.AddField(
            model_name="ranking",
            name="topology",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="incidents.expectedtopology",
            ),
        ),
        migrations.RunPython(guard_again, migrations.RunPython.noop),
    ]
