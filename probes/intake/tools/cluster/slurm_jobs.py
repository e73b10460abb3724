"""scontrol show job, seff, and sacct or squeue --json: how a job ended, where a scheduler says it in no table.

Source   scontrol(1), seff of contribs, sacct(1) --json (data_parser v0.0.37 to v0.0.42: state is a word, a list of
         words, or an object with `current`)
Shape    facts cluster.events; a job's node only where it had one
Errors   ParseError when no job is in it
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from probes.catalog._cluster_facts import Cluster, Gathered
from probes.core import Finding
from probes.intake.tools import Tool
from probes.intake.tools._text import refuse
from probes.intake.tools.cluster.slurm_nodes import nodes_in

_SHOWN = re.compile(r"\bJobId=(\d{1,12})\b")
_STATE = re.compile(r"\bJobState=([A-Z_]{4,20})\b")
_NODES = re.compile(r"(?<!Req)(?<!Exc)\bNodeList=(\S{1,400})")
_ENDED = re.compile(r"\bEndTime=(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)")
_SEFF = re.compile(r"^Job ID: (\d{1,12})[^\0]{0,600}?^State: ([A-Z_]{4,20})\b", re.M)


def _fits(head: str, name: str) -> bool:
    if head.lstrip()[:1] == "{":
        return '"jobs"' in head[:4096] and (
            '"job_state"' in head or re.search(r'"state"\s{0,8}:\s{0,8}[{\["]', head) is not None
        )
    return bool(_SHOWN.search(head[:8192]) and _STATE.search(head[:16384])) or bool(_SEFF.search(head[:8192]))


def read(text: str) -> Cluster:
    found = Gathered()
    text = text[:8_388_608]
    if text.lstrip()[:1] == "{":
        _json(found, text)
    for job, state in _SEFF.findall(text):
        _ended(found, job, state, "", "")
    for block in re.split(r"(?=\bJobId=\d)", text):
        job, state = _SHOWN.match(block), _STATE.search(block)
        if job and state:
            nodes, ended = _NODES.search(block), _ENDED.search(block)
            _ended(found, job[1], state[1], nodes[1] if nodes else "", ended[1] if ended else "")
    if not found.rows:
        raise refuse("a job of Slurm", text)
    return found.told()


def _ended(found: Gathered, job: str, state: str, nodes: str, stamp: str) -> None:
    names = nodes_in(nodes) if nodes and nodes != "(null)" else []
    found.event("job", job, state, "", names[0] if len(names) == 1 and state != "NODE_FAIL" else "", None, stamp=stamp)


def _json(found: Gathered, text: str) -> None:
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return
    jobs = said.get("jobs") if isinstance(said, dict) else None
    for one in (jobs if isinstance(jobs, list) else [])[:10_000]:
        if isinstance(one, dict):
            for state in _states(one.get("state", one.get("job_state")))[:4]:
                _ended(found, str(one.get("job_id", ""))[:20], state, str(one.get("nodes", ""))[:400], "")


def _states(said: Any) -> list[str]:
    if isinstance(said, dict):
        said = said.get("current")
    return [one for one in (said if isinstance(said, list) else [said]) if isinstance(one, str)]


def _quiet(facts: Cluster) -> Iterable[Finding]:
    return ()


TOOL = Tool("Slurm's jobs", "cluster.events", _fits, read, _quiet, log=True)
