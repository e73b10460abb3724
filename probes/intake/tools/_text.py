"""What readers of tools' text share: looks at different times in one text, the host that it names, whole numbers."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from datetime import UTC, datetime

from probes.core import ParseError, clean

MOST_LINES = 200_000
_EPOCH = re.compile(r"(1[0-9]{9})(\.[0-9]{1,9})?$")
_ISO = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))? ?(Z|UTC|[+-]\d\d:?\d\d)?(?: [+-]\d{4})?$")
_DATE = re.compile(
    r"[A-Z][a-z]{2} ([A-Z][a-z]{2}) {1,2}(\d{1,2}) (\d\d:\d\d:\d\d)(?: ([AP]M))?(?: [A-Z]{2,5})? (\d{4})$"
)
_AROUND = re.compile(
    r"^[\s#=*>\[(-]{0,12}(?:(?:date|time|timestamp|at|sample|t)(?![a-z])\s?\d{0,3}\s?[:=@]?\s{0,4})?", re.I
)
_NOTED = re.compile(r"^#+ ?([^,;]{15,60}?)(?:[,;]| - ) ?\S")  # # Wed Feb 12 14:20:00 UTC 2025, HDR 4X
_PROMPT = re.compile(r"[\w.-]{1,40}@([a-zA-Z][\w.-]{1,60}?):[^\n]{0,80}?[#$] ")


_LOOK_AT = re.compile(
    r"^\W{0,6}(?=[\w.-]{0,60}\d)([A-Za-z][\w.-]{1,60}?)[:,]? {1,4}(?:20\d\d-\d\d-\d\d[T ])?"
    r"\d\d:\d\d:\d\d\S{0,10}[ :#=*-]{0,8}$",
    re.M,
)


def time_in(line: str) -> float | None:
    """Seconds since the epoch of a line that holds a time and nothing else: what date(1) prints in any usual form.

    A time without a zone counts as UTC: only differences are made of these.
    """
    if len(line) > 90 or not any(c.isdigit() for c in line):
        return None
    text = _AROUND.sub("", line.strip(), count=1).rstrip(" =*-#])")
    if found := _EPOCH.match(text):
        return float(found[1] + (found[2] or ""))
    try:
        if found := _ISO.match(text):
            part = float(f"0.{found[3]}") if found[3] else 0.0
            zone = (found[4] or "").replace("Z", "+00:00").replace("UTC", "+00:00") or "+00:00"
            return datetime.fromisoformat(f"{found[1]}T{found[2]}{zone}").timestamp() + part
        if found := _DATE.match(text):
            form = "%b %d %H:%M:%S %Y" if not found[4] else "%b %d %I:%M:%S %Y"
            moment = datetime.strptime(f"{found[1]} {found[2]} {found[3]} {found[5]}", form).replace(tzinfo=UTC)
            return moment.timestamp() + (43200 if found[4] == "PM" and moment.hour < 12 else 0)
    except ValueError:
        return None
    return None


_TAKEN = re.compile(
    r"^Timestamp {1,60}: ([^\n]{10,40})$|^([A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})\s{0,20}$", re.M
)


def taken_at(text: str) -> float | None:
    """When a tool says at the head of its output that it was asked: nvidia-smi, with -q and without."""
    found = _TAKEN.search(text[:2000])
    return time_in((found[1] or found[2]).strip()) if found else None


def looks(text: str) -> Iterator[tuple[float | None, str]]:
    """(time, text of that look). A line with a time heads what comes after it; where the text begins with no time and
    ends with one, each time stands behind its look."""
    times: list[tuple[int, float]] = []
    lines = text.splitlines()
    if len(lines) > MOST_LINES:
        raise ParseError(f"expected at most {MOST_LINES} lines, found {len(lines)}")
    for place, line in enumerate(lines):
        noted = _NOTED.match(line[:400])
        if (at := time_in(noted[1] if noted else line)) is not None:
            times.append((place, at))
    if not times:
        yield None, text
        return
    behind = bool("\n".join(lines[: times[0][0]]).strip()) and not "\n".join(lines[times[-1][0] + 1 :]).strip()
    begin = 0
    if behind:
        for place, at in times:
            yield at, "\n".join(lines[begin:place])
            begin = place + 1
        return
    if before := "\n".join(lines[: times[0][0]]).strip("\n"):
        yield None, before
    ends = [place for place, _ in times[1:]] + [len(lines)]
    for (place, at), end in zip(times, ends, strict=True):
        own = place if _NOTED.match(lines[place][:400]) else place + 1  # what stands beside a time is said of its look
        if body := "\n".join(lines[own:end]).strip("\n"):
            yield at, body


@functools.lru_cache(maxsize=4)
def _lower(text: str) -> str:
    """One head is asked for words by many tools."""
    return text.lower()


def mentions(text: str, words: tuple[str, ...]) -> bool:
    """Whether one of these words, in lower case, is in the text: what is quick before a pattern is tried."""
    lower = _lower(text)
    return any(word in lower for word in words)


def host_in(text: str) -> str:
    """The host of a shell's prompt, `root@gpu-01:~# ibstat`, or that heads each look: `gpu-01 10:00:02`; "" without."""
    if found := _PROMPT.search(text[:2000]):
        return found[1]
    heads = set(_LOOK_AT.findall(text[:65_536]))
    return heads.pop() if len(heads) == 1 else ""


def whole(text: str) -> int | None:
    """A whole number in decimal or hexadecimal; None where there is none, as with N/A."""
    text = text.strip().replace(",", "")
    try:
        if len(text) > 24:
            return None
        return int(text, 16) if text.lower().startswith("0x") else int(text)
    except ValueError:
        return None


def number(text: str) -> float | None:
    try:
        value = float(text.strip()[:40])
    except ValueError:
        return None
    return value if -1e18 < value < 1e18 else None


def refuse(expected: str, text: str) -> ParseError:
    """What a reader raises when nothing in the text is what the tool prints."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    return ParseError(f"expected {expected}, found {clean(first)[:80]!r}")
