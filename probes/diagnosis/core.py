"""The words of diagnosis: what was seen, what a rule makes of it, and on which reading each claim stands."""

from __future__ import annotations

import contextlib
import operator
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from probes.catalog.network.ib_facts import merged
from probes.core import Finding, Outcome, Reading
from probes.topology import Answer, Topology, View, compare

Subject: TypeAlias = Mapping[str, str | int]
"""What a hypothesis blames: those known of node, rank, gpu (index), bus_id, hca, port, switch, group, pid, mount."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One reading as diagnosis sees it: the latest of one probe on one node.

    `ref` names it in every claim: "node/probe", or the file for what people brought. `facts` are typed, None unless
    the outcome is ok. `at`: when it was seen, by the node's own clock and as if its zone were UTC, where a file tells.
    """

    ref: str
    node: str
    probe: str
    outcome: Outcome
    why: str
    facts: Any
    findings: tuple[Finding, ...]
    at: float | None = None


def seen(reading: Reading, ref: str = "") -> Seen:
    """A reading as it was just parsed."""
    capture = reading.capture
    why = reading.parse_error or capture.why
    name = ref or f"{capture.node}/{capture.probe}"
    return Seen(name, capture.node, capture.probe, reading.outcome, why, reading.facts, reading.findings, capture.at)


@dataclass(frozen=True, slots=True)
class _Made:
    """Something that was made of the evidence, and what of the evidence was looked at for it."""

    value: Any
    of: frozenset[str]


class Evidence:
    """All that was seen in one incident. Rules only read it. `asked`: every node that was asked, also those that have
    not answered; without it those that are seen. `expected`: how the fabric should be, if anybody said.

    It notes what is looked at (`noting`), so that what rests on unchanged readings need not be made again: the next
    evidence of the incident takes it over (`before`). A reading is unchanged when it is the same object.
    """

    def __init__(
        self,
        readings: Iterable[Seen],
        asked: Iterable[str] = (),
        expected: Topology | None = None,
        before: Evidence | None = None,
    ) -> None:
        self._expected = expected
        self._readings = tuple(readings)
        self._by_probe: dict[str, list[Seen]] = {}
        self._by_code: dict[str, list[tuple[Seen, Finding]]] = {}
        for one in self._readings:
            self._by_probe.setdefault(one.probe, []).append(one)
            for finding in one.findings:
                self._by_code.setdefault(finding.code, []).append((one, finding))
        seen = (one.node for one in self._readings if one.node)
        self._nodes = tuple(dict.fromkeys((*asked, *seen)))
        self._made: dict[str, _Made] = {}
        self._looked: list[set[str]] = []
        self._before = before
        self._same: dict[str, bool] = {}

    # What was looked at -----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def noting(self) -> Iterator[set[str]]:
        """What is looked at until the end of this block."""
        looked: set[str] = set()
        self._looked.append(looked)
        try:
            yield looked
        finally:
            self._looked.pop()
            self._note(*looked)

    def _note(self, *parts: str) -> None:
        if self._looked:
            self._looked[-1].update(parts)

    def unchanged(self, parts: Iterable[str]) -> bool:
        """Whether all these parts are what they were in the evidence before."""
        return self._before is not None and all(self._is_same(part, self._before) for part in parts)

    def _is_same(self, part: str, before: Evidence) -> bool:
        if part not in self._same:
            mine, old = self._part(part), before._part(part)  # noqa: SLF001 - another of its own kind
            same = operator.eq if part in ("nodes", "expected") else operator.is_
            self._same[part] = len(mine) == len(old) and all(map(same, mine, old))
        return self._same[part]

    def _part(self, part: str) -> Sequence[Any]:
        kind, _, name = part.partition(" ")
        if kind == "probe":
            return self._by_probe.get(name, ())
        if kind == "code":
            return [one for one, _ in self._by_code.get(name, ())]
        if kind == "nodes":
            return self._nodes
        return (self._expected,) if kind == "expected" else self._readings

    def forget(self) -> None:
        """Let go of the evidence before, once everything that rests on it was taken over."""
        self._before = None

    def derived(self, name: str, make: typing.Callable[[], Any]) -> Any:
        """What `make` makes of the evidence: made once, or taken over where all that it looked at is unchanged."""
        made = self._made.get(name)
        if made is None:
            old = self._before._made.get(name) if self._before is not None else None  # noqa: SLF001
            if old is not None and self.unchanged(old.of):
                made = old
            else:
                with self.noting() as looked:
                    value = make()
                made = _Made(value, frozenset(looked))
            self._made[name] = made
        self._note(*made.of)
        return made.value

    def derived_is(self, name: str, value: Any) -> None:
        """Put this in the place of what could not be made."""
        self._made[name] = _Made(value, frozenset({"readings"}))

    # What was seen ----------------------------------------------------------------------------------------------------

    @property
    def readings(self) -> tuple[Seen, ...]:
        """All of them."""
        self._note("readings")
        return self._readings

    @property
    def nodes(self) -> tuple[str, ...]:
        """Every node that was asked or seen."""
        self._note("nodes")
        return self._nodes

    @property
    def expected(self) -> Topology | None:
        """How the fabric should be."""
        self._note("expected")
        return self._expected

    def all_of(self, probe: str) -> Sequence[Seen]:
        """The readings of a probe, also those without facts."""
        self._note(f"probe {probe}")
        return self._by_probe.get(probe, ())

    def of(self, *probes: str) -> Iterator[Seen]:
        """The readings of these probes that have facts."""
        return (one for probe in probes for one in self.all_of(probe) if one.facts is not None)

    def unanswered(self, probe: str) -> tuple[str, ...]:
        """Nodes that were asked and have not answered this probe: what is there is not known. "Absent" is an answer."""
        answered = {one.node for one in self.all_of(probe) if one.outcome in ("ok", "absent")}
        return tuple(node for node in self.nodes if node not in answered)

    def findings(self, *codes: str) -> list[tuple[Seen, Finding]]:
        """Every finding with one of these codes, with the reading it stands on."""
        self._note(*(f"code {code}" for code in codes))
        return [found for code in dict.fromkeys(codes) for found in self._by_code.get(code, ())]

    @property
    def job(self) -> Any:
        """The ranks across all nodes, a diagnosis.job.Job."""
        from probes.diagnosis.job import job_of

        return self.derived("job", lambda: job_of(self))

    @property
    def stalls(self) -> Any:
        """Where ranks wait for each other, a diagnosis.collectives.Stalls."""
        from probes.diagnosis.collectives import stalls_of

        return self.derived("stalls", lambda: stalls_of(self.job, bool(self.unanswered("rank.flight_recorder"))))

    @property
    def fabric(self) -> View:
        """The ports of all nodes, each against what is expected of it."""
        return typing.cast(View, self.derived("fabric", self._fabric))

    def _fabric(self) -> View:
        answers = {one.node: Answer(one.outcome, one.facts, one.why) for one in self.all_of("ib.ports")}
        told: dict[str, list[Any]] = {}  # several files may each tell a part of one node's ports
        for one in self.of("ib.ports"):
            told.setdefault(one.node, []).append(one.facts)
        answers |= {node: Answer("ok", merged(facts)) for node, facts in told.items() if len(facts) > 1}
        swept = [one.facts for one in self.of("ib.fabric")]
        return compare(self.nodes, self.expected, answers, swept[-1] if swept else None)

    @property
    def places(self) -> Any:
        """Where lines of logs come from, a diagnosis.log_evidence.Places."""
        from probes.diagnosis.log_evidence import Places

        return self.derived("places", lambda: Places(self))

    @property
    def ports(self) -> Any:
        """The ports with their counters, a diagnosis.ports.Ports."""
        from probes.diagnosis.ports import ports_of

        return self.derived("ports", lambda: ports_of(self))

    @property
    def cpus(self) -> Any:
        """Who uses the CPU of each node: {node: diagnosis.cpus.NodeCpu}."""
        from probes.diagnosis.cpus import cpus_of

        return self.derived("cpus", lambda: cpus_of(self))

    @property
    def differences(self) -> Any:
        """What should be equal on all nodes and is not: tuple of diagnosis.differences.Difference."""
        from probes.diagnosis.differences import differences_of

        return self.derived("differences", lambda: differences_of(self))

    @property
    def speeds(self) -> Any:
        """How fast collectives moved data: tuple of diagnosis.bandwidth.Speed."""
        from probes.diagnosis.bandwidth import speeds_of

        return self.derived("speeds", lambda: speeds_of(self))

    @property
    def chains(self) -> Any:
        """Who waits for whom, link by link: tuple of diagnosis.waiting.Chain."""
        from probes.diagnosis.waiting import chains_of

        return self.derived("chains", lambda: chains_of(self))

    @property
    def suspects(self) -> Any:
        """The ranks that others wait for: {rank: diagnosis.suspects.Suspect}."""
        from probes.diagnosis.suspects import suspects

        return self.derived("suspects", lambda: suspects(self))


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


class Rule(typing.NamedTuple):
    """One rule: what it may blame, and how it judges. `judge` only reads the evidence."""

    causes: tuple[str, ...]
    judge: typing.Callable[[Evidence], Iterable[Hypothesis]]
