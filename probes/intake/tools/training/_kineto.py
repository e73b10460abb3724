"""The events of a trace that torch.profiler wrote for Chrome's viewer: what took how long, by category.

Kineto writes an event's keys in one order, so that a trace of any length is read without decoding it as a whole.
Source   libkineto/src/output_json.cpp; torch/profiler (export_chrome_trace)
Units    microseconds, as in the trace
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

MOST, MOST_DETAILED = 2_000_000, 500_000  # events; the second for readers that keep each in memory
COLLECTIVE = '"Collective name"'
_FORM = (
    r'"ph":\s{0,4}"X",\s{0,40}"cat":\s{0,4}"([^"\n]{0,60})",\s{0,40}"name":\s{0,4}"((?:[^"\\\n]|\\.){0,400})",\s{0,40}'
    r'"pid":\s{0,4}"?([^",\n]{1,60})"?,\s{0,40}"tid":\s{0,4}("?[^",\n]{1,60}"?),\s{0,40}'
    r'"ts":\s{0,4}(\d{1,20}(?:\.\d{1,9})?),\s{0,40}"dur":\s{0,4}(\d{1,16}(?:\.\d{1,9})?)'
)
_EVENT = re.compile(_FORM)
_DETAILED = re.compile(_FORM + r'(?:,\s{0,40}"args":\s{0,4}\{([^{}]{0,4000})\})?')
_MEMORY = re.compile(
    r'"name":\s{0,4}"\[memory\]",\s{0,40}"pid":\s{0,4}"?[^",\n]{1,60}"?,\s{0,40}"tid":\s{0,4}("?[^",\n]{1,60}"?),'
    r'\s{0,40}"ts":\s{0,4}(\d{1,20}(?:\.\d{1,9})?)\s{0,40},\s{0,40}"args":\s{0,4}\{([^{}]{0,1000})\}'
)
_BYTES = re.compile(r'"Bytes":\s{0,4}(-?\d{1,18})\b(?:[^{}]{0,200}?"Device Type":\s{0,4}(\d{1,3}))?')
_ID = re.compile(r'"External id":\s{0,4}(\d{1,18})', re.I)
CPU = 0  # c10::DeviceType
_RANK = re.compile(r'"distributedInfo":\s{0,4}\{[^}]{0,400}?"rank":\s{0,4}(\d{1,7})\b')

_HOST = re.compile(r'"host_name":\s{0,4}"([A-Za-z][\w.-]{0,80})"')


@dataclass(frozen=True, slots=True)
class Event:
    kind: str  # lower case: cuda_runtime, kernel, cpu_op, user_annotation, gpu_memcpy, ...
    name: str
    thread: str
    at: float
    took: float
    pid: int | None = None
    id: str = ""  # the same for an operator and the work on the device which it started
    args: str = ""  # as they stand in the trace, of a collective


def is_trace(head: str) -> bool:
    return head.lstrip()[:1] == "{" and ('"traceEvents"' in head or ('"schemaVersion"' in head[:400] and '"X"' in head))


def rank_in(text: str) -> int | None:
    found = _RANK.search(text[:65_536])
    return int(found[1]) if found else None


def host_in_trace(text: str) -> str:
    """The node that newer versions name."""
    found = _HOST.search(text[:65_536])
    return "" if found is None or found[1].startswith("localhost") else found[1].partition(".")[0]


def events(text: str) -> Iterator[Event]:
    for count, one in enumerate(_EVENT.finditer(text)):
        if count >= MOST:
            return
        yield Event(one[1].lower(), one[2], one[4], float(one[5]), float(one[6]))


def detailed(text: str) -> Iterator[Event]:
    """With what costs more time to read."""
    for count, one in enumerate(_DETAILED.finditer(text)):
        if count >= MOST_DETAILED:
            return
        pid = int(one[3]) if one[3].isdecimal() and len(one[3]) < 10 else None
        args = one[7] or ""
        told = _ID.search(args)
        about = args if COLLECTIVE in args else ""
        yield Event(one[1].lower(), one[2], one[4], float(one[5]), float(one[6]), pid, told[1] if told else "", about)


def allocations(text: str) -> list[tuple[float, str, int]]:
    """(time, thread, bytes) of each allocation and each release, which is below zero: of the devices, or of the CPU
    where the trace holds no device."""
    found: dict[bool, list[tuple[float, str, int]]] = {True: [], False: []}
    for count, one in enumerate(_MEMORY.finditer(text)):
        if count >= MOST:
            break
        if told := _BYTES.search(one[3]):
            found[int(told[2] or CPU) == CPU].append((float(one[2]), one[1], int(told[1])))
    return found[False] or found[True]


def covered(spans: list[tuple[float, float]]) -> float:
    """How long at least one of the spans (begin, length) lasts."""
    total, end = 0.0, 0.0
    for begin, length in sorted(spans):
        total += max(begin + length - max(begin, end), 0.0)
        end = max(end, begin + length)
    return total
