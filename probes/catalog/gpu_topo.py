"""How are the GPUs and the adapters of this node connected, and has a GPU lost its NVLinks?

Source   nvidia-smi(1), topo -m, topo -p2p r; recorded outputs of 2019 to 2026: headers underlined, columns by tabs or
         spaces. Asked only while nothing hangs in the driver. Never run on a GPU: replayed from recordings
Units    NVLinks of a pair by their number; words of the manual for all other paths
Shape    Topology
Errors   ParseError when a row has fewer words than there are devices
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from probes.catalog.gpu import ladder
from probes.catalog.gpu.links import Topology, topology_findings
from probes.catalog.gpu.p2p import ROW, peers_in
from probes.core import ParseError, Probe, clean, lines_of, sections

__all__ = ["PROBE", "Topology", "findings", "header", "parse"]

findings = topology_findings


def _collect() -> Mapping[str, str]:
    import contextlib

    parts = {"nvidia-smi topo -m": ladder.printed(["nvidia-smi", "topo", "-m"])}
    with contextlib.suppress(OSError):  # a driver that does not tell it
        parts["nvidia-smi topo -p2p r"] = ladder.printed(["nvidia-smi", "topo", "-p2p", "r"])
    return parts


_DEVICE = re.compile(r"(?:GPU|NIC|mlx\d_|bnxt_re|rdmap|irdma|ibp|hfi)\w{0,30}")
_WORD = re.compile(r"X|NV\d{1,3}|PIX|PXB|PHB|NODE|SYS|SOC|PSB|NA")


def header(line: str) -> list[str]:
    """Devices of the header: everything up to the columns of affinity."""
    names = re.split(r"\s+", clean(line).partition("CPU Aff")[0].strip())
    return names if names and names[0] == "GPU0" and all(_DEVICE.fullmatch(name) for name in names) else []


def parse(text: str) -> Topology:
    """The table, alone or below the collector's heading, and who may read whose memory where that was asked too."""
    parts = sections(text) if text.lstrip().startswith("==> ") else {}
    peers = parts.get("nvidia-smi topo -p2p r", "")
    text = parts.get("nvidia-smi topo -m", text)
    devices: list[str] = []
    pairs: dict[str, str] = {}
    nics: dict[str, str] = {}
    for line in lines_of(clean(text), 4096):
        if not devices:
            devices = header(line)
            continue
        words = line.split()
        if not words or words[0] not in devices:
            if line.startswith(("Legend", "NIC Legend")):
                break
            continue
        if not words[0].startswith("GPU"):
            continue
        cells = words[1 : 1 + len(devices)]
        if len(cells) < len(devices) or not all(_WORD.fullmatch(cell) for cell in cells):
            raise ParseError(f"nvidia-smi topo -m: {words[0]}: expected {len(devices)} words such as NV18, PIX, SYS")
        for device, cell in zip(devices, cells, strict=True):
            if device.startswith("GPU") and devices.index(words[0]) < devices.index(device):
                pairs[f"{words[0]} {device}"] = cell
            elif not device.startswith("GPU"):
                nics[f"{words[0]} {device}"] = cell
    gpus = tuple(device for device in devices if device.startswith("GPU"))
    if not gpus:
        raise ParseError("nvidia-smi topo -m: expected a header that begins with GPU0")
    return Topology(gpus, pairs, nics, peers_in(peers) if any(map(ROW.match, lines_of(peers, 600))) else None)


PROBE = Probe(
    "gpu.topo",
    "How are the GPUs and the adapters of this node connected, and has a GPU lost its NVLinks?",
    parse,
    findings,
    collect=_collect,
    by_hand="nvidia-smi topo -m; nvidia-smi topo -p2p r",
    timeout_s=6.0,
    touches="driver",
    brings=(ladder,),
    cost="not measured: there was no such hardware",
)
