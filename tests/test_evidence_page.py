"""The evidence drawer in Chromium, filled by a real node: copied, counted on, taken away as a file."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from probes import catalog
from tests.support.people import declared
from tests.support.sshd_nodes import Lab

pytestmark = pytest.mark.browser


@pytest.fixture
def page(lab: Lab, open_page: Callable[..., Any]) -> Any:
    """An incident of one node that answered."""
    lab.start("gpu-001")
    page = open_page(permissions=["clipboard-read", "clipboard-write"])
    declared(page, "gpu-001")
    expect(page.get_by_text("capture complete")).to_be_visible(timeout=40_000)
    return page


def drawer(page: Any, probe: str) -> Any:
    page.locator("[data-matrix] a", has_text=f"gpu-001 {probe}").click()
    return page.get_by_role("dialog", name="Evidence")


def test_the_drawer_explains_counts_copies_and_gives_the_file(
    page: Any, check_accessibility: Any, tmp_path: Path
) -> None:
    opened = drawer(page, "host.load")
    expect(opened.get_by_text("The node answered, and the answer could be read.")).to_be_visible()
    expect(opened.get_by_text(re.compile(r"its clock against ours [+-]?\d+\.\d ± \d+\.\d ms"))).to_be_visible()
    expect(opened.get_by_role("term").filter(has_text=re.compile("^memory total$"))).to_be_visible()
    check_accessibility(page)

    age = opened.locator("[data-age]")
    first = age.inner_text()
    assert re.fullmatch(r"\d:\d\d", first)
    expect(age).not_to_have_text(first)

    opened.get_by_role("button", name="Copy").click()
    expect(opened.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == catalog.load()["host.load"].by_hand

    with page.expect_download() as started:
        opened.get_by_role("link", name="Raw output as a file").click()
    assert started.value.suggested_filename == "INC-1-gpu-001-host.load.txt"
    started.value.save_as(tmp_path / "out")
    digest = hashlib.sha256((tmp_path / "out").read_bytes()).hexdigest()
    assert digest in opened.inner_text()


def test_without_a_clipboard_the_command_is_selected(page: Any) -> None:
    page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    opened = drawer(page, "host.load")
    opened.get_by_role("button", name="Copy").click()
    expect(opened.get_by_role("button", name="Press Ctrl+C")).to_be_visible()
    assert page.evaluate("getSelection().toString()") == catalog.load()["host.load"].by_hand


def test_the_page_of_its_own_counts_on_and_every_nested_fact_opens(page: Any, check_accessibility: Any) -> None:
    page.goto(page.locator("[data-matrix] a", has_text="gpu-001 host.load").get_attribute("href"))
    age = page.locator("[data-age]")
    expect(age).not_to_have_text(age.inner_text())
    for summary in page.locator(".drawer > details .facts summary").all():
        summary.click()
    page.get_by_text("The same as JSON").click()
    check_accessibility(page)
    expect(page.locator("pre").first).to_contain_text('"load1"')
