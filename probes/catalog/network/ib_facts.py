"""What is known about the InfiniBand and RoCE ports of one node, and what happened between two readings of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from probes.reference import rows

BITS: Mapping[str, int] = {row["name"]: row["bits"] for row in rows("ib_counters")}

# Octets of one count of port_xmit_data and port_rcv_data (InfiniBand Architecture Specification vol. 1, 16.1.3.5).
WORD = 4


@dataclass(frozen=True, slots=True)
class Sample:
    """An earlier look at a port's counters, in the same text. `at`: seconds since the epoch, `mono` of the node's own
    clock; None without a time."""

    counters: Mapping[str, int | None]
    hw_counters: Mapping[str, int | None] = field(default_factory=dict)
    at: float | None = None
    mono: float | None = None


@dataclass(frozen=True, slots=True)
class Port:
    """One port. None means not shown or not readable, never zero.

    Counters are raw, as the kernel shows them, and only their change means something. port_xmit_data and port_rcv_data
    are in units of 4 octets; port_xmit_wait in ticks of the HCA. `mono` and `at` are the node's clocks right before the
    counters were read (seconds; `mono` compares only within one boot); None in a capture made by hand.
    """

    hca: str
    port: int
    link_layer: str | None = None  # InfiniBand or Ethernet (then this is RoCE)
    state: str | None = None  # DOWN, INIT, ARMED, ACTIVE, ACTIVE_DEFER
    phys_state: str | None = None  # LinkUp, Polling, Disabled, ...
    rate_gbps: float | None = None
    width: int | None = None  # lanes
    speed: str | None = None  # of one lane: EDR, HDR, NDR, ...
    lid: int | None = None
    sm_lid: int | None = None
    node_guid: str | None = None
    node_desc: str | None = None
    fw_ver: str | None = None
    hca_type: str | None = None
    board_id: str | None = None
    pci: str | None = None  # dddd:bb:dd.f
    netdev: str | None = None  # of the port's first GID
    netdevs: Mapping[str, str] = field(default_factory=dict)  # of the HCA: name -> operstate
    counters: Mapping[str, int | None] = field(default_factory=dict)
    hw_counters: Mapping[str, int | None] = field(default_factory=dict)
    hw_lifespan_ms: int | None = None  # how old hw_counters may be: the driver refreshes them no more often
    at: float | None = None
    mono: float | None = None
    port_guid: str | None = None
    mtu: int | None = None  # bytes; active_mtu of ibv_devinfo
    gids: tuple[str, ...] = ()  # those with an address, as `index type address`
    samples: tuple[Sample, ...] = ()  # oldest first
    pkeys: tuple[str, ...] = ()  # partitions it is in, such as 0xffff; without the highest bit it is a limited member

    @property
    def name(self) -> str:
        return f"{self.hca}/{self.port}"


@dataclass(frozen=True, slots=True)
class Silent:
    """An HCA whose files could not be read in time."""

    hca: str
    outcome: str
    why: str
    state: str = ""
    wchan: str = ""


@dataclass(frozen=True, slots=True)
class IbPorts:
    boot_id: str
    ports: tuple[Port, ...]
    silent: tuple[Silent, ...] = ()


def saturated(counter: str, value: int | None) -> bool:
    """Whether a port counter stands at its highest value, where it stays: what happened since is not known."""
    return counter in BITS and value in (2 ** BITS[counter] - 1, 2**64 - 1)


def merged(looks: Sequence[IbPorts]) -> IbPorts:
    """What several files tell of one node, as one: of two that tell the same, the later. Which is the later of two
    that hold counters, see diagnosis.fabric: here the last given."""
    ports: dict[str, Port] = {}
    for look in looks:
        for port in look.ports:
            there = ports.get(port.name)
            ports[port.name] = port if there is None else _over(there, port)
    boot = next((look.boot_id for look in reversed(looks) if look.boot_id), "")
    return IbPorts(boot, tuple(ports.values()), tuple(one for look in looks for one in look.silent))


def _over(old: Port, new: Port) -> Port:
    told = {one.name: getattr(new, one.name) for one in fields(Port)}
    return replace(old, **{name: value for name, value in told.items() if value not in (None, {}, ())})


def rates(earlier: IbPorts, later: IbPorts) -> dict[str, dict[str, float | str]]:
    """{"mlx5_0/1": {counter: change per second, in the counter's own unit}} for the ports that both readings have.

    In place of a number: "rebooted" (the node started anew in between), "reset" (a counter of the same group went
    down: cleared or driver reloaded, so none of the group can be compared), "saturated" (it cannot count any further),
    "unknown" (not readable, or no clock was read beside it).
    """
    before = {port.name: port for port in earlier.ports}
    pairs = [(before[port.name], port) for port in later.ports if port.name in before]
    rebooted = bool(earlier.boot_id and later.boot_id and earlier.boot_id != later.boot_id)
    return {
        new.name: {
            **_group(old.counters, new.counters, _elapsed(old, new), rebooted),
            **_group(old.hw_counters, new.hw_counters, _elapsed(old, new), rebooted),
        }
        for old, new in pairs
    }


def rates_now(facts: IbPorts) -> dict[str, dict[str, float | str]]:
    """The same between the two looks of one reading; without ports that were looked at once."""
    first = [
        replace(port, counters=one.counters, hw_counters=one.hw_counters, at=one.at, mono=one.mono)
        for port in facts.ports
        for one in port.samples[:1]
    ]
    return rates(IbPorts(facts.boot_id, tuple(first)), facts)


def _elapsed(old: Port, new: Port) -> float | None:
    seconds = None if old.mono is None or new.mono is None else new.mono - old.mono
    return seconds if seconds is not None and seconds > 0 else None


def _group(
    old: Mapping[str, int | None], new: Mapping[str, int | None], seconds: float | None, rebooted: bool
) -> dict[str, float | str]:
    both = {name: (old[name], value) for name, value in new.items() if name in old}
    reset = any(a is not None and b is not None and b < a for a, b in both.values())
    found: dict[str, float | str] = {}
    for name, (a, b) in both.items():
        if rebooted:
            found[name] = "rebooted"
        elif saturated(name, b):
            found[name] = "saturated"
        elif reset:
            found[name] = "reset"
        elif a is None or b is None or seconds is None:
            found[name] = "unknown"
        else:
            found[name] = (b - a) / seconds
    return found
