"""`rdma -j resource show`: queue pairs and other resources in use, of each adapter; and `rdma -j resource show qp`, one
object for each."""

from __future__ import annotations

import json
import re
from collections import Counter

from probes.catalog._net_facts import Settings
from probes.core import clean
from probes.intake.tools import Tool
from probes.intake.tools._text import refuse
from probes.intake.tools.limits import quiet

WHAT = ("qp", "cq", "mr", "pd")


def fits(head: str, name: str) -> bool:
    listed = re.match(r"\s{0,8}\[", head) and '"ifname"' in head
    return bool(listed and ('"lqpn"' in head or re.search(r'"(?:qp|cq)"\s{0,4}:\s{0,4}\d', head)))


def read(text: str) -> Settings:
    resources: dict[str, int] = {}
    try:
        rows = [row for row in json.loads(text)[:200_000] if isinstance(row, dict) and "ifname" in row]
    except (ValueError, TypeError, RecursionError):
        raise refuse("what rdma -j resource prints", text) from None
    pairs = Counter(clean(str(row["ifname"]))[:64] for row in rows if "lqpn" in row)
    for row in rows:
        hca = clean(str(row["ifname"]))[:64]
        resources |= {f"{hca} {key}": row[key] for key in WHAT if isinstance(row.get(key), int)}
    resources |= {f"{hca} qp": count for hca, count in pairs.items()}
    if not resources:
        raise refuse("what rdma -j resource prints", text)
    return Settings(resources=resources)


TOOL = Tool("rdma resource as JSON", "host.settings", fits, read, quiet)
