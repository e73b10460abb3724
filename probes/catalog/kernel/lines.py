"""Lines of a kernel log with their times, in every form that dmesg(1), journalctl(1) and /dev/kmsg print.

Source   dmesg(1) plain, -T, -x and --time-format=iso of util-linux; journalctl(1) short, short-iso, short-iso-precise;
         Documentation/ABI/testing/dev-kmsg of the kernel
Units    seconds; `at` since the epoch (UTC), `order` on the log's own scale (comparable within one log only)
Shape    Clock -> Line(at, order, stamp, text, known)
Errors   none: a line in no known form is a Line without a stamp
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from probes.core import lines_of

_FACILITIES = {"kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp"}
_LEVELS = {"emerg", "alert", "crit", "err", "warn", "notice", "info", "debug"}
LONGEST_UP_S = 1e10  # since boot: more is no time
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@dataclass(frozen=True, slots=True)
class Line:
    at: float | None  # None: the log does not say (local time, no year, or seconds since a boot at an unknown time)
    order: float | None
    stamp: str  # the time as printed, "" when there is none
    text: str  # the message alone, "" when another program wrote it
    program: str = ""  # that other program, of syslog or the journal
    said: str = ""  # and what it wrote


@dataclass(frozen=True, slots=True)
class Clock:
    """When the log was read, by the node's own clock: turns seconds since boot into times. Both None: not known."""

    now: float | None = None
    uptime: float | None = None

    def wall(self, mono: float) -> float | None:
        return None if self.now is None or self.uptime is None else self.now - self.uptime + mono


JITTER_S = 60.0  # dmesg -T reckons with the time since boot, which runs apart from the clock: dmesg(1)


def log_lines(text: str, clock: Clock) -> Iterator[Line]:
    """Every line. Indented lines without a stamp continue the message before and share its time."""
    before = Line(None, None, "", "")
    for raw in _unsorted(text, clock):
        line = _line(raw, clock)
        if not line.stamp and raw[:1] in (" ", "\t"):
            line = Line(before.at, before.order, "", line.text)
        else:
            before = line
        yield line


def _unsorted(text: str, clock: Clock) -> Iterator[str]:
    """Lines of dmesg -T in the order of their times: sort(1), as after pdsh, puts all Mondays before all Sundays, and
    who pastes puts the newest first."""
    if not (text[:1] == "[" and text[1:2].isalpha()):
        return lines_of(text)
    rows = [raw for raw in lines_of(text) if raw.strip()]
    times = [_line(raw, clock).order for raw in rows]
    known = [at for at in times if at is not None]
    if len(known) < len(rows) or all(b > a - JITTER_S for a, b in itertools.pairwise(known)):
        return iter(rows)
    return (rows[place] for place in sorted(range(len(rows)), key=known.__getitem__))


def _line(raw: str, clock: Clock) -> Line:
    if "," in raw[:12] and ";" in raw[:256] and (found := _kmsg(raw, clock)):
        return found
    rest = _without_decode(raw)
    if rest.startswith("["):
        if found := _bracket(rest, clock):
            return found
    elif rest[4:5] == "-" and rest[10:11] in ("T", " "):
        if found := _iso(rest):
            return found
    elif rest[3:4] == " " and (found := _full(rest) if rest[8:9] == "-" else _month(rest, clock)):
        return found
    return Line(None, None, "", raw.strip())


def _kmsg(raw: str, clock: Clock) -> Line | None:
    """`prio,seq,usec,flags[,key=value];text`"""
    head, _, text = raw.partition(";")
    fields = head.split(",")
    if len(fields) < 4 or not all(field.isascii() and field.isdigit() for field in fields[:3]) or len(fields[2]) > 18:
        return None
    mono = int(fields[2]) / 1e6
    return Line(clock.wall(mono), mono, f"[{mono:.6f}]", text.strip())


def _without_decode(raw: str) -> str:
    """Drop `<6>` (dmesg -r) and `kern  :warn  : ` (dmesg -x)."""
    if raw[:1] == "<" and raw[2:3] == ">" or raw[:1] == "<" and raw[3:4] == ">":
        return raw.partition(">")[2]
    facility, colon, rest = raw.partition(":")
    facility = facility.strip()
    if colon and (facility in _FACILITIES or facility[:5] == "local" and facility[5:].isdigit()):
        level, colon, after = rest.partition(":")
        if colon and level.strip() in _LEVELS:
            return after[1:] if after.startswith(" ") else after
    return raw


def _bracket(rest: str, clock: Clock) -> Line | None:
    """`[  12.345678] text`, `[  12.345678][   T41] text`, and `[Sun Feb 23 16:24:18 2025] text` of dmesg -T."""
    inside, bracket, text = rest[1:].partition("]")
    if not bracket or len(inside) > 40:
        return None
    if text[:1] == "[" and text[1:2] == " " and "]" in text[:16]:  # CONFIG_PRINTK_CALLER
        text = text.partition("]")[2]
    word = inside.strip()
    if word.replace(".", "", 1).isdigit() and word.isascii():
        mono = float(word)
        if mono > LONGEST_UP_S:
            return None
        # journalctl -o short-monotonic puts the node and the writer between
        message = text.partition(" kernel: ")[2] if " kernel: " in text[:90] else text
        return Line(clock.wall(mono), mono, f"[{word}]", message.strip())
    try:
        told = datetime.strptime(_in_english(word), "%b %d %H:%M:%S %Y").replace(tzinfo=UTC)
    except ValueError:
        return None
    # without a time zone; in English, as whoever compares it with others expects
    return Line(None, told.timestamp(), word if word[:3] in _DAYS else f"{told:%a %b %d %H:%M:%S %Y}", text.strip())


_DATED = re.compile(r"[^\W\d]{1,10}\.? {1,2}(\d{0,2}[^\W\d]{1,9})\.? {1,2}(\d{1,2} \d\d:\d\d:\d\d \d{4})")
# Months as dmesg -T prints them in German, French, Spanish, Italian and Portuguese, where they begin otherwise.
_ABROAD = {
    "mär": "mar", "mrz": "mar", "avr": "apr", "abr": "apr", "mai": "may", "mag": "may", "giu": "jun", "jui": "jun",
    "juil": "jul", "lug": "jul", "aoû": "aug", "ago": "aug", "set": "sep", "okt": "oct", "ott": "oct", "out": "oct",
    "dez": "dec", "déc": "dec", "dic": "dec", "ene": "jan", "gen": "jan", "fév": "feb", "fev": "feb",
}  # fmt: skip
_ENGLISH = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def _in_english(word: str) -> str:
    """`Mo Mai 11 02:12:11 2026`, and `一 5月 11 02:12:11 2026`, without the day of the week."""
    found = _DATED.fullmatch(word)
    if found is None:
        return word
    month = found[1].lower()
    if month[:1].isdigit() and month[-1] in "月월":
        number = int("".join(c for c in month if c.isdecimal()))
        month = _ENGLISH[number - 1] if 1 <= number <= 12 else ""
    else:
        month = _ABROAD.get(month[:4], _ABROAD.get(month[:3], month[:3]))
    return f"{month} {found[2]}"


def _iso(rest: str) -> Line | None:
    """`2025-01-21T02:21:33,498559+00:00 text`; journalctl puts `node kernel:` between, and may write +0000."""
    stamp, _, text = rest.partition(" ") if rest[10:11] == "T" else (rest[:19], "", rest[19:].lstrip("0123456789.,"))
    try:
        at = datetime.fromisoformat(stamp)
        seconds = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
    # Without a zone it is the node's local time: it orders lines, and is no time in UTC.
    return _of_writer(Line(seconds if at.tzinfo else None, seconds, stamp, ""), text.strip())


def _full(rest: str) -> Line | None:
    """`Tue 2025-01-21 02:21:33 UTC node kernel: text` of journalctl -o short-full. Of the zones only UTC is certain."""
    stamp, zone, text = rest[4:23], *rest[24:].partition(" ")[::2]
    try:
        seconds = datetime.fromisoformat(stamp).replace(tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        return None
    utc = zone in ("UTC", "GMT")
    return _of_writer(Line(seconds if utc else None, seconds, f"{stamp} UTC" if utc else stamp, ""), text)


def _month(rest: str, clock: Clock) -> Line | None:
    return _syslog(rest, clock) if rest[:3] in _MONTHS else None


def _syslog(rest: str, clock: Clock) -> Line | None:
    """`Feb 14 05:03:41 node kernel: text`: local time without a year, so it orders lines but is no time in UTC."""
    stamp = rest[:15]
    day, time = stamp[4:6].strip(), stamp[7:15]
    try:
        month = _MONTHS.index(stamp[:3]) + 1
        seconds = datetime.strptime(f"2000-{month}-{int(day)} {time}", "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        return None
    text = (
        rest[16:] if rest[15:16] == " " else rest[15:].lstrip(".0123456789").lstrip()
    )  # short-precise has microseconds
    found = _of_writer(Line(None, seconds.timestamp(), stamp, ""), text)
    inner = _bracket(_message(text)[0], clock) if found.text and "kernel: [" in text[:120] else None
    if inner and inner.at is not None:
        return Line(inner.at, inner.order, stamp, found.text)
    return found


def _of_writer(line: Line, text: str) -> Line:
    """The line with its message, without the kernel's own stamp that rsyslog keeps."""
    message, program, said = _message(text)
    inner = _bracket(message, Clock()) if message.startswith("[") else None
    return Line(line.at, line.order, line.stamp, inner.text if inner else message, program, said)


def _message(text: str) -> tuple[str, str, str]:
    """What the kernel said after `node kernel: `, or "", the program and what it said of `node name[12]: text`."""
    word, _, rest = text.partition(" ")
    if word == "kernel:":
        return rest.strip(), "", ""
    name, _, after = rest.partition(" ")
    if name == "kernel:":
        return after.strip(), "", ""
    if name.endswith("]:") and "[" in name and not after.startswith("segfault"):
        return "", name.partition("[")[0][:64], after.strip()
    return text.strip(), "", ""
