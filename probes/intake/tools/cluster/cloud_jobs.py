"""How a job was stopped, by services that run jobs: SageMaker, Vertex AI, Azure ML and Ray in JSON, PBS in qstat -f.

Source   aws sagemaker describe-training-job (TrainingJobStatus, SecondaryStatus); gcloud ai custom-jobs describe
         (JobState); az ml job show (status); ray job list (JobStatus, JobInfo.message); qstat -xf: an exit status of
         256 and more is a signal (PBS Professional, Administrator's Guide, "Job exit status codes")
Shape    facts cluster.events
Errors   ParseError when it tells of no end that a person or the service brought about
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from probes.catalog._cluster_facts import Cluster, Gathered
from probes.core import Finding
from probes.intake.tools import Tool
from probes.intake.tools._text import refuse

MOST, DEPTH = 2000, 4
# (key of the job's name, key of its state); the first that an object has both of counts
_KEYS = (
    ("TrainingJobName", "SecondaryStatus"),
    ("TrainingJobName", "TrainingJobStatus"),
    ("submission_id", "status"),
    ("job_id", "status"),
    ("displayName", "state"),
    ("display_name", "state"),
    ("name", "status"),
)
_STATES = {
    **dict.fromkeys(("Stopped", "Stopping", "STOPPED", "Canceled", "CancelRequested"), "CANCELLED"),
    **dict.fromkeys(("JOB_STATE_CANCELLED", "JOB_STATE_CANCELLING"), "CANCELLED"),
    **dict.fromkeys(("MaxRuntimeExceeded", "MaxWaitTimeExceeded", "JOB_STATE_EXPIRED"), "DEADLINE"),
    "Interrupted": "PREEMPTED",
}
_HEAD = re.compile(
    r'"(?:TrainingJobStatus|SecondaryStatus|state|status)"\s{0,4}:\s{0,4}"(?:'
    + "|".join(map(re.escape, _STATES))
    + ')"'
)
_PBS = re.compile(r"^Job Id: (\d{1,12})\S{0,80}[^\0]{0,8000}?Exit_status = (\d{3})\b", re.M)
_BY_SIGNAL = (256 + 15, 256 + 9, 256 + 2)  # qdel sends SIGTERM, then SIGKILL


def _fits(head: str, name: str) -> bool:
    if head.lstrip()[:1] in "{[":
        return _HEAD.search(head) is not None and next(_objects(head, whole=False), None) is not None
    return any(int(code) in _BY_SIGNAL for _, code in _PBS.findall(head))


def _objects(text: str, whole: bool = True) -> Iterator[tuple[str, str, str]]:
    """(job, state, what is said of it)"""
    try:
        todo: list[tuple[Any, int]] = [(json.loads(text), DEPTH)]
    except (ValueError, RecursionError):
        if not whole:  # a head that was cut: its keys stand beside each other
            yield from (("", "", "") for name, state in _KEYS if f'"{name}"' in text and f'"{state}"' in text)
        return
    while todo:
        one, deep = todo.pop()
        inner = one if isinstance(one, list) else list(one.values()) if isinstance(one, dict) else []
        todo += [(each, deep - 1) for each in inner[:MOST] if deep and isinstance(each, dict | list)]
        if not isinstance(one, dict):
            continue
        for name, state in _KEYS:
            if isinstance(one.get(name), str) and one.get(state) in _STATES:
                words = (one.get(key) for key in ("FailureReason", "message", "error", "status_message"))
                yield one[name], one[state], next((word for word in words if isinstance(word, str)), "")
                break


def read(text: str) -> Cluster:
    found = Gathered()
    text = text[:8_388_608]
    for name, state, words in _objects(text) if text.lstrip()[:1] in "{[" else ():
        found.event("job", name, _STATES[state], f"{state} {words}".strip(), "", None)
    for job, code in _PBS.findall(text):
        if int(code) in _BY_SIGNAL:
            found.event("job", job, "CANCELLED", f"Exit_status = {code}", "", None)
    if not found.rows:
        raise refuse("a job that was stopped", text)
    return found.told()


def _quiet(facts: Cluster) -> Iterable[Finding]:
    return ()


TOOL = Tool("jobs that a service stopped", "cluster.events", _fits, read, _quiet)
