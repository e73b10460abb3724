"""py-spy where the login may not read a rank's memory: by the real sudo, with the lines that docs/nodes.md gives."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from probes import catalog
from probes.catalog.stacks.stack_collect import DUMP, may_not
from probes.transport import Plan
from tests.support.asking import ask, probe
from tests.support.dead_mount import PYTHON
from tests.support.ranks import rank_env
from tests.support.sshd_nodes import Lab

pytestmark = pytest.mark.needs_root
DOCS = Path(__file__).parents[1] / "docs/nodes.md"
LINES = re.findall(r"^ops ALL=.*py-spy .*$", DOCS.read_text(), re.MULTILINE)
# As under kernel.yama.ptrace_scope=1, which no kernel of tests need have: to anybody but root py-spy says what it says
# where process_vm_readv(2) is refused.
GUARDED = """#!/bin/sh
[ "$(id -u)" = 0 ] && exec /usr/local/sbin/py-spy-itself "$@"
echo "Error: Permission Denied: Try running again with elevated permissions by going 'sudo env ...'" >&2
exit 1
"""


def start(lab: Lab, name: str, sudoers: str) -> None:
    """A node of the user ops, who trains there, with py-spy installed."""
    spy = Path(sys.executable).with_name("py-spy")
    shutil.copy(spy if spy.exists() else Path(str(shutil.which("py-spy"))), lab.folder / f"{name}-py-spy")
    (lab.folder / f"{name}-guard").write_text(GUARDED)
    env = rank_env(0, 1, {"MASTER_ADDR": "gpu-1", "MASTER_PORT": "29500"})
    told = " ".join(f"{key}={value}" for key, value in env.items())
    code = "import time\ndef works_here():\n    while True: sum(range(20000)); time.sleep(0.01)\nworks_here()"
    mounts = (
        "mount -t tmpfs -o mode=755 tmpfs /usr/local/sbin\n"
        f"cp {lab.folder}/{name}-py-spy /usr/local/sbin/py-spy-itself\n"
        f"cp {lab.folder}/{name}-guard /usr/local/sbin/py-spy; chmod 755 /usr/local/sbin/*\n"
        f"env {told} setpriv --reuid 4242 --regid 4242 --clear-groups {PYTHON} -I -S -c '{code}' &\n"
    )
    lab.start(name, account="ops", sudoers=sudoers, mounts=mounts)


def test_the_lines_of_the_manual_are_enough_for_stacks_and_profiles_and_for_nothing_else(lab: Lab) -> None:
    assert len(LINES) == 2
    start(lab, "allowed", "\n".join(LINES))
    start(lab, "dumps", LINES[0].replace("json", "else"))
    evil = {
        "sudo.locals": ("dump", "--nonblocking", "--json", "--pid", "1", "--locals"),
        "sudo.writes": ("record", "--nonblocking", "--format", "raw", "--output", "/etc/passwd", "--pid", "1"),
    }
    more = [probe(name, "sudo", "-n", "-l", "/usr/local/sbin/py-spy", *words) for name, words in evil.items()]
    plan = Plan((*(catalog.load()[name] for name in ("rank.stack", "rank.profiles")), *more), deadline_s=16.0)
    captures, _ = ask(lab, ["allowed", "dumps"], plan, node_s=24, run_s=40)
    assert {captures["allowed", name].rc for name in evil} == {1}, "sudo would do that too"
    told = {key: catalog.read(capture) for key, capture in captures.items() if key[1] not in evil}
    (process,) = told["allowed", "rank.stack"].facts.processes
    assert "works_here" in [frame.function for frame in process.main.frames], process.why
    profiles = [one for one in told["allowed", "rank.profiles"].facts.profiles if not one.native]
    assert any(one.profile is not None for one in profiles), [one.why for one in profiles]
    (refused,) = told["dumps", "rank.stack"].facts.processes
    assert refused.why.partition("; ")[0] == f"py-spy may not read its memory. Allow in sudoers: {LINES[0]}"
    lacking = [one.why for one in told["dumps", "rank.profiles"].facts.profiles if not one.native]
    assert set(lacking) == {f"py-spy may not read its memory. Allow in sudoers: {LINES[1]}"}


def test_a_py_spy_that_was_sent_cannot_be_allowed_by_sudo_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4242)
    assert may_not("/proc/811/fd/7", DUMP).endswith("Allow: a login as root, or py-spy installed and a line in sudoers")
