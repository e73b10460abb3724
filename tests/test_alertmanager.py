"""The real Alertmanager, with the configuration of docs/alerts.md, posts to the real supervisor."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.server import BASE, Golden15
from tests.support.sshd_nodes import free_port
from tests.support.wait import until


class Alertmanager:
    def __init__(self, folder: Path, config: str) -> None:
        program = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
        assert program, "Alertmanager is missing: apt install prometheus-alertmanager"
        (folder / "alertmanager.yml").write_text(config)
        self.url = f"http://127.0.0.1:{free_port()}"
        self.log = (folder / "log").open("w+")
        self.process = subprocess.Popen(
            [
                program,
                f"--config.file={folder / 'alertmanager.yml'}",
                f"--storage.path={folder}",
                f"--web.listen-address={self.url.removeprefix('http://')}",
                "--cluster.listen-address=",
            ],
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )
        until(self._ready, 20, "Alertmanager answers")

    def _ready(self) -> bool:
        assert self.process.poll() is None, Path(self.log.name).read_text()
        try:
            return bool(self._ask("/-/ready"))
        except OSError:
            return False

    def _ask(self, path: str, body: object = None) -> str:
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked, timeout=10) as answer:
            return str(answer.read().decode() or "ok")

    def tell(self, ends: datetime | None = None, **labels: str) -> None:
        """What Prometheus posts to Alertmanager."""
        one: dict[str, Any] = {
            "labels": {"alertname": "TrainingStalled", "team": "training", **labels},
            "annotations": {"summary": f"{labels['job_name']} makes no steps"},
            "startsAt": (datetime.now(UTC) - timedelta(minutes=4)).isoformat(),
        }
        self._ask("/api/v2/alerts", [{**one, "endsAt": ends.isoformat()} if ends else one])


@pytest.fixture
def alertmanager(tmp_path: Path) -> Iterator[Callable[[str], Alertmanager]]:
    started: list[Alertmanager] = []

    def start(config: str) -> Alertmanager:
        started.append(Alertmanager(tmp_path, config))
        return started[-1]

    yield start
    for one in started:
        one.process.terminate()
        one.process.wait(20)
        one.log.close()


def test_the_real_alertmanager_opens_an_incident_and_its_resolve_closes_nothing(
    start_golden15: Callable[..., Golden15], alertmanager: Callable[[str], Alertmanager], tmp_path: Path
) -> None:
    golden15 = start_golden15()
    golden15.wait_ready()
    made = subprocess.run(
        [sys.executable, "manage.py", "alert_source", "add", "cluster-1"],
        cwd=BASE,
        env=golden15.env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"{golden15.url}/alerts/cluster-1" in made.stderr
    (tmp_path / "token").write_text(made.stdout)
    source = alertmanager(config_of_the_page(golden15.url, tmp_path / "token"))

    def rows(statement: str) -> list[Any]:
        with sqlite3.connect(golden15.data / "golden15.sqlite3") as database:
            return database.execute(statement).fetchall()

    def told() -> list[str]:
        return [kind for (kind,) in rows("SELECT kind FROM incidents_event WHERE kind = 'alert' OR kind = 'declared'")]

    source.tell(job_name="llm-70b", node="gpu-[001-002]", severity="critical")
    until(lambda: told() == ["declared"], 30, what_was_awaited(source))
    assert rows("SELECT title, severity FROM incidents_incident") == [("llm-70b makes no steps", 1)]
    assert rows("SELECT name FROM incidents_node ORDER BY name") == [("gpu-001",), ("gpu-002",)]
    (raw,) = rows("SELECT raw FROM incidents_alertdelivery")[0]
    assert json.loads(raw)["version"] == "4"

    source.tell(datetime.now(UTC), job_name="llm-70b", node="gpu-[001-002]", severity="critical")
    until(lambda: told() == ["declared", "alert"], 30, what_was_awaited(source))
    assert rows("SELECT status FROM incidents_alert") == [("resolved",)]
    assert rows("SELECT closed_at FROM incidents_incident") == [(None,)]
    assert rows("SELECT problem FROM incidents_alertdelivery WHERE problem != ''") == []


def what_was_awaited(source: Alertmanager) -> str:
    return f"the alert in the timeline; Alertmanager's log: {source.log.name}"


def config_of_the_page(url: str, token: Path) -> str:
    """The sample of docs/alerts.md, with this test's address, file and less patience."""
    page = (BASE / "docs" / "alerts.md").read_text()
    found = re.search(r"^ *```yaml\n(.*?)^ *```", page, re.MULTILINE | re.DOTALL)
    assert found
    config = found[1]
    for old, new in (
        ("https://golden15.example", url),
        ("/etc/alertmanager/golden15.token", str(token)),
        ("group_interval: 1m", "group_interval: 1s"),
    ):
        assert old in config
        config = config.replace(old, new)
    return config
