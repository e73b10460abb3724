"""manage.py alert_source: who may send alerts."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.urls import reverse

from incidents.models import AlertSource
from incidents.services import alert_sources as services
from incidents.services import people
from incidents.services.fleet import Refused


class Command(BaseCommand):
    help = "Programs that may send alerts: add, list, rotate, disable"

    def add_arguments(self, parser: ArgumentParser) -> None:
        acts = parser.add_subparsers(required=True, dest="act", metavar="add | list | rotate | disable")
        acts.add_parser("list", help="every source, when it was last heard, and where it posts to")
        for act, says in (
            ("add", "a new source; prints its token, once, on standard output"),
            ("rotate", "a new token for a source, also for one that was disabled; the old token ends at once"),
            ("disable", "take nothing more from a source"),
        ):
            act_parser = acts.add_parser(act, help=says)
            act_parser.add_argument("name")
            if act == "add":
                act_parser.add_argument("--fleet", help="whose incidents it opens; not needed while there is one fleet")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            getattr(self, f"_{options['act']}")(options)
        except Refused as refused:
            raise CommandError(str(refused)) from refused

    def _add(self, options: dict[str, Any]) -> None:
        self._show(*services.add_source(people.fleet_named(options["fleet"]), options["name"], None))

    def _rotate(self, options: dict[str, Any]) -> None:
        self._show(*services.rotate_source(options["name"]))

    def _show(self, source: AlertSource, token: str) -> None:
        self.stderr.write(f"{source} posts to {address(source)} with this token, which is not shown again:")
        self.stdout.write(token)

    def _disable(self, options: dict[str, Any]) -> None:
        self.stdout.write(f"{services.disable_source(options['name'])} is disabled: what it sends is refused.")

    def _list(self, options: dict[str, Any]) -> None:
        for source in AlertSource.objects.select_related("fleet"):
            heard = f"last heard {source.last_at:%Y-%m-%d %H:%M:%S} UTC" if source.last_at else "never heard"
            odd = f", {source.unreadable} times no JSON" if source.unreadable else ""
            off = "" if source.enabled else ", DISABLED"
            self.stdout.write(f"{source.slug}  of fleet {source.fleet}, {heard}{odd}{off}  {address(source)}")


def address(source: AlertSource) -> str:
    """Where this source posts to."""
    return f"{settings.SITE_URL}{reverse('alerts', args=[source.slug])}"
