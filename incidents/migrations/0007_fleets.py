"""Fleets and memberships: what was one common fleet, and one role per person, becomes the fleet `main`.

Three steps, because PostgreSQL does not change a table and its rows in one transaction: here the tables, in 0008 the
rows, in 0009 what must hold of them.
"""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

ROLES = [(role, role) for role in ("viewer", "responder", "commander", "admin")]


def _fleet(related: str) -> models.ForeignKey:
    return models.ForeignKey(
        null=True, on_delete=django.db.models.deletion.PROTECT, related_name=related, to="incidents.fleet"
    )


class Migration(migrations.Migration):
    dependencies = [("incidents", "0006_roles")]

    operations = [
        migrations.CreateModel(
            name="Fleet",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.SlugField(max_length=40, unique=True)),
            ],
            options={"ordering": ["name"]},
        ),
        migrations.CreateModel(
            name="Membership",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "role",
                    models.CharField(
                        choices=ROLES, help_text="what this person may do there, see incidents.policy", max_length=9
                    ),
                ),
                (
                    "fleet",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="memberships", to="incidents.fleet"
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="memberships",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["fleet__name", "user__username"],
                "constraints": [models.UniqueConstraint(fields=("user", "fleet"), name="one_role_per_fleet")],
            },
        ),
        migrations.AddField("node", "fleet", _fleet("nodes")),
        migrations.AddField("job", "fleet", _fleet("jobs")),
        migrations.AddField("incident", "fleet", _fleet("incidents")),
        migrations.AddField("alertsource", "fleet", _fleet("alert_sources")),
        migrations.AddField("suiterun", "fleet", _fleet("runs")),
    ]
