"""Counters of ports as they are met in a text, put together into looks: whose they are, when, and at what rate.

Units    counters raw; seconds; Gb/s
Shape    Where tells whose; Looks.put(where, name, value) and Looks.sets()
Errors   none
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from probes.catalog.network.ib_fabric_facts import LANE_GBPS
from probes.catalog.network.net_facts import CounterSet
from probes.core import clean
from probes.intake.names import looks_like_a_node
from probes.intake.tools.network._counter_names import short
from probes.intake.when import moment_in

MOST_SETS = 20_000
_HCA = re.compile(
    r"((?:mlx[45]_(?:bond_?)?|bnxt_re|irdma|hfi1_|erdma_|efa_?|ionic_|hns_|qedr)\d{1,3}"
    r"|(?:rdmap|rocep|ibp|roce)\w{0,16}\d\w{0,8})(?:[/:](\d{1,3}))?"
)
_NETDEV = re.compile(
    r"(en[opsx]\w{1,20}|(?:eth|bond|rail|rdma|nic|storage)\d{1,3}(?:[sn]\d)?|ib\d{1,2}|gpu\d{1,2}_?(?:eth|rdma)\d?)"
)
_PART = re.compile(  # of a node, or of a report: no host
    r"(?:prio|tc|lane|rail|port|lid|cpu|numa|gpu(?!-?\d\d)|rank|read|sample|look|t|round|pass|try|iter|step|run|job|sl|vl|queue|q|rx|tx"
    r"|pf|vf|slot|rack|dc|su|pod|plane|x|v|lvl|level|part|no)[-_]?\d{1,12}", re.I
)  # fmt: skip
_SWITCH_PORT = re.compile(r"(?:swp|Ethernet|Eth|IB|xe-|et-)(\d{1,3})((?:[/s]\d{1,3}){0,2})")
_LABEL = re.compile(r"[A-Za-z][\w.-]{0,62}")
_NO_LABEL = re.compile(
    r"(?:the|counters?|values?|delta|diff\w*|before|after|first|second|start|end|now|then|later|read\w*|sample\w*|look\w*|t\d"
    r"|sun|mon|tue|wed|thu|fri|sat|same|again|next|total|port|info|hw_counters|date|time|at|in|and|on|rate|error|warn"
    r"|link|nic|for|watch|cat|grep|ethtool|perfquery|rdma|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)", re.I
)  # fmt: skip
_HOST = re.compile(
    r"[a-z][a-z0-9._-]{0,50}\d[a-z0-9._-]{0,20}|(?!(?:plane|rail|link|part|port|lane|rack|row|group|pool)\b)[a-z]{2,20}[-_][a-h]",
    re.I,
)
_SWITCH = re.compile(r"(?:[a-z0-9]{1,12}-)?(?:leaf|spine|core|tor|switch|ibsw|agg|sw)[-_.]?[\w.-]{0,40}", re.I)
_RATE = re.compile(r"(?<![\w.])(\d{2,4})(?:\.\d{1,3})? ?G(?:b(?:/s(?:ec)?|ps|it/s)|bit)", re.I)
_SPEED = re.compile(r"(?:\b(\d{1,2})[xX] ?|\b)([FEHNX]DR)(\d{2,3})?\b")  # HDR 4X, 2xNDR, HDR100
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?:,\d{3})*(?:\s|$))")
HOST_KEYS = ("host", "node", "hostname", "instance", "nodename", "server", "machine", "src", "exported_instance")
DEVICE_KEYS = ("hca", "dev", "device", "iface", "interface", "ifname", "netdev", "nic", "link", "ibdev", "adapter",
    "name", "ca", "hca_id", "interface_name")  # fmt: skip
PORT_KEYS = ("port", "portnum", "port_num", "port_number")
SWITCH_KEYS = ("switch", "leaf", "sw")
TIME_KEYS = ("time", "timestamp", "ts", "date", "at", "when", "datetime", "_time", "collected_at")
FEWEST_RATES, FALLS = 6, 5  # points; one of so many is lower than the one before. A reset is one fall. Judgement
KEYS = (*HOST_KEYS, *DEVICE_KEYS, *PORT_KEYS, *SWITCH_KEYS, *TIME_KEYS)


@dataclass(frozen=True, slots=True)
class Where:
    """Whose counters a line tells, as far as it is known. `kind` is that of CounterSet."""

    node: str = ""
    kind: str = ""
    name: str = ""
    port: int | None = None
    switch: str = ""
    at: float | None = None
    rate: float | None = None
    label: str = ""  # what stands first in the line, or above it, and is nothing that is known: perhaps a host

    def key(self) -> Key:
        if self.switch and self.port is not None and self.kind != "hca":
            return "", "", "switch", self.switch, self.port
        return self.node, "" if self.node else self.label, self.kind or "hca", self.name, self.port


Key = tuple[str, str, str, str, int | None]  # node, label, kind, name, port


@dataclass(slots=True)
class _Look:
    at: float | None
    values: dict[str, int | None] = field(default_factory=dict)


class Looks:
    """What was met so far."""

    def __init__(self) -> None:
        self._open: dict[Key, _Look] = {}
        self._done: list[tuple[Key, _Look]] = []
        self._rates: dict[Key, float] = {}
        self.count = 0

    def put(self, where: Where, name: str, value: int | None) -> None:
        """One counter. A second value of it, or another time, begins another look at the port."""
        key = where.key()
        look = self._open.get(key)
        if look is not None and (name in look.values or (where.at is not None and look.at not in (None, where.at))):
            self._done.append((key, look))
            look = None
        if look is None:
            if len(self._done) + len(self._open) >= MOST_SETS:
                return
            look = self._open[key] = _Look(where.at)
        look.at = look.at if look.at is not None else where.at
        if where.rate is not None:
            self._rates[key] = where.rate
        look.values[name] = value
        self.count += 1

    def rose(self, where: Where, name: str, by: int, seconds: float | None) -> None:
        """A difference, told as such: from 0 to it, in so many seconds."""
        self.between(where, name, 0, by, seconds)

    def between(self, where: Where, name: str, first: int, last: int, seconds: float | None) -> None:
        """Two looks at one counter, which end where this line stands."""
        if len(self._done) >= MOST_SETS:
            return
        end = (where.at or seconds) if seconds else None
        for value, at in ((first, end - seconds if end is not None and seconds else None), (last, end)):
            self._done.append((where.key(), _Look(at, {name: value})))
        if where.rate is not None:
            self._rates[where.key()] = where.rate
        self.count += 2

    def series(self, where: Where, name: str, points: list[tuple[float | None, float]]) -> None:
        """A counter over time: its first and last value. What falls again and again is how fast one rises, a second:
        its latest third counts."""
        falls = sum(later < sooner for (_, sooner), (_, later) in zip(points, points[1:], strict=False))
        first, last = points[0][0], points[-1][0]
        if len(points) >= FEWEST_RATES and falls * FALLS >= len(points) and first is not None and last is not None:
            late = [value for _, value in points[-(len(points) // 3) :]]
            seconds = last - first
            if seconds > 0:
                self.rose(replace(where, at=last), name, int(sum(late) / len(late) * seconds), seconds)
            return
        for at, value in dict.fromkeys((points[0], points[-1])) if len(points) > 1 else points:
            self.put(replace(where, at=at), name, int(value))

    def sets(self, interval: float | None = None) -> tuple[CounterSet, ...]:
        """All looks in their order. `interval`: what the text says lies between two, where they have no times. Where
        the same port stands behind several words that nobody knows, those are whose they are."""
        found = [*self._done, *self._open.items()]
        timed = any(look.at is not None for _, look in found)
        labels: dict[Key, set[str]] = {}
        for (node, label, kind, name, port), _ in found:
            labels.setdefault((node, "", kind, name, port), set()).add(label)
        turn: Counter[Key] = Counter()
        sets = []
        for key, look in found:
            node, label, kind, name, port = key
            several = len(labels[node, "", kind, name, port]) > 1
            at = look.at if timed or not interval else interval * turn[key]
            turn[key] += 1
            whose = node or (label if several else "")
            sets.append(CounterSet(kind, clean(name)[:64], port, look.values, at, node=clean(whose)[:64],
                rate_gbps=self._rates.get(key)))  # fmt: skip
        return tuple(sets)


def device(word: str) -> tuple[str, str, int | None] | None:
    """(kind, name, port) of a word that names an adapter, a network interface, or a switch's port."""
    if found := _HCA.fullmatch(word):
        return "hca", found[1], int(found[2]) if found[2] else None
    if _NETDEV.fullmatch(word):
        return "netdev", word, None
    if found := _SWITCH_PORT.fullmatch(word):
        return "switchport", word, int(found[1])
    return None


def is_switch(word: str) -> bool:
    told = any(c.isdigit() for c in word) or re.search(r"[-_.][a-h]$", word, re.I)  # leaf-3, leaf-a
    return bool(_SWITCH.fullmatch(word)) and bool(told) and device(word) is None


def rate_in(text: str) -> float | None:
    """Gb/s of a port that a text tells as such, or by the name of its speed: four lanes where it tells no other."""
    if rate := _RATE.search(text):
        return float(rate[1])
    if (speed := _SPEED.search(text)) and speed[2] in LANE_GBPS:
        return float(speed[3]) if speed[3] else int(speed[1] or 4) * LANE_GBPS[speed[2]]
    return None


def seen_in(text: str, where: Where, hosts: frozenset[str]) -> Where:
    """With what the words of a line say: host, device, port, time, rate."""
    text = text[:600]
    if (rate := rate_in(text)) is not None:
        where = replace(where, rate=rate)
    if (at := moment_in(text)) is not None:
        where = replace(where, at=at)
    words = re.findall(r"[^\s,;|()\[\]{}\"'<>]{1,120}", text)[:32]
    after = ""
    first = next((bare for word in words if (bare := word.strip("#*~-=.:"))), "")
    if _LABEL.fullmatch(first) and not _NO_LABEL.fullmatch(first):
        where = replace(where, label=first)
    for word in words:
        word = word.strip("#*~-=").rstrip(":.")
        key, equals, value = word.partition("=")
        if equals and key.lower() in KEYS:
            where, after = told(key.lower(), value.strip("\"'"), where), ""
            continue
        for part in _parts(word):
            where, after = _word(part.rstrip(":"), after, where, hosts)
    return where


def _parts(word: str) -> list[str]:
    """n1/mlx5_0 as two words, mlx5_0/1 as one; what stands before a colon and an adapter is a node."""
    if _HCA.fullmatch(word):
        return [word]
    host, colon, rest = word.partition(":")
    if colon and (_HCA.fullmatch(rest.rstrip(":")) or _HCA.match(rest) and ":" in rest):
        return ["node", host, *_parts(rest)]
    return word.split("/")


def _word(word: str, after: str, where: Where, hosts: frozenset[str]) -> tuple[Where, str]:
    """`after`: the word before, where it says what this one is."""
    if not word:
        return where, after
    if after and word.isdecimal() and len(word) <= 4:
        return replace(where, port=int(word)), ""
    if found := device(word):
        kind, name, port = found
        return replace(where, kind=kind, name=name, port=port), ""
    low = word.lower().rstrip(":")
    if low in ("port", "ports"):
        return where, "port"
    if low in ("on", "host", "node", "from"):
        return where, "node"
    if after == "node" and _HOST.fullmatch(word) and not _PART.fullmatch(word) and not is_switch(word):
        return replace(where, node=word, kind="", name="", port=None, switch=""), ""
    if is_switch(word) and word not in hosts:
        return replace(where, switch=word, node="", kind="", name=""), ""
    if word in hosts or looks_like_a_node(word) or (word.partition(".")[0] in hosts):
        same = where.node == word
        return (where if same else replace(where, node=word, kind="", name="", port=None, switch="")), ""
    return where, ""


def told(key: str, value: str, where: Where) -> Where:
    """With what a named field says."""
    value = value.strip()[:120]
    if key in HOST_KEYS and value:
        return replace(where, node=value.partition(":")[0])
    if key in SWITCH_KEYS and value:
        return replace(where, switch=value)
    if key in PORT_KEYS:
        if value.isdecimal() and len(value) <= 4:
            return replace(where, port=int(value))
        key = "device"
    if key in TIME_KEYS:
        at = moment_in(value)
        return replace(where, at=at) if at is not None else where
    if key in DEVICE_KEYS and value:
        found = device(value)
        if found is None:
            return where if key in ("name", "link") else replace(where, kind="hca", name=value)
        return replace(where, kind=found[0], name=found[1], port=found[2] if found[2] is not None else where.port)
    return where


def candidates(words: Iterable[str]) -> set[str]:
    """Words that may be names of hosts, where several are alike."""
    bare = (word.strip("[](){}<>#*=:,;\"'")[:80] for word in words)
    return {word for word in bare if _HOST.fullmatch(word) and not _known(word)}


def _known(word: str) -> bool:
    return bool(_PART.fullmatch(word) or device(word) or short(word) or is_switch(word))


def cells_of(line: str) -> list[str]:
    line = line.strip()[:4000].lstrip("#").strip()
    if line.count("|") > 1:
        return [cell.strip() for cell in line.strip("|").split("|")][:200]
    line = _THOUSANDS.sub("", line)
    for mark in ("\t", ",", ";"):
        if line.count(mark) > 1 or (mark == "\t" and mark in line):
            return [cell.strip().strip('"') for cell in line.split(mark)][:200]
    return line.split()[:200]
