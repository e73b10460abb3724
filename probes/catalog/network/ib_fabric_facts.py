"""What one sweep of an InfiniBand fabric found: its switches and adapters, and what is cabled to what."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from probes.reference import rows

LANE_GBPS: Mapping[str, float] = {row["name"]: row["gbps"] for row in rows("ib_speeds")}
# Node descriptions of the adapters inside switches that add up collectives (SHARP): they are no nodes of the cluster.
AGGREGATION = "aggregation node"


@dataclass(frozen=True, slots=True)
class Device:
    """One switch, adapter or router. `guid`: its node GUID, 16 hexadecimal digits. `name` is what it calls itself,
    cleaned for people; never a key: many call themselves alike."""

    guid: str
    kind: str  # switch, hca, router or aggregation
    ports: int
    name: str


@dataclass(frozen=True, slots=True)
class Link:
    """One cable: device `a`'s port and device `b`'s. Seen from an HCA if one is at an end, each cable once.

    `lanes` and `speed` are None where the tool prints `???`.
    """

    a: str
    a_port: int
    b: str
    b_port: int
    lanes: int | None
    speed: str | None

    @property
    def gbps(self) -> float | None:
        """Gb/s, as sysfs counts them; None when the speed is not known."""
        lane = LANE_GBPS.get(self.speed or "")
        return None if lane is None or self.lanes is None else lane * self.lanes


@dataclass(frozen=True, slots=True)
class DownPort:
    """A port without a working link, as iblinkinfo lists them. Of a switch that is normal: a free cage."""

    guid: str
    port: int
    state: str  # Down, Initialize, Armed
    phys: str  # Polling, Disabled ...


@dataclass(frozen=True, slots=True)
class Fabric:
    """`from_guid`: node GUID of the adapter that the sweep began at, "" when it was not told. `down`: where the tool
    lists ports without a link; `lids`: LID -> GUID, of the adapters' first port and of switches, where it was told."""

    from_guid: str
    devices: tuple[Device, ...]
    links: tuple[Link, ...]
    down: tuple[DownPort, ...] = ()
    lids: Mapping[str, str] = field(default_factory=dict)


@functools.lru_cache(32_768)  # the same thousands at each look
def guid_of(text: str | None) -> str:
    """A node GUID in one form, 16 lower-case digits, of 0a7f:bc12:45ef:d23b, 0xa7fbc1245efd23b and the like.

    "" when there is none: absent, zero, or not a GUID.
    """
    digits = (text or "").strip().lower().removeprefix("0x").replace(":", "")
    if not 0 < len(digits) <= 16 or any(c not in "0123456789abcdef" for c in digits) or not digits.strip("0"):
        return ""
    return digits.zfill(16)


def hca_first(link: Link, devices: Mapping[str, Device]) -> Link:
    """A cable as seen from its adapter."""
    kinds = [devices[end].kind if end in devices else "" for end in (link.a, link.b)]
    if kinds[0] == "switch" and kinds[1] in ("hca", "aggregation", "router"):
        return Link(link.b, link.b_port, link.a, link.a_port, link.lanes, link.speed)
    return link
