"""What several tests do on a page on their way to what they are about."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from playwright.sync_api import expect


def evidence_of_file(page: Any, file: Path, link: str) -> None:
    """Bring a file, wait until it is read, and open the evidence whose link has this name."""
    page.goto("/incidents/files")
    page.get_by_label("Files or archives").set_input_files(file)
    page.get_by_role("button", name="Judge").click()
    page.wait_for_url(re.compile(r"/incidents/\d+$"))
    found = page.get_by_role("link", name=re.compile(link)).first
    expect(found).to_be_attached(timeout=30_000)
    page.goto(found.get_attribute("href"))
