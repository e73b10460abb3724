"""The sweeper: every few seconds it sets right what died halfway."""

import signal
import threading
import time
from typing import Any

from django.core.management.base import BaseCommand
from django.db import Error, connection

from config.lifeline import report_ready
from incidents import services

PERIOD = 3.0  # seconds
SAY_AGAIN = 60.0  # seconds between two lines about the same trouble


class Command(BaseCommand):
    help = "Sets right what died halfway, every 3 s, until it is stopped."
    requires_system_checks = []  # the supervisor's start is the place for checks

    def handle(self, *args: Any, **options: Any) -> None:
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        self.failing_since: float | None = None
        self.said = 0.0
        while not stop.is_set():
            self.turn()
            stop.wait(PERIOD)

    def turn(self) -> None:
        """One sweep. A database that does not answer is said, and tried again at the next turn."""
        try:
            services.sweep()
        except Error as error:
            connection.close()
            self.say_failing(error)
            return
        if self.failing_since is not None:
            self.say(f"the database answers again, after {time.monotonic() - self.failing_since:.0f} s")
            self.failing_since = None
        report_ready()

    def say_failing(self, error: Error) -> None:
        now = time.monotonic()
        if self.failing_since is None:
            self.failing_since = now
        elif now - self.said < SAY_AGAIN:
            return
        self.said = now
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        self.say(f"the database failed: {reason}. Trying again every {PERIOD:.0f} s")

    def say(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()
