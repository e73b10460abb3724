"""How far each rank is, in a table, in rows of JSON or in a line a rank that somebody made of recorders or of logs.

    rank  pg          last_enqueued  last_completed  op          state
    0     default_pg  5121           5120            all_reduce  started
    rank 2: last enqueued 5120, last completed 5120
    [{"rank": 0, "collective_seq_id": 812, "profiling_name": "nccl:all_reduce", "state": "started"}]

Told as places of a printed analysis: who has entered fewer calls than most, or is in another call or with other sizes.
Numbers of steps are none of these. Errors: ParseError where no two ranks are told
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from probes.catalog.stacks.trace_report import Place, TraceReport
from probes.core import Finding, clean, lines_of
from probes.intake.own_tables import cells, objects
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, mentions, refuse
from probes.intake.tools.training._rank_lines import keyed, spoken

MOST_ROWS = 100_000
# What a head or a key is called -> what it tells. The first of ENTERED that is there counts.
ENTERED = ("enqueued", "seq", "started")
_LAST = r"(?:last[_ ]?)?(?:coll\w{0,8}[_ ])?"
_KEYS = (
    ("rank", re.compile(r"(?:global[_ ]?)?rank(?:[_ ]?id)?")),
    ("enqueued", re.compile(rf"{_LAST}(?:enqueued|launched|entered)(?:[_ ](?:seq|coll\w{{0,8}}|work|op|id))?")),
    ("started", re.compile(r"(?:last[_ ]?)?started(?:[_ ](?:seq|coll\w{0,8}|work|id))?")),
    ("completed", re.compile(rf"{_LAST}(?:completed|finished|done|retired)(?:[_ ](?:seq|coll\w{{0,8}}|work|id))?")),
    (
        "seq",
        re.compile(
            r"(?:last[_ ]?)?(?:coll\w{0,8}[_ ]?)?(?:(?:seq(?:[_ ]?(?:id|no|num|number))?|sequence(?:[_ ]number)?)"
            r"(?:[_ ](?:started|enqueued|launched|entered))?|op[_ ]?count)"
        ),
    ),
    ("op", re.compile(r"(?:last[_ ]?)?(?:op|op[_ ]?type|collective|operation|profiling[_ ]name|call)(?:[_ ]name)?")),
    ("sizes", re.compile(r"(?:input[_ ]?)?(?:sizes?|shapes?|numel)(?:[_ ]?in)?|count|numelin")),
    ("state", re.compile(r"state|status")),
    ("group", re.compile(r"pg|group|process[_ ]group|pg[_ ](?:name|desc)|group[_ ]name|comm(?:unicator)?")),
)  # fmt: skip
_LINE = re.compile(r"\brank[ _:=#]{0,3}(?P<rank>\d{1,6})(?P<rest>[^\n]{1,400})", re.I)
_PAIR = re.compile(
    r"(?P<key>(?:last[ _]?)?(?:enqueued|completed|started|launched|(?:coll\w{0,8}[ _]?)?seq(?:[ _]?(?:id|num|no))?))"
    r"(?: (?:work|NCCL work|collective|op))?[ :=#]{1,4}(?P<value>-?\d{1,15})",
    re.I,
)
_WAITS = re.compile(r"started|scheduled|pending|running|waiting|in[_ ]?flight|timed?[_ ]?out|stuck|hang", re.I)
_FREE = ("all_to_all", "alltoall", "scatter", "gather", "broadcast", "send", "recv", "barrier")
_BY_NUMBER = re.compile(r"\{\s{0,20}\"\d{1,6}\"\s{0,4}:\s{0,4}\{")  # an object for each rank
_LIST = re.compile(r"\[\s{0,40}\{")  # of objects: "[rank0]: ..." begins like one
_FIT = ("entered", "enqueued", "seq", "opcount", "op_count", "profiling_name", "launched")


@dataclass(frozen=True, slots=True)
class _Row:
    rank: int
    group: str
    entered: int
    completed: int | None
    op: str
    sizes: str
    state: str


def fits(head: str, name: str) -> bool:
    if "WorkNCCL(" in head or not (mentions(head, ("rank",)) or _BY_NUMBER.match(head.lstrip()[:80])):
        return False
    if not mentions(head, _FIT):
        return bool(spoken(head))
    body = head.lstrip()
    if body[:1] in "[{" and ('"frames"' in head or '"pg_config"' in head or '"communicators"' in head):
        return False  # a dump, stacks, or RAS
    return len({row.rank for row in _all_rows(head)}) > 1


def read(text: str) -> TraceReport:
    by_group: dict[str, dict[int, _Row]] = {}
    for row in _all_rows(text):
        there = by_group.setdefault(row.group, {}).get(row.rank)
        if there is None or row.entered >= there.entered:  # of a list of calls the last one
            by_group[row.group][row.rank] = row
    if not any(len(rows) > 1 for rows in by_group.values()):
        raise refuse("a table of ranks with the numbers of their collectives", text)
    return TraceReport(tuple(place for group, rows in by_group.items() if (place := _place(group, rows))))


def _place(group: str, rows: dict[int, _Row]) -> Place | None:
    furthest = max(row.entered for row in rows.values())
    here = {rank: row for rank, row in rows.items() if row.entered == furthest}
    late = tuple(sorted(rank for rank in rows if rank not in here))
    expected = tuple(sorted(rows))
    ops = Counter(row.op for row in here.values() if row.op)
    op = ops.most_common(1)[0][0] if ops else ""
    odd: tuple[int, ...] = ()
    error = ""
    if not late and len(ops) > 1:
        odd, error = tuple(rank for rank, row in here.items() if row.op != op), "COLLECTIVE_TYPE_MISMATCH"
    elif not late and op not in _FREE and len({row.sizes for row in here.values()}) > 1:
        usual = Counter(row.sizes for row in here.values()).most_common(1)[0][0]
        odd, error = tuple(rank for rank, row in here.items() if row.sizes != usual), "SIZE_OR_SYNTAX_MISMATCH"
    # Most stand at one number: ranks that are anywhere do not wait for each other.
    if not error and (not late or len(late) >= len(here)):
        return None
    waits = any(_WAITS.search(row.state) or (row.completed is not None and row.completed < row.entered)
        for row in here.values())  # fmt: skip
    state = "scheduled" if waits else ""
    return Place(group, furthest, op, late if not error else (), odd, error, expected, len(rows), state, "", "table")


def _all_rows(text: str) -> list[_Row]:
    """Rows that tell numbers of calls; where none does, lines that tell the call in which each rank waits."""
    return list(_rows(text)) or [row for told in spoken(text) if (row := _row(told))]


# Rows -------------------------------------------------------------------------------------------------------------


def _rows(text: str) -> Iterator[_Row]:
    body = text.lstrip()
    if body[:1] == "{" or _LIST.match(body):
        for one in _objects(body):
            if row := _row({key: str(value) for name, value in one.items() if (key := _key(str(name)))}):
                yield row
        return
    heads: list[str] = []
    mark = ""
    for number, line in enumerate(lines_of(text, 2_000)):
        if number > MOST_ROWS:
            return
        found = next(((keys, sep) for sep in _MARKS if (keys := _heads(line, sep))), None)
        if found is not None:
            heads, mark = found
        elif heads and len(said := cells(line, mark)) == len(heads) and said[heads.index("rank")][-1:].isdigit():
            if row := _row({key: cell for key, cell in zip(heads, said, strict=True) if key}):
                yield row
        elif told := _LINE.search(line):
            pairs = {_key(key): value for key, value in keyed(told["rest"]).items()}
            pairs |= {_key(one["key"].lower()): one["value"] for one in _PAIR.finditer(told["rest"])}
            if row := _row(pairs | {"rank": told["rank"]}):
                yield row


_MARKS = ("|", "\t", ",", ";", "  ", " ")  # between cells; the first by which a line has the right heads


def _heads(line: str, mark: str) -> list[str]:
    """What each column tells; [] where the line is no head of such a table."""
    if mark not in line or "ank" not in line and "ANK" not in line:
        return []
    heads = cells(line, mark)
    if any(head.rstrip(":,").isdecimal() for head in heads):
        return []
    keys = [_key(head) for head in heads]
    # "seq" may be a length of sequences, and what is started may be anything: then more must tell of collectives.
    bare = any(head.lower() == "seq" for head in heads) or not {"enqueued", "seq"} & set(keys)
    enough = not bare or bool({"op", "state", "group", "completed"} & set(keys))
    return keys if "rank" in keys and any(key in ENTERED for key in keys) and enough else []


def _objects(body: str) -> list[dict[str, object]]:
    """Also an object of objects, each called by its rank."""
    found = objects(body, MOST_ROWS)
    by_rank = [
        one | {"rank": number[1]}
        for key, one in (found[0].items() if len(found) == 1 else ())
        if isinstance(one, dict) and (number := re.fullmatch(r"(?:rank[ _-]?)?(\d{1,6})", str(key), re.I))
    ]
    return by_rank or found


def _key(head: str) -> str:
    word = head.strip().strip("\"'*`").lower()
    return next((key for key, pattern in _KEYS if pattern.fullmatch(word)), "")


def _row(told: dict[str, str]) -> _Row | None:
    rank, entered = _number(told.get("rank", "").lower().removeprefix("rank").strip()), None
    for key in ENTERED:
        entered = entered if entered is not None else _number(told.get(key, ""))
    if rank is None or entered is None or rank > 1_000_000:
        return None
    op = told.get("op", "").rpartition(":")[2].lower()
    return _Row(
        rank, clean(told.get("group", ""))[:80], entered, _number(told.get("completed", "")),
        clean(op)[:60], clean(told.get("sizes", ""))[:120], clean(told.get("state", ""))[:40],
    )  # fmt: skip


def _number(text: str) -> int | None:
    text = text.strip().lstrip("#")
    return int(text) if re.fullmatch(r"-?\d{1,15}", text) else None


def findings(facts: TraceReport) -> list[Finding]:
    return []


TOOL = Tool("table of ranks", "rank.trace_report", fits, read, findings, host_in, beside=True)
