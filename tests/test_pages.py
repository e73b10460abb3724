"""Pages in a real browser: no accessibility finding in either theme, no blocked or failing script, keyboard first."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.server import Golden15

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
