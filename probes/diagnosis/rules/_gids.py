"""Which node has another kind of address than the others at the GID index that NCCL was told to take.

An address of a second interface or of IPv6 shifts the table: where index 3 is RoCE v2 over IPv4 on the others it is
something else there. NCCL's manual, NCCL_IB_GID_INDEX; from 2.21 on it looks for the row itself where that is not set.
"""

from __future__ import annotations

import ipaddress
from collections import Counter

from probes.diagnosis.core import Evidence, Reason
from probes.diagnosis.ports import PortView

NAME = "NCCL_IB_GID_INDEX"
FEWEST = 3  # nodes that can be compared


def told_index(evidence: Evidence) -> set[int]:
    """The index that NCCL was told, on any node."""
    values = [str(one[0].more.get("value", "")) for one in evidence.job.said("nccl_setting") if one[0].name == NAME]
    values += [str(seen.facts.env.get(NAME, "")) for seen in evidence.of("host.settings")]
    values += [str(job.shared.get(NAME, "")) for seen in evidence.of("rank.env") for job in seen.facts.jobs]
    return {int(value) for value in values if value.isdecimal() and len(value) < 4}


def odd_gids(evidence: Evidence) -> dict[str, list[Reason]]:
    """Node -> why, of the few that differ from most others at that index."""
    indexes = told_index(evidence)
    if len(indexes) != 1:
        return {}
    index = indexes.pop()
    same: dict[tuple[str, int], list[tuple[PortView, str, str]]] = {}
    for view in evidence.ports.of_nodes:
        if view.node and view.facts is not None and len(view.facts.gids) > 1 and view.facts.link_layer != "InfiniBand":
            gid = _at(view, index)
            same.setdefault((view.hca, view.port), []).append((view, _kind(gid), gid))
    odd: dict[str, list[Reason]] = {}
    for views in same.values():
        most, count = Counter(kind for _, kind, _ in views).most_common(1)[0]
        if len({view.node for view, *_ in views}) < FEWEST or count * 3 < 2 * len(views):
            continue
        for view, kind, gid in views:
            if kind != most:
                shown = gid or "no GID"
                says = f"GID {index} of {view.called} is {shown} ({kind}), on {count} other nodes {most}"
                odd.setdefault(view.node, []).append(Reason(says, view.ref))
    return odd


def _at(view: PortView, index: int) -> str:
    assert view.facts is not None
    rows = (gid.split(" ", 1) for gid in view.facts.gids if " " in gid)
    return next((rest for number, rest in rows if number == str(index)), "")


def _kind(gid: str) -> str:
    version, _, address = gid.rpartition(" ")
    version = "RoCE v2" if "v2" in version.lower() else "RoCE v1" if version else ""
    try:
        one = ipaddress.ip_address(address)
    except ValueError:
        return "nothing" if not gid else version
    if isinstance(one, ipaddress.IPv6Address) and one.ipv4_mapped is None:
        family = "link-local" if one.is_link_local else "IPv6"
    else:
        family = "IPv4"
    return f"{version} {family}".strip()
