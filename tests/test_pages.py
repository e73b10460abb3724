"""Pages in a real browser: no accessibility finding in either theme, no blocked or failing script, keyboard first."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.looks import SIZES, at_each_look
from tests.support.server import BASE, Golden15

pytestmark = pytest.mark.browser

Check = Callable[[Any], None]


@pytest.mark.parametrize("scheme", ["dark", "light"])
@pytest.mark.parametrize("address", ["/sign-in/", "/sign-in/nonsense", "/no/such/page"])
def test_public_pages_have_no_accessibility_finding(
    visit: Callable[..., Any], check_accessibility: Check, address: str, scheme: str
) -> None:
    page = visit(color_scheme=scheme)
    page.goto(address)
    check_accessibility(page)
    expected = {"/sign-in/nonsense": "403", "/no/such/page": "404"}.get(address)
    page.troubles[:] = [t for t in page.troubles if not (expected and f"status of {expected}" in t)]


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_the_fleet_page_has_no_accessibility_finding(
    visit: Callable[..., Any], signed_in_state: Any, check_accessibility: Check, scheme: str
) -> None:
    page = visit(storage_state=signed_in_state, color_scheme=scheme)
    page.goto("/fleet/")
    assert page.title() == "Fleet · Golden15"
    check_accessibility(page)


@pytest.fixture(scope="session")
def alerts_that_could_not_be_placed(server: Golden15) -> None:
    made = [sys.executable, "manage.py", "alert_source"]
    tokens = [
        subprocess.run(
            [*made, "add", name], cwd=BASE, env=server.env, capture_output=True, text=True, check=True
        ).stdout
        for name in ("cluster-1", "silent", "old")
    ]
    subprocess.run([*made, "disable", "old"], cwd=BASE, env=server.env, capture_output=True, check=True)
    for number in (1, 2):
        body = {"status": "firing", "alerts": [{"status": "firing", "labels": {"alertname": "Odd", "n": str(number)}}]}
        headers = {"Authorization": f"Bearer {tokens[0].strip()}", "Content-Type": "application/json"}
        posted = urllib.request.Request(f"{server.url}/alerts/cluster-1", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(posted, timeout=20) as answer:
            assert answer.status == 202


@at_each_look
def test_the_page_of_alerts_is_readable_at_each_size(
    visit: Callable[..., Any],
    signed_in_state: Any,
    check_accessibility: Check,
    alerts_that_could_not_be_placed: None,
    scheme: str,
    size: str,
    tmp_path: Path,
) -> None:
    width = SIZES[size]["width"]
    page = visit(storage_state=signed_in_state, color_scheme=scheme, viewport=SIZES[size])
    page.goto("/incidents/")
    page.get_by_role("link", name="Look").click()
    page.get_by_text("What was sent").first.click()
    assert page.get_by_text("names no nodes").count() == 2
    check_accessibility(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.screenshot(path=tmp_path / f"alerts-{scheme}.png")


def test_the_theme_follows_the_system(visit: Callable[..., Any]) -> None:
    backgrounds = []
    for scheme in ("dark", "light"):
        page = visit(color_scheme=scheme)
        page.goto("/sign-in/")
        backgrounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert backgrounds == ["rgb(13, 17, 23)", "rgb(244, 246, 249)"]


def test_the_first_tab_stop_leads_past_the_header(page: Any) -> None:
    page.goto("/fleet/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_signing_out_by_the_button_ends_the_session(visit: Callable[..., Any], server: Golden15) -> None:
    page = visit()
    page.goto(server.fresh_link())
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/sign-in/")
    page.goto("/fleet/")
    assert page.url.endswith("/sign-in/?next=/fleet/")


def test_the_sign_in_page_fits_a_phone(visit: Callable[..., Any]) -> None:
    page = visit(viewport={"width": 320, "height": 640})
    page.goto("/sign-in/")
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
