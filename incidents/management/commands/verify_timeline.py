"""Check that no timeline was changed behind the program's back."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from incidents.models import Incident
from incidents.queries.timeline import broken_links


class Command(BaseCommand):
    help = "Checks the hash chain of every incident's timeline"

    def handle(self, *args: Any, **options: Any) -> None:
        incidents = list(Incident.objects.order_by("pk"))
        broken = [line for incident in incidents for line in broken_links(incident)]
        for line in broken:
            self.stdout.write(line)
        if broken:
            raise CommandError(f"{len(broken)} broken. Compare with a backup before anybody writes more.")
        self.stdout.write(
            f"{sum(incident.last_seq for incident in incidents)} events of {len(incidents)} incidents: whole"
        )
