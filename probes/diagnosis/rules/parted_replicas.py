"""Replicas part, or kernels run where they should wait: an asynchronous collective that nobody waited for, or streams
that are not ordered.

What shows it: values that should be equal on all ranks; a run in which the host waits for each kernel and all is well;
kernels that begin within a collective whose result they use; the piece of the program that lacks the wait. One of these
alone decides little: replicas also part by seeds, and overlap is what streams are for.

Source   CUDA semantics of torch (streams), torch.distributed (async_op); runs of gloo whose work was dropped
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from probes.catalog.ranks.replica_facts import Beside, SourceFault, Value
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule, Seen

ASYNC, STREAM = "fw.async_not_awaited", "fw.stream_order"
NEAR = 1e-6  # relative: sums of equal numbers in one order are equal to the last digit that is printed; judgement
SEVERAL = 2  # times; judgement
REDUCED = ("allreduce", "reducescatter")  # of gradients: what is called with async_op most
SHORT = 150  # lines of a piece that somebody cut out to show it; judgement


@dataclass(frozen=True, slots=True)
class _Parted:
    apart: tuple[str, Seen] | None  # in words, and where
    cured: Seen | None  # where the host waited, they did not part
    began_equal: bool


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    parted = _replicas(evidence)
    faults = [(fault, seen) for seen in evidence.of("job.source") for fault in seen.facts.faults]
    late = _kernels(evidence)
    works = [one for one in faults if one[0].kind.startswith("work")]
    streams = [one for one in faults if one[0].kind.startswith("stream")]
    says = {
        ASYNC: "A collective that returns at once is used before anything waits for it",
        STREAM: "What one stream makes is used on another that does not wait for it",
    }
    for cause, own in ((ASYNC, works), (STREAM, streams)):
        because = [_in_source(fault, seen) for fault, seen in own[:3]]
        signals = [_weight(fault, seen) for fault, seen in own]
        if parted.apart is not None:
            because.append(Reason(parted.apart[0], parted.apart[1].ref))
            signals.append("replicas_part" if parted.began_equal else "replicas_differ")
        if parted.cured is not None:
            because.append(
                Reason("with CUDA_LAUNCH_BLOCKING=1 they are equal: the order of work is at fault", parted.cured.ref)
            )
            signals.append("cured_by_blocking" if cause == STREAM else "cured_by_blocking_async")
        for signal, pair, seen, words in late:
            if cause == STREAM or pair.collective.lower() in REDUCED:
                because.append(Reason(words, seen.ref))
                signals.append(signal if cause == STREAM or signal == "order_lost" else "unordered_reduction")
        if because and (own or parted.apart is not None or late):
            yield Hypothesis(
                cause,
                {},
                says[cause] + (f": {own[0][0].text}" if own else ""),
                tuple(dict.fromkeys(because)),
                tuple(dict.fromkeys(signals)),
                would_change=(
                    "the same run with a wait at that place, or with CUDA_LAUNCH_BLOCKING=1, and no difference",
                ),
                ranks=frozenset(evidence.job.ranks),
                nodes=frozenset(evidence.nodes),
            )


def _in_source(fault: SourceFault, seen: Seen) -> Reason:
    undone = ", and a wait that stood there is a comment or was removed" if fault.undone else ""
    return Reason(f"line {fault.line}: {fault.text}: {fault.kind}{undone}", seen.ref)


def _weight(fault: SourceFault, seen: Seen) -> str:
    """A short piece was cut out to show the place. In a long one the wait may be anywhere."""
    if seen.facts.lines > SHORT:
        return "wait_lacks_in_program"
    return "wait_undone_in_source" if fault.undone else "wait_lacks_in_source" if fault.used else "wait_lacks_perhaps"


# Replicas -------------------------------------------------------------------------------------------------------------


def _replicas(evidence: Evidence) -> _Parted:
    told: dict[tuple[bool, str, int | None], dict[int, tuple[Value, Seen]]] = defaultdict(dict)
    said: dict[tuple[bool, bool], Seen] = {}
    for seen in evidence.of("rank.replicas"):
        for value in seen.facts.values:
            if value.rank is not None:
                told[value.blocking, value.name.lower(), value.step].setdefault(value.rank, (value, seen))
        for one in seen.facts.said:
            said.setdefault(one, seen)
    apart: dict[bool, tuple[str, Seen]] = {}
    equal: dict[bool, Seen] = {}
    first_apart: dict[tuple[bool, str], int] = {}
    first_equal: dict[tuple[bool, str], int] = {}
    for (blocking, name, step), by_rank in sorted(told.items(), key=lambda one: (one[0][:2], one[0][2] or 0)):
        differ = _differ(name, [value.text for value, _ in by_rank.values()])
        if differ is None:
            continue
        seen = next(iter(by_rank.values()))[1]
        if differ:
            at = f" at step {step}" if step is not None else ""
            apart.setdefault(blocking, (f"{_shown(by_rank)}: {name} differs between ranks{at}", seen))
            first_apart.setdefault((blocking, name), step or 0)
        else:
            equal.setdefault(blocking, seen)
            first_equal.setdefault((blocking, name), step or 0)
    cured = equal.get(True) if True not in apart else None
    cured = cured or said.get((False, True))
    if (True, True) in said or (False not in apart and (True, False) not in said and not _only_said(said)):
        cured = None
    if False not in apart and cured is not None and (True, False) in said:
        apart[False] = ("two runs are compared: as it is, the ranks' parameters differ", said[True, False])
    began = any(first_equal.get(key, at) < at for key, at in first_apart.items() if not key[0])
    return _Parted(apart.get(False), cured, began)


def _only_said(said: dict[tuple[bool, bool], Seen]) -> bool:
    return (False, True) in said


def _shown(by_rank: dict[int, tuple[Value, Seen]]) -> str:
    some = [f"{rank} {value.text[:12]}" for rank, (value, _) in sorted(by_rank.items())]
    return "rank " + ", ".join(some[:4])


def _differ(name: str, texts: list[str]) -> bool | None:
    """Whether these differ; None where one rank alone tells nothing of the others."""
    if name == "difference":  # each is compared with one copy already
        return any(float(text) > 0 for text in texts)
    if len(texts) < 2:
        return None
    if len(set(texts)) == 1:
        return False
    try:
        numbers = [float(text) for text in texts] if all("." in text for text in texts) else None
    except ValueError:
        numbers = None
    if numbers is None:
        return True
    largest = max(map(abs, numbers))
    return max(numbers) - min(numbers) > NEAR * largest


# Kernels --------------------------------------------------------------------------------------------------------------


def _kernels(evidence: Evidence) -> list[tuple[str, Beside, Seen, str]]:
    """Kernels that wait for a collective in one trace and begin within it in another; and, in one trace, such as change
    parameters while a collective runs that was launched before them."""
    waited: set[tuple[str, str]] = set()
    traces = [(pair, seen) for seen in evidence.of("gpu.kernel_trace") for pair in seen.facts.pairs]
    for pair, _ in traces:
        if pair.after >= SEVERAL and not pair.inside:
            waited.add((pair.collective, pair.kernel))
    found: dict[str, tuple[str, Beside, Seen, str]] = {}
    for pair, seen in traces:
        if pair.inside < SEVERAL or pair.inside <= pair.after:
            continue
        lost = (pair.collective, pair.kernel) in waited
        if not lost and not pair.update:
            continue  # overlap is what streams are for
        signal = (
            "order_lost_of_update" if lost and pair.update else "order_lost" if lost else "update_within_collective"
        )
        says = f"{pair.kernel[:90]} began {pair.inside} times within {pair.collective}, which was launched before it"
        found.setdefault(
            signal, (signal, pair, seen, says + (", and waited for its end in another trace" if lost else ""))
        )
    return list(found.values())[:2]


RULE = Rule((ASYNC, STREAM), judge)
