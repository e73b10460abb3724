"""Print a fresh one-time sign-in link."""

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from incidents.models import User
from incidents.services.sign_in import issue_first_link, issue_link


class Command(BaseCommand):
    help = "Prints a sign-in link that works once, within 15 minutes."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("user", nargs="?", default="admin", help="whose link; default: admin, made when absent")

    def handle(self, *args: Any, **options: Any) -> None:
        name = options["user"]
        if name == "admin":
            token = issue_first_link(name)
        else:
            try:
                token = issue_link(User.objects.get(username=name, is_active=True))
            except User.DoesNotExist:
                advice = f".venv/bin/python manage.py person {name}"
                raise CommandError(f"There is no active user {name!r}. To make one: {advice}") from None
        self.stdout.write(f"{settings.SITE_URL}/sign-in/{token}")
