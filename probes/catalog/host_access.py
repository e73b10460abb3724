"""Can this node be asked at all: which Python, which user, may it read what the probes need, and by sudo?

Source   the runner's own Python; open(2) of /dev/kmsg and access(2) of the journal; sudo(8) -n -l COMMAND, which asks
         without running; statvfs(3) is not used: nothing here may hang
Units    none
Shape    Access: versions, user, groups, and for each right whether it is there
Errors   ParseError when the answer is not the JSON object that the collector prints
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from probes.core import Finding, ParseError, Probe, sections
from probes.runner import sh, which


@dataclass(frozen=True, slots=True)
class Access:
    python: str
    user: str
    groups: tuple[str, ...]
    kernel_log: bool  # readable without sudo
    sudo: str  # "not needed", "allowed", "refused" or "absent"
    sudoers_line: str  # what to allow when it is refused
    tools: tuple[str, ...]  # which of the tools that probes like to use are on PATH


def _collect() -> Mapping[str, str]:
    import grp
    import json
    import os
    import pwd
    import sys

    def name_of(number: int, lookup: Any) -> str:
        try:
            return str(lookup(number)[0])
        except KeyError:
            return str(number)

    groups = [name_of(number, grp.getgrgid) for number in sorted({os.getgid(), *os.getgroups()})]
    user = name_of(os.getuid(), pwd.getpwuid)
    try:
        with open("/dev/kmsg", "rb", 0):
            readable = True
    except OSError:
        readable = False
    journals = ("/var/log/journal", "/run/log/journal")
    if not readable and which("journalctl") and any(os.access(place, os.R_OK) for place in journals):
        readable = bool({"adm", "systemd-journal", "wheel", "root"} & set(groups))
    sudo, line = "not needed", ""
    if not readable:
        dmesg = which("dmesg") or "/usr/bin/dmesg"
        line = f"{user} ALL=(root) NOPASSWD: {dmesg}"
        sudo = "absent"
        if which("sudo"):
            sudo = "allowed" if sh(["sudo", "-n", "-l", dmesg])[0] == 0 else "refused"
    tools = ["nvidia-smi", "dmesg", "journalctl", "chronyc", "ntpq", "timedatectl", "sudo"]
    answer = {
        "python": ".".join(map(str, sys.version_info[:3])),
        "user": user,
        "groups": groups,
        "kernel_log": readable,
        "sudo": sudo,
        "sudoers_line": line,
        "tools": [tool for tool in tools if which(tool)],
    }
    return {"access": json.dumps(answer, sort_keys=True)}


def parse(text: str) -> Access:
    """The collector's JSON object into an Access."""
    try:
        said = json.loads(sections(text)["access"])
        return Access(
            python=str(said["python"]),
            user=str(said["user"]),
            groups=tuple(str(group) for group in said["groups"]),
            kernel_log=said["kernel_log"] is True,
            sudo=str(said["sudo"]),
            sudoers_line=str(said["sudoers_line"]),
            tools=tuple(str(tool) for tool in said["tools"]),
        )
    except (RecursionError, KeyError, TypeError, ValueError) as error:
        raise ParseError(f"expected a JSON object in a section 'access': {error}") from error


def findings(access: Access) -> Iterator[Finding]:
    """Rights that are missing, each with the line that would give them."""
    if not access.kernel_log and access.sudo in ("refused", "absent"):
        why = "sudo is refused" if access.sudo == "refused" else "sudo is not installed"
        yield Finding(
            "access.kernel_log",
            "warn",
            f"{access.user} may not read the kernel log and {why}: add the user to group systemd-journal or adm, "
            f"or allow in sudoers: {access.sudoers_line}",
        )


PROBE = Probe(
    "host.access",
    "Can this node be asked: Python, user, groups, kernel log, sudo?",
    parse,
    findings,
    collect=_collect,
    by_hand="python3 --version; id; sudo -n -l /usr/bin/dmesg",
    timeout_s=4.0,
    cost="2 ms",
)
