"""net.links: the collector on this machine and on made trees, and what differing links lead to."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from probes.catalog.net_links import PROBE, parse
from probes.core import ParseError
from tests.support.collectors import capture_here, old_and_new_pythons


def interface(root: Path, name: str, hca: str = "", master: str = "", **told: str) -> None:
    folder = root / name
    folder.mkdir(parents=True)
    for key, text in {"mtu": "9000", "type": "1", "carrier": "1", "speed": "400000", **told}.items():
        (folder / key).write_text(text + "\n")
    if hca:
        (folder / "device/infiniband" / hca).mkdir(parents=True)
    if master:
        (folder / "master").symlink_to(root / master)


@pytest.mark.parametrize("python", old_and_new_pythons())
def test_what_the_kernel_tells_of_each_interface_is_kept(tmp_path: Path, python: str) -> None:
    root = tmp_path / "net"
    interface(root, "ens4f0np0", hca="mlx5_4")
    interface(root, "br0", speed="-1", mtu="1500")
    interface(root, "veth7", master="br0", carrier="", speed="", mtu="1450")
    interface(root, "ib0", type="32", mtu="4092", speed="200000")
    capture = capture_here(PROBE, python, instead={"/sys/class/net": str(root)})
    found = {link.name: link for link in parse(capture.text).links}
    assert {name: (one.up, one.mtu, one.speed_gbps, one.kind) for name, one in found.items()} == {
        "ens4f0np0": (True, 9000, 400.0, "ether"),
        "br0": (True, 1500, None, "ether"),
        "veth7": (False, 1450, None, "ether"),  # switched off: the kernel refuses to tell its carrier
        "ib0": (True, 4092, 200.0, "infiniband"),
    }
    assert (found["ens4f0np0"].hca, found["veth7"].master, found["ib0"].pause) == ("mlx5_4", "br0", None)


@pytest.mark.parametrize("python", old_and_new_pythons())
def test_the_interfaces_of_this_machine_are_all_there_with_their_addresses(python: str) -> None:
    links = parse(capture_here(PROBE, python).text).links
    assert {name for _, name in socket.if_nameindex()} == {link.name for link in links}
    (loop,) = (link for link in links if link.kind == "loopback")
    assert "127.0.0.1" in loop.addresses and loop.up


@pytest.mark.parametrize(
    "row",
    ['{"name": "x"}', '{"name": "x", "up": 1, "addresses": []}', '{"name": "x", "up": true, "addresses": "y"}', "{"],
)
def test_what_the_collector_does_not_write_is_refused(row: str) -> None:
    with pytest.raises(ParseError):
        parse(f"==> links <==\n{row}\n")
