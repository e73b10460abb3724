"""ibv_devinfo(1) of rdma-core, also with -v: `hca_id: mlx5_0`, its ports, active and largest MTU, GIDs."""

from __future__ import annotations

import re

from probes.catalog.network.ib_facts import IbPorts, Port
from probes.catalog.network.ib_names import speed_of
from probes.core import lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, number, refuse, whole
from probes.intake.tools.network._ports import node_facts, port

_HCA = re.compile(r"^hca_id:\s{1,8}(\S{1,64})", re.M)
_PORT = re.compile(r"^\s{0,32}port:\s{1,16}\d{1,3}\s*$", re.M)
_LINE = re.compile(r"\s{0,32}([A-Za-z_]{2,40}(?:\[\s{0,3}\d{1,4}\])?):\s{0,32}(.{0,100})$")
_MTU = re.compile(r"^\s{0,32}(active_mtu):\s{0,32}(\d{3,5} ?\(\d\).{0,40}|\d{3,5})$", re.M)
_OF_PORT = ("state", "active_mtu", "active_width", "active_speed", "link_layer", "phys_state")
_GID = re.compile(r"GID\[\s{0,3}(\d{1,4})\]")


def fits(head: str, name: str) -> bool:
    mtus = len(_MTU.findall(head))
    lines = sum(bool(line.strip()) for line in lines_of(head, 400))
    return bool(mtus or _PORT.search(head)) if _HCA.search(head) else 3 * mtus >= max(lines, 1)


def read(text: str) -> IbPorts:
    ports: list[Port] = []
    hca = ""
    of_hca: dict[str, str] = {}
    of_port: dict[str, str] | None = None
    bare = not _HCA.search(text)  # only some of its lines: those that somebody asked grep for

    def end() -> None:
        if of_port is not None and hca:
            ports.append(_port(hca, of_hca, of_port))

    for line in lines_of(text, 400):
        if found := _HCA.match(line):
            end()
            hca, of_hca, of_port = found[1], {}, None
        elif (hca or bare) and (found := _LINE.match(line) or _MTU.match(line)):
            if found[1] == "port":
                end()
                of_port = {"port": found[2].strip()}
            elif found[1] in _OF_PORT and (of_port is None or (bare and found[1] in of_port)):
                end()
                hca = f"mlx5_{len(ports)}" if bare else hca
                of_port = {"port": "1", found[1]: found[2].strip()}
            else:
                (of_hca if of_port is None else of_port).setdefault(found[1], found[2].strip())
    end()
    if not ports:
        raise refuse("adapters with ports as ibv_devinfo prints them", text)
    return node_facts(ports)


def _port(hca: str, of_hca: dict[str, str], told: dict[str, str]) -> Port:
    width = whole(told.get("active_width", "").partition("X")[0])
    lane = number(told.get("active_speed", "").partition(" ")[0])
    gids = []
    for key, value in told.items():
        if index := _GID.match(key):
            address, _, kind = value.partition(",")
            gids.append(f"{index[1]} {kind.strip() or '?'} {address.strip()}")
    return port(
        hca,
        whole(told["port"]) or 1,
        state=told.get("state", "").split(" ")[0] or None,
        phys_state=told.get("phys_state", "").split(" ")[0] or None,
        rate_gbps=None if width is None or lane is None else width * lane,
        width=width,
        speed=None if lane is None else speed_of(lane),
        lid=whole(told.get("port_lid", "")),
        sm_lid=whole(told.get("sm_lid", "")),
        link_layer=told.get("link_layer"),
        node_guid=of_hca.get("node_guid"),
        fw_ver=of_hca.get("fw_ver"),
        hca_type=of_hca.get("vendor_part_id"),
        board_id=of_hca.get("board_id"),
        mtu=whole(told.get("active_mtu", "").partition(" ")[0]),
        gids=tuple(gids[:64]),
    )


TOOL = Tool("ibv_devinfo", "ib.ports", fits, read, host=host_in)
