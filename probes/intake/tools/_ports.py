"""Words that tools print for a port's state, as sysfs prints them, and a port of what a tool told."""

from __future__ import annotations

from typing import Any

from probes.catalog._ib_facts import IbPorts, Port
from probes.core import clean
from probes.reference import rows

STATES = {
    "active": "ACTIVE", "down": "DOWN", "init": "INIT", "initialize": "INIT", "initializing": "INIT",
    "armed": "ARMED", "nop": "NOP", "active_defer": "ACTIVE_DEFER", "activedefer": "ACTIVE_DEFER",
}  # fmt: skip
PHYSICAL = {
    "linkup": "LinkUp", "link_up": "LinkUp", "polling": "Polling", "disabled": "Disabled", "sleep": "Sleep",
    "portconfigurationtraining": "PortConfigurationTraining",
    "port_configuration_training": "PortConfigurationTraining",
    "linkerrorrecovery": "LinkErrorRecovery", "link_error_recovery": "LinkErrorRecovery", "phy_test": "PhyTest",
}  # fmt: skip
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


def port(hca: str, number: int, **told: Any) -> Port:
    """A port; words of its state in any tool's spelling."""
    told["state"] = STATES.get(_word(told.get("state")), clean(told["state"])[:40] if told.get("state") else None)
    told["phys_state"] = PHYSICAL.get(
        _word(told.get("phys_state")), clean(told["phys_state"])[:40] if told.get("phys_state") else None
    )
    texts: dict[str, Any] = {
        name: clean(value)[:120] if isinstance(value, str) else value for name, value in told.items()
    }
    return Port(clean(hca)[:64], number, **texts)


def _word(value: str | None) -> str:
    return (value or "").strip().lower().removeprefix("port_").replace(" ", "")


def node_facts(ports: list[Port]) -> IbPorts:
    return IbPorts("", tuple(ports[:512]))


def speed_of(gbps: float) -> str | None:
    """The name of one lane's speed: 50.0 Gbps is HDR, and so is the signalling rate 53.125."""
    return _LANES.get(round(gbps, 1)) or _SIGNALS.get(round(gbps + 1e-6, 1))
