"""pidstat of sysstat, with -u, -w, -t, -h: share of the CPU, waiting for one (%wait), switches a second.

Rows of "Average:" count before single intervals; of several intervals the last. Rows whose heading a sort, a grep or a
tail took away are known by their shape: sysstat before 11.5.6 has no %wait.
"""

from __future__ import annotations

import re
from typing import Any

from probes.catalog.host.load_facts import Load
from probes.core import clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import number, refuse, whole
from probes.intake.tools.host._load import load, process
from probes.intake.tools.host.process_table import name_of

_SYSTEM = re.compile(
    r"^Linux \S{1,80} \(([\w.-]{1,80})\)\s{1,8}\S{6,12}\s{1,8}_\w{1,16}_\s{1,8}\((\d{1,5}) CPU\)", re.M
)
_SHARES = r"((?:\s{1,12}\d{1,6}[.,]\d\d){4,5})"
# sysstat's word for it in any language: `Durchschn.:`, `Moyenne :`, `Media:`
AVERAGE = re.compile(r"^[^\W\d][^\W\d]{1,14}\.?\s?:(?=\s)")
_BARE = re.compile(
    rf"(?:Average:|\d\d:\d\d:\d\d(?: [AP]M)?)\s{{1,12}}(\S{{1,32}})\s{{1,12}}(\d{{1,10}}){_SHARES}"
    r"\s{1,12}(?:\d{1,4}|-)\s{1,4}(\S.{0,400})$"
)
_BARE_HEADS = {
    5: ["UID", "PID", "%usr", "%system", "%guest", "%wait", "%CPU", "CPU", "Command"],
    4: ["UID", "PID", "%usr", "%system", "%guest", "%CPU", "CPU", "Command"],
}


def _begin(words: list[str]) -> int | None:
    if "PID" not in words and "TGID" not in words or "Command" not in words:
        return None
    if any(word.startswith("CPU%") for word in words):  # htop
        return None
    return next((place for place, word in enumerate(words) if word in ("UID", "USER", "PID", "TGID")), None)


def fits(head: str, name: str) -> bool:
    lines = [AVERAGE.sub("Average:", line) for line in list(lines_of(head, 400))[:20]]
    if any(_begin(line.split()) is not None and "%" in line or "cswch/s" in line for line in lines):
        return True
    return sum(_BARE.match(line) is not None for line in lines) > len(lines) / 2


def read(text: str) -> Load:
    heads: list[str] = []
    at = 0
    rows: dict[int, dict[str, Any]] = {}
    threads: dict[int, dict[str, Any]] = {}  # of processes whose rows a grep took away: theirs hold those of threads
    averaged: set[int] = set()
    for raw in lines_of(text, 1000):
        line = AVERAGE.sub("Average:", raw)
        words = line.removeprefix("#").split()
        if not heads and (bare := _BARE.match(line)):
            heads = _BARE_HEADS[len(bare[3].split())]
            at = 2 if words[1] in ("AM", "PM") else 1
        begin = _begin(words)
        if begin is not None:
            heads, at = words[begin:], begin
        elif heads and len(words) > 4:
            average = words[0].startswith("Average")
            row = dict(zip(heads, words[1 if average else at :], strict=False))
            pid = whole(row.get("PID", row.get("TGID", "")))
            if pid is None and "TGID" in row and (thread := whole(row.get("TID", ""))) is not None:
                rest = words[(1 if average else at) + len(heads) - 1 :]
                threads.setdefault(thread, {}).update(row | {"Command": " ".join(rest)})
                continue
            if pid is None or (pid in averaged and not average):
                continue
            if average:
                averaged.add(pid)
            rest = words[(1 if average else at) + len(heads) - 1 :]
            rows.setdefault(pid, {}).update(row | {"Command": " ".join(rest)})
    if not rows and not heads:
        raise refuse("rows as pidstat prints them", text)
    rows = rows or threads
    system = _SYSTEM.search(text[:2000])
    found = [
        process(
            pid,
            name_of(clean(row.get("Command", "")).lstrip("|_"))[:64],
            number(row.get("%CPU", "").replace(",", ".")),
            run_delay_percent=number(row.get("%wait", "").replace(",", ".")),
            args=clean(row.get("Command", ""))[:400],
            user=clean(row.get("UID", row.get("USER", "")))[:32],
            preempted=number(row.get("nvcswch/s", "").replace(",", ".")),
            lifetime="%CPU" in row and not averaged and text.count("Command") == 1,
        )
        for pid, row in list(rows.items())[:4096]
    ]
    found.sort(key=lambda one: -(one.cpu_percent or 0.0))
    return load(processes=tuple(found[:400]), cpus=int(system[2]) if system else None)


def host(text: str) -> str:
    """The node's own name in sysstat's first line."""
    found = _SYSTEM.search(text[:2000])
    return found[1] if found and not found[1].startswith("localhost") else ""


TOOL = Tool("pidstat", "host.load", fits, read, host=host)
