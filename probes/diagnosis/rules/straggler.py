"""A rank that comes late to one collective after another: it holds back all others, and nothing stands.

Source   torch's flight recorder: `duration_ms` is from the start of the kernel on this rank to its end, so the last to
         arrive has the shortest. Without durations the moment of the call tells, by one node's clock only
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping

from probes.catalog.recorder.facts import Group
from probes.diagnosis.comparing import operation
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.job import RankView, quoted
from probes.diagnosis.ras_polls import lagging
from probes.diagnosis.recorded import recorded_groups
from probes.diagnosis.step_times import late_rank, step_times
from probes.diagnosis.suspects import shared

CAUSE = "fw.rank_straggler"
LEAST = 3  # collectives in which the same rank is last
SHARE = 0.8  # of the collectives in which anybody is late; judgement
LATE = 0.2  # of the others' time; judgement
FEW = 8  # ranks of a detector; judgement: where many are slow, none is the straggler
LATE_S = 0.005  # judgement: less is how a kernel is launched
# Operations in which every rank sends and receives as much: of others a root is done first, or each rank has its share.
ALIKE = ("all_reduce", "all_gather", "all_gather_base", "reduce_scatter", "reduce_scatter_base", "barrier",
    "all_to_all_base", "all_reduce_coalesced")  # fmt: skip
Times = dict[int, dict[int, float]]  # collective -> rank -> how much later than it could be, as a time


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    told: set[int] = set()
    for group in recorded_groups(evidence):
        name, ranks = group.name, group.ranks
        for signal, times in (("last_by_duration", _durations(ranks)), ("last_by_call", _calls(evidence, ranks))):
            late = _constant(times, len(ranks))
            if late is None or late[0] in told:
                continue
            rank, count, of, gap = late
            told.add(rank)
            view = evidence.job.view(rank)
            says = f"rank {rank} is the last to arrive in {count} of {of} collectives of {name}, by {1000 * gap:.0f} ms"
            yield Hypothesis(
                CAUSE,
                view.subject,
                f"{view.headline} arrives late again and again, by {1000 * gap:.0f} ms in {count} of {of} collectives",
                (Reason(says, view.ref("rank.flight_recorder")),),
                (signal,),
                would_change=(
                    "a later dump in which another rank is the last",
                    "what makes it late: data, clock, link",
                ),
                ranks=frozenset({rank}),
                nodes=frozenset({view.node}),
            )
            break
    slow, signal = late_rank(step_times(evidence)), "late_by_step_times"
    if slow is None:
        slow, signal = late_rank(step_times(evidence, least=1)), "late_in_one_table"
    if slow is not None and slow.whole:
        signal = "late_by_whole_steps" if signal == "late_by_step_times" else "late_in_one_table"
    if slow is not None and slow.rank not in told and not slow.by_data:
        told.add(slow.rank)
        view = evidence.job.view(slow.rank)
        yield Hypothesis(
            CAUSE,
            view.subject,
            f"{view.headline} is {1000 * slow.gap_s:.0f} ms slower than the others in its steps, and they wait for it",
            (quoted(*slow.parts.said, slow.says),),
            (signal,),
            would_change=("steps in which another rank is the slow one", "what makes it slow: clock, memory, link"),
            ranks=frozenset({slow.rank}),
            nodes=frozenset({view.node}),
        )
    by_ras = list(_by_ras(evidence, told))
    yield from by_ras
    yield from _by_detector(evidence, told, by_ras)


def _by_detector(evidence: Evidence, told: set[int], by_ras: list[Hypothesis]) -> Iterator[Hypothesis]:
    """The job's own straggler detector, or Megatron's extremes, which do not tell the rank."""
    said = list(evidence.job.said("slow_rank"))
    ranks = {one[0].rank: one for one in said if one[0].rank is not None}
    if not said or set(ranks) & told or by_ras or len(ranks) > FEW or (told and not ranks):
        return
    some = list(ranks.values()) or said[:1]
    views = [evidence.job.view(rank) for rank in ranks]
    subject, called = shared(views) if views else ({}, "A rank")
    slowest = min(int(one[0].more["speed_permille"]) for one in some)
    again = min(one[0].count for one in some) > 1
    signal = "extremes_apart" if not views else "slow_by_detector" if again else "slow_in_one_report"
    yield Hypothesis(
        CAUSE,
        subject,
        f"{called} works at {slowest / 10:.0f} % of the speed of the others, and they wait for it",
        tuple(quoted(*one) for one in some[:2]),
        (signal,),
        would_change=("reports in which another rank is the slow one", "what makes it slow: clock, memory, link"),
        ranks=frozenset(ranks),
        nodes=frozenset(view.node for view in views),
    )


def _by_ras(evidence: Evidence, told: set[int]) -> Iterator[Hypothesis]:
    """NCCL's own counts of launches, in several reports: one rank is behind each time, and all go on."""
    late = lagging(evidence)
    if late is None:
        return
    seat, job = late.seat, evidence.job
    view = next((one for one in job.ranks.values() if seat.pid and (one.node, one.pid) == (seat.host, seat.pid)), None)
    if view is None and late.communicator.size in (job.world_size, _largest(evidence)):
        view = job.view(late.rank)
    if view is None or view.rank in told:
        return
    view.node = view.node or seat.host
    by = f"{min(late.behind)} to {max(late.behind)}" if len(set(late.behind)) > 1 else str(late.behind[0])
    count = f"{len(late.behind)} of {late.polls} reports"
    yield Hypothesis(
        CAUSE,
        view.subject,
        f"{view.headline} launches its collectives later than the others, in {count} of NCCL, and all go on",
        (Reason(f"rank {view.rank} is {by} launches of {late.op} behind in {count}", late.seen.ref),),
        ("late_in_ras_polls" if late.polls > 2 else "late_in_two_polls",),
        would_change=("reports in which another rank is behind", "what makes it late: data, clock, link"),
        ranks=frozenset({view.rank}),
        nodes=frozenset({view.node}),
    )


def _largest(evidence: Evidence) -> int | None:
    sizes = (one.size for seen in evidence.of("nccl.ras") for one in seen.facts.report.communicators)
    return max((size for size in sizes if size is not None), default=None)


def _durations(ranks: Mapping[int, tuple[RankView, Group]]) -> Times:
    """How much shorter than the longest each rank's collective was: by so much it came later than the first."""
    found: Times = {}
    for rank, (view, group) in ranks.items():
        signatures = view.dump.signatures if view.dump is not None else ()
        for entry in group.last:
            if entry.is_p2p or entry.seq is None or entry.duration_ms is None or entry.pending:
                continue
            if operation(signatures[entry.signature].op) in ALIKE:
                found.setdefault(entry.seq, {})[rank] = -entry.duration_ms / 1000
    return found


def _calls(evidence: Evidence, ranks: Mapping[int, tuple[RankView, Group]]) -> Times:
    """When each rank called, where one clock tells: all on one node."""
    nodes = {view.node for view, _ in ranks.values()}
    if len(nodes) != 1 or nodes == {""}:
        return {}
    found: Times = {}
    for rank, (_, group) in ranks.items():
        for entry in group.last:
            if not entry.is_p2p and entry.seq is not None and entry.created_at is not None and not entry.pending:
                found.setdefault(entry.seq, {})[rank] = entry.created_at
    return found


def _constant(times: Times, members: int) -> tuple[int, int, int, float] | None:
    """(rank, collectives in which it is the last, those with a last one at all, its median lateness in s)"""
    last: Counter[int] = Counter()
    gaps: dict[int, list[float]] = {}
    for by_rank in times.values():
        if len(by_rank) < max(2, 0.75 * members):
            continue
        (rank, moment), (_, second) = sorted(by_rank.items(), key=lambda item: -item[1])[:2]
        first = min(by_rank.values())
        # Of two ranks one is always the last: then only by much.
        gap = moment - second
        if gap >= LATE_S and gap >= LATE * (moment - first):
            last[rank] += 1
            gaps.setdefault(rank, []).append(gap)
    if not last:
        return None
    rank, count = last.most_common(1)[0]
    if count < LEAST or count < SHARE * sum(last.values()) or 2 * count < len(times):
        return None
    return rank, count, len(times), statistics.median(gaps[rank])


RULE = Rule((CAUSE,), judge)
