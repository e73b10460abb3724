"""Credentials that munge refused, with the times at both ends: slurmd's log, slurmctld's, and unmunge.

Slurm prints when a credential was made and when it was looked at, each by the clock of its own node. Where all of them
lie equally far apart, they did not wait on their way: the clocks differ.

Source   slurm (plugins/auth/munge: _print_cred), unmunge(1)
Shape    facts of host.clock: the node that looked at them against the one that made them
Errors   ParseError when no pair of times is in it
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from probes.catalog.host_clock import Clock
from probes.core import ParseError
from probes.intake.tools import Tool
from probes.intake.tools._text import mentions

SAME_S = 5.0  # judgement: credentials that wait in a queue wait for different times
_STAMP = r"([A-Z][a-z]{2} [A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:\d\d \d{4}|[^\n]{0,40}?\((\d{9,11})\))"
_MADE = re.compile(r"\bENCODED?(?:_TIME)?: {1,12}" + _STAMP)
_SEEN = re.compile(r"\bDECODED?(?:_TIME)?: {1,12}" + _STAMP)
_REFUSED = re.compile(r"(?:Expired|Rewound|Replayed) credential", re.I)


def _fits(head: str, name: str) -> bool:
    return mentions(head, ("munge", "credential")) and bool(
        _REFUSED.search(head) and _MADE.search(head) and _SEEN.search(head)
    )


def read(text: str) -> Clock:
    made, seen = ([_seconds(one) for one in form.finditer(text[:4_194_304])] for form in (_MADE, _SEEN))
    gaps = [
        after - before for before, after in zip(made, seen, strict=False) if before is not None and after is not None
    ]
    if not gaps:
        raise ParseError("expected times at which a credential was made and looked at, found none")
    alike = max(gaps) - min(gaps) <= SAME_S and (len(gaps) > 1 or gaps[0] < 0 or "ENCODE_HOST" in text)
    return Clock(None, None, None, "munge", None, gaps[-1] if alike else None)


def _seconds(found: re.Match[str]) -> float | None:
    if found[2]:
        return float(found[2])
    try:
        return datetime.strptime(" ".join(found[1].split()), "%a %b %d %H:%M:%S %Y").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


TOOL = Tool("munge", "host.clock", _fits, read, log=True)
