"""What a cluster says of the job's pods and nodes, as lines of the scheduler: joined over all files, because one tells
where a pod runs and another one what became of it.

Shape    happenings(evidence, names) -> Said of kind scheduler_kill, each with the node in `peer`
Errors   none
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from probes.catalog._cluster_facts import Cluster, Happening, Pod
from probes.catalog.logs.events import LogEvent, RankLog
from probes.diagnosis.core import Evidence, Seen

# Namespaces of what a cluster runs for itself: its pods come and go, and no job is among them.
OF_THE_CLUSTER = re.compile(
    r"kube-|.{0,40}(?:monitoring|logging|system|operator|istio|cert-manager|argocd|prometheus|ingress)"
)
BY_HAND = re.compile(r"jupyter|notebook|jhub|vscode|code-server|rstudio")  # pods in which people work: no jobs
POD_FAILED = "pod failed"
# What it means -> (name of the event, what was short). The names are those that schedulers' lines have.
AS_EVENTS = {
    "oom": ("OOMKilled", ""),
    "memory": ("Evicted", "memory"),
    "disk": ("Evicted", "ephemeral-storage"),
    "shm": ("Evicted", "shm"),
    "disk pressure": ("DiskPressure", "ephemeral-storage"),
    "read-only": ("ReadonlyFilesystem", "ephemeral-storage"),
    "lost": ("taken away", ""),
    "node fail": ("NODE_FAIL", ""),
    "preempted": ("Preempted", ""),
    "tainted": ("TaintManagerEviction", ""),
    "evicted": ("Evicted", ""),
    "deadline": ("TIME LIMIT", ""),
    "suspended": ("CANCELLED", ""),
    "failed": (POD_FAILED, ""),
}
NO_OLDER_S = 86_400.0  # judgement: evidence is taken within a day; clusters keep events for an hour by default
MARGIN_S = 60.0  # ages are printed in whole minutes or hours
_NUMBERS = re.compile(r"(?:-(?:\d{1,5}|[a-z0-9]{5}|(?=[a-z]*\d)[a-z0-9]{8,10}))+$")


class _Told:
    """Everything that was read of one cluster."""

    def __init__(self, evidence: Evidence, names: Iterable[str], job: str | None) -> None:
        self.job = job
        self.said: list[tuple[Happening, Seen]] = []
        pods: dict[str, Pod] = {}
        self.jobs: set[str] = set()
        self.unready: set[str] = set()
        for seen in evidence.of("cluster.events"):
            facts: Cluster = seen.facts
            self.said += [(one, seen) for one in facts.happenings]
            self.unready |= set(facts.unready)
            self.jobs |= set(facts.jobs)
            for pod in facts.pods:
                there = pods.get(pod.name)
                node, gpus = (there.node, there.gpus) if there else ("", False)
                pods[pod.name] = Pod(pod.name, pod.space, pod.node or node, pod.gpus or gpus, pod.age_s)
        self.pods = pods
        known = {name for name in pods if any(_same(name, one) or name.startswith(f"{one}-") for one in names)}
        self.mine = known or {name for name, pod in pods.items() if pod.gpus}
        self.stems = {_stem(name) for name in self.mine}
        listed = {_stem(name) for name, pod in pods.items() if not OF_THE_CLUSTER.match(pod.space or "-")}
        if not self.stems and len(listed) == 1:  # people list the pods of the job
            self.stems = listed
        self.nodes = {pod.node for name, pod in pods.items() if pod.node and self.of_job(name, pod.space)}
        # Of other nodes a job's own may be one whose log is lost with it: then it is called as the others are.
        ages = [pod.age_s for name, pod in pods.items() if pod.age_s is not None and self.of_job(name, pod.space)]
        self.age_s = max(ages, default=NO_OLDER_S)
        self.letters = set() if self.nodes else {_letters(name) for name in names}
        if self.nodes and self._homeless(pods):  # its own node may be called as the others are
            self.letters = {_letters(name) for name in self.nodes}
        self.nodes |= {name for name in names if name not in pods}
        self.lines = [event.text for event, _, _ in _lines(evidence)]

    def _homeless(self, pods: dict[str, Pod]) -> bool:
        """Whether a pod of the job went with a node of which nothing tells: it has none now, or another one."""
        gone = self.unready | {
            one.node or one.name for one, _ in self.said if one.kind == "node" and one.what == "lost"
        }
        went = {one.name for one, _ in self.said if one.kind == "pod" and one.what in ("tainted", "lost")}
        return any(
            name in pods and pods[name].node not in gone and self.of_job(name, pods[name].space) for name in went
        )

    def of_job(self, name: str, space: str) -> bool:
        """Pods of one job are called alike, but for their numbers and parts. Where nothing tells the job's pods, all
        that do not belong to the cluster itself may be."""
        if BY_HAND.search(name) and _stem(name) not in self.stems:
            return False
        if self.stems:
            return _stem(name) in self.stems or any(name.startswith(f"{stem}-") for stem in self.stems)
        return not (space and OF_THE_CLUSTER.match(space))

    def node(self, one: Happening) -> str:
        if one.kind == "node":
            return one.node or one.name
        pod = self.pods.get(one.name)
        return one.node or (pod.node if pod is not None else "")

    def concerns(self, one: Happening) -> bool:
        if one.age_s is not None and one.age_s > self.age_s + MARGIN_S:
            return False  # before the job's pods were made
        if one.kind == "job":
            return self.job == one.name or (self.job is None and len(self.jobs) == 1)
        if one.kind == "node" and not one.name:
            return True
        if one.kind == "node":
            mine = any(_same(one.name, node) for node in self.nodes) or _letters(one.name) in self.letters
            return mine or not self.nodes or any(_names(line, one.name) for line in self.lines)
        return self.of_job(one.name, one.space or (self.pods[one.name].space if one.name in self.pods else ""))


def _same(one: str, other: str) -> bool:
    return one.partition(".")[0] == other.partition(".")[0]


def _names(line: str, node: str) -> bool:
    """Whether a line of a job's log tells of this node: `recv from spot-x7q1.europe-west4-b failed`."""
    return node in line and re.search(rf"(?<![\w-]){re.escape(node)}(?![\w-])", line) is not None


# What clouds give to each machine of a group: Google 4 of a-z and 0-9, Azure's scale sets 6.
_OF_A_GROUP = re.compile(r"-(?=[a-z]*\d|[^aeiou]{4}$)[a-z0-9]{4}$|(?<=vmss)[0-9a-z]{6}$")


def _letters(name: str) -> str:
    """Without its numbers."""
    return re.sub(r"[\W\d]+", "", _OF_A_GROUP.sub("", name.partition(".")[0]))


def _stem(name: str) -> str:
    """`gem-sft` of gem-sft-worker-1, `dlrm` of dlrm-workers-0-1-b49sd."""
    stem = _NUMBERS.sub("", name)
    parts = r"workers?|masters?|launchers?|chiefs?|leaders?|heads?|trainers?|nodes?|ps|replicas?|group"
    return re.sub(rf"(?:-(?:{parts}))+$", "", stem) or stem


def node_of_pod(evidence: Evidence, name: str) -> str:
    """The node on which a pod of this name runs; "" where nothing tells it."""
    pods = (pod for seen in evidence.of("cluster.events") for pod in seen.facts.pods)
    return next((pod.node for pod in pods if pod.name == name and pod.node), "")


def happenings(evidence: Evidence, names: Iterable[str], job: str | None) -> Iterator[tuple[LogEvent, RankLog, Seen]]:
    """What ends a job, of its own pods and nodes. `names`: nodes and pods that other evidence tells of; `job`: its
    number in Slurm."""
    told = _Told(evidence, set(names) - {""}, job)
    timed = any(event.at is not None for event, _, _ in _lines(evidence))
    gone = {told.node(one) for one, _ in told.said if one.what == "lost"} | told.unready
    for one, seen in told.said:
        node = told.node(one)
        if not told.concerns(one) or one.what not in AS_EVENTS:
            continue
        if one.what == "tainted" and (node in gone or not node):
            continue  # the node went first
        name, short_of = AS_EVENTS[one.what]
        stamp = (
            one.stamp.replace("T", " ")
            if one.at is None
            else datetime.fromtimestamp(one.at, UTC).strftime("%Y-%m-%d %H:%M:%S")
        )
        event = LogEvent(
            "scheduler_kill",
            one.text[:400],
            peer=node,
            name=name,
            code=_code(one.text) if name == POD_FAILED else None,
            at=one.at if timed else None,
            last_at=one.at if timed else None,
            clock="utc" if timed and one.at is not None else "",
            stamp=stamp,
            more={"short_of": short_of} if short_of else {},
        )
        yield event, RankLog(None, None, seen.ref, events=()), seen


def _code(text: str) -> int | None:
    """As Python gives it: negative where a signal ended the process."""
    found = re.search(r"exit code (\d{1,3})", text)
    number = int(found[1]) if found else 0
    return 128 - number if number > 128 else number or None


def _lines(evidence: Evidence) -> Iterator[tuple[LogEvent, RankLog, Seen]]:
    for seen in evidence.of("rank.log"):
        for log in seen.facts.logs:
            yield from ((event, log, seen) for event in log.events)
