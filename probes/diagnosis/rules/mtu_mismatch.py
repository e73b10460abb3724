"""The MTU of a training interface differs from the same one on the other nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.interfaces import NOT_TRAINING, training_interfaces
from probes.diagnosis.ports import Ports

CAUSE = "net.mtu_mismatch"


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    ports: Ports = evidence.ports
    training = training_interfaces(evidence, ports)
    by_name: dict[str, list[tuple[str, int, str]]] = {}
    for (node, name), (link, ref) in ports.links.items():
        if link.mtu is not None and not name.startswith(NOT_TRAINING) and link.up is not False:
            by_name.setdefault(name, []).append((node, link.mtu, ref))
    for view in ports.of_nodes:
        if view.facts is not None and view.facts.mtu is not None and view.facts.state in ("ACTIVE", None):
            by_name.setdefault(view.hca, []).append((view.node, view.facts.mtu, view.ref))
    for name, found in by_name.items():
        counts = Counter(mtu for _, mtu, _ in found)
        if len({node for node, _, _ in found}) < 2 or len(counts) < 2:
            continue
        most, count = counts.most_common(1)[0]
        settled = count * 2 > len(found)
        used = name in training or any(name == view.hca for view in ports.of_nodes)
        odd = [(node, mtu, ref) for node, mtu, ref in found if mtu != most]
        signal = "mtu_differs" if used else "mtu_differs_elsewhere"
        because = [Reason(f"{name} on {node}: MTU {mtu}", ref) for node, mtu, ref in odd[:4]]
        because.append(
            Reason(f"{name} on {count} nodes: MTU {most}", next(ref for _, mtu, ref in found if mtu == most))
        )
        nodes = frozenset(node for node, _, _ in odd)
        subject: dict[str, str | int] = {"device": name}
        if settled and len(nodes) == 1:
            subject = {"node": odd[0][0], "device": name}
        more = f" and {len(nodes) - 1} more nodes" if len(nodes) > 1 else ""
        yield Hypothesis(
            CAUSE, subject, f"MTU of {name} is {odd[0][1]} on {odd[0][0]}{more}, {most} on {count} others",
            tuple(because), (signal,),
            would_change=("a ping of full size without fragments between these nodes",), nodes=nodes,
        )  # fmt: skip


RULE = Rule((CAUSE,), judge)
