"""Any text of one node in which states or rates of its RDMA ports stand: lines of loops, grep, tables. Without a name
ports count in their order, as `cat /sys/class/infiniband/mlx5_*/ports/1/state` prints them.
"""

from __future__ import annotations

import re
from dataclasses import replace

from probes.catalog.network.ib_facts import IbPorts
from probes.catalog.network.port_words import node_facts, port
from probes.intake.first_words import parts_by_first_word
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, mentions, refuse
from probes.intake.tools.network import ibstat, ibstatus, ibv_devinfo, rdma_link, sysfs_ports
from probes.intake.tools.network._counter_sets import device
from probes.intake.tools.network._port_words import QUICK, ports_told

_OWN = (ibstat, ibstatus, ibv_devinfo, rdma_link, sysfs_ports)
_TOOLS = re.compile(r"(?:sudo_)?(?:ibstat(?:us)?|ibportstate|ibv_devinfo|cat_sys_class_infiniband)(?![a-z])")
SHARE = 0.6  # of its lines tell a port; judgement: prose and logs mention one now and then
LOOKED_AT = 8_192
UNNAMED = "mlx5_0"  # the first port, where no line names one


def fits(head: str, name: str) -> bool:
    if head.lstrip()[:1] in "{[<" or any(own.fits(head, name) for own in _OWN):
        return False
    if _listed(head):
        return True
    if not mentions(head[:8_192], QUICK):
        return False
    ports, share = ports_told(head[:LOOKED_AT])
    some = [one for one in ports if one.kind != "netdev"]
    if parts_by_first_word(head[:LOOKED_AT]):
        return False  # of several nodes: each is read by itself
    return share >= SHARE and (
        len(some) > 1 or (len(some) == 1 and bool(some[0].name or _asked_for(name) or _TOOLS.match(name)))
    )


def read(text: str) -> IbPorts:
    if names := _listed(text[:LOOKED_AT]):
        return node_facts([port(name, 1) for name in names])
    ports, _ = ports_told(text[:4_194_304])
    some = [one for one in ports if one.kind != "netdev"]
    if not some:
        raise refuse("states of RDMA ports", text)
    keys = ("state", "phys_state", "rate_gbps", "width", "speed")
    return node_facts(
        [
            port(
                one.name or (f"mlx5_{place}" if place else UNNAMED),
                one.port or 1,
                **{key: one.values.get(key) for key in keys},
            )
            for place, one in enumerate(some)
        ]
    )


def _asked_for(label: str) -> str:
    """The one adapter in the command that a file is called by: `cat_sys_class_infiniband_mlx5_0_ports_1_rate`."""
    names = set(re.findall(r"(?<![a-z0-9])(?:mlx[45]|bnxt_re|irdma|efa|rdmap\d{1,3}s)_?\d{1,3}(?![0-9])", label))
    return names.pop() if len(names) == 1 else ""


def _named(facts: IbPorts, path: str) -> IbPorts:
    asked_for = _asked_for(path.rpartition("/")[2])
    if not asked_for or len(facts.ports) != 1 or facts.ports[0].hca != UNNAMED:
        return facts
    return replace(facts, ports=(replace(facts.ports[0], hca=asked_for),))


def _listed(text: str) -> list[str]:
    """Nothing but names of adapters: `ls /sys/class/infiniband`."""
    words = text.split()[:513]
    names = [found[1] for word in words if (found := device(word)) is not None and found[0] == "hca"]
    return names if 1 < len(names) == len(words) == len(set(names)) else []


TOOL = Tool("ports in text", "ib.ports", fits, read, host=host_in, named=_named)
