"""The nodes on which Slurm runs the job: squeue with one job in it, scontrol show job.

Source   squeue(1): the column NODELIST, or NODELIST(REASON), comes last by default; scontrol(1): NodeList=
Shape    facts job.nodes
Errors   ParseError when it tells no job's nodes
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from probes.core import Finding, ParseError, lines_of
from probes.intake.tools import Tool
from probes.intake.tools.cluster.slurm_nodes import nodes_in

_HEAD = re.compile(r"\s{0,20}JOBID\s[^\n]{0,400}\sNODELIST(?:\(REASON\))?\s{0,8}$", re.M)
_SHOWN = re.compile(r"(?<!Req)(?<!Exc)\bNodeList=(\S{1,400})")
_STARTED = re.compile(r"(?<!\w)StartTime=(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)")
_JOB = re.compile(r"\bJobId=(\d{1,12})\b")
_ROW = re.compile(
    r"\s{0,20}(\d{1,12})(?:_\d{1,6})?\s[^\n]{1,400}\s([A-Za-z][\w.-]{0,80}(?:\[[\d,-]{1,200}\])?[\w.,\[\]-]{0,300})\s{0,8}$"
)


MOST = 1000  # jobs


@dataclass(frozen=True, slots=True)
class JobNodes:
    """`nodes`: of the one job that it tells. `jobs`: where it tells of several, those of each by its number."""

    nodes: tuple[str, ...]
    jobs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    started: str = ""  # when the one job began, as scontrol prints it: local time of the cluster


def _fits(head: str, name: str) -> bool:
    told = _JOB.search(head[:8192]) or "JobState=" in head[:8192]  # grep often leaves the number out
    return bool(_HEAD.match(head.lstrip("\n"))) or bool(told and _SHOWN.search(head[:16_384]))


def read(text: str) -> JobNodes:
    lists: dict[str, str] = {}
    if _HEAD.match(text[:8192].lstrip("\n")):
        lists = {row[1]: row[2] for line in lines_of(text[:262_144], 1000) if (row := _ROW.match(line))}
    for block in re.split(r"(?=\bJobId=\d)", text[:262_144]):
        if re.search(r"\bRestarts=[1-9]", block):
            raise ParseError("nodes of a job that was started again: it may have run on others")
        if (job := _JOB.match(block)) and (told := _SHOWN.search(block)) and told[1] != "(null)":
            lists[job[1]] = told[1]
    if not lists and len(alone := _SHOWN.findall(text[:262_144])) == 1 and "(null)" not in alone:
        lists[""] = alone[0]
    if not lists:
        raise ParseError("nodes of a job: none")
    if len(lists) > 1:
        return JobNodes((), {job: tuple(nodes_in(told)) for job, told in list(lists.items())[:MOST]})
    started = _STARTED.findall(text[:262_144])
    return JobNodes(tuple(nodes_in(next(iter(lists.values())))), started=started[0] if len(started) == 1 else "")


def _quiet(facts: JobNodes) -> Iterable[Finding]:
    return ()


TOOL = Tool("nodes of a job", "job.nodes", _fits, read, _quiet, log=True)
