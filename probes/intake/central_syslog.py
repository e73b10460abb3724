"""What a syslog server gathered of many hosts: after its time each line names who sent it.

    2025-11-19T10:22:37+00:00 gpu-r7-04 kernel: mlx5_core 0000:3b:00.0 ens2f0np0: Link down
    Nov 19 10:22:38 sp1 Ebra: %LINEPROTO-5-UPDOWN: Line protocol on Interface Ethernet7/1, changed state to down

Shape    sections(text) -> [(host, its lines)]; of hosts without a kernel that wrote, as switches, all lines under ""
Errors   none
Source   RFC 3164, RFC 5424; rsyslog's RSYSLOG_FileFormat and RSYSLOG_TraditionalFileFormat
"""

from __future__ import annotations

import re

from probes.core import lines_of

LOOKED_AT = 65_536  # characters by which it is known
SHARE = 0.8  # of the lines there that name who sent them; judgement: messages go over several lines
_SENT = re.compile(
    r"(?:<\d{1,3}>1? ?)?(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})?"
    r"|20\d\d-[01]\d-[0-3]\d[T ][\d:.,]{8,18}(?:Z|[+-]\d\d:?\d\d)?)"
    r" ([A-Za-z][\w.-]{0,79}) (?:(kernel)|[A-Za-z][\w./@-]{0,60})(?:\[[\d.]{1,20}\])?: "
)


def sections(text: str) -> list[tuple[str, str]]:
    """[] where not the kernels of two hosts at least wrote."""
    if " kernel: " not in text[:LOOKED_AT]:
        return []
    head = [line for line in lines_of(text[:LOOKED_AT], 400) if line.strip()]
    sent = [found for line in head if (found := _SENT.match(line))]
    if len(sent) < SHARE * len(head) or len({found[1] for found in sent if found[2]}) < 2:
        return []
    kernels: set[str] = set()
    rows: list[tuple[str, str]] = []
    host = ""
    for line in text.split("\n"):
        if found := _SENT.match(line[:400]):
            host = found[1]
            if found[2]:
                kernels.add(host)
        rows.append((host, line))
    bodies: dict[str, list[str]] = {}
    for host, line in rows:
        bodies.setdefault(host if host in kernels else "", []).append(line)
    return [(host, "\n".join(body) + "\n") for host, body in bodies.items() if any(map(str.strip, body))]
