"""What nvidia-bug-report.sh writes: one text of many files and outputs, whole or an excerpt.

    ____________________________________________

    *** /var/log/messages
    *** ls: -rw------- 1 root root 2204113 2026-03-05 ... /var/log/messages
    Mar  5 07:41:19 gpu-017 kernel: ...
    ____________________________________________

    /usr/bin/nvidia-smi --query

Source   nvidia-bug-report.sh of drivers 470 to 580: append_file and append_command
Shape    is_report(text); sections(text) -> (node, title, text) of each
Errors   none
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_BEGINS = "Start of NVIDIA bug report log file"
_RULE = re.compile(r"^_{20,200}\s{0,8}$", re.M)
_HOST = re.compile(r"^(?:uname: {0,4})?Linux ([A-Za-z][\w.-]{0,62}) \d{1,2}\.\d{1,3}", re.M)
_LISTED = re.compile(r"\*\*\* ls: ")
MOST = 2_000


def is_report(text: str) -> bool:
    """By its own head, or by two files as it lists them between rules of underscores."""
    head = text[:65_536]
    return _BEGINS in head or (len(_RULE.findall(head)) > 1 and len(_LISTED.findall(head)) > 1)


def sections(text: str) -> Iterator[tuple[str, str, str]]:
    told = _HOST.search(text)
    node = told[1].partition(".")[0] if told and told[1] != "localhost" else ""
    for body in _RULE.split(text, MOST):
        lines = body.strip("\n").split("\n")
        title = lines[0].strip().removeprefix("*** ")[:200] if lines else ""
        at = 1
        while at < len(lines) and (lines[at].startswith("*** ls: ") or not lines[at].strip()):
            at += 1
        rest = "\n".join(lines[at:])
        if title and rest.strip() and _BEGINS not in body:
            yield node, title.rstrip(":"), rest + "\n"
