"""In which order each rank does what all should do alike: hooks, buckets, groups, parameters that become ready.

    [rank1] hook order: layer3.w, layer2.w, layer1.w
    rank 0: buckets ready in order [2, 1, 0]
    order in which gradients became ready:        a heading, then a line for each rank
      rank 0: head, layers.1, layers.0
    {"rank0": {"bucket_order": [3, 2, 1]}}

Errors  ParseError where fewer than two ranks tell an order of one thing
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from probes.catalog.ranks.replica_facts import Order, Orders
from probes.core import Finding, clean, lines_of
from probes.intake.names import named as by_name
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, mentions, refuse

MOST_ITEMS, MOST_ORDERS = 512, 2_048
_THING = (
    r"(?P<thing>(?:grad(?:ient)?[_ ]?)?hooks?|buckets?|all[_-]?reduces?|reductions?|params?|parameters?|collectives?"
    r"|groups?)"
)
_ORDER = re.compile(
    rf"\b{_THING}\b[^\n:=\[]{{0,60}}?\b(?:order(?:ed)?|sequence|fired?|ready|registered)\b[^\n:=\[]{{0,40}}[:=\[]\s{{0,4}}(?P<items>[^\n]{{3,8000}})",
    re.I,
)
# A heading, and the line of one rank below it
_HEADING = re.compile(r"(?i)\b(hook|bucket|param|grad|all[_-]?reduce|reduction|collective|group)\w{0,8}\b")
_BELOW = re.compile(r"\W{0,8}(?P<who>rank[ _:=#]{0,3}\d{1,6})\W{0,2}[:=]\s{0,8}(?P<items>[^\n]{3,8000})", re.I)
_KEY = re.compile(r"[\"\s]rank[ _-]?(\d{1,6})[\"\s]{0,2}:")
_RANK = re.compile(r"\brank[ _:=#]{0,3}(\d{1,6})\b", re.I)
_ITEM = re.compile(r"[\w./\[\]-]{1,160}")
_ARROWS = re.compile(r"\s{0,3}(?:->|→|,|;|\s)\s{0,3}")


def fits(head: str, name: str) -> bool:
    return mentions(head, ("order", "bucket", "hook")) and any(True for _ in _orders(head))


def read(text: str) -> Orders:
    found = tuple(_orders(text))[:MOST_ORDERS]
    if not found:
        raise refuse("the order of hooks or buckets of a rank", text)
    return Orders(found)


def named(facts: Orders, path: str) -> Orders:
    rank = by_name(PurePosixPath(path)).rank
    return Orders(tuple(dataclasses.replace(one, rank=rank if one.rank is None else one.rank) for one in facts.orders))


def _orders(text: str) -> Iterator[Order]:
    heading = ""
    for line in lines_of(_lined(text), 10_000):
        below = _BELOW.match(line) if heading else None
        if below is not None and not _ORDER.search(line):
            line = f"{below['who']} {heading} order: {below['items']}"
        elif below is None and line.strip():
            head = _HEADING.search(line) if "order" in line.lower() else None
            heading = ("params" if head[1].lower() == "grad" else f"{head[1]}s") if head else ""
        found = _ORDER.search(line)
        if found is None:
            continue
        items = [one.strip("[](){}'\"") for one in _ARROWS.split(found["items"].strip())[: MOST_ITEMS + 1]]
        items = [one for one in items if one and _ITEM.fullmatch(one)]
        rank = _RANK.search(line[: found.start()]) or _RANK.search(line[found.start() : found.start("items")])
        if 2 < len(items) <= MOST_ITEMS and len(set(items)) == len(items):
            thing = re.sub(r"[_ -]", "", found["thing"].lower()).rstrip("s")
            yield Order(thing[:20], int(rank[1]) if rank else None, tuple(clean(one)[:80] for one in items))


def _lined(text: str) -> str:
    """Of JSON with a key for each rank a line for each: `"rank0": {"bucket_order": [3, 2]}`."""
    if text.lstrip()[:1] != "{" or not _KEY.search(text[:4096]):
        return text
    return _KEY.sub(r"\nrank \1 ", re.sub(r"[\"{}\s]{1,200}", " ", text.replace("_order", " order")))


def findings(facts: Orders) -> list[Finding]:
    return []


TOOL = Tool("orders of ranks", "rank.orders", fits, read, findings, host_in, named, beside=True)
