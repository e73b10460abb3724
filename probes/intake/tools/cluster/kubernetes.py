"""kubectl get events, get pods -o wide, get nodes, describe pod, describe node; the same as JSON, one object or a line
each; pods and nodes as YAML.

Source   kubectl 1.20 to 1.33 (get, describe, -o wide, -o json, -o yaml); core/v1 and events.k8s.io/v1 of Event
Units    seconds since the epoch
Shape    facts cluster.events, see _cluster_facts
Errors   ParseError when no row of it is understood
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from probes.catalog._cluster_facts import Cluster, Gathered, age, moment
from probes.core import Finding, lines_of
from probes.intake.hosts import DEVICE, NUMBERED, PART, alike
from probes.intake.names import looks_like_a_node
from probes.intake.tools import Tool
from probes.intake.tools._text import refuse
from probes.intake.tools.cluster._cluster_objects import of_json, of_yaml
from probes.intake.tools.cluster._cluster_words import GPU, condition, told

_EVENTS = re.compile(r"^(?:NAMESPACE {1,60})?LAST SEEN {1,40}(?:FIRST SEEN|COUNT|TYPE) ", re.M)
_PODS = re.compile(r"^(?:NAMESPACE {1,90})?NAME {1,90}READY {1,20}STATUS {1,30}RESTARTS {1,30}AGE\b[^\n]{0,200}", re.M)
# kubectl get pods -o custom-columns=..., whose heads people choose
_CUSTOM = re.compile(r"^(?:NAME|POD)(?: {1,90}[A-Z_]{2,20}){0,6} {1,90}NODE\b[^\n]{0,200}$", re.M)
_NODES = re.compile(r"^NAME {1,90}STATUS {1,60}ROLES {1,60}AGE {1,20}VERSION", re.M)
_DESCRIBED = re.compile(
    r"^Events:\s{0,200}\n\s{0,8}Type\s{1,20}Reason\s{1,40}Age|^Conditions:\s{0,40}\n\s{0,8}Type\s{1,40}Status\s"
    r"|^Name:\s{1,40}\S{1,120}\n(?:[A-Z][\w ]{1,30}:[^\n]{0,200}\n){0,4}(?:Namespace|Roles|Node):", re.M,
)  # fmt: skip
_JSON = re.compile(
    r'"involvedObject"|"regarding"\s{0,4}:\s{0,4}\{|"kind"\s{0,4}:\s{0,4}"(?:Event|Pod|Node)(?:List)?"|"containerStatuses"'
)
_YAML = re.compile(r"^\s{0,4}(?:- )?kind: (?:Pod|Node|Event)\s{0,4}$|^ {0,4}(?:- )?containerStatuses:", re.M)
_STATUS = re.compile(r"^ {0,4}status:(?: \{[^}\n]|\s{0,4}$)", re.M)
# A row of `kubectl get events` without its header, and of any table of events: type, reason, then the rest.
_ROW = re.compile(r"(?:^|\s)(Normal|Warning)\s{1,40}([A-Z][A-Za-z]{2,60})\s{1,40}(\S.{0,2000})")
_ROW_ALONE = re.compile(
    r"(?:[a-z0-9][\w.-]{0,62}\s{1,60})?(?:\d{1,5}[smhd][\dsmhd]{0,8}|<unknown>)(?: \(x\d{1,6} over \w{1,12}\))?\s{1,40}"
    r"(?:Normal|Warning)\s{1,40}[A-Z][A-Za-z]{2,60}\s{1,40}[a-z]{1,40}/\S"
)
_OBJECT = re.compile(r"(?<![\w/:.])(pod|node|job|workload|pytorchjob|mpijob|rayjob|raycluster|jobset|trainjob|podgroup"
    r"|statefulset|replicaset)s?(?:\.[\w.]{1,60})?/([a-z0-9][\w.-]{0,120})", re.I)  # fmt: skip
ENDED = (
    "OOMKilled",
    "Evicted",
    "Preempted",
    "Preempting",
    "Terminated",
    "Shutdown",
    "NodeShutdown",
    "DeadlineExceeded",
)
# A row of `kubectl get pods -o wide` of which grep left no header: only a pod has READY as 1/1, an address and a node.
_POD_ALONE = re.compile(
    r"[ \t]{0,8}(?:([a-z0-9][\w-]{0,62})[ \t]{1,60})?([a-z0-9][\w.-]{0,120})[ \t]{1,60}\d{1,3}/\d{1,3}[ \t]{1,30}"
    r"([A-Z][\w:/]{2,40})[ \t]{1,30}\d{1,6}(?: \([\ddhms]{1,12} ago\))?[ \t]{1,30}"
    r"(\d{1,5}[smhdy][\dsmhdy]{0,8})[ \t]{1,30}(?:[\da-f.:]{3,45}|<none>)[ \t]{1,30}([a-z0-9][\w.-]{0,120})(?:[ \t]|$)"
)
# Somebody's own list of where pods run: `llm-2 -> gpu-c`, `pod llm-2 on node gpu-c`, or the two names alone.
_PAIR = re.compile(
    r"\s{0,8}(?:pod[ /])?([a-z][a-z0-9.-]{0,62})\s{0,20}(?:->|=>|→|[:,=|]|\bon\b(?: node)?|\bruns on\b|\s)\s{0,60}"
    r"([a-z][a-z0-9.-]{0,62})\s{0,8}"
)
_SPACED = re.compile(r"([a-z0-9][\w.-]{0,62})\s{1,60}(?:\d{1,5}[smhd]|<unknown>)")
_FIELD = re.compile(r"(\s{0,16})([A-Z][\w .-]{1,40}?):\s{1,60}(\S.{0,1000})")
_CONDITION = re.compile(r"\s{1,8}(Ready|DiskPressure|ReadonlyFilesystem)\s{1,40}(True|False|Unknown)\s(.{0,600})")


def _fits(head: str, name: str) -> bool:
    if head.lstrip()[:1] in "{[":
        return bool(_JSON.search(head)) and '"traceEvents"' not in head[:400]
    if any(one.search(head) for one in (_EVENTS, _DESCRIBED, _NODES)) or _YAML.search(head[:8192]):
        return True
    if (pods := _PODS.search(head[:8192])) is not None:
        return "NODE" in pods[0].split() or "OOMKilled" in head or "Evicted" in head
    lines = [line for line in lines_of(head[:8192], 600) if line.strip()][:40]
    if _CUSTOM.search(head[:8192]) and ("OOMKilled" in head or "Evicted" in head or _CUSTOM.match(lines[0])):
        return True
    if _pairs(lines):
        return True
    alone = sum(bool(_ROW_ALONE.match(line.strip()) or _POD_ALONE.match(line)) for line in lines)
    return alone > 0 and alone * 2 > len(lines)


def has_status(text: str) -> bool:
    """Whether YAML is of a pod or node as the cluster has it, not of a manifest that somebody applies."""
    return bool(_YAML.search(text[:8192]) and _STATUS.search(text[:262_144]))


def _pairs(lines: list[str]) -> list[tuple[str, str]]:
    """(pod, node) of a list in which every line is such a pair, and nodes are not called as pods are."""
    found = [match for line in lines if (match := _PAIR.fullmatch(line))]
    pods, nodes = {one[1] for one in found}, {one[2] for one in found}
    forms = {NUMBERED.sub("#", pod) for pod in pods}
    if len(found) < 2 or len(found) < len(lines) or len(pods) < len(found) or alike(pods) != pods:
        return []
    strange = any(DEVICE.match(pod) or PART.match(pod) for pod in pods) or any(
        NUMBERED.sub("#", node) in forms or not (node in alike(nodes) or looks_like_a_node(node)) for node in nodes
    )
    return [] if strange else [(one[1], one[2]) for one in found]


def read(text: str) -> Cluster:
    found = Gathered()
    if text.lstrip()[:1] in "{[":
        of_json(found, text)
    elif _YAML.search(text[:8192]) and not _DESCRIBED.search(text):
        of_yaml(found, text)
    else:
        for pod, node in _pairs([line for line in lines_of(text[:262_144], 600) if line.strip()]):
            found.pod(pod, "", node)
        _tables(found, text)
    if not found.rows:
        raise refuse("events, pods or nodes of Kubernetes", text)
    return found.told()


@dataclasses.dataclass(slots=True)
class _Described:
    """The object that the lines are of."""

    kind: str = ""
    name: str = ""
    space: str = ""
    node: str = ""
    gpus: bool = False
    reason: str = ""
    told: str = ""
    ended: str = ""  # why a container ended, whose end is not told yet


def _tables(found: Gathered, text: str) -> None:
    of, columns = _Described(), dict[str, int]()
    for line in lines_of(text[:4_194_304], 3000):
        if line.startswith(("NAME", "LAST SEEN")) or _CUSTOM.match(line):
            columns = {word: line.index(word) for word in line.split()}
        elif (row := _ROW.search(line)) is not None:
            _event(found, of, line, row)
        elif (one := _FIELD.match(line)) is not None:
            _field(found, of, one)
        elif (one := _CONDITION.match(line)) is not None:
            condition(found, of.name if of.kind != "pod" else "", one[1], one[2], one[3])
        elif "STATUS" in columns or "NODE" in columns:
            _row(found, columns, line)
        elif (pod := _POD_ALONE.match(line)) is not None:
            _pod(found, pod[2], pod[1] or "", pod[3], pod[5], pod[4])
        of.gpus = of.gpus or bool(GPU.search(line))
    _close(found, of)


def _row(found: Gathered, columns: dict[str, int], line: str) -> None:
    """A row of `kubectl get pods` or `get nodes`. `(2m ago)` behind the restarts are words of its own."""
    words = re.sub(r"\(\S{1,12} ago\)", "", line).split()
    spaced = list(columns)[:1] == ["NAMESPACE"]
    heads = [word for word in columns if word not in ("NOMINATED", "READINESS", "GATES")]
    named = words and re.fullmatch(r"(?:[a-z]{3,12}/)?[a-z0-9][\w.-]{0,120}", words[0])
    if not named or len(words) < min(3, len(heads)):
        return
    cells = dict(zip(heads, words, strict=False))
    name = (cells.get("NAME") or cells.get("POD") or "").rpartition("/")[2]
    status = cells.get("STATUS") or cells.get("REASON") or ""
    if "ROLES" in columns:
        found.rows += 1
        if status.startswith("NotReady"):
            found.unready.setdefault(name)
        return
    space = words[0] if spaced else ""
    _pod(found, name, space, status, cells.get("NODE", ""), cells.get("AGE", ""))


def _pod(found: Gathered, name: str, space: str, status: str, node: str, since: str) -> None:
    found.pod(name, space, node, age_s=age(since))
    if status in ENDED and status != "Evicted":  # why it was evicted tells another line
        message = "terminated" if status in ("Terminated", "Shutdown") else ""
        found.event("pod", name, status, message, node.replace("<none>", ""), None, space)


def _event(found: Gathered, of: _Described, line: str, row: re.Match[str]) -> None:
    reason, message = row[2], row[3]
    kind, name, space, node = of.kind, of.name, of.space, of.node
    if there := _OBJECT.match(message) or _OBJECT.search(line):
        kind, name, node = there[1].lower(), there[2], ""
        space = spaced[1] if (spaced := _SPACED.match(line)) is not None else ""
        message = message[there.end() :].strip() if message.startswith(there[0]) else message
    since = age(line[: row.start(1)]) or age(message)  # a table has it first, a description behind the reason
    told(found, kind, name, reason, message, node, moment(line), space, since)


def _field(found: Gathered, of: _Described, one: re.Match[str]) -> None:
    """A line of `kubectl describe`: a key and its value."""
    deep, key, value = len(one[1]), one[2].strip(), one[3].strip()
    if key == "Name" and deep == 0:
        _close(found, of)
        of.kind, of.name, of.space, of.node, of.gpus, of.reason = "", value, "", "", False, ""
    elif key == "Namespace" and deep == 0:
        of.space, of.kind = value, of.kind or "pod"
    elif key == "Kind" and deep == 0:
        of.kind = value.lower()
    elif key == "Roles" and deep == 0:
        of.kind = "node"
    elif key == "Node" and deep == 0:
        of.kind, of.node = "pod", value.partition("/")[0]
    elif key == "Reason":
        of.reason = value
        if deep > 0:  # of a container's state, or of its last
            _ended(found, of)
            of.ended = value
        elif value in ENDED:
            of.told = value
    elif key == "Exit Code" and of.ended == "Error":
        of.ended = f"Error {value}"
    elif key == "Finished" and of.ended:
        _ended(found, of, moment(value))
    elif key == "Message" and deep > 0 and of.kind not in ("", "pod", "node"):  # a condition of a job
        found.event("job", of.name, of.reason, value, "", None, of.space)
    elif key == "Message" and deep == 0:
        found.event("pod", of.name, of.reason, value, of.node, None, of.space)
        of.told = ""


def _ended(found: Gathered, of: _Described, at: float | None = None) -> None:
    """How a container ended, once it is known when."""
    if of.ended:
        reason, _, code = of.ended.partition(" ")
        found.event("pod", of.name, reason, f"exit code {code}" if code else "", of.node, at, of.space)
    of.ended = ""


def _close(found: Gathered, of: _Described) -> None:
    _ended(found, of)
    if of.name and of.kind == "pod":
        found.pod(of.name, of.space, of.node, of.gpus)
        if of.told:
            found.event("pod", of.name, of.told, "", of.node, None, of.space)
    of.told = ""


def _named(facts: Cluster, path: str) -> Cluster:
    """Rows of a description whose head was cut off are of the node or pod that it was asked for."""
    folder = PurePosixPath(path).parent.name
    if not any(not one.name for one in facts.happenings) and "" not in facts.unready:
        return facts
    happenings = tuple(
        one if one.name else dataclasses.replace(one, name=folder, node=folder if one.kind == "node" else one.node)
        for one in facts.happenings
    )
    return dataclasses.replace(facts, happenings=happenings, unready=tuple(one or folder for one in facts.unready))


_OF_NODE = re.compile(r"^Name:\s{1,40}(\S{1,120})\nRoles:|\bNode ([a-z0-9][\w.-]{1,120}) status is now: NodeHas", re.M)


def _host(text: str) -> str:
    """The node that is described."""
    names = (
        {first or second for first, second in _OF_NODE.findall(text[:262_144])} if _DESCRIBED.search(text) else set()
    )
    return names.pop() if len(names) == 1 else ""


def _quiet(facts: Cluster) -> Iterable[Finding]:
    return ()


TOOL = Tool("kubectl", "cluster.events", _fits, read, _quiet, _host, named=_named, log=True)
