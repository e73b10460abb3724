"""`rdma -j resource show`: queue pairs and other resources in use, of each adapter; and `rdma -j resource show qp`, one
object for each."""

from __future__ import annotations

import re

from probes.catalog.network.net_facts import Settings
from probes.catalog.network.rdma_resources import in_json
from probes.intake.tools import Tool
from probes.intake.tools._text import refuse
from probes.intake.tools.host.limits import quiet


def fits(head: str, name: str) -> bool:
    listed = re.match(r"\s{0,8}\[", head) and '"ifname"' in head
    return bool(listed and ('"lqpn"' in head or re.search(r'"(?:qp|cq)"\s{0,4}:\s{0,4}\d', head)))


def read(text: str) -> Settings:
    try:
        resources = in_json(text)
    except (ValueError, TypeError, RecursionError):
        raise refuse("what rdma -j resource prints", text) from None
    if not resources:
        raise refuse("what rdma -j resource prints", text)
    return Settings(resources=resources)


TOOL = Tool("rdma resource as JSON", "host.settings", fits, read, quiet)
