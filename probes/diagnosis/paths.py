"""The diagnostic paths: the state of each step, from what was asked and from the ranking. Not known is never green."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal, NamedTuple

from probes.diagnosis.collectives import LONG_S
from probes.diagnosis.core import Evidence
from probes.diagnosis.gpus import GPU_PROBES
from probes.diagnosis.profiled import profiles
from probes.diagnosis.ranking import Ranked
from probes.diagnosis.times import times_of

State = Literal["ruled out", "suspect", "implicated", "not known"]
WORST: tuple[State, ...] = ("ruled out", "not known", "suspect", "implicated")
IMPLICATED, SUSPECT = 0.5, 0.02  # judgement: shares of the ranking
ANSWERED = ("ok", "absent")
# That nothing was found to ask is no proof of health: a tool may be missing, a driver not loaded, the job elsewhere.
NOTHING_THERE = ("not found on these nodes", "no training process was found on these nodes")
Share = tuple[float, str, str]  # of a hypothesis: its weight, its sentence, the first reading for it
# Nodes have GPUs of one maker: what the other probe finds absent, this one tells.
ALSO = {"gpu.state": GPU_PROBES[1:]}
# What people bring in the place of what a probe asks: shorter than what it asks itself.
BROUGHT = {
    "gpu.state": "nvidia-smi -q", "host.boots": "last -x", "host.clock": "chronyc tracking", "host.hardware_log":
    "ipmitool sel elist", "host.kernel_log": "dmesg -T", "host.load": "top -b -n 1", "host.pci": "lspci -vvv",
    "host.settings": "ulimit -l and lsmod", "host.storage": "df -h", "host.versions": "nvidia-smi",
    "ib.fabric": "iblinkinfo", "ib.fabric_errors": "ibqueryerrors", "ib.ports": "ibstat",
    "ib.resources": "rdma resource show", "nccl.ras": "ncclras -v", "net.links": "ip -d addr",
    "rank.env": "the environment of the ranks", "rank.flight_recorder": "the ranks' flight-recorder dumps",
    "rank.log": "the log of each rank", "rank.map": "the log of each rank", "rank.process": "ps -eLf and taskset -p",
    "rank.stack": "py-spy dump of each rank",
}  # fmt: skip
BEFORE = {"yes": "only from before", "perhaps": "no log tells its time zone, so this may be from before"}
NO_SHARE: Share = (0.0, "", "")
Shares = Mapping[str, Sequence[tuple[Share, frozenset[str]]]]  # by cause, each with its signals


class Judged(NamedTuple):
    """`why` says on what the state rests; for "not known" also what would let it be known. `reading` is the one that
    `why` is taken from, "" where it is none or many. `bring`: what of files would tell, where none tells anything."""

    state: State
    why: str
    reading: str = ""
    bring: str = ""


@dataclass(frozen=True, slots=True)
class StepState:
    """One question and its answer, see Judged."""

    id: str
    question: str
    state: State
    why: str
    reading: str = ""
    bring: str = ""


@dataclass(frozen=True, slots=True)
class PathState:
    """The worst of its steps."""

    id: str
    title: str
    lane: str
    state: State
    steps: tuple[StepState, ...]


@functools.cache
def paths() -> tuple[dict[str, Any], ...]:
    """paths.toml, in its order."""
    return tuple(tomllib.loads((resources.files("probes.diagnosis") / "paths.toml").read_text())["paths"])


def path_states(evidence: Evidence, ranked: Sequence[Ranked]) -> Mapping[str, PathState]:
    """Every path by id."""
    shares: dict[str, list[tuple[Share, frozenset[str]]]] = {}
    for one in ranked:
        for hypothesis in (one.hypothesis, *one.consequences):
            reading = hypothesis.because[0].reading if hypothesis.because else ""
            share = (one.probability, hypothesis.says, reading)
            shares.setdefault(hypothesis.cause, []).append((share, frozenset(hypothesis.signals)))
    found = {}
    for path in paths():
        steps = tuple(_step(step, evidence, shares) for step in path["steps"])
        state = max((step.state for step in steps), key=WORST.index)
        found[path["id"]] = PathState(path["id"], path["title"], path["lane"], state, steps)
    return found


def _step(step: Mapping[str, Any], evidence: Evidence, shares: Shares) -> StepState:
    wanted = frozenset(step.get("signals", ()))
    speaking = (one for cause in step["causes"] for one in shares.get(cause, ()))
    share = max((share for share, signals in speaking if not wanted or signals & wanted), default=NO_SHARE)
    return StepState(step["id"], step["question"], *_judged(step, evidence, share))


def _judged(step: Mapping[str, Any], evidence: Evidence, share: Share) -> Judged:
    weight, says, reading = share
    if weight >= SUSPECT:
        return Judged("implicated" if weight >= IMPLICATED else "suspect", says, reading)
    before = []
    for seen, finding in evidence.findings(*step.get("codes", ())):
        if finding.severity in ("warn", "bad"):
            old = "" if finding.last == (None, "") else times_of(evidence).old(seen.node, *finding.last)
            if not old:
                return Judged("suspect", finding.says, seen.ref)
            before.append((old, finding.says, seen.ref))
    judged = _without_findings(step, evidence)
    if before and judged.state == "ruled out":
        old, says, ref = min(before)  # "perhaps" is before "yes"
        return Judged("ruled out" if old == "yes" else "not known", f"{BEFORE[old]} the job: {says}", ref)
    return judged


def _without_findings(step: Mapping[str, Any], evidence: Evidence) -> Judged:
    if lacks := step.get("lacks"):
        return Judged("not known", f"Golden15 does not have it yet: {lacks}")
    if bring := step.get("bring"):
        return _brought(step["files"], bring, evidence)
    if (settles := step.get("settles", "")) in SETTLES:
        settled, why = SETTLES[settles]
        if not settled(evidence):
            return Judged("not known", why)
    if lack := _unsettled(step.get("settles", ""), evidence):
        return Judged("not known", lack)
    if not step.get("probes"):
        return Judged("ruled out", "a profile was looked at, and nothing speaks for it")
    judged = _asked(step["probes"], evidence)
    if judged.state == "ruled out" and "told_by" in step and not any(evidence.job.said(*step["told_by"])):
        return Judged("not known", str(step["ask"]))
    return judged


def _unsettled(settles: str, evidence: Evidence) -> str:
    """Why counters, or the settings of flow control, say nothing yet; "" when they do, and where there are no ports."""
    of_nodes = [view for view in evidence.ports.of_nodes if view.facts is not None and view.facts.state == "ACTIVE"]
    if settles == "rates" and of_nodes:
        once = [view for view in of_nodes if not view.changes]
        if once and not any(view.looks for view in once):
            return f"nothing tells the counters of {len(once)} ports: read them twice, a minute apart"
        if once:
            return f"counters of {len(once)} of {len(of_nodes)} ports were read once: read them again a minute later"
        stuck = [view for view in of_nodes if any(change.why for change in view.changes.values())]
        if stuck:
            why = next(change.why for change in stuck[0].changes.values() if change.why)
            return f"counters of {stuck[0].called} are {why}: perfquery -x shows the wide ones"
    if settles == "flow control" and any(view.facts.link_layer == "Ethernet" for view in of_nodes):
        told = {node for (node, _), (link, _) in evidence.ports.links.items() if link.pfc is not None}
        if lacking := {view.node for view in of_nodes if view.facts.link_layer == "Ethernet"} - told:
            return f"nobody told the flow control of {len(lacking)} nodes: mlnx_qos -i IF, or dcb pfc show dev IF"
    return ""


def _brought(kinds: Sequence[str], bring: str, evidence: Evidence) -> Judged:
    """What files alone can answer: for all nodes, or what would be needed for it."""
    told = [one for kind in kinds for one in evidence.all_of(kind) if one.outcome in ANSWERED]
    missing = len(set(evidence.nodes) - {one.node for one in told})
    if not told:
        return _to_bring(f"the output of {bring}")
    if missing:
        return Judged("not known", f"{missing} of {len(evidence.nodes)} nodes are missing: {bring} would tell")
    return Judged("ruled out", f"{len(told)} file{'s' * (len(told) > 1)} of it, nothing speaks for it", told[0].ref)


def _settled(evidence: Evidence) -> bool:
    """Whether "nobody is missing, all agree" can be said: the job goes on, or stands for long enough to see who is not
    there. Without any dump the usual words say what is missing."""
    if not any(evidence.of("rank.flight_recorder")):
        return True
    stalls = evidence.stalls
    return stalls.moving is True or any(one.age_s is None or one.age_s >= LONG_S for one in stalls.all)


def _looked_twice(evidence: Evidence) -> bool:
    """Whether most ranks with a stack have an earlier one too. Without any the usual words say what is missing."""
    stacks = [one for seen in evidence.of("rank.stack") for one in seen.facts.processes if not one.worker]
    return not stacks or 2 * sum(bool(one.earlier) for one in stacks) >= len(stacks)


def _profiled(evidence: Evidence) -> bool:
    return any(seen.facts.native for seen in profiles(evidence))


def _arrivals(evidence: Evidence) -> bool:
    """Whether recorders tell for how long collectives ran on each rank. Without any the usual words say it."""
    dumps = [view.dump for view in evidence.job.ranks.values() if view.dump is not None]
    timed = (one.duration_ms is not None for dump in dumps for group in dump.groups for one in group.last)
    return not dumps or any(timed)


def _load_told(evidence: Evidence) -> bool:
    """Who runs, and how much of the CPUs that is: a list of processes alone tells neither."""
    loads = [seen.facts for seen in evidence.of("host.load")]
    return not loads or any(one.processes and (one.load1 is not None or one.cpu or one.cpus) for one in loads)


def _cpus_told(evidence: Evidence) -> bool:
    """How many CPUs there are."""
    told = [seen.facts.cpus for probe in ("host.load", "host.settings") for seen in evidence.of(probe)]
    return not told or any(cpus is not None for cpus in told)


def _quota_told(evidence: Evidence) -> bool:
    """Whether anything looked at control groups: our own probes do, a list of processes does not."""
    loads, groups = list(evidence.of("host.load")), list(evidence.of("rank.process"))
    told = any(seen.facts.quotas or seen.facts.source.startswith(("proc", "psutil")) for seen in loads)
    return not (loads or groups) or told or any(seen.facts.cgroups for seen in groups)


def _sanitized(evidence: Evidence) -> bool:
    settings = (view.place.visible for view in evidence.job.ranks.values() if view.place is not None)
    return any("TORCH_CUDA_SANITIZER" in one for one in settings)


# What must be so before "nothing speaks for it" rules a step out, and what is said where it is not.
SETTLES: Mapping[str, tuple[Callable[[Evidence], bool], str]] = {
    "standstill": (
        _settled,
        f"no collective has waited for {LONG_S:.0f} s yet, and none was seen to end: a later look tells",
    ),
    "looks": (_looked_twice, "one look at the stacks tells little: a second py-spy dump of each rank lets it be known"),
    "profile": (
        _profiled,
        "no profile with native frames: py-spy record --native --format raw of one rank, for 10 s, lets it be known",
    ),
    "arrivals": (
        _arrivals,
        "recorders do not tell how long collectives ran: TORCH_NCCL_ENABLE_TIMING=1, set before the start, lets them",
    ),
    "load": (_load_told, "what was brought tells no load of the CPUs: top -b -n 1 would"),
    "cpus": (_cpus_told, "what was brought does not tell how many CPUs there are: nproc, or top -b -n 1, would"),
    "quota": (_quota_told, "what was brought tells no control group: cpu.max and cpu.stat of the ranks' would"),
    "sanitizer": (_sanitized, "nothing looked: TORCH_CUDA_SANITIZER=1, set before the start, makes torch look, slowly"),
}


def _asked(probes: Sequence[str], evidence: Evidence) -> Judged:
    files = evidence.derived("from files", lambda: _from_files(evidence))
    for probe in probes:
        also = [one for other in ALSO.get(probe, ()) for one in evidence.all_of(other) if one.outcome != "absent"]
        readings = (*evidence.all_of(probe), *also)
        if not readings:
            return _to_bring(BROUGHT.get(probe, probe)) if files else Judged("not known", f"{probe} was not asked")
        silent = [one for one in readings if one.outcome not in ANSWERED]
        missing = len(set(evidence.nodes) - {one.node for one in readings})
        if silent:
            one = silent[0]
            more = f" and {len(silent) - 1} more" if len(silent) > 1 else ""
            why = f"{probe} on {one.node or 'a node'}{more}: {one.outcome}: {one.why}"
            return Judged("not known", why[:300], one.ref)
        if missing:
            return Judged("not known", _missing(probe, missing, evidence, files))
    asked = [other for probe in probes for other in (probe, *ALSO.get(probe, ()))]
    answered = sum(one.outcome == "ok" for probe in asked for one in evidence.all_of(probe))
    if not answered:
        return Judged("not known", f"{', '.join(probes)}: {NOTHING_THERE[probes[0].partition('.')[0] == 'rank']}")
    return Judged("ruled out", f"{', '.join(probes)}: {answered} reading{'s' * (answered > 1)}, nothing speaks for it")


def _from_files(evidence: Evidence) -> bool:
    """Whether people brought all of it: then nobody will answer later, and what is missing must be brought. Where
    nothing is there yet, nodes that were asked will answer."""
    if not evidence.readings:
        return not evidence.nodes
    return not any(seen.ref == f"{seen.node}/{seen.probe}" for seen in evidence.readings)


def _to_bring(what: str) -> Judged:
    return Judged("not known", f"no file here tells it: {what} would", bring=what)


def _missing(probe: str, missing: int, evidence: Evidence, files: bool) -> str:
    count = len(evidence.nodes)
    if not files:
        return f"{probe} has not answered yet on {missing} of {count} nodes"
    what = BROUGHT.get(probe, probe)
    if any(not one.node for one in evidence.all_of(probe)):
        return f"these files name no node: bring {what} of each node in a folder that has its name"
    return f"told of {count - missing} of {count} nodes: {what} of the others would tell"
