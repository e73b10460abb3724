"""manage.py topology: the expected topology of a fleet, for scripts and terminals."""

from __future__ import annotations

import time
from argparse import ArgumentParser
from collections import Counter
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from incidents import asking, fabric
from incidents.management.given import text_of
from incidents.models import Fleet, SuiteRun, User
from incidents.services import people, runs
from incidents.services import topology as services
from incidents.services.fleet import Refused
from probes import nodeset
from probes.topology.layout import natural


class Command(BaseCommand):
    help = "Expected topology of a fleet: learn it from readings and a file of ibnetdiscover, or show it"

    def add_arguments(self, parser: ArgumentParser) -> None:
        acts = parser.add_subparsers(required=True, dest="act", metavar="learn | show")
        learn = acts.add_parser("learn", help="store what the nodes said last as what is expected of them")
        learn.add_argument("fleet")
        learn.add_argument("file", nargs="?", help="output of ibnetdiscover, joined by GUID; - for standard input")
        learn.add_argument("--ask", action="store_true", help="ask every node for its ports first")
        learn.add_argument("--not-up", choices=("leave-out", "expect"), default="", help="what of ports not up now")
        learn.add_argument("--as", dest="by", metavar="USER", help="who says that it is right; it is recorded")
        show = acts.add_parser("show", help="what is expected: each leaf with its ports, or each rail")
        show.add_argument("fleet")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            self.fleet = people.fleet_named(options["fleet"])
            getattr(self, f"_{options['act']}")(options)
        except Refused as refused:
            raise CommandError(str(refused)) from refused

    def _learn(self, options: dict[str, Any]) -> None:
        by = User.objects.filter(username=options["by"]).first() if options["by"] else None
        if options["by"] and by is None:
            raise CommandError(f"There is no user {options['by']}.")
        text = text_of(options["file"]) if options["file"] else None
        if options["ask"]:
            _ask(self.fleet)
        source = Path(options["file"]).name if options["file"] else ""
        not_up = options["not_up"].replace("-", " ")
        number, learned = services.learn_fleet(self.fleet, by, text, source, not_up)
        count = len(learned.topology(not_up == services.EXPECT).ports)
        self.stdout.write(f"Stored as version {number} of {self.fleet}: {count} ports expected.")
        if learned.not_up:
            self.stdout.write(f"{len(learned.not_up)} not up now: {not_up}")
        if learned.spare:
            self.stdout.write(f"{learned.spare} empty second ports of adapters left out")
        if learned.unseen:
            nodes = nodeset.fold({port.node for port in learned.unseen})
            self.stdout.write(f"{len(learned.unseen)} not in the fabric, so without a cable: on {nodes}")

    def _show(self, options: dict[str, Any]) -> None:
        row = fabric.stored_for(self.fleet)
        expected, unreadable = fabric.expected_of(row)
        if row is None:
            raise CommandError(f"Nothing is expected of {self.fleet} yet. manage.py topology learn {self.fleet} FILE")
        if expected is None:
            raise CommandError(unreadable)
        by = f" by {row.by}" if row.by else ""
        self.stdout.write(f"{self.fleet}, version {row.pk} of {row.at:%Y-%m-%d %H:%M} UTC{by}, from {row.source}")
        self.stdout.write(f"{len(expected.ports)} ports of {nodeset.fold(expected.nodes)}")
        counts = Counter((port.leaf or f"rail {port.rail}, switch not known") for port in expected.ports)
        for name, count in sorted(counts.items(), key=lambda item: natural(item[0])):
            self.stdout.write(f"{name}: {count} ports")


def _ask(fleet: Fleet) -> None:
    """As `manage.py fleet check` does: shards that no worker holds are asked here."""
    run = runs.start_suite(fabric.PORTS, list(fleet.nodes.select_related("fleet")), None, ring=False)
    asking.ask_here(run)
    while SuiteRun.objects.get(pk=run.pk).finished_at is None:
        time.sleep(0.2)
