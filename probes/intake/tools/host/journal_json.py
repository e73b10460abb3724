"""journalctl -o json: one object a line.

Source   journalctl(1); systemd.journal-fields(7): __REALTIME_TIMESTAMP (us), _HOSTNAME, SYSLOG_IDENTIFIER, MESSAGE
Shape    facts of host.kernel_log
Errors   ParseError when no line is such an object
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime

from probes.catalog.host_kernel_log import parse
from probes.catalog.kernel.events import KernelLog
from probes.core import ParseError, clean
from probes.intake.tools import Tool

MOST = 200_000


def _fits(head: str, name: str) -> bool:
    first = head.partition("\n")[0]
    return first.startswith("{") and '"__REALTIME_TIMESTAMP"' in head[:4096] and '"MESSAGE"' in head[:8192]


def _rows(text: str) -> Iterator[dict[str, object]]:
    for line in text.splitlines()[:MOST]:
        if not line.startswith("{"):
            continue
        try:
            row = json.loads(line[:65536])
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            yield row


def by_node(text: str) -> dict[str, KernelLog]:
    """Each host's own: journals of many are merged by systemd-journal-remote, and by who exports them."""
    lines: dict[str, list[str]] = {}
    for row in _rows(text):
        message = row.get("MESSAGE")
        if isinstance(message, list):  # bytes that are no text
            message = bytes(one for one in message[:8192] if isinstance(one, int) and 0 <= one < 256).decode(
                errors="replace"
            )
        try:
            at = datetime.fromtimestamp(int(str(row["__REALTIME_TIMESTAMP"])) / 1e6, UTC)
        except (KeyError, ValueError, OverflowError, OSError):
            continue
        who = clean(str(row.get("SYSLOG_IDENTIFIER", "kernel"))).replace(" ", "-")[:40] or "kernel"
        who = "kernel:" if who == "kernel" else f"{who}[{str(row.get('_PID', 0))[:8]}]:"
        host = clean(str(row.get("_HOSTNAME", "node"))).replace(" ", "-")[:80] or "node"
        for part in clean(str(message)).splitlines()[:20]:
            lines.setdefault(host, []).append(f"{at.isoformat()} {host} {who} {part}")
    if not lines:
        raise ParseError("journalctl -o json: no line is an object with a time and a message")
    return {host: parse("\n".join(some)) for host, some in lines.items()}


def read(text: str) -> KernelLog:
    return next(iter(by_node(text).values()))


def host(text: str) -> str:
    """The node that the first lines name."""
    names = [str(row.get("_HOSTNAME", "")) for row in _rows(text[:65536])]
    return clean(max(set(names), key=names.count))[:80] if names else ""


TOOL = Tool("journalctl -o json", "host.kernel_log", _fits, read, host=host, by_node=by_node)
