"""nvidia-smi topo -p2p, as the probe gpu.topo reads it; facts gpu.p2p_status."""

from __future__ import annotations

from probes.catalog.gpu.p2p import ROW, peer_findings, peers_in
from probes.core import lines_of
from probes.intake.tools import Tool


def _fits(head: str, name: str) -> bool:
    return sum(bool(ROW.match(line)) for line in lines_of(head[:16_384], 600)) > 1


TOOL = Tool("nvidia-smi topo -p2p", "gpu.p2p_status", _fits, peers_in, peer_findings)
