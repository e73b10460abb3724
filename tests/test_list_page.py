"""The list of incidents in Chromium: it updates itself, and says when it cannot."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.support.people import declared, manage
from tests.support.server import Golden15

pytestmark = pytest.mark.browser
NEW = """
from incidents.models import Fleet
from incidents.services.response import declare
print(declare(Fleet.objects.get(name="main"), "nowhere-7", None, 1, "{title}").pk)
"""


def opened(server: Golden15, title: str) -> str:
    """An incident that no person declared, as an alert opens one; its number."""
    return manage(server, "shell", "-c", NEW.format(title=title)).split()[-1]


def test_an_incident_that_opens_elsewhere_appears_and_can_be_taken_from_the_list(
    page: Any, server: Golden15, check_accessibility: Any
) -> None:
    page.goto("/incidents/")
    expect(page.locator("#list-chip")).to_have_text(re.compile(r"^live · \d s$"))
    pk = opened(server, "all-reduce stalled")
    expect(page.get_by_role("link", name=f"INC-{pk} all-reduce stalled")).to_be_visible(timeout=15_000)
    needs = page.get_by_role("region", name="Needs a human")
    expect(needs.get_by_text(f"INC-{pk} its node could not be reached")).to_be_visible(timeout=30_000)
    check_accessibility(page)
    page.get_by_role("button", name=f"Take it: command of INC-{pk}").click()
    page.wait_for_url(f"**/incidents/{pk}")
    expect(page.get_by_text("you command")).to_be_visible()


def test_focus_stays_where_it_is_when_the_list_changes(page: Any, server: Golden15) -> None:
    declared(page)
    name = page.get_by_role("heading", level=1).inner_text()
    page.goto("/incidents/")
    link = page.get_by_role("link", name=re.compile(re.escape(name.replace(" · ", " "))))
    link.focus()
    pk = opened(server, "another")
    expect(page.get_by_role("link", name=f"INC-{pk} another")).to_be_visible(timeout=15_000)
    expect(link).to_be_focused()


def test_a_list_without_answers_says_so_and_recovers(
    page: Any, visit: Callable[..., Any], check_accessibility: Any
) -> None:
    page.clock.install()
    page.goto("/incidents/")
    banner = page.locator("#list-banner")
    page.route("**/incidents/state", lambda route: route.fulfill(status=503))
    page.clock.run_for(14_000)
    expect(banner).to_be_hidden()
    page.clock.run_for(6_000)
    says = r"Golden15 has not answered for 0:(1[5-9]|2\d)\. This is the list as it was at \d\d:\d\d:\d\d UTC\."
    expect(banner).to_have_text(re.compile(f"^{says}$"))
    expect(page.locator("#list-chip")).to_have_text("stale")
    check_accessibility(page)
    page.unroute("**/incidents/state")
    for _ in range(20):
        page.clock.run_for(1_000)
        page.wait_for_timeout(20)
    expect(banner).to_be_hidden()
    expect(page.locator("body")).to_have_attribute("data-live", "live")
    page.troubles[:] = [text for text in page.troubles if "503" not in text]


PORTAL = "<!doctype html><html><body><h1>Guest network: log in</h1><p data-now='x'></p></body></html>"


def test_the_page_of_a_network_that_wants_a_login_is_not_taken_for_the_list(page: Any) -> None:
    page.clock.install()
    page.goto("/incidents/")
    page.route("**/incidents/state", lambda route: route.fulfill(body=PORTAL, content_type="text/html"))
    page.clock.run_for(14_000)
    assert page.get_by_text("Guest network").count() == 0
    page.clock.run_for(6_000)
    expect(page.locator("#list-banner")).to_contain_text("This is the list as it was at")
    page.unroute("**/incidents/state")
    for _ in range(20):
        page.clock.run_for(1_000)
        page.wait_for_timeout(20)
    expect(page.locator("#list-banner")).to_be_hidden()


REFRESH = """async (id) => {
  const { refresh } = await import("/static/refresh.js");
  return refresh(document.getElementById(id)).catch((error) => error.message);
}"""


@pytest.mark.parametrize(("address", "place"), [("/incidents/", "list"), ("/fleet/main/", "fleet-state")])
def test_each_part_is_known_by_the_name_of_its_place(page: Any, address: str, place: str) -> None:
    page.goto(address)
    shown = page.locator(f"#{place}")
    assert page.evaluate(REFRESH, place) is True
    page.route("**/state", lambda route: route.fulfill(body=PORTAL, content_type="text/html"))
    assert page.evaluate(REFRESH, place) == "not this part of the page"
    assert "Guest network" not in shown.inner_text()


class Steady:
    """Answers for the list as of an hour when nothing happens: always the same words, with a new token and time."""

    def __init__(self, page: Any) -> None:
        self.body = page.request.get("/incidents/state").text()
        self.asked = 0
        page.route("**/incidents/state", self.answer)

    def answer(self, route: Any) -> None:
        self.asked += 1
        body = re.sub(r'(name="csrfmiddlewaretoken" value=")', rf"\g<1>{self.asked}", self.body)
        route.fulfill(body=re.sub(r'data-now="[^"]*"', f'data-now="2026-01-01T00:00:{self.asked:02}Z"', body))

    def answers(self, page: Any, count: int) -> None:
        """Until the page shows the time of that many further answers."""
        shown = "seconds => Number(document.querySelector('[data-now]').dataset.now.slice(17, 19)) >= seconds"
        page.wait_for_function(shown, arg=self.asked + count)


MARKED = "getSelection().toString()"


@pytest.mark.long
def test_what_is_marked_stays_marked_while_nothing_changes(page: Any, server: Golden15) -> None:
    opened(server, "marked by somebody")
    page.goto("/incidents/")
    steady = Steady(page)
    steady.answers(page, 1)
    page.get_by_text("marked by somebody").first.evaluate("one => getSelection().selectAllChildren(one)")
    marked = page.evaluate(MARKED)
    assert "marked by somebody" in marked
    steady.answers(page, 2)
    assert page.evaluate(MARKED) == marked
    steady.body = steady.body.replace("marked by somebody", "marked by nobody")
    expect(page.get_by_text("marked by nobody").first).to_be_visible(timeout=15_000)


@pytest.mark.long
def test_nothing_moves_under_a_pointer_that_is_down(page: Any, server: Golden15) -> None:
    opened(server, "under the pointer")
    page.goto("/incidents/")
    steady = Steady(page)
    steady.answers(page, 1)
    page.get_by_text("under the pointer").first.hover()
    page.mouse.down()
    steady.body = steady.body.replace("under the pointer", "somewhere else")
    with page.expect_response("**/incidents/state", timeout=15_000):
        pass
    with page.expect_request("**/incidents/state", timeout=15_000):  # the answer before this one was dealt with
        pass
    assert page.get_by_text("somewhere else").count() == 0
    page.mouse.move(5, 5)
    page.mouse.up()
    expect(page.get_by_text("somewhere else").first).to_be_visible(timeout=15_000)


def test_who_was_signed_out_is_led_to_the_sign_in_page(page: Any) -> None:
    page.goto("/incidents/")
    cookies = page.context.cookies()
    page.context.clear_cookies(name="golden15_session")
    page.wait_for_url("**/sign-in/**", timeout=15_000)
    page.context.add_cookies(cookies)
