import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("incidents", "0004_event_guard"),
    ]

    operations = [
        migrations.CreateModel(
            name="AlertSource",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=60, unique=True)),
                ("slug", models.SlugField(help_text="its name in the address it posts to", max_length=60, unique=True)),
                ("token_sha256", models.CharField(max_length=64)),
                ("created_at", models.DateTimeField()),
                ("enabled", models.BooleanField(default=True)),
                ("last_at", models.DateTimeField(help_text="when it was last heard, readable or not", null=True)),
                (
                    "unreadable",
                    models.PositiveIntegerField(
                        default=0, help_text="bodies that were no JSON; nothing of them is kept"
                    ),
                ),
                (
                    "created_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="AlertDelivery",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("received_at", models.DateTimeField()),
                ("raw", models.TextField(help_text="the JSON text, at most 256 KB")),
                ("sha256", models.CharField(help_text="of the body's bytes", max_length=64)),
                (
                    "group_key",
                    models.CharField(blank=True, help_text="the sender's own; changes with its routes", max_length=300),
                ),
                (
                    "status",
                    models.CharField(
                        blank=True, help_text="firing or resolved, as the body says of the group", max_length=20
                    ),
                ),
                ("repeats", models.PositiveIntegerField(default=0, help_text="how often the same body came again")),
                ("last_at", models.DateTimeField()),
                ("problem", models.TextField(blank=True)),
                (
                    "source",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="deliveries",
                        to="incidents.alertsource",
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "alert deliveries",
                "ordering": ["-id"],
            },
        ),
        migrations.CreateModel(
            name="Alert",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("fingerprint", models.CharField(help_text="the sender's hash of the labels, or ours", max_length=64)),
                ("name", models.CharField(max_length=200)),
                ("status", models.CharField(choices=[("firing", "firing"), ("resolved", "resolved")], max_length=8)),
                ("started_at", models.DateTimeField(help_text="by the source's clock", null=True)),
                ("first_at", models.DateTimeField()),
                ("last_at", models.DateTimeField()),
                (
                    "repeats",
                    models.PositiveIntegerField(default=0, help_text="how often it came again with nothing new"),
                ),
                (
                    "incident",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="alerts", to="incidents.incident"
                    ),
                ),
                (
                    "delivery",
                    models.ForeignKey(
                        help_text="the first",
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="alerts",
                        to="incidents.alertdelivery",
                    ),
                ),
                (
                    "source",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="alerts", to="incidents.alertsource"
                    ),
                ),
            ],
            options={
                "ordering": ["incident", "id"],
            },
        ),
        migrations.AddConstraint(
            model_name="alertdelivery",
            constraint=models.UniqueConstraint(fields=("source", "sha256"), name="delivery_once_per_body"),
        ),
        migrations.AddConstraint(
            model_name="alert",
            constraint=models.UniqueConstraint(
                fields=("incident", "source", "fingerprint"), name="alert_once_per_incident"
            ),
        ),
    ]
