"""manage.py person: who may sign in, and as what in which fleet."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from incidents import policy
from incidents.models import User
from incidents.services.fleet import Refused
from incidents.services.people import fleet_named, set_role

NONE = "none"


class Command(BaseCommand):
    help = "Makes a person or changes their role in a fleet; without a name, lists all"

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", nargs="?")
        parser.add_argument(
            "--role",
            choices=(*policy.ROLES, NONE),
            default="responder",
            help="default: responder; none takes the person out of the fleet",
        )
        parser.add_argument("--fleet", metavar="NAME", help="which fleet; not needed while there is one")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["name"] is None:
            for user in User.objects.prefetch_related("memberships__fleet").order_by("username"):
                self.stdout.write(f"{user.username}  {_roles(user)}")
            return
        role = None if options["role"] == NONE else options["role"]
        try:
            fleet = fleet_named(options["fleet"])
            user, made = set_role(options["name"], fleet, role)
        except Refused as refused:
            raise CommandError(str(refused)) from refused
        self.stdout.write(f"{user.username} is {role or 'not'} in {fleet}{', made just now' if made else ''}.")
        if user.is_superuser:
            self.stdout.write(f"{user.username} runs this server and is admin of every fleet all the same.")
        if made:
            self.stdout.write(f"A sign-in link: make sign-in USER_NAME={user.username}")


def _roles(user: User) -> str:
    if not user.is_active:
        return "switched off"
    if user.is_superuser:
        return "admin of every fleet"
    return ", ".join(f"{one.role} in {one.fleet}" for one in user.memberships.all()) or "in no fleet"
