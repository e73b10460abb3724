"""DeepSpeed's communication logger: time and bus bandwidth of collectives by operation and size.

Source   deepspeed/utils/comms_logging.py: a line for each call with `verbose`, and the table of log_summary()
Units    ms, Gb/s as DeepSpeed prints them; sizes in its KB, MB and GB, which are of 1024
Errors   ParseError where there is neither a row nor a line
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from probes.catalog.stacks.operator_facts import CommsLog, LoggedCollective
from probes.core import clean
from probes.intake.tools import Tool
from probes.intake.tools._text import refuse

MOST = 400  # kinds that are kept
_HEAD = re.compile(r"Comm\. Op\s{1,40}Message Size\s{1,40}Count\s{1,40}Total Latency\(ms\)")
_N, _SIZE = r"\d{1,14}(?:\.\d{1,6})?", r"(\d{1,12}(?:\.\d{1,6})?) ?([KMGT]?B)"
_LINE = re.compile(
    rf"comm op: (\w{{2,60}})[^|\n]{{0,80}}\| time \(ms\): ({_N}) \| msg size: {_SIZE}"
    rf" \| algbw \(Gbps\): {_N} {{1,4}}\| busbw \(Gbps\): ({_N})"
)
_OP = re.compile(r"([a-z]\w{2,60})(?: \| \[Caller Func: [^\]\n]{0,200}\])?")
_ROW = re.compile(rf"{_SIZE}\s{{1,40}}(\d{{1,12}})\s{{1,40}}{_N}\s{{1,40}}({_N})\s{{1,40}}{_N}\s{{1,40}}({_N})")
_SIZES = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}


def fits(head: str, name: str) -> bool:
    return _HEAD.search(head) is not None or _LINE.search(head) is not None


def read(text: str) -> CommsLog:
    kinds: dict[tuple[str, int], list[tuple[int, float, float]]] = {}  # (operation, bytes) -> (calls, ms, Gb/s)
    for op, size, count, took, speed in _told(text):
        kinds.setdefault((op, size), []).append((count, took, speed))
    if not kinds:
        raise refuse("rows of DeepSpeed's log_summary(), or its lines `comm op:`", text)
    found = []
    for (op, size), rows in list(kinds.items())[:MOST]:
        total = sum(calls for calls, _, _ in rows)
        weight = max(total, 1)
        ms = sum(calls * took for calls, took, _ in rows) / weight
        gbps = sum(calls * speed for calls, _, speed in rows) / weight
        found.append(LoggedCollective(clean(op)[:60], size, total, round(ms, 4), round(gbps, 3)))
    return CommsLog(tuple(found))


def _told(text: str) -> Iterator[tuple[str, int, int, float, float]]:
    op, table = "", False
    for line in text.splitlines():
        if one := _LINE.search(line):
            yield one[1], _bytes(one[3], one[4]), 1, float(one[2]), float(one[5])
        elif _HEAD.search(line):
            op, table = "", True
        elif table and (row := _ROW.fullmatch(line.strip())):
            if op:
                yield op, _bytes(row[1], row[2]), int(row[3]), float(row[4]), float(row[5])
        elif table:
            named = _OP.fullmatch(line.strip())
            op, table = (named[1], True) if named else ("", False)


def _bytes(number: str, unit: str) -> int:
    return round(float(number) * _SIZES[unit])


TOOL = Tool("communication log", "rank.comms_log", fits, read, lambda facts: (), log=True)
