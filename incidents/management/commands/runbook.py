"""manage.py runbook check FILE... | list"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from incidents import runbook


class Command(BaseCommand):
    help = (
        "Check runbook files (without a file: the shipped ones), or list the runbooks and the causes that they are for."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("what", choices=["check", "list"])
        parser.add_argument("files", nargs="*", type=Path)

    def handle(self, *args: Any, what: str, files: list[Path], **options: Any) -> None:
        if what == "list":
            for book in runbook.load().values():
                self.stdout.write(f"{book.id}: {book.title}. For {', '.join(book.causes)}")
            return
        files = files or sorted(runbook.FOLDER.glob("*.toml"))
        troubles = [trouble for path in files for trouble in runbook.check(path)]
        for trouble in troubles:
            self.stderr.write(str(trouble))
        if troubles:
            raise CommandError(
                f"{len(troubles)} wrong in {len(files)} files. Mend them: a wrong runbook is not offered."
            )
        self.stdout.write(f"{len(files)} runbook{'' if len(files) == 1 else 's'}, nothing wrong.")
