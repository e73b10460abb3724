"""ibstat(8) of infiniband-diags: every adapter of a node and its ports, `CA 'mlx5_0'` and indented lines below.

Who pastes it into a chat may have lost the blanks before the lines.
"""

from __future__ import annotations

import re

from probes.catalog.network.ib_facts import IbPorts, Port
from probes.catalog.network.port_words import node_facts, port
from probes.core import lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, number, refuse, whole

_CA = re.compile(r"^\s{0,8}CA '([^'\n]{1,64})'", re.M)
_PORT = re.compile(r"\s{0,16}Port (\d{1,3}):\s*$")
_LINE = re.compile(r"\s{0,24}([A-Z][A-Za-z ]{2,30}):\s{0,8}(.{0,100})$")


def fits(head: str, name: str) -> bool:
    return bool(_CA.search(head)) and ("CA type:" in head or "Physical state:" in head)  # grep leaves much out


def read(text: str) -> IbPorts:
    """Ports in the order of the text. The rate is Gb/s of the whole link; ibstat does not tell lanes."""
    ports: list[Port] = []
    of_ca: dict[str, str] = {}
    of_port: dict[str, str] | None = None
    hca, at = "", 0

    def end() -> None:
        if of_port and hca:
            ports.append(_port(hca, at, of_ca, of_port))

    for line in lines_of(text, 400):
        if found := _CA.match(line):
            end()
            hca, of_ca, of_port = found[1], {}, None
        elif hca and (found := _PORT.match(line)):
            end()
            at, of_port = int(found[1]), {}
        elif hca and (found := _LINE.match(line)):
            (of_ca if of_port is None else of_port).setdefault(found[1], found[2].strip())
    end()
    if not ports:
        raise refuse("adapters with ports as ibstat prints them", text)
    return node_facts(ports)


def _port(hca: str, at: int, of_ca: dict[str, str], told: dict[str, str]) -> Port:
    return port(
        hca,
        at,
        state=told.get("State"),
        phys_state=told.get("Physical state"),
        rate_gbps=number(told.get("Rate", "").split("(")[0]),
        lid=whole(told.get("Base lid", "")),
        sm_lid=whole(told.get("SM lid", "")),
        link_layer={"IB": "InfiniBand"}.get(told.get("Link layer", ""), told.get("Link layer") or None),
        node_guid=of_ca.get("Node GUID"),
        port_guid=told.get("Port GUID"),
        fw_ver=of_ca.get("Firmware version"),
        hca_type=of_ca.get("CA type") or None,
    )


TOOL = Tool("ibstat", "ib.ports", fits, read, host=host_in)
