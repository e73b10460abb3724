"""One rank works for minutes at what the others wait for, and no limit has run out yet: told by who waits for the first
process, by looks at the one that works, or by a log that ends in a bar of the data set.

Source   accelerate/state.py (main_process_first: the main process runs the body, the others wait at its beginning),
         transformers/training_args.py, ultralytics (torch_distributed_zero_first); LlamaFactory#1196
"""

from __future__ import annotations

from collections.abc import Iterator

from probes.catalog.stacks.facts import ProcessStack
from probes.catalog.stacks.waits import Wait, waits_in
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule, Seen
from probes.diagnosis.job import RankView, quoted
from probes.diagnosis.last_words import last_said, unfinished_preparation
from probes.diagnosis.rules.long_work_in_log import GAVE_UP
from probes.diagnosis.suspects import FOR_OTHERS, WORKS, seen_twice

BUSY = "fw.rank_busy"
DOES = WORKS - {"checkpoint"}
FIRST = ("main_process_first", "torch_distributed_zero_first", "rank_zero_first", "zero_first")
LOOKS = 3  # judgement: by chance a rank is seen in a moment's work once or twice
LONG_S, BARS = 600, 3  # judgement: a bar that was told so often, for so long
WOULD_CHANGE = ("a look at which it does something else", "steps that the job makes")
One = tuple[Seen, ProcessStack, Wait]


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    if evidence.suspects:
        return  # more is known of who waits for whom
    found = [*_first_of_all(evidence), *_at_every_look(evidence)]
    yield from found or _in_log(evidence)


def _first_of_all(evidence: Evidence) -> Iterator[Hypothesis]:
    """Processes wait for the first one to have done its part, and one of them does it."""
    some = [(seen, one, waits_in(one)) for seen in evidence.of("rank.stack") for one in seen.facts.processes]
    waiting = [one for one in some if one[2].kind in FOR_OTHERS and _within_first(one[1])]
    working: dict[tuple[str, int | None], list[One]] = {}
    for one in some:
        if one[2].kind in DOES and not _within_first(one[1]) and not one[1].worker:
            working.setdefault((one[0].node, one[1].pid), []).append(one)
    if not waiting or len(working) != 1:
        return
    ((seen, stack, wait), *more) = next(iter(working.values()))
    again = bool(more or stack.earlier)
    local = "local" in _within_first(waiting[0][1])
    rank = stack.rank if stack.rank is not None else None if local else 0
    yield Hypothesis(
        BUSY,
        evidence.job.view(rank).subject if rank is not None else {"node": seen.node} if seen.node else {},
        f"The first process is in {wait}, and the others wait for it in {_within_first(waiting[0][1])}",
        (
            Reason(f"process {stack.pid or ''}: main thread in {wait}".replace("  ", " "), seen.ref),
            Reason(f"others: main thread in {waiting[0][2]}, in {_within_first(waiting[0][1])}", waiting[0][0].ref),
        ),
        ("first_process_works_on" if again else "first_process_works",),
        would_change=WOULD_CHANGE,
        ranks=frozenset({rank} if rank is not None else ()),
        nodes=frozenset({seen.node}),
    )


def _within_first(stack: ProcessStack) -> str:
    frames = stack.main.frames if stack.main is not None else ()
    return next((frame.function for frame in frames if frame.function.endswith(FIRST)), "")


def _at_every_look(evidence: Evidence) -> Iterator[Hypothesis]:
    """Of the ranks that were looked at one works, at every look; none of the others runs."""
    views = [view for view in evidence.job.ranks.values() if view.stack is not None and view.stack.threads]
    works = [view for view in views if view.waits is not None and view.waits.kind in DOES]
    if len(works) != 1 or len(views) < 2 or any(_runs(view) for view in views if view not in works):
        return
    view = works[0]
    stack, wait = view.stack, view.waits
    if stack is None or len(stack.earlier) + 1 < LOOKS or not seen_twice(view):
        return
    yield Hypothesis(
        BUSY,
        view.subject,
        f"{view.headline} is in {wait}, at {len(stack.earlier) + 1} looks, and no other rank that was looked at runs",
        (Reason(f"rank {view.rank}: main thread in {wait}", view.ref("rank.stack")),),
        ("works_at_every_look",),
        would_change=WOULD_CHANGE,
        ranks=frozenset({view.rank}),
        nodes=frozenset({view.node}),
    )


def _runs(view: RankView) -> bool:
    return view.waits is None or view.waits.busy is not False


def _in_log(evidence: Evidence) -> Iterator[Hypothesis]:
    """A job of several processes prepares its data for long, and one of them writes the bar."""
    if any(True for _ in evidence.job.said(*GAVE_UP)) or not any(True for _ in evidence.job.said("launched")):
        return
    last = last_said(evidence)
    if len(last) != 1:
        return
    (rank, _), said = next(iter(last.items()))
    event = said[0]
    if not unfinished_preparation(event) or event.count < BARS or _seconds(str(event.more.get("elapsed", ""))) < LONG_S:
        return
    view = evidence.job.view(rank or 0)
    yield Hypothesis(
        BUSY,
        view.subject,
        f"{view.headline} still prepares data, says the only bar of the log: the others wait for it",
        (quoted(*said),),
        ("prepares_alone_in_log",),
        would_change=WOULD_CHANGE,
        ranks=frozenset({view.rank}),
        nodes=frozenset({view.node or said[2].node}),
    )


def _seconds(elapsed: str) -> int:
    """`1:02:03` or `23:00`, as tqdm tells it."""
    total = 0
    for part in elapsed.split(":"):
        total = 60 * total + (int(part) if part.isdecimal() else 0)
    return total


RULE = Rule((BUSY,), judge)
