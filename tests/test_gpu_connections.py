"""How a node's GPUs are connected, asked of real sshd nodes whose nvidia-smi prints recordings. No GPU was there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from probes import catalog, suites
from probes.core import Capture, ParseError
from probes.diagnosis import diagnose
from probes.diagnosis.core import seen
from probes.transport import Plan
from tests.support.asking import ask, nothing_left
from tests.support.sshd_nodes import FrozenMount, Lab

FIXTURES = Path(__file__).parent / "fixtures"
PROBES = ("gpu.topo", "gpu.nvlink")
TOOL = """#!/bin/sh
case "$*" in
  "topo -m") cat {topo} ;;
  "nvlink -s") cat {links} ;;
  *) echo "the driver does not count these" >&2; exit 3 ;;
esac
"""

pytestmark = pytest.mark.needs_root


def plan() -> Plan:
    known = catalog.load()
    return Plan(tuple(known[name] for name in PROBES), deadline_s=14.0)


def tool(topo: str, links: str) -> dict[str, str]:
    """An nvidia-smi that prints these recordings, without the collector's headings."""
    return {
        "nvidia-smi": TOOL.format(
            topo=f"{FIXTURES}/gpu.topo/{topo}.out | sed 1d",
            links=f"{FIXTURES}/gpu.nvlink/{links}.out | sed '1d;/==>/,$d'",
        )
    }


def codes(captures: dict[tuple[str, str], Capture], node: str) -> list[tuple[str, object]]:
    readings = [catalog.read(captures[node, name]) for name in PROBES]
    assert [reading.outcome for reading in readings] == ["ok", "ok"], [reading.capture.why for reading in readings]
    return [(found.code, found.subject.get("gpu")) for reading in readings for found in reading.findings]


def test_a_lost_nvlink_is_named_and_a_whole_node_is_quiet(lab: Lab) -> None:
    lab.start("whole", tools=tool("eight_gpus", "a100"))
    lab.start("lost", tools=tool("one_without_nvlink", "link_down_and_crc"))
    captures, _ = ask(lab, ["whole", "lost"], plan())
    assert codes(captures, "whole") == []
    assert codes(captures, "lost") == [("gpu.topo_no_nvlink", 5), ("gpu.nvlink_inactive", 0)]
    nothing_left(lab)


def test_a_gpu_that_is_far_from_every_adapter_is_unlike_the_same_gpu_of_other_nodes(lab: Lab) -> None:
    nodes = {"near-1": "with_adapters", "near-2": "with_adapters", "far": "adapter_far"}
    for name, topo in nodes.items():
        lab.start(name, tools=tool(topo, "a100"))
    captures, _ = ask(lab, list(nodes), plan())
    assert [codes(captures, name) for name in nodes] == [[], [], []], "GPUs are connected; only one is far"
    found = diagnose([seen(catalog.read(one)) for one in captures.values()], list(nodes))
    (told,) = found.differences
    assert told.what == "adapter nearest to each GPU"
    near, far = [value for value, _ in told.values]
    assert near == "PIX: " + ", ".join(f"GPU{n} NIC{n}" for n in range(8))
    assert far == near.replace("GPU3 NIC3, ", "") + "; SYS: GPU3"
    assert [nodes for _, nodes in told.values] == [("near-1", "near-2"), ("far",)]
    assert found.verdict.hypothesis.cause == "unknown", "slower, and no cause by itself"


def test_what_only_looks_like_a_list_of_gpus_tells_of_no_links() -> None:
    with pytest.raises(ParseError, match="expected lines 'GPU 0: NAME"):
        catalog.load()["gpu.nvlink"].parse("GPU 0: forty-two\n" * 50)


def test_a_node_without_nvidia_smi_says_so(lab: Lab) -> None:
    lab.start("bare")
    captures, _ = ask(lab, ["bare"], plan())
    assert {captures["bare", name].outcome for name in PROBES} == {"absent"}
    assert captures["bare", "gpu.topo"].why == "nvidia-smi is not installed"


def test_where_a_call_of_the_capture_hangs_in_the_driver_no_further_one_is_made(lab: Lab) -> None:
    with FrozenMount(lab.folder) as frozen:
        asked = lab.folder / "asked"
        lab.start("wedged", tools={"nvidia-smi": f"#!/bin/sh\necho x >> {asked}\necho x > {frozen.mount}/nvidia\n"})
        captures, _ = ask(lab, ["wedged"], Plan((catalog.load()["gpu.state"],), deadline_s=14.0))
        assert '"D"' in captures["wedged", "gpu.state"].text
        assert asked.read_text() == "x\n"

        again = Plan((*plan().probes, catalog.load()["gpu.state"]), deadline_s=14.0)
        captures, _ = ask(lab, ["wedged"], again)
        for name in (*PROBES, "gpu.state"):
            assert captures["wedged", name].outcome == "skipped"
            assert re.search(r"nvidia-smi \(\d+\) hangs in the GPU driver", captures["wedged", name].why)
        assert asked.read_text() == "x\n", "nvidia-smi was not called again"
        readings = [seen(catalog.read(capture)) for capture in captures.values()]
        found = diagnose(readings).verdict.hypothesis
        assert (found.cause, found.subject.get("node")) == ("gpu.driver_hang", "wedged"), "that it hangs is evidence"
        frozen.thaw()
    nothing_left(lab)


MOUNTS = """mkdir -p {0}/pci/0000:86:00.0
echo 0x10de > {0}/pci/0000:86:00.0/vendor
echo 0x068000 > {0}/pci/0000:86:00.0/class
mount --bind {0}/pci /sys/bus/pci/devices
"""


def test_a_machine_with_switches_says_how_its_fabric_manager_is(lab: Lab) -> None:
    unit = (FIXTURES / "gpu.fabric_manager/failed.out").read_text().partition("\n")[2]
    for name, systemctl in (("failed", f"cat <<'END'\n{unit}END\nexit 3\n"), ("lacks", "exit 4\n")):
        mounts = MOUNTS.format(lab.folder / name)
        lab.start(name, tools={"systemctl": f"#!/bin/sh\n{systemctl}"}, mounts=mounts)
    lab.start("plain", tools={"systemctl": "#!/bin/sh\nexit 4\n"})
    captures, _ = ask(lab, ["failed", "lacks", "plain"], Plan((catalog.load()["gpu.fabric_manager"],), deadline_s=14.0))
    said = {name: catalog.read(captures[name, "gpu.fabric_manager"]) for name in ("failed", "lacks", "plain")}
    assert [found.code for found in said["failed"].findings] == ["gpu.fabric_manager_down"]
    assert said["lacks"].facts.state == "not installed, NVSwitches: 1"
    assert said["plain"].outcome == "absent"


def test_they_are_asked_after_the_capture_and_not_in_it() -> None:
    assert set(PROBES) <= set(suites.SUITES["triage"].probes)
    assert not set(PROBES) & set(suites.SUITES["capture"].probes)
