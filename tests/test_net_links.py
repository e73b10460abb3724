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


DCB = """#!/bin/sh
[ "$1 $2 $3" = "pfc show dev" ] || exit 2
echo "$4 pfc-cap 8 macsec-bypass off delay 0"
echo "  prio-pfc 0:off 1:off 2:off 3:on 4:off 5:off 6:off 7:off"
"""
MLNX_QOS = """#!/bin/sh
cat <<END
DCBX mode: OS controlled
Priority trust state: dscp
PFC configuration:
\tpriority    0   1   2   3   4   5   6   7
\tenabled     0   0   0   1   0   0   0   0
END
"""


@pytest.mark.parametrize("python", old_and_new_pythons())
@pytest.mark.parametrize(("tool", "script"), [("dcb", DCB), ("mlnx_qos", MLNX_QOS), ("dcb", "#!/bin/sh\nexit 1\n")])
def test_flow_control_is_asked_of_the_interfaces_that_carry_rdma(
    tmp_path: Path, python: str, tool: str, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, tools = tmp_path / "net", tmp_path / "bin"
    interface(root, "ens4f0np0", hca="mlx5_4")
    interface(root, "eno1")
    interface(root, "ib0", hca="mlx5_0", type="32")
    for end, eighth in (("roce_np", "1"), ("roce_rp", "0")):
        enable = root / "ens4f0np0/ecn" / end / "enable"
        enable.mkdir(parents=True)
        for priority in range(8):
            (enable / str(priority)).write_text("1\n" if priority < 7 else f"{eighth}\n")
    tools.mkdir()
    (tools / tool).write_text(script)
    (tools / tool).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    capture = capture_here(PROBE, python, instead={"/sys/class/net": str(root)})
    found = {link.name: link for link in parse(capture.text).links}
    refused = "exit 1" in script
    assert found["ens4f0np0"].pfc == (None if refused else (3,))
    assert found["ens4f0np0"].trust == ("dscp" if tool == "mlnx_qos" else "")
    assert found["ens4f0np0"].ecn is False, "one priority of one end is off"
    assert (found["eno1"].pfc, found["ib0"].pfc, found["eno1"].ecn) == (None, None, None)


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
