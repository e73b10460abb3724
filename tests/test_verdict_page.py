"""Verdict and paths in Chromium: they come without a reload, are decided by keys, and never move under a hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.support.looks import SIZES, at_each_look
from tests.support.people import declared, sign_in
from tests.support.server import Golden15
from tests.support.verdicts import BAD_PORTS, STOPPED_RANK, given

pytestmark = pytest.mark.browser
STOPPED = "Rank 1 on nowhere-2 is stopped"


@pytest.fixture
def page(page: Any) -> Any:
    """An incident whose capture has ended without an answer, and was judged."""
    declared(page)
    expect(page.get_by_text("capture ended: 0 of 2 nodes answered")).to_be_visible(timeout=30_000)
    expect(panel(page)).to_contain_text("The evidence does not decide")
    return page


def panel(page: Any) -> Any:
    return page.get_by_role("region", name="Verdict")


def test_without_any_answer_the_page_says_what_is_missing_and_why(page: Any, check_accessibility: Any) -> None:
    expect(panel(page).get_by_text("unreachable").first).to_be_visible()
    expect(panel(page).get_by_role("button")).to_have_count(0)
    check_accessibility(page)


def test_a_verdict_comes_into_two_browsers_without_a_reload_and_both_agree(
    page: Any, visit: Callable[..., Any], server: Golden15
) -> None:
    other = sign_in(visit(), server, "rosa", "responder")
    other.goto(page.url)
    page.evaluate("window.kept = true")
    given(server, page.url, STOPPED_RANK)
    for one in (page, other):
        expect(panel(one)).to_contain_text(STOPPED)
        expect(one.get_by_text("Verdict: Rank 1")).to_be_visible()
    other.get_by_role("button", name="Accept verdict").press("Enter")
    expect(panel(other)).to_contain_text("rosa accepted this")
    expect(panel(page)).to_contain_text("rosa accepted this")
    assert page.evaluate("window.kept"), "it was not reloaded"
    shown = [panel(one).inner_text().replace("ago", "") for one in (page, other)]
    assert strip_age(shown[0]) == strip_age(shown[1])


def strip_age(text: str) -> str:
    return text.partition("from ")[2]


def test_the_keyboard_alone_accepts_asks_why_and_rejects(page: Any, server: Golden15, check_accessibility: Any) -> None:
    given(server, page.url, STOPPED_RANK)
    expect(panel(page)).to_contain_text(STOPPED)
    page.locator("main").focus()
    page.keyboard.press("w")
    expect(panel(page).get_by_text("What would change this:")).to_be_visible()
    check_accessibility(page)
    page.keyboard.press("Escape")
    expect(panel(page).get_by_text("What would change this:")).to_be_hidden()
    page.keyboard.press("a")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"Accept as the cause: {STOPPED}")
    page.keyboard.press("Tab")
    with page.expect_navigation():  # the news may be on the old page before the form's answer is there
        page.keyboard.press("Enter")
    expect(panel(page)).to_contain_text("admin accepted this")
    expect(page.locator("html.keys")).to_have_count(1)
    page.locator("main").focus()
    page.keyboard.press("a")
    expect(dialog).to_be_hidden()
    page.keyboard.press("x")
    expect(page.get_by_label("Why is it not this?")).to_be_focused()
    page.keyboard.type("I stopped it to look at it")
    check_accessibility(page)
    page.keyboard.press("Enter")
    expect(panel(page).locator(".lead")).to_contain_text("Port 1 of mlx5_")
    expect(panel(page)).to_contain_text("not this, says admin: “I stopped it to look at it”")
    expect(page.get_by_text("admin says that it is not this")).to_be_visible()


def test_each_reason_opens_the_reading_that_it_rests_on(page: Any, server: Golden15) -> None:
    given(server, page.url, STOPPED_RANK)
    expect(panel(page)).to_contain_text(STOPPED)
    panel(page).get_by_role("link", name="nowhere-2").first.click()
    drawer = page.get_by_role("dialog", name="Evidence")
    expect(drawer.get_by_role("heading", name="nowhere-2")).to_contain_text("rank.stack")
    page.keyboard.press("Escape")
    paths = page.get_by_role("region", name="Diagnostic paths")
    paths.locator("summary", has_text="Collective order").click()
    paths.get_by_role("link", name="evidence: Is every rank there, and running?").click()
    expect(drawer.get_by_role("heading", name="nowhere-2")).to_contain_text("rank.stack")


def test_what_somebody_types_and_where_they_are_survives_news(page: Any, server: Golden15) -> None:
    given(server, page.url, STOPPED_RANK)
    expect(panel(page)).to_contain_text(STOPPED)
    page.locator("main").focus()
    page.keyboard.press("x")
    expect(page.get_by_label("Why is it not this?")).to_be_focused()
    page.keyboard.type("it was me")
    ranking = panel(page).locator("input[name=ranking]").first
    before = ranking.input_value()
    given(server, page.url, '[read("nowhere-1", "ib.ports", "h100_connectx7")]')  # other shares, the same verdict
    expect(page.get_by_text("hang complete: 1 of 1 node answered")).to_be_visible()
    field = page.get_by_label("Why is it not this?")
    expect(field).to_be_focused()
    expect(field).to_have_value("it was me")
    expect(ranking).to_have_value(before)  # the panel waits for who types
    page.keyboard.press("Shift+Tab")
    expect(ranking).not_to_have_value(before)
    expect(field).to_have_value("it was me")
    expect(panel(page).locator("summary", has_text="Not this")).to_be_focused()


def test_a_panel_waits_while_the_mouse_moves_and_takes_no_press_meant_for_another(page: Any, server: Golden15) -> None:
    words = page.locator("summary", has_text="The same in words")
    box = words.bounding_box()
    page.evaluate("""() => {
      window.jiggle = setInterval(() => document.querySelector('.matrix').dispatchEvent(
        new PointerEvent('pointermove', { bubbles: true })), 100);
      window.waited = 0;
      const began = performance.now();
      new MutationObserver(() => { window.waited = performance.now() - began; })
        .observe(document.querySelector('[data-slot=verdict]'), { childList: true });
    }""")
    given(server, page.url, STOPPED_RANK)
    expect(page.get_by_text("Verdict: Rank 1")).to_be_visible()  # the timeline does not wait
    expect(panel(page)).not_to_contain_text(STOPPED, timeout=1)
    assert words.bounding_box() == box
    expect(panel(page)).to_contain_text(STOPPED, timeout=8_000)  # at most 4 s
    page.evaluate("clearInterval(window.jiggle)")
    page.evaluate("""async () => {
      const { aimed } = await import(document.querySelector('script[src*=live]').src.replace('live.js', 'steady.js'));
      const place = document.querySelector('[data-slot=verdict]');
      place.querySelector('[data-key]').dataset.key = 'another';
      aimed(place);
      const press = new MouseEvent('click', { bubbles: true, detail: 1, cancelable: true });
      place.querySelector('button.primary').dispatchEvent(press);
    }""")
    expect(panel(page)).not_to_contain_text("accepted this", timeout=1_000)


def test_who_said_yes_to_one_verdict_said_it_to_no_other(page: Any, server: Golden15) -> None:
    given(server, page.url, BAD_PORTS)
    expect(panel(page).locator(".lead")).to_contain_text("Port 1 of mlx5_")
    page.locator("main").focus()
    page.keyboard.press("a")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Accept as the cause: Port 1")
    given(server, page.url, STOPPED_RANK)
    expect(panel(page)).to_contain_text(STOPPED)
    dialog.get_by_role("button", name="Yes").click()
    expect(dialog).to_contain_text(f"Accept as the cause: {STOPPED}")
    expect(panel(page)).not_to_contain_text("accepted this")
    dialog.get_by_role("button", name="No").click()
    expect(dialog).to_be_hidden()


def test_on_a_phone_the_bar_at_the_thumb_accepts(page: Any, visit: Callable[..., Any], server: Golden15) -> None:
    given(server, page.url, STOPPED_RANK)
    phone = sign_in(visit(viewport=SIZES["phone"]), server, "rosa", "responder")
    phone.goto(page.url)
    bar = phone.get_by_role("navigation", name="Actions")
    assert bar.get_by_role("link").all_inner_texts() == ["Accept", "Advance", "Note", "Command"]
    bar.get_by_role("link", name="Accept").click()
    phone.get_by_role("dialog").get_by_role("button", name="Yes").click()
    expect(panel(phone)).to_contain_text("rosa accepted this")
    assert bar.get_by_role("link").all_inner_texts() == ["Advance", "Note", "Command"]


@at_each_look
def test_nothing_overflows_and_axe_is_content(
    page: Any, visit: Callable[..., Any], signed_in_state: Any, server: Golden15, check_accessibility: Any,
    scheme: str, size: str, tmp_path: Path,
) -> None:  # fmt: skip
    given(server, page.url, STOPPED_RANK)
    one = visit(storage_state=signed_in_state, viewport=SIZES[size], color_scheme=scheme)
    one.goto(page.url)
    for shot in ("closed", "open"):
        if shot == "open":
            one.evaluate(
                "document.querySelectorAll('[data-slot=verdict] details, .path.bad').forEach(d => d.open = true)"
            )
        one.screenshot(path=tmp_path / f"verdict-{size}-{scheme}-{shot}.png", full_page=True)
        check_accessibility(one)
        assert one.evaluate("document.documentElement.scrollWidth") <= SIZES[size]["width"]


def test_what_else_is_possible_opens_to_its_own_reasons_and_can_be_chosen(
    page: Any, server: Golden15, check_accessibility: Any, tmp_path: Path
) -> None:
    """Three ports are down, each as likely. One is rejected, another taken, and the rejected one taken after all."""
    given(server, page.url, BAD_PORTS)
    lead = panel(page).locator(".lead")
    expect(lead).to_contain_text("Port 1 of mlx5_")
    first = lead.inner_text().partition("Port")[2]
    page.locator("main").focus()
    page.keyboard.press("x")
    page.keyboard.type("it has no cable")
    page.keyboard.press("Enter")
    rejected = panel(page).locator("details", has_text="not this, says admin: “it has no cable”")
    expect(rejected).to_contain_text(first)
    expect(panel(page)).to_contain_text("of what is left")
    other = panel(page).locator(".also details").filter(has_not_text="not this").first
    other.locator("summary").press("Enter")
    expect(other.get_by_role("link", name="nowhere-1")).to_be_visible()
    expect(other).to_contain_text("Would change it")
    rejected.locator("summary").press("Enter")
    check_accessibility(page)
    page.screenshot(path=tmp_path / "also.png", full_page=True)
    page.set_viewport_size(SIZES["phone"])
    page.screenshot(path=tmp_path / "also-phone.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES["phone"]["width"]
    chosen = other.locator("summary").inner_text()
    other.get_by_role("button", name="It is this").press("Enter")
    expect(panel(page)).to_contain_text("admin accepted this")
    assert lead.inner_text().partition("Port")[2] in chosen
    rejected.locator("summary").press("Enter")
    rejected.get_by_label("Why is it this after all?").fill("the cable lies on the floor")
    rejected.get_by_role("button", name="It is this").press("Enter")
    expect(lead).to_contain_text(first)
    expect(panel(page)).to_contain_text("admin accepted this")
    expect(panel(page)).to_contain_text("“the cable lies on the floor”")
