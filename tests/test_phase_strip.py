"""The phase strip in Chromium: nothing jumps when a phase ends, nothing overflows at any width or age."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.support.people import declared, manage
from tests.support.server import Golden15
from tests.support.wait import until

pytestmark = pytest.mark.browser
WIDTHS = (390, 761, 1001, 1429, 1430, 1440)
AGE = """
from datetime import timedelta
from incidents.models import Incident, Phase
one = Incident.objects.get(pk={pk})
by = timedelta(minutes={minutes})
Incident.objects.filter(pk=one.pk).update(t0=one.t0 - by)
for phase in Phase.objects.filter(incident=one):
    phase.due_at -= by
    phase.started_at = phase.started_at and phase.started_at - by
    phase.ended_at = phase.ended_at and phase.ended_at - by
    phase.save()
"""
OVER = """() => [...document.querySelectorAll('.phase')].flatMap(phase => [...phase.querySelectorAll('*')]
  .filter(one => !one.closest('form') && one.localName !== 'progress')
  .filter(one => one.getBoundingClientRect().right > phase.getBoundingClientRect().right + 0.5
    || one.getBoundingClientRect().bottom > phase.getBoundingClientRect().bottom + 0.5)
  .map(one => one.outerHTML))"""
COVERED = """() => {
  const range = document.createRange();
  range.selectNodeContents(document.querySelector('.phase.now .clock'));
  const button = document.querySelector('.advance summary');
  return button ? range.getBoundingClientRect().right - button.getBoundingClientRect().left : -1;
}"""


def advance(page: Any, of: str, to: str) -> None:
    page.locator(".advance summary").click()
    page.get_by_label(f"Why is {of} over?").fill("clear")
    page.get_by_role("button", name=f"Move to {to}").click()
    expect(page.locator("[aria-current=step]")).to_contain_text(to)


def boxes(page: Any) -> list[tuple[int, int, int, int]]:
    found = page.evaluate(
        "[...document.querySelectorAll('.phase')].map(one => one.getBoundingClientRect())"
        ".map(box => [box.x, box.y, box.width, box.height].map(Math.round))"
    )
    return [tuple(box) for box in found]


@pytest.mark.parametrize("minutes", [0, 200])
def test_nothing_jumps_and_nothing_overflows_in_any_phase(
    page: Any, server: Golden15, minutes: int, tmp_path: Path, check_accessibility: Any
) -> None:
    declared(page)
    expect(page.get_by_text("capture ended: 0 of 2 nodes answered")).to_be_visible(timeout=30_000)
    pk = page.url.rsplit("/", 1)[1]
    manage(server, "shell", "-c", AGE.format(pk=pk, minutes=minutes))
    at_first: dict[int, Any] = {}
    for phase, to in (("Capture", "Triage"), ("Triage", "Decide & act"), ("Decide & act", "")):
        page.reload()
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            page.screenshot(path=tmp_path / f"{phase.split()[0]}-{width}.png")
            assert page.evaluate(OVER) == [], (phase, width)
            assert page.evaluate(COVERED) < 0, (phase, width)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (phase, width)
            if width > 1000:
                assert boxes(page) == at_first.setdefault(width, boxes(page)), (phase, width)
        check_accessibility(page)
        if to:
            advance(page, phase, to)


def test_on_a_phone_the_present_phase_is_big_and_the_others_are_one_line(visit: Callable[..., Any], page: Any) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    declared(page)
    heights = [height for _, _, _, height in boxes(page)]
    assert heights[0] > 90
    assert max(heights[1:]) < 45


def test_opening_the_reason_moves_nothing_and_a_push_leaves_it_open(page: Any) -> None:
    declared(page)
    page.locator("summary", has_text="To Triage").click()
    expect(page.get_by_text("capture ended: 0 of 2 nodes answered")).to_be_visible(timeout=30_000)
    # The verdict is pushed apart from the timeline and moves what lies below it: measure once all are there.
    expect(page.get_by_text("The evidence does not decide")).to_be_visible()
    expect(page.get_by_text("17 paths · 17 not known")).to_be_visible()
    expect(page.get_by_text("28 no answer")).to_be_visible()
    expect(page.get_by_label("Why is Capture over?")).to_be_visible()
    opened = page.locator("[data-slot=matrix]").bounding_box()
    page.locator("summary", has_text="To Triage").click()
    expect(page.get_by_label("Why is Capture over?")).to_be_hidden()
    assert page.locator("[data-slot=matrix]").bounding_box() == opened


def test_a_phase_that_somebody_else_ended_does_not_leave_its_question_open_for_the_next(
    page: Any, visit: Callable[..., Any], signed_in_state: Any
) -> None:
    declared(page)
    other = visit(storage_state=signed_in_state)
    other.goto(page.url)
    page.locator("summary", has_text="To Triage").click()
    advance(other, "Capture", "Triage")
    expect(page.locator("summary", has_text="To decision")).to_be_visible()
    expect(page.get_by_label("Why is Triage over?")).to_be_hidden()


def test_the_clock_passes_its_due_time_in_front_of_people(page: Any) -> None:
    page.clock.install()
    declared(page)
    strip = page.locator("[aria-current=step]")
    expect(strip).to_contain_text("left, due T+3:00")
    # Both in one look: with any news the page takes the server's time again, which did not jump.
    look = "strip => strip.innerText.includes('over, due T+3:00') && strip.querySelector('progress').value === 100"

    def over() -> bool:
        page.clock.run_for(200_000)
        return bool(strip.evaluate(look))

    until(over, 20, "the phase to be over, and its bar full")
