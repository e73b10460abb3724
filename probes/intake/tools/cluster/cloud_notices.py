"""What a cloud did to its machines: Google's operations, Amazon's events and instances, Azure's scheduled events.

Source   Compute Engine: operationType (compute.instances.preempted, .hostError, .terminateOnHostMaintenance,
         .guestTerminate); EC2: EventBridge's "detail-type", describe-instances' StateReason and StateTransitionReason,
         describe-spot-instance-requests' Status.Code, spot/instance-action; Azure: Scheduled Events' EventType;
         Karpenter's interruption controller
Shape    facts cluster.events: nodes as they are called there
Errors   ParseError when none of these is in it
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from probes.catalog._cluster_facts import Cluster, Gathered, moment
from probes.core import Finding, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import refuse

_GOOGLE = re.compile(
    r"compute\.instances\.(preempted|hostError|terminateOnHostMaintenance|guestTerminate|automaticRestart)"
)
_TARGET = re.compile(r"(?:instances/|\s)([a-z][a-z0-9-]{1,62})(?=\s|$)")
_AMAZON = re.compile(
    r"Server\.SpotInstance(?:Termination|Shutdown)|Server\.InternalError|EC2 Spot Instance Interruption Warning"
    r"|instance-terminated-(?:by-price|no-capacity|capacity-oversubscribed|by-service)"
)
_AZURE = re.compile(r'"EventType"\s{0,4}:\s{0,4}"(?:Preempt|Reboot|Redeploy|Terminate)"')
_ACTION = re.compile(
    r'^\s{0,40}\{\s{0,8}"action"\s{0,4}:\s{0,4}"(?:terminate|stop|hibernate)"\s{0,4},\s{0,8}"time"'
)  # IMDS
_KARPENTER = re.compile(r'"messageKind"\s{0,4}:\s{0,4}"(?:spot_interrupted|instance_terminated|instance_stopped)"')
_WHEN = ("insertTime", "endTime", "timestamp", "time")
_NAMES = ("PrivateDnsName", "Name", "instance-id", "InstanceId", "resourceName")


def _fits(head: str, name: str) -> bool:
    return (
        any(one.search(head) for one in (_GOOGLE, _AMAZON, _AZURE, _KARPENTER, _ACTION))
        and '"involvedObject"' not in head
    )


def read(text: str) -> Cluster:
    found = Gathered()
    if text.lstrip()[:1] in "{[":
        for one, at in _objects(text):
            _object(found, one, at)
    else:
        for line in lines_of(text[:4_194_304], 2000):
            if (kind := _GOOGLE.search(line)) and (names := _TARGET.findall(line[kind.end() :])):
                _gone(found, names[0], kind[0], line.strip()[:200], moment(line))
    if not found.rows:
        raise refuse("operations or events of a cloud", text)
    return found.told()


def _gone(found: Gathered, node: str, kind: str, text: str, at: float | None) -> None:
    found.event("node", node, "InstanceTerminated", f"{kind}: {text}", node, at)


def _objects(text: str) -> Iterator[tuple[dict[str, Any], float | None]]:
    """Every object of a document with its time, or the time of the one around it; the outer ones first. Of several
    documents each."""
    decoder, at = json.JSONDecoder(), 0
    while at < len(text) and at < 16_777_216:
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
        try:
            said, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        todo: deque[tuple[Any, float | None]] = deque([(said, None)])
        seen = 0
        while todo and seen < 200_000:
            (one, around), seen = todo.popleft(), seen + 1
            if isinstance(one, list):
                todo += [(inner, around) for inner in one[:20_000]]
            elif isinstance(one, dict):
                own = next((moment(one[key]) for key in _WHEN if isinstance(one.get(key), str)), around)
                yield one, own
                todo += [(inner, own) for inner in one.values() if isinstance(inner, dict | list)]


def _object(found: Gathered, one: dict[str, Any], at: float | None) -> None:
    found.rows += 1
    words = {key: value for key, value in one.items() if isinstance(value, str)}
    flat = " ".join(words.values())[:4000]
    if kind := _GOOGLE.search(flat):
        target = words.get("targetLink") or words.get("resourceName") or flat
        if named := re.search(r"instances/([a-z][a-z0-9-]{1,62})", target):
            _gone(found, named[1], kind[0], "", at)
    elif words.get("EventType") in ("Preempt", "Reboot", "Redeploy", "Terminate"):
        for node in one.get("Resources") or []:
            _gone(found, str(node)[:120].rpartition("/")[2].lstrip("_"), words["EventType"], "", at)
    elif words.get("action") in ("terminate", "stop", "hibernate") and one.keys() <= {"action", "time"} and at:
        _gone(found, "", f"spot instance-action {words['action']}", "", at)
    elif words.get("messageKind") in ("spot_interrupted", "instance_terminated", "instance_stopped"):
        node = one.get("Node") or one.get("node")
        name = node.get("name") if isinstance(node, dict) else node
        _gone(found, str(name or "")[:120], words["messageKind"], "", at)
    elif "StateReason" in one or "StateTransitionReason" in words or "Status" in one:
        code = one.get("StateReason") or one.get("Status")
        said = json.dumps(code)[:400] + words.get("StateTransitionReason", "")
        if kind := _AMAZON.search(said):
            _gone(found, _name(words), kind[0], words.get("StateTransitionReason", ""), moment(said))
    elif "Interruption Warning" in words.get("detail-type", ""):
        detail = one.get("detail")
        node = _name({key: str(value) for key, value in detail.items()}) if isinstance(detail, dict) else ""
        _gone(found, node, words["detail-type"], "", at)


def _name(words: dict[str, str]) -> str:
    name = next((words[key][:120] for key in _NAMES if words.get(key)), "")
    return "" if re.fullmatch(r"i-[0-9a-f]{3,17}", name) else name  # a number that no node is called by


def _quiet(facts: Cluster) -> Iterable[Finding]:
    return ()


TOOL = Tool("a cloud's notices", "cluster.events", _fits, read, _quiet)
