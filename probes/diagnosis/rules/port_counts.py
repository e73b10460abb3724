"""Somebody counted ports on every node by the same command, and one node has fewer up than the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule

CAUSE = "ib.link_down"
COUNTED, DOWN = "ports counted: ", "ports down: "  # of probes.intake.tools.network.port_counts
ODD_PART = 4  # at most every fourth node: more are another kind of machine; judgement


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    said: dict[str, dict[str, tuple[int, str]]] = {}
    for seen in evidence.of("host.settings"):
        for key, count in seen.facts.resources.items():
            if seen.node and key.startswith((COUNTED, DOWN)):
                said.setdefault(key, {})[seen.node] = count, seen.ref
    for key, nodes in said.items():
        usual, having = Counter(count for count, _ in nodes.values()).most_common(1)[0]
        worse = {
            node: one for node, one in nodes.items() if (one[0] > usual if key.startswith(DOWN) else one[0] < usual)
        }
        if having < 2 or having + len(worse) < len(nodes) or len(worse) * ODD_PART > max(len(nodes), ODD_PART):
            continue
        for node, (count, ref) in worse.items():
            if any(view.facts is not None and view.facts.state for view in evidence.ports.on(node)):
                continue  # its ports were looked at one by one
            what = key.partition(": ")[2]
            says = f"{what} gives {count} on {node}, {usual} on {having} other nodes"
            yield Hypothesis(
                CAUSE, {"node": node}, f"{node} has fewer ports up than the other nodes",
                (Reason(says, ref),), ("fewer_ports_counted",),
                would_change=(f"the state of each port of {node}: ibstat",), nodes=frozenset({node}),
            )  # fmt: skip


RULE = Rule((CAUSE,), judge)
