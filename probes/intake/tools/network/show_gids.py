"""show_gids of NVIDIA's driver package: each GID of each port with its IPv4 address, RoCE version and interface."""

from __future__ import annotations

import re

from probes.catalog.network.ib_facts import IbPorts
from probes.catalog.network.port_words import node_facts, port
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse

_ROW = re.compile(
    r"^([a-zA-Z][\w.-]{1,40})\s{1,8}(\d{1,3})\s{1,8}(\d{1,4})\s{1,8}([0-9a-f:]{15,45})\s{1,32}"
    r"(?:(\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3})\s{1,16})?(v[12])(?:\s{1,16}([\w.@-]{1,40}))?",
    re.M,
)
_HEAD = re.compile(r"^DEV\s{1,16}PORT\s{1,16}INDEX\s{1,16}GID", re.M)


def fits(head: str, name: str) -> bool:
    return bool(_HEAD.search(head) and (_ROW.search(head) or "n_gids_found" in head))


def read(text: str) -> IbPorts:
    found: dict[tuple[str, int], list[tuple[str, str]]] = {}
    for hca, number, index, gid, ipv4, kind, netdev in _ROW.findall(text)[:8192]:
        found.setdefault((hca, int(number)), []).append((f"{index} {kind} {ipv4 or gid}", netdev))
    if not found and not _HEAD.search(text):
        raise refuse("the table that show_gids prints", text)
    return node_facts(
        [
            port(
                hca,
                number,
                gids=tuple(gid for gid, _ in gids[:64]),
                netdev=next((netdev for _, netdev in gids if netdev), None),
            )
            for (hca, number), gids in found.items()
        ]
    )


TOOL = Tool("show_gids", "ib.ports", fits, read, host=host_in)
