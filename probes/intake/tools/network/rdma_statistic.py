"""`rdma statistic show`, plain or -j: hardware counters of each port, `link mlx5_0/1 rx_write_requests 0 ...`."""

from __future__ import annotations

import json
import re

from probes.catalog.network.net_facts import Counters, CounterSet
from probes.core import clean
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, looks, refuse, whole
from probes.intake.tools.network.perfquery import quiet

_LINK = re.compile(r"^link ([\w.-]{1,60})/(\d{1,3}) ((?:[a-z]\w{1,60} \d{1,20}\s{0,3}){1,400})", re.M)
_KNOWN = ("rx_write_requests", "out_of_sequence", "local_ack_timeout_err", "packet_seq_err")


def fits(head: str, name: str) -> bool:
    return any(f"{key} " in head or f'"{key}"' in head for key in _KNOWN) and (
        bool(_LINK.search(head)) or (head[:1] == "[" and '"ifname"' in head)
    )


def read(text: str) -> Counters:
    sets: list[CounterSet] = []
    for at, body in looks(text):
        if body.lstrip()[:1] == "[":
            sets += _of_json(body, at)
        for hca, port, rest in _LINK.findall(body):
            words = rest.split()
            values = {key: whole(value) for key, value in zip(words[::2], words[1::2], strict=False)}
            sets.append(CounterSet("hca", clean(hca), int(port), values, at))
    if not sets:
        raise refuse("lines such as 'link mlx5_0/1 rx_write_requests 0'", text)
    return Counters(tuple(sets[:10_000]))


def _of_json(text: str, at: float | None) -> list[CounterSet]:
    try:
        rows, found = json.loads(text), []
        for row in rows[:1024]:
            values = {k: v for k, v in row.items() if isinstance(v, int) and k not in ("ifindex", "port")}
            found.append(CounterSet("hca", clean(str(row["ifname"]))[:64], int(row["port"]), values, at))
        return found
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise refuse("what rdma -j statistic show prints", text) from None


TOOL = Tool("rdma statistic", "ib.counters", fits, read, quiet, host_in)
