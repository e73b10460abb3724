"""manage.py drill: start a drill, or replay an evidence bundle, from a terminal."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.urls import reverse

from incidents.models import User
from incidents.services.drilling import start_drill
from incidents.services.fleet import Refused
from probes import drills


class Command(BaseCommand):
    help = "Starts a drill by its name, or replays a recording from a folder or an evidence bundle (.zip)"

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("what", nargs="?", metavar="NAME|PATH")
        parser.add_argument("--list", action="store_true", help="the drills that there are")
        parser.add_argument("--as", dest="by", metavar="USER", help="who commands; without it nobody does at first")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["list"] or options["what"] is None:
            for drill in drills.drills():
                self.stdout.write(f"{drill.name}  {len(drill.nodes)} nodes  {drill.title}: {drill.says}")
            return
        by = User.objects.filter(username=options["by"]).first() if options["by"] else None
        if options["by"] and by is None:
            raise CommandError(f"There is no user {options['by']}. Make one: manage.py person {options['by']}")
        try:
            incident = start_drill(_what(options["what"]), by)
        except Refused as refused:
            raise CommandError(str(refused)) from refused
        self.stdout.write(f"{settings.SITE_URL}{reverse('incident', args=[incident.pk])}")
        if not isinstance(_what(options["what"]), str):
            self.stderr.write("Everybody who has a role in a fleet here can see what this recording holds.")


def _what(text: str) -> str | Path:
    """A name, or a path where it is one: what has a slash or an ending, or is no drill and is there."""
    path = Path(text)
    return path if "/" in text or path.suffix == ".zip" or (text not in drills.names() and path.exists()) else text
