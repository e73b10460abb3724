"""A profile that somebody brought, drawn as a flame graph in Chromium at each size and in both schemes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.support.looks import SIZES, at_each_look
from tests.support.pages import evidence_of_file

pytestmark = pytest.mark.browser
# Recorded by py-spy record --gil of a program with two busy threads beside the one that trains.
PROFILE = Path(__file__).parent / "fixtures/tools/pyspy_gil_two_shippers.svg"


@at_each_look
def test_a_profile_is_drawn_and_a_call_can_be_looked_at_alone(
    visit: Any, signed_in_state: Any, check_accessibility: Any, size: str, scheme: str
) -> None:
    page = visit(storage_state=signed_in_state, viewport=SIZES[size], color_scheme=scheme)
    evidence_of_file(page, PROFILE, "pyspy_gil_two_shippers.svg")
    graph = page.locator("details.flame")
    expect(graph.get_by_text("Flame graph,")).to_be_visible()
    whole = graph.locator(".frames a").count()
    expect(graph.locator(".heaviest li").first).to_be_visible()
    check_accessibility(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")

    graph.locator(".frames a", has_text="ship").first.click()
    expect(graph.get_by_text(re.compile("samples: below .*ship"))).to_be_visible()
    assert graph.locator(".frames a").count() < whole
    page.get_by_role("link", name="All calls").click()
    expect(graph.locator(".frames a")).to_have_count(whole)

    graph.locator(".heaviest a").first.focus()
    page.keyboard.press("Enter")
    expect(graph.get_by_text(re.compile("samples: below .*iterencode"))).to_be_visible()
