"""Kernels of one GPU one by one, with their streams: what runs beside a collective that was launched before it.

    Start (ns),Duration (ns),CorrId,...,Strm,Name            nsys stats --report cuda_gpu_trace (CSV or table)
    "Start","Duration",...,"Stream","Name","Correlation_ID"  nvprof --print-gpu-trace --csv, units in the next row
    {"traceEvents": [{"cat": "kernel", "ts":, "dur":, "args": {"stream": 7}}]}   torch.profiler, units of microseconds

Source: NVIDIA Nsight Systems user guide (stats reports); nvprof's user guide; torch.profiler's Chrome traces (Kineto)
Units   ns
Errors  ParseError where it holds no kernel with a stream
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from probes.catalog.ranks.replica_facts import Beside, KernelTrace
from probes.core import Finding, ParseError, clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, number, refuse

MOST_KERNELS, MOST_PAIRS, NEXT = 400_000, 64, 6  # NEXT: kernels of other streams that are looked at after a collective
_HEADS = {"start": "start", "duration": "duration", "corrid": "order", "correlation_id": "order", "strm": "stream",
    "stream": "stream", "name": "name"}  # fmt: skip
_CSV = re.compile(r'^"?Start(?: ?\([a-zμ]{1,6}\))?"?,"?Duration(?: ?\([a-zμ]{1,6}\))?"?,[^\n]{0,600}"?Name"?', re.M)
_TABLE = re.compile(r"^\s{0,20}Start \([a-zμ]{1,6}\)\s{1,20}Duration \([a-zμ]{1,6}\)\s[^\n]{0,400}\sName\s*$", re.M)
_CHROME = re.compile(r'"traceEvents"')
_NO_DEVICE = re.compile(r'"deviceProperties"\s{0,4}:\s{0,4}\[\s{0,40}\]')  # torch.profiler on a CPU
_UNIT = re.compile(r"\(([a-zμ]{1,6})\)")
_NS = {"ns": 1.0, "nsec": 1.0, "us": 1e3, "μs": 1e3, "ms": 1e6, "s": 1e9, "sec": 1e9}
_COLLECTIVE = re.compile(
    r"(?:nccl|rccl|msccl)\w{0,30}?_?(AllReduce|AllGather|ReduceScatter|Broadcast|Reduce|AllToAll)", re.I
)
# Kernels that change parameters, or read all of them: optimizers, averages, copies.
_UPDATE = re.compile(
    r"multi_tensor|adam|sgd|lamb|lion|adafactor|muon|optim|\bema|_ema|ema_|update|foreach|lerp|addcdiv|addcmul|axpby",
    re.I,
)


class _Kernel(NamedTuple):
    start: float
    end: float
    order: float  # in which it was launched
    stream: str
    name: str


def fits(head: str, name: str) -> bool:
    if head.lstrip()[:1] in "[{":
        return bool(_CHROME.search(head)) and not _NO_DEVICE.search(head)
    return bool((_CSV.search(head) or _TABLE.search(head)) and ("Strm" in head or "Stream" in head))


def read(text: str) -> KernelTrace:
    if text.lstrip()[:1] == "{":
        kernels = list(_chrome(text))
    elif _CSV.search(text[:262_144]):
        kernels = list(_rows(text))
    else:
        kernels = list(_table(text))
    if not kernels:
        raise refuse("kernels with their streams, as nsys, nvprof or torch.profiler list them", text)
    kernels.sort(key=lambda one: one.start)
    collectives = [one for one in kernels if _COLLECTIVE.search(one.name)]
    return KernelTrace(len(kernels), len(collectives), tuple(_pairs(kernels, collectives))[:MOST_PAIRS])


def _pairs(kernels: list[_Kernel], collectives: list[_Kernel]) -> Iterator[Beside]:
    """What was launched after a collective and before the next one, on other streams: within it, or after its end."""
    launched = sorted(kernels, key=lambda one: one.order)
    place = {id(one): at for at, one in enumerate(launched)}
    inside: Counter[tuple[str, str]] = Counter()
    after: Counter[tuple[str, str]] = Counter()
    for one in collectives:
        kind = _kind(one)
        seen: set[str] = set()
        for other in launched[place[id(one)] + 1 : place[id(one)] + 1 + NEXT]:
            if _COLLECTIVE.search(other.name):
                break
            if other.stream == one.stream or other.name in seen or other.order == one.order:
                continue
            seen.add(other.name)
            begins_within = one.start < other.start < one.end
            (inside if begins_within else after)[kind, other.name] += 1
    for kind, name in dict.fromkeys((*inside, *after)):
        yield Beside(kind, name, inside[kind, name], after[kind, name], bool(_UPDATE.search(name)))


def _kind(kernel: _Kernel) -> str:
    found = _COLLECTIVE.search(kernel.name)
    return found[1] if found else ""


def _kernel(told: dict[str, str], units: dict[str, float], at: int) -> _Kernel | None:
    start, duration = number(told.get("start", "").replace(",", "")), number(told.get("duration", "").replace(",", ""))
    stream, name = told.get("stream", ""), told.get("name", "")
    if start is None or duration is None or not stream or not name or name.startswith("[CUDA mem"):
        return None
    order = number(told.get("order", "").replace(",", ""))
    begin, length = start * units.get("start", 1.0), duration * units.get("duration", 1.0)
    return _Kernel(begin, begin + length, order if order is not None else float(at), stream[:40], clean(name)[:160])


def _columns(heads: list[str]) -> tuple[list[str], dict[str, float]]:
    keys, units = [], {}
    for head in heads:
        key = _HEADS.get(_UNIT.sub("", head).strip().lower(), "")
        keys.append(key)
        if key and (unit := _UNIT.search(head)):
            units[key] = _NS.get(unit[1], 1.0)
    return keys, units


def _rows(text: str) -> Iterator[_Kernel]:
    keys: list[str] = []
    units: dict[str, float] = {}
    lines = list(lines_of(text, 4_000))
    for at, line in enumerate(lines[:MOST_KERNELS]):
        if _CSV.match(line):
            keys, units = _columns(next(csv.reader([line])))
            continue
        if not keys or line.count(",") < 3:
            continue
        try:
            cells = next(csv.reader([line]))
        except csv.Error:
            continue
        told = {key: cell.strip() for key, cell in zip(keys, cells, strict=False) if key}
        if told.get("start") in _NS and told.get("duration") in _NS:  # nvprof's row of units
            units = {key: _NS[told[key]] for key in ("start", "duration")}
        elif one := _kernel(told, units, at):
            yield one


def _table(text: str) -> Iterator[_Kernel]:
    lines = list(lines_of(text, 4_000))
    for at, line in enumerate(lines[:-1]):
        if not _TABLE.match(line) or not set(lines[at + 1].strip()) <= {"-", " "}:
            continue
        spans = [one.span() for one in re.finditer(r"-{1,400}", lines[at + 1])]
        ends = [end for _, end in spans[:-1]] + [4_000]
        begins = [0, *ends[:-1]]
        keys, units = _columns([line[begin:end].strip() for begin, end in zip(begins, ends, strict=True)])
        for row in range(at + 2, min(len(lines), at + 2 + MOST_KERNELS)):
            if not lines[row].strip():
                break
            cells = [lines[row][begin:end].strip() for begin, end in zip(begins, ends, strict=True)]
            if one := _kernel({key: cell for key, cell in zip(keys, cells, strict=True) if key}, units, row):
                yield one
        return


def _chrome(text: str) -> Iterator[_Kernel]:
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        raise ParseError("expected a whole trace of torch.profiler, found JSON that ends too early") from None
    events = said.get("traceEvents") if isinstance(said, dict) else None
    for at, event in enumerate(events[:2_000_000] if isinstance(events, list) else ()):
        if not isinstance(event, dict) or event.get("cat") not in ("kernel", "Kernel"):
            continue
        args = event.get("args")
        args = args if isinstance(args, dict) else {}
        start, length, order = (_plain(one) for one in (event.get("ts"), event.get("dur"), args.get("correlation", at)))
        stream = args.get("stream", event.get("tid"))
        if start is None or length is None or order is None or stream is None:
            continue
        name = clean(str(event.get("name")))[:160]
        yield _Kernel(start * 1e3, (start + length) * 1e3, order, str(stream)[:40], name)


def _plain(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and abs(value) < 1e18 else None


def findings(facts: KernelTrace) -> list[Finding]:
    return []


TOOL = Tool("kernel trace", "gpu.kernel_trace", fits, read, findings, host_in)
