"""nvidia-smi topo -p2p: whether each pair of GPUs can reach each other's memory.

Source   nvidia-smi(1), topo -p2p r|w|n|a|p: OK, CNS (chipset), GNS (GPU), TNS (topology), NS (not supported), U
Shape    PeerStatus
Errors   ParseError when no row of a GPU is in it
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from probes.core import Finding, ParseError, lines_of

ROW = re.compile(r"\s{0,8}GPU(\d{1,3})((?:\s{1,8}(?:X|OK|CNS|GNS|TNS|NS|DR|U)){2,128})\s{0,8}$")


@dataclass(frozen=True, slots=True)
class PeerStatus:
    rows: tuple[tuple[int, tuple[str, ...]], ...]  # GPU, a word for each other


def peers_in(text: str) -> PeerStatus:
    rows = [(int(found[1]), tuple(found[2].split())) for line in lines_of(text, 600) if (found := ROW.match(line))]
    if not rows:
        raise ParseError("nvidia-smi topo -p2p: no row of a GPU in it")
    return PeerStatus(tuple(rows[:256]))


def peer_findings(facts: PeerStatus) -> Iterator[Finding]:
    """One GPU that reaches none, where others reach each other, has lost its links. Where no pair does, the machine may
    be built so."""
    reached = {gpu: sum(word == "OK" for word in words) for gpu, words in facts.rows}
    none = [gpu for gpu, count in reached.items() if not count]
    if len(none) == 1 and max(reached.values()) > 1:
        says = f"GPU {none[0]} reaches the memory of no other GPU, which reach each other's"
        yield Finding("gpu.nvlink_inactive", "bad", says, {"gpu": none[0]})
    elif len(none) == len(reached) > 1:
        words = sorted({word for _, row in facts.rows for word in row if word != "X"})
        says = f"no GPU reaches the memory of another ({', '.join(words)})"
        yield Finding("gpu.p2p_not_supported", "warn", says)
