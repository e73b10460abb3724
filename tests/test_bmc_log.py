"""host.bmc_log on sshd nodes with a controller of their own, by the real sudo, with the line that docs/nodes.md gives.

The controller is stood in for by a tool in ipmitool's words, which needs the device as the real one does.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from probes import catalog
from probes.core import Reading
from probes.transport import Plan
from tests.support.asking import ask, nothing_left, probe
from tests.support.sshd_nodes import OWN_DEV, Lab

pytestmark = pytest.mark.needs_root
DOCS = Path(__file__).parents[1] / "docs/nodes.md"
(LINE,) = re.findall(r"^ops ALL=.*ipmitool .*$", DOCS.read_text(), re.MULTILINE)
TOOL = "/usr/local/sbin/ipmitool"
# ipmitool's src/plugins/open/open.c tells of a device that it may not open in these words, and ends with 1.
IPMITOOL = """#!/bin/sh
[ -r /dev/ipmi0 ] && [ -w /dev/ipmi0 ] || {{
  echo "Could not open device at /dev/ipmi0 or /dev/ipmi/0 or /dev/ipmidev/0: Permission denied" >&2; exit 1; }}
[ "$*" = "sel elist last 40" ] || {{ echo "Invalid SEL command: $*" >&2; exit 1; }}
now=$(date -u '+%m/%d/%Y | %H:%M:%S UTC')
cat <<END
{records}
END
"""
OLD = " 3fe | 05/11/2021 | 04:02:10 UTC | Fan #0x41 | Lower Critical going low  | Asserted"
BOOT = " 51f | $now | System Boot Initiated | Initiated by warm reset | Asserted"
BROKEN = " 520 | $now | Memory #0x53 | Uncorrectable ECC | Asserted"


def start(lab: Lab, name: str, *records: str, device: bool = True, **how: str) -> None:
    (lab.folder / f"{name}-ipmitool").write_text(IPMITOOL.format(records="\n".join(records)))
    mounts = (
        f"{OWN_DEV}mount -t tmpfs -o mode=755 tmpfs /usr/local/sbin\n"
        f"cp {lab.folder}/{name}-ipmitool {TOOL}; chmod 755 {TOOL}\n"
    )
    lab.start(name, mounts=mounts + ("touch /dev/ipmi0; chmod 600 /dev/ipmi0\n" if device else ""), **how)


def told(lab: Lab, *names: str) -> dict[str, Reading]:
    captures, ends = ask(lab, list(names), Plan((catalog.load()["host.bmc_log"],), deadline_s=16), node_s=24, run_s=30)
    assert {end.reason for end in ends.values()} == {""}
    return {name: catalog.read(captures[name, "host.bmc_log"]) for name in names}


def codes(reading: Reading) -> set[str]:
    return {one.code for one in reading.findings if one.severity in ("warn", "bad")}


def test_a_broken_module_is_told_and_healthy_twins_are_quiet(lab: Lab) -> None:
    start(lab, "sick", OLD, BOOT, BROKEN)
    start(lab, "well", OLD, BOOT)
    start(lab, "cleared", "SEL has no entries")
    start(lab, "without", device=False)
    found = told(lab, "sick", "well", "cleared", "without")
    assert {name: one.outcome for name, one in found.items()} == {
        "sick": "ok", "well": "ok", "cleared": "ok", "without": "absent",
    }  # fmt: skip
    assert [(one.kind, one.where) for one in found["sick"].facts.errors] == [
        ("uncorrected", "Memory #0x53"),
        ("other", "System Boot Initiated"),
    ]
    assert codes(found["sick"]) == {"host.hardware_error"}
    assert found["sick"].facts.older == found["well"].facts.older == 1
    assert codes(found["well"]) == codes(found["cleared"]) == set()
    assert "/dev/ipmi0" in found["without"].capture.why
    nothing_left(lab)


def test_without_the_right_the_line_of_the_manual_is_named_and_it_is_enough_and_no_more(lab: Lab) -> None:
    start(lab, "refused", BROKEN, account="ops")
    (refused,) = told(lab, "refused").values()
    line = LINE.replace("/usr/bin/ipmitool", TOOL)
    assert (refused.outcome, refused.capture.why.partition("sudoers: ")[2]) == ("denied", line)

    start(lab, "allowed", BROKEN, account="ops", sudoers=line)
    assert codes(told(lab, "allowed")["allowed"]) == {"host.hardware_error"}
    wipe = probe("sudo.wipes", "sudo", "-n", "-l", TOOL, "sel", "clear")
    captures, _ = ask(lab, ["allowed"], Plan((wipe,), deadline_s=6), node_s=12, run_s=20)
    assert captures["allowed", "sudo.wipes"].rc == 1, "sudo would clear the log too"
