"""quota, lfs quota, mmlsquota, beegfs-ctl --getquota: what somebody may still write.

Source   quota(1), lfs-quota(1), mmlsquota of IBM Storage Scale, beegfs-ctl; at the hard limit writes fail with EDQUOT
Units    as printed: only whether the limit is reached is taken
Shape    facts host.quota
Errors   ParseError when no row is understood
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from probes.core import Finding, clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import refuse

REACHED = 0.999  # of the limit: it is rounded in print
MOST_OWNERS = 3  # judgement: a report of all users tells little of the job's own
_HEAD = re.compile(
    r"[Dd]isk quotas for (?:usr|user|grp|group|prj|project) |Block Limits\s{1,60}\|\s{1,60}File Limits"
    r"|user/group\s{1,20}\|\|"
    r"|^\s{0,20}Filesystem\s{1,30}(?:used|space|blocks|KB|kbytes)\s{1,20}quota\s{1,20}limit", re.M,
)  # fmt: skip
_AMOUNT = re.compile(r"\[?(\d{1,15}(?:\.\d{1,4})?)([kKMGTPE]?)i?B?\]?\*?")
_UNITS = {"": 1.0, "K": 2.0**10, "M": 2.0**20, "G": 2.0**30, "T": 2.0**40, "P": 2.0**50, "E": 2.0**60}


@dataclass(frozen=True, slots=True)
class Quotas:
    """File systems, as printed, where a limit is reached; `seen`: all rows."""

    reached: tuple[str, ...]
    seen: int


def _fits(head: str, name: str) -> bool:
    return bool(_HEAD.search(head[:8192]))


def read(text: str) -> Quotas:
    reached: list[str] = []
    seen, pending = 0, ""
    beegfs = "user/group" in text[:8192]
    for raw in lines_of(text[:262_144], 600):
        line = pending + raw.strip()
        pending = ""
        words = re.sub(r"(?<=\d) (?=[KMGTPE]iB)", "", line.replace("||", " | ")).replace("|", " ").split()
        if len(words) == 1 and "/" in words[0]:
            pending = line + " "  # a long name has its row below it
            continue
        limits = _limits(words, 2 if beegfs else 3)
        if limits:
            seen += 1
            if any(limit > 0 and used >= REACHED * limit for used, limit in limits):
                reached.append(clean(words[0])[:120])
    if not seen:
        raise refuse("quota, lfs quota or mmlsquota", text)
    return Quotas(tuple(reached[:200]), seen)


def _limits(words: list[str], each: int) -> list[tuple[float, float]]:
    """(used, hard limit) of space, and of files: `used quota limit`, with a grace or more between the two."""
    amounts = [_amount(word) for word in words[1:]]
    found = []
    at = 0
    while at + each <= len(amounts):
        group = amounts[at : at + each]
        used, hard = group[0], group[-1]
        if used is not None and hard is not None and (each == 2 or group[1] is not None):
            found.append((used, hard))
            at += each
        else:
            at += 1
    return found[:2]


def _amount(word: str) -> float | None:
    found = _AMOUNT.fullmatch(word)
    return float(found[1]) * _UNITS[found[2].upper()] if found else None


def _findings(quotas: Quotas) -> Iterable[Finding]:
    if quotas.reached and quotas.seen <= MOST_OWNERS:
        yield Finding("host.quota_reached", "bad", f"the quota on {quotas.reached[0]} is used up: writes to it fail")


TOOL = Tool("quota", "host.quota", _fits, read, _findings)
