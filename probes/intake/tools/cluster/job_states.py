"""How jobs ended, where a scheduler says that all of them ended well: sacct, scontrol, kubectl, bjobs, qstat.

A table in which any job failed, runs or waits is no such output: what it tells of failures is read as a log's lines.

Source   sacct(1) and scontrol(1) of Slurm 20 to 25 (tables, -P, --json), kubectl get pods and jobs, bjobs(1), qstat -xf
Shape    facts job.state
Errors   ParseError when it tells of no job
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from probes.core import Finding, clean
from probes.intake.tools import Tool
from probes.intake.tools._text import refuse

MOST = 10_000
_HEADER = re.compile(r"^[ |]{0,8}Job ?ID\w{0,4}[ |][^\n]{0,300}?\bState\b", re.M | re.I)
_ROW = re.compile(r"^\s{0,8}(\d{1,12}(?:_\[?[\d\-,%]{1,40}\]?)?(?:[.+][\w+]{1,20})?)[\s|][^\n]{0,400}", re.M)
_STATE = re.compile(r"\b(COMPLETED|COMPLETING|RUNNING|PENDING|FAILED|CANCELLED|TIMEOUT|NODE_FAIL|PREEMPTED|SUSPENDED"
    r"|OUT_OF_ME\w{0,5}|BOOT_FAIL|DEADLINE|REQUEUED|RESIZING|REVOKED)\b")  # fmt: skip
_EXIT = re.compile(r"(?<![\d:])(\d{1,3}):(\d{1,3})(?![\d:])")
_SHOWN = re.compile(
    r"\bJobId=(\d{1,12})\b[^\0]{0,2000}?\bJobState=([A-Z_]{4,20})\b(?:[^\0]{0,2000}?ExitCode=(\d+):(\d+))?"
)
# sacct -nP, or rows that somebody cut out: the number, the state and the exit code have a form of their own.
_PARTED = re.compile(
    r"^(\d{1,12}(?:_\d{1,6})?(?:\.\w{1,20})?)\|(?:[^|\n]{0,200}\|){0,20}([A-Z_]{6,20})(?: by \d{1,10})?"
    r"\|(?:[^|\n]{0,200}\|){0,20}(\d{1,3}):(\d{1,3})(?=\||$)", re.M
)  # fmt: skip
_MOMENT = re.compile(r"(?<!\S)\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?!\S)")
_JSON = re.compile(r'"state"\s{0,8}:\s{0,8}\{\s{0,40}"current"\s{0,8}:\s{0,8}\[?\s{0,40}"([A-Z_]{4,20})"')
_KUBE = re.compile(r"^NAME {1,60}(?:READY|STATUS|COMPLETIONS) [^\n]{0,200}$", re.M)
_KUBE_ROW = re.compile(r"^([a-z0-9][a-z0-9.-]{1,200}) {1,60}(\S{1,40}) {1,20}(\S{1,40})(?: |$)", re.M)
_LSF = re.compile(r"^JOBID {1,20}USER {1,20}STAT ", re.M)
_LSF_ROW = re.compile(r"^(\d{1,12}) {1,20}\S{1,40} {1,20}([A-Z]{3,6}) ", re.M)
_PBS = re.compile(
    r"^Job Id: (\d{1,12})\S{0,80}[^\0]{0,4000}?job_state = ([A-Z])\b[^\0]{0,8000}?Exit_status = (-?\d+)", re.M
)


@dataclass(frozen=True, slots=True)
class JobStates:
    """`jobs`: number or name -> state in the scheduler's word. All ended well. `started`: the earliest time that the
    rows of one job tell, as printed: its start, or when it was submitted."""

    jobs: dict[str, str]
    started: str = ""


def _all(text: str) -> dict[str, tuple[str, bool]]:
    """{job or step: (state, whether that is a good end)}"""
    found: dict[str, tuple[str, bool]] = {}
    if _HEADER.search(text[:8192]):
        for row in _ROW.finditer(text):
            if (state := _STATE.search(row[0])) is not None:
                clean_exit = all(one.group(1, 2) == ("0", "0") for one in _exits(row[0]))
                found[row[1]] = (state[1], state[1] == "COMPLETED" and clean_exit)
    for job, state, code, signal in _PARTED.findall(text):
        if _STATE.fullmatch(state):
            found.setdefault(job, (state, state == "COMPLETED" and (code, signal) == ("0", "0")))
    for one in _SHOWN.finditer(text):
        found[one[1]] = (one[2], one[2] == "COMPLETED" and (one[3], one[4]) in (("0", "0"), (None, None)))
    if text[:1] == "{" and '"jobs"' in text[:4096]:
        found |= {f"job {place}": (word, word == "COMPLETED") for place, word in enumerate(_JSON.findall(text))}
    if _KUBE.search(text[:8192]):
        for name, second, third in _KUBE_ROW.findall(text):
            word = third if "/" in second else second
            found[name] = (word, word in ("Completed", "Complete", "Succeeded"))
    if _LSF.search(text[:8192]):
        found |= {job: (word, word == "DONE") for job, word in _LSF_ROW.findall(text)}
    for one in _PBS.finditer(text):
        found[one[1]] = (one[2], one[2] in "FC" and one[3] == "0")
    return found


def _exits(row: str) -> Iterable[re.Match[str]]:
    """Exit codes, `0:0`: no times of day, which have three parts."""
    return list(_EXIT.finditer(row))[:4]


def fits(head: str, name: str) -> bool:
    found = _all(head)
    return bool(found) and all(good for _, good in found.values())


def read(text: str) -> JobStates:
    found = _all(text[:4_194_304])
    if not found:
        raise refuse("jobs with their states", text)
    if not all(good for _, good in found.values()):
        raise refuse("jobs that all ended well", text)
    times = (
        _MOMENT.findall(text[:65_536].replace("|", " ")) if len({job.partition(".")[0] for job in found}) == 1 else []
    )
    started = min(times, default="")
    return JobStates({clean(job)[:80]: state for job, (state, _) in list(found.items())[:MOST]}, started)


def _quiet(facts: JobStates) -> Iterable[Finding]:
    return ()


TOOL = Tool("jobs that ended", "job.state", fits, read, _quiet)
