"""A newcomer with nothing but a keyboard: from a fresh `make run` to a finished, replayed incident and its review."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.support.people import manage
from tests.support.server import Golden15

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
WITHIN_S = 180.0
SIZE = {"width": 1440, "height": 900}
FOCUSED = "(document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent).trim()"


def tab_to(page: Any, says: str) -> None:
    """Tab on until the element that says this has the focus, as a person does who sees the ring move."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if str(page.evaluate(FOCUSED)).startswith(says):
            return
    raise AssertionError(f"no way by Tab to {says!r}; the last was {page.evaluate(FOCUSED)!r}")


def press(page: Any, key: str) -> None:
    """A key of the page, once its script listens."""
    page.locator("html.keys").wait_for()
    page.keyboard.press(key)


def yes(page: Any, asked: str) -> None:
    expect(page.get_by_role("dialog")).to_contain_text(asked)
    tab_to(page, "Yes")
    page.keyboard.press("Enter")


def test_from_a_fresh_start_to_a_reviewed_incident_by_keys_alone(
    golden15: Golden15, chromium: Any, check_accessibility: Callable[[Any], None], tmp_path: Path
) -> None:
    context = chromium.new_context(base_url=golden15.url, viewport=SIZE, color_scheme="dark")
    page = context.new_page()
    page.on("pageerror", lambda error: pytest.fail(str(error)))
    began = time.monotonic()
    page.goto(golden15.wait_ready())  # the link that `make run` prints
    tab_to(page, "Incidents")
    page.keyboard.press("Enter")
    expect(page.get_by_text("All quiet. No incident is open.")).to_be_visible()
    tab_to(page, "Start the drill A step that does not end")
    page.keyboard.press("Enter")
    expect(page.get_by_text("DRILL", exact=True).first).to_be_visible()
    verdict = page.get_by_role("region", name="Verdict")
    expect(verdict.locator(".lead")).to_contain_text("is stopped", timeout=30_000)
    press(page, "a")
    yes(page, "Accept as the cause")
    expect(verdict).to_contain_text("admin accepted this")
    press(page, "b")
    runbook = page.get_by_role("region", name="Runbook")
    expect(runbook.locator(".question")).to_contain_text("Is the rank's process still there")
    check_accessibility(page)
    press(page, "1")
    yes(page, "kill -CONT")
    expect(runbook).to_contain_text("ranks advance", timeout=60_000)
    page.screenshot(path=tmp_path / "advances.png", full_page=True)
    press(page, "1")
    expect(runbook).to_contain_text("Nothing more to do here: resolve the incident.")
    press(page, "e")
    tab_to(page, "Close INC-1")
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="Read the review")).to_be_visible()
    tab_to(page, "Read the review")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Decisions")).to_be_visible()
    took = time.monotonic() - began
    print(f"from the link to the review: {took:.1f} s")
    assert took < WITHIN_S
    expect(page.get_by_role("region", name="In numbers")).to_contain_text("training again")
    check_accessibility(page)
    page.screenshot(path=tmp_path / "review.png", full_page=True)
    context.close()
    code = "import json; from incidents.models import *; i = Incident.objects.get(); "
    code += "print(json.dumps([i.resolution, i.drill, [d.chosen for d in i.decisions.order_by('pk')]]))"
    assert json.loads(manage(golden15, "shell", "-v", "0", "-c", code)) == [
        "training again",
        "rank-stopped",
        ["accept", "It is stopped: continue it", "Yes, it advances"],
    ]
