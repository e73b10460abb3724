"""Matrices of copies between GPUs: p2pBandwidthLatencyTest, nvbandwidth (text and JSON), rocm_bandwidth_test.

Source   NVIDIA/cuda-samples, p2pBandwidthLatencyTest.cu; NVIDIA/nvbandwidth, output.cpp; ROCm/rocm_bandwidth_test
Shape    facts gpu.bandwidth: a Matrix for each that is printed; None where nothing is printed
Units    GB/s; microseconds in matrices of latency
Errors   ParseError when no matrix is in it
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

from probes.core import Finding, ParseError, clean, lines_of
from probes.intake.tools import Tool

MOST, WIDEST = 200, 128
LOW = 0.6  # of the usual of the same matrix, judgement: GPUs of one node differ by a few percent
HALF = 0.5  # of what copies without peer access reach; judgement: with it they are never slower by so much
STUCK_US = 1000.0  # judgement: peers answer in 1 to 30 us; where the IOMMU is in between 49,000 us was recorded
NVLINK = 60.0  # GB/s one way, above PCIe 5.0 x16
LEAST = 3  # others that are compared with
_TITLE = re.compile(r"(matrix|memcpy|bandwidth|latency)", re.I)
_COLUMNS = re.compile(r"\s{0,12}(?:D\\D|GPU|D/D)?\s{1,20}0(?:\s{1,16}\d{1,3}){0,127}\s{0,8}$")
_ROW = re.compile(r"\s{0,12}(\d{1,3})((?:\s{1,16}(?:\d{1,9}(?:\.\d{1,6})?|N/A|X|-)){1,128})\s{0,8}$")


@dataclass(frozen=True, slots=True)
class Matrix:
    title: str
    rows: tuple[tuple[float | None, ...], ...]

    @property
    def latency(self) -> bool:
        return "latency" in self.title.lower()

    @property
    def of_host(self) -> bool:
        """Between the host's memory and each GPU: one row."""
        return len(self.rows) == 1 and len(self.rows[0]) > 1

    def pairs(self) -> Iterator[tuple[int, int, float]]:
        for one, row in enumerate(self.rows):
            for other, value in enumerate(row):
                if value is not None and one != other:
                    yield one, other, value


@dataclass(frozen=True, slots=True)
class Bandwidths:
    tool: str
    matrices: tuple[Matrix, ...]


def _fits(head: str, name: str) -> bool:
    start = head[:4096]
    if start.lstrip()[:1] == "{":
        return '"bandwidth_matrix"' in head and "testcases" in head
    return (
        "[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]" in start
        or "nvbandwidth Version" in start
        or bool(re.search(r"^memcpy (?:CE|SM|local copy) [^\n]{1,80}bandwidth", head, re.M))
        or bool(re.search(r"^\s{0,12}D[\\/]D\s{1,20}0\s{1,16}1\b", start, re.M))
        or bool(re.search(r"P2P=(?:En|Dis)abled (?:Bandwidth|Latency)", head))
    )


def read(text: str) -> Bandwidths:
    body = text.lstrip("\ufeff \r\n\t")
    nv = "nvbandwidth" in body[:4096] or "memcpy CE" in body[:65_536]
    found = list(_of_json(body)) if body[:1] == "{" else list(_of_text(body))
    if not found:
        raise ParseError("a test of bandwidth: no matrix in it")
    return Bandwidths("nvbandwidth" if nv else "p2pBandwidthLatencyTest", tuple(found[:MOST]))


def _of_text(text: str) -> Iterator[Matrix]:
    title, rows, inside = "", list[tuple[float | None, ...]](), False
    for line in lines_of(text, 2400):
        if inside and (found := _ROW.match(line)) and int(found[1]) == len(rows):
            rows.append(tuple(_value(cell) for cell in found[2].split()[:WIDEST]))
            continue
        if rows:
            yield Matrix(title, tuple(rows))
        rows = []
        if _COLUMNS.match(line):
            inside = True
        elif line.strip():
            inside = False
            title = clean(line.strip())[:120] if _TITLE.search(line) else title
    if rows:
        yield Matrix(title, tuple(rows))


def _of_json(text: str) -> Iterator[Matrix]:
    try:
        said: Any = json.loads(text)
    except (ValueError, RecursionError):
        raise ParseError("nvbandwidth: JSON that cannot be read") from None
    inner = next((one for one in said.values() if isinstance(one, dict)), {}) if isinstance(said, dict) else {}
    cases = inner.get("testcases")
    for case in cases[:MOST] if isinstance(cases, list) else ():
        rows = case.get("bandwidth_matrix") if isinstance(case, dict) else None
        if isinstance(rows, list) and rows and all(isinstance(row, list) for row in rows):
            told = tuple(tuple(_value(str(cell)) for cell in row[:WIDEST]) for row in rows[:WIDEST])
            yield Matrix(clean(str(case.get("name", "")))[:120], told)


def _value(cell: str) -> float | None:
    return float(cell) if re.fullmatch(r"\d{1,9}(?:\.\d{1,9})?", cell.strip()) else None


def findings(facts: Bandwidths) -> Iterator[Finding]:
    yield from _blocked(facts)
    told: set[int] = set()
    for one in facts.matrices:
        for gpu, value, usual in _slow(one):
            if gpu in told:
                continue
            told.add(gpu)
            links = usual > NVLINK and not one.of_host
            code = "gpu.nvlink_slow" if links else "gpu.copy_slow"
            where = "with its peers" if not one.of_host else "with the host"
            says = f"GPU {gpu} copies {where} at {value:.1f} GB/s, the others at {usual:.1f} GB/s, says {facts.tool}"
            yield Finding(code, "bad", says, {"gpu": gpu})


def _blocked(facts: Bandwidths) -> Iterator[Finding]:
    """With peer access slower than without, or a latency that no bus has: nearly all pairs of the node."""
    off = [m for m in facts.matrices if "disabled" in m.title.lower() and not m.latency]
    on = [m for m in facts.matrices if "enabled" in m.title.lower() or m.latency]
    without = [value for m in off for _, _, value in m.pairs()]
    for m in on:
        if "disabled" in m.title.lower():
            continue
        values = [value for _, _, value in m.pairs()]
        if len(values) < 2:
            continue
        if m.latency and median(values) >= STUCK_US:
            says = (
                f"GPUs reach each other's memory in {median(values):,.0f} us, says {facts.tool}: a bus takes a few us"
            )
            yield Finding("gpu.p2p_told", "bad", says, {})
            return
        if not m.latency and without and median(values) < HALF * median(without):
            says = (
                f"GPUs copy at {median(values):.1f} GB/s with peer access and at {median(without):.1f} GB/s without, "
                f"says {facts.tool}"
            )
            yield Finding("gpu.p2p_told", "bad", says, {})
            return


def _slow(one: Matrix) -> Iterator[tuple[int, float, float]]:
    """(GPU, its usual, the others' usual): one that is slow to all, among others that are alike."""
    if one.latency:
        return
    size = len(one.rows[0])
    if one.of_host:
        values = dict(enumerate(one.rows[0]))
    else:
        values = {gpu: _usual([v for a, b, v in one.pairs() if gpu in (a, b)]) for gpu in range(size)}
    known = {gpu: value for gpu, value in values.items() if value is not None}
    for gpu, value in known.items():
        others = [other for at, other in known.items() if at != gpu]
        if len(others) >= LEAST and value < LOW * median(others):
            yield gpu, value, median(others)


def _usual(values: list[float]) -> float | None:
    return median(values) if values else None


TOOL = Tool("a test of GPU bandwidth", "gpu.bandwidth", _fits, read, findings)
