"""`perf report --stdio` and `perf top --stdio`: shares of samples by library and function.

    # Overhead  Command          Shared Object           Symbol
        39.77%  python3.10       libiomp5.so             [.] __kmp_hyper_barrier_release
    # Children      Self  Command  Shared Object  Symbol
        86.40%     0.02%  python3          _packer.cpython-311-x86_64-linux-gnu.so  [.] packer::BinPacker::pack

Source  perf-report(1), perf-top(1); libgomp and LLVM's openmp hold the runtime only, no work of the program
Units   percent
Errors  ParseError without rows
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from probes.catalog.stacks.perf_shares import PerfShares
from probes.core import Finding, clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse

_HEAD = re.compile(r"^# (?:Overhead|Children)\s{1,8}[^\n]{0,80}(?:Symbol|Shared Object)|^\s{0,4}PerfTop:", re.M)
_ROW = re.compile(
    r"\s{0,8}(\d{1,3}\.\d{1,2})%\s{1,8}(?:(\d{1,3}\.\d{1,2})%\s{1,8})?([^\n]{0,300}?)\[([.kgHu])\]\s([^\n]{1,400})"
)
_OPENMP = re.compile(r"lib(?:g|i|)omp\d{0,2}[.-]|libiomp5|libomp\.")
_EXTENSION = re.compile(r"[\w.-]{1,80}(?:\.cpython-\d{2,3}[\w-]{0,40}|\.abi3|_ext|_C)?\.so(?:\.\d{1,3}){0,3}")
_NOT_THEIRS = re.compile(r"lib(?:torch|c10|python|c\.|c-|pthread|m\.|m-|stdc|cuda|nv|cu|gomp|iomp|omp|mkl|gcc|ffi)|ld-")
_CALLS_BACK = re.compile(
    r"PyGILState_Ensure|_CallPythonObject|closure_fcn|ffi_closure"
    r"|pybind11::(?:object|function|handle|detail::(?:simple|unpacking|object_api))"
    r"|boost::python::call|nanobind::detail::(?:obj_vectorcall|api)"
)
_EVALUATES = re.compile(r"_?PyEval_EvalFrame")
LEAST = 30.0  # percent below an extension, of which most is Python again; judgement
LEAST_PYTHON, LEAST_OWN, LEAST_CALL = 20.0, 10.0, 3.0  # percent of their own, without what lies below; judgement


@dataclass(frozen=True, slots=True)
class _Row:
    whole: float
    own: float
    library: str
    symbol: str


def fits(head: str, name: str) -> bool:
    return bool(_HEAD.search(head)) and sum(bool(_ROW.fullmatch(line)) for line in list(lines_of(head, 800))[:200]) > 1


def read(text: str) -> PerfShares:
    rows = []
    for line in list(lines_of(text, 800))[:20_000]:
        if (found := _ROW.fullmatch(line)) is not None:
            library = next((word for word in reversed(found[3].split()) if "." in word or word[:1] == "["), "")
            whole, own = float(found[1]), float(found[2] or found[1])
            rows.append(_Row(whole, own, library, found[5].strip()))
    if not rows:
        raise refuse("rows as perf report --stdio prints them", text)
    waits = [row for row in rows if _OPENMP.search(row.library)]
    at = max(waits, key=lambda row: row.own, default=None)
    name, percent = _callback(rows)
    return PerfShares(
        len(rows),
        round(min(sum(row.own for row in waits), 100.0), 2),
        clean(f"{at.library} {at.symbol}")[:120] if at else "",
        clean(name)[:80],
        percent,
    )


def _callback(rows: list[_Row]) -> tuple[str, float]:
    """An extension with most of the samples below it, where functions that go back into Python are seen and Python's
    evaluation takes a large part."""
    if not any(row.whole > row.own for row in rows):
        return _callback_by_own(rows)
    back = any(_CALLS_BACK.search(row.symbol) and row.whole >= 1.0 for row in rows)
    python = max((row.whole for row in rows if _EVALUATES.search(row.symbol)), default=0.0)
    theirs = [
        row
        for row in rows
        if _EXTENSION.fullmatch(row.library) and not _NOT_THEIRS.match(row.library) and row.whole >= LEAST
    ]
    if not back or python < LEAST or not theirs:
        return "", 0.0
    most = max(theirs, key=lambda row: row.whole)
    return most.library, most.whole


def _callback_by_own(rows: list[_Row]) -> tuple[str, float]:
    """Of a report without what lies below (--no-children): Python's evaluation takes most, and the extension that calls
    it back a part of its own, the binding's call of a Python object in it."""
    python = sum(row.own for row in rows if _EVALUATES.search(row.symbol))
    own: dict[str, float] = {}
    for row in rows:
        if _EXTENSION.fullmatch(row.library) and not _NOT_THEIRS.match(row.library):
            own[row.library] = own.get(row.library, 0.0) + row.own
    calls = {row.library for row in rows if _CALLS_BACK.search(row.symbol) and row.own >= LEAST_CALL}
    theirs = {library: share for library, share in own.items() if library in calls and share >= LEAST_OWN}
    if python < LEAST_PYTHON or not theirs:
        return "", 0.0
    library = max(theirs, key=lambda one: theirs[one])
    return library, round(min(theirs[library] + python, 100.0), 2)


def findings(facts: PerfShares) -> list[Finding]:
    return [Finding("rank.perf_shares", "info", f"{facts.openmp:g} % of the samples are in an OpenMP runtime", {})]


TOOL = Tool("perf report", "rank.perf_shares", fits, read, findings, host_in)
