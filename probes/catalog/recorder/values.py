"""Values out of a flight-recorder dump, each checked: whatever is not what torch writes becomes None, -1 or nothing.

Brought to the node by rank.flight_recorder: standard library only, nothing newer than Python 3.6 but annotations.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

TEXT = 200  # characters of a name or a path


def text(value: Any) -> str:
    return value[:TEXT] if isinstance(value, str) else ""


def whole(value: Any) -> int | None:
    """An integer of at most 63 bits; JSON holds some as text."""
    if isinstance(value, str) and value[:20].lstrip("-").isdigit() and len(value) <= 20:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63 else None


def moment(entry: Mapping[str, Any], key: str) -> float | None:
    """Seconds since the epoch. JSON has 0 where the pickle has None."""
    ns = whole(entry.get(key + "_ns"))
    if ns is None:
        us = whole(entry.get(key + "_us"))
        ns = us * 1000 if us else None
    return round(ns / 1e9, 6) if ns and ns > 0 else None


def sizes(value: Any) -> tuple[tuple[int, ...], ...]:
    """[[1024], [16, 16]]: sizes of tensors. Whatever is not a size becomes -1."""
    found = []
    for size in value if isinstance(value, (list, tuple)) else ():
        numbers = [whole(one) for one in size[:32]] if isinstance(size, (list, tuple)) else [None]
        found.append(tuple(-1 if one is None else one for one in numbers))
    return tuple(found)


def words(value: Any) -> tuple[str, ...]:
    return tuple(text(one)[:40] for one in value) if isinstance(value, (list, tuple)) else ()


def folded_ranks(value: Any) -> list[list[int]] | None:
    """The text "[0, 1, 2, 3]" or a list, folded into [first, last, step]; None when it is not known."""
    if isinstance(value, str) and len(value) < 2000000:
        try:
            value = json.loads(value)  # a thousand times as often as any other form, and a thousand ranks long
        except (ValueError, RecursionError):
            value = value.strip("[] ").split(",")
    if not isinstance(value, (list, tuple)):
        return None
    numbers = [whole(one.strip() if isinstance(one, str) else one) for one in value[:131072]]
    if not numbers or None in numbers:
        return None
    first, last = numbers[0], numbers[-1]
    step = numbers[1] - first if len(numbers) > 1 else 1  # type: ignore[operator]
    if step > 0 and numbers == list(range(first, last + 1, step)):  # type: ignore[arg-type,operator]
        return [[first, last, step]]  # type: ignore[list-item]
    spans: list[list[int]] = []
    for number in numbers:
        assert number is not None
        if spans and spans[-1][2] == 0 and number > spans[-1][0]:
            spans[-1] = [spans[-1][0], number, number - spans[-1][0]]
        elif spans and spans[-1][2] and number == spans[-1][1] + spans[-1][2]:
            spans[-1][1] = number
        else:
            spans.append([number, number, 0])
    return [[first, last, step or 1] for first, last, step in spans]


def ended_parts(entries: list[dict[str, Any]]) -> set[int]:
    """Calls of coalesced batches that have ended, as ids of the entries of one group. torch records each call of a
    batch without an event, so it stays "scheduled" for ever, and after them one entry "nccl:coalesced" with the number
    of the batch (ProcessGroupNCCL.cpp, endCoalescing; fr_trace's find_coalesced_group)."""
    found = set()  # type: set[int]
    if not any(name.endswith("coalesced") for name in {str(entry.get("profiling_name")) for entry in entries}):
        return found
    run, number = [], None  # type: list[dict[str, Any]], Any
    for entry in entries:
        p2p = ("p2p", whole(entry.get("p2p_seq_id")))
        own = p2p if entry.get("is_p2p") is True else ("collective", whole(entry.get("collective_seq_id")))
        if str(entry.get("profiling_name")).endswith("coalesced"):
            if number in (own, p2p) and entry.get("state") == "completed":
                found.update(id(part) for part in run)
            run, number = [], None
        elif own == number:
            run.append(entry)
        else:
            run, number = [entry], own
    return found


def configured(whole_dump: Mapping[str, Any], name: str, desc: str, pg_id: int | None) -> dict[str, Any]:
    """What a dump says of a group beside its entries: {"ranks", "told"}, its ranks folded and three numbers: the last
    collective that was enqueued, started, completed."""
    config, status = whole_dump.get("pg_config"), whole_dump.get("pg_status")
    group = None  # type: Any
    if isinstance(config, dict):
        group = config.get(name)
        if group is None and desc == "default_pg":  # gloo leaves the name out of its configuration
            group = config.get("")
    told = None
    if isinstance(status, dict) and pg_id is not None:
        told = status.get(str(pg_id), status.get(pg_id))
    numbers = None
    if isinstance(told, dict):
        names = ("last_enqueued_collective", "last_started_collective", "last_completed_collective")
        numbers = [whole(told.get(one)) for one in names]
        numbers = [number if number is not None and number >= 0 else None for number in numbers]
    return {"ranks": folded_ranks(group.get("ranks")) if isinstance(group, dict) else None, "told": numbers}
