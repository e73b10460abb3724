"""uptime, uptime -s, /proc/uptime, who -b, last reboot, journalctl --list-boots: since when the node runs.

Source   uptime(1), who(1), last(1), journalctl(1)
Shape    facts host.boots
Errors   ParseError when no line has one of these forms
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from probes.catalog.host.facts import Boots
from probes.core import ParseError, clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import time_in

_UP = re.compile(
    r"\s{0,4}(\d\d:\d\d(?::\d\d)?)\s{1,4}up\s{1,4}(?:(\d{1,6}) days?,\s{1,4})?"
    r"(?:(\d{1,2}):(\d\d)|(\d{1,3}) (?:min|hr|sec)\w{0,4})(?:,|\s{0,4}$)"
)
_PRETTY = re.compile(
    r"(?:up(?:time)?:? )(?:(\d{1,4}) weeks?)?,? ?(?:(\d{1,6}) ?d(?:ays?)?)?,? ?(?:(\d{1,3}) ?h(?:(?:ou)?rs?)?)?"
    r",? ?(?:(\d{1,3}) ?m(?:in(?:ute)?s?)?|(\d{1,2}):(\d\d))?\s{0,4}"
)
_SINCE = re.compile(r"\s{0,4}(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\s{0,4}")
_COUNTED = re.compile(r"\s{0,4}(\d{1,9}(?:\.\d\d)?)(?: \d{1,12}\.\d\d)?\s{0,4}")  # /proc/uptime, or its first number
_WHO = re.compile(
    r"\s{0,20}(?:\S{1,20}\s{1,20})?system boot\s{1,20}(\d{4}-\d\d-\d\d \d\d:\d\d|[A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d)"
)
_LAST = re.compile(
    r"reboot\s{1,12}system boot\s{1,12}(\S{1,60})\s{1,12}"
    r"([A-Z][a-z]{2} [A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d(?::\d\d)?(?: \d{4})?)([^\n]{0,80})"
)
# last(1) -x without a word: logins and changes of the run level are among the boots.
_LOGIN = re.compile(
    r"\S{1,32}\s{1,24}(?:(?:pts/|tty|:)\S{0,12}|system down|\(to lvl \d\)|~)\s.{0,60}?"
    r"[A-Z][a-z]{2} [A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d"
)
_BOOT_ID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|[0-9a-f]{32}")
_LIST = re.compile(
    r"\s{0,6}(-?\d{1,4}) ([0-9a-f]{32}) [A-Z][a-z]{2} (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (\S{2,6})"
    r"(?:\u2014|\s{1,4}|-)[A-Z][a-z]{2} (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)"
)


def _fits(head: str, name: str) -> bool:
    lines = [line for line in lines_of(head[:8192], 400) if line.strip()][:40]
    if not lines:
        return False
    first = lines[0]
    if _WHO.match(first) or _LAST.match(first) or _LIST.match(first) or first.split()[:3] == ["IDX", "BOOT", "ID"]:
        return True
    if first.startswith("wtmp begins") or (_LOGIN.match(first) and any(map(_LAST.match, lines))):
        return True
    if (up := _UP.match(first)) and ("load average" in first or up.end() >= len(first.rstrip())):
        return len(lines) <= 3 or all(_of_boot(line) for line in lines[1:])
    if len(lines) == 2 and time_in(first) is not None and "uptime" in name.lower():  # `date; uptime -s`
        first = lines.pop()
    if "proc_uptime" in name.lower() or "proc/uptime" in name.lower():
        return all(_COUNTED.fullmatch(line) or _of_boot(line) or time_in(line) is not None for line in lines)
    short = len(lines) == 1 and ("uptime" in name.lower() or "boot" in name.lower())
    if len(lines) == 1 and (told := _PRETTY.fullmatch(first)) and any(told.groups()):
        return True
    return short and bool(_SINCE.fullmatch(first))


def _of_boot(line: str) -> bool:
    """What people ask for beside uptime: the boot's id, who -b, last reboot."""
    known = _WHO.match(line) or _LAST.match(line) or _LIST.match(line) or _LOGIN.match(line)
    return bool(known or _BOOT_ID.fullmatch(line.strip())) or (
        line.startswith(("wtmp begins", "IDX BOOT ID")) or bool(_SINCE.fullmatch(line))
    )


def read(text: str) -> Boots:
    booted: list[tuple[float, str]] = []
    utc = crashed = False
    uptime: float | None = None
    of_day: float | None = None
    for line in lines_of(text[:262_144], 400):
        if found := _UP.match(line):
            uptime, of_day = _seconds(found), _of_day(found[1])
        elif found := _LIST.match(line):
            utc = found[4] in ("UTC", "GMT")
            booted += _at(found[3], "%Y-%m-%d %H:%M:%S")
        elif found := _WHO.match(line):
            booted += (
                _at(found[1], "%Y-%m-%d %H:%M") if found[1][:1].isdigit() else _at("2000 " + found[1], "%Y %b %d %H:%M")
            )
        elif found := _LAST.match(line):
            crashed = crashed or ("crash" in found[3] and len(booted) < 2)
            booted += _last(found[2])
        elif found := _SINCE.fullmatch(line):
            booted += _at(found[1], "%Y-%m-%d %H:%M:%S")
        elif found := _COUNTED.fullmatch(line):
            uptime = float(found[1])
        elif (found := _PRETTY.fullmatch(line.strip())) and any(found.groups()):
            weeks, days, hours, minutes, clock, past = (int(part or 0) for part in found.groups())
            uptime = weeks * 604_800.0 + days * 86_400 + (hours + clock) * 3600 + (minutes + past) * 60
    if not booted and uptime is None:
        raise ParseError("expected uptime, who -b, last reboot or journalctl --list-boots, found no such line")
    booted.sort(reverse=True)
    last = booted[0] if booted else (None, "")
    before = booted[1][0] if len(booted) > 1 else None
    return Boots(last[0], utc, uptime, before, crashed, clean(last[1]), of_day)


def _of_day(clock: str) -> float:
    parts = [float(part) for part in clock.split(":")]
    return sum(part * unit for part, unit in zip(parts, (3600.0, 60.0, 1.0), strict=False))


def _seconds(found: re.Match[str]) -> float:
    days, hours, minutes, lone = found[2], found[3], found[4], found[5]
    rest = int(hours) * 3600 + int(minutes) * 60 if hours else int(lone or 0) * (3600 if " hr" in found[0] else 60)
    return int(days or 0) * 86_400.0 + rest


def _at(stamp: str, form: str) -> list[tuple[float, str]]:
    try:
        return [(datetime.strptime(" ".join(stamp.split()), form).replace(tzinfo=UTC).timestamp(), stamp)]
    except ValueError:
        return []


def _last(stamp: str) -> list[tuple[float, str]]:
    """`Tue Jan 21 02:00` without a year unless `last -F` was asked: then the order alone counts."""
    for form in ("%a %b %d %H:%M:%S %Y", "%a %b %d %H:%M"):
        try:
            at = datetime.strptime(" ".join(stamp.split()), form)
        except ValueError:
            continue
        year = at.year if at.year != 1900 else 2000
        return [(at.replace(year=year, tzinfo=UTC).timestamp(), stamp)]
    return []


TOOL = Tool("uptime or last", "host.boots", _fits, read, lambda facts: ())
