"""The topology tab in Chromium: the matrix as colours, shapes and words, by mouse and keys, live, in every size."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.support.fabric import given
from tests.support.looks import SIZES, at_each_look
from tests.support.people import declared, manage, sign_in
from tests.support.server import Golden15

pytestmark = pytest.mark.browser
WELL = "[sweep(1, range(1, 65)), *(ports(n) for n in range(1, 65))]"
# The trouble of the mock-up: one port down, one at half its rate, one node silent.
ILL = (
    "[ports(17, {'mlx5_5': DOWN}), ports(42, {'mlx5_8': SLOW}), silent(53), sweep(1, range(1, 65), [(17, 3)]), "
    "*(ports(n) for n in range(1, 65) if n not in (17, 42, 53))]"
)
ONE = "One port, both neighbours fine: gpu-017 mlx5_5 → leaf-03 port 17 is the cable or its ends."
SAYS = f"{ONE} 1 more port only differs."
AGAIN = "[ports(42, {'mlx5_8': SLOW}), *(ports(n) for n in (9, 30))]"


@pytest.fixture(scope="module")
def address(chromium: Any, server: Golden15, signed_in_state: Any) -> str:
    """An incident on 64 nodes whose fabric was stored as it should be, and then went wrong."""
    context = chromium.new_context(base_url=server.url, storage_state=signed_in_state)
    page = context.new_page()
    page.troubles = []
    declared(page, "gpu-[001-064]")
    expect(page.get_by_text("capture ended: 0 of 64 nodes answered")).to_be_visible(timeout=60_000)
    given(server, page.url, WELL)
    page.get_by_role("link", name="Topology").click()
    expect(page.get_by_text("All 512 ports are up.")).to_be_visible()
    page.get_by_role("button", name="This is how it should be").click()
    expect(page.get_by_text("All 512 ports are as expected.")).to_be_visible()
    given(server, page.url, ILL)
    expect(page.get_by_text(SAYS)).to_be_visible()  # by itself
    url = str(page.url)
    context.close()
    return url


@pytest.fixture
def page(page: Any, address: str) -> Any:
    page.goto(address)
    drawn(page, 1)
    return page


@pytest.fixture
def put_back(server: Golden15, address: str) -> Iterator[None]:
    """For tests that change something: afterwards it is as before."""
    yield
    given(server, address, AGAIN)


def drawn(page: Any, times: int) -> None:
    expect(page.locator(f"#matrix[data-drawn='{times}']")).to_have_count(1, timeout=15_000)


def cell(page: Any, column: int, row: int) -> dict[str, float]:
    """The middle of a cell, from the picture that Plotly drew, not from our own arithmetic."""
    box = page.locator("#matrix .heatmaplayer image").first.bounding_box()
    return {"x": box["x"] + box["width"] * (column + 0.5) / 64, "y": box["y"] + box["height"] * (row + 0.5) / 8}


def test_the_policy_is_loosened_on_this_page_only_and_by_no_more_than_plotly_needs(page: Any, address: str) -> None:
    def policy(path: str) -> dict[str, str]:
        header = page.request.get(path).headers["content-security-policy"]
        return dict(one.strip().split(" ", 1) for one in header.split(";"))

    loose, strict = policy(address), policy(address.removesuffix("/topology"))
    assert {name for name in loose if loose[name] != strict[name]} == {"img-src"}
    assert loose["img-src"] == "'self' data:"


def test_without_the_exception_chromium_complains(
    visit: Callable[..., Any], signed_in_state: Any, address: str
) -> None:
    page = visit(storage_state=signed_in_state)

    def tightened(route: Any) -> None:
        answer = route.fetch()
        header = answer.headers["content-security-policy"].replace(" data:", "")
        route.fulfill(response=answer, headers={**answer.headers, "content-security-policy": header})

    page.route(re.compile(r"/topology$"), tightened)
    page.goto(address)
    with page.expect_event("console", lambda message: "Content Security Policy" in message.text, timeout=15_000):
        page.reload()
    page.wait_for_load_state("networkidle")
    assert page.troubles
    page.troubles.clear()


def test_news_redraw_the_matrix_without_a_reload(page: Any, server: Golden15, put_back: None) -> None:
    page.evaluate("window.kept = true")
    before = page.locator("#matrix .heatmaplayer image").evaluate("one => one.href.baseVal")
    given(server, page.url, "[ports(30, {'mlx5_0': DOWN})]")
    expect(page.get_by_text("2 ports on 2 nodes and 2 leaves are down")).to_be_visible()
    drawn(page, 2)
    assert page.locator("#matrix .heatmaplayer image").evaluate("one => one.href.baseVal") != before
    assert page.evaluate("window.kept"), "it was not reloaded"


def test_each_state_has_a_shape_a_colour_and_words(page: Any, check_accessibility: Any) -> None:
    assert page.locator("#matrix .textpoint").all_text_contents() == ["◆", "▲"]
    assert page.locator("#matrix .fills path, #matrix .js-fill").count() == 1, "what is not known is hatched"
    assert page.locator("#matrix .shapelayer path").count() == 1, "a border round the suspect"
    legend = page.locator(".legend").inner_text()
    for words in ("502 as expected", "1 differs", "1 down", "0 missing", "8 not known"):
        assert words in legend
    page.locator("summary", has_text="The same in words").press("Enter")
    rows = page.get_by_role("region", name="Ports in words").locator("tbody tr")
    assert rows.nth(0).inner_text().split("\t") == [
        "gpu-017", "mlx5_5", "◆ down", "leaf-03 port 17",
        "DOWN, physical state Polling: it sees no signal: cable, transceiver or peer",
    ]  # fmt: skip
    assert "▲ differs" in rows.nth(1).inner_text()
    assert "◌ not known" in rows.nth(2).inner_text()
    check_accessibility(page)


def test_keys_move_over_the_matrix_and_enter_opens_the_node(page: Any, check_accessibility: Any) -> None:
    says = page.locator("#cell-says")
    page.locator("main").focus()
    page.keyboard.press("l")
    expect(page.locator("#matrix")).to_be_focused()
    expect(says).to_have_text(re.compile(r"^gpu-017 mlx5_5 → leaf-03 port 17: down\. DOWN"))  # where the trouble is
    page.keyboard.press("ArrowRight")
    expect(says).to_have_text("gpu-018 mlx5_5 → leaf-03 port 18: as expected")
    page.keyboard.press("ArrowDown")
    expect(says).to_have_text("gpu-018 mlx5_6 → leaf-04 port 18: as expected")
    page.keyboard.press("End")
    page.keyboard.press("ArrowRight")
    expect(says).to_have_text("gpu-064 mlx5_6 → leaf-04 port 64: as expected")
    page.keyboard.press("Enter")
    expect(page.locator("#node-title")).to_contain_text("gpu-064")
    expect(page).to_have_url(re.compile(r"\?node=gpu-064&port=mlx5_6%3A1$"))
    expect(page.get_by_role("region", name="Cable")).to_contain_text("leaf-04 port 64")
    check_accessibility(page)
    page.reload()
    expect(page.locator("#node-title")).to_contain_text("gpu-064")
    expect(page.get_by_role("region", name="Cable")).to_contain_text("gpu-064 mlx5_6")


def test_the_pointer_tells_a_cell_and_a_click_opens_its_node(page: Any) -> None:
    at = cell(page, 41, 6)
    page.mouse.move(at["x"], at["y"])
    expect(page.locator("#cell-says")).to_have_text(
        "gpu-042 mlx5_8 → leaf-06 port 42: differs. runs at 200 Gb/s instead of 400"
    )
    page.mouse.click(at["x"], at["y"])
    expect(page.locator("#node-title")).to_contain_text("gpu-042")
    cable = page.get_by_role("region", name="Cable")
    expect(cable.locator("tr", has_text="rate")).to_contain_text("200 Gb/s (400 Gb/s expected)")
    expect(cable.locator("tr", has_text="rate")).to_contain_text("400 Gb/s, 4x NDR")


def test_a_deep_link_opens_the_node_and_its_readings_open_in_the_drawer(page: Any, address: str) -> None:
    page.goto(f"{address}?node=gpu-053")
    expect(page.locator("#node-title")).to_contain_text("gpu-053")
    page.get_by_role("link", name="Reading of ib.ports on gpu-053").click()
    expect(page.get_by_role("dialog", name="Evidence")).to_contain_text("timeout")
    page.keyboard.press("Escape")
    page.goto(f"{address}?node=nobody")
    expect(page.get_by_text("nobody is not a node of this incident.")).to_be_visible()


def test_the_card_stays_with_its_node_when_news_come(page: Any, server: Golden15, put_back: None) -> None:
    page.locator("a[data-node=gpu-042]").first.dispatch_event("click")
    expect(page.locator("#node-title")).to_contain_text("gpu-042")
    given(server, page.url, "[ports(42)]")
    expect(page.get_by_role("region", name="Cable")).to_contain_text("400 Gb/s (400 Gb/s expected)")
    expect(page.locator("#node-title")).to_contain_text("gpu-042")


def test_a_node_is_asked_for_the_fabric_by_name_and_its_failure_says_what_it_was(
    page: Any, visit: Callable[..., Any], server: Golden15, address: str, put_back: None
) -> None:
    viewer = sign_in(visit(), server, "vic", "viewer")
    viewer.goto(address)
    expect(viewer.get_by_text(SAYS)).to_be_visible()
    expect(viewer.get_by_role("button", name=re.compile("Ask|should be"))).to_have_count(0)
    page.get_by_label("Ask the fabric from node").fill("gpu-009")
    page.get_by_role("button", name="Ask", exact=True).click()
    expect(page.get_by_text("gpu-009: unreachable")).to_be_visible(timeout=30_000)
    expect(page.locator("#matrix[data-drawn]")).to_have_count(1)  # the page's scripts have run
    page.get_by_role("link", name="gpu-009: unreachable").click()
    expect(page.get_by_role("dialog", name="Evidence")).to_contain_text("ib.fabric")


def test_of_a_port_that_is_down_a_person_says_whether_it_is_broken_or_not_used(
    visit: Callable[..., Any], signed_in_state: Any, server: Golden15, check_accessibility: Any
) -> None:
    page = visit(storage_state=signed_in_state)
    manage(server, "fleet", "--fleet", "main", "add", "gpu-[901-904]")  # nothing is expected of these
    declared(page, "gpu-[901-904]")
    expect(page.get_by_text("capture ended: 0 of 4 nodes answered")).to_be_visible(timeout=60_000)
    page.get_by_role("link", name="Topology").click()
    expect(page.get_by_text("No node has answered for its ports yet: gpu-[901-904].")).to_be_visible()
    given(server, page.url, "[ports(903, {'mlx5_5': DOWN}), *(ports(n) for n in (901, 902, 904))]")
    expect(
        page.get_by_text("1 port is not up, not there any more, or slower than the others: gpu-903 mlx5_5.")
    ).to_be_visible()
    check_accessibility(page)
    page.get_by_role("button", name="Leave it out: not used").press("Enter")
    expect(page.get_by_text("All 31 ports are as expected.")).to_be_visible()
    page.get_by_role("button", name="Expect it up: broken now").press("Enter")
    expect(page.get_by_text("One port, both neighbours fine: gpu-903 mlx5_5 is the cable or its ends.")).to_be_visible()


@at_each_look
def test_nothing_overflows_and_axe_is_content(
    visit: Callable[..., Any], signed_in_state: Any, address: str, check_accessibility: Any,
    scheme: str, size: str, tmp_path: Path,
) -> None:  # fmt: skip
    page = visit(storage_state=signed_in_state, viewport=SIZES[size], color_scheme=scheme)
    page.goto(address)
    drawn(page, 1)
    page.screenshot(path=tmp_path / f"topology-{size}-{scheme}.png", full_page=True)
    check_accessibility(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size]["width"]


def test_the_matrix_takes_its_colours_from_the_style_sheet_also_when_the_scheme_changes(
    visit: Callable[..., Any], signed_in_state: Any, address: str
) -> None:
    page = visit(storage_state=signed_in_state, color_scheme="dark")
    page.goto(address)
    drawn(page, 1)
    border = page.locator("#matrix .shapelayer path")
    ink = "getComputedStyle(document.documentElement).getPropertyValue('--ink').trim()"
    dark = page.evaluate(ink), border.evaluate("one => getComputedStyle(one).stroke")
    page.emulate_media(color_scheme="light")
    drawn(page, 2)
    light = page.evaluate(ink), border.evaluate("one => getComputedStyle(one).stroke")
    assert dark == ("#e8edf4", "rgb(232, 237, 244)")
    assert light == ("#17202c", "rgb(23, 32, 44)")
