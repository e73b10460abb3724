"""net.links: the collector on this machine and on made trees, and what differing links lead to."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from probes.catalog.net_links import PROBE, parse
from probes.catalog.network.net_facts import Links, NetLink
from probes.core import ParseError
from probes.diagnosis import diagnose
from probes.diagnosis.core import Seen
from probes.intake.tools import tool_of
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


# What dcb(8) prints, from its manual pages and print functions; 130944 and 1Mb by sprint_size of tc(8).
DCB_SHOW = """#!/bin/sh
case "$1" in
  pfc) echo "pfc-cap 8 macsec-bypass off delay 7 "; echo "prio-pfc 0:off 1:off 2:off 3:on 4:off 5:off 6:off 7:off " ;;
  app) printf '{app}' ;;
  apptrust) {apptrust} ;;
  buffer) echo "prio-buffer 0:0 1:0 2:0 3:1 4:0 5:0 6:0 7:0 "
    echo "buffer-size 0:130944b 1:1Mb 2:0b 3:0b 4:0b 5:0b 6:0b 7:0b "; echo "total-size 1152Kb " ;;
  dcbx) {dcbx} ;;
  ets) echo "willing off ets-cap 8 cbs off "; echo "tc-bw 0:50 1:0 2:0 3:50 4:0 5:0 6:0 7:0 "
    echo "pg-bw 0:0 1:0 2:0 3:0 4:0 5:0 6:0 7:0 "
    echo "tc-tsa 0:ets 1:strict 2:strict 3:ets 4:strict 5:strict 6:strict 7:strict "
    echo "prio-tc 0:0 1:1 2:2 3:3 4:4 5:5 6:6 7:7 "; echo "reco-tc-bw 0:9 1:9 2:9 3:9 4:9 5:9 6:9 7:9 "
    echo "reco-prio-tc 0:1 1:1 2:1 3:1 4:1 5:1 6:1 7:1 " ;;
esac
"""
UNKNOWN = "echo unknown >&2; exit 1"


def roce(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, hca: str = "mlx5_4", **how: str) -> NetLink:
    """What is told of one RoCE interface whose `dcb` is this."""
    root, tools = tmp_path / "net", tmp_path / "bin"
    interface(root, "ens4f0np0", hca=hca)
    tools.mkdir()
    usual = {"app": "dscp-prio 0:0 CS3:2 26:3 \\n", "apptrust": UNKNOWN, "dcbx": 'echo "host ieee "'}
    (tools / "dcb").write_text(script.format(**{**usual, **how}))
    (tools / "dcb").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    (found,) = parse(capture_here(PROBE, instead={"/sys/class/net": str(root)}).text).links
    return found


def test_trust_buffers_classes_and_the_mode_of_dcbx_are_told_by_dcb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = roce(tmp_path, monkeypatch, DCB_SHOW)
    assert (found.pfc, found.trust, found.dcbx) == ((3,), "dscp", "OS controlled")
    assert found.buffer_of == (0, 0, 0, 1, 0, 0, 0, 0)
    assert found.buffer_bytes == (130_944, 1_048_576, 0, 0, 0, 0, 0, 0)
    assert found.class_of == tuple(range(8)) and found.class_share == (50, 0, 0, 50, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("hca", "how", "trust", "dcbx"),
    [
        ("mlx5_4", {"app": ""}, "pcp", "OS controlled"),
        ("bnxt_re0", {"app": ""}, "", "OS controlled"),  # an empty table tells nothing of this driver
        ("mlx5_4", {"app": "default-prio 0 \\n", "dcbx": 'echo "cee ieee "'}, "", "Firmware controlled"),
        ("bnxt_re0", {"apptrust": 'echo "order: pcp dscp "'}, "pcp", "OS controlled"),
        ("bnxt_re0", {"apptrust": 'echo "order: "', "dcbx": UNKNOWN}, "port", ""),
    ],
)
def test_what_is_trusted_is_said_as_the_driver_means_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hca: str, how: dict[str, str], trust: str, dcbx: str
) -> None:
    found = roce(tmp_path, monkeypatch, DCB_SHOW, hca, **how)
    assert (found.trust, found.dcbx, found.pfc) == (trust, dcbx, (3,))


def test_a_show_that_hangs_costs_what_comes_after_it_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = roce(tmp_path, monkeypatch, DCB_SHOW, dcbx="exec sleep 600")
    assert (found.pfc, found.trust, found.dcbx, found.class_of) == ((3,), "dscp", "", None)
    assert found.buffer_of == (0, 0, 0, 1, 0, 0, 0, 0)


@pytest.mark.parametrize(
    "text",
    [
        "# dcb buffer show dev eth3\nprio-buffer 0:0 1:0 2:0 3:1 4:0 5:0 6:0 7:0\n"
        "buffer-size 0:10Kb 1:70000b 2:0b 3:0b 4:0b 5:0b 6:0b 7:0b\ntotal-size 221072b\n",
        "# dcb -j buffer show dev eth3\n"
        '{"prio_buffer":[0,0,0,1,0,0,0,0],"buffer_size":[10240,70000,0,0,0,0,0,0],"total_size":221072}\n',
        "# mlnx_qos -i eth3\nReceive buffer size (bytes): 10240,70000,0,0,0,0,0,0,\nPFC configuration:\n"
        "\tpriority    0   1   2   3   4   5   6   7\n\tenabled     0   0   0   1   0   0   0   0\n"
        "\tbuffer      0   0   0   1   0   0   0   0   \n",
    ],
)
def test_buffers_are_the_same_whichever_tool_somebody_pasted(text: str) -> None:
    tool = tool_of(text, "paste.txt")
    assert tool is not None
    (found,) = tool.read(text).links
    assert (found.name, found.buffer_of, found.buffer_bytes) == (
        "eth3", (0, 0, 0, 1, 0, 0, 0, 0), (10_240, 70_000, 0, 0, 0, 0, 0, 0),
    )  # fmt: skip


def test_a_small_buffer_of_the_priority_without_loss_is_a_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = roce(tmp_path, monkeypatch, DCB_SHOW)
    assert found.buffer_bytes
    small = replace(found, buffer_bytes=(130_944, 9216, *found.buffer_bytes[2:]))
    seats = {"n1": found, "n2": found, "n3": small}
    readings = [Seen(f"{node}/links", node, "net.links", "ok", "", Links((one,)), ()) for node, one in seats.items()]
    told = [one.says for one in diagnose(readings, sorted(seats)).differences]
    assert told == [
        "buffers of priorities without loss: 3 in buffer 1 of 1,048,576 bytes on n1, n2, "
        "3 in buffer 1 of 9,216 bytes on n3"
    ]


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
