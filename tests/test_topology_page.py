"""The topology tab in Chromium: the matrix as colours, shapes and words, by mouse and keys, live, in every size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.support.fabric import given
from tests.support.people import declared
from tests.support.server import Golden15

pytestmark = pytest.mark.browser
SIZES = {"desk": {"width": 1440, "height": 900}, "phone": {"width": 390, "height": 844}}
WELL = "[sweep(1, range(1, 65)), *(ports(n) for n in range(1, 65))]"
# The trouble of the mock-up: one port down, one at half its rate, one node silent.
ILL = (
    "[ports(17, {'mlx5_5': DOWN}), ports(42, {'mlx5_8': SLOW}), silent(53), sweep(1, range(1, 65), [(17, 3)]), "
    "*(ports(n) for n in range(1, 65) if n not in (17, 42, 53))]"
)


@pytest.fixture
def page(page: Any) -> Any:
    """The tab of an incident on 64 nodes, whose capture has ended without an answer."""
    declared(page, "gpu-[001-064]")
    expect(page.get_by_text("capture ended: 0 of 64 nodes answered")).to_be_visible(timeout=60_000)
    page.get_by_role("link", name="Topology").click()
    return page


def test_shots(page: Any, visit: Any, signed_in_state: Any, server: Golden15, tmp_path: Path) -> None:
    given(server, page.url, WELL)
    page.wait_for_timeout(3000)
    page.screenshot(path="/tmp/topo/well.png")
    print(
        page.evaluate(
            "[document.getElementById('matrix').outerHTML.slice(0,600), document.querySelector('[data-slot=topology_figure]').innerHTML.slice(0,200), document.getElementById('matrix').hidden]"
        ),
        page.troubles,
    )
    page.get_by_role("button", name="This is how it should be").click()
    page.wait_for_timeout(1500)
    given(server, page.url, ILL)
    for size in SIZES:
        for scheme in ("dark", "light"):
            one = visit(storage_state=signed_in_state, viewport=SIZES[size], color_scheme=scheme)
            one.goto(page.url)
            one.wait_for_timeout(2000)
            print(size, scheme, one.locator("#matrix").get_attribute("data-ms"))
            one.screenshot(path=f"/tmp/topo/ill-{size}-{scheme}.png", full_page=True)
