"""What an RDMA adapter may have at most: `max_qp` of each adapter in ibv_devinfo -v, also where only some lines of it
were kept; and `rdma resource show qp`, one line for each queue pair in use."""

from __future__ import annotations

import re

from probes.catalog.network.net_facts import Settings
from probes.catalog.network.rdma_resources import MOST, PAIR, at_most, in_use
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse
from probes.intake.tools.host.limits import quiet

_HCA = re.compile(r"^hca_id:\s{1,8}(\S{1,64})", re.M)


def fits(head: str, name: str) -> bool:
    asked = "max_qp" in name and any(one["most"] for one in MOST.finditer(head[:4096]))  # grep left one line
    return bool(_HCA.search(head) and "max_qp:" in head) or bool(PAIR.search(head)) or asked


def read(text: str) -> Settings:
    resources = at_most(text) | in_use(text)
    if not resources:
        raise refuse("a line 'max_qp:' below an adapter", text)
    return Settings(resources=resources)


def named(facts: Settings, path: str) -> Settings:
    """The adapter by the command, where the output tells none."""
    found = re.search(r"(?:mlx\d|bnxt_re)_?\d{1,3}(?!\d)", path.rpartition("/")[2])
    if found is None or " max_qp" not in facts.resources:
        return facts
    return Settings(resources={f"{found[0]}{key}" if key[0] == " " else key: v for key, v in facts.resources.items()})


TOOL = Tool("adapter limits", "host.settings", fits, read, quiet, host_in, named)
