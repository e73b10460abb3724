"""Who waits for whom, drawn on an incident's page in Chromium: link below link, read by eye and by a screen reader.

Right values: what the recordings in tests/fixtures/hangs show, as tests/test_wait_chain_told.py has them in words.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.support.brought import FIXTURES
from tests.support.looks import SIZES, at_each_look

pytestmark = pytest.mark.browser
LINKS = [
    "Ranks 0 and 2 wait in collective #41 (all_reduce [8320] Float) of default_pg",
    "Rank 1 never entered it",
    "It is stopped (state T), in do_signal_stop",
    "Rank 1's own line: main (train.py:99), called by <module> (train.py:148)",
]


def judged(page: Any, folder: Path) -> None:
    """An incident of a folder of files; open when its verdict is there."""
    page.goto("/incidents/files")
    page.get_by_label("Files or archives").set_input_files(sorted(path for path in folder.rglob("*") if path.is_file()))
    page.get_by_role("button", name="Judge").click()
    page.wait_for_url(re.compile(r"/incidents/\d+$"))


@at_each_look
def test_a_wait_is_drawn_link_below_link_down_to_the_line_of_the_program(
    visit: Any, signed_in_state: Any, check_accessibility: Any, size: str, scheme: str
) -> None:
    page = visit(storage_state=signed_in_state, viewport=SIZES[size], color_scheme=scheme)
    judged(page, FIXTURES / "hangs/sigstop")
    drawn = page.get_by_role("region", name="Who waits for whom")
    expect(drawn).to_be_visible(timeout=40_000)
    links = drawn.get_by_role("listitem")
    assert [link.locator("span").inner_text() for link in links.all()] == LINKS
    boxes = [link.bounding_box() for link in links.all()]
    assert all(above["y"] + above["height"] < below["y"] for above, below in zip(boxes, boxes[1:], strict=False))
    arrows = [link.evaluate("one => getComputedStyle(one, '::before').content") for link in links.all()]
    assert [arrow.strip('"') for arrow in arrows] == ["none", "↓", "↓", "↓"]
    check_accessibility(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")

    links.first.get_by_role("link", name=f"Evidence: {LINKS[0]}").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="Evidence")).to_be_visible()


def test_ranks_that_wait_for_each_other_are_said_to_and_a_well_job_has_no_drawing(
    visit: Any, signed_in_state: Any
) -> None:
    page = visit(storage_state=signed_in_state)
    judged(page, FIXTURES / "hangs/order_of_groups")
    drawn = page.get_by_role("region", name="Who waits for whom")
    expect(drawn.get_by_role("listitem").last).to_have_text(
        "They wait for each other: nobody outside can end it", timeout=40_000
    )
    judged(page, FIXTURES / "hangs/async_ok")
    lead = page.get_by_role("region", name="Verdict").locator(".lead")
    expect(lead).to_contain_text("The job had ended its work", timeout=40_000)
    expect(page.get_by_text("Who waits for whom")).to_have_count(0)
