"""Summaries of CUDA calls: nsys stats (cuda_api_sum, also as CSV and of older versions) and torch.profiler's table.

    Time (%)  Total Time (ns)  Num Calls   Avg (ns)  ...  Name
        68.1   41,220,918,331     81,900   503,308.0 ...  cudaStreamSynchronize

                         Name    Self CPU %      Self CPU   CPU total %     CPU total  CPU time avg    # of Calls
              aten::item             0.10%       1.000ms        45.00%     450.000ms       1.000ms           450

Source: NVIDIA Nsight Systems user guide (stats reports); torch/autograd/profiler_util.py
Units   ns
Errors  ParseError where no call of CUDA stands in it
"""

from __future__ import annotations

import csv
import re

from probes.catalog.stacks.cuda_calls import CudaCalls
from probes.core import Finding, clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, mentions, number, refuse

_HEAD = re.compile(r"Time ?\(%\).{1,40}Total Time(?: ?\(ns\))?.{1,40}(?:Num )?(?:Calls|Instances)", re.I)
_ROW = re.compile(
    r"^\s{0,12}(\d{1,3}\.\d{1,2})\s{1,12}([\d,]{1,26})\s{1,12}([\d,]{1,16})\s.{0,200}?\s(cu[A-Za-z]\w{3,60})\s*$"
)
_TORCH = re.compile(r"\bName\s{1,200}Self CPU %\s{1,8}Self CPU\s{1,12}CPU total %")
_TIME = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)(ns|us|μs|ms|s)$")
_NS = {"ns": 1.0, "us": 1e3, "μs": 1e3, "ms": 1e6, "s": 1e9}
_DEVICE = re.compile(r"Self (?:CUDA|XPU|HIP|device) time total: (\d{1,12}(?:\.\d{1,6})?)(ns|us|μs|ms|s)\b", re.I)
_WALL = re.compile(r"Self CPU time total: (\d{1,12}(?:\.\d{1,6})?)(ns|us|μs|ms|s)\b")
SYNC = re.compile(
    r"(?:cuda|cu|hip)(?:Stream|Device|Event|Ctx)Synchronize(?:_\w{1,8})?|aten::item|aten::_local_scalar_dense"
)
COPY = re.compile(r"(?:cuda|cu|hip)Memcpy\w{0,30}")
LAUNCH = re.compile(r"(?:cuda|cu|hip)LaunchKernel\w{0,12}|(?:cuda|cu|hip)GraphLaunch\w{0,12}")
# As somebody writes them down: the call, its share, its time and how often, in any order.
_CALL = re.compile(
    r"(?<![\w.])((?:cuda|hip)[A-Z]\w{3,60}|cu(?:Stream|Ctx|Event|Launch|Memcpy)\w{1,60}|aten::(?:item|_local_scalar_dense))"
)
_SHARE = re.compile(r"(?<![\w.])(\d{1,3}(?:\.\d{1,3})?) ?%")
_OFTEN = re.compile(r"(?<![\w.])(\d{1,12}) ?(?:calls|times|x)\b|(?<![\w.,:])(\d{2,12})\s{0,4}\|?\s{0,4}$", re.I)
LEAST_CALLS = 3  # judgement: a table of them, no remark on one


def _retyped(text: str) -> list[tuple[str, float, int]]:
    """Of each call its time, or where that is not told its share."""
    found: dict[str, tuple[float | None, float, int]] = {}
    lines = [line for line in lines_of(text[:65_536], 600) if line.strip()]
    if _PSTATS.search(text[:65_536]):
        return _of_python(lines)
    for line in lines:
        named = _CALL.search(line)
        if named is None or not (share := _SHARE.search(line)):
            continue
        times = [float(one[1]) * _NS[one[2]] for one in _SPENT.finditer(line)]
        often = _OFTEN.search(line)
        count = int(next(part for part in often.groups() if part)) if often else 0
        found.setdefault(named[1], (times[0] if times else None, float(share[1]), count))
    if len(found) < LEAST_CALLS or 2 * len(found) < len(lines):
        return []
    timed = all(one[0] is not None for one in found.values())
    # Of torch's operators their own time is little: what they wait in is a call of CUDA beside them.
    rows = {name: one for name, one in found.items() if not name.startswith("aten::")} or found
    return [(name, (one[0] or 0.0) if timed else one[1] * 1e7, one[2]) for name, one in rows.items()]


_PSTATS = re.compile(r"ncalls\s{1,12}tottime\s{1,12}percall\s{1,12}cumtime\s{1,12}percall\s{1,12}filename:lineno")
_METHOD = re.compile(
    r"\s{0,12}(\d{1,12})(?:/\d{1,12})?\s{1,12}(\d{1,9}\.\d{1,6})\s{1,12}[\d.]{1,12}\s{1,12}[\d.]{1,12}\s{1,12}[\d.]{1,12}\s{1,12}(\S.{0,200})"
)
_WAITS = re.compile(
    r"method '(?:item|cpu|tolist|numpy|__bool__|__float__)' of 'torch\._C|_cuda_synchronize|cuda\.synchronize"
)


def _of_python(lines: list[str]) -> list[tuple[str, float, int]]:
    """Python's own profiler: the time in the methods of a tensor that wait for its device, beside all other time."""
    rows = [row for line in lines if (row := _METHOD.fullmatch(line))]
    if not any(_WAITS.search(row[3]) for row in rows):
        return []
    return [("aten::item" if _WAITS.search(row[3]) else "other", float(row[2]) * 1e9, int(row[1])) for row in rows]


_SPENT = re.compile(r"(?<![\w.])(\d{1,12}(?:\.\d{1,6})?) ?(ns|us|μs|ms|s)(?=[\s,;|]|$)")


def fits(head: str, name: str) -> bool:
    if _retyped(head):
        return True
    if not mentions(head, ("self cpu", "time(%)", "time (%)")):
        return False
    if _TORCH.search(head):
        return True
    return bool(_HEAD.search(head)) and any(
        word in head for word in ("cudaLaunchKernel", "cuLaunchKernel", "Synchronize")
    )


def read(text: str) -> CudaCalls:
    rows = list(_torch_rows(text)) if _TORCH.search(text[:262_144]) else list(_nsys_rows(text))
    rows = rows or _retyped(text)
    calls: dict[str, tuple[float, int]] = {}
    for name, spent, count in rows:
        kind = next((key for key, pattern in _KINDS if pattern.fullmatch(name)), "other")
        total, many = calls.get(kind, (0.0, 0))
        calls[kind] = (total + spent, many + count)
    if not calls:
        raise refuse("rows of CUDA calls as nsys stats or torch.profiler print them", text)
    syncs = [(spent, name) for name, spent, _ in rows if SYNC.fullmatch(name)]
    waits, launches, copies = (calls.get(kind, (0.0, 0)) for kind in ("sync", "launch", "copy"))
    total = sum(spent for spent, _ in calls.values())
    most = clean(max(syncs)[1])[:60] if syncs else ""
    device, wall = (_told(pattern, text) for pattern in (_DEVICE, _WALL))
    return CudaCalls(
        round(total), round(waits[0]), waits[1], launches[1], copies[1], most, device, wall, round(copies[0])
    )


def _told(pattern: re.Pattern[str], text: str) -> int:
    """The time of the last such line below a table, 0 without."""
    found = pattern.findall(text[:4_194_304])
    return round(float(found[-1][0]) * _NS[found[-1][1]]) if found else 0


_KINDS = (("sync", SYNC), ("copy", COPY), ("launch", LAUNCH))


def _nsys_rows(text: str) -> list[tuple[str, float, int]]:
    found = []
    for line in lines_of(text, 1000):
        if row := _ROW.match(line):
            found.append((row[4].split("_v")[0], float(row[2].replace(",", "")), int(row[3].replace(",", ""))))
        elif line.count(",") > 5 and line[:1].isdigit():
            cells = next(csv.reader([line]))
            spent, count = number(cells[1]), number(cells[2])
            if spent is not None and count is not None and cells[-1].startswith("cu"):
                found.append((cells[-1].split("_v")[0], spent, int(count)))
        if len(found) > 4096:
            break
    return found


def _torch_rows(text: str) -> list[tuple[str, float, int]]:
    """Of torch's table the own time of each call of CUDA."""
    found = []
    for line in lines_of(text, 2000):
        words = line.split()
        if len(words) < 6 or not words[-1].isdecimal():
            continue
        name = words[0]
        times = [float(one[1]) * _NS[one[2]] for word in words[1:] if (one := _TIME.match(word))]
        if times and name.startswith(("cuda", "cu", "hip")):
            found.append((name, times[0], int(words[-1])))
    return found


def findings(facts: CudaCalls) -> list[Finding]:
    if not facts.total_ns:
        return []
    share = 100 * facts.sync_ns / facts.total_ns
    return [
        Finding("rank.cuda_calls", "info", f"{share:.0f} % of the time in CUDA calls is waiting for the device", {})
    ]


TOOL = Tool("CUDA calls", "rank.cuda_calls", fits, read, findings, host_in, log=True)
