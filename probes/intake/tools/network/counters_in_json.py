"""Counters of ports in JSON of any shape: an object whose keys are names of counters, below or beside whose they are;
answers of Prometheus' and Datadog's APIs; one object a line."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from probes.catalog.network.net_facts import Counters
from probes.intake.names import looks_like_a_node
from probes.intake.tools import Tool
from probes.intake.tools._text import mentions, refuse
from probes.intake.tools.network import rdma_statistic
from probes.intake.tools.network._counter_names import canonical
from probes.intake.tools.network._counter_sets import KEYS, TIME_KEYS, Looks, Where, device, is_switch, told
from probes.intake.tools.network.counters_in_columns import ADAPTERS, UNNAMED, named, of_name
from probes.intake.tools.network.perfquery import quiet
from probes.intake.when import moment_in

DEEPEST, MOST_NODES = 12, 400_000
_NUMBER = re.compile(r"\d{1,24}(?:\.\d{1,9})?(?:[eE]\+?\d{1,2})?")
_KEY = re.compile(r"\"([A-Za-z]\w{3,79})\"\s{0,4}:\s{0,4}[\"\[{]?\d")
_DATADOG = re.compile(r"\"metric\"\s{0,4}:\s{0,4}\"([\w.]{4,100})\"")
_SERIES = re.compile(r"\"resultType\"\s{0,4}:\s{0,4}\"(?:matrix|vector)\"")
_METRIC = re.compile(r"\"__name__\"\s{0,4}:\s{0,4}\"(\w{4,100})\"")


def fits(head: str, name: str) -> bool:
    if head.lstrip()[:1] not in ("[", "{") or rdma_statistic.fits(head, name):
        return False
    if _SERIES.search(head[:65_536]) and '"__name__"' not in head[:65_536]:
        return bool(of_name(name)) and mentions(head[:4096], ADAPTERS)
    keys = [one for pattern in (_KEY, _METRIC) for one in pattern.findall(head[:65_536])[:4000]]
    keys += [one.rpartition("infiniband.")[2].removesuffix(".count") for one in _DATADOG.findall(head[:65_536])[:4000]]
    return sum(bool(canonical(key)) for key in keys) > 1


def read(text: str) -> Counters:
    reader = _Reader()
    for said in _values(text):
        reader.take(said, Where(), "", 0)
    sets = reader.looks.sets()
    if not sets:
        raise refuse("JSON with counters of ports", text)
    return Counters(sets)


def _values(text: str) -> list[Any]:
    try:
        return [json.loads(text)]
    except (ValueError, RecursionError):
        pass
    found = []
    for line in text.split("\n")[:200_000]:
        if line.strip()[:1] in ("{", "["):
            try:
                found.append(json.loads(line.strip().rstrip(",")))
            except (ValueError, RecursionError):
                continue
    return found


class _Reader:
    def __init__(self) -> None:
        self.looks = Looks()
        self._left = MOST_NODES

    def take(self, said: Any, where: Where, key: str, depth: int) -> None:
        self._left -= 1
        if depth > DEEPEST or self._left < 0:
            return
        if isinstance(said, list):
            for one in said[:50_000]:
                self.take(one, where, key, depth + 1)
        elif isinstance(said, dict):
            self._object(said, _of_key(key, where), depth)

    def _object(self, said: dict[str, Any], where: Where, depth: int) -> None:
        if isinstance(said.get("metric"), dict) and ("value" in said or "values" in said):
            self._metric(said, where)
            return
        if isinstance(said.get("metric"), str) and isinstance(said.get("pointlist"), list):
            self._datadog(said, where)
            return
        for name, value in said.items():
            low = name.lower()
            if low in TIME_KEYS and isinstance(value, (int, float)) and value > 1.4e9:
                where = replace(where, at=float(value) / (1000 if value > 1e11 else 1))
            elif low in KEYS and isinstance(value, (str, int)):
                where = told(low, str(value), where)
            elif low in ("tags", "labels") and isinstance(value, dict):
                for tag, text in list(value.items())[:40]:
                    where = told(tag.lower(), str(text), where) if tag.lower() in KEYS else where
        for name, value in said.items():
            counter = canonical(name)
            if counter and (size := _size(value)) is not None:
                self.looks.put(where, counter, size)
            elif isinstance(value, (dict, list)) and name not in ("tags", "labels"):
                self.take(value, where, name, depth + 1)

    def _datadog(self, said: dict[str, Any], where: Where) -> None:
        """A series of its API: what ends in .count tells by how much a counter rose in each interval."""
        name = said["metric"][:100].rpartition("infiniband.")[2]
        counter = canonical(name.removesuffix(".count"))
        tags = said.get("tag_set") or str(said.get("scope", "")).split(",")
        for tag in tags[:40] if isinstance(tags, list) else ():
            key, _, value = str(tag).partition(":")
            where = told(key.lower(), value, where) if key.lower() in KEYS else where
        pairs = [one for one in said["pointlist"][:100_000] if isinstance(one, list) and len(one) == 2]
        points = [(float(at) / 1000, size) for at, value in pairs
            if isinstance(at, (int, float)) and (size := _size(value)) is not None]  # fmt: skip
        if not counter or not points:
            return
        if name.endswith(".count"):
            seconds = points[-1][0] - points[0][0]
            self.looks.rose(
                replace(where, at=points[-1][0]), counter, sum(size for _, size in points[1:]), seconds or None
            )
            return
        for at, size in dict.fromkeys((points[0], points[-1])):
            self.looks.put(replace(where, at=at), counter, size)

    def _metric(self, said: dict[str, Any], where: Where) -> None:
        """One series of Prometheus: {"metric": labels, "value": [time, text]} or values."""
        labels = {str(k): str(v) for k, v in list(said["metric"].items())[:64]}
        counter = canonical(labels.get("__name__", ""))
        for key, value in labels.items():
            where = told(key, value, where) if key in KEYS else where
        if not counter and "__name__" not in labels and where.kind == "hca":
            counter = UNNAMED  # rate(...) of a counter keeps its labels, and not its name
        points = said["values"] if isinstance(said.get("values"), list) else [said.get("value")]
        found = [
            (float(point[0]) if isinstance(point[0], (int, float)) else None, float(size))
            for point in points[:100_000]
            if isinstance(point, list) and len(point) == 2 and (size := _size(point[1])) is not None
        ]
        if counter and found:
            self.looks.series(where, counter, found)


def _size(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return int(value) if 0 <= value < 1e24 else None
    return int(float(value)) if isinstance(value, str) and _NUMBER.fullmatch(value.strip()) else None


def _of_key(key: str, where: Where) -> Where:
    """What an object's own key tells: {"n101": {"mlx5_0": {"1": {...}}}}."""
    if not key or canonical(key):
        return where
    if found := device(key):
        return replace(where, kind=found[0], name=found[1], port=found[2] if found[2] is not None else where.port)
    if is_switch(key):
        return replace(where, switch=key)
    if key.isdecimal() and len(key) <= 3:
        return replace(where, port=int(key))
    if (at := moment_in(key)) is not None:
        return replace(where, at=at)
    is_host = looks_like_a_node(key) or (re.fullmatch(r"[a-z][a-z0-9.-]{0,40}\d", key) and not where.node)
    return replace(where, node=key) if is_host else where


TOOL = Tool("counters in JSON", "ib.counters", fits, read, quiet, named=named)
