"""On which node each pod runs: logs are named after pods, kernel logs after nodes.

Source   kubectl get pods -o wide (with or without -A), kubectl get pods -o json, oc
Shape    facts job.pods
Errors   ParseError when no pod is told with its node
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from probes.core import Finding, clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import refuse

MOST = 10_000
_HEADER = re.compile(
    r"^\s{0,4}(?:NAMESPACE {1,60})?NAME {1,200}READY {1,20}STATUS {1,40}RESTARTS [^\n]{0,200}\bNODE\b", re.M
)
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,252}")


@dataclass(frozen=True, slots=True)
class Pods:
    """`nodes`: pod -> its node."""

    nodes: dict[str, str]


def _fits(head: str, name: str) -> bool:
    return bool(_HEADER.search(head[:16_384])) or ('"nodeName"' in head and '"Pod"' in head and head[:1] == "{")


def read(text: str) -> Pods:
    found = _of_json(text) if text.lstrip()[:1] == "{" else _of_table(text)
    if not found:
        raise refuse("pods with their nodes", text)
    return Pods(dict(list(found.items())[:MOST]))


def _of_table(text: str) -> dict[str, str]:
    """By the columns' places: `2 (5m ago)` of RESTARTS is two words."""
    found: dict[str, str] = {}
    begins: tuple[int, int] | None = None
    for line in lines_of(text[:4_194_304], 1000):
        if _HEADER.match(line):
            begins = re.search(r"\bNAME\b", line).start(), re.search(r"\bNODE\b", line).start()  # type: ignore[union-attr]
        elif begins is not None:
            pod, node = line[begins[0] :].split(" ", 1)[0], line[begins[1] :].split(" ", 1)[0].strip()
            if _NAME.fullmatch(pod) and _NAME.fullmatch(node):
                found.setdefault(clean(pod), clean(node))
            elif not line.strip():
                begins = None
    return found


def _of_json(text: str) -> dict[str, str]:
    try:
        said = json.loads(text[:16_777_216])
    except (ValueError, RecursionError):
        return {}
    items = said.get("items", [said]) if isinstance(said, dict) else []
    found: dict[str, str] = {}
    for one in items if isinstance(items, list) else []:
        meta, spec = (one.get(key) if isinstance(one, dict) else None for key in ("metadata", "spec"))
        pod = meta.get("name") if isinstance(meta, dict) else None
        node = spec.get("nodeName") if isinstance(spec, dict) else None
        if isinstance(pod, str) and isinstance(node, str) and _NAME.fullmatch(pod) and _NAME.fullmatch(node):
            found.setdefault(pod, node)
    return found


def _quiet(facts: Pods) -> Iterable[Finding]:
    return ()


TOOL = Tool("pods with their nodes", "job.pods", _fits, read, _quiet)
