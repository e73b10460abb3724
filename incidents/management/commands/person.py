"""manage.py person: who may sign in, and as what."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from incidents import policy
from incidents.models import User
from incidents.services.fleet import Refused
from incidents.services.people import set_role


class Command(BaseCommand):
    help = "Makes a person or changes the role of one; without a name, lists all"

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", nargs="?")
        parser.add_argument("--role", choices=policy.ROLES, default="responder", help="default: responder")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["name"] is None:
            for user in User.objects.order_by("username"):
                self.stdout.write(f"{user.username}  {policy.role_of(user) or 'switched off'}")
            return
        try:
            user, made = set_role(options["name"], options["role"])
        except Refused as refused:
            raise CommandError(str(refused)) from refused
        self.stdout.write(f"{user.username} is {policy.role_of(user)}{', made just now' if made else ''}.")
        if made:
            self.stdout.write(f"A sign-in link: make sign-in USER_NAME={user.username}")
