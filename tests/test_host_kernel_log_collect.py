"""The collector of host.kernel_log, run for real: with this machine's own log, and with tools that are stood in for."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from pathlib import Path

import pytest

from probes.catalog.host_kernel_log import PROBE, findings, parse
from tests.support.collectors import capture_here, old_and_new_pythons

XID79 = "NVRM: Xid (PCI:0000:1b:00): 79, pid=77, name=python3, GPU has fallen off the bus."
AT = 1737426093.0  # 2025-01-21T02:21:33 UTC, by date(1)


@pytest.fixture
def tools(tmp_path: Path) -> Callable[[str, str], str]:
    """Stand-ins for journalctl, dmesg and sudo; those not written fail as if the node had refused."""

    def write(name: str, script: str) -> str:
        for tool in ("journalctl", "dmesg", "sudo"):
            body = script if tool == name else None
            path = tmp_path / tool
            if body is not None or not path.exists():
                path.write_text(f"#!/bin/sh\n{body or 'echo Operation not permitted >&2; exit 1'}\n")
                path.chmod(0o755)
        return str(tmp_path)

    return write


@pytest.mark.parametrize("python", old_and_new_pythons())
def test_this_machines_own_log_is_read(python: str) -> None:
    capture = capture_here(PROBE, python)
    assert capture.took_s < 5
    if capture.outcome == "denied":
        assert "sudoers" in capture.why
    else:
        assert capture.outcome == "ok", capture.why
        log = parse(capture.text)
        assert log.now is not None and log.dropped is not None and log.source
        list(findings(log))


@pytest.mark.parametrize("python", old_and_new_pythons())
def test_the_node_drops_what_does_not_matter_and_counts_it(python: str, tools: Callable[[str, str], str]) -> None:
    log = f"[ 1.0] Command line: root=secret panic=1\n[ 2.0] usb 1-1: new device\n[ 3.0] {XID79}\n==> nvidia <==\n"
    log += "[ 4.0] INFO: task t:1 blocked for more than 120 seconds.\n[ 4.0]  nfs_wait+0x1/0x2 [nfs]\n[ 4.0] fine\n"
    path = tools("dmesg", f"cat <<'END'\n{log}END")
    capture = capture_here(PROBE, python, path)
    assert capture.outcome == "ok", capture.why
    assert "secret" not in capture.text
    read = parse(capture.text)
    assert (read.lines, read.dropped, read.over_cap) == (3, 4, 0)
    assert [xid.xid for xid in read.xids] == [79]
    assert read.hung_tasks[0].where == "nfs_wait"


def test_of_too_many_lines_the_newest_are_kept(tools: Callable[[str, str], str]) -> None:
    path = tools("dmesg", f'i=0; while [ $i -lt 12000 ]; do echo "[ $i.0] {XID79}"; i=$((i+1)); done')
    capture = capture_here(PROBE, path=path)
    read = parse(capture.text)
    assert not capture.truncated and len(capture.out) < PROBE.max_bytes
    assert read.over_cap and read.over_cap + read.lines == 12000
    assert read.xids[-1].last == "[11999.0]"


def test_an_old_dmesg_without_time_format_is_asked_again_without(tools: Callable[[str, str], str]) -> None:
    path = tools("dmesg", f'[ "$1" = --time-format ] && exit 1\necho "[ 1.0] {XID79}"')
    assert parse(capture_here(PROBE, path=path).text).source.endswith("/dmesg")


def test_the_journal_comes_first_and_an_old_one_is_asked_in_its_own_form(tools: Callable[[str, str], str]) -> None:
    path = tools(
        "journalctl", f'case "$*" in *precise*) exit 1;; esac; echo "2025-01-21T02:21:33+0000 n kernel: {XID79}"'
    )
    log = parse(capture_here(PROBE, path=path).text)
    assert "journalctl" in log.source and log.xids[0].first_at == pytest.approx(AT)


def test_a_journal_that_is_quiet_is_no_refusal(tools: Callable[[str, str], str]) -> None:
    path = tools("journalctl", 'case "$*" in *-2h*) exit 0;; esac; echo old')
    capture = capture_here(PROBE, path=path)
    assert capture.outcome == "ok" and parse(capture.text).lines == 0


def test_a_refusing_kernel_says_what_to_allow(tools: Callable[[str, str], str]) -> None:
    path = tools("none", "")
    capture = capture_here(PROBE, path=path)
    assert capture.outcome == "denied"
    assert "group systemd-journal or adm" in capture.why
    assert f"{pwd.getpwuid(os.getuid()).pw_name} ALL=(root) NOPASSWD: {path}/dmesg" in capture.why
