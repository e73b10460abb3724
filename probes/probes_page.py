"""docs/probes.md, from what the probes themselves declare and say in their docstrings.

Shape    page() -> Markdown; tests/test_docs.py holds the file to it
"""

from __future__ import annotations

import importlib
import inspect
import re

from probes import catalog
from probes.core import Probe
from probes.suites import SUITES

HEAD = """# Probes

<!-- written by `python -m probes list --markdown > docs/probes.md`; do not edit -->

A probe is one question to one node. It only reads; `rank.flight_recorder_trigger` alone asks ranks to write something.
Its answer has one of eight outcomes: `ok`; `absent`, the thing does not exist there; `denied`, a right is missing;
`failed`, it could not be read; `timeout` and `hung`, the node did not answer in time (`hung`: not even when its child
was killed); `unreachable`; `skipped`, the same driver hung before. What "fails with" names ends as `failed`. Probes of
a suite run side by side, six at a time. `cost` is the CPU time of one run, beside the 33 ms of the runner itself, with
8 ranks of plain Python on a virtual machine of 2 cores without GPUs and adapters. How to write one:
[add a probe](add-a-probe.md).

## Suites

| suite | for | answers within | probes |
|---|---|---|---|
"""
TOUCHES = {
    "proc": "files of the kernel below /proc and /sys",
    "process": "another process, without stopping it: its memory, or the server that it runs for this",
    "stack": "the lock of the network stack: each interface is asked by a process of its own",
    "kernel-log": "the kernel log",
    "disk": "disks",
    "network": "the network",
    "driver": "a driver: it waits for others that do, and is skipped after one of them hung",
}


def page() -> str:
    rows = []
    for suite in SUITES.values():
        names = ", ".join(f"`{name}`" for name in suite.probes)
        rows.append(f"| `{suite.name}` | {suite.says} | {suite.deadline_s:g} s | {names} |")
    return HEAD + "\n".join(rows) + "\n" + "".join(_section(probe) for probe in catalog.load().values())


def _section(probe: Probe[object]) -> str:
    module = importlib.import_module(f"probes.catalog.{probe.name.replace('.', '_')}")
    told = _fields(inspect.getdoc(module) or "")
    asked_by = [f"`{suite.name}`" for suite in SUITES.values() if probe.name in suite.probes]
    rows = [
        ("by hand", f"`{probe.by_hand}`"),
        ("source", told.get("Source", "")),
        ("units", told.get("Units", "")),
        ("touches", TOUCHES[probe.touches]),
        ("cost", probe.cost),
        ("needs", probe.needs or "a plain login"),
        ("at most", f"{probe.timeout_s:g} s, {probe.max_bytes // 1024} KiB"),
        ("fails with", told.get("Errors", "")),
        ("asked by", ", ".join(asked_by) or "name only"),
    ]
    body = "\n".join(f"| {name} | {_cell(text)} |" for name, text in rows if text)
    return f"\n## {probe.name}\n\n{probe.question}\n\n| | |\n|---|---|\n{body}\n"


def _fields(doc: str) -> dict[str, str]:
    """`Source   text` and what is indented below it, by the first word."""
    found: dict[str, str] = {}
    name = ""
    for line in doc.split("\n")[1:]:
        if head := re.match(r"(Source|Units|Shape|Errors)\s{2,}(\S.*)", line):
            name = head[1]
            found[name] = head[2]
        elif name and line.startswith("  ") and line.strip():
            found[name] += " " + line.strip()
        elif line.strip():
            name = ""
    return found


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*") if not text.startswith("`") else text.replace("|", "\\|")
