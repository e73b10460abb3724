"""The evidence drawer in Chromium, filled by a real node: copied, counted on, taken away as a file."""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from probes import catalog
from tests.support.people import declared
from tests.support.server import Golden15
from tests.support.sshd_nodes import Lab

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def golden15() -> Iterator[Golden15]:
    """One server with one captured incident for all tests of this file: they only look at it."""
    with (
        tempfile.TemporaryDirectory(prefix="g15-lab-", dir="/tmp") as folder,
        tempfile.TemporaryDirectory(prefix="g15-", dir="/tmp") as data,
        Lab(Path(folder)) as lab,
    ):
        lab.start("gpu-001")
        one = Golden15(Path(data), GOLDEN15_SSH_CONFIG=str(lab.config))
        try:
            one.wait_ready()
            yield one
        finally:
            one.kill_all()


@pytest.fixture(scope="module")
def incident(chromium: Any, golden15: Golden15) -> str:
    """The address of an incident of one node that answered."""
    page = chromium.new_context(base_url=golden15.url).new_page()
    page.goto(golden15.fresh_link())
    declared(page, "gpu-001")
    expect(page.get_by_text("capture complete")).to_be_visible(timeout=40_000)
    address = str(page.url)
    page.context.close()
    return address


@pytest.fixture
def page(open_page: Callable[..., Any], incident: str) -> Any:
    page = open_page(permissions=["clipboard-read", "clipboard-write"])
    page.goto(incident)
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
