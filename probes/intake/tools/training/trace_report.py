"""What torchfrtrace prints, and torch's debug server, which uses the same analysis.

    Not all ranks joining collective, sequence number: 5020      2.5: joining collective 5020 at entry 88
    group info: 1006:data_parallel_group                         2.4: for group 0:default_pg collective nccl:all_reduce
    collective: nccl:all_reduce                                       Missing ranks are {6}
    missing ranks: {6}
    expected ranks: {6, 14}                                      2.5: only how many
    collective stack trace:
     train_step at /job/train.py:412
    Collective sequence number: 9 has errors
    error msg: Culprit rank 1; Error type: COLLECTIVE_TYPE_MISMATCH, Expected collective type: ...

With -j it prints the calls of all ranks side by side (tabulate); its debug server a table of collectives.

Source: torch 2.4 to 2.13 (tools/flight_recorder, torch/distributed/flight_recorder/components: types.py, utils.py)
Errors  ParseError where it tells of no place and of no missing dump
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from probes.catalog.stacks.trace_report import Place, TraceReport
from probes.core import Finding, clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, mentions, refuse
from probes.intake.tools.training._trace_tables import of_calls, of_collectives

MOST_PLACES, MOST_RANKS = 256, 65_536
_HEAD = re.compile(
    r"Not all ranks joining collective|Collective (?:sequence number: )?[\w ]{0,60}has errors"
    r"|(?:Input/output|input/output) mismatch in the collective"
)
_UNDUMPED = re.compile(r"Missing dump files from ranks|missed FR dumps from ranks")
_COLLECTIVES = re.compile(r"^\s{0,8}id\s{1,40}group_id\s[^\n]{0,200}?collective_seq_id\s", re.M)
_CALLS = re.compile(r"^\s{0,8}(?:Rank \d{1,6}\s{2,4000})+Rank \d{1,6}\s*\n-{4,4000} ", re.M)
_QUICK = ("joining collective", "has errors", "mismatch in the collective", "dump files from", "fr dumps",
    "collective_seq_id", "rank 0 ")  # fmt: skip
_SEQ = re.compile(r"(?:sequence number:? |joining collective |Collective )(\d{1,18})\b")
_GROUP = re.compile(r"group(?: info:)? (?!info)(\S{1,120})(?: collective (\S{1,80}))?")
_MISSING = re.compile(r"[Mm]issing ranks(?: are)?:? ([{\[(][\d, ]{0,400000}[}\])])")
_CULPRIT = re.compile(r"Culprit rank (\d{1,7}); {0,2}(?:Error type: )?(?:MatchState\.)?([A-Z_]{4,60})")
_FRAME = re.compile(r"\s{0,8}(\S{1,160}) at (\S{1,400}:\d{1,9})\s*$")
_LIBRARY = re.compile(r"site-packages|dist-packages|/lib(?:64)?/python\d|torch/distributed/|torch/nn/|<frozen ")
_NUMBERS = re.compile(r"\d{1,7}")


def fits(head: str, name: str) -> bool:
    if not mentions(head, _QUICK):
        return False
    if _COLLECTIVES.search(head) or _CALLS.search(head):
        return True
    return bool(_UNDUMPED.search(head) or (_HEAD.search(head) and ("ranks" in head or "Culprit rank" in head)))


def ranks_in(text: str) -> tuple[int, ...]:
    """The ranks of a printed set or list."""
    return tuple(sorted({int(one) for one in _NUMBERS.findall(text)[:MOST_RANKS]}))


def read(text: str) -> TraceReport:
    places = [place for block in _blocks(text) if (place := _place(block)) is not None][:MOST_PLACES]
    if not places and _COLLECTIVES.search(text):
        places = of_collectives(text)
    if not places and _CALLS.search(text):
        places = of_calls(text)
    undumped = {
        rank
        for line in lines_of(text, 400_000)
        if (one := _UNDUMPED.search(line))
        for rank in ranks_in(line[one.end() :])
    }
    if not places and not undumped:
        raise refuse("what torchfrtrace prints of a collective that was not joined by all, or not alike", text)
    return TraceReport(tuple(places), tuple(sorted(undumped)))


def _blocks(text: str) -> Iterator[list[str]]:
    """The lines of each place, from its first line to the next one's."""
    block: list[str] = []
    for line in lines_of(text, 400_000):
        if _HEAD.search(line[:400]):
            if block:
                yield block
            block = [line]
        elif block and _UNDUMPED.search(line[:400]):
            yield block
            block = []
        elif block and len(block) < 400:
            block.append(line)
    if block:
        yield block


def _place(block: list[str]) -> Place | None:
    first = block[0]
    told: dict[str, str] = {}
    for line in block[1:]:
        key, colon, value = line.strip().partition(": ")
        if colon and len(key) < 40:
            told.setdefault(key.rpartition("] ")[2].lower(), value.strip())
    seq = _SEQ.search(first[:400])
    in_head = _GROUP.search(first[:400]) if "group" in first[:200] else None
    missing = _MISSING.search("\n".join((first, *block[1:6])))
    errors = {int(rank): error for line in block for rank, error in _CULPRIT.findall(line[:100_000])}
    expected = told.get("expected ranks", "")
    size = told.get("world size", "" if "{" in expected or "[" in expected else expected)
    if "mismatch in the collective" in first:
        errors = errors or {-1: "SIZE_OR_SYNTAX_MISMATCH"}
    if missing is None and not errors:
        return None
    frames = [found for line in block if (found := _FRAME.match(line[:600]))]
    own = [found for found in frames if not _LIBRARY.search(found[2])] or frames
    op = told.get("collective") or (in_head[2] if in_head and in_head[2] else "")
    return Place(
        group=clean(told.get("group info") or (in_head[1] if in_head else ""))[:120],
        seq=int(seq[1]) if seq else None,
        op=clean(op.partition(":")[2] or op)[:60],
        missing=ranks_in(missing[1]) if missing else (),
        odd=tuple(sorted(rank for rank in errors if rank >= 0)),
        error=next(iter(errors.values()), ""),
        expected=ranks_in(expected) if expected[:1] in ("{", "[", "(") else (),
        size=int(size) if size.isdecimal() and len(size) < 8 else 0,
        state=told.get("collective state", "")[:20],
        where=clean(f"{own[0][1]} at {own[0][2]}")[:200] if own else "",
    )


def findings(facts: TraceReport) -> list[Finding]:
    return []


TOOL = Tool("torchfrtrace", "rank.trace_report", fits, read, findings, host_in)
