"""Closing an incident and reading its review in Chromium: by keys, in dark and light, at a desk and on a phone."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.support.looks import SIZES
from tests.support.people import declared, manage, sign_in
from tests.support.server import Golden15
from tests.support.verdicts import STOPPED_RANK, given

pytestmark = pytest.mark.browser
HOSTILE = '<b>bold</b> <a href="http://evil">link</a> & <img src=x>'


@pytest.fixture
def page(page: Any) -> Any:
    """An incident whose capture has ended without an answer, and was judged."""
    declared(page)
    expect(page.get_by_text("capture ended: 0 of 2 nodes answered")).to_be_visible(timeout=30_000)
    return page


def told(server: Golden15, address: str, code: str) -> None:
    """Something that another part writes, into the incident at this address (`it`), by a process of its own."""
    number = int(address.rstrip("/").split("/incidents/")[1].partition("/")[0])
    given_ = f"""
from incidents.models import Incident, User
from tests.support.reviews import act, step, told_training
it, ada = Incident.objects.get(pk={number}), User.objects.get(username="admin")
{code}
"""
    manage(server, "shell", "-v", "0", "-c", given_)


def a_response(page: Any, server: Golden15) -> None:
    """Named, accepted, acted on, advancing."""
    given(server, page.url, STOPPED_RANK)
    expect(page.get_by_text("Verdict: Rank 1")).to_be_visible()
    expect(page.get_by_role("region", name="Verdict").locator(".lead")).to_contain_text("Rank 1")
    page.locator("main").focus()
    page.keyboard.press("a")
    with page.expect_navigation():
        page.get_by_role("dialog").get_by_role("button", name="Yes").click()
    code = f"""
made = step(it, ada, "How do we get going?", "Continue the rank", ("Restart with 63 nodes", "Wait 2 min"), {HOSTILE!r})
act(it, ada, "done", decision=made, node="nowhere-2", says="exit 0 in 0.4 s")
told_training(it, "advances", "step 41203 after 41200 on every rank")
"""
    told(server, page.url, code)
    expect(page.get_by_text("Training advances since")).to_be_attached()


def test_the_keyboard_alone_closes_an_incident_and_comes_to_its_review(
    page: Any, server: Golden15, check_accessibility: Any
) -> None:
    page.locator("main").focus()
    page.keyboard.press("e")
    expect(page.get_by_label("How did it end?")).to_be_focused()
    expect(page.get_by_label("How did it end?").locator("option")).to_have_count(3)
    expect(page.get_by_text("“Training again” is not offered")).to_be_visible()
    check_accessibility(page)
    page.keyboard.press("Escape")
    expect(page.get_by_label("How did it end?")).to_be_hidden()
    page.keyboard.press("e")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Tab")
    page.keyboard.type("the scheduler stopped it, as planned")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    expect(page.locator("#head")).to_contain_text("false alarm, by admin")
    expect(page.get_by_role("button", name="Take command")).to_have_count(0)
    expect(
        page.get_by_text("closed the incident: false alarm. Why: “the scheduler stopped it, as planned”")
    ).to_be_visible()
    check_accessibility(page)
    page.get_by_role("link", name="Read the review").press("Enter")
    expect(page.get_by_text("“the scheduler stopped it, as planned”").first).to_be_visible()
    check_accessibility(page)


def test_a_choice_and_a_reason_stay_when_news_come(page: Any, visit: Callable[..., Any], server: Golden15) -> None:
    other = sign_in(visit(), server, "rosa", "responder")
    other.goto(page.url)
    page.locator("main").focus()
    page.keyboard.press("e")
    page.get_by_label("How did it end?").select_option("other")
    page.get_by_label("Why", exact=True).fill("half a sen")
    page.locator("main").focus()
    other.get_by_label("Note", exact=True).fill("something happens")
    other.get_by_label("Note", exact=True).press("Enter")
    expect(page.get_by_text("something happens")).to_be_visible()
    told(server, page.url, 'told_training(it, "advances")')
    expect(page.get_by_text("Training advances since")).to_be_visible()
    expect(page.get_by_label("How did it end?")).to_have_value("other")
    expect(page.get_by_label("Why (not needed")).to_have_value("half a sen")


def test_a_page_that_is_open_elsewhere_learns_that_it_was_closed(
    page: Any, visit: Callable[..., Any], server: Golden15
) -> None:
    other = sign_in(visit(), server, "rosa", "responder")
    other.goto(page.url)
    page.locator("main").focus()
    page.keyboard.press("e")
    page.get_by_label("Why", exact=True).fill("to the network team")
    page.get_by_role("button", name="Close INC-").click()
    expect(other.locator("#head")).to_contain_text("handed over, by admin")
    expect(other.get_by_role("link", name="Read the review")).to_be_visible()
    other.goto("/incidents/")
    expect(other.get_by_role("region", name="Closed")).to_contain_text("handed over")


def drawn(page: Any) -> Any:
    expect(page.locator("#lanes .main-svg").first).to_be_visible(timeout=20_000)
    return page.locator("#lanes")


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_the_review_of_a_response_is_drawn_in_both_schemes_without_any_exception(
    page: Any, visit: Callable[..., Any], signed_in_state: Any, server: Golden15, check_accessibility: Any, scheme: str,
    tmp_path: Path,
) -> None:  # fmt: skip
    a_response(page, server)
    page.locator("main").focus()
    page.keyboard.press("e")
    page.screenshot(path=tmp_path / f"resolve-{scheme}.png")
    with page.expect_navigation():
        page.get_by_role("button", name="Close INC-").click()
    for name, size in SIZES.items():
        shown = visit(storage_state=signed_in_state, color_scheme=scheme, viewport=size)
        answer = shown.goto(f"{page.url}/review")
        policy = answer.headers["content-security-policy"]
        assert "unsafe" not in policy
        if name == "desk":
            figure = drawn(shown)
            for words in ("Phase", "Clock rule", "Verdict", "People", "Job"):
                expect(figure.get_by_text(words, exact=True)).to_be_attached()
            no_overlap(shown)
            expect(shown.get_by_role("region", name="Table of the swim lanes")).to_be_hidden()
        else:
            expect(shown.locator("#lanes")).to_be_hidden()
            expect(shown.get_by_role("region", name="Table of the swim lanes")).to_be_visible()
            assert shown.evaluate("document.documentElement.scrollWidth") <= 390
            assert not shown.evaluate("Boolean(window.Plotly)"), "a phone does not fetch it"
        expect(shown.locator(".figures b.none")).to_have_text(["not known", "not known"])
        check_accessibility(shown)
        shown.screenshot(path=tmp_path / f"review-{name}-{scheme}.png", full_page=True)


def no_overlap(page: Any) -> None:
    """No two labels of the figure lie over each other."""
    boxes = page.eval_on_selector_all(
        "#lanes .bartext, #lanes .textpoint text, #lanes .ytick text, #lanes .xtick text",
        "all => all.filter(one => one.textContent).map(one => { const box = one.getBoundingClientRect(); "
        "return [one.textContent, box.left, box.top, box.right, box.bottom]; })",
    )
    assert len(boxes) > 12, boxes
    for i, (one, left, top, right, bottom) in enumerate(boxes):
        for other, left_, top_, right_, bottom_ in boxes[i + 1 :]:
            apart = right <= left_ or right_ <= left or bottom <= top_ or bottom_ <= top
            assert apart, f"{one!r} over {other!r}"


def test_labels_are_what_nodes_and_people_wrote_and_no_markup(page: Any, server: Golden15) -> None:
    told(server, page.url, f"told_training(it, 'stands', {HOSTILE!r}); step(it, ada, 'q', {HOSTILE!r})")
    page.goto(f"{page.url}/review")
    figure = drawn(page)
    expect(figure.locator("svg a")).to_have_count(0)
    shown = page.evaluate("document.getElementById('lanes').data.flatMap(trace => trace.hovertext)")
    assert any("&lt;b&gt;bold" in words for words in shown)


def test_dragging_zooms_and_a_double_click_returns(page: Any) -> None:
    page.goto(f"{page.url}/review")
    box = drawn(page).locator(".nsewdrag").bounding_box()
    first = ticks(page)
    page.mouse.move(box["x"] + 100, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 300, box["y"] + 60, steps=5)
    page.mouse.up()
    expect(page.locator("#lanes .xtick text").first).not_to_have_text(first[0])
    assert all(re.fullmatch(r"−?\d+:\d\d(:\d\d)?", word) for word in ticks(page))
    no_overlap_ticks = ticks(page)
    page.locator("#lanes .nsewdrag").dblclick()
    expect(page.locator("#lanes .xtick text").first).to_have_text(first[0])
    assert ticks(page) == first != no_overlap_ticks


def ticks(page: Any) -> list[str]:
    found: list[str] = page.locator("#lanes .xtick text").all_text_contents()
    return found


def test_the_bundle_and_the_markdown_come_over_the_real_server(page: Any, tmp_path: Path) -> None:
    page.goto(f"{page.url}/review")
    with page.expect_download() as download:
        page.get_by_role("link", name="Evidence bundle").click()
    file = tmp_path / download.value.suggested_filename
    download.value.save_as(file)
    assert re.fullmatch(r"INC-\d+-evidence\.zip", file.name)
    with zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None
        assert "nowhere-1/captures.json" in archive.namelist()
    address = page.get_by_role("link", name="Markdown").get_attribute("href")
    assert page.request.get(address).text().startswith("# INC-")
