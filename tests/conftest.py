"""Fixtures that many tests share, and the count of tests that could not run here."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.control_groups import MakeGroup, control_groups
from tests.support.postgres import postgres
from tests.support.redis_server import redis_server
from tests.support.server import Golden15
from tests.support.sshd_nodes import Lab

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
CANNOT = "cannot run here: "


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("needs_root") and os.geteuid() != 0:
            item.add_marker(pytest.mark.skip(reason=CANNOT + "needs root"))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say out loud, as the last thing, what was not tested."""
    reasons = Counter(
        str(report.longrepr[2]).removeprefix("Skipped: ") for report in terminalreporter.stats.get("skipped", [])
    )
    if not reasons:
        return
    listed = ", ".join(f"{count} {reason.removeprefix(CANNOT)}" for reason, count in sorted(reasons.items()))
    terminalreporter.write_sep("!", f"{reasons.total()} TESTS DID NOT RUN: {listed}")


@pytest.fixture(autouse=True)
def nothing_is_known_from_the_test_before() -> None:
    """Tests number and date their readings alike, and a worker keeps what it has read."""
    if "incidents.services.diagnosing" in sys.modules:
        sys.modules["incidents.services.diagnosing"].forget()  # type: ignore[attr-defined]


@pytest.fixture(autouse=True, scope="session")
def tests_may_empty_their_database() -> Iterator[None]:
    """After a test with real commits Django empties all tables, which the guards of tables that only grow refuse.
    Here, and nowhere in the product, they are taken away for that moment."""
    from django.core.management.commands import flush
    from django.db import connections

    from incidents.models import guards

    original = flush.Command.handle

    def handle(command: Any, **options: Any) -> None:
        connection = connections[options["database"]]
        guards.unguard(connection, *guards.APPEND_ONLY)
        try:
            original(command, **options)
        finally:
            guards.guard(connection, *guards.APPEND_ONLY)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flush.Command, "handle", handle)
        yield


@pytest.fixture
def rung(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The shards that workers would have been told of; nobody is told."""
    from incidents.services import runs

    rung: list[int] = []
    monkeypatch.setattr(runs.current_app, "send_task", lambda name, args, **_: rung.extend(args))
    return rung


@pytest.fixture
def sender() -> Any:
    """A source of alerts, as Alertmanager posts."""
    from tests.support.alerts import Sender

    return Sender()


@pytest.fixture
def data_folder() -> Iterator[Path]:
    """A data folder with a short path, as a person's is; pytest's own folders are long."""
    folder = Path(tempfile.mkdtemp(prefix="g15-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def group() -> Iterator[MakeGroup]:
    """Makes control groups with limits; they are gone at the end of the test."""
    with control_groups() as make:
        yield make


@pytest.fixture
def lab() -> Iterator[Lab]:
    """Real sshd nodes, stopped at the end of the test."""
    folder = Path(tempfile.mkdtemp(prefix="g15-lab-", dir="/tmp"))
    with Lab(folder) as lab:
        yield lab
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def start_golden15(data_folder: Path) -> Iterator[Callable[..., Golden15]]:
    """Starts supervisors, in one data folder unless told otherwise; all are gone at the end of the test."""
    started: list[Golden15] = []

    def start(data: Path = data_folder, **env: str) -> Golden15:
        started.append(Golden15(data, **env))
        return started[-1]

    yield start
    for one in started:
        one.kill_all()


@pytest.fixture(scope="session")
def server() -> Iterator[Golden15]:
    """One real Golden15 for all tests that only use it. Tests that break it start their own."""
    folder = Path(tempfile.mkdtemp(prefix="g15-", dir="/tmp"))
    one = Golden15(folder, DJANGO_SETTINGS_MODULE="tests.support.worker_settings")
    try:
        one.wait_ready()
        yield one
    finally:
        one.kill_all()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """The system's Chromium. Per module: while Playwright's loop runs in a thread, async tests cannot."""
    from playwright.sync_api import expect, sync_playwright

    # Five seconds are a claim about speed, and this is not where speed is looked at: the machine may be busy.
    expect.set_options(timeout=20_000)
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert program, "chromium is missing: apt install chromium"
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def signed_in_state(chromium: Any, server: Golden15) -> Any:
    """Cookies of a signed-in administrator, got once through a real link."""
    context = chromium.new_context()
    page = context.new_page()
    page.goto(server.fresh_link())
    page.get_by_role("button", name="Sign out").wait_for()
    state = context.storage_state()
    context.close()
    return state


def watch(page: Any, troubles: list[str]) -> None:
    """Note every script error and every error on the console of a page."""
    page.on("pageerror", lambda error: troubles.append(f"script error: {error}"))
    page.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)


@pytest.fixture
def visit(chromium: Any, server: Golden15) -> Iterator[Callable[..., Any]]:
    """Opens a page of a new browser context; any console error, blocked resource or script error fails the test."""
    contexts: list[Any] = []
    troubles: list[str] = []

    def open_page(**options: Any) -> Any:
        context = chromium.new_context(base_url=server.url, **options)
        contexts.append(context)
        page = context.new_page()
        watch(page, troubles)
        page.troubles = troubles  # a test of an error page takes its expected one out
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert troubles == []


@pytest.fixture
def page(visit: Callable[..., Any], signed_in_state: Any) -> Any:
    """A page of a signed-in administrator."""
    return visit(storage_state=signed_in_state)


@pytest.fixture
def anonymous_page(visit: Callable[..., Any]) -> Any:
    return visit()


@pytest.fixture
def check_accessibility() -> Callable[[Any], None]:
    """Fails with axe's findings for the page as it is now."""

    def check(page: Any) -> None:
        page.evaluate(AXE.read_text())
        found = page.evaluate("axe.run()")["violations"]
        told = [f"{v['id']}: {v['help']}: {n['html']} {n['failureSummary']}" for v in found for n in v["nodes"]]
        assert told == []

    return check


@pytest.fixture
def golden15(start_golden15: Callable[..., Golden15], lab: Lab, request: pytest.FixtureRequest) -> Iterator[Golden15]:
    """A server of this test's own that can ask the lab's nodes; on PostgreSQL and Redis where ON_BOTH says so."""
    with contextlib.ExitStack() as stack:
        env = {"GOLDEN15_SSH_CONFIG": str(lab.config)}
        if getattr(request, "param", "") == "postgresql":
            env |= {"DATABASE_URL": stack.enter_context(postgres()), "REDIS_URL": stack.enter_context(redis_server())}
        one = start_golden15(**env)
        one.wait_ready()
        yield one
        one.kill_all()  # before its database goes


@pytest.fixture
def open_page(chromium: Any, golden15: Golden15) -> Iterator[Callable[..., Any]]:
    """A page of a signed-in administrator of this test's own server. Console errors fail the test."""
    contexts: list[Any] = []
    troubles: list[str] = []

    def open_one(**options: Any) -> Any:
        context = chromium.new_context(base_url=golden15.url, **options)
        contexts.append(context)
        page = context.new_page()
        watch(page, troubles)
        page.troubles = troubles  # as above
        page.goto(golden15.fresh_link())
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert troubles == []
