"""Named lists of probes, with the deadline each suite promises per node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from probes import catalog
from probes.catalog.logs.given_files import ATTACHMENT as LOG_PATHS
from probes.core import Probe
from probes.transport import attachments
from probes.transport.plan import Plan


@dataclass(frozen=True, slots=True)
class Suite:
    """`deadline_s`: seconds after its start by which the runner on a node has answered for every probe.

    `attaches` names what is sent along, megabytes per node: such a suite is for chosen suspects.
    """

    name: str
    says: str
    probes: tuple[str, ...]
    deadline_s: float
    attaches: tuple[str, ...] = ()

    def members(self) -> tuple[Probe[Any], ...]:
        known = catalog.load()
        return tuple(known[name] for name in self.probes)

    def plan(self, log_paths: Sequence[str] = ()) -> Plan:
        """What to ask. Where an attachment is not installed here, the probe that wants it says so in its own answer.

        `log_paths`: checked patterns of log files, for a suite that reads logs; others are sent none.
        """
        carried, lacking = [], {}
        if log_paths and any(LOG_PATHS in probe.attachments for probe in self.members()):
            carried.append(attachments.of_json(LOG_PATHS, list(log_paths)))
        for name in self.attaches:
            try:
                carried.append(attachments.load(name))
            except attachments.NoAttachment as error:
                lacking[name] = str(error)
        return Plan(self.members(), deadline_s=self.deadline_s, attachments=tuple(carried), not_attached=lacking)


SUITES = {
    suite.name: suite
    for suite in (
        Suite("capture", "what may vanish, from every node", (
            "rank.map", "rank.process", "rank.flight_recorder", "rank.stack", "rank.log", "rank.env", "nccl.ras",
            "host.clock", "host.kernel_log", "host.load", "host.storage", "ib.ports", "gpu.amd",
            "gpu.state"), 18.0),
        Suite("triage", "how the machine is set up, to compare along the job", (
            "host.pci", "host.aer_counters", "host.versions", "host.settings", "host.services", "host.boots",
            "host.hardware_log", "host.bmc_log", "net.links", "ib.counters", "ib.resources", "rank.sockets",
            "nccl.topology", "gpu.topo", "gpu.nvlink", "gpu.fabric_manager"), 14.0),
        Suite("scan", "which jobs run where?", ("rank.map",), 8.0),
        Suite("check", "can this node be asked at all?", ("host.access", "host.clock"), 6.0),
        Suite("host", "the machine itself", (
            "host.clock", "host.kernel_log", "host.load", "host.storage", "host.pci", "host.aer_counters",
            "host.versions", "host.settings", "host.services", "host.boots", "host.hardware_log", "host.bmc_log"),
            14.0),
        Suite("gpu", "the GPUs and what the kernel says of them", (
            "host.pci", "host.aer_counters", "host.kernel_log", "gpu.amd", "gpu.state", "gpu.topo", "gpu.nvlink",
            "gpu.fabric_manager"), 20.0),
        Suite("fabric", "one node's ports, and the fabric as that node sees it",
            ("ib.ports", "ib.counters", "ib.resources", "net.links", "ib.fabric", "ib.fabric_errors"), 46.0),
        Suite("hang", "what every rank waits in", ("rank.process", "rank.flight_recorder", "rank.stack"), 20.0),
        Suite("suspects", "the same from a few nodes, with py-spy sent where it is missing",
            ("rank.flight_recorder", "rank.stack", "rank.profiles"), 24.0, attaches=("py-spy",)),
        Suite("verify", "does training advance, and is what was mended well?", (
            "rank.map", "rank.process", "rank.flight_recorder", "rank.log", "host.clock", "host.kernel_log",
            "host.load", "ib.ports", "gpu.amd", "gpu.state"), 18.0),
        Suite("dump", "ask each rank, once, to write its flight recorder", ("rank.flight_recorder_trigger",), 14.0),
        Suite("ranks", "the training processes and how they stand", (
            "rank.map", "rank.process", "rank.env", "rank.sockets", "rank.log", "nccl.ras"), 12.0),
    )
}  # fmt: skip


class Unknown(LookupError):
    """There is no suite or probe of this name. The text lists what there is."""


def suite_or_probe(name: str) -> Suite:
    """A suite by name, or a suite of one probe. Raises Unknown."""
    if name in SUITES:
        return SUITES[name]
    if name in catalog.load():
        return Suite(name, catalog.load()[name].question, (name,), catalog.load()[name].timeout_s + 4)
    raise Unknown(
        f"no suite or probe is called {name!r}. Suites: {', '.join(SUITES)}. Probes: {', '.join(catalog.load())}"
    )
