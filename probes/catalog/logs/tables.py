"""Tables of times per rank that people print or save: ranks as columns, ranks as rows, one JSON object per line.

    rank      0      1      2          iteration,rank,host,fwd_ms,wait_ms        {"rank": 3, "step": 9, "fwd_ms": 41.2}
    compute   0.41   0.40   0.75       100,0,gpu-1,1331.1,1684.2

    # ms from the first rank to this one, entering the all-reduce         a remark says what is told of each rank
    iter  r00  r01  r02                                                   at each step
    9100   15   14 1925

Source   none: everybody names the columns after what they hold; a column counts where its name is one of `part_of`
Units    seconds; the unit is what the name of a column or row ends in (ms, us, s), else seconds
Shape    Tables.take(line) -> cells (rank, part, name, seconds), None when the line is of no table
Errors   none: a row that does not fit the head of its table ends it
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from probes.catalog.logs.legends import SAYS_UNIT, SCALE, Cell, by_legend, columns_of, unit_of
from probes.catalog.logs.lines import Line
from probes.core import clean

MOST_COLUMNS, LONGEST = 4096, 65_536
MOST_HOSTS = 4096
LONGEST_TIME = 1e12  # in whatever unit
_RANK = re.compile(r"(?i)(?:global[ _-]?|world[ _-]?|dp[ _-]?)?ranks?(?:[ _-]?(?:id|no))?|global_?rank_?id")
_HOST = re.compile(r"(?i)(?:host|node)(?:[ _-]?name)?|machine|server|hostname")
_NUMBER = re.compile(r"(-?\d{1,12}(?:\.\d{1,9})?) ?(us|ms|s)?")
_INT = re.compile(r"(?i)(?:rank[ _=:]?|r)?(\d{1,7})")
_NODE = re.compile(r"[A-Za-z][\w.-]{0,62}")
_COLUMN = re.compile(r"(?i)(?:global[_ ]?)?(?:rank|rk|r)[ _.#:=-]?(\d{1,6})")  # the head of a rank's column
_STEP = re.compile(r"(?i)(?:global[ _-]?)?(?:step|iter|iteration|it|batch|call|seq|collective|#|no|time|at|when)s?\.?")
# What a remark or a caption says of such a table: how late each rank comes, or what its times are of.
_SAYS = (
    (
        "wait",
        re.compile(
            r"(?i)\b(?:wait\w{0,3}(?! for (?:it|this|that|rank))|idle|blocked|in[ _-](?:nccl|comm|all[ _-]?reduce)"
            r"|(?:collective|all[ _-]?reduce|nccl)(?: kernel)?[ _-](?:time|duration|dur)s?)\b"
        ),
    ),
    (
        "own",
        re.compile(r"(?i)\b(?:arriv|enter|late|lag|skew|delay|behind|offset|forward|backward|fwd|bwd|compute|busy)"),
    ),
    (
        "total",
        re.compile(
            r"(?i)\b(?:step|iter(?:ation)?|batch)[ _-]?(?:time|duration|latency|took|ms)|\btime per (?:step|iter|batch)"
        ),
    ),
)
_ONCE = re.compile(
    r"(?i)\b(?:start-?up|init\w{0,12}|import|load\w{0,3}|warm-?up|first step|compil\w{0,5}|checkpoint|sav\w{1,4})\b"
)
REMARK = 300
_TIME = r"-?\d{1,9}(?:\.\d{1,9})?(?: ?(?:us|ms|s)\b)?"
_LISTED = re.compile(
    r"\W{0,4}(?:\(?[A-Za-z][\w.-]{0,40}\)? )?(?i:rank|r)[ _:#=-]{0,2}(?P<rank>\d{1,6})\b[^\w\n.-]{1,12}"
    rf"(?P<values>{_TIME}(?:[ ,;|\t]{{1,8}}{_TIME}){{0,256}})"
    r"\s{0,4}(?:\(.{0,80}|<-.{0,80}|[#|].{0,80})?"
)
# All ranks in a line: "forward ms per rank: [401, 402, 803]", "step time by rank: r0=1.31s r1=1.30s r2=2.41s"
_PER_RANK = re.compile(r"(?i)\b(?:per|by|of each|for each|across) rank\w{0,2}\b[^\[\n=:]{0,60}[=:]?\s{0,4}")
_LIST = re.compile(rf"\[\s{{0,4}}({_TIME}(?:[, ]{{1,4}}{_TIME}){{2,4096}})\s{{0,4}}\]")
_EACH = re.compile(r"\b(?i:rank|r)[ _]?(\d{1,6})[ =:]{1,3}(\d{1,9}(?:\.\d{1,9})?) ?(us|ms|s)?(?![\w.])")
_LISTED_VALUE = re.compile(r"(-?\d{1,9}(?:\.\d{1,9})?)(?: ?(us|ms|s)\b)?")


@dataclass(frozen=True, slots=True)
class _Head:
    split: str
    width: int
    rank: int | None  # the column of the rank; None: the ranks are columns
    ranks: tuple[int, ...]
    columns: tuple[tuple[int, str, str, float], ...]  # (column, part, name, scale)
    host: int | None = None
    of: tuple[str, str, float] | None = None  # part, name and scale, where the rows are steps
    own: bool = False  # no column tells the rank, and each row is a step of whoever wrote it
    each: bool = False  # `ranks` are those of `columns`, one by one


class Tables:
    """`part_of` gives the part of a step that a name (without its unit) is of, "" for any other."""

    def __init__(self, part_of: Callable[[str], str]) -> None:
        self._part_of = part_of
        self._head: _Head | None = None
        self._remark = ""
        self.hosts: dict[int, str] = {}

    def take(self, line: Line) -> list[Cell] | None:
        text = line.text.strip()
        if not text or len(text) > LONGEST:
            return None
        if text[0] == "{":
            return self._object(text) if "ank" in text else None
        if self._head is not None:
            cells = self._row(self._head, text)
            if cells is not None:
                return cells
        if ("ank" in text[:60] or text[0] in "rR") and (listed := self._listed(text)) is not None:
            return listed
        if "rank" in text and (row := self._in_a_row(text)) is not None:
            return row
        if "/" in text and (cells := by_legend(text, self._remark.split("\n"), self._part_of)):
            return cells
        if (matrix := self._matrix(text)) is not None:
            self._head = matrix
            return []
        if ("ank" in text or "ANK" in text or "," in text or "\t" in text) and (head := self._headed(text)) is not None:
            self._head = head
            return []
        if not set(text) <= set("-=+|: "):  # a rule between head and rows
            self._head = None
            self._remark = f"{self._remark[-REMARK:]}\n{text[:REMARK]}"
        return None

    def _listed(self, text: str) -> list[Cell] | None:
        """One rank's value, or its values of several steps, below a caption that says what they are."""
        found = _LISTED.fullmatch(text)
        told = self._told(self._remark) if found is not None else None
        if found is None or told is None:
            return None
        part, scale, own = told
        rank = int(found["rank"])
        return [
            (rank, part, "", float(one[1]) * (SCALE[one[2][0]] if one[2] else scale))
            for one in _LISTED_VALUE.finditer(found["values"])
            if one[2] or own
        ]

    def _in_a_row(self, text: str) -> list[Cell] | None:
        """The values of all ranks, in the order of ranks or with their numbers."""
        head = _PER_RANK.search(text)
        told = self._told(text[: head.end()]) if head is not None else None
        if head is None or told is None:
            return None
        part, scale, own = told
        rest = text[head.end() :]
        if (listed := _LIST.match(rest)) is not None:
            values = [("", one[1], one[2]) for one in _LISTED_VALUE.finditer(listed[1])]
        else:
            values = [(one[1], one[2], one[3]) for one in _EACH.finditer(rest)]
        cells: list[Cell] = [
            (int(rank or at), part, "", float(value) * (SCALE[unit[0]] if unit else scale))
            for at, (rank, value, unit) in enumerate(values)
            if unit or own
        ]
        return cells if len(cells) > 2 and len({cell[0] for cell in cells}) == len(cells) else None

    def _told(self, says: str) -> tuple[str, float, bool] | None:
        """(part, scale, whether it names a unit) of a remark that says what is told of each rank."""
        if _ONCE.search(says):
            return None  # what a rank does once holds up no step
        part = next((part for part, words in _SAYS if words.search(says)), "")
        unit = SAYS_UNIT.search(says)
        letter = unit[1][:2].lower() if unit else "s"
        micro = unit is not None and unit[1].lower().startswith(("u", "mic"))
        scale = 1e-6 if micro else 1e-3 if letter[0] == "m" else 1.0
        return (part, scale, unit is not None) if part else None

    def _matrix(self, text: str) -> _Head | None:
        """A row for each step and a column for each rank; what is told of them says a remark behind, or before."""
        bare, _, behind = text.partition("#")
        if not bare.strip() or bare.lstrip("| ")[:1].isdigit():
            return None
        split = next((mark for mark in ("|", "\t", ",", ";") if bare.count(mark) > 1), "")
        names = _cells(bare, split)
        if not 3 < len(names) <= MOST_COLUMNS or not _STEP.fullmatch(names[0]):
            return None
        found = [_COLUMN.fullmatch(name) for name in names[1:]]
        ranks = tuple(int(one[1]) for one in found if one)
        says = f"{behind} {self._remark}"[: 2 * REMARK]
        told = self._told(says)
        if len(ranks) != len(found) or len(set(ranks)) != len(ranks) or told is None:
            return None
        return _Head(split, len(names), None, ranks, (), None, (told[0], "", told[1]))

    def _headed(self, text: str) -> _Head | None:
        split = next((mark for mark in ("|", "\t", ",", ";") if text.count(mark) > 1), "")
        if not split and len(text) < 80:  # two columns
            split = next((mark for mark in ("|", "\t", ",", ";") if text.count(mark) == 1), "")
        names = _cells(text, split)
        if not 1 < len(names) <= MOST_COLUMNS:
            return None
        of_each, parts = columns_of(names, self._part_of) if split else ([], [])
        if of_each:
            return _Head(split, len(names), None, tuple(of_each), tuple(parts), each=True)
        rank = next((at for at, name in enumerate(names) if _RANK.fullmatch(name)), None)
        if rank is None:
            return self._of_one(split, names)
        ranks = [_INT.fullmatch(name) for name in names[rank + 1 :]]
        if rank == 0 and all(ranks):
            numbers = tuple(int(found[1]) for found in ranks if found)
            return _Head(split, len(names), None, numbers, ()) if len(set(numbers)) == len(numbers) else None
        if any(_NUMBER.fullmatch(name) for name in names):
            return None
        columns = []
        for at, name in enumerate(names):
            bare, scale = unit_of(name)
            if at != rank and (part := self._part_of(bare)):
                columns.append((at, part, bare, scale))
        host = next((at for at, name in enumerate(names) if _HOST.fullmatch(name)), None)
        return _Head(split, len(names), rank, (), tuple(columns), host) if columns else None

    def _of_one(self, split: str, names: list[str]) -> _Head | None:
        """step,compute_ms,wait_ms: one rank's own table."""
        if split not in (",", "\t", ";") or not _STEP.fullmatch(names[0]):
            return None
        bare = [(at, *unit_of(name)) for at, name in enumerate(names)]
        columns = tuple((at, part, name, scale) for at, name, scale in bare if (part := self._part_of(name)))
        return _Head(split, len(names), None, (), columns, own=True) if len({one[1] for one in columns}) > 1 else None

    def _row(self, head: _Head, text: str) -> list[Cell] | None:
        cells = _cells(text, head.split)
        if head.each:
            values = [(nth, _seconds(cells[at], scale)) for nth, (at, *_, scale) in enumerate(head.columns)
                      if len(cells) == head.width]  # fmt: skip
            row: list[Cell] = [
                (head.ranks[nth], *head.columns[nth][1:3], value) for nth, value in values if value is not None
            ]
            return row or None
        if head.rank is None and not head.own:
            return self._of_columns(head, cells)
        mine = _INT.fullmatch(cells[head.rank or 0]) if len(cells) == head.width else None
        if mine is None:
            return None
        rank = None if head.own else int(mine[1])
        if (
            rank is not None
            and head.host is not None
            and _NODE.fullmatch(cells[head.host])
            and len(self.hosts) < MOST_HOSTS
        ):
            self.hosts.setdefault(rank, clean(cells[head.host]))
        found: list[Cell] = []
        for at, part, name, scale in head.columns:
            if (seconds := _seconds(cells[at], scale)) is not None:
                found.append((rank, part, name, seconds))
        return found

    def _of_columns(self, head: _Head, cells: list[str]) -> list[Cell] | None:
        values = cells[-len(head.ranks) :]
        label = " ".join(cells[: -len(head.ranks)]).strip(" :")
        if len(cells) <= len(head.ranks) or not all(_NUMBER.fullmatch(value) for value in values):
            return None
        bare, scale = unit_of(label)
        part = self._part_of(bare)
        if head.of is not None:
            part, bare, scale = head.of
        if not part:
            return []
        seconds = [_seconds(value, scale) for value in values]
        return [(rank, part, bare, one) for rank, one in zip(head.ranks, seconds, strict=True) if one is not None]

    def _object(self, text: str) -> list[Cell] | None:
        try:
            said = json.loads(text)
        except (ValueError, RecursionError):
            return None
        if not isinstance(said, dict):
            return None
        rank = next((value for key, value in said.items() if _RANK.fullmatch(key)), None)
        if not isinstance(rank, int) or isinstance(rank, bool) or not 0 <= rank < 10_000_000:
            return None
        found: list[Cell] = []
        for key, value in list(said.items())[:64]:
            bare, scale = unit_of(key)
            if _is_time(value) and (part := self._part_of(bare)):
                found.append((rank, part, bare, float(value) * scale))
            elif isinstance(value, str) and _HOST.fullmatch(key) and _NODE.fullmatch(value):
                self.hosts.setdefault(rank, clean(value))
        return found or None


def _is_time(value: object) -> bool:
    """Whether it is a number that may be a time: JSON of others holds Infinity and integers of any length."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < LONGEST_TIME


def _cells(text: str, split: str) -> list[str]:
    if not split:
        return text.split()
    return [cell.strip(" \"'") for cell in text.strip("| " if split == "|" else " ").split(split)]


def _seconds(cell: str, scale: float) -> float | None:
    found = _NUMBER.fullmatch(cell)
    if found is None:
        return None
    return float(found[1]) * (SCALE[found[2][0]] if found[2] else scale)
