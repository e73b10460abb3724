"""Declaring in Chromium, on a server of its own: these tests change which nodes its fleet has."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.support.people import manage
from tests.support.server import Golden15

pytestmark = pytest.mark.browser


def test_a_button_sends_the_answer_that_it_carries(golden15: Golden15, open_page: Callable[..., Any]) -> None:
    """A button that was made dead while its form was sent took its answer with it: "Add and declare" asked for ever."""
    manage(golden15, "fleet", "add", "gpu-001")
    page = open_page()
    page.goto("/incidents/declare")
    page.get_by_label("Which job, or which nodes?").fill("never-seen-[7-8]")
    with page.expect_response(lambda answer: answer.status == 422):
        page.get_by_role("button", name="Declare", exact=True).click()
    page.get_by_role("button", name="Add and declare").wait_for()
    page.troubles[:] = [one for one in page.troubles if "422" not in one]
    page.get_by_role("button", name="Add and declare").click()
    page.wait_for_url(re.compile(r"/incidents/\d+$"))
    expect(page.get_by_role("heading", name="never-seen-[7-8]")).to_be_visible()
