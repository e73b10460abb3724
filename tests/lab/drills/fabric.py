"""InfiniBand ports as /sys/class/infiniband shows them: names and counters of tests/fixtures/ib.ports/h100_connectx7.

Source   a port that sees no signal: state DOWN, phys_state Polling, a rate of one SDR or QDR lane group, LID 65535
         (recorded ibstat of H100 nodes, drivers 47.0)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from probes.topology import ExpectedPort, Topology
from tests.lab.drills.cluster import Node, sections

ROOT = "/sys/class/infiniband"
UP = ("4: ACTIVE", "5: LinkUp", "400 Gb/sec (4X NDR)")
POLLING = ("1: DOWN", "2: Polling", "10 Gb/sec (4X SDR)")
DISABLED = ("1: DOWN", "3: Disabled", "10 Gb/sec (4X SDR)")

COUNTERS = (
    "VL15_dropped",
    "excessive_buffer_overrun_errors",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "multicast_rcv_packets",
    "multicast_xmit_packets",
    "port_rcv_constraint_errors",
    "port_rcv_data",
    "port_rcv_errors",
    "port_rcv_packets",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors",
    "port_xmit_data",
    "port_xmit_discards",
    "port_xmit_packets",
    "port_xmit_wait",
    "symbol_error",
    "unicast_rcv_packets",
    "unicast_xmit_packets",
)
# Those that tell of a broken or congested path, of the 25 that the driver shows.
HW_COUNTERS = (
    "lifespan",
    "local_ack_timeout_err",
    "out_of_buffer",
    "out_of_sequence",
    "packet_seq_err",
    "req_cqe_error",
    "req_cqe_flush_error",
    "resp_cqe_error",
    "rnr_nak_retry_err",
    "rx_dct_connect",
    "rx_read_requests",
    "rx_write_requests",
)


@dataclass(frozen=True)
class Odd:
    """What is not as usual about a port: its state, and counters that stand elsewhere than on the others."""

    state: tuple[str, str, str] = UP
    counters: Mapping[str, int] = field(default_factory=dict)


def guid(node: Node, hca: int) -> str:
    """Node GUIDs of one maker, each once in a cluster."""
    low = 0xB0_0000 + node.number * 64 + hca * 4 + node.rng("guid").randrange(4)
    return f"a088:c203:{low >> 16:04x}:{low & 0xFFFF:04x}"


def expected(nodes: Iterable[Node]) -> Topology:
    """Each rail of all nodes hangs on one leaf, a node at the port of its number, as in a rail-optimised pod."""
    return Topology(
        tuple(
            ExpectedPort(
                node=node.name,
                hca=f"mlx5_{hca}",
                port=1,
                rail=hca,
                guid=guid(node, hca).replace(":", ""),
                rate_gbps=400.0,
                leaf=f"leaf-{hca:02}",
                leaf_guid=f"fc6a1c0300{0xE0_0000 + hca * 64:06x}",
                leaf_port=node.number % 100,
            )
            for node in nodes
            for hca in range(8)
        )
    )


def lid(node: Node, hca: int) -> int:
    return 32 + (node.number % 512) * 8 + hca


def ports(node: Node, at: float, odd: Mapping[str, Odd] | None = None) -> str:
    """What ib.ports prints. `odd`: by port, such as mlx5_3/1; a port that only stands there is a second one."""
    odd = odd or {}
    parts = {"/proc/sys/kernel/random/boot_id": node.boot_id}
    for hca in range(8):
        parts |= _hca(node, hca)
        for port in (1, 2):
            name = f"mlx5_{hca}/{port}"
            if port == 1 or name in odd:
                parts |= _port(node, hca, port, at + 0.004 * hca, odd.get(name, Odd()))
    return sections(parts)


def _hca(node: Node, hca: int) -> dict[str, str]:
    base = f"{ROOT}/mlx5_{hca}"
    return {
        f"{base}/node_guid": guid(node, hca),
        f"{base}/node_desc": f"{node.name} mlx5_{hca}",
        f"{base}/fw_ver": "28.41.1000",
        f"{base}/hca_type": "MT4129",
        f"{base}/board_id": "MT_0000000838",
        f"{base}/device/uevent": f"DRIVER=mlx5_core\nPCI_CLASS=20700\nPCI_SLOT_NAME={node.hcas[hca]}",
    }


def _port(node: Node, hca: int, port: int, at: float, odd: Odd) -> dict[str, str]:
    base = f"{ROOT}/mlx5_{hca}/ports/{port}"
    state, phys, rate = odd.state
    active = state == UP[0]
    parts = {
        f"{base}/link_layer": "InfiniBand",
        f"{base}/state": state,
        f"{base}/phys_state": phys,
        f"{base}/rate": rate,
        f"{base}/lid": f"{lid(node, hca) if active else 0xFFFF:#x}",
        f"{base}/sm_lid": "0x1" if active else "0x0",
        f"golden15/clock mlx5_{hca}/{port}": f"{node.clock(at)!r} {node.mono(at)!r}",
    }
    told = {**_counters(node, hca, port), **odd.counters}
    hw = _hw_counters(node, hca, port)
    parts |= {f"{base}/counters/{name}": str(told.get(name, 0)) for name in COUNTERS}
    return parts | {f"{base}/hw_counters/{name}": str(hw.get(name, 0)) for name in HW_COUNTERS}


def _counters(node: Node, hca: int, port: int) -> dict[str, int]:
    """Of a port that has carried a training job for weeks; nothing where it never had a cable."""
    if port == 2:
        return {}
    rng = node.rng(f"counters {hca}")
    sent, got = rng.randrange(180 * 10**12, 260 * 10**12), rng.randrange(180 * 10**12, 260 * 10**12)
    packets = sent // 1024 + rng.randrange(10**9)
    back = got // 1024 + rng.randrange(10**9)
    return {
        "port_xmit_data": sent,
        "port_rcv_data": got,
        "port_xmit_packets": packets,
        "unicast_xmit_packets": packets,
        "port_rcv_packets": back,
        "unicast_rcv_packets": back,
        "port_xmit_wait": rng.randrange(2 * 10**9, 4 * 10**9),
        "port_rcv_errors": rng.choice((0, 0, 0, 2, 3)),
        "port_rcv_switch_relay_errors": rng.choice((0, 1, 1, 2)),
        "symbol_error": rng.choice((0, 0, 0, 0, 1, 4)),
    }


def _hw_counters(node: Node, hca: int, port: int) -> dict[str, int]:
    rng = node.rng(f"hw {hca}/{port}")
    used = {
        "rx_read_requests": rng.randrange(8 * 10**6, 10**7),
        "rx_write_requests": rng.randrange(3 * 10**9, 4 * 10**9),
        "rx_dct_connect": rng.randrange(380_000, 460_000),
    }
    return {"lifespan": 12, **(used if port == 1 else {})}
