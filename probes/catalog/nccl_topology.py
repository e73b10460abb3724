"""Which files about their machine were ranks told to read or to write by NCCL, and what stands in them?

Source   NCCL_TOPO_FILE, NCCL_GRAPH_FILE, NCCL_TOPO_DUMP_FILE and NCCL_GRAPH_DUMP_FILE in /proc/PID/environ (NCCL's
         manual, "Environment Variables"), each file as its ranks see it, through /proc/PID/root and cwd. What NCCL does
         where it cannot open one: graph/xml.cc. Dumps are written by one rank of the job, rank 0 unless told otherwise
Units    GB/s
Shape    NcclFiles: each file with the ranks that name it, and the rings or the machine that it holds
Errors   ParseError when a row is not what the collector writes. Absent where no rank names such a file; Denied where
         no rank was seen and processes of others cannot be looked at
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from probes.catalog._collected import as_rows, whole, wholes, word
from probes.catalog.nccl.xml import Graph, System, graphs, is_graphs, is_system, system
from probes.catalog.ranks import reach
from probes.core import Finding, ParseError, Probe, sections
from probes.runner import Absent, isolate, need_ranks, read

__all__ = ["PROBE", "NcclFiles", "findings", "parse"]

ROWS, FILE = "golden15/nccl-files", "golden15/nccl-file"
GIVEN = ("NCCL_TOPO_FILE", "NCCL_GRAPH_FILE")  # the others are written by NCCL, and by one rank of the whole job


@dataclass(frozen=True, slots=True)
class NcclFile:
    """`ranks`: that name it, on this node. `why`: why it could not be read; `outcome` is that of a capture, or
    "missing". `old`: it was written before these ranks began, so another job may have."""

    variable: str
    path: str
    ranks: tuple[int, ...]
    outcome: str
    why: str
    old: bool
    graphs: tuple[Graph, ...]
    system: System | None


@dataclass(frozen=True, slots=True)
class NcclFiles:
    files: tuple[NcclFile, ...]

    def given(self, variable: str) -> tuple[NcclFile, ...]:
        return tuple(one for one in self.files if one.variable == variable)


def _collect() -> Mapping[str, str]:
    import json
    import os
    import stat

    variables = ("NCCL_TOPO_FILE", "NCCL_GRAPH_FILE", "NCCL_TOPO_DUMP_FILE", "NCCL_GRAPH_DUMP_FILE")
    limit, most = 524288, 16

    def reader(pid: int, path: str) -> str:
        place = reach.inside(pid, path) if path.startswith("/") else f"/proc/{pid}/cwd/{path}"
        about = os.stat(place)
        if not stat.S_ISREG(about.st_mode):
            return json.dumps({"why": "it is no file but a folder, a pipe or a device"})
        return json.dumps({"written": about.st_mtime, "bytes": about.st_size, "text": read(place, limit)})

    def careful(pid: int, path: str) -> str:
        try:
            return reader(pid, path)
        except OSError as error:
            gone = error.errno in (2, 20)
            return json.dumps({"why": error.strerror or str(error), "missing": gone})

    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for rank in need_ranks()["ranks"]:
        if rank["worker_of"] is not None:
            continue
        for variable in variables:
            path = rank["env"].get(variable, "")
            try:
                space = os.readlink(f"/proc/{rank['pid']}/ns/mnt")
            except OSError:
                space = ""
            if path:
                row = rows.setdefault((variable, path, space), {"variable": variable, "path": path, "ranks": [],
                    "pid": rank["pid"], "began": rank["start_time"]})  # fmt: skip
                row["ranks"] = [*row["ranks"], rank["rank"]][:64]
    if not rows:
        raise Absent("no rank here names a file in " + ", ".join(variables))
    asked = list(rows.values())[:most]

    def ask(row: dict[str, Any]) -> tuple[str, Callable[[], str]]:
        return (row["path"], lambda: careful(row["pid"], row["path"]))

    parts, told = {}, []
    answers = isolate([ask(row) for row in asked], 2.0, 4 * limit)
    for at, row in enumerate(asked):
        answer = answers[at]
        row["outcome"], row["why"], row["old"] = answer["outcome"], answer["why"], False
        if answer["outcome"] == "ok":
            try:
                said = json.loads(answer["text"])
            except ValueError:  # cut: bytes that are no text need more room
                said = {"why": "it is no text"}
            row["why"] = said.get("why", "")
            row["outcome"] = "missing" if said.get("missing") else "failed" if row["why"] else "ok"
            began = row["began"]
            row["old"] = "written" in said and began is not None and said["written"] < began
            if said.get("bytes", 0) > limit:
                row["why"] = f"of its {said['bytes']} bytes the first {limit} were read"
            if "text" in said:
                parts[f"golden15/nccl-file {at}"] = said["text"].replace("\n==> ", "\n= => ")
        told.append(json.dumps(row))
    return dict({"golden15/nccl-files": "\n".join(told)}, **parts)


def parse(text: str) -> NcclFiles:
    """One JSON object per file, then the files."""
    parts = sections(text)
    if ROWS not in parts:
        raise ParseError(f"expected the section {ROWS}, found {', '.join(parts)[:80]}")
    rows = as_rows(parts[ROWS], ROWS)
    return NcclFiles(tuple(_file(row, parts.get(f"{FILE} {at}")) for at, row in enumerate(rows[:64])))


def _file(row: dict[str, Any], text: str | None) -> NcclFile:
    whole(row, "pid", ROWS)
    outcome, why = word(row, "outcome", ROWS, 20), word(row, "why", ROWS, 200)
    rings: tuple[Graph, ...] = ()
    machine = None
    try:
        if text is not None and is_graphs(text):
            rings = graphs(text).graphs
        elif text is not None and is_system(text):
            machine = system(text)
        elif text is not None and outcome == "ok":
            outcome, why = "failed", "it holds neither a <system> nor <graphs>"
    except ValueError as error:
        outcome, why = "failed", str(error)
    named = word(row, "variable", ROWS, 40), word(row, "path", ROWS, 400)
    return NcclFile(*named, tuple(wholes(row, "ranks", ROWS)), outcome, why, row.get("old") is True, rings, machine)


def findings(found: NcclFiles) -> Iterator[Finding]:
    """A file that NCCL was told to read and cannot. A dump that is not there is that of another node's rank."""
    for one in found.files:
        if one.variable not in GIVEN or one.outcome == "ok":
            continue
        who = f"rank{'s' * (len(one.ranks) > 1)} {', '.join(map(str, one.ranks[:8]))}"
        if one.outcome == "missing":
            after = "NCCL then goes by what it sees itself" if one.variable == GIVEN[0] else "NCCL stops there"
            says = f"{one.variable} of {who} is {one.path}, which is not there: {after}"
            yield Finding("nccl.file_missing", "warn", says, {"file": one.path})
        else:
            says = f"{one.variable} of {who} is {one.path}, which could not be read: {one.why or one.outcome}"
            yield Finding("nccl.file_unread", "warn", says, {"file": one.path})


PROBE = Probe(
    "nccl.topology",
    "Which files about their machine were ranks told to read or to write by NCCL, and what stands in them?",
    parse,
    findings,
    collect=_collect,
    by_hand="tr '\\0' '\\n' </proc/PID/environ | grep -E '^NCCL_(TOPO|GRAPH)_'; cat /proc/PID/root/FILE",
    timeout_s=6.0,
    max_bytes=2_097_152,
    touches="disk",
    brings=(reach,),
    needs="root or the login of the user who trains: environments and files of others are hidden",
    cost="15 ms",
)
