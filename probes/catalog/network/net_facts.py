"""What tools tell of network interfaces, of counters that no port's own files hold, and of a node's settings.

They come through the files door (probes.intake.tools), as ib.counters, net.links and host.settings; the latter two also
from their probes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# Bytes that a tunnel over IPv4 puts before each packet: RFC 7348 (VXLAN), RFC 8926 (Geneve without options), RFC 2003,
# RFC 2784 (GRE and IP), WireGuard's white paper, 5.4.6.
OVERHEAD = {"vxlan": 50, "geneve": 50, "ipip": 20, "sit": 20, "gre": 24, "gretap": 38, "ip6gre": 44, "wireguard": 60}


@dataclass(frozen=True, slots=True)
class CounterSet:
    """One look at the counters of one port. `kind` tells what `name` is: lid, guid, netdev, hca, or switch.

    `at`: seconds since the epoch, None where the text has no time. `label`: what else the tool calls the port; `peer`:
    the other end of its cable, as `name port 3`. Counters that sysfs has too are called as there (ib_counters.toml).
    `node`: whose it is, where the text itself names several; of the kind switch, `name` is the switch's.
    """

    kind: str
    name: str
    port: int | None
    counters: Mapping[str, int | None]
    at: float | None = None
    label: str = ""
    peer: str = ""
    node: str = ""
    rate_gbps: float | None = None


@dataclass(frozen=True, slots=True)
class Counters:
    sets: tuple[CounterSet, ...]


@dataclass(frozen=True, slots=True)
class NetLink:
    """One interface. None and "" mean not told."""

    name: str
    up: bool | None = None  # its carrier; False also when it is switched off
    mtu: int | None = None  # bytes
    speed_gbps: float | None = None
    addresses: tuple[str, ...] = ()
    kind: str = ""  # ether, infiniband, loopback
    master: str = ""
    hca: str = ""
    trust: str = ""  # pcp or dscp
    pfc: tuple[int, ...] | None = None  # priorities without loss; () is none
    dcbx: str = ""
    pause: bool | None = None  # 802.3x, in any direction
    tunnel: str = ""  # vxlan, geneve, ipip, gre, wireguard
    over: str = ""  # the interface that carries the tunnel
    in_container: bool = False  # one end of a veth whose other end is in another network namespace
    speed_max_gbps: float | None = None  # the best mode that it supports
    ecn: bool | None = None  # congestion notification of RoCE, at both its ends
    buffer_of: tuple[int, ...] | None = None  # the buffer of each priority
    buffer_bytes: tuple[int, ...] | None = None
    class_of: tuple[int, ...] | None = None  # the traffic class of each priority
    class_share: tuple[int, ...] | None = None  # percent of the bandwidth that each class is promised
    off: bool = False  # somebody switched it off
    carried: bool = False  # bytes came in by it since it is there; `ip -s`


@dataclass(frozen=True, slots=True)
class Links:
    links: tuple[NetLink, ...]


@dataclass(frozen=True, slots=True)
class Limit:
    """Locked memory in bytes; None is unlimited. `pid`: 0 is the shell that `ulimit` was typed in."""

    pid: int
    memlock: int | None


@dataclass(frozen=True, slots=True)
class FilterRule:
    """A rule, or policy, of a packet filter that drops or rejects. `packets` that met it, None where not told."""

    chain: str
    text: str
    action: str  # DROP or REJECT
    ports: tuple[tuple[int, int], ...] = ()  # destination ports, first and last; () is any
    protocol: str = ""  # tcp, udp; "" is any
    packets: int | None = None
    policy: bool = False


@dataclass(frozen=True, slots=True)
class Socket:
    state: str  # ESTAB, SYN-SENT, LISTEN ...
    local: str
    peer: str
    send_queue: int = 0
    process: str = ""
    probes_window: bool = False  # the other end takes nothing now: it is alive and busy
    mss: int | None = None  # bytes of a segment; this and the next only where `ss -i` told them
    backoff: int = 0  # how often the time before the next try was doubled
    retransmits: int = 0  # since it was opened
    acked: int | None = None  # bytes
    tries: int = 0  # of what it sends now that got no answer, or to have room for it; `ss -o`


@dataclass(frozen=True, slots=True)
class Ping:
    """One run of ping. `size`: of the whole packet in bytes; `smaller`: the MTU that the sender or a router told."""

    peer: str
    size: int
    sent: int
    received: int
    smaller: int | None = None
    router: bool = False  # a router told it, not the sender's own interface
    source: str = ""  # who sent, where the line itself tells it: a table of who reaches whom


@dataclass(frozen=True, slots=True)
class Reach:
    """One try to open a TCP connection by hand. `why`: "" where it opened, else no route, timed out, refused."""

    peer: str
    port: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class Mask:
    """CPUs that a thread may use, as ranges."""

    pid: int
    cpus: str
    comm: str = ""
    preempted: int | None = None  # involuntary switches since it started


@dataclass(frozen=True, slots=True)
class Room:
    """What a rank has and may have, None where it is not told or unlimited. `tasks`: of its control group, or of one
    above it: of that which is the nearest to its limit."""

    pid: int
    files: int | None = None  # limit of open files
    files_open: int | None = None
    processes: int | None = None  # limit of its user's tasks
    user_tasks: int | None = None  # that its user has, threads too; None where no limit holds: root, or unlimited
    tasks: int | None = None
    tasks_max: int | None = None
    verbs: int | None = None  # RDMA devices in its own /dev; None where that is the node's, or did not answer


@dataclass(frozen=True, slots=True)
class Launch:
    """One command that starts ranks on a node. `where`: its prompt's host; `options` as torchrun calls them."""

    where: str
    options: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one node, each only where its tool was brought."""

    limits: tuple[Limit, ...] = ()
    modules: tuple[str, ...] | None = None
    filters: tuple[FilterRule, ...] = ()
    filters_told: bool = False
    sockets: tuple[Socket, ...] = ()
    pings: tuple[Ping, ...] = ()
    reaches: tuple[Reach, ...] = ()
    masks: tuple[Mask, ...] = ()
    cpus: int | None = None  # logical, online
    cores: int | None = None
    numa_nodes: int | None = None
    env: Mapping[str, str] = field(default_factory=dict)  # OMP_NUM_THREADS, NCCL_ALGO and their like
    envs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # of several pods or containers, by name
    launches: tuple[Launch, ...] = ()
    names: tuple[tuple[str, str], ...] = ()  # (name, address), "" where it has none
    sm_lid: int | None = None
    sm_state: str = ""
    resources: Mapping[str, int] = field(default_factory=dict)  # "mlx5_0 qp" -> in use, "mlx5_0 max_qp" -> limit
    mtus: Mapping[str, int] = field(default_factory=dict)  # "mlx5_0/1" -> active_mtu of the port, bytes
    clocksource: str = ""
    governors: tuple[str, ...] = ()  # of all CPUs
    numa_balancing: bool = False
    rooms: tuple[Room, ...] = ()  # of ranks
    huge_pages: str = ""  # transparent ones: always, madvise, never
    iommu: str = ""  # how devices are mapped: identity (passthrough), DMA, DMA-FQ; "none" without one
    cpu_model: str = ""
    verbs: int | None = None  # RDMA devices in the node's /dev
    crash_records: tuple[str, ...] = ()  # what the kernel wrote to persistent storage as it died, `name at time (UTC)`


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """What one test between two nodes reached, in one unit for all of a file."""

    a: str
    b: str
    value: float


@dataclass(frozen=True, slots=True)
class Bandwidths:
    tests: tuple[Bandwidth, ...]
