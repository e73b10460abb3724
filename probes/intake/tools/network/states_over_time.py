"""States of one port again and again, as a loop prints them: with a time in each line, or a line of date(1) before.

    02:02:00 gpu-7 mlx5_1 State: Down            Mon Nov 30 02:02:00 UTC 2026
    02:03:00 gpu-7 mlx5_1 State: Active          State: Down

Told as a counter of how often the port went down from one look to the next; what it is at last is not told.
Shape    Counters with link_downed at the first and at the last look; ParseError where no port went down and came back
"""

from __future__ import annotations

import re
from dataclasses import replace

from probes.catalog.network.net_facts import Counters, CounterSet
from probes.core import lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse
from probes.intake.tools.network._counter_sets import Where, seen_in
from probes.intake.tools.network.perfquery import quiet
from probes.intake.when import moment_in

_STATE = re.compile(
    r"(?:(?<![\w.])[1-5]: ?|\b[Ss]tate\"?\s{0,4}[:=]\s{0,8}\"?)(?:PORT_)?(DOWN|ACTIVE|INIT|Down|Active)\b"
)
_CLOCK = re.compile(r"(?<![\d.:])(\d\d):(\d\d):(\d\d)(?![\d:])")
FEWEST = 4  # looks; judgement: two or three are the looks of somebody who checks again
Looked = dict[tuple[str, str, int], list[tuple[float, bool]]]


def fits(head: str, name: str) -> bool:
    return len(_STATE.findall(head[:65_536])) >= FEWEST and any(_falls(one) for one in _looks(head[:65_536]).values())


def read(text: str) -> Counters:
    sets = []
    for (node, hca, port), looks in _looks(text[:8_388_608]).items():
        if downs := _falls(looks):
            for (at, _), count in ((looks[0], 0), (looks[-1], downs)):
                sets.append(CounterSet("hca", hca, port, {"link_downed": count}, at, node=node))
    if not sets:
        raise refuse("a port that went down and came back", text)
    return Counters(tuple(sets))


def _looks(text: str) -> Looked:
    found: Looked = {}
    now: float | None = None
    for line in lines_of(text, 400):
        at = _time(line)
        now = at if at is not None else now
        state = _STATE.search(line)
        if state is None or now is None:
            continue
        where = seen_in(line, Where(), frozenset())
        node = where.node or (where.label if any(c.isdigit() for c in where.label) else "")
        key = node, where.name if where.kind == "hca" else "", where.port or 1
        found.setdefault(key, []).append((now, state[1].upper() == "ACTIVE"))
    return found


def _time(line: str) -> float | None:
    """With its day, or only the time of the day."""
    if (at := moment_in(line)) is not None:
        return at
    clock = _CLOCK.search(line[:60])
    return int(clock[1]) * 3600.0 + int(clock[2]) * 60 + int(clock[3]) if clock else None


def _falls(looks: list[tuple[float, bool]]) -> int:
    """How often it went down, of a port that is up at last."""
    if len(looks) < FEWEST or not looks[-1][1]:
        return 0
    return sum(a and not b for (_, a), (_, b) in zip(looks, looks[1:], strict=False))


def named(facts: Counters, path: str) -> Counters:
    """The adapter by the command or the file's name, where the lines do not tell it."""
    found = re.search(r"(?:mlx\d|bnxt_re)_?\d{1,3}(?!\d)", path.rpartition("/")[2])
    return Counters(tuple(one if one.name or found is None else replace(one, name=found[0]) for one in facts.sets))


TOOL = Tool("states over time", "ib.counters", fits, read, quiet, host_in, named)
