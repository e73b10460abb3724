"""The evidence drawer and the buttons of the incident page in Chromium, when answers are late, lost or doubled."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.support.people import Changed, declared
from tests.support.wait import until

pytestmark = pytest.mark.browser


@pytest.fixture
def page(page: Any) -> Iterator[Any]:
    """The page of an incident whose two nodes could not be reached."""
    declared(page)
    expect(page.get_by_text("capture ended: 0 of 2 nodes answered")).to_be_visible(timeout=30_000)
    yield page
    page.troubles[:] = [text for text in page.troubles if not re.search("ERR_FAILED", text)]


def cells(page: Any) -> Any:
    return page.locator("[data-matrix] a")


def test_the_focus_returns_to_the_cell_that_was_rendered_anew(
    page: Any, visit: Callable[..., Any], signed_in_state: Any
) -> None:
    other = visit(storage_state=signed_in_state)
    other.goto(page.url)
    second = cells(page).nth(1)
    second.focus()
    page.keyboard.press("Enter")
    drawer = page.get_by_role("dialog", name="Evidence")
    expect(drawer).to_be_visible()
    Changed(page, "matrix").ring(other)
    page.keyboard.press("Escape")
    expect(drawer).to_be_hidden()
    expect(second).to_be_focused()


def test_evidence_that_does_not_come_is_said_with_a_way_on(page: Any, check_accessibility: Any) -> None:
    page.route("**/evidence/*", lambda route: route.abort())
    cells(page).first.click()
    drawer = page.get_by_role("dialog", name="Evidence")
    expect(drawer).to_contain_text("Golden15 does not answer. Close this and try again in a moment")
    check_accessibility(page)
    page.unroute("**/evidence/*")
    drawer.get_by_role("link", name="open it as a page").click()
    expect(page.get_by_role("heading", name="Evidence")).to_be_attached()


def test_of_two_quick_clicks_the_last_one_is_answered(page: Any) -> None:
    held: list[Any] = []
    first, last = cells(page).first, cells(page).last
    page.route(f"**{first.get_attribute('href')}", lambda route: held.append(route))
    first.click()
    until(lambda: page.wait_for_timeout(20) or held, 5, "the first question")
    last.click()
    drawer = page.get_by_role("dialog", name="Evidence")
    heading = drawer.get_by_role("heading", level=2)
    probe = last.inner_text().split(":")[0].split()[-1]
    expect(heading).to_contain_text(probe)
    with page.expect_response(f"**{first.get_attribute('href')}"):
        held.pop().continue_()
    page.evaluate("new Promise((done) => setTimeout(done, 100))")  # time to show the wrong one
    expect(heading).to_contain_text(probe)


def test_a_double_click_moves_once_and_blames_nobody(page: Any) -> None:
    sent: list[Any] = []

    def answer(route: Any) -> None:
        sent.append(route)
        if len(sent) == 1:
            route.fulfill(status=204)  # no answer that leads anywhere
        else:
            page.wait_for_timeout(200)
            route.continue_()

    page.route("**/advance", answer)
    page.locator("summary", has_text="To Triage").click()
    page.get_by_label("Why is Capture over?").fill("nobody can be reached")
    move = page.get_by_role("button", name="Move to Triage")
    move.click()
    expect(move).to_be_disabled()
    expect(move).to_be_enabled(timeout=15_000)  # it may be tried again
    assert len(sent) == 1
    move.dblclick()
    expect(page.get_by_text("moved to Triage: “nobody can be reached”")).to_be_visible()
    assert len(sent) == 2
    expect(page.get_by_text("a moment ago")).to_have_count(0)


def test_a_pressed_button_stays_locked_when_news_renders_it_anew(
    page: Any, visit: Callable[..., Any], signed_in_state: Any
) -> None:
    other = visit(storage_state=signed_in_state)
    other.goto(page.url)
    page.route("**/advance", lambda route: route.fulfill(status=204))
    page.locator("summary", has_text="To Triage").click()
    page.get_by_label("Why is Capture over?").fill("nobody can be reached")
    move = page.get_by_role("button", name="Move to Triage")
    page.clock.install()  # the lock's five seconds end when the test says so
    move.click()
    Changed(page, "phases").ring(other)
    expect(move).to_be_disabled()
    page.clock.run_for(6_000)
    expect(move).to_be_enabled()
