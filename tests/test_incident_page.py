"""The incident page in Chromium: declared with one field, filled by real nodes, right after a reload."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.support.server import Golden15
from tests.support.sshd_nodes import Lab, free_port

pytestmark = pytest.mark.browser
SIZES = {"desk": {"width": 1440, "height": 900}, "phone": {"width": 390, "height": 844}}


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
    expect(page.get_by_text("connection refused").first).to_be_visible()
    check_accessibility(page)


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
        expect(one.get_by_text("11 of 18 answered").first).to_be_visible()
    shown = [parts(one) for one in (page, other)]
    page.reload()
    assert shown[0] == shown[1] == parts(page)
    page.get_by_label("Why this phase is over").fill("the third is known to be dead")
    page.get_by_role("button", name="To Triage").click()
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
    other.get_by_label("Why this phase is over").fill("after the restart")
    other.get_by_role("button", name="To Triage").click()
    expect(page.get_by_text("moved to Triage: “after the restart”")).to_be_visible(timeout=40_000)


def test_the_evidence_of_a_cell_opens_with_the_keyboard_alone(
    lab: Lab, open_page: Callable[..., Any], check_accessibility: Any
) -> None:
    three_nodes(lab)
    page = open_page()
    declared(page)
    captured(page)
    first = page.locator("[data-matrix] a").first
    first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.textContent").strip()[1:].startswith("gpu-002 ")
    page.keyboard.press("Enter")
    drawer = page.get_by_role("dialog")
    expect(drawer.get_by_role("heading", name="gpu-002")).to_be_visible()
    expect(drawer.get_by_text("Output")).to_be_visible()
    check_accessibility(page)
    page.keyboard.press("Escape")
    expect(drawer).to_be_hidden()


def test_the_next_phase_begins_with_a_word(lab: Lab, open_page: Callable[..., Any]) -> None:
    three_nodes(lab)
    page = open_page()
    declared(page)
    page.get_by_label("Why this phase is over").fill("two nodes answered, the third is known to be dead")
    page.get_by_role("button", name="To Triage").click()
    expect(page.get_by_text("moved to Triage: “two nodes answered")).to_be_visible()
    expect(page.locator("[aria-current=step]")).to_contain_text("Triage")


@pytest.mark.parametrize("scheme", ["dark", "light"])
@pytest.mark.parametrize("size", SIZES)
def test_nothing_overflows_and_axe_is_content_at_each_size(
    lab: Lab, open_page: Callable[..., Any], check_accessibility: Any, scheme: str, size: str, tmp_path: Path
) -> None:
    three_nodes(lab)
    page = open_page(viewport=SIZES[size], color_scheme=scheme)
    declared(page)
    captured(page)
    here = page.url
    for name, address in (("incident", here), ("list", "/incidents/"), ("declare", "/incidents/declare")):
        page.goto(address)
        page.screenshot(path=tmp_path / f"{name}-{size}-{scheme}.png", full_page=True)
        check_accessibility(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size]["width"], name
    page.goto(here)
    page.locator("[data-matrix] a").first.click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.screenshot(path=tmp_path / f"drawer-{size}-{scheme}.png")
    check_accessibility(page)
