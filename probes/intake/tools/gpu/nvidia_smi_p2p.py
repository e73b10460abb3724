"""nvidia-smi topo -p2p, as the probe gpu.topo reads it; facts gpu.p2p_status."""

from __future__ import annotations

from probes.catalog.gpu.p2p import ROW, PeerStatus, peer_findings, peers_in
from probes.core import lines_of
from probes.intake.tools import Tool


def _fits(head: str, name: str) -> bool:
    return sum(bool(ROW.match(line)) for line in lines_of(head[:16_384], 600)) > 1


def read(text: str) -> PeerStatus:
    return peers_in(text)


TOOL = Tool("nvidia-smi topo -p2p", "gpu.p2p_status", _fits, read, peer_findings)
