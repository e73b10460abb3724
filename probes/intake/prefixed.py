"""Lines that begin with the node or pod that wrote them, as pdsh, srun and `kubectl logs --prefix` put it in front.

Shape    names_in(head) -> the names, set() where not nearly all lines begin so; by_name(text, names) -> name: its lines
Errors   none
"""

from __future__ import annotations

import re

from probes.intake.names import is_address, looks_like_a_node

MOST_NODES = 1_024
_PART = re.compile(r"(?:mc|csrow|cpu|dimm|ch|mce|socket|core|disk|bank)\d{1,4}", re.I)  # of a node: edac-util's mc0:
_PREFIX = re.compile(r"(?:\[pod/)?([A-Za-z][\w.-]{0,80}|\d{1,3}(?:\.\d{1,3}){3}(?=:))(?:: |:$|/[\w.-]{1,80}\] )")
# What only a machine tells, whatever it is called: `sirius: [81.2] usb 1-1`, a row of uptime, df, chronyc, nvidia-smi.
_OF_A_MACHINE = re.compile(
    r"[A-Za-z][\w.-]{2,80}: {1,3}(?:\[ {0,5}\d{1,9}\.\d{1,9}\] |\d\d:\d\d:\d\d up \d"
    r"|/dev/\S{1,60}(?: {1,20}\S{1,12}){4} /"
    r"|System time {0,8}: |Last offset {0,8}: |Leap status {0,8}: |NVIDIA-SMI |Failed to initialize NVML|GPU \d{1,2}: )"
)
# A Deployment's pod, a node of GKE, an instance of EC2. Kubernetes leaves vowels and 0, 1, 3 out of what it draws.
_GENERATED = re.compile(
    r"[a-z][a-z0-9-]{0,62}-[0-9a-f]{8,10}-[bcdfghjklmnpqrstvwxz2456789]{4,5}|i-[0-9a-f]{8}(?:[0-9a-f]{9})?"
)
_ADAPTER = re.compile(r"(?:mlx\d|bnxt_re|hfi\d|rdmap|rocep|roce|ibp|irdma|efa|rxe)_?\d[\w/]{0,12}")


def names_in(head: list[str], share: float = 0.95) -> set[str]:
    """The names that stand before the lines, when they stand before nearly all of them."""
    found = [match[1] for line in head if (match := _PREFIX.match(line))]
    names = set(found)
    if not found or len(found) < len(head) * share or len(names) > MOST_NODES:
        return set()
    if all(map(_PART.fullmatch, names)) or all(map(_ADAPTER.fullmatch, names)):
        return set()  # parts or ports of one node
    pods = sum(line.startswith("[pod/") for line in head) > len(head) // 2
    alike = {re.sub(r"\d+", "#", name) for name in names}
    numbered = all(any(c.isdigit() for c in name) for name in names)
    machines = len(names) > 1 and 2 * sum(bool(_OF_A_MACHINE.match(line)) for line in head) > len(head)
    told = pods or all(map(is_node, names)) or all(map(generated, names)) or machines
    return names if told or (len(names) > 1 and len(alike) == 1 and numbered) else set()


def generated(name: str) -> bool:
    """Whether it is a name that Kubernetes or a cloud made: no person's word, and no tool's."""
    return bool(_GENERATED.fullmatch(name.partition(".")[0]))


def only_name(rows: list[str]) -> set[str]:
    """The one name before all rows of a command that ran on many nodes: only one had something to say."""
    names = {match[1] if (match := _PREFIX.match(line)) else "" for line in rows}
    return names if len(names) == 1 and any(c.isdigit() for c in "".join(names)) else set()


def is_node(name: str) -> bool:
    return looks_like_a_node(name) or looks_like_a_node(name.partition(".")[0]) or is_address(name)


def by_name(text: str, names: set[str]) -> dict[str, str]:
    lines: dict[str, list[str]] = {}
    last = ""
    for line in text.split("\n"):
        match = _PREFIX.match(line[:200])
        if match and (match[1] in names or len(lines) < MOST_NODES):
            last = match[1]
            lines.setdefault(last, []).append(line[match.end() :])
        elif last and line:
            lines[last].append(line)  # one that was torn
    return {name: "\n".join(some) + "\n" for name, some in lines.items()}
