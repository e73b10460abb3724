from typing import Any

from django.apps import AppConfig
from django.apps import apps as now
from django.apps.registry import Apps
from django.db.models.signals import post_migrate


class IncidentsConfig(AppConfig):
    name = "incidents"

    def ready(self) -> None:
        post_migrate.connect(_first_fleet, sender=self)


def _first_fleet(using: str, apps: Apps = now, **_: Any) -> None:
    """There is always a fleet: who has one cluster need not know that there can be several.

    The models of `apps` are those of the migration that was reached, which may have no fleets yet.
    """
    if "fleet" in apps.all_models["incidents"]:
        fleets = apps.get_model("incidents", "Fleet").objects.using(using)
        if not fleets.exists():
            fleets.create(name="main")
