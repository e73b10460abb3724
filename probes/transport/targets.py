"""Whom to ask, within which limits, and how each node ended."""

from __future__ import annotations

from dataclasses import dataclass, field

from probes.transport import sshconfig
from probes.transport.reasons import sentence


@dataclass(frozen=True, slots=True)
class Target:
    """One node to ask. Empty fields are left to the SSH configuration, in which `node` is the name that counts.

    `address` takes the place of HostName there; `jump` is `[user@]host[:port][,...]`.
    """

    node: str
    address: str = ""
    user: str = ""
    port: int = 0
    jump: str = ""


@dataclass(frozen=True, slots=True)
class NodeEnd:
    """How one node ended. `reason` is "" when every probe was answered, else a key of REASONS; times in seconds.

    `offered_key` is the host key (known_hosts form) the node showed when it was not trusted.
    """

    node: str
    reason: str = ""
    detail: str = ""  # what the other side said
    took_s: float = 0.0
    connect_s: float = 0.0
    tries: int = 1
    reached: str = ""  # user@host:port, as the SSH configuration resolved it
    python: str = ""
    chatter: str = ""  # what its login printed: banner, shell start-up files, error output
    offered_key: str = ""
    fingerprint: str = ""

    @property
    def why(self) -> str:
        """What failed and what to do next, for people; "" when the node answered."""
        return sentence(self.reason, self.detail) if self.reason else ""


@dataclass(slots=True)
class Settings:
    """Limits of one run. `accepted` holds known_hosts lines that people accepted; times in seconds."""

    fanout: int = 128
    connect_s: float = 8.0
    start_s: float = 8.0
    node_s: float = 25.0
    run_s: float = 120.0
    gate: int = 3
    config: list[str] = field(default_factory=sshconfig.readable)
    known_hosts: tuple[str, ...] = ()  # instead of those that the configuration names and of the usual ones
    accepted: str = ""
