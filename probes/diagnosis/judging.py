"""All rules over all evidence: the one way from readings to a diagnosis."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import logging
import pkgutil
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from probes.diagnosis import rules
from probes.diagnosis.bandwidth import Speed
from probes.diagnosis.collectives import Stalls
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule, Seen, Subject
from probes.diagnosis.differences import Difference
from probes.diagnosis.flow import Row, flow_of
from probes.diagnosis.paths import PathState, path_states
from probes.diagnosis.ranking import Ranked, causes, likelihoods, rank
from probes.diagnosis.suspects import ranks_said
from probes.diagnosis.waiting import Chain
from probes.diagnosis.well import signs
from probes.topology import Topology

log = logging.getLogger(__name__)
OF_MACHINE = ("gpu.", "ib.", "host.machine_check", "host.rebooted", "host.clock_offset", "host.library_mismatch")
OF_PROGRAM = ("gpu.app_fault", "gpu.out_of_memory")
UNKNOWN = {"", "?"}  # in the place of a name


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """`ranked`: most probable first, summing to 1; `paths` by id. `failed`: rules that stopped on this evidence.
    `differences`: what should be equal on all nodes and is not. `speeds`: how fast collectives were.
    `chains`: who waits for whom. `flow`: how RoCE is set up, where something of it is unequal."""

    ranked: tuple[Ranked, ...]
    paths: Mapping[str, PathState]
    failed: Mapping[str, str]
    differences: tuple[Difference, ...] = ()
    speeds: tuple[Speed, ...] = ()
    chains: tuple[Chain, ...] = ()
    flow: tuple[Row, ...] = ()

    @property
    def verdict(self) -> Ranked:
        return self.ranked[0]


@functools.cache
def all_rules() -> Mapping[str, Rule]:
    """Every rule by the name of its file. Raises ValueError for one that blames what is not in the closed list."""
    found = {}
    for module in pkgutil.iter_modules(rules.__path__):
        if module.name.startswith("_"):
            continue
        rule: Rule = importlib.import_module(f"{rules.__name__}.{module.name}").RULE
        if unknown := set(rule.causes) - set(causes()):
            raise ValueError(f"rules/{module.name}.py blames {', '.join(sorted(unknown))}: not in causes.toml")
        found[module.name] = rule
    return found


def diagnose(readings: Iterable[Seen], asked: Iterable[str] = (), expected: Topology | None = None) -> Diagnosis:
    """Judge everything that was seen on the nodes that were `asked`, and whose fabric should be as `expected`.

    A rule that fails on it is said and costs only its own hypotheses.
    """
    return Diagnoser().diagnose(readings, asked, expected)


@dataclass(frozen=True, slots=True)
class _Told:
    """What a rule said, and what of the evidence it looked at."""

    hypotheses: tuple[Hypothesis, ...]
    failed: str
    of: frozenset[str]


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """Rules leave no circles behind, and looking for them among a million facts takes longer than the rules."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class Diagnoser:
    """Judges one incident again and again as readings come: only what looked at new ones is asked again."""

    def __init__(self) -> None:
        self._before: Evidence | None = None
        self._told: dict[str, _Told] = {}

    def diagnose(
        self, readings: Iterable[Seen], asked: Iterable[str] = (), expected: Topology | None = None
    ) -> Diagnosis:
        """As `diagnose`. Readings that have not changed must be the same objects as before."""
        with _without_collections():
            return self._diagnose(Evidence(readings, asked, expected, self._before))

    def _diagnose(self, evidence: Evidence) -> Diagnosis:
        told = {name: self._ask(name, rule, evidence) for name, rule in all_rules().items()}
        found = _on_nodes(evidence, [one for rule in told.values() for one in rule.hypotheses])
        found = _of_the_job(evidence, found)
        failed = {name: rule.failed for name, rule in told.items() if rule.failed}
        quiet, on = signs(evidence, found, _advances(evidence, failed))
        ranked = rank(found, quiet, on, _gap(evidence))
        ranked = (_with_doubles(evidence, ranked[0]), *ranked[1:])
        diagnosis = Diagnosis(
            ranked,
            path_states(evidence, ranked),
            failed,
            evidence.differences,
            evidence.speeds,
            evidence.chains,
            evidence.derived("flow", lambda: flow_of(evidence)),
        )
        evidence.forget()
        self._before, self._told = evidence, told
        return diagnosis

    def _ask(self, name: str, rule: Rule, evidence: Evidence) -> _Told:
        before = self._told.get(name)
        if before is not None and evidence.unchanged(before.of):
            return before
        found: list[Hypothesis] = []
        failed = ""
        with evidence.noting() as looked:
            try:
                found = _checked(name, rule, rule.judge(evidence))
            except Exception as error:
                log.exception("rule %s stopped on this evidence", name)
                failed = f"{type(error).__name__}: {error}"[:300]
        return _Told(tuple(found), failed, frozenset(looked))


def _on_nodes(evidence: Evidence, found: list[Hypothesis]) -> list[Hypothesis]:
    """With the node on which a pod runs: what is told of the one is told of the other as well."""
    nodes: dict[str, str] = {}
    for seen in evidence.of("cluster.events"):
        nodes.update({pod.name: pod.node for pod in seen.facts.pods if pod.node})
    named = _by_address(evidence) | _by_cluster(evidence)
    if named:
        found = [_named(one, named) for one in found]
    return [_placed(one, nodes) for one in found] if nodes else found


def _by_address(evidence: Evidence) -> dict[str, str]:
    """Names of nodes by their address, as /etc/hosts and resolvers tell; of addresses that have one name only. Where
    pods have names and addresses too, it is of a pod."""
    told: dict[str, list[str]] = {}
    for seen in evidence.of("host.settings"):
        for name, address in seen.facts.names:
            if address and not address.startswith(("127.", "::1", "0.")):
                told.setdefault(address, []).append(name)
    return {at: names[0] for at, names in told.items() if len({name.partition(".")[0] for name in names}) == 1}


def _by_cluster(evidence: Evidence) -> dict[str, str]:
    """Full names of nodes by their first label, as which a node's own lines call it, where the cluster knows them by
    the full ones: commands to it take no other."""
    told: dict[str, set[str]] = {}
    for seen in evidence.of("cluster.events"):
        for name in {pod.node for pod in seen.facts.pods if pod.node}:
            told.setdefault(name.partition(".")[0], set()).add(name)
    return {short: min(names) for short, names in told.items() if len(names) == 1 and short not in names}


def _named(one: Hypothesis, names: Mapping[str, str]) -> Hypothesis:
    """With the name of a node where it is told by its address, or by a part of its name."""
    here = {names[node] for node in one.nodes if node in names}
    at = str(one.subject.get("node", ""))
    if at in names:
        says = one.says if names[at] in one.says else one.says.replace(at, names[at])
        one = replace(one, subject={**one.subject, "node": names[at]}, says=says)
    return replace(one, nodes=one.nodes | here) if here else one


def _of_the_job(evidence: Evidence, found: list[Hypothesis]) -> list[Hypothesis]:
    """Without what blames another node of the cluster, where the scheduler tells the job's. A name in another form may
    be the same node's, or a server's on which the job depends."""
    mine = {node.partition(".")[0] for seen in evidence.of("job.nodes") for node in _nodes(evidence, seen)}
    forms = {re.sub(r"\d+", "#", node) for node in mine}
    if not mine:
        return found
    mine |= {view.node.partition(".")[0] for view in evidence.job.ranks.values()}  # as it ran before
    kept = []
    for one in found:
        blamed = {str(one.subject.get("node", "")).partition(".")[0]} - {""}
        blamed = blamed or {node.partition(".")[0] for node in one.nodes if node}  # a switch is blamed by its ports
        shapes = {re.sub(r"\d+", "#", node) for node in blamed}
        if not blamed or blamed & mine or one.ranks or not all(_alike(shape, forms) for shape in shapes):
            kept.append(one)
    return kept


def _alike(shape: str, forms: set[str]) -> bool:
    """Whether it is a name of the job's own form, but for one letter, as of another rack: ra#, rb#."""
    same = (form for form in forms if len(form) == len(shape))
    return any(sum(a != b for a, b in zip(form, shape, strict=True)) <= 1 for form in same)


def _nodes(evidence: Evidence, seen: Seen) -> tuple[str, ...]:
    """The nodes of the job: of several jobs of the one whose number stands in the names of logs."""
    facts = seen.facts
    if facts.nodes or not facts.jobs:
        return tuple(facts.nodes)
    names = " ".join({log.ref.rpartition("/")[2] for log in evidence.of("rank.log")})
    told = [nodes for number, nodes in facts.jobs.items() if number in re.findall(r"\d{2,12}", names)]
    return tuple(told[0]) if len(told) == 1 else ()


def _placed(one: Hypothesis, nodes: Mapping[str, str]) -> Hypothesis:
    here = {nodes[name] for name in one.nodes if name in nodes}
    pod = str(one.subject.get("node", ""))
    if pod in nodes and one.cause.startswith(OF_MACHINE) and one.cause not in OF_PROGRAM:
        # A pod's GPUs and adapters are the machine's, and that is what somebody drains.
        says = one.says.replace(pod, nodes[pod])
        one = replace(one, subject={**one.subject, "node": nodes[pod]}, says=says)
    return replace(one, nodes=one.nodes | here) if here else one


def _with_doubles(evidence: Evidence, first: Ranked) -> Ranked:
    """What leads, with the doubt that two processes of one rank leave: one's stack may explain the other's wait."""
    doubts = (*tuple(evidence.job.doubles)[:3], *_of_two_jobs(evidence))
    return replace(first, hypothesis=replace(first.hypothesis, against=first.hypothesis.against + doubts))


def _of_two_jobs(evidence: Evidence) -> tuple[Reason, ...]:
    """Dumps that tell of jobs of different size lie in one folder by mistake."""
    sizes: dict[int, str] = {}
    for view in evidence.job.ranks.values():
        if view.dump is not None and view.dump.world_size:
            sizes.setdefault(view.dump.world_size, view.ref("rank.flight_recorder"))
    if len(sizes) < 2:
        return ()
    told = " and ".join(str(size) for size in sorted(sizes)[:4])
    says = f"these dumps tell of jobs of {told} ranks: two jobs may lie in one folder"
    return (Reason(says, sizes[min(sizes)]),)


def _gap(evidence: Evidence) -> str:
    """What was not seen at all, as a headline: a node that gave no answer, or that no training runs here; else ""."""
    heard = {one.node for one in evidence.readings if one.outcome not in ("unreachable", "skipped")}
    tried = {one.node for one in evidence.readings}
    dead = [node for node in evidence.nodes if node in tried - heard]
    if dead and len(dead) == len(evidence.nodes):
        return "No node answered: nothing is known"
    if dead:
        more = f" and {len(dead) - 3} more" if len(dead) > 3 else ""
        return f"{', '.join(dead[:3])}{more} did not answer: what is there is not known"
    if said := _of_recorders(evidence):
        return said
    maps = {one.node: one.outcome for one in evidence.all_of("rank.map")}
    if evidence.nodes and all(maps.get(node) == "absent" for node in evidence.nodes):
        return "No training process was found on " + ("these nodes" if len(evidence.nodes) > 1 else "this node")
    return ""


def _of_recorders(evidence: Evidence) -> str:
    """What the flight recorders leave open: whose dumps are needed, or that all wait in one place."""
    stalls = evidence.stalls
    missing = {rank for stall in stalls.all for rank in stall.unknown} & stalls.uncollected
    dumps = sum(view.dump is not None for view in evidence.job.ranks.values())
    if missing and not evidence.stalls.cycle:
        who = ranks_said(missing)
        return (
            f"Only {dumps} of {dumps + len(stalls.uncollected)} ranks' flight-recorder dumps are here: {who} are needed"
        )
    whole = next((stall for stall in stalls.all if stall.complete), None)
    if whole is not None and not stalls.culprits and not stalls.behind:
        return (
            f"All {len(whole.members)} ranks are in {whole.called}, and it does not end: what the GPUs, the fabric and "
            "NCCL's own log of these nodes say would tell why"
        )
    return ""


def _advances(evidence: Evidence, failed: dict[str, str]) -> bool:
    try:
        return evidence.stalls.moving is True
    except Exception as error:
        failed["collectives"] = f"{type(error).__name__}: {error}"[:300]
        evidence.derived_is("stalls", Stalls())  # the paths are told without it
        return False


def _checked(name: str, rule: Rule, hypotheses: Iterable[Hypothesis]) -> list[Hypothesis]:
    found = [
        replace(one, subject=_known(one.subject)) if UNKNOWN & set(one.subject.values()) else one for one in hypotheses
    ]
    for one in found:
        if one.cause not in rule.causes:
            raise ValueError(f"blames {one.cause}, which it does not declare")
        if unknown := [signal for signal in one.signals if signal not in likelihoods()]:
            raise ValueError(f"uses the signal {unknown[0]}, which is not in likelihoods.toml")
        if not one.because:
            raise ValueError(f"gives no reason for {one.cause}")
    return found


def _known(subject: Subject) -> Subject:
    """Without what nobody knows: a file of no node blames none."""
    known = {key: value for key, value in subject.items() if value not in UNKNOWN}
    return known if "hca" in known or "hca" not in subject else {k: v for k, v in known.items() if k != "port"}
