"""A drill in Chromium, by keyboard alone: from the empty list to the right verdict."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.conftest import watch
from tests.support.looks import SIZES
from tests.support.people import manage
from tests.support.server import Golden15

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]
PICTURES = os.environ.get("GOLDEN15_PICTURES", "")  # a folder: pictures of these pages are put there
LINE = "replayed recording, nothing is asked of real nodes"


@pytest.fixture
def fresh(start_golden15: Callable[..., Golden15]) -> Golden15:
    """A Golden15 that nobody has used yet."""
    one = start_golden15()
    one.wait_ready()
    return one


@pytest.fixture
def newcomer(chromium: Any, fresh: Golden15) -> Iterator[Any]:
    """A page of its administrator. Console errors fail the test."""
    troubles: list[str] = []
    context = chromium.new_context(base_url=fresh.url, viewport=SIZES["desk"])
    page = context.new_page()
    watch(page, troubles)
    page.goto(fresh.fresh_link())
    yield page
    context.close()
    assert troubles == []


def pictures(page: Any, name: str) -> None:
    if not PICTURES:
        return
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        for size, viewport in SIZES.items():
            page.set_viewport_size(viewport)
            page.screenshot(path=str(Path(PICTURES) / f"{name}-{size}-{scheme}.png"))
    page.set_viewport_size(SIZES["desk"])
    page.emulate_media(color_scheme="dark")


def test_from_the_empty_list_to_the_right_verdict_by_keyboard_alone(newcomer: Any, check_accessibility: Any) -> None:
    page = newcomer
    page.goto("/incidents/")
    expect(page.get_by_role("heading", name="All quiet. No incident is open.")).to_be_visible()
    check_accessibility(page)
    pictures(page, "quiet")
    began = time.monotonic()
    page.keyboard.press("3")
    page.wait_for_url(re.compile(r"/incidents/\d+$"))
    expect(page).to_have_title(re.compile(r"^◇ DRILL · INC-\d+ 512 ranks stand still"))
    expect(page.get_by_text(LINE)).to_be_visible()
    says = "Port 1 of mlx5_3 on gpu-017 is down"
    expect(page.locator("[data-slot=verdict] .lead")).to_contain_text(says, timeout=60_000)
    print(f"verdict on the page after {time.monotonic() - began:.1f} s")
    expect(page.locator("[data-slot=timeline]")).to_contain_text(
        "capture complete: 64 of 64 nodes answered", timeout=60_000
    )
    check_accessibility(page)
    pictures(page, "drill")
    page.keyboard.press("a")
    page.get_by_role("dialog").get_by_role("button", name="Yes").press("Enter")
    expect(page.get_by_text("accepted this at")).to_be_visible()


def test_the_page_of_drills_starts_one_and_its_pages_are_marked(newcomer: Any, check_accessibility: Any) -> None:
    page = newcomer
    page.goto("/incidents/")
    page.keyboard.press("d")
    page.wait_for_url("**/drills/")
    expect(page.get_by_text("Never run here.")).to_have_count(3)
    check_accessibility(page)
    pictures(page, "drills")
    page.keyboard.press("1")
    page.wait_for_url(re.compile(r"/incidents/\d+$"))
    expect(page.locator("[data-slot=verdict] .lead")).to_contain_text("Rank 19 on gpu-103 is stopped", timeout=60_000)
    address = page.url
    for way in (f"{address}/timeline", page.locator("a[data-evidence]").first.get_attribute("href")):
        page.goto(way)
        expect(page).to_have_title(re.compile("^◇ DRILL · "))
        expect(page.get_by_text(LINE)).to_be_visible()
        check_accessibility(page)
    page.goto("/incidents/")
    expect(page.get_by_role("region", name="Drills that run")).to_contain_text("◇ DRILL")
    expect(page.get_by_role("region", name="Needs a human")).to_have_count(0)
    check_accessibility(page)
    pictures(page, "list")
    page.goto("/drills/")
    expect(page.get_by_role("link", name=re.compile("^INC-"))).to_be_visible()


@pytest.mark.long
def test_one_that_the_command_started_opens_at_the_address_it_prints(newcomer: Any, fresh: Golden15) -> None:
    address = manage(fresh, "drill", "gpu-off-bus").strip()
    newcomer.goto(address)
    expect(newcomer.get_by_text(LINE)).to_be_visible()
    lead = newcomer.locator("[data-slot=verdict] .lead")
    expect(lead).to_have_text(re.compile(r"GPU 6 \(0000:d1:00\.0\) on gpu-205 fell off the bus"), timeout=60_000)
