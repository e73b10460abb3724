"""What managers and switches of a fabric logged: a link down or up, a device gone or back, errors, congestion.

No probe asks for these: they come through the files door (probes.intake.tools.network.fabric_events), as ib.events.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class End:
    """One end of a cable, or a device. `node` and `hca` of an adapter, `switch` of a switch; "" and None: not told."""

    node: str = ""
    hca: str = ""
    switch: str = ""
    port: int | None = None

    @property
    def called(self) -> str:
        if self.switch:
            return f"port {self.port} of {self.switch}" if self.port is not None else self.switch
        return " on ".join(one for one in (self.hca, self.node) if one)


@dataclass(frozen=True, slots=True)
class FabricEvent:
    """`what`: down, up (a link), gone, back (a device), flaps, errors, congested. `ends`: the link's two, or the
    device, an adapter before a switch. `stamp`: the time as printed, whose zone nobody told."""

    what: str
    ends: tuple[End, ...]
    stamp: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class FabricEvents:
    source: str  # ufm, opensm, switch
    events: tuple[FabricEvent, ...]
