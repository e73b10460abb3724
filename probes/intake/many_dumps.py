"""Flight-recorder dumps of several ranks in one file of JSON: an object by rank, a list, or one object a line.

    {"0": {"version": "2.10", "entries": [...]}, "1": ...}
    [{"rank": 0, "host": "gn-4", "trace": {...}}, ...]

Shape    dumps_in(data) -> rank, node and the dump of each; none where it is the dump of one rank that tells no rank
Errors   none: what is no JSON is none
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

MOST_BYTES, MOST_RANKS, DEPTH = 268_435_456, 65_536, 4
_KEYS = ("entries", "pg_config", "pg_status")
_RANKS = ("rank", "global_rank", "world_rank", "Rank")
_HOSTS = ("host", "hostname", "node", "node_name")
_ALONE = re.compile(
    rb'\s{0,80}(?:\{\s{0,80}"(?:comm_lib_version|entries|nccl_comm_state|nccl_version|pg_config|pg_status|version)"'
    rb'|\[\s{0,80}\{\s{0,80}"(?:pg_id|frames|record_id|seq_id|profiling_name)")'
)
_NUMBER = re.compile(r"(?:[A-Za-z_ -]{0,24}?[_ :-]?)(\d{1,6})")
Found = tuple[int, str, dict[str, Any]]


def dumps_in(data: bytes) -> list[Found]:
    if data[:1] not in b"{[ \n" or len(data) > MOST_BYTES or (_ALONE.match(data) and b"}\n{" not in data):
        return []
    found = []
    for body in _bodies(data):
        found += list(_within(body, None, "", DEPTH))
        if len(found) > MOST_RANKS:
            return []
    return found


def _bodies(data: bytes) -> Iterator[Any]:
    text = data.decode("utf-8", "replace")
    for part in [text] if "}\n{" not in text else text.split("\n"):
        try:
            yield json.loads(part)
        except (ValueError, RecursionError):
            continue


def _within(body: Any, rank: int | None, host: str, depth: int) -> Iterator[Found]:
    if isinstance(body, list):
        for one in body if depth else ():
            yield from _within(one, rank, host, depth - 1)
        return
    if not isinstance(body, dict):
        return
    rank = next((body[key] for key in _RANKS if type(body.get(key)) is int and 0 <= body[key] < 10**6), rank)
    host = next((body[key] for key in _HOSTS if isinstance(body.get(key), str)), host)[:80]
    if any(key in body for key in _KEYS) and any(isinstance(body.get(key), list | dict) for key in _KEYS):
        if rank is not None:
            yield rank, host, body
        return
    for key, inner in body.items() if depth else ():
        named = _NUMBER.fullmatch(key[:40])
        yield from _within(inner, int(named[1]) if named else rank, host, depth - 1)
