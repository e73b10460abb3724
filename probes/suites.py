"""Named lists of probes, with the deadline each suite promises per node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from probes import catalog
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

    def plan(self) -> Plan:
        """Raises NoAttachment when what it attaches is not installed here."""
        carried = tuple(attachments.load(name) for name in self.attaches)
        return Plan(self.members(), deadline_s=self.deadline_s, attachments=carried)


SUITES = {
    suite.name: suite
    for suite in (
        Suite("capture", "what may vanish, from every node", (
            "rank.map", "rank.process", "host.clock", "host.kernel_log", "host.load", "host.storage", "ib.ports",
            "gpu.state"), 12.0),
        Suite("check", "can this node be asked at all?", ("host.access", "host.clock"), 6.0),
        Suite("host", "the machine itself", ("host.clock", "host.kernel_log", "host.load", "host.storage"), 10.0),
        Suite("gpu", "the GPUs and what the kernel says of them", ("host.kernel_log", "gpu.state"), 12.0),
        Suite("fabric", "the InfiniBand and RoCE ports", ("ib.ports",), 8.0),
        Suite("ranks", "the training processes and how they stand", ("rank.map", "rank.process", "rank.env"), 12.0),
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
