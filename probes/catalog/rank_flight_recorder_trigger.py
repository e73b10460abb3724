"""Will the ranks on this node write their flight recorder to a file, when asked through their pipe?

Source   the pipe <TORCH_NCCL_DEBUG_INFO_PIPE_FILE><rank>.pipe of ProcessGroupNCCL (torch 2.2 and later), which a job
         must have set before it began. Training goes on. Written against its source, never run against NCCL
Units    seconds
Shape    Triggers: per rank whether it was asked and whether a file appeared
Errors   ParseError when a row is not what the collector writes

Not read-only: each rank is made to write one file of its own, at its own pace, once (docs/decisions/0005-trigger.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from probes.catalog._collected import as_rows, number_or_none, whole, word
from probes.catalog.ranks import reach
from probes.catalog.recorder import ask, decode, on_node, reader, values
from probes.core import Finding, ParseError, Probe, sections

OUTCOMES = ("dumped", "asked", "young", "unread", "no pipe", "failed")


@dataclass(frozen=True, slots=True)
class Trigger:
    """`outcome`: dumped (a file appeared after `took_s`), asked (none yet), young (there is one already, not asked),
    unread (nobody reads the pipe, not asked), no pipe, failed. `path`: the file that appeared.
    """

    rank: int
    pid: int
    outcome: str
    why: str
    pipe: str
    path: str
    took_s: float | None


@dataclass(frozen=True, slots=True)
class Triggers:
    ranks: tuple[Trigger, ...]


def _collect() -> Mapping[str, str]:
    return ask.collect()


def parse(text: str) -> Triggers:
    what = "golden15/asked"
    parts = sections(text)
    if what not in parts:
        raise ParseError(f"expected the part {what}, found {', '.join(parts)[:80]!r}")
    found = []
    for row in as_rows(parts[what], what):
        outcome = word(row, "outcome", what, 20)
        if outcome not in OUTCOMES:
            raise ParseError(f"{what}: expected one of {', '.join(OUTCOMES)}, found {outcome!r}")
        found.append(
            Trigger(
                rank=whole(row, "rank", what),
                pid=whole(row, "pid", what),
                outcome=outcome,
                why=word(row, "why", what, 400),
                pipe=word(row, "pipe", what, 400),
                path=word(row, "path", what, 400),
                took_s=number_or_none(row, "took_s", what),
            )
        )
    return Triggers(tuple(found))


def findings(facts: Triggers) -> Iterator[Finding]:
    """Ranks that did not answer. A job without the pipe is no fault, but worth setting for the next time."""
    without = [one for one in facts.ranks if one.outcome == "no pipe"]
    if without:
        says = f"{len(without)} of {len(facts.ranks)} ranks cannot be asked for a dump: {without[0].why}"
        yield Finding("rank.no_pipe", "info", says)
    for one in facts.ranks:
        if one.outcome in ("asked", "unread", "failed"):
            says = f"rank {one.rank} did not write a dump: {one.why}"
            yield Finding("rank.no_answer_to_pipe", "warn", says, {"rank": one.rank})


PROBE = Probe(
    "rank.flight_recorder_trigger",
    "Will the ranks write their flight recorder to a file, when asked through their pipe?",
    parse,
    findings,
    collect=_collect,
    by_hand='timeout 2 sh -c "echo 1 > ${TORCH_NCCL_DEBUG_INFO_PIPE_FILE}${RANK}.pipe"',
    timeout_s=10.0,
    needs="the login of the user who trains, or root; TORCH_NCCL_DEBUG_INFO_PIPE_FILE set before the job began",
    brings=(
        decode,
        values,
        reader,
        reach,
        on_node,
        ask,
    ),
    touches="process",
    cost="not measured: each rank writes its dump once",
)
