"""The fleet page in Chromium, against the real supervisor, its real worker and real sshd nodes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.support.looks import SIZES, at_each_look
from tests.support.server import Golden15
from tests.support.sshd_nodes import Lab, free_port

pytestmark = pytest.mark.browser


def nodes_of_all_kinds(lab: Lab) -> list[str]:
    lab.start("gpu-001")
    lab.start("gpu-002", trust=False)
    lab.start("gpu-003", trust=False)
    with lab.known_hosts.open("a") as known:  # another key is known for gpu-003
        kind, key = (lab.folder / "gpu-001" / "host_key.pub").read_text().split()[:2]
        known.write(f"[{lab.nodes['gpu-003'].address}]:{lab.nodes['gpu-003'].port} {kind} {key}\n")
    lab.start("gpu-004")
    (lab.folder / "gpu-004" / "authorized_keys").write_text("")
    lab.start("gpu-005", bare_path=True)
    lab.name("gpu-006", lab.address(), free_port())
    return [f"gpu-{i:03}" for i in range(1, 7)]


def add_and_check(page: Any, nodes: str) -> None:
    page.get_by_label("Nodes", exact=True).fill(nodes)
    page.get_by_role("button", name="Add nodes").click()
    page.get_by_role("button", name="Check the fleet").click()
    expect(page.get_by_role("status").get_by_text("checked 2")).to_be_visible(timeout=40_000)


def row(page: Any, node: str) -> Any:
    return page.get_by_role("row").filter(has=page.get_by_role("rowheader", name=node))


@pytest.mark.needs_root
def test_from_an_empty_fleet_to_nodes_that_are_ready(
    lab: Lab, open_page: Callable[..., Any], check_accessibility: Any
) -> None:
    nodes_of_all_kinds(lab)
    page = open_page()
    expect(page.get_by_text("No nodes yet")).to_be_visible()
    check_accessibility(page)
    add_and_check(page, "gpu-[001-006]")
    for node, words in {
        "gpu-001": "ready",
        "gpu-002": "host key not accepted yet",
        "gpu-003": "HOST KEY CHANGED",
        "gpu-004": "the node refused our SSH key",
        "gpu-005": "no python3 on the node",
        "gpu-006": "connection refused",
    }.items():
        expect(row(page, node).last).to_contain_text(words)
    expect(page.get_by_text("5 need you")).to_be_visible()
    check_accessibility(page)

    page.get_by_text("Accept all that stand on a list").click()
    page.get_by_label("Keys you trust").fill((lab.folder / "gpu-002" / "host_key.pub").read_text())
    page.get_by_role("button", name="Accept those on this list").click()
    expect(page.get_by_text("Accepted by your list: gpu-002")).to_be_visible()

    accept = page.get_by_role("button", name="Accept the key of gpu-003")
    accept.click()  # the browser asks for the reason first
    expect(accept).to_be_visible()
    page.get_by_label("Why did it change? (the key of gpu-003)").fill("reinstalled this morning")
    accept.click()
    expect(page.get_by_text("The key of gpu-003 is accepted")).to_be_visible()

    page.get_by_role("button", name="Check the fleet").click()
    expect(page.get_by_text("3 ready")).to_be_visible(timeout=40_000)
    page.get_by_role("link", name="gpu-003").click()
    expect(page.get_by_text("reinstalled this morning")).to_be_visible()
    expect(page.get_by_text("accepted by admin, one by one")).to_be_visible()
    check_accessibility(page)


@at_each_look
def test_nothing_overflows_and_axe_is_content_at_each_size(
    lab: Lab, open_page: Callable[..., Any], check_accessibility: Any, scheme: str, size: str, tmp_path: Path
) -> None:
    nodes_of_all_kinds(lab)
    page = open_page(viewport=SIZES[size], color_scheme=scheme)
    add_and_check(page, "gpu-[001-006]")
    page.get_by_text("Add nodes", exact=True).first.click()
    page.get_by_text("Accept all that stand on a list").click()
    for name, address in (
        ("fleet", ""),
        ("node", "/fleet/main/nodes/gpu-001"),
        ("changed", "/fleet/main/nodes/gpu-003"),
    ):
        if address:
            page.goto(address)
        page.screenshot(path=tmp_path / f"{name}-{size}-{scheme}.png", full_page=True)
        check_accessibility(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size]["width"], name


@pytest.mark.needs_root
def test_everything_works_with_the_keyboard_alone(lab: Lab, open_page: Callable[..., Any]) -> None:
    lab.start("gpu-001")
    page = open_page()
    page.get_by_label("Nodes", exact=True).focus()
    page.keyboard.type("gpu-001")
    for _ in range(4):  # user, port, jump host, the button
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="gpu-001")).to_be_visible()
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent").strip() == "Check the fleet":
            break
    page.keyboard.press("Enter")
    expect(page.get_by_text("1 ready")).to_be_visible(timeout=40_000)


@pytest.mark.needs_root
def test_without_javascript_a_reload_shows_the_same(lab: Lab, open_page: Callable[..., Any]) -> None:
    lab.start("gpu-001")
    page = open_page(java_script_enabled=False)
    page.get_by_label("Nodes", exact=True).fill("gpu-001")
    page.get_by_role("button", name="Add nodes").click()
    page.get_by_role("button", name="Check the fleet").click()
    for _ in range(200):
        if page.get_by_text("1 ready").count():
            return
        page.reload()
    raise AssertionError("never ready")


@pytest.mark.long
@pytest.mark.needs_root
def test_a_worker_killed_in_the_middle_of_a_check_is_replaced_and_the_check_ends(
    lab: Lab, golden15: Golden15, open_page: Callable[..., Any]
) -> None:
    lab.start("gpu-001")
    lab.start("gpu-002", rc="sleep 4\n")
    page = open_page()
    page.get_by_label("Nodes", exact=True).fill("gpu-[001-002]")
    page.get_by_role("button", name="Add nodes").click()
    page.get_by_role("button", name="Check the fleet").click()
    expect(page.get_by_text("asking: 1 of 2 ended")).to_be_visible(timeout=20_000)
    golden15.part("worker").kill()
    golden15.wait_for("worker")
    expect(row(page, "gpu-002").last).to_contain_text("slow", timeout=60_000)
    expect(row(page, "gpu-001").last).to_contain_text("ready")
