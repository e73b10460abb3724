"""Times as less usual loggers write them before a line: syslog, weekdays, slashes, names of months.

Source   syslog (RFC 3164), ctime(3), detectron2's and mmengine's loggers, Go's log package
Units    none: a time as printed, without a zone
Shape    other_time(text) -> Stamp; None where the text begins with no such time
Errors   none
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import NamedTuple

_MONTHS = {name: at for at, name in enumerate("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), 1)}  # noqa: SIM905
_MONTH = "|".join(_MONTHS)
_CLOCK = r"(?P<clock>\d\d:\d\d:\d\d)(?:[.,]\d{1,9})?"
_END = r"\]?(?: {0,2}[-|:,])? {0,2}"
_FORMS = (
    # Mon Jan  5 09:00:00 2026 | ...
    re.compile(
        rf"\[?(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (?P<month>{_MONTH}) {{1,2}}(?P<day>\d{{1,2}}) {_CLOCK}"
        rf"(?: [A-Z]{{3,4}})? (?P<year>20\d\d){_END}"
    ),
    # Jan  5 09:00:00 gn-1 trainer[77]: ...
    re.compile(
        rf"(?P<month>{_MONTH}) {{1,2}}(?P<day>\d{{1,2}}) {_CLOCK} (?P<host>[A-Za-z][\w.-]{{0,62}}) "
        # What daemons of the node say is told by their names, see schedulers: their lines stay whole.
        r"(?:(?P<daemon>(?:systemd|systemd-oomd|earlyoom|kubelet|chronyd|ntpd)\[)"
        r"|[A-Za-z][\w./@-]{0,48}(?:\[\d{1,9}\])?: )"
    ),
    # Jan  5 09:00:00 ..., as ts(1) writes it: without a host
    re.compile(
        rf"(?P<month>{_MONTH}) {{1,2}}(?P<day>\d{{1,2}}) {_CLOCK} "
        r"(?![\w.-]{1,63} [\w./@-]{1,48}(?:\[\d{1,9}\])?: )"
    ),
    # 05-Jan-26 09:00:00 - ...
    re.compile(rf"\[?(?P<day>\d{{1,2}})-(?P<month>{_MONTH})-(?P<year>(?:20)?\d\d) {_CLOCK}{_END}"),
    # 2026/01/05 09:00:00 ...
    re.compile(rf"\[?(?P<year>20\d\d)/(?P<number>\d\d)/(?P<day>\d\d) {_CLOCK}{_END}"),
    # [01/05 09:00:00] ...
    re.compile(rf"\[?(?P<number>\d\d)/(?P<day>\d\d) {_CLOCK}{_END}"),
)


class Stamp(NamedTuple):
    """`end`: where the line itself begins. `year_known`: else it is 2000. `host`: "" where none is told."""

    end: int
    stamp: str
    at: datetime
    year_known: bool
    host: str


def other_time(text: str) -> Stamp | None:
    """The time in front of a line, in one of these forms."""
    for form in _FORMS:
        if (found := form.match(text)) is None:
            continue
        parts = found.groupdict()
        month = _MONTHS[parts["month"]] if parts.get("month") else int(parts["number"])
        told = parts.get("year") or ""
        year = int(told if len(told) == 4 else f"20{told}") if told else 2000
        day = f"{month:02d}-{int(parts['day']):02d} {parts['clock']}"
        try:
            at = datetime.fromisoformat(f"{year}-{day}")
        except ValueError:
            return None
        end, host = (0, "") if parts.get("daemon") else (found.end(), parts.get("host") or "")
        return Stamp(end, f"{year}-{day}" if told else day, at, bool(told), host)
    return None
