"""The note's field in Chromium: sent once, never lost, whatever happens between page and server."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.support.hostile import HOSTILE
from tests.support.people import declared, manage, sign_in
from tests.support.server import Golden15

pytestmark = pytest.mark.browser
NOT_REACHED = re.compile(
    "ERR_FAILED|WebSocket|status of (404|422|500)"
)  # what Chromium says of answers that tests withhold


@pytest.fixture
def page(page: Any) -> Iterator[Any]:
    """The page of an incident that was declared a moment ago."""
    declared(page)
    expect(page.get_by_text("capture ended: 0 of 2 nodes answered")).to_be_visible(timeout=30_000)
    yield page
    page.goto("about:blank")
    page.troubles[:] = [text for text in page.troubles if not NOT_REACHED.search(text)]


def field(page: Any) -> Any:
    return page.get_by_label("Note", exact=True)


def told(page: Any) -> list[str]:
    """The notes in the timeline as a reload shows them, the newest first."""
    page.reload()
    return [text for text in page.locator("[data-slot=timeline] .said").all_inner_texts() if "“" in text]


def test_enter_sends_and_shift_enter_breaks_the_line(page: Any, check_accessibility: Any) -> None:
    field(page).press_sequentially("two spares")
    before = field(page).bounding_box()["height"]
    field(page).press("Shift+Enter")
    field(page).press_sequentially("are idle")
    assert field(page).bounding_box()["height"] > before + 10, "the field grows"
    check_accessibility(page)
    field(page).press("Enter")
    expect(page.get_by_text("“two spares\nare idle”")).to_be_visible()
    expect(field(page)).to_have_value("")
    assert field(page).bounding_box()["height"] == pytest.approx(before, abs=1)
    expect(field(page)).to_be_focused()
    assert told(page) == ["admin “two spares\nare idle”"]


def test_another_browser_sees_it_while_somebody_types_there(
    page: Any, visit: Callable[..., Any], signed_in_state: Any
) -> None:
    other = visit(storage_state=signed_in_state)
    other.goto(page.url)
    field(other).fill("half a sen")
    field(page).fill("ring it is")
    page.get_by_role("button", name="Send").click()
    expect(other.get_by_text("“ring it is”")).to_be_visible()
    expect(field(other)).to_have_value("half a sen")
    expect(field(other)).to_be_focused()


def test_what_could_not_be_sent_stays_over_a_reload_and_is_sent_later(page: Any, check_accessibility: Any) -> None:
    page.route("**/note", lambda route: route.abort())
    field(page).fill("leaf-03 is being looked at")
    field(page).press("Enter")
    expect(page.get_by_role("alert").filter(has_text="Not sent: Golden15 does not answer")).to_be_visible()
    expect(field(page)).to_have_value("leaf-03 is being looked at")
    check_accessibility(page)
    page.reload()
    expect(field(page)).to_have_value("leaf-03 is being looked at")
    page.unroute("**/note")
    field(page).press("Enter")
    expect(page.get_by_text("“leaf-03 is being looked at”")).to_be_visible()
    page.reload()
    expect(field(page)).to_have_value("")


@pytest.mark.parametrize("between", ["nothing", "a reload", "an edit"])
def test_a_note_whose_answer_was_lost_is_not_stored_twice(page: Any, between: str) -> None:
    def lose(route: Any) -> None:
        route.fetch()  # the server stores it
        route.abort()

    page.route("**/note", lose)
    field(page).fill("once")
    field(page).press("Enter")
    expect(page.get_by_text("Not sent:")).to_be_visible()
    page.unroute("**/note")
    if between == "a reload":
        page.reload()
    if between == "an edit":
        field(page).fill("once more")
    field(page).press("Enter")
    expect(field(page)).to_have_value("")
    expected = ["admin “once more”", "admin “once”"] if between == "an edit" else ["admin “once”"]
    assert told(page) == expected


def lose_the_answer(page: Any, text: str) -> None:
    """Sends a note that the server stores and the page hears nothing of."""

    def lose(route: Any) -> None:
        route.fetch()
        route.abort()

    page.route("**/note", lose)
    field(page).fill(text)
    field(page).press("Enter")
    expect(page.get_by_text("Not sent:")).to_be_visible()
    page.unroute("**/note")


def kept_notes(page: Any) -> list[str]:
    return list(page.evaluate("Object.keys(sessionStorage).filter((place) => place.startsWith('note-'))"))


@pytest.mark.parametrize("left", ["by the button", pytest.param("by an expired session", marks=pytest.mark.long)])
def test_the_next_person_in_this_tab_has_a_field_of_their_own(
    page: Any, visit: Callable[..., Any], server: Golden15, left: str
) -> None:
    tab = sign_in(visit(), server, "rosa", "responder")
    tab.goto(page.url)
    lose_the_answer(tab, "for rosa's eyes")
    assert len(kept_notes(tab)) == 1
    if left == "by the button":
        tab.get_by_role("button", name="Sign out").click()
        tab.wait_for_url("**/sign-in/")
        assert kept_notes(tab) == []
    else:
        tab.goto("about:blank")
        tab.context.clear_cookies()
    sign_in(tab, server, "sam", "responder")
    tab.goto(page.url)
    expect(field(tab)).to_have_value("")
    field(tab).fill("sam is here")
    field(tab).press("Enter")
    expect(tab.get_by_text("“sam is here”")).to_be_visible()
    if left == "by an expired session":  # her text waits for her
        tab.context.clear_cookies()
        sign_in(tab, server, "rosa", "responder")
        tab.goto(page.url)
        expect(field(tab)).to_have_value("for rosa's eyes")


@pytest.mark.long
def test_a_key_that_somebody_else_used_is_said_and_the_next_try_has_another(
    page: Any, visit: Callable[..., Any], server: Golden15
) -> None:
    tab = sign_in(visit(), server, "rosa", "responder")
    tab.goto(page.url)
    lose_the_answer(tab, "who wrote this")
    sign_in(tab.context.new_page(), server, "sam", "responder")  # the same browser is somebody else's now
    field(tab).press("Enter")
    expect(tab.locator("#note-said")).to_have_text(
        "Not sent: Somebody else sent a note from this field. Send yours once more."
    )
    field(tab).press("Enter")
    expect(field(tab)).to_have_value("")
    assert told(page) == ["sam “who wrote this”", "rosa “who wrote this”"]


def test_who_is_taken_out_of_the_fleet_keeps_the_unsent_note_on_screen(
    page: Any, visit: Callable[..., Any], server: Golden15
) -> None:
    other = sign_in(visit(), server, "tina", "responder")
    other.goto(page.url)
    field(other).fill("half a thought")
    manage(server, "person", "tina", "--role", "none")
    says = "You may not see this incident any more. Your note is not sent: copy it, then reload the page."
    expect(other.locator("[data-live=banner]")).to_have_text(says, timeout=20_000)
    field(other).press("Enter")
    expect(other.locator("#note-said")).to_contain_text("Not sent: you may not see this incident any more.")
    expect(field(other)).to_have_value("half a thought")
    expect(other.locator("body")).to_have_attribute("data-live", "stale")
    field(other).fill("")
    expect(other.get_by_text("There is no such page")).to_be_visible(timeout=20_000)


@pytest.mark.long
def test_who_is_signed_out_elsewhere_keeps_the_unsent_note_and_can_send_it_after_signing_in(
    page: Any, visit: Callable[..., Any], server: Golden15
) -> None:
    tab = sign_in(visit(), server, "rosa", "responder")
    tab.goto(page.url)
    field(tab).fill("not lost")
    other = tab.context.new_page()
    other.goto("/incidents/")
    other.get_by_role("button", name="Sign out").click()
    banner = tab.locator("[data-live=banner]")
    expect(banner).to_contain_text("You are signed out. Your note is not sent", timeout=20_000)
    expect(field(tab)).to_have_value("not lost")
    sign_in(other, server, "rosa", "responder")
    expect(banner).to_be_hidden(timeout=20_000)
    field(tab).press("Enter")
    expect(tab.get_by_text("“not lost”")).to_be_visible()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({"status": 500, "body": "x"}, "the server answered 500"),
        ({"status": 422, "body": '{"error": "The note is empty."}'}, "The note is empty."),
        ({"status": 302, "headers": {"location": "/sign-in/"}}, "you are signed out"),
    ],
)
def test_why_it_was_not_sent_is_said(page: Any, answer: dict[str, Any], says: str) -> None:
    page.route("**/note", lambda route: route.fulfill(**answer))
    field(page).fill("kept")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#note-said")).to_contain_text(f"Not sent: {says}")
    expect(field(page)).to_have_value("kept")
    page.evaluate("sessionStorage.clear()")


def test_a_stale_page_has_its_actions_off_and_sends_notes_all_the_same(page: Any) -> None:
    page.route_web_socket("**/ws/**", lambda socket: socket.close(code=1011))
    page.route("**/after*", lambda route: route.abort())
    page.clock.install()
    page.reload()
    page.clock.run_for(28_000)
    expect(page.locator("body")).to_have_attribute("data-live", "stale")
    page.locator("summary", has_text="To Triage").click()
    expect(page.get_by_role("button", name="Move to Triage")).to_be_disabled()
    field(page).fill("written in the dark")
    field(page).press("Enter")
    expect(field(page)).to_have_value("")
    page.unroute("**/after*")
    assert told(page) == ["admin “written in the dark”"]


def test_without_javascript_the_form_sends(visit: Callable[..., Any], page: Any, signed_in_state: Any) -> None:
    plain = visit(storage_state=signed_in_state, java_script_enabled=False)
    plain.goto(page.url)
    field(plain).fill("by the form alone")
    plain.get_by_role("button", name="Send").click()
    expect(plain.get_by_text("“by the form alone”")).to_be_visible()
    expect(field(plain)).to_have_value("")


def test_thirty_hostile_notes_are_words_on_every_page(page: Any, visit: Callable[..., Any], server: Golden15) -> None:
    seen = sign_in(visit(), server, "vera", "viewer")
    asked: list[str] = []
    for one in (page, seen):
        one.on("request", lambda request: asked.append(request.url))
        one.on("dialog", lambda dialog: asked.append(f"dialog {dialog.message}"))
    address = page.url
    seen.goto(address)
    for text in HOSTILE:
        field(page).fill(text)
        field(page).press("Enter")
        expect(field(page)).to_have_value("")
    expect(seen.locator("[data-slot=timeline] .said").filter(has_text="DROP TABLE")).to_be_visible()
    pages = [seen.locator("[data-slot=timeline]").inner_text()]
    seen.goto(f"{address}/timeline")
    pages.append(seen.locator("main").inner_text())
    for shown in pages:
        for text in HOSTILE[:21]:
            assert text in shown, text
        assert not set("\x1b\u202e\u200b\ufeff") & set(shown)
    for one in (page, seen):
        assert "owned" not in one.title()
        assert one.locator("script[src*=evil], base, iframe, object, form[action*=evil]").count() == 0
    assert [url for url in asked if "evil" in url or url.startswith("dialog")] == []
