"""Prompts of shells: what was typed, on which host, and whether that host is a node that tells of itself.

    $ dmesg -T      root@gpu-017:~#     [root@gpu-017 ~]#     gpu-017#     gpu-017:~ #     [gpu-017 ~]$     gpu-017>

Shape    PROMPT with three groups: host behind a user, host alone, command; typed(line), at_prompt(line) -> host
Errors   none
"""

from __future__ import annotations

import re

from probes.intake.hosts import NUMBERED
from probes.intake.prefixed import is_node
from probes.intake.programs import is_command

PROMPT = re.compile(
    r"(?!\((?:cuda-)?gdb\))(?:\([\w./-]{1,40}\) )?"
    r"(?:\[?[A-Za-z_][\w.-]{0,31}@([A-Za-z0-9][\w.-]{0,62})(?::| )[^\]#$%\n]{0,80}\]? ?"
    r"|\[?([A-Za-z][\w.-]{0,62}|\d{1,3}(?:\.\d{1,3}){3})\]?"
    r"(?::[^\s#$]{0,80} ?| [~/\w][\w./~-]{0,80}\] ?| (?:[~/]\S{0,80} )?|(?=[#$>])))?"  # gn-1:~ #, [gn-1 ~]$, gn-1>
    r"(?:[#$]|(?<=[\w\]~/])>) {0,2}(\S[^\n]{0,1900})$"
)
# bash's own prompt where nobody set one: -bash-5.1$, sh-4.4#
SHELL = re.compile(r"^-?(?:ba|z|k|da)?sh-\d{1,2}(?:\.\d{1,2}){1,2}(?=[$#] )", re.M)
_OWN_PARTS = re.compile(  # what a machine with GPUs and adapters tells of itself
    r"(?:sudo |timeout \S{1,8} ){0,2}(?:\S{0,40}/)?(?:nvidia-smi|rocm-smi|amd-smi|dcgmi|gpustat|nvtop"
    r"|ibstat|ibstatus|ibv_devinfo|mlxlink|show_gids|mlnx_qos|dmesg|py-spy)\b"
)


def typed(line: str) -> bool:
    """Whether it is a prompt and a command, not a remark behind a #."""
    found = PROMPT.match(line)
    return found is not None and (bool(found[1] or found[2]) or is_command(found[3]))


def at_prompt(line: str) -> str:
    found = PROMPT.match(line)
    return (found[1] or found[2] or "") if found else ""


def typed_on(host: str, at_home: bool) -> bool:
    """Whether the host of a prompt is a node that tells of itself: no laptop, no login node and no container's id. A
    name without a number is one to whoever is root there, and where a tool of GPUs or adapters answers: `at_home`."""
    if not host or is_node(host):
        return bool(host)
    plain = (at_home or NUMBERED.search(host)) and not re.fullmatch(r"[0-9a-f]{12}|\d.*", host)
    return bool(plain) and not re.match(r"login|bastion|jump|head|mgmt|admin|laptop|localhost|ws\d|mac", host, re.I)


def at_home(line: str, command: str) -> bool:
    """Whether somebody is root at this prompt, or asks for the machine's own parts."""
    before = line[: len(line) - len(command)].rstrip()
    root = re.match(r"\[?root@", before) is not None or (":" in before and before.endswith("#"))
    return root or _OWN_PARTS.match(command) is not None
