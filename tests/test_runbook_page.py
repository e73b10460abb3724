"""The runbook on the page: keys for what is safe, a second person in a second browser for what is not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.support.looks import SIZES, at_each_look
from tests.support.people import declared, sign_in
from tests.support.server import Golden15
from tests.support.verdicts import given

pytestmark = pytest.mark.browser
STOPPED = '[*stopped_rank("nowhere-2"), mapped("nowhere-2")]'


@pytest.fixture
def incident(server: Golden15, page: Any) -> str:
    """An incident whose rank 1 on nowhere-2 is stopped; its address."""
    address = declared(page)
    expect(page.get_by_text("capture ended: 0 of 2 nodes answered")).to_be_visible(timeout=30_000)
    given(server, address, STOPPED)
    expect(page.get_by_role("region", name="Verdict").locator(".lead")).to_contain_text("Rank 1", timeout=20_000)
    return address


def pressed(page: Any, key: str) -> None:
    page.locator("html.keys").wait_for()  # the page's script has begun
    page.locator("main").focus()
    page.keyboard.press(key)


@pytest.fixture
def runbook(page: Any, incident: str) -> Iterator[Any]:
    pressed(page, "b")
    panel = page.get_by_role("region", name="Runbook")
    expect(panel.locator(".question")).to_contain_text("Is the rank's process still there")
    yield panel


@at_each_look
def test_the_panel_is_right_at_every_size(
    visit: Callable[..., Any], signed_in_state: Any, server: Golden15, check_accessibility: Any, tmp_path: Path,
    size: str, scheme: str,
) -> None:  # fmt: skip
    page = visit(storage_state=signed_in_state, viewport=SIZES[size], color_scheme=scheme)
    address = declared(page)
    given(server, address, STOPPED)
    expect(page.locator(".lead")).to_contain_text("Rank 1", timeout=20_000)
    pressed(page, "b")
    panel = page.get_by_role("region", name="Runbook")
    expect(panel.locator(".question")).to_contain_text("Is the rank's process still there")
    pressed(page, "2")
    expect(panel.locator(".question")).to_have_text("Will it come by itself?")
    panel.locator("details.option summary").click()
    check_accessibility(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    verdict = page.get_by_role("region", name="Verdict").bounding_box()
    box = panel.bounding_box()
    paths = page.get_by_role("region", name="Diagnostic paths").bounding_box()
    if size == "phone":
        assert verdict["y"] < box["y"] < paths["y"], "on a phone the runbook comes below the verdict"
    page.screenshot(path=tmp_path / f"runbook-{size}-{scheme}.png", full_page=True)


def test_a_digit_chooses_what_is_safe_and_none_what_may_lose_work(page: Any, runbook: Any) -> None:
    pressed(page, "2")
    expect(runbook.locator(".question")).to_have_text("Will it come by itself?")
    assert [one.get_attribute("data-hotkey") for one in runbook.locator("[data-hotkey]").all()] == ["1", "2", "r"]
    pressed(page, "2")  # opens its form, and nothing more
    expect(runbook.get_by_label("Why?")).to_be_focused()
    expect(runbook).not_to_contain_text("waits for a second person")
    expect(page.locator(".tl")).to_contain_text("decided “It is there, runs, and does not come”")


def test_a_second_person_approves_and_the_first_sees_what_became_of_it(
    page: Any, runbook: Any, visit: Callable[..., Any], server: Golden15, incident: str
) -> None:
    pressed(page, "2")
    runbook.locator("details.option summary").click()
    runbook.get_by_label("Why?").fill("it holds a lock")
    runbook.get_by_role("button", name="Ask for it").click()
    expect(runbook).to_contain_text("waits for a second person")
    expect(runbook.get_by_role("button", name="Approve: run it")).to_have_count(0)
    other = sign_in(visit(), server, "sam", "commander")
    other.goto(incident)
    theirs = other.get_by_role("region", name="Runbook")
    expect(theirs).to_contain_text("admin asked for it: “it holds a lock”")
    theirs.get_by_role("button", name="Approve: run it").click()
    asked = other.get_by_role("dialog")
    expect(asked).to_contain_text("on nowhere-2? It cannot be undone")
    expect(theirs).to_contain_text("waits for a second person")
    asked.get_by_role("button", name="Yes").click()
    # nowhere-2 is no machine: it is certain that nothing was done, so the question is asked again.
    expect(runbook).to_contain_text("Nothing was done on nowhere-2", timeout=30_000)
    expect(runbook.locator(".question")).to_have_text("Will it come by itself?")
    expect(page.locator(".tl")).to_contain_text("sam approved “kill -TERM")


def test_a_viewer_sees_the_runbook_and_has_no_buttons(
    runbook: Any, visit: Callable[..., Any], server: Golden15, incident: str
) -> None:
    viewer = sign_in(visit(), server, "vera", "viewer")
    viewer.goto(incident)
    theirs = viewer.get_by_role("region", name="Runbook")
    expect(theirs.locator(".question")).to_contain_text("Is the rank's process still there")
    expect(theirs.get_by_role("button")).to_have_count(0)


def test_without_a_script_the_forms_do_the_same(
    chromium: Any, server: Golden15, signed_in_state: Any, incident: str
) -> None:
    context = chromium.new_context(base_url=server.url, storage_state=signed_in_state, java_script_enabled=False)
    plain = context.new_page()
    plain.goto(incident)
    plain.get_by_role("button", name="Start the runbook").click()
    plain.get_by_role("button", name=re.compile("^It is gone")).click()
    expect(plain.get_by_role("region", name="Runbook").locator(".question")).to_have_text("How does the job come back?")
    context.close()
