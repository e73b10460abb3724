"""What a row of events or of conditions means, whoever printed it: which pod or node it is of.

Shape    told(found, ...) and condition(found, ...) add to a Gathered
Errors   none
"""

from __future__ import annotations

import re

from probes.catalog._cluster_facts import Gathered

CONDITIONS = ("Ready", "DiskPressure", "ReadonlyFilesystem")
GPU = re.compile(r"(?:nvidia|amd)\.com/gpu(?!\.)|habana\.ai/gaudi")
_SOURCE = re.compile(r"\bkubelet, ([a-z0-9][\w.-]{1,120})")
_ASSIGNED = re.compile(r"Successfully assigned (?:([\w.-]{1,80})/)?([\w.-]{1,120}) to ([\w.-]{1,120})")
_STATUS_OF = re.compile(r"\bNode ([a-z0-9][\w.-]{1,120}) (?:status is now|has been rebooted|is not ready)")
_POD_OF = re.compile(r"\b[Pp]od ([\w-]{1,80})/([\w.-]{1,120})")
_ON_NODE = re.compile(r"\bon node \"?([a-z0-9][\w.-]{1,120})")


def told(
    found: Gathered,
    kind: str,
    name: str,
    reason: str,
    message: str,
    node: str,
    at: float | None,
    space: str,
    age_s: float | None = None,
) -> None:
    if assigned := _ASSIGNED.search(message):
        found.pod(assigned[2], assigned[1] or space, assigned[3])
    if source := _SOURCE.search(message):
        node = node or source[1]
    if status := _STATUS_OF.search(message):
        kind, name = ("node", status[1]) if kind != "pod" else (kind, name)
        node = node or status[1]
        if "NodeNotReady" in (reason, message.rpartition(" ")[2]):
            found.unready.setdefault(status[1])
    if kind == "pod" and (on := _ON_NODE.search(message)):
        node = node or on[1]
    if kind == "node" and name:
        node = name
        if reason == "NodeNotReady":
            found.unready.setdefault(name)
    if not name and (pod := _POD_OF.search(message)):
        kind, space, name = "pod", pod[1], pod[2]
    found.event(kind, name, reason, message, node, at, space, age_s=age_s)


def condition(found: Gathered, node: str, what: str, state: str, rest: str) -> None:
    found.rows += 1
    if what == "Ready" and state != "True":
        found.unready.setdefault(node)
    elif what != "Ready" and state == "True":
        reason = "KubeletHasDiskPressure" if what == "DiskPressure" else "FilesystemIsReadOnly"
        found.event("node", node, reason, rest.strip(), node, None)
