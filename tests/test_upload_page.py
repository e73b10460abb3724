"""Files onto the page in Chromium: a folder and an archive, judged by a real worker while the page is open."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.support.looks import SIZES, at_each_look

pytestmark = pytest.mark.browser
CASE = Path(__file__).parent / "fixtures" / "hangs" / "loader_slow"


@at_each_look
def test_a_folder_is_judged_and_an_archive_added_while_the_page_is_open(
    visit: Any, signed_in_state: Any, check_accessibility: Any, tmp_path: Path, size: str, scheme: str
) -> None:
    page = visit(storage_state=signed_in_state, viewport=SIZES[size], color_scheme=scheme)
    page.goto("/incidents/")
    page.get_by_role("link", name="Judge files").first.click()
    check_accessibility(page)
    page.get_by_role("button", name="Judge").click()
    expect(page.get_by_text("Choose files, a folder or an archive.")).to_be_visible()
    page.get_by_label("Or a folder, with everything in it").set_input_files(CASE)
    expect(page.get_by_text(re.compile(r"\d+ files, [\d.]+ [KM]iB\."))).to_be_visible()
    page.get_by_role("button", name="Judge").focus()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/incidents/\d+$"))
    verdict = page.get_by_text("Rank 1 waits for its data loader").first
    expect(verdict).to_be_visible(timeout=30_000)
    expect(page.get_by_text("from files", exact=True)).to_be_visible()
    expect(page.get_by_text("loader_slow/pyspy_nb_rank1.json").first).to_be_attached()
    check_accessibility(page)
    with zipfile.ZipFile(tmp_path / "more.zip", "w") as archive:
        archive.writestr(
            "gpu-017.dmesg.txt", "[  100.000001] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n"
        )
    page.get_by_role("link", name="Add files").first.click()
    page.get_by_label("Files or archives").set_input_files(tmp_path / "more.zip")
    page.get_by_role("button", name="Add", exact=True).click()
    page.wait_for_url(re.compile(r"/incidents/\d+$"))
    expect(page.get_by_text("more.zip/gpu-017.dmesg.txt").first).to_be_attached(timeout=30_000)
    expect(page.get_by_text("more.zip", exact=True)).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
