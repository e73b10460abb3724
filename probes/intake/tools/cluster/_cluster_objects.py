"""Pods, nodes and events of Kubernetes as JSON, one object or one a line, and as YAML.

Source   core/v1 and events.k8s.io/v1; kubectl -o json and -o yaml; exporters of events, which wrap them
Shape    of_json(found, text) and of_yaml(found, text) add to a Gathered
Errors   none: what is cut off is left out
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from probes.catalog._cluster_facts import Gathered, moment
from probes.core import lines_of
from probes.intake.tools.cluster._cluster_words import CONDITIONS, GPU, condition, told

_YAML_FIELD = re.compile(
    r"(\s{0,40})(?:- )?(kind|name|nodeName|reason|message|namespace): {1,4}[\"']?(\S.{0,600}?)[\"']?$"
)

_FLOW = re.compile(r"(\s{0,40}(?:metadata|spec|status|involvedObject):) \{([^{}\[\]\"']{1,2000})\}")


def of_json(found: Gathered, text: str) -> None:
    for one in _objects(text):
        _object(found, one, 0)


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """Objects one after another, of one line or of many; those of a list one by one."""
    decoder, at, text = json.JSONDecoder(), 0, text[:16_777_216]
    while at < len(text):
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
        try:
            said, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            at = text.find("\n{", at + 1)
            if at < 0:
                return
            continue
        for one in said if isinstance(said, list) else [said]:
            if isinstance(one, dict):
                items = one.get("items")
                yield from (item for item in (items if isinstance(items, list) else [one]) if isinstance(item, dict))


def _at(one: dict[str, Any], *keys: str) -> Any:
    """What lies at this path; {} where nothing does."""
    found: Any = one
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return {} if found is None else found


def _word(one: Any) -> str:
    return one[:2000] if isinstance(one, str) else ""


def _object(found: Gathered, one: dict[str, Any], deep: int) -> None:
    if deep > 3:
        return
    about = one.get("involvedObject") or one.get("regarding")
    if isinstance(about, dict):
        at = next((one[key] for key in ("lastTimestamp", "eventTime", "firstTimestamp") if one.get(key)), "")
        at = at or _at(one, "metadata", "creationTimestamp")
        host = _word(_at(one, "source", "host")) or _word(_at(one, "deprecatedSource", "host"))
        told(found, _word(about.get("kind")).lower(), _word(about.get("name")), _word(one.get("reason")),
            _word(one.get("message")) or _word(one.get("note")), host, moment(_word(at)),
            _word(about.get("namespace")))  # fmt: skip
        return
    for inner in ("object", "event", "kubernetes_event"):  # event exporters wrap it
        if isinstance(one.get(inner), dict):
            _object(found, one[inner], deep + 1)
    status, name = _at(one, "status"), _word(_at(one, "metadata", "name"))
    if not isinstance(status, dict) or not name:
        return
    space, node = _word(_at(one, "metadata", "namespace")), _word(_at(one, "spec", "nodeName"))
    if one.get("kind") == "Node" or isinstance(status.get("nodeInfo"), dict):
        _conditions(found, status, "node", name, name, "")
        return
    if "containerStatuses" not in status and one.get("kind") != "Pod" and "phase" not in status:
        _conditions(found, status, _word(one.get("kind")).lower(), name, "", space)
        return
    found.pod(name, space, node, bool(GPU.search(json.dumps(one.get("spec", {}))[:200_000])))
    found.event("pod", name, _word(status.get("reason")), _word(status.get("message")), node, None, space)
    _conditions(found, status, "pod", name, node, space)
    for container in [*_list(status, "containerStatuses"), *_list(status, "initContainerStatuses")]:
        for state in ("state", "lastState"):
            ended = _at(container, state, "terminated")
            if isinstance(ended, dict) and ended.get("reason"):
                at = moment(_word(ended.get("finishedAt")))
                code = f"exit code {ended.get('exitCode')}" if ended["reason"] == "Error" else ""
                found.event("pod", name, _word(ended["reason"]), code or _word(ended.get("message")), node, at, space)


def _list(one: dict[str, Any], key: str) -> list[dict[str, Any]]:
    said = one.get(key)
    return [item for item in said[:1000] if isinstance(item, dict)] if isinstance(said, list) else []


def _conditions(found: Gathered, status: dict[str, Any], kind: str, name: str, node: str, space: str) -> None:
    found.rows += 1
    for one in _list(status, "conditions"):
        state, what = _word(one.get("status")), _word(one.get("type"))
        if kind == "node" and what in CONDITIONS:
            condition(found, name, what, state, _word(one.get("message")))
        elif kind != "node" and state == "True":
            at = moment(_word(one.get("lastTransitionTime")))
            found.event(kind, name, _word(one.get("reason")), _word(one.get("message")), node, at, space)


def of_yaml(found: Gathered, text: str) -> None:
    """Without a parser of YAML: keys of pods and nodes by their names, which are the same in every version."""
    kind, name, space, node, gpus, under = "pod", "", "", "", False, ""
    said: list[tuple[str, str]] = []  # reason, message

    def end() -> None:
        if name:
            found.pod(name, space, node, gpus) if kind == "pod" else None
            for reason, message in said:
                found.event(kind, name, reason, message, node if kind == "pod" else name, None, space)
        said.clear()

    for line in _in_blocks(text):
        word = line.strip().removeprefix("- ")
        gpus = gpus or bool(GPU.search(line))
        if word in ("metadata:", "spec:", "status:"):
            under = word
        one = _YAML_FIELD.match(line)
        if one is None:
            continue
        key, value = one[2], one[3].strip()
        found.rows += 1
        if key == "kind" and value in ("Pod", "Node"):
            kind = value.lower()
        elif key == "name" and under == "metadata:":
            if name not in ("", value):
                end()
                node, gpus = "", False
            name, under = value, ""
        elif key == "nodeName":
            node = value
        elif key == "namespace":
            space = space or value
        elif key == "message":
            said.append(("", value))
        elif key == "reason":
            # Keys are sorted: a message stands before its reason.
            said[-1:] = [(value, said[-1][1])] if said and not said[-1][0] else [*said[-1:], (value, "")]
    end()


def _in_blocks(text: str) -> Iterator[str]:
    """Its lines; a mapping that stands in one line, `spec: {nodeName: gpu-3, hostNetwork: true}`, as a block."""
    for line in lines_of(text[:4_194_304], 3000):
        flow = _FLOW.fullmatch(line.rstrip())
        if flow is None:
            yield line
            continue
        yield flow[1]
        yield from (f"  {' ' * (len(flow[1]) - len(flow[1].lstrip()))}{pair.strip()}" for pair in flow[2].split(","))
