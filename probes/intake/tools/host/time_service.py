"""chronyc tracking, chronyc sources, ntpq -p, ntpq -c rv, timedatectl, ntpdate -q, sntp, also with a date(1) before it:
what a node's time service says of itself.

Source   chronyc(1), ntpq(8), timedatectl(1), ntpdate(8), sntp(1), which print source minus
         node; insights-core's recorded samples
Shape    facts of host.clock, without an offset measured by us
Errors   ParseError when none of these is in the text
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime

from probes.catalog.host_clock import Clock, service_of
from probes.core import ParseError, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import time_in

_SOURCE = re.compile(r"[\^=#]([*+\-?x~]) {1,4}(\S{1,80})\s[^\[]{0,120}?([+-]?\d{1,12})(ns|us|ms|s)\[")
_PEER = re.compile(
    r"([*+\-#xo. ])(\S{1,40})\s{1,30}\S{1,40}\s{1,20}\d{1,2} \S .{0,80}?"
    r"(-?\d{1,12}(?:\.\d{1,9})?)\s{1,12}[\d.]{1,14}\s{0,8}$"
)
_UNIVERSAL = re.compile(r"Universal time: {1,4}[A-Z][a-z]{2} (20\d\d-\d\d-\d\d) (\d\d:\d\d:\d\d) UTC")
# chronyc -c tracking: id, name, stratum, reference time, System time (positive: slow), ... , leap status. client.c
_CSV = re.compile(
    r"[0-9A-F]{8},[^,\n]{0,80},\d{1,2},\d{1,11}\.\d{1,9},(-?\d{1,12}\.\d{1,12}),(?:-?[\d.]{1,20},){7}"
    r"-?[\d.]{1,20},(Normal|Insert second|Delete second|Not synchronised)\s{0,4}$",
    re.M,
)
_ZONED = re.compile(r"\b(?:UTC|GMT)\b|\dZ$|[+-]\d\d:?\d\d$|^1\d{9}(?:\.\d{1,9})?$")
_IN_UTC = re.compile(r"(?:^|[_/])date_(?:\S{0,40}_)?(?:-u|--utc|--universal)(?:_|$)|TZ_(?:UTC|GMT)_(?:\S{0,20}/)?date")
# `date +%T.%N`; one without parts of a second is known by the command that stands before it.
_OF_DAY = re.compile(r"\s{0,8}([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?:[.,:](\d{1,9}))?\s{0,8}")
_SYSTEM = re.compile(r"^System time\s{1,8}: (\d{1,12}\.\d{1,12}) seconds (slow|fast) of NTP time", re.M)
_RETYPED = re.compile(  # without its columns
    r"^\W{0,4}(?:system (?:time|clock)|last offset|clock|time|offset)\s{0,8}(?:[:=]|is)\s{0,8}"
    r"(?:off by )?(\d{1,12}(?:\.\d{1,12})?)\s?(s(?:ec(?:onds?)?)?|ms|min(?:utes?)?) (slow|fast|behind|ahead)\b",
    re.M | re.I,
)
_HEAD = re.compile(r"^Reference ID\s{1,8}: ", re.M)
_SERVER = re.compile(
    r"^server \S{1,80}, stratum \d{1,2}, offset ([+-]?\d{1,12}\.\d{1,9}), delay"
    r"|^[^\n]{0,40}ntpdate\[\d{1,9}\]: [^\n]{0,80}? offset ([+-]?\d{1,12}\.\d{1,9})"
    r"|^20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\.\d{1,9} \([+-]\d{4}\) ([+-]?\d{1,12}\.\d{1,9}) \+/- ",
    re.M,
)
_TIMESYNC = re.compile(r"^\s{0,16}Server: \S[^\0]{0,600}?^\s{0,16}Offset: ([+-]?)([\d.a-z ]{1,60})$", re.M)
BEHIND = ("slow", "behind")
_SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(us|ms|min|s|h|d)")
_SPANS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_SCALE = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


def _fits(head: str, name: str) -> bool:
    text = head[:8192]
    if _date(text, bool(_IN_UTC.search(name))) is not None:
        return True
    if (day := _OF_DAY.fullmatch(text)) is not None and (day[4] or re.search(r"(?:^|[_/])date_", name)):
        return True
    if _CSV.match(text.lstrip()):
        return True
    if _HEAD.search(text[:2000]) or "MS Name/IP address" in text[:2000] or _TIMESYNC.search(text[:2000]):
        return True
    if _RETYPED.search(text[:2000]) and text[:2000].count("\n") <= 24:
        return True
    if _SERVER.search(text[:2000]) or _SYSTEM.match(text.lstrip()):
        return True
    if re.match(r"\s{0,8}remote\s{1,20}refid\s{1,12}st t when poll reach", text) or text.startswith(
        "associd=0 status="
    ):
        return True
    return (
        "Local time: " in text[:200] and "synchronized: " in text or "NTPSynchronized=" in text and "Timezone=" in text
    )


def read(text: str) -> Clock:
    if (at := _date(text, True)) is not None:
        return Clock(None, None, None, "", None, None, at)
    if (day := _OF_DAY.fullmatch(text)) is not None:
        at = int(day[1]) * 3600 + int(day[2]) * 60 + int(day[3]) + float(f"0.{day[4] or 0}")
        return Clock(None, None, None, "", None, None, at)
    clock = _told(text)
    if clock.told_at is None and (first := next((line for line in text.splitlines() if line.strip()), "")):
        clock = replace(clock, told_at=_date(first))  # `date; chronyc tracking`
    return clock


def _told(text: str) -> Clock:
    body = text.lstrip()
    if (head := _HEAD.search(body)) is not None:
        return _clock({"chronyc -n tracking": body[head.start() :]})
    if row := _CSV.match(body):
        kept = row[2] != "Not synchronised"
        return Clock(None, None, None, "chrony", kept, -float(row[1]) if kept else None)
    if "MS Name/IP address" in body[:2000]:
        return _sources(body)
    if (synced := _TIMESYNC.search(body)) is not None:
        behind = sum(float(number) * _SPANS[unit] for number, unit in _SPAN.findall(synced[2]))
        return Clock(None, None, None, "timesyncd", None, behind if synced[1] == "-" else -behind)
    if (system := _SYSTEM.match(body)) is not None:  # `chronyc tracking | grep "System time"`
        return Clock(None, None, None, "chrony", None, float(system[1]) * (-1 if system[2] == "slow" else 1))
    if (off := _RETYPED.search(body[:2000])) is not None:
        scale = {"m": 60.0, "s": 1.0}["m" if off[2].lower().startswith("min") else "s"]
        scale = 1e-3 if off[2].lower() == "ms" else scale
        return Clock(None, None, None, "chrony", None, float(off[1]) * scale * (-1 if off[3].lower() in BEHIND else 1))
    if (asked := _SERVER.search(body)) is not None:
        return Clock(None, None, None, "ntpdate", None, -float(next(part for part in asked.groups() if part)))
    if body.startswith("associd=0"):
        return _clock({"ntpq -n -c rv": body})
    if re.match(r"remote\s{1,20}refid", body):
        return _peers(text)
    for line in lines_of(body, 400):
        key, _, value = line.strip().partition("synchronized: ")
        if value and key.strip() in ("System clock", "NTP"):
            body = f"NTPSynchronized={value.strip()}"
            break
    return replace(_clock({"timedatectl show": body}), told_at=_told_at(text))


def _date(text: str, in_utc: bool = False) -> float | None:
    """What date(1) prints alone, in a form that needs no zone to be known, or where it was asked for UTC."""
    line = text.strip()
    return time_in(line) if len(line) < 80 and (in_utc or _ZONED.search(line)) and "\n" not in line else None


def _told_at(text: str) -> float | None:
    """timedatectl's `Universal time: Mon 2026-08-31 14:10:31 UTC`."""
    found = _UNIVERSAL.search(text[:4096])
    try:
        return datetime.fromisoformat(f"{found[1]}T{found[2]}+00:00").timestamp() if found else None
    except ValueError:
        return None


def _clock(parts: dict[str, str]) -> Clock:
    service, synchronised, believed = service_of(parts)
    if not service:
        raise ParseError("expected chronyc, ntpq or timedatectl, found nothing that says whether the clock is in step")
    return Clock(None, None, None, service, synchronised, believed)


def _sources(text: str) -> Clock:
    """`^*` is the source that the clock follows; the sample is node minus source."""
    chosen = None
    known = False
    for line in lines_of(text, 400):
        found = _SOURCE.match(line)
        known = known or line.startswith(("^", "=", "#"))
        if found and found[1] == "*":
            chosen = int(found[3]) * _SCALE[found[4]]
    if not known:
        raise ParseError("chronyc sources: no source in it")
    return Clock(None, None, None, "chrony", chosen is not None, chosen)


def _peers(text: str) -> Clock:
    """`*` is the peer that the clock follows; ntpq prints source minus node, in ms."""
    chosen = None
    known = False
    for line in lines_of(text, 400):
        if line.startswith(("=", " ", "*", "+", "-", "#", "x", "o", ".")) and (found := _PEER.match(line)):
            known = True
            if found[1] in "*o":
                chosen = -float(found[3]) / 1000
    if not known:
        raise ParseError("ntpq -p: no peer in it")
    return Clock(None, None, None, "ntpd", chosen is not None, chosen)


TOOL = Tool("time service", "host.clock", _fits, read)
