"""Most ranks spend their time in a synchronisation with their device that the program asked for: slow, not hung.

Source   CUDA and torch: .item(), .tolist(), .cpu(), printing and nonzero() wait for all work that was enqueued before
         them. A rank that waits for its device while the device waits in a collective is no finding
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator

from probes.catalog.stacks.cuda_calls import CudaCalls
from probes.catalog.stacks.facts import Frame, Look
from probes.catalog.stacks.profile import Profile
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.job import RankView, quoted
from probes.diagnosis.suspects import ranks_said, seen_twice, shared, standing
from probes.diagnosis.whose import rank_of

CAUSE = "cpu.implicit_sync"
MOST_RANKS = 0.5  # share of the ranks with a stack; judgement
MOST_SAMPLES = 0.4  # of a profile; judgement
PROFILE, SUMMARY = "rank.profile", "rank.cuda_calls"
LOOKS, MOST_LOOKS = 3, 0.6  # judgement
_SAID = ("sync_warned",)
_PLACE = re.compile(r"\(([^()\s]{1,300}):(\d{1,9})\)$")
KERNELS = 50  # for each wait: a step starts thousands, and asks for its loss once; judgement
RESTS, RESTING_KERNELS = 0.5, 200  # a device that works half of the time has no long queue to wait for; judgement
ENOUGH = 200  # waits; judgement
LONG_NS = 50_000  # a call: starting a copy takes 10 us; judgement
BUSY = 0.8  # of the time that a profile covers: then the device is the limit; judgement


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    warned = _warned(evidence)
    found = [*_in_profiles(evidence), *_in_summaries(evidence)]
    for one in found or _at_warned_lines(evidence):
        yield dataclasses.replace(one, because=(*one.because, *warned), signals=(*one.signals, *_SAID[: len(warned)]))
    if evidence.suspects or standing(evidence) or evidence.stalls.cycle:
        return  # it stands: that a rank waits for its device then follows from something else
    stacks = [view for view in evidence.job.ranks.values() if view.stack is not None and view.stack.threads]
    within = [view for view in stacks if (waits := view.waits) is not None and waits.kind == "device sync"]
    if not within or len(within) < MOST_RANKS * len(stacks):
        return
    places = Counter(waits.at.short for view in within if (waits := view.waits) is not None and waits.at is not None)
    where = f", most at {places.most_common(1)[0][0]}" if places else ""
    twice = sum(seen_twice(view) for view in within) >= MOST_RANKS * len(stacks)
    said = f"{ranks_said([view.rank for view in within])} of {len(stacks)}"
    yield _hypothesis(
        within,
        f"{said} wait for their device where the program asks it{where}",
        tuple(Reason(f"rank {view.rank}: main thread in {view.waits}", view.ref("rank.stack")) for view in within[:4]),
        "in_device_sync_twice" if twice else "in_device_sync_once",
    )


def _warned(evidence: Evidence) -> tuple[Reason, ...]:
    """What torch's own debug mode says: which lines wait, though not for how long."""
    said = list(evidence.job.said("sync_warned"))
    places = Counter({event.where: event.count for event, _, _ in said if event.where})
    if not said:
        return ()
    where = f" at {', '.join(place for place, _ in places.most_common(3))}" if places else ""
    return (dataclasses.replace(quoted(*said[0]), says=f"torch warns that the program waits for the device{where}"),)


def _at_warned_lines(evidence: Evidence) -> Iterator[Hypothesis]:
    """Stacks without native frames do not show the wait; but their innermost line may be one that torch warns of."""
    places = {event.where for event, _, _ in evidence.job.said("sync_warned") if event.where}
    there: list[tuple[RankView | None, str]] = []
    looks = 0
    for view, ref, look in _looks(evidence) if places else ():
        lines = _statement(look)
        looks += bool(lines)
        if any(_same_line(place, line) for place in places for line in lines):
            there.append((view, ref))
    if len(there) < LOOKS or len(there) < MOST_LOOKS * looks:
        return
    says = f"The main thread is at a line that waits for the device in {len(there)} of {looks} looks"
    views = list({view.rank: view for view, _ in there if view is not None}.values())
    yield _hypothesis(views, says, (Reason(says, there[0][1]),), "looks_at_waits")


def _looks(evidence: Evidence) -> Iterator[tuple[RankView | None, str, Look]]:
    """(rank, its reading, the look) of each look, also at processes of which nothing tells the rank."""
    known = {view.stack.pid for view in evidence.job.ranks.values() if view.stack is not None}
    for view in evidence.job.ranks.values():
        for look in (view.stack.look, *view.stack.earlier) if view.stack is not None else ():
            yield view, view.ref("rank.stack"), look
    for seen in evidence.of("rank.stack"):
        for one in seen.facts.processes:
            if one.rank is None and one.pid not in known and not one.worker and one.threads:
                yield None, seen.ref, one.look


def _statement(look: Look) -> tuple[Frame, ...]:
    """The innermost line, and the one around it where that is within an expression that loops."""
    frames = look.frames
    inner = next((at for at, frame in enumerate(frames) if not frame.function.startswith("<")), 0)
    return tuple(frames[: inner + 1])


def _same_line(place: str, frame: Frame) -> bool:
    return _same_place(place, frame.file, str(frame.line))


def _same_place(place: str, in_file: str, line: str) -> bool:
    """py-spy shortens the path of a file."""
    file, _, number = place.rpartition(":")
    return line == number and (file == in_file or file.endswith(f"/{in_file}"))


def _warned_of(places: set[str], line: str) -> bool:
    """Whether torch warns of this line of a program, as a frame is written."""
    at = _PLACE.search(line)
    return at is not None and any(_same_place(place, at[1], at[2]) for place in places)


def _of_looks(evidence: Evidence, profile: Profile, places: set[str]) -> str:
    """One look at each process: a job that stands looks the same."""
    slow = profile.total >= LOOKS and not evidence.suspects and not standing(evidence)
    return "looks_at_waits" if slow and _warned_of(places, profile.sync_at) else "in_device_sync_once"


def _at_places(profile: Profile, places: set[str]) -> int:
    """Samples whose innermost frame is at one of these lines: without native frames the wait itself is not seen."""
    own = [one.samples for one in profile.tree]
    for one in profile.tree:
        if one.parent >= 0:
            own[one.parent] -= one.samples
    found = [_PLACE.search(one.name) for one in profile.tree]
    return sum(
        mine for mine, at in zip(own, found, strict=True)
        if at and mine > 0 and any(_same_place(place, at[1], at[2]) for place in places)
    )  # fmt: skip


def _in_profiles(evidence: Evidence) -> Iterator[Hypothesis]:
    places = {event.where for event, _, _ in evidence.job.said("sync_warned") if event.where}
    for seen in evidence.of(PROFILE):
        profile, rank = seen.facts, rank_of(evidence, seen)
        at = _at_places(profile, places) if places and not profile.sync else 0
        if profile.total and at >= MOST_SAMPLES * profile.total:
            share = f"{100 * at / profile.total:.0f} % of {profile.total} samples"
            says = f"{share} are at lines that wait for the device"
            views = [evidence.job.view(rank)] if rank is not None else []
            yield _hypothesis(views, says, (Reason(says, seen.ref),), "profile_at_waits")
        if profile.total and profile.sync >= MOST_SAMPLES * profile.total:
            share = f"{100 * profile.sync / profile.total:.0f} % of {profile.total} samples"
            where = f", most below {profile.sync_at}" if profile.sync_at else ""
            views = [evidence.job.view(rank)] if rank is not None else []
            yield _hypothesis(
                views,
                f"The program waits for its device in {share}{where}",
                (Reason(f"{share} are in a synchronisation with the device{where}", seen.ref),),
                _of_looks(evidence, profile, places) if profile.looks else "sync_in_profile",
            )


def _in_summaries(evidence: Evidence) -> Iterator[Hypothesis]:
    """Calls of CUDA, counted: who waits for the device after every few kernels never gets ahead of it. A step that
    ends in one wait has as much waiting time, in a few calls; and where the device works all the time, nothing is lost
    by waiting for it. Several ranks that tell the same are one finding."""
    found: dict[str, list[tuple[str, Reason, int | None]]] = {}
    for seen in evidence.of(SUMMARY):
        calls = seen.facts
        if not calls.total_ns:
            continue
        if (told := _copies(calls)) and calls.sync_ns < MOST_SAMPLES * calls.total_ns:
            found.setdefault("copies_wait", []).append((told, Reason(told, seen.ref), rank_of(evidence, seen)))
        if calls.sync_ns < MOST_SAMPLES * calls.total_ns or not calls.syncs:
            continue
        busy = calls.wall_ns > 0 and calls.device_ns > BUSY * calls.wall_ns
        rests = 0 < calls.device_ns < RESTS * calls.wall_ns
        each = RESTING_KERNELS if rests else KERNELS
        often = calls.launches > 0 and calls.syncs * each >= calls.launches and calls.syncs >= ENOUGH
        share = f"{100 * calls.sync_ns / calls.total_ns:.0f} %"
        says = f"{share} of the time in CUDA calls is waiting for the device, in {calls.syncs} calls"
        beside = f", for {calls.launches} kernels that it starts" if calls.launches else ""
        because = Reason(f"{says}{beside}, most in {calls.most}", seen.ref)
        signal = "syncs_often" if often and not busy else "syncs_long"
        found.setdefault(signal, []).append((says, because, rank_of(evidence, seen)))
    for signal, some in found.items():
        views = [evidence.job.view(rank) for rank in sorted({rank for _, _, rank in some if rank is not None})]
        yield _hypothesis(views, some[0][0], tuple(reason for _, reason, _ in some[:4]), signal)


def _copies(calls: CudaCalls) -> str:
    """Copies to memory that is not pinned wait for all that was started before them, like a synchronisation."""
    busy = calls.wall_ns > 0 and calls.device_ns > BUSY * calls.wall_ns
    often = calls.copies >= ENOUGH and calls.copies * KERNELS >= calls.launches > 0
    if busy or not often or calls.copy_ns < max(MOST_SAMPLES * calls.total_ns, LONG_NS * calls.copies):
        return ""
    share, each = 100 * calls.copy_ns / calls.total_ns, calls.copy_ns / calls.copies / 1000
    return f"{share:.0f} % of the time in CUDA calls is {calls.copies} copies that wait, {each:.0f} us each"


def _hypothesis(views: list[RankView], says: str, because: tuple[Reason, ...], signal: str) -> Hypothesis:
    return Hypothesis(
        CAUSE,
        shared(views)[0] if views else {},
        says[:1].upper() + says[1:],
        because,
        (signal,),
        would_change=("the same with those calls left out", "looks at which most ranks are elsewhere"),
        ranks=frozenset(view.rank for view in views),
        nodes=frozenset(view.node for view in views),
    )


RULE = Rule((CAUSE,), judge)
