"""mmdiag --waiters: for how long threads of IBM Storage Scale (GPFS) wait, and for what.

Source   mmdiag(8); IBM's documentation of waiters: those of minutes tell that something does not answer
Shape    facts host.gpfs
Errors   ParseError when it has neither a waiter nor the heading
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from probes.core import Finding, clean
from probes.intake.tools import Tool
from probes.intake.tools._text import refuse

LONG_S = 60.0  # judgement: a request is answered in less, also under load
_HEAD = re.compile(r"^\s{0,8}=== mmdiag: waiters ===", re.M)
_WAITER = re.compile(
    r"^\s{0,8}(?:0x[0-9A-F]{4,20} \([^)]{1,40}\) )?[Ww]ait(?:ing|ed) (\d{1,9}\.\d{1,9}) sec(?:onds)?[^\n]{0,160}?"
    r"(?:reason '([^']{1,160})'|(for [^\n]{1,160}))", re.M,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Waiters:
    """The longest first: (seconds, what for)."""

    waiters: tuple[tuple[float, str], ...]


def _fits(head: str, name: str) -> bool:
    return bool(_HEAD.search(head[:16384])) or len(_WAITER.findall(head[:16384])) > 1


def read(text: str) -> Waiters:
    found = [(float(seconds), clean(reason or what)) for seconds, reason, what in _WAITER.findall(text[:4_194_304])]
    if not found and not _HEAD.search(text[:16384]):
        raise refuse("mmdiag --waiters", text)
    return Waiters(tuple(sorted(found, reverse=True)[:1000]))


def _findings(facts: Waiters) -> Iterable[Finding]:
    long = [one for one in facts.waiters if one[0] > LONG_S]
    if long:
        says = f"{len(long)} threads of GPFS wait, the longest for {long[0][0] / 60:.0f} min: {long[0][1][:100]}"
        yield Finding("host.disk_silent", "bad", says)


TOOL = Tool("mmdiag", "host.gpfs", _fits, read, _findings)
