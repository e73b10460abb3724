"""The sweeper goes on through database trouble, and says so once."""

from io import StringIO

import pytest
from django.db import OperationalError

from config.management.commands.sweeper import Command
from incidents import services


@pytest.fixture
def sweeper() -> Command:
    command = Command(stdout=StringIO())
    command.failing_since, command.said = None, 0.0
    return command


@pytest.mark.django_db
def test_database_trouble_is_said_once_and_its_end_too(sweeper: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> int:
        raise OperationalError("database is locked\nmore words")

    monkeypatch.setattr("django.db.connection.close", lambda: None)  # the test's own transaction is on it
    healthy = services.sweep
    monkeypatch.setattr(services, "sweep", fail)
    for _ in range(3):
        sweeper.turn()
    monkeypatch.setattr(services, "sweep", healthy)
    for _ in range(2):
        sweeper.turn()
    assert sweeper.stdout._out.getvalue().splitlines() == [
        "the database failed: database is locked. Trying again every 3 s",
        "the database answers again, after 0 s",
    ]


def test_a_bug_is_not_hidden_it_ends_the_process_and_the_supervisor_says_so(
    sweeper: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(services, "sweep", fail)
    with pytest.raises(ZeroDivisionError):
        sweeper.turn()
