"""manage.py fleet: what the Fleet page does, for scripts and for a terminal at 3 am."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from incidents import asking
from incidents.management.given import text_of
from incidents.models import SuiteRun, User
from incidents.queries import fleet as queries
from incidents.services import fleet as services
from incidents.services import people, runs
from incidents.templatetags.fleet import MARKS
from probes import nodeset
from probes.core import clean


class Command(BaseCommand):
    help = "Nodes of a fleet: add, list, check, keys, accept, remove; new makes another fleet"

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--fleet", metavar="NAME", help="which fleet; not needed while there is one")
        acts = parser.add_subparsers(
            required=True, dest="act", metavar="add | list | check | keys | accept | remove | new"
        )
        add = acts.add_parser("add", help="add nodes: a nodeset, or a hostfile with --file (- for standard input)")
        add.add_argument("nodes", nargs="?", help="such as 'gpu-[001-064]'")
        add.add_argument("--file", help="hostfile, Ansible INI inventory or /etc/hosts lines")
        add.add_argument("--user", default="")
        add.add_argument("--port", type=int)
        add.add_argument("--jump", default="", metavar="[USER@]HOST[:PORT]")
        acts.add_parser("list", help="every node and how it stands")
        acts.add_parser("check", help="ask every node whether it can be asked, and say what is wrong")
        acts.add_parser("keys", help="host keys that wait to be accepted")
        accept = acts.add_parser("accept", help="accept the host keys on a list that you trust")
        accept.add_argument(
            "--list",
            required=True,
            metavar="FILE",
            help="known_hosts, ssh-keyscan or ssh-keygen -l lines; - for standard input",
        )
        accept.add_argument("--as", required=True, dest="by", metavar="USER", help="who accepts; it is recorded")
        remove = acts.add_parser("remove", help="take nodes out of the fleet")
        remove.add_argument("nodes")
        acts.add_parser("new", help="make another fleet, with people and incidents of its own").add_argument("name")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            if options["act"] != "new":
                self.fleet = people.fleet_named(options["fleet"])
            getattr(self, f"_{options['act']}")(options)
        except (services.Refused, nodeset.NodesetError) as refused:
            raise CommandError(str(refused)) from refused
        except KeyboardInterrupt:
            raise CommandError("Stopped. What the nodes were doing for us was ended.", returncode=130) from None

    def _add(self, options: dict[str, Any]) -> None:
        if (options["nodes"] is None) == (options["file"] is None):
            raise CommandError("Say which nodes: either a nodeset such as 'gpu-[001-064]', or --file FILE.")
        text = options["nodes"] if options["file"] is None else text_of(options["file"])
        added = services.add_nodes(
            self.fleet, text, services.Login(options["user"], options["port"], options["jump"]), None
        )
        for names, word in ((added.new, "added"), (added.changed, "changed"), (added.same, "there already")):
            if names:
                self.stdout.write(f"{len(names)} {word}: {nodeset.fold(names)}")

    def _list(self, options: dict[str, Any]) -> None:
        same: dict[tuple[str, str], list[str]] = {}
        for state in queries.states(self.fleet):
            what = f"{state.says}: {state.next}" if state.next else state.says
            same.setdefault((state.level, what), []).append(state.node.name)
        for (level, what), names in same.items():
            self.stdout.write(f"{MARKS[level]} {nodeset.fold(names)}  {clean(what)}")

    def _check(self, options: dict[str, Any]) -> None:
        for line in queries.ignored_ssh_options():
            self.stderr.write(line)
        # A check that another started is joined: its open shards are asked here, if no worker holds them.
        run = runs.open_check(self.fleet) or runs.start_suite(
            runs.CHECK, list(self.fleet.nodes.select_related("fleet")), None, ring=False
        )
        asking.ask_here(run)
        while SuiteRun.objects.get(pk=run.pk).finished_at is None:
            time.sleep(0.2)
            self.stderr.write(f"\r{run.visits.count()} of {run.node_count} ended", ending="")
        self._list(options)
        tally = queries.tally(queries.states(self.fleet))
        self.stdout.write(f"{tally['ok']} of {run.node_count} nodes ready.")
        if tally["ok"] != run.node_count:
            sys.exit(1)

    def _keys(self, options: dict[str, Any]) -> None:
        for key in queries.waiting_keys(self.fleet):
            self.stdout.write(f"{'CHANGED ' if key.changed else ''}{key.node.name} {key.kind} {key.fingerprint}")

    def _accept(self, options: dict[str, Any]) -> None:
        by = User.objects.filter(username=options["by"]).first()
        if by is None:
            raise CommandError(
                f"There is no user {options['by']}. Users: {', '.join(User.objects.values_list('username', flat=True))}"
            )
        pasted = services.accept_pasted(self.fleet, text_of(options["list"]), by)
        for names, word in (
            (pasted.accepted, "accepted"),
            (pasted.changed, "of them CHANGED"),
            (pasted.refused, "NOT accepted, the list holds another key"),
            (pasted.not_listed, "still waiting, not on the list"),
        ):
            if names:
                self.stdout.write(f"{len(names)} {word}: {nodeset.fold(names)}")

    def _remove(self, options: dict[str, Any]) -> None:
        names = nodeset.expand(options["nodes"])
        there = set(self.fleet.nodes.filter(name__in=names).values_list("name", flat=True))
        self.stdout.write(f"{services.remove_nodes(self.fleet, names)} taken out")
        if unknown := [name for name in names if name not in there]:
            raise CommandError(f"Not in the fleet: {nodeset.fold(unknown)}")

    def _new(self, options: dict[str, Any]) -> None:
        fleet = people.new_fleet(options["name"])
        self.stdout.write(f"Fleet {fleet} is made. Add its people: manage.py person NAME --fleet {fleet}")
