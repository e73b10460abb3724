import django.db.models.deletion
from django.db import migrations, models


def _fleet(related: str) -> models.ForeignKey:
    return models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name=related, to="incidents.fleet")


class Migration(migrations.Migration):
    dependencies = [("incidents", "0008_into_main")]

    operations = [
        migrations.AlterField("node", "fleet", _fleet("nodes")),
        migrations.AlterField("job", "fleet", _fleet("jobs")),
        migrations.AlterField("incident", "fleet", _fleet("incidents")),
        migrations.AlterField("alertsource", "fleet", _fleet("alert_sources")),
        migrations.AlterField("suiterun", "fleet", _fleet("runs")),
        migrations.AlterField("node", "name", models.CharField(max_length=253)),
        migrations.AlterField("job", "name", models.CharField(max_length=200)),
        migrations.AddConstraint(
            "node", models.UniqueConstraint(fields=("fleet", "name"), name="node_name_once_per_fleet")
        ),
        migrations.AddConstraint(
            "job", models.UniqueConstraint(fields=("fleet", "name"), name="job_name_once_per_fleet")
        ),
        migrations.RemoveField("user", "role"),
    ]
