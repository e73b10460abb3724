"""mlnx_qos, dcb and lldptool's PFC: which priorities are without loss, what is trusted, which buffers they have."""

from __future__ import annotations

from dataclasses import replace

from probes.catalog.network.net_facts import Links, NetLink
from probes.catalog.network.net_qos import ENABLED, NAMED, OF_DCB, flow_control
from probes.core import lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse
from probes.intake.tools.network.ip_link import quiet


def fits(head: str, name: str) -> bool:
    known = (
        "PFC configuration:" in head or "Priority trust state:" in head or "prio-pfc" in head or '"prio_pfc"' in head
    )
    return known or bool(OF_DCB.search(head[:8192])) or any(ENABLED.match(line) for line in lines_of(head[:8192], 200))


def read(text: str) -> Links:
    found = flow_control(" ".join(text.split()) if text.lstrip()[:1] in "[{" else text)
    if not found:
        raise refuse("'PFC configuration:' as mlnx_qos prints it, or prio-pfc as dcb does", text)
    return Links(tuple(NetLink(name, **told) for name, told in found.items()))  # type: ignore[arg-type]


def named(facts: Links, path: str) -> Links:
    """The interface by the file's name, where the text does not tell it."""
    found = NAMED.search(path.rpartition("/")[2].replace("_", " ").replace("-", " ").replace(".", " "))
    if found is None:
        return facts
    return Links(tuple(one if one.name else replace(one, name=found[1]) for one in facts.links))


TOOL = Tool("mlnx_qos", "net.links", fits, read, quiet, host_in, named)
