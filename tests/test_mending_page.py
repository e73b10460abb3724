"""A real stopped rank on real nodes, mended from the page by keys alone: found, continued, and seen to train again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.support.people import declared, manage
from tests.support.server import Golden15
from tests.support.sshd_nodes import Lab
from tests.support.training import PYTHON, training

pytestmark = [
    pytest.mark.browser,
    pytest.mark.needs_root,
    pytest.mark.skipif(not PYTHON.exists(), reason="cannot run here: needs torch, see make lab"),
    pytest.mark.timeout(300),
]


def test_a_stopped_rank_is_continued_by_a_key_and_seen_to_train_again(
    lab: Lab, golden15: Golden15, open_page: Callable[..., Any], check_accessibility: Any, tmp_path: Path
) -> None:
    nodes = [lab.start(f"gpu-{number:03}") for number in (1, 2, 3)]
    with training(lab, nodes, "sigstop", victim=1) as job:
        job.stands(6.0)
        page = open_page()
        declared(page, "gpu-[001-003]")
        verdict = page.get_by_role("region", name="Verdict")
        expect(verdict.locator(".lead")).to_contain_text("Rank 1 on gpu-002 is stopped", timeout=30_000)
        page.locator("main").focus()
        page.keyboard.press("b")
        runbook = page.get_by_role("region", name="Runbook")
        expect(runbook.locator(".question")).to_contain_text("Is the rank's process still there")
        expect(runbook.locator("button.option").first).to_contain_text("kill -CONT")
        check_accessibility(page)
        page.screenshot(path=tmp_path / "runbook.png", full_page=True)
        page.locator("main").focus()
        page.keyboard.press("1")
        asked = page.get_by_role("dialog")
        expect(asked).to_contain_text("on gpu-002?")
        asked.get_by_role("button", name="Yes").press("Enter")
        expect(runbook).to_contain_text("was run on gpu-002", timeout=20_000)
        expect(runbook).to_contain_text("All 3 ranks advance", timeout=60_000)
        expect(runbook.locator(".question")).to_have_text("Does training advance again?")
        check_accessibility(page)
        page.screenshot(path=tmp_path / "advances.png", full_page=True)
        page.keyboard.press("1")
        expect(runbook).to_contain_text("Nothing more to do here: resolve the incident.")
        expect(page.locator(".tl")).to_contain_text("“Yes, it advances”")
    told = manage(
        golden15, "shell", "-v", "0", "-c", "from incidents.models import Action; print(Action.objects.get())"
    )
    assert told.strip() == "continue_rank on gpu-002: done"
