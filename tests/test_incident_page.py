"""The incident page in Chromium: declared with one field, filled by real nodes, right after a reload."""

from __future__ import annotations

import contextlib
import re
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from playwright.sync_api import expect

from probes import suites
from tests.support.hostile import HOSTILE
from tests.support.looks import SIZES, at_each_look
from tests.support.server import BASE, Golden15
from tests.support.sshd_nodes import Lab, free_port
from tests.support.wait import until

pytestmark = pytest.mark.browser
PROBES = len(suites.SUITES["capture"].probes)
SET_UP = len(suites.SUITES["triage"].probes)  # asked of nodes that answered, after the capture


def on_both(sample: str) -> pytest.MarkDecorator:
    """On both databases by `make long`; otherwise on one, as the services under the page are tested on both."""
    databases = [pytest.param(one, marks=[] if one == sample else pytest.mark.long) for one in ("sqlite", "postgresql")]
    return pytest.mark.parametrize("golden15", databases, indirect=True)


def three_nodes(lab: Lab) -> None:
    lab.start("gpu-001")
    lab.start("gpu-002", tools={"nvidia-smi": "#!/bin/sh\nexec yes 'GPU 0: forty-two'\n"})
    lab.name("gpu-003", lab.address(), free_port())


def declared(page: Any, what: str = "gpu-[001-003]") -> None:
    page.goto("/incidents/declare")
    page.get_by_label("Which job, or which nodes?").fill(what)
    page.get_by_role("button", name="Declare").click()
    page.wait_for_url("**/incidents/*")


def captured(page: Any) -> None:
    """Until the capture suite has ended, by reloading: the page is right after each."""
    for _ in range(60):
        if page.get_by_text("capture ended: 2 of 3 nodes answered").count():
            return
        page.reload()
    raise AssertionError(page.inner_text("main"))


def to_triage(page: Any, word: str) -> None:
    page.locator("summary", has_text="To Triage").click()
    page.get_by_label("Why is Capture over?").fill(word)
    page.get_by_role("button", name="Move to Triage").click()


def test_one_field_is_enough_and_every_node_is_asked(
    lab: Lab, open_page: Callable[..., Any], check_accessibility: Any
) -> None:
    three_nodes(lab)
    page = open_page()
    page.goto("/incidents/")
    expect(page.get_by_text("All quiet")).to_be_visible()
    check_accessibility(page)
    declared(page)
    expect(page.get_by_role("heading", name="INC-1")).to_be_visible()
    expect(page.get_by_text("you command")).to_be_visible()
    expect(page.get_by_text("capture suite started on 3 nodes")).to_be_visible()
    captured(page)
    expect(page.get_by_text("connection refused").locator("visible=true").first).to_be_visible()
    check_accessibility(page)


@on_both("postgresql")
def test_the_matrix_fills_live_two_browsers_agree_and_a_reload_shows_the_same(
    lab: Lab, open_page: Callable[..., Any], golden15: Golden15
) -> None:
    three_nodes(lab)
    page = open_page()
    declared(page)
    other = open_page()
    other.goto(page.url)
    for one in (page, other):
        expect(one.get_by_text("capture ended: 2 of 3 nodes answered")).to_be_visible(timeout=40_000)
        expect(one.get_by_text("triage complete: 2 of 2 nodes answered")).to_be_visible(timeout=40_000)
        # On one node nvidia-smi prints nonsense, and three probes call it.
        told = f"{2 * (PROBES + SET_UP) - 3} of {3 * PROBES + 2 * SET_UP} answered"
        expect(one.get_by_text(told).first).to_be_visible()
    shown = [parts(one) for one in (page, other)]
    page.reload()
    assert shown[0] == shown[1] == parts(page)
    to_triage(page, "the third is known to be dead")
    expect(other.get_by_text("moved to Triage: “the third is known")).to_be_visible()
    expect(other.locator("[aria-current=step]")).to_contain_text("Triage")


def parts(page: Any) -> list[str]:
    """What the live parts show, without what the clock moves."""
    return [page.locator(f"[data-slot={slot}]").inner_text() for slot in ("standouts", "matrix", "timeline")]


def test_the_page_lives_through_a_restart_of_everything_below_it(
    lab: Lab, open_page: Callable[..., Any], golden15: Golden15
) -> None:
    three_nodes(lab)
    page = open_page()
    declared(page)
    expect(page.get_by_text("capture ended: 2 of 3 nodes answered")).to_be_visible(timeout=40_000)
    other = open_page()
    for part in ("web", "worker", "broker"):
        golden15.part(part).kill()
    golden15.wait_for("The web works again")
    golden15.wait_for("The broker works again")
    other.goto(page.url)
    to_triage(other, "after the restart")
    expect(page.get_by_text("moved to Triage: “after the restart”")).to_be_visible(timeout=40_000)
    # What the killed process was answering at that moment is an error of the network, which Chromium tells.
    page.troubles[:] = [text for text in page.troubles if not re.search("net::ERR_|WebSocket", text)]


def test_the_evidence_of_a_cell_opens_with_the_keyboard_alone(
    lab: Lab, open_page: Callable[..., Any], check_accessibility: Any
) -> None:
    three_nodes(lab)
    page = open_page()
    declared(page)
    captured(page)
    page.locator("[data-matrix] tr", has_text="host.clock").locator("a").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.textContent").strip()[1:].startswith("gpu-002 ")
    page.keyboard.press("Enter")
    drawer = page.get_by_role("dialog")
    expect(drawer.get_by_role("heading", name="gpu-002")).to_be_visible()
    expect(drawer.get_by_text("Output", exact=True)).to_be_visible()
    check_accessibility(page)
    page.keyboard.press("Escape")
    expect(drawer).to_be_hidden()


def test_the_next_phase_begins_with_a_word(lab: Lab, open_page: Callable[..., Any]) -> None:
    three_nodes(lab)
    page = open_page()
    declared(page)
    to_triage(page, "two nodes answered, the third is known to be dead")
    expect(page.get_by_text("moved to Triage: “two nodes answered")).to_be_visible()
    expect(page.locator("[aria-current=step]")).to_contain_text("Triage")


@at_each_look
def test_nothing_overflows_and_axe_is_content_at_each_size(
    lab: Lab, open_page: Callable[..., Any], check_accessibility: Any, scheme: str, size: str, tmp_path: Path
) -> None:
    three_nodes(lab)
    page = open_page(viewport=SIZES[size], color_scheme=scheme)
    declared(page)
    captured(page)
    here = page.url
    for name, address in (
        ("incident", here),
        ("list", "/incidents/"),
        ("declare", "/incidents/declare"),
        ("timeline", f"{here}/timeline"),
    ):
        page.goto(address)
        page.screenshot(path=tmp_path / f"{name}-{size}-{scheme}.png", full_page=True)
        check_accessibility(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size]["width"], name
    page.goto(here)
    page.locator("[data-matrix] a").first.click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.screenshot(path=tmp_path / f"drawer-{size}-{scheme}.png")
    check_accessibility(page)


# Forty nodes on one machine starve whatever runs beside them: the sample has fewer.
@pytest.mark.needs_root
@pytest.mark.parametrize("count", [8, pytest.param(40, marks=[pytest.mark.long, pytest.mark.timeout(400)])])
@on_both("sqlite")
def test_a_worker_killed_in_the_middle_of_a_capture_costs_nothing(
    lab: Lab, open_page: Callable[..., Any], golden15: Golden15, count: int
) -> None:
    """Every node ends once, every probe of it is answered for once, and the timeline holds."""
    node = lab.start("slow", rc="sleep 3\n", sshd="MaxStartups 100")
    for i in range(count):
        lab.name(f"gpu-{i:03}", node.address, node.port)
    page = open_page()
    declared(page, f"gpu-[000-{count - 1:03}]")
    until(lambda: lab.nodes["slow"].processes(), 30, "the worker to ask")
    golden15.part("worker").kill()
    golden15.wait_for("The worker ended unexpectedly")
    # Forty may be too slow for one machine: then a node runs out of its time, and is answered for all the same.
    ended = re.compile(rf"capture (complete|ended): \d+ of {count} nodes answered")
    expect(page.get_by_text(ended)).to_be_visible(timeout=300_000)
    told = subprocess.run(
        [sys.executable, "manage.py", "verify_timeline"], cwd=BASE, env=golden15.env, capture_output=True, text=True
    )
    assert "of 1 incidents: whole" in told.stdout, told.stdout + told.stderr
    of_it = "run_id IN (SELECT id FROM incidents_suiterun WHERE suite = 'capture')"  # the next suite may run already
    rows = f"SELECT COUNT(*), COUNT(DISTINCT node_id) FROM incidents_nodevisit WHERE {of_it}"
    assert query(golden15, rows) == (count, count)
    rows = f"SELECT COUNT(*), COUNT(DISTINCT node_id || probe) FROM incidents_reading WHERE {of_it}"
    assert query(golden15, rows) == (count * PROBES,) * 2
    rows = "SELECT COUNT(*), 1 FROM incidents_event WHERE kind = 'suite_ended' AND payload ->> 'suite' = 'capture'"
    assert query(golden15, rows) == (1, 1)


def query(golden15: Golden15, statement: str) -> tuple[int, ...]:
    if url := golden15.env.get("DATABASE_URL"):
        with psycopg.connect(url) as connection:
            found = connection.execute(statement).fetchone()  # type: ignore[arg-type]
            assert found is not None
            return tuple(found)
    with contextlib.closing(sqlite3.connect(golden15.data / "golden15.sqlite3")) as database:
        row = database.execute(statement).fetchone()
    return tuple(row)


@pytest.mark.needs_root
def test_thirty_hostile_strings_from_a_node_are_shown_and_execute_nothing(
    lab: Lab, open_page: Callable[..., Any]
) -> None:
    """They come back as what nvidia-smi prints, so they reach the facts' error, the raw output and the timeline."""
    script = "#!/bin/sh\ncat <<'END-OF-HOSTILE'\n" + "\n".join(HOSTILE) + "\nEND-OF-HOSTILE\n"
    lab.start("gpu-001", tools={"nvidia-smi": script}, rc=f"printf '%s\\n' {shlex.quote(HOSTILE[0])}\n")
    page = open_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("dialog", lambda dialog: asked.append(f"dialog {dialog.message}"))
    declared(page, "gpu-001")
    expect(page.get_by_text("capture complete")).to_be_visible(timeout=40_000)
    page.locator("[data-matrix] a", has_text="gpu-001 gpu.state").click()
    drawer = page.get_by_role("dialog")
    expect(drawer.get_by_text("Output", exact=True)).to_be_visible()
    shown = drawer.inner_text()
    for text in HOSTILE[:21]:
        assert text in shown, text
    assert "\x1b" not in shown and "\u202e" not in shown and "\u200b" not in shown
    assert "over␍written" in shown
    page.goto(drawer.evaluate("() => document.querySelector('[data-matrix] a[href]').href"))
    assert "owned" not in page.title()
    assert page.locator("script[src*=evil], base, iframe, object, form[action*=evil]").count() == 0
    assert [url for url in asked if "evil" in url or url.startswith("dialog")] == []
