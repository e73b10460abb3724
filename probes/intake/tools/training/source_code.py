"""A piece of the program itself, in Python: what it does with collectives that return at once, and between streams.

    dist.all_reduce(grad, async_op=True)      what is given back is dropped: nobody can wait for it
    work = dist.all_gather(...async_op=True)  and no line that waits for work
    with torch.cuda.stream(side): ...         and no line by which anything waits for that stream
    # torch.cuda.current_stream().wait_event(ready)  a comment; in a diff "-  work.wait()"

It need not be whole: what sed, git diff or an editor shows is read, with numbers and signs in front. Nothing is run.

Source  torch.distributed (async_op, Work.wait), CUDA semantics of torch (streams, wait_stream, wait_event)
Errors  ParseError where no collective or stream stands in it
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from probes.catalog.ranks.replica_facts import SourceFault, SourceText
from probes.core import Finding, clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, mentions, refuse

MOST_LINES, MOST_FAULTS, MOST_CALLS = 20_000, 16, 32
_LANGUAGE = re.compile(
    r"^[\s\d:+|-]{0,12}(?:def \w|class \w|with \S|for \w{1,40}(?:, ?\w{1,40}){0,4} in |if \S|return\b|import \w"
    r"|from \S{1,60} import|@\w)"
    r"[^\n]{0,300}$",
    re.M,
)
_ASYNC = re.compile(
    r"(?:\b(?:all_reduce|all_gather\w{0,14}|reduce_scatter\w{0,12}|broadcast\w{0,12}|reduce|all_to_all\w{0,8}|gather"
    r"|scatter|allreduce|barrier)\([^\n]{0,400}?async_op\s{0,2}=\s{0,2}True|\bi(?:send|recv)\()"
)
_ASKED = re.compile(r"\basync_op\s{0,2}=\s{0,2}True|\bi(?:send|recv)\(")
_STREAM = re.compile(r"\bwith\s{1,4}(?:torch\.)?(?:cuda\.)?(?:stream|Stream|StreamContext)\(\s{0,2}([\w.]{1,60})")
_WAITS_STREAM = re.compile(r"\.wait_stream\(|\.wait_event\(|\.synchronize\(|\bsynchronize\(|\.wait\(")
_WAIT = re.compile(r"\.wait\(|\.wait_stream\(|\.wait_event\(|\.synchronize\(|\bsynchronize\(|wait_all\(|wait_tensor\(")
_FRONT = re.compile(r"^(?:\s{0,6}\d{1,6}[:|\t-] ?| {0,6}\d{1,6}\t)")
_ASSIGNED = re.compile(r"([A-Za-z_][\w.\[\]]{0,60})\s{0,4}(?::[^=\n]{1,40})?=\s{0,4}(?:[\w.]{1,60}\.)?\w{1,40}\(")
_FIRST = re.compile(r"\(\s{0,4}(?:\[\s{0,2})?([A-Za-z_][\w.]{0,60})")
_TRACE = re.compile(r'Traceback \(most recent|^\s{0,12}File "', re.M)
_DIFF = re.compile(r"^@@ -\d{1,7}(?:,\d{1,6})? \+\d|^diff --git |^\+\+\+ ", re.M)


@dataclass(slots=True)
class _Row:
    number: int
    text: str  # without what diffs and editors put in front, and without its comment
    comment: str
    removed: bool
    indent: int


def fits(head: str, name: str) -> bool:
    if not mentions(head, ("async_op", "isend(", "irecv(", "stream(", "streamcontext(")):
        return False
    if _TRACE.search(head) or not (_ASKED.search(head) or _STREAM.search(head)):
        return False
    return len(_LANGUAGE.findall(head[:262_144])) >= 2


def read(text: str) -> SourceText:
    rows = _rows(text)
    live = [row for row in rows if row.text.strip() and not row.removed]
    faults = [*_works(live, rows), *_parts(live), *_streams(live, rows)][:MOST_FAULTS]
    if not any(_ASYNC.search(row.text) or _STREAM.search(row.text) for row in rows):
        raise refuse("a collective with async_op=True, or a stream", text)
    return SourceText(len(live), tuple(faults))


def _rows(text: str) -> list[_Row]:
    diff = bool(_DIFF.search(text))
    found: list[_Row] = []
    for number, line in enumerate(lines_of(text, 2_000), 1):
        if number > MOST_LINES:
            break
        removed = diff and line[:1] == "-" and line[:3] != "---"
        body = line[1:] if diff and line[:1] in "+- " else _FRONT.sub("", line)
        code, comment = _cut(body)
        row = _Row(number, code.rstrip(), comment, removed, len(body) - len(body.lstrip()))
        # A call that goes on over several lines is read as one.
        if found and _is_open(found[-1].text) and not removed and not found[-1].removed and len(found[-1].text) < 1500:
            found[-1].text += " " + code.strip()
        else:
            found.append(row)
    return found


def _cut(body: str) -> tuple[str, str]:
    """(code, comment). A # within quotes is none."""
    quote = ""
    for at, char in enumerate(body):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char == "#":
            return body[:at], body[at + 1 :]
    return body, ""


def _is_open(text: str) -> bool:
    return text.count("(") > text.count(")")


def _undone(rows: list[_Row], pattern: re.Pattern[str]) -> bool:
    """Whether such a wait stands there as a comment, or was removed."""
    return any(pattern.search(row.comment) or (row.removed and pattern.search(row.text)) for row in rows)


def _works(live: list[_Row], rows: list[_Row]) -> list[SourceFault]:
    found = []
    whole = "\n".join(row.text for row in live)
    looked = 0
    for at, row in enumerate(live):
        call = _ASYNC.search(row.text)
        looked += call is not None
        if looked > MOST_CALLS:
            break  # each is compared with all lines
        if (
            call is None
            or ".wait(" in row.text
            or re.search(r"\b(?:return|yield|append|extend|add|put|await)\b", row.text)
        ):
            continue
        body = _body(live, at)
        undone = _undone(rows, re.compile(r"\.wait\("))
        before = row.text[: call.start()]
        if not re.search(r"[=(\[{,:]", before) or before.rstrip().endswith(":"):
            waits = any(re.search(r"synchronize\(|wait_tensor\(|wait_stream\(", one.text) for one in body)
            if not waits:
                found.append(
                    SourceFault(
                        "work dropped", row.number, _shown(row), undone, _is_used(row.text[call.start() :], body)
                    )
                )
        elif assigned := _ASSIGNED.search(row.text):
            name = assigned[1].rpartition(".")[2].partition("[")[0]
            others = whole.replace(row.text, "", 1)
            # Whoever hands the work on may wait for it elsewhere.
            if not re.search(rf"\b{re.escape(name)}\b", others) or (
                not _WAIT.search(others)
                and not re.search(rf"\breturn\b[^\n]{{0,80}}\b{re.escape(name)}\b", others)
                and not re.search(rf"self\.{re.escape(name)}\b", row.text)
                and not re.search(rf"[(\[,]\s?{re.escape(name)}\b", others)
            ):
                found.append(
                    SourceFault(
                        "work not waited for", row.number, _shown(row), undone, _is_used(row.text[call.start() :], body)
                    )
                )
    return found


_GATHERS = re.compile(r"([A-Za-z_][\w.]{0,60})\.append\(|([A-Za-z_][\w.]{0,60})\s{0,4}=\s{0,4}\[")


def _parts(live: list[_Row]) -> list[SourceFault]:
    """Works that are gathered in a list of which a part alone is waited for: `for w in works[:-1]: w.wait()`."""
    found = []
    called = [(_GATHERS.search(row.text), row) for row in live if _ASYNC.search(row.text)]
    gathered = {str(one[1] or one[2]): row for one, row in called if one}
    for name, row in list(gathered.items())[:MOST_CALLS]:
        own = re.compile(rf"(?<![\w.]){re.escape(name)}(?![\w.])(?P<part>\[[^\]:]{{0,20}}:[^\]]{{0,20}}\])?")
        uses = [(at, one) for at, line in enumerate(live) if line is not row for one in own.finditer(line.text)]
        uses = [
            (at, one)
            for at, one in uses
            if not re.match(r"\s{0,4}=\s{0,4}(?:\[\]|list\(\))", live[at].text[one.end() :])
        ]
        parts = [at for at, one in uses if one["part"] and _WAIT.search(" ".join(it.text for it in live[at : at + 2]))]
        whole = [at for at, one in uses if not one["part"] and re.search(r"\bfor\b|\w\(", live[at].text)]
        if len(parts) == 1 and not whole:  # two parts may be all of it
            handed = any(re.search(r"\b(?:return|yield)\b", live[at].text) for at, _ in uses)
            shown = live[parts[0]]
            found.append(SourceFault("work not waited for", shown.number, _shown(shown), False, not handed))
    return found


def _body(live: list[_Row], at: int) -> list[_Row]:
    """What follows in the same function: up to a line that begins another one, or stands further out than all."""
    outer = next(
        (row.indent for row in reversed(live[:at]) if row.text.lstrip().startswith(("def ", "async def "))), -1
    )
    found = []
    for row in live[at + 1 : at + 200]:
        if row.indent <= outer or row.text.lstrip().startswith(("def ", "async def ", "class ")):
            break
        found.append(row)
    return found


def _is_used(call: str, body: list[_Row]) -> bool:
    """Whether the tensor stands in what follows; gradients are used by whatever makes the step."""
    tensor = _FIRST.search(call)
    if tensor is None:
        return False
    again = re.compile(rf"(?<![\w.]){re.escape(tensor[1])}(?!\w)")
    step = re.compile(r"\.step\(|clip_grad_\w{1,8}\(") if "grad" in tensor[1].lower() else again
    return any(again.search(row.text) or step.search(row.text) for row in body)


def _shown(row: _Row) -> str:
    return clean(row.text.strip())[:160]


def _streams(live: list[_Row], rows: list[_Row]) -> list[SourceFault]:
    """Streams with work on them for which nothing in this piece waits. `side.wait_stream(main)` is the other way: what
    runs on the side waits for what was there before."""
    found: dict[str, SourceFault] = {}
    seen: set[str] = set()
    for at, row in enumerate(live):
        opened = _STREAM.search(row.text)
        if opened is None or opened[1] in seen:
            continue
        seen.add(opened[1])
        if len(seen) > MOST_CALLS:
            break
        stream = opened[1]
        inside = _block(live, at)
        outside = [*live[:at], *live[at + 1 + len(inside) :]]
        names = {stream, stream.rpartition(".")[2]}
        waits = [one for one in outside if _WAITS_STREAM.search(one.text) and not _is_own(one.text, names)]
        if waits:
            continue
        after = live[at + 1 + len(inside) :]
        # With nothing after it in this piece nobody can see whether what follows waits.
        undone = any(
            (_WAITS_STREAM.search(one.comment) and not _is_own(one.comment, names))
            or (one.removed and _WAITS_STREAM.search(one.text) and not _is_own(one.text, names))
            for one in rows
        )
        made = {name for one in inside for name in _names(one.text)} - names
        used = any(_names(one.text) & made for one in after)
        if after or undone:
            found[stream] = SourceFault("stream not waited for", row.number, _shown(row), undone, used)
    return list(found.values())


_COMMON = frozenset(("self", "torch", "dist", "True", "False", "None", "async_op", "non_blocking", "work", "group",
    "with", "for", "cuda"))  # fmt: skip


def _names(text: str) -> set[str]:
    """Variables in a line: self.flat of self.flat.view(), buf of buf.copy_(); no functions."""
    found = set()
    for one in list(re.finditer(r"[A-Za-z_][\w.]{1,60}", text))[:100]:
        parts = one[0].split(".")
        parts = parts[:-1] if text[one.end() : one.end() + 1] == "(" else parts
        if parts and parts != ["self"]:
            found.add(".".join(parts[:2]) if parts[0] == "self" else parts[0])
    return found - _COMMON


def _is_own(text: str, names: set[str]) -> bool:
    """Whether it is that stream itself that waits: side.wait_stream(torch.cuda.current_stream())."""
    one = re.search(r"([\w.]{1,60})\.(?:wait_stream|wait_event)\(", text)
    return one is not None and (one[1] in names or one[1].rpartition(".")[2] in names)


def _block(live: list[_Row], at: int) -> list[_Row]:
    found = []
    for row in live[at + 1 : at + 400]:
        if row.indent <= live[at].indent:
            break
        found.append(row)
    return found


def findings(facts: SourceText) -> list[Finding]:
    return []


TOOL = Tool("program text", "job.source", fits, read, findings, host_in, beside=True)
