"""Does training advance? Two looks at all ranks are compared: a reading says it, not somebody's word.

Shape    advancing(earlier, later) -> Advance
Errors   none: what cannot be compared is "not known", with why
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from probes.catalog.logs.events import LogEvent, RankLog
from probes.diagnosis.collectives import LONG_S
from probes.diagnosis.core import Evidence, Seen
from probes.diagnosis.job import RankView
from probes.diagnosis.suspects import ranks_said

LEAST = 2  # collectives: one more may only be the one that all were waiting in

State = Literal["advances", "stands", "not known"]


@dataclass(frozen=True, slots=True)
class Advance:
    """`says` is one sentence. `seconds`: between the two looks, None where nothing tells. `readings`: names of those it
    stands on."""

    state: State
    says: str
    seconds: float | None
    readings: tuple[str, ...]


def advancing(earlier: Iterable[Seen], later: Iterable[Seen], asked: Iterable[str] = ()) -> Advance:
    """Whether the collectives that ended, or else the step in a log, rose on every rank, and no log told of NaN since.

    Not what ranks have enqueued: the CPU runs ahead of a GPU that hangs. Without a rise it stands only where something
    shows it (a stopped rank, a collective that waits long, others that went on): a step may be longer than the looks
    lie apart.
    """
    nodes = tuple(asked)
    before, after = Evidence(earlier, nodes), Evidence(later, nodes)
    old, new = before.job, after.job
    seconds = _between(old.ranks.values(), new.ranks.values())
    refs = tuple(sorted({ref for view in new.ranks.values() for ref in view.refs.values()}))

    def told(state: State, says: str) -> Advance:
        return Advance(state, says, seconds, refs)

    if not new.ranks:
        return told("not known", "No rank of the job was seen: it is not running, or not started again yet.")
    rises = {rank: _rise(old.ranks.get(rank), view) for rank, view in new.ranks.items()}
    silent = sorted({*(rank for rank, rise in rises.items() if rise is None), *(set(new.world or ()) - set(rises))})
    standing = sorted(rank for rank, rise in rises.items() if rise is not None and rise < LEAST)
    span = f" in {seconds:.0f} s" if seconds else ""
    if why := _stands(after, rises):
        return told("stands", why)
    if standing and len(standing) < sum(rise is not None for rise in rises.values()):
        return told("stands", f"{_said(standing)} of {len(rises)} did not advance{span}, the others did.")
    if standing:
        return told("not known", f"No rank advanced{span}: it stands, or a step takes longer than that. Look again.")
    if bad := sorted(rank for rank, view in new.ranks.items() if set(_nans(view)) - set(_nans(old.ranks.get(rank)))):
        return told("stands", f"It moves, but the log of {ranks_said(bad)} tells of NaN or infinity since.")
    if silent or new.world is None:
        who = _said(silent) if silent else "How many ranks there should be"
        return told("not known", f"{who} could not be compared: {_why(silent, old.ranks, new.ranks)}.")
    least = min(rise for rise in rises.values() if rise is not None)
    return told("advances", f"All {len(rises)} ranks advance: {least} collectives or more{span} on each.")


def _stands(after: Evidence, rises: Mapping[int, int | None]) -> str:
    """What shows by itself, at the second look, that it stands; "" for nothing."""
    if stopped := sorted(rank for rank, view in after.job.ranks.items() if view.stopped):
        return f"{_said(stopped)} of {len(rises)} {'is' if len(stopped) == 1 else 'are'} stopped."
    for stall in after.stalls.all:
        if stall.age_s is not None and stall.age_s >= LONG_S:
            return f"{_said(sorted(stall.waiting))} of {len(rises)} wait for {stall.age_s:.0f} s in {stall.called}."
    return ""


def _rise(old: RankView | None, new: RankView) -> int | None:
    """By how much the rank's number rose; None when nothing can be compared."""
    if old is None or not _same_process(old, new):
        return None
    groups = dict(_completed(old))
    rises = [number - groups[name] for name, number in _completed(new) if name in groups]
    if rises:
        return max(rises)
    steps, now = _step(old), _step(new)
    return None if steps is None or now is None else LEAST * max(0, now - steps)


def _same_process(old: RankView, new: RankView) -> bool:
    """A rank that was started again counts from 1: its numbers tell nothing beside the old ones."""
    one, other = old.place, new.place
    return (one.pid, one.started) == (other.pid, other.started) if one and other else old.pid == new.pid


def _completed(view: RankView) -> Iterator[tuple[str, int]]:
    """(group, the last collective that ended), as the rank tells now: a file tells of when it was written."""
    if view.dump is not None and view.dump.how == "worker server":
        for group in view.dump.groups:
            if group.completed is not None:
                yield group.name, group.completed


def _step(view: RankView) -> int | None:
    """The last step that the rank's own log tells."""
    return max((event.seq for _, event in _own(view, "progress") if event.seq is not None), default=None)


def _nans(view: RankView | None) -> Iterator[tuple[str, int | None, str]]:
    """Lines that tell of NaN, and losses that are no number."""
    if view is None:
        return
    for log, event in _own(view, "nan", "progress"):
        loss = event.more.get("loss")
        if event.kind == "nan" or (loss is not None and not _finite(str(loss))):
            yield log.file, event.offset, event.text


def _own(view: RankView, *kinds: str) -> Iterator[tuple[RankLog, LogEvent]]:
    """What the rank wrote itself, in a file of its own."""
    for log in view.logs:
        if log.rank in (view.rank, None):
            for event in log.events:
                if event.kind in kinds and view.rank in (log.rank, event.rank):
                    yield log, event


def _finite(number: str) -> bool:
    try:
        return math.isfinite(float(number))
    except ValueError:
        return True  # no number at all: a word after "loss" tells nothing


def _between(old: Iterable[RankView], new: Iterable[RankView]) -> float | None:
    """Seconds between the recorders of the same ranks, by their nodes' own clocks."""
    first = {view.rank: view.dump.at for view in old if view.dump is not None}
    gaps = [view.dump.at - first[view.rank] for view in new if view.dump is not None and view.rank in first]
    return min((gap for gap in gaps if gap > 0), default=None)


def _said(ranks: list[int]) -> str:
    text = ranks_said(ranks)
    return text[:1].upper() + text[1:]


def _why(silent: list[int], old: dict[int, RankView], new: dict[int, RankView]) -> str:
    """Why the first of them could not be compared."""
    if not silent:
        return "no rank tells it"
    rank = silent[0]
    if rank not in new:
        return "not seen at the second look"
    if rank not in old:
        return "not seen at the first look; look again"
    if not _same_process(old[rank], new[rank]):
        return "started anew between the looks; look again"
    return "neither its flight recorder nor its log tells how far it is"
