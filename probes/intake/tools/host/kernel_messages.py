"""Messages of the kernel about GPUs that something else passed on: Loki, Elastic, Kubernetes, an alert, a chat.

    2026-03-02T11:11:01Z {host="n31"} NVRM: Xid (PCI:0000:9a:00): 79, ...
    ml  14m  Warning  XIDError  node/n31  NVRM: Xid (PCI:0000:9a:00): 79, ...
    {"@timestamp":"2026-03-02T11:11:01Z","host":{"name":"n31"},"message":"NVRM: Xid (PCI:0000:9a:00): 79, ..."}

Shape    facts of host.kernel_log for each node that a line names
Errors   ParseError when no line holds such a message
Source   open-gpu-kernel-modules (NVRM, nvidia-nvswitch); amdgpu; drivers/pci/pcie/aer.c
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from probes.catalog.host_kernel_log import parse
from probes.catalog.kernel.events import KernelLog
from probes.core import ParseError, clean, lines_of
from probes.intake.hosts import kernel_host
from probes.intake.tools import Tool
from probes.intake.tools._told_of import keyed, leading, node_in, told_before
from probes.intake.when import moment_in

_MESSAGE = re.compile(
    r"NVRM: (?:Xid|GPU|The NVIDIA|A GPU|nvAssert|Rm|rc)|nvidia-nvswitch\d{1,2}: SXid|amdgpu [0-9a-f]{4}:[0-9a-f]{2}:"
    r"|pcieport [0-9a-f]{4}:[0-9a-f]{2}:|INFO: task [^\n]{1,60} blocked for more than"
)
_ADVICE = re.compile(
    r"\b(?:if (?:you|it|there|the)|when(?:ever| you)|e\.g\.|for example|such as|(?:look|grep|search) for|like)\b",
    re.I,
)
MOST = 20_000
ABOVE = 5  # lines above it in which an alert names the node, judgement
DAYS = 86_400 * 400  # a time of day alone is none


def fits(head: str, name: str) -> bool:
    return bool(_MESSAGE.search(head)) and '"__REALTIME_TIMESTAMP"' not in head[:4096]


def tells(line: str) -> bool:
    """Whether it holds a message as the kernel prints it."""
    return bool(_MESSAGE.search(line))


def by_node(text: str) -> dict[str, KernelLog]:
    lines: dict[str, list[str]] = {}
    above, since = "", ABOVE
    for line in islice(_rows(text), 10 * MOST):
        found = _MESSAGE.search(line)
        since += 1
        if found is None or sum(map(len, lines.values())) > MOST:
            if named := keyed(line[:2000]):
                above, since = named, 0
            continue
        if advises(line, found.start()):
            continue
        node = node_in(line, found.start()) or leading(line, found.start()) or (above if since <= ABOVE else "")
        node = node or told_before(line[: found.start()])
        said = _unquoted(line, found.start())
        at = moment_in(line[: found.start()][-400:])
        stamp = f"{datetime.fromtimestamp(at, UTC).isoformat()} {node or 'node'} kernel: " if at and at > DAYS else ""
        lines.setdefault(node, []).append(clean(f"{stamp}{said}")[:2000])
    if not lines:
        raise ParseError("messages of the kernel: no line holds one")
    if lines.keys() == {""}:  # no line names one: what stands above them may
        lines = {kernel_host(text): lines[""]}
    return {node: parse("\n".join(some)) for node, some in lines.items()}


def advises(line: str, at: int) -> bool:
    """Whether a person tells what to do if such a message comes: no message that came."""
    return bool(_ADVICE.search(line[max(0, at - 200) : at])) and moment_in(line[:at]) is None


def happened(text: str) -> str:
    """Without lines of advice."""
    lines = text.split("\n")
    return "\n".join(
        one for one in lines if not ((found := _MESSAGE.search(one[:4000])) and advises(one, found.start()))
    )


def _rows(text: str) -> Iterator[str]:
    """Its lines; of a document of JSON one for each message, with the keys of all objects around it."""
    body = text.lstrip()
    if body[:1] in "{[" and body.count("\n") < 200_000:
        with contextlib.suppress(ValueError, RecursionError):
            yield from _of_json(json.loads(body), "", 0)
            return
    yield from lines_of(text[:8_388_608], 4000)


def _of_json(said: Any, around: str, depth: int) -> Iterator[str]:
    if depth > 12:
        return
    if isinstance(said, dict):
        near = [
            said,
            *(one for one in said.values() if isinstance(one, dict) and len(one) < 60),
        ]  # labels, source, host
        keys = [
            f"{key}={value}"
            for one in near
            for key, value in one.items()
            if isinstance(value, (str, int)) and len(str(value)) < 100
        ]
        host = said.get("host")
        if isinstance(host, dict) and isinstance(host.get("name"), str):  # Elastic's own form
            keys.append(f"host={host['name']}")
        around = f"{around} {' '.join(keys[:40])}"[-2000:]
        for value in said.values():
            if isinstance(value, str) and (found := _MESSAGE.search(value)):
                before = around.replace(value, " ") if len(value) < 100 else around
                yield f"{before} {value[found.start() :]}"
            else:
                yield from _of_json(value, around, depth + 1)
    elif isinstance(said, list):
        nanoseconds = said[0] if said and isinstance(said[0], str) and re.fullmatch(r"\d{19}", said[0]) else ""
        for one in said[:MOST]:
            if isinstance(one, str):  # Loki: ["1764500000000000000", "NVRM: ..."]
                yield f"{around} {nanoseconds[:10]} {one}"
            else:
                yield from _of_json(one, around, depth + 1)


def _unquoted(line: str, at: int) -> str:
    """The message to its end; within a string of JSON or CSV to the quote that closes it."""
    said = line[at:]
    if '"' in line[:at]:
        said = re.split(r'(?<!\\)"', said, maxsplit=1)[0].replace('\\"', '"')
    return said.strip()


def read(text: str) -> KernelLog:
    return next(iter(by_node(text).values()))


TOOL = Tool("messages of the kernel", "host.kernel_log", fits, read, beside=True, by_node=by_node)
