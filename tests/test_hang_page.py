"""A real hung job on real nodes, on the page: named by rank, node and reason without a click, and accepted by a key."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.support.people import declared
from tests.support.sshd_nodes import Lab
from tests.support.training import PYTHON, training

pytestmark = [
    pytest.mark.browser,
    pytest.mark.needs_root,
    pytest.mark.skipif(not PYTHON.exists(), reason="cannot run here: needs torch, see make lab"),
    pytest.mark.timeout(300),
]


def test_a_stopped_rank_is_named_on_the_page_and_accepted(
    lab: Lab, open_page: Callable[..., Any], check_accessibility: Any, tmp_path: Path
) -> None:
    nodes = [lab.start(f"gpu-{number:03}") for number in (1, 2, 3)]
    with training(lab, nodes, "sigstop", victim=1) as job:
        job.stands(6.0)
        page = open_page()
        declared(page, "gpu-[001-003]")
        panel = page.get_by_role("region", name="Verdict")
        expect(panel.locator(".lead")).to_contain_text("Rank 1 on gpu-002 is stopped", timeout=30_000)
        expect(page.get_by_text("capture complete: 3 of 3 nodes answered")).to_be_visible(timeout=40_000)
        panel.get_by_role("link", name="gpu-002").first.click()
        expect(page.get_by_role("dialog", name="Evidence").get_by_role("heading", name="gpu-002")).to_be_visible()
        page.keyboard.press("Escape")
        page.screenshot(path=tmp_path / "hang.png", full_page=True)
        check_accessibility(page)
        page.locator("main").focus()
        page.keyboard.press("a")
        page.get_by_role("dialog").get_by_role("button", name="Yes").click()
        expect(panel).to_contain_text("admin accepted this")
