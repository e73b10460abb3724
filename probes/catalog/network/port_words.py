"""Words that tools print for a port's state, as sysfs prints them, and a port of what a tool told."""

from __future__ import annotations

from typing import Any

from probes.catalog.network.ib_facts import IbPorts, Port
from probes.core import clean

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
