"""Names that tools of InfiniBand print for counters and for the speed of a lane, as sysfs calls them."""

from __future__ import annotations

from probes.reference import rows

# Names of perfquery, ibqueryerrors and NVIDIA's tools -> those in sysfs.
COUNTERS = {
    "SymbolErrorCounter": "symbol_error", "LinkErrorRecoveryCounter": "link_error_recovery",
    "LinkDownedCounter": "link_downed", "PortRcvErrors": "port_rcv_errors",
    "PortRcvRemotePhysicalErrors": "port_rcv_remote_physical_errors",
    "PortRcvSwitchRelayErrors": "port_rcv_switch_relay_errors", "PortXmitDiscards": "port_xmit_discards",
    "PortXmitConstraintErrors": "port_xmit_constraint_errors", "PortRcvConstraintErrors": "port_rcv_constraint_errors",
    "LocalLinkIntegrityErrors": "local_link_integrity_errors",
    "ExcessiveBufferOverrunErrors": "excessive_buffer_overrun_errors", "VL15Dropped": "VL15_dropped",
    "PortXmitData": "port_xmit_data", "PortRcvData": "port_rcv_data", "PortXmitPkts": "port_xmit_packets",
    "PortRcvPkts": "port_rcv_packets", "PortXmitWait": "port_xmit_wait",
    "PortLocalPhysicalErrors": "port_local_physical_errors", "PortMalformedPktErrors": "port_malformed_packet_errors",
}  # fmt: skip
_LANES = {round(row["gbps"], 1): row["name"] for row in rows("ib_speeds")}
_SIGNALS = {53.1: "HDR", 106.3: "NDR", 26.6: "HDR", 25.8: "EDR", 14.1: "FDR", 10.3: "FDR10", 212.5: "XDR"}


def speed_of(gbps: float) -> str | None:
    """The name of one lane's speed: 50.0 Gbps is HDR, and so is the signalling rate 53.125."""
    return _LANES.get(round(gbps, 1)) or _SIGNALS.get(round(gbps + 1e-6, 1))
