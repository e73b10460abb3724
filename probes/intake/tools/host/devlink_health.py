"""devlink health show, as text or JSON: which reporters of an adapter's driver are in error now.

    pci/0000:9a:00.0:
      reporter fw_fatal
        state error error 1 recover 0 last_dump_date 2026-11-30 last_dump_time 02:58:11

How many errors there were and were recovered from is of the past: only the state counts.

Source   devlink-health(8); Linux, Documentation/networking/devlink: devlink-health.rst, mlx5.rst (fw, fw_fatal)
Shape    facts of host.kernel_log: a notice of the adapter for each firmware reporter in error
Errors   ParseError where no reporter is in it
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from probes.catalog.kernel.events import HcaNotice, KernelLog
from probes.core import clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse

_DEVICE = re.compile(r"^\s{0,4}pci/([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])(?:/\d{1,6})?:?")
_REPORTER = re.compile(r"\breporter (\w{2,24})\b")
_STATE = re.compile(r"\bstate (healthy|error)\b")
_WHEN = re.compile(r"last_dump_date (20\d\d-[01]\d-[0-3]\d)\s{1,8}last_dump_time ([0-2]\d:[0-5]\d:[0-5]\d)")
_JSON = re.compile(r'"health"\s{0,8}:\s{0,8}\{\s{0,40}"pci/')
FIRMWARE = ("fw", "fw_fatal")
Row = tuple[str, str, str, str]  # device, reporter, state, when


def fits(head: str, name: str) -> bool:
    if _JSON.search(head[:2000]):
        return True
    return bool(re.search(r"^\s{0,4}pci/", head, re.M) and _REPORTER.search(head) and _STATE.search(head))


def _rows(text: str) -> Iterator[Row]:
    device = reporter = ""
    for line in lines_of(text[:4_194_304], 600):
        if found := _DEVICE.match(line):
            device, reporter = found[1], ""
        if found := _REPORTER.search(line):
            reporter = found[1]
        if reporter and device and (state := _STATE.search(line)):
            when = _WHEN.search(line)
            yield device, reporter, state[1], f"{when[1]} {when[2]}" if when else ""
            reporter = ""


def _rows_of_json(text: str) -> Iterator[Row]:
    try:
        said: Any = json.loads(text)["health"]
        for device, reporters in said.items():
            for one in reporters if isinstance(reporters, list) else ():
                when = f"{one.get('last_dump_date', '')} {one.get('last_dump_time', '')}".strip()
                yield clean(str(device).removeprefix("pci/"))[:40], str(one["reporter"]), str(one["state"]), when[:20]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return


def read(text: str) -> KernelLog:
    rows = list(_rows_of_json(text) if text.lstrip()[:1] == "{" else _rows(text))[:4096]
    if not rows:
        raise refuse("reporters as devlink health lists them", text)
    bad = [row for row in rows if row[1] in FIRMWARE and row[2] == "error"]
    notices = tuple(_notice(device, reporter, when) for device, reporter, _, when in bad)
    return KernelLog("devlink health show", None, None, "", len(rows), None, None, hca_notices=notices)


def _notice(device: str, reporter: str, when: str) -> HcaNotice:
    at: float | None = None
    try:
        at = datetime.strptime(when, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp() if when else None
    except ValueError:
        when = ""
    says = f"devlink health: reporter {reporter} of {device} is in state error"
    return HcaNotice(1, 1, when, when, at, at, says, device, "health")


TOOL = Tool("devlink health", "host.kernel_log", fits, read, host=host_in)
