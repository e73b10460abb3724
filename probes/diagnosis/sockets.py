"""TCP sockets, whoever told them: ranks' own by a probe, or what ss and netstat printed."""

from __future__ import annotations

from collections.abc import Iterator

from probes.catalog.network.net_facts import Socket
from probes.diagnosis.core import Evidence, Seen


def sockets_of(evidence: Evidence) -> Iterator[tuple[Seen, tuple[Socket, ...]]]:
    """Each reading that tells sockets."""
    for probe in ("host.settings", "rank.sockets"):
        for seen in evidence.of(probe):
            if seen.facts.sockets:
                yield seen, seen.facts.sockets
