"""What ibv_devinfo prints of adapters and their ports, also with -v, and where only some of its lines were kept.

Source   ibv_devinfo(1) of rdma-core (libibverbs/examples/devinfo.c): `hca_id: mlx5_0`, lines of the adapter, then below
         `port: 1` those of each port
Units    bytes (`active_mtu: 4096 (5)`), Gb/s
Shape    ports(text) -> list of Port
Errors   none: [] where no port is told
"""

from __future__ import annotations

import re

from probes.catalog.network.ib_facts import Port
from probes.catalog.network.ib_names import speed_of
from probes.catalog.network.port_words import port
from probes.core import lines_of

HCA = re.compile(r"^hca_id:\s{1,8}(\S{1,64})", re.M)
MTU = re.compile(r"^\s{0,32}(active_mtu):\s{0,32}(\d{3,5} ?\(\d\).{0,40}|\d{3,5})$", re.M)
_LINE = re.compile(r"\s{0,32}([A-Za-z_]{2,40}(?:\[\s{0,3}\d{1,4}\])?):\s{0,32}(.{0,100})$")
_OF_PORT = ("state", "active_mtu", "active_width", "active_speed", "link_layer", "phys_state")
_GID = re.compile(r"GID\[\s{0,3}(\d{1,4})\]")
_NUMBER = re.compile(r"\s{0,8}(\d{1,9}(?:\.\d{1,3})?)(?![\w.])")
_LANES = re.compile(r"(\d{1,3})X")


def ports(text: str) -> list[Port]:
    found: list[Port] = []
    hca = ""
    of_hca: dict[str, str] = {}
    of_port: dict[str, str] | None = None
    bare = not HCA.search(text)  # only some of its lines: those that somebody asked grep for

    def end() -> None:
        if of_port is not None and hca:
            found.append(_port(hca, of_hca, of_port))

    for line in lines_of(text, 400):
        if adapter := HCA.match(line):
            end()
            hca, of_hca, of_port = adapter[1], {}, None
        elif (hca or bare) and (told := _LINE.match(line) or MTU.match(line)):
            if told[1] == "port":
                end()
                of_port = {"port": told[2].strip()}
            elif told[1] in _OF_PORT and (of_port is None or (bare and told[1] in of_port)):
                end()
                hca = f"mlx5_{len(found)}" if bare else hca
                of_port = {"port": "1", told[1]: told[2].strip()}
            else:
                (of_hca if of_port is None else of_port).setdefault(told[1], told[2].strip())
    end()
    return found


def _port(hca: str, of_hca: dict[str, str], told: dict[str, str]) -> Port:
    width, lane = _LANES.match(told.get("active_width", "")), _number(told.get("active_speed", ""))
    lanes = int(width[1]) if width else None
    gids = []
    for key, value in told.items():
        if index := _GID.match(key):
            address, _, kind = value.partition(",")
            gids.append(f"{index[1]} {kind.strip() or '?'} {address.strip()}")
    return port(
        hca,
        _whole(told["port"]) or 1,
        state=told.get("state", "").split(" ")[0] or None,
        phys_state=told.get("phys_state", "").split(" ")[0] or None,
        rate_gbps=None if lanes is None or lane is None else lanes * lane,
        width=lanes,
        speed=None if lane is None else speed_of(lane),
        lid=_whole(told.get("port_lid", "")),
        sm_lid=_whole(told.get("sm_lid", "")),
        link_layer=told.get("link_layer"),
        node_guid=of_hca.get("node_guid"),
        fw_ver=of_hca.get("fw_ver"),
        hca_type=of_hca.get("vendor_part_id"),
        board_id=of_hca.get("board_id"),
        mtu=_whole(told.get("active_mtu", "")),
        gids=tuple(gids[:64]),
    )


def _number(text: str) -> float | None:
    found = _NUMBER.match(text)
    return float(found[1]) if found else None


def _whole(text: str) -> int | None:
    """Its whole numbers are decimal: `port_lid: 27`, `active_mtu: 4096 (5)`."""
    found = _number(text)
    return int(found) if found is not None else None
