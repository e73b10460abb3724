"""What one file holds of several ranks: stacks and dumps below a heading each, or on lines that a launcher marks.

    rank 3:              --- rank 3 ---            # rank 3 (gn-4, pid 811)        ## rank 3 host gn-4
    [rank3]: Thread 0x00007f28d71bcb80 (most recent call first):

Shape    sections(text) -> rank, node, text of each; marked(text) -> rank and its lines. Empty where it is not so
Errors   none
"""

from __future__ import annotations

import re

from probes.core import lines_of
from probes.intake.stacks_in_lines import stacks_in_lines

MOST = 20_000
SHORT = 6  # lines; judgement: what stands where a tool failed on a rank is no longer
_HEAD = re.compile(
    r"(?!\[rank\d{1,6}\]:? {0,4}$)"  # an empty line of a rank
    r"[-=#*>~+ ]{0,12}(?:[A-Za-z][\w.-]{0,62} {0,2}[/:,|] {0,2})?\[?(?:global[ _])?rank[ _=#:]{0,2}(\d{1,6})\]?"
    r"(?:(?: {0,2}[(\[,:/|@-] {0,2}| {1,4}(?=(?:on|host|node|pid|gpu|local_?rank)[ =:]))([\w.,:=/ -]{0,80}))?"
    r"[])]?[-=#*<~+: ]{0,40}$",
    re.I,
)
_TOLD = re.compile(  # a stack as py-spy, faulthandler and gdb print it, or the JSON of a dump
    r"\(most recent call (?:first|last)\)|^Process \d{1,10}: |^Thread (?:0x)?[0-9a-fA-F]{1,20} \(|^#0 {1,4}"
    r"|^\s{0,8}[\[{]",
    re.M,
)
# Words of a heading beside the rank and its node; others tell what the rank did, in a log.
_OTHER = re.compile(r"(?:pid|gpu|cuda|host|node|on|of|local_?rank|tid|dev|device)?[_.-]?\d{0,10}", re.I)
_NODE = re.compile(r"[A-Za-z][A-Za-z_.-]{0,30}\d[\w.-]{0,40}")
_MARK = re.compile(r"\s{0,2}(?:\[rank(\d{1,6})\]:?|\[(?:1,)?(\d{1,6})\]<std(?:out|err)>:?|(\d{1,6}):) ?")


def sections(text: str) -> list[tuple[int, str, str]]:
    """By headings; only where each section tells what one process is in, or why nothing does."""
    found: list[tuple[int, str, list[str]]] = []
    for line in text.split("\n"):
        head = _HEAD.match(line.rstrip()) if len(line) < 200 and "rank" in line[:40].lower() else None
        words = re.split(r"[\s,=:/]+", (head[2] or "").strip()) if head else []
        named = [word for word in words if not _OTHER.fullmatch(word)]
        if head and all(map(_NODE.fullmatch, named)):
            found.append((int(head[1]), next(iter(named), ""), []))
        elif found:
            found[-1][2].append(line)
        if len(found) > MOST:
            return []
    told = [(rank, node, "\n".join(lines) + "\n") for rank, node, lines in found]
    tell = [bool(_TOLD.search(body[:20_000])) for _, _, body in told]
    short = all(ok or len(lines) <= SHORT for ok, (_, _, lines) in zip(tell, found, strict=True))
    by_headings = sum(tell) > 1 and short and len({rank for rank, _, _ in told}) > 1
    return told if by_headings else stacks_in_lines(text)


def names_a_rank(line: str) -> bool:
    """Whether it may be the heading of a rank."""
    return len(line) < 200 and _HEAD.match(line.rstrip()) is not None


def marked(text: str) -> dict[int, str]:
    """Lines of ranks whose launcher marked them: each rank's in their order, without the marks."""
    found: dict[int, list[str]] = {}
    for line in lines_of(text):
        mark = _MARK.match(line)
        if mark and len(found) <= MOST:
            found.setdefault(int(next(part for part in mark.groups() if part)), []).append(line[mark.end() :])
    return {rank: "\n".join(lines) for rank, lines in found.items()} if len(found) > 1 else {}
