"""Keys of the incident page and the list: each in one place, never while somebody types, and off when not wanted."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.support.people import Changed, declared, sign_in
from tests.support.server import Golden15

pytestmark = pytest.mark.browser
BASE = Path(__file__).resolve().parent.parent
BEARER = re.compile(r"<[^<>]*\bdata-hotkey=\"(.)\"(?:\s+data-hotkey-too=\"(.)\")?[^<>]*?\bdata-says=\"([^\"]+)\"")


def keys_of_templates() -> dict[str, str]:
    """Each key with what it does, from the elements that bear it."""
    found: dict[str, str] = {}
    for path in sorted((BASE / "templates").rglob("*.html")):
        for key, too, says in BEARER.findall(path.read_text()):
            for one in filter(None, (key, too)):
                assert one not in found, f"{one} stands twice"
                found[one] = says
    return found


def test_the_document_lists_the_keys_that_there_are() -> None:
    listed = re.findall(
        r"^\| `(.)`(?: or `(.)`)? \| (.*?) \|", (BASE / "docs/incident-page.md").read_text(), re.MULTILINE
    )
    told = {one: says for key, too, says in listed for one in (key, too) if one}
    assert told == keys_of_templates()
    assert set(told) == set("cntgmaxwbrvey/?flpdu")


@pytest.fixture
def page(page: Any) -> Any:
    declared(page)
    expect(page.get_by_text("capture ended: 0 of 2 nodes answered")).to_be_visible(timeout=30_000)
    page.locator("html.keys").wait_for()  # the page's script has begun
    return page


def test_the_matrix_is_one_stop_for_tab(page: Any) -> None:
    cells = page.locator("[data-matrix] a")
    assert cells.count() > 10
    assert page.locator("[data-matrix] a[tabindex='0']").count() == 1
    page.keyboard.press("g")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.tabIndex") == 0
    assert page.locator("[data-matrix] a[tabindex='0']").count() == 1


def focused(page: Any) -> str:
    return str(page.evaluate("document.activeElement.name || document.activeElement.textContent.trim()"))


def test_keys_lead_to_what_they_name(page: Any) -> None:
    page.keyboard.press("g")
    assert page.evaluate("document.activeElement.closest('[data-matrix]') !== null")
    for key in ("m", "/"):
        page.locator("main").focus()
        page.keyboard.press(key)
        assert focused(page) == "text"
        expect(page.get_by_label("Note", exact=True)).to_have_value("")  # the key itself is not typed
    page.locator("main").focus()
    page.keyboard.press("n")
    expect(page.get_by_label("Why is Capture over?")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_label("Why is Capture over?")).to_be_hidden()
    assert focused(page) == "To Triage"
    page.keyboard.press("c")
    page.wait_for_url("**/incidents/declare")


def test_while_somebody_types_or_holds_another_key_no_key_acts(page: Any) -> None:
    here = page.url
    page.get_by_label("Note", exact=True).focus()
    page.keyboard.type("cntgm/?")
    expect(page.get_by_label("Note", exact=True)).to_have_value("cntgm/?")
    page.locator("main").focus()
    for modifier in ("Control", "Meta", "Alt"):
        page.keyboard.press(f"{modifier}+c")
        page.keyboard.press(f"{modifier}+m")
    assert page.url == here
    assert page.evaluate("document.activeElement.id") == "main"
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_label("Note", exact=True).fill("")


def test_the_list_of_keys_names_those_of_this_page_and_closes(page: Any, check_accessibility: Any) -> None:
    page.get_by_role("button", name="Keys").click()
    dialog = page.get_by_role("dialog", name="Keys")
    says = {text for key, text in keys_of_templates().items() if key not in "taxwlpbrvy"}  # not here or not now
    assert set(dialog.locator("dd").all_inner_texts()) == says
    check_accessibility(page)
    page.keyboard.press("m")
    expect(dialog).to_be_visible()  # no key acts under it
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    page.keyboard.press("?")
    expect(dialog).to_be_visible()


def test_taking_command_by_key_asks_first(
    page: Any, visit: Callable[..., Any], server: Golden15, check_accessibility: Any
) -> None:
    other = sign_in(visit(), server, "rosa", "responder")
    other.goto(page.url)
    other.keyboard.press("t")
    dialog = other.get_by_role("dialog")
    expect(dialog).to_contain_text(re.compile(r"Take command of INC-\d+ from admin\?"))
    check_accessibility(other)
    for answer in ("No", "Escape"):
        if answer == "Escape":
            other.keyboard.press("t")
            other.keyboard.press("Escape")
        else:
            dialog.get_by_role("button", name=answer).click()
        expect(dialog).to_be_hidden()
    expect(page.get_by_text("you command")).to_be_visible()
    other.keyboard.press("t")
    dialog.get_by_role("button", name="Yes").click()
    expect(other.get_by_text("you command")).to_be_visible()
    expect(page.get_by_text("rosa took command, after admin")).to_be_visible()


def test_a_yes_counts_only_for_the_question_that_was_asked(
    page: Any, visit: Callable[..., Any], server: Golden15
) -> None:
    rosa, sam = (sign_in(visit(), server, name, "responder") for name in ("rosa", "sam"))
    for one in (rosa, sam):
        one.goto(page.url)
    rosa.keyboard.press("t")
    dialog = rosa.get_by_role("dialog")
    expect(dialog).to_contain_text("from admin?")
    sam.get_by_role("button", name="Take command").click()
    expect(sam.get_by_text("you command")).to_be_visible()
    expect(rosa.get_by_text("sam took command, after admin")).to_be_visible()
    dialog.get_by_role("button", name="Yes").click()
    expect(dialog).to_contain_text("from sam?")
    expect(sam.get_by_text("you command")).to_be_visible()
    dialog.get_by_role("button", name="Yes").click()
    expect(rosa.get_by_text("you command")).to_be_visible()
    expect(sam.get_by_text("rosa took command, after sam")).to_be_visible()


def test_escape_closes_the_panel_only_for_who_is_not_writing_elsewhere(page: Any) -> None:
    page.keyboard.press("n")
    why = page.get_by_label("Why is Capture over?")
    note = page.get_by_label("Note", exact=True)
    note.focus()
    page.keyboard.press("Escape")
    expect(why).to_be_visible()
    expect(note).to_be_focused()
    composing = (
        "one => one.dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape', bubbles: true, isComposing: true}))"
    )
    why.focus()
    why.evaluate(composing)
    expect(why).to_be_visible()
    page.locator("main").focus()
    page.keyboard.press("Escape")
    expect(why).to_be_hidden()
    page.keyboard.press("n")
    page.keyboard.press("Escape")
    expect(why).to_be_hidden()


def test_the_focus_returns_from_a_question_to_what_was_rendered_anew(
    page: Any, visit: Callable[..., Any], server: Golden15
) -> None:
    rosa = sign_in(visit(), server, "rosa", "responder")
    rosa.goto(page.url)
    rosa.locator("summary[data-hotkey=n]").focus()
    news = Changed(rosa, "phases")
    rosa.keyboard.press("t")
    news.ring(page)
    rosa.keyboard.press("Escape")
    expect(rosa.get_by_role("dialog")).to_have_count(0)
    expect(rosa.locator("summary[data-hotkey=n]")).to_be_focused()


def test_keys_can_be_turned_off_and_stay_off_and_their_hints_go(page: Any) -> None:
    def hint() -> str:
        button = page.get_by_role("button", name="Keys")
        return str(button.evaluate("one => getComputedStyle(one, '::after').content"))

    assert hint() == '"?" / ""'
    page.keyboard.press("?")
    page.get_by_label("Keys are on").uncheck()
    page.keyboard.press("Escape")
    page.reload()
    assert hint() == "none"
    page.keyboard.press("m")
    assert focused(page) != "text"
    page.get_by_role("button", name="Keys").click()
    page.get_by_label("Keys are on").check()
    page.keyboard.press("Escape")
    page.locator("main").focus()
    page.keyboard.press("m")
    assert focused(page) == "text"


def test_a_viewer_has_the_keys_that_only_show(page: Any, visit: Callable[..., Any], server: Golden15) -> None:
    viewer = sign_in(visit(), server, "vera", "viewer")
    viewer.goto(page.url)
    viewer.keyboard.press("?")
    shown = ["Go to the drills", "List the keys", "Open the topology of the fabric", "Go to the matrix"]
    assert viewer.get_by_role("dialog").locator("dd").all_inner_texts() == shown
    viewer.keyboard.press("Escape")
    viewer.keyboard.press("t")
    expect(viewer.get_by_role("dialog")).to_have_count(0)
    viewer.goto("/incidents/")
    viewer.keyboard.press("c")
    assert viewer.url.endswith("/incidents/")


def test_on_the_list_c_declares(page: Any) -> None:
    page.goto("/incidents/")
    page.keyboard.press("c")
    page.wait_for_url("**/incidents/declare")


def test_the_bar_at_the_thumb_does_what_the_keys_do_and_hints_are_hidden(
    page: Any, visit: Callable[..., Any], server: Golden15, check_accessibility: Any
) -> None:
    phone = sign_in(visit(viewport={"width": 390, "height": 844}), server, "rosa", "responder")
    phone.goto(page.url)
    bar = phone.get_by_role("navigation", name="Actions")
    assert bar.get_by_role("link").all_inner_texts() == ["Advance", "Note", "Command"]
    box = bar.bounding_box()
    assert box["y"] + box["height"] == pytest.approx(844, abs=1), "at the bottom, however long the page is"
    for link in bar.get_by_role("link").all():
        assert link.bounding_box()["height"] >= 44
    bar.get_by_role("link", name="Note").click()
    expect(phone.get_by_label("Note", exact=True)).to_be_focused()
    bar.get_by_role("link", name="Advance").click()
    expect(phone.get_by_label("Why is Capture over?")).to_be_focused()
    check_accessibility(phone)
    phone.keyboard.press("Escape")
    bar.get_by_role("link", name="Command").click()
    with phone.expect_navigation():  # the styles of the new page are there
        phone.get_by_role("dialog").get_by_role("button", name="Yes").click()
    expect(phone.get_by_text("you command")).to_be_visible()
    assert bar.get_by_role("link").all_inner_texts() == ["Advance", "Note"]
    hint = "one => getComputedStyle(one, '::after').display"
    assert phone.locator("summary[data-hotkey]").evaluate(hint) == "none"
    assert phone.locator("label[data-hotkey]").evaluate(hint) == "none"
