"""When somebody looked: times that stand by themselves in what was brought, by `date`, nvidia-smi, uptime, headings.

Asked of every file as a whole, beside whatever else it tells: a log that goes on past every look is of a job that went
on. Only the latest look counts, and none of it is a node's.

Source   date(1) in its locales, nvidia-smi (first line, -q, --query-gpu=timestamp), uptime(1), top(1), timedatectl(1),
         watch(1), `ray status`, and headings as people write them between commands
Units    seconds since the epoch; of a time without a zone as if it were UTC; `of_day`: seconds since midnight
Shape    facts evidence.looked
Errors   ParseError when no such time stands anywhere
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

from probes.core import Finding
from probes.intake.tools import Tool
from probes.intake.tools._text import refuse

MOST = 65_536  # lines that are looked at
_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),?"
_CLOCK = r"(?P<clock>\d{1,2}:\d\d(?::\d\d)?)(?:[.,]\d{1,9})?"
_WORDS = re.compile(
    rf"{_DAY} {{1,2}}(?:(?P<month>[A-Z][a-z]{{2}}) {{1,2}}(?P<day>\d{{1,2}})"
    r"|(?P<day2>\d{1,2}) (?P<month2>[A-Z][a-z]{2}))"
    rf"(?: (?P<year>20\d\d))? {_CLOCK}(?: (?P<half>[AP]M))?(?: (?P<zone>[A-Z]{{2,5}}|[+-]\d\d(?::?\d\d)?)\b)?"
    r"(?: (?P<year2>20\d\d))?"
)
_ISO = re.compile(rf"(?P<date>20\d\d[-/]\d\d[-/]\d\d)[ T]{_CLOCK} ?(?P<zone>Z\b|UTC\b|GMT\b|[+-]\d\d:?\d\d)?")
_OF_DAY = re.compile(r"(?<![\d:.-])(?P<clock>[0-2]\d:[0-5]\d:[0-5]\d)(?![\d:])(?: (?P<zone>UTC|GMT)\b)?")
# What may stand around it: a heading's marks, a tool's own word. A log's line begins with its time and goes on.
_ALONE = re.compile(r"(?:[A-Za-z][\w.-]{0,62}: )?\s{0,8}(?P<rest>[^\n]{8,60}?)\s{0,8}$")
_MARKED = re.compile(
    r"(?:[#=*>]{1,12}|-{2,12}|Every \d"
    r"|\s{0,8}(?:Timestamp|Local time|Universal time|Current time)\s{0,40}:)(?P<rest>.{0,160})"
)
_UP = re.compile(r"(?:top - |[A-Za-z][\w.-]{0,62}: )?\s{0,4}(?P<clock>\d\d:\d\d:\d\d) up\s")
# A message of a chat, whose text quotes what its writer saw: `ann 06:30: is that us?`, `[06:30] ann: `, `ann  6:30 AM`.
# A log's lines have seconds.
_CHAT = re.compile(
    r"(?:[A-Za-z@][A-Za-z_.-]{1,24}(?: [A-Z][A-Za-z_.-]{1,24})? {1,2}"
    r"\[?(?P<clock>\d{1,2}:\d\d)(?: (?P<half>[AP]M))?\]?(?::(?= [A-Za-z*`])|$)"
    r"|[\[(](?P<clock2>\d{1,2}:\d\d)(?: (?P<half2>[AP]M))?[\])] "
    r"<?@?[A-Za-z][\w.-]{1,24}(?: [A-Z][\w.-]{1,24})?[>:] )"
)
_ROW = re.compile(r"(?P<date>20\d\d/\d\d/\d\d) (?P<clock>\d\d:\d\d:\d\d)\.\d{3}, ")  # nvidia-smi's own column
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


@dataclass(frozen=True, slots=True)
class Looked:
    """The latest of each form; None where no look tells it so. `of_day` of looks that tell only the time of the day."""

    utc: float | None
    printed: float | None
    of_day: float | None


def looks(text: str) -> Looked | None:
    """What a text tells of when it was taken; None where it tells nothing."""
    utc: list[float] = []
    printed: list[float] = []
    of_day: list[float] = []
    for line in text.split("\n", MOST)[:MOST]:
        if len(line) < 8 or ":" not in line[:240]:
            continue
        told = _of(line[:240])
        if told is None:
            continue
        at, kind = told
        {"utc": utc, "printed": printed, "of_day": of_day}[kind].append(at)
    if not (utc or printed or of_day):
        return None
    # Times of the day have no order over midnight: the last that stands there is the latest.
    return Looked(max(utc, default=None), max(printed, default=None), of_day[-1] if of_day else None)


def _of(line: str) -> tuple[float, str] | None:
    if found := _UP.match(line):
        return _seconds(found["clock"]), "of_day"
    if found := _CHAT.match(line):
        hours, _, minutes = (found["clock"] or found["clock2"]).partition(":")
        return _seconds(f"{_hour(hours, found['half'] or found['half2'])}:{minutes}:00"), "of_day"
    if found := _ROW.match(line):
        return _moment(found["date"].replace("/", "-"), found["clock"], "")
    if marked := _MARKED.match(line):
        rest = marked["rest"]
        if (found := _WORDS.search(rest)) and (told := _of_words(found)):
            return told
        if found := _ISO.search(rest):
            return _moment(found["date"].replace("/", "-"), found["clock"], found["zone"] or "")
        found = _OF_DAY.search(rest)
        return (_seconds(found["clock"]), "of_day") if found else None
    alone = _ALONE.match(line)
    if alone is None:
        return None
    if found := _WORDS.fullmatch(alone["rest"]):
        return _of_words(found)
    found = _ISO.fullmatch(alone["rest"])
    return _moment(found["date"].replace("/", "-"), found["clock"], found["zone"] or "") if found else None


def _of_words(found: re.Match[str]) -> tuple[float, str] | None:
    month, day, year = found["month"] or found["month2"], found["day"] or found["day2"], found["year"] or found["year2"]
    if month not in _MONTHS or year is None:
        return None
    hour, _, rest = found["clock"].partition(":")
    hour = _hour(hour, found["half"])
    return _moment(f"{year}-{_MONTHS.index(month) + 1:02d}-{int(day):02d}", f"{hour}:{rest}", found["zone"] or "")


def _hour(hour: str, half: str | None) -> str:
    return str(int(hour) % 12 + (12 if half == "PM" else 0)) if half else hour


def _moment(date: str, clock: str, zone: str) -> tuple[float, str] | None:
    whole = clock if clock.count(":") == 2 else f"{clock}:00"
    try:
        at = datetime.strptime(f"{date} {whole}", "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
        if zone[:1] in ("+", "-"):
            digits = zone[1:].replace(":", "").ljust(4, "0")
            away = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
            return at.replace(tzinfo=timezone(-away if zone[0] == "-" else away)).timestamp(), "utc"
    except (ValueError, OverflowError):
        return None
    return at.timestamp(), "utc" if zone in ("Z", "UTC", "GMT") else "printed"


def _seconds(clock: str) -> float:
    hours, minutes, seconds = (int(part) for part in clock.split(":"))
    return float(hours * 3600 + minutes * 60 + seconds)


def read(text: str) -> Looked:
    found = looks(text)
    if found is None:
        raise refuse("a time at which somebody looked", text)
    return found


def _quiet(facts: Looked) -> Iterable[Finding]:
    return ()


# Nothing is recognised by such a time: every file is asked for it, see sorting.py.
TOOL = Tool("times of looks", "evidence.looked", lambda head, name: False, read, _quiet)
