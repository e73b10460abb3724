"""The words of diagnosis: what was seen, what a rule makes of it, and on which reading each claim stands."""

from __future__ import annotations

import functools
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import cattrs

from probes import catalog
from probes.catalog import _net_facts
from probes.catalog._ib_facts import merged
from probes.core import Finding, Outcome, Reading
from probes.topology import Answer, Topology, View, compare

Subject: TypeAlias = Mapping[str, str | int]
"""What a hypothesis blames: those known of node, rank, gpu (index), bus_id, hca, port, switch, group, pid, mount."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One reading as diagnosis sees it: the latest of one probe on one node.

    `ref` names it in every claim: "node/probe", or the file for what people brought. `facts` are typed, None unless
    the outcome is ok.
    """

    ref: str
    node: str
    probe: str
    outcome: Outcome
    why: str
    facts: Any
    findings: tuple[Finding, ...]


def seen(reading: Reading, ref: str = "") -> Seen:
    """A reading as it was just parsed."""
    capture = reading.capture
    why = reading.parse_error or capture.why
    name = ref or f"{capture.node}/{capture.probe}"
    return Seen(name, capture.node, capture.probe, reading.outcome, why, reading.facts, reading.findings)


@functools.cache
def _facts_type(probe: str) -> Any:
    if probe in _net_facts.NAMES:
        return getattr(_net_facts, _net_facts.NAMES[probe])
    return typing.get_type_hints(catalog.load()[probe].parse)["return"]


def _converter() -> cattrs.Converter:
    """Facts come back from JSON as what they were: what may be one of several plain values is taken as it is."""
    converter = cattrs.Converter(prefer_attrib_converters=False)
    for plain in (str | int, int | str, str | int | float, int | float | str):
        converter.register_structure_hook(plain, lambda value, _: value)
    return converter


_convert = _converter()


def stored(node: str, probe: str, outcome: Outcome, why: str, facts: Any, findings: list[dict[str, Any]]) -> Seen:
    """A reading as the database keeps it: facts and findings as JSON values. Facts of an older form count as failed."""
    typed = None
    if facts is not None and (probe in catalog.load() or probe in _net_facts.NAMES):
        try:
            typed = _convert.structure(facts, _facts_type(probe))
        except Exception as error:  # cattrs raises groups of whatever its hooks raise
            outcome, why = "failed", f"stored by another version of Golden15: {type(error).__name__}"
    found = tuple(Finding(one["code"], one["severity"], one["says"], one["subject"]) for one in findings)
    return Seen(f"{node}/{probe}", node, probe, outcome, why, typed, found)


class Evidence:
    """All that was seen in one incident. Built once; rules only read it. `asked`: every node that was asked, also those
    that have not answered; without it those that are seen. `expected`: how the fabric should be, if anybody said."""

    def __init__(self, readings: Iterable[Seen], asked: Iterable[str] = (), expected: Topology | None = None) -> None:
        self.expected = expected
        self.readings = tuple(readings)
        self.by_probe: dict[str, list[Seen]] = {}
        for one in self.readings:
            self.by_probe.setdefault(one.probe, []).append(one)
        seen = (one.node for one in self.readings if one.node)
        self.nodes = tuple(dict.fromkeys((*asked, *seen)))

    def of(self, probe: str) -> Iterator[Seen]:
        """The readings of a probe that have facts."""
        return (one for one in self.by_probe.get(probe, ()) if one.facts is not None)

    def unanswered(self, probe: str) -> tuple[str, ...]:
        """Nodes that were asked and have not answered this probe: what is there is not known. "Absent" is an answer."""
        answered = {one.node for one in self.by_probe.get(probe, ()) if one.outcome in ("ok", "absent")}
        return tuple(node for node in self.nodes if node not in answered)

    def findings(self, *codes: str) -> Iterator[tuple[Seen, Finding]]:
        """Every finding with one of these codes, with the reading it stands on."""
        for one in self.readings:
            for finding in one.findings:
                if finding.code in codes:
                    yield one, finding

    @functools.cached_property
    def job(self) -> Any:
        """The ranks across all nodes, a diagnosis.job.Job."""
        from probes.diagnosis.job import job_of

        return job_of(self)

    @functools.cached_property
    def stalls(self) -> Any:
        """Where ranks wait for each other, a diagnosis.collectives.Stalls."""
        from probes.diagnosis.collectives import stalls_of

        return stalls_of(self.job, bool(self.unanswered("rank.flight_recorder")))

    @functools.cached_property
    def fabric(self) -> View:
        """The ports of all nodes, each against what is expected of it."""
        answers = {one.node: Answer(one.outcome, one.facts, one.why) for one in self.by_probe.get("ib.ports", ())}
        told: dict[str, list[Any]] = {}  # several files may each tell a part of one node's ports
        for one in self.of("ib.ports"):
            told.setdefault(one.node, []).append(one.facts)
        answers |= {node: Answer("ok", merged(facts)) for node, facts in told.items() if len(facts) > 1}
        swept = [one.facts for one in self.of("ib.fabric")]
        return compare(self.nodes, self.expected, answers, swept[-1] if swept else None)

    @functools.cached_property
    def ports(self) -> Any:
        """The ports with their counters, a diagnosis.ports.Ports."""
        from probes.diagnosis.ports import ports_of

        return ports_of(self)

    @functools.cached_property
    def cpus(self) -> Any:
        """Who uses the CPU of each node: {node: diagnosis.cpus.NodeCpu}."""
        from probes.diagnosis.cpus import cpus_of

        return cpus_of(self)

    @functools.cached_property
    def suspects(self) -> Any:
        """The ranks that others wait for: {rank: diagnosis.suspects.Suspect}."""
        from probes.diagnosis.suspects import suspects

        return suspects(self)


@dataclass(frozen=True, slots=True)
class Reason:
    """One sentence for or against, with the reading it stands on."""

    says: str
    reading: str


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One thing that may be wrong. `cause` is of causes.toml.

    `signals` are rows of likelihoods.toml: how much more likely what was seen is when this is the cause than when it is
    not. `ranks` are the ranks that it would make stand still by themselves: a hypothesis about one of them that only
    tells how it looks from the others (it is missing, it left) is a consequence, see ranking.
    """

    cause: str
    subject: Subject
    says: str
    because: tuple[Reason, ...]
    signals: tuple[str, ...]
    against: tuple[Reason, ...] = ()
    would_change: tuple[str, ...] = ()
    ranks: frozenset[int] = field(default_factory=frozenset)
    nodes: frozenset[str] = field(default_factory=frozenset)


WEAK = 50.0  # judgement: a ratio below this makes a cause no explanation of others
Judge: TypeAlias = typing.Callable[[Evidence], Iterable[Hypothesis]]


def modest(judge: Judge) -> Judge:
    """A judge whose unlikely hypotheses explain nothing: an oddity must not take over what speaks for another cause."""

    @functools.wraps(judge)
    def judged(evidence: Evidence) -> Iterator[Hypothesis]:
        from probes.diagnosis.ranking import strength

        for one in judge(evidence):
            likely = strength(one.signals) >= WEAK
            yield one if likely else replace(one, ranks=frozenset(), nodes=frozenset())

    return judged


class Rule(typing.NamedTuple):
    """One rule: what it may blame, and how it judges. `judge` only reads the evidence."""

    causes: tuple[str, ...]
    judge: typing.Callable[[Evidence], Iterable[Hypothesis]]
