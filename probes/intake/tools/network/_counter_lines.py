"""Lines in which names of counters stand beside numbers: one a line or many, as rows or as columns of a table.

    cn01 15:20:00 mlx5_0 port_xmit_wait 208119 port_xmit_discards 0      [e1] eth4 rx_prio3_pause: 12
    port_xmit_wait 12 -> 90 in 30 s        out_of_sequence +120 (60 s)   node_infiniband_..._total{device="mlx5_0"} 3
    host  hca  xmit_wait  out_of_sequence                                rx_prio3_pause   12   40   (one column a host)

Shape    Lines(text).read() -> Looks; `used` of `lines` told something
Errors   none
"""

from __future__ import annotations

import re
from dataclasses import replace

from probes.core import lines_of
from probes.intake.hosts import alike
from probes.intake.tools.network._counter_names import canonical, short
from probes.intake.tools.network._counter_sets import KEYS, Looks, Where, candidates, cells_of, device, seen_in, told
from probes.intake.when import moment_in, seconds_in

WIDEST = 8000  # characters of a line
_NUM = r"\d[\d,_]{0,30}(?:\.\d{1,9})?(?:[eE][+-]?\d{1,3})?(?: ?[kKMGT](?![\w/]))?"
_PAIR = re.compile(
    r"(?<![\w.-])([A-Za-z]\w{3,79})(?:\{([^{}\n]{0,400})\})?[\"')\]]?"
    r"(?:\s?[:=]\s{0,12}|\s?:?\.{2,60}:?\s?|(?:\s(?:rose|rises|grew|grows|went|is|was|at|by|from|up|now|of|counter)){1,3}\s"
    r"|\s{1,40}|\s?\|\s?)[\"'(]?"
    rf"(\+?{_NUM})(\s?/\s?s(?:ec)?\b)?(?:\s?(?:->|→|=>|to)\s?({_NUM}))?"
)
_ROW = re.compile(rf"^\W{{0,4}}([A-Za-z]\w{{3,79}})[\s:=|,]{{1,60}}({_NUM}(?:[\s|,;]{{1,40}}{_NUM}){{1,63}})\W{{0,8}}$")
_ALONE = re.compile(r"^(?:==> )?(?:\S{0,200}/)?([A-Za-z]\w{3,79})(?: <==)?:?$")
_DIFFERS = re.compile(r"\b(?:delta|deltas|diff|differences?|increases?|rise|rose|grew|growth|change)\b|[Δ∆]", re.I)
_FIRST = re.compile(r"(?:before|first|start|begin|old|earlier|t0|t=0|read ?1|1st|#1|prev(?:ious)?)", re.I)
_LAST = re.compile(r"(?:after|second|end|new|later|now|last|t1|read ?2|2nd|#2|curr(?:ent)?)", re.I)
_SUFFIX = re.compile(
    r"(\w{4,60}?)[_. @]?"
    r"(?:\(?(before|first|t0|start|after|second|t1|end|delta|diff|rate|[0-2]?\d:[0-5]\d(?::[0-5]\d)?)\)?)$",
    re.I,
)
_AHEAD = re.compile(r"(?:delta|diff|[Δ∆])[_ ]?(?:of_)?([A-Za-z]\w{4,60})", re.I)  # delta_PortXmitWait
_CLOCK = re.compile(r"\d{1,2}:\d\d(?::\d\d)?")
_PFC = re.compile(r"^\s{0,16}(?:Port|Interface) ([RT]x)((?:\s{1,16}PFC[0-7]){2,8})\s*$")
_BER = re.compile(r"\b(effective|eff|symbol)(?:[ _]physical)?[ _]BER\b", re.I)
_WHOSE = re.compile(
    rf"^(\W{{0,4}}[A-Za-z][\w.-]{{1,60}}(?:[ /|,:]{{1,6}}[A-Za-z][\w./-]{{1,30}})?)[ :=|,]{{1,12}}(\+?{_NUM})"
    rf"(?:(?:[ |,;/]|->|→){{1,12}}({_NUM}))?\W{{0,6}}$"
)
_STAMP = re.compile(r"\s(1[5-9]\d{8})(?:\d{3}){0,3}\s{0,4}$")


def number(text: str, times: int = 1) -> int | None:
    """A whole number, also with thousands, a power of ten or a unit. `times`: of rates of errors, parts in 10^18."""
    text = text.strip().lstrip("+").replace(",", "").replace("_", "")
    unit = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}.get(text[-1:].lower(), 1)
    text = text[:-1].strip() if unit > 1 else text
    try:
        value = float(text) if not text.isdecimal() else int(text)
    except ValueError:
        return None
    return int(value * times * unit) if value * times < 1e24 else None


def _of(name: str, text: str) -> int | None:
    return number(text, 10**18 if name.endswith("_e18") else 1)


class Lines:
    def __init__(self, text: str) -> None:
        self._lines = list(lines_of(text, WIDEST))
        self._hosts = self._names()
        self.looks = Looks()
        self.used = self.lines = 0
        self._here = Where()
        self._head: list[str] = []  # cells of a line that may head what follows
        self._columns: list[str] = []
        self._csv = False  # its heads are parted by commas: those in its rows part no thousands
        self._pending: Where | None = None
        self._name = ""
        self._title = ""  # the counter that a line by itself names, of which columns below it are looks
        self._differs = False
        self._two = False  # the title tells of two looks
        self._seconds: float | None = None
        self.interval: float | None = None

    def read(self) -> Looks:
        for line in self._lines:
            if not line.strip():
                self._columns = []
                continue
            self.lines += 1
            self.used += self._take(line)
        return self.looks

    def _names(self) -> frozenset[str]:
        words: set[str] = set()
        for line in self._lines[:4000]:
            words |= candidates(re.split(r"[\s,|]+|:(?=[A-Za-z])", line.strip())[:6])
        return frozenset(alike(words))

    def _take(self, line: str) -> bool:
        value = number(line) if self._pending is not None and len(line) < 40 else None
        if self._pending is not None and value is not None:
            self.looks.put(self._pending, self._name, value)
            self._pending = None
            return True
        self._pending = None
        if self._columns and self._table_row(line):
            return True
        if (row := _ROW.match(line[:2000])) and (name := canonical(row[1])) and self._across(line, name, row[2]):
            return True
        pairs = [(one, name) for one in _PAIR.finditer(line) if (name := _named(one[1]))][:400]
        if pairs:
            self._pairs(line, pairs)
            return True
        if self._title and self._of_title(line):
            return True
        if (alone := _ALONE.match(line.strip()[:400])) and (name := canonical(alone[1])):
            self._name, self._title = name, name
            self._pending = seen_in(line.replace(alone[1], ""), self._here, self._hosts)
            return True
        return self._heading(line)

    def _of_title(self, line: str) -> bool:
        """`n2 rdma0 6100000`, of the counter that a line above names; two numbers where it names two looks."""
        row = _WHOSE.match(line[:200])
        value = _of(self._title, row[2]) if row else None
        where = seen_in(row[1], self._here, self._hosts) if row else self._here
        last = _of(self._title, row[3]) if row and row[3] else None
        if (
            row is None
            or value is None
            or (last is not None and not self._two)
            or (where.node, where.name, where.switch) == (self._here.node, "", "")
        ):
            return False
        if not where.name and self._here.name:  # the title names the adapter of all
            where = replace(where, kind=self._here.kind, name=self._here.name)
        if last is not None:
            self.looks.between(where, self._title, value, last, self._seconds)
        elif self._differs or row[2][:1] == "+":
            self.looks.rose(where, self._title, value, self._seconds)
        else:
            self.looks.put(where, self._title, value)
        return True

    def _heading(self, line: str) -> bool:
        if pfc := _PFC.match(line[:400]):  # of SONiC: one table for each direction
            self._columns = ["port", *(f"{pfc[1].lower()}_prio{n}_pause" for n in re.findall(r"\d", pfc[2]))]
            return True
        cells = [_AHEAD.sub(r"\1_delta", cell) for cell in cells_of(line)]
        named = [short(_SUFFIX.sub(r"\1", cell)) or short(cell) for cell in cells]
        plain = not any(number(cell) is not None for cell in cells)
        if (
            any(named)
            and plain
            and len(cells) > 1
            and (sum(map(bool, named)) > 1 or any(c.lower() in KEYS for c in cells))
        ):
            self._columns, self._csv = cells, line.count(",") == len(cells) - 1
            return True
        staged = [cell for cell in cells if _FIRST.fullmatch(cell) or _LAST.fullmatch(cell) or _CLOCK.fullmatch(cell)]
        if self._title and len(staged) > 1 and any(cell.lower() in KEYS for cell in cells):
            self._columns = [f"{self._title}_{cell}" if cell in staged else cell for cell in cells]
            return True
        self._title = _title(line) or self._title
        words = re.split(r"[^\w:#=]{1,20}", line[:400])
        self._two = (
            sum(bool(_FIRST.fullmatch(one) or _LAST.fullmatch(one) or _CLOCK.fullmatch(one)) for one in words) > 1
        )
        self._head = cells
        where = seen_in(line, self._here, self._hosts)
        told_new = where != self._here
        self._here = where
        self._differs = bool(_DIFFERS.search(line[:400]))
        self._seconds = seconds_in(line) or (self._seconds if told_new or self._differs else None)
        self.interval = self.interval or self._seconds
        return False

    def _pairs(self, line: str, pairs: list[tuple[re.Match[str], str]]) -> None:
        before = line[: pairs[0][0].start()]
        rest = line[pairs[-1][0].end() :]
        where = seen_in(before, self._here, self._hosts)
        if rest.strip() and (at := moment_in(rest)) is not None and where.at is None:
            where = replace(where, at=at)
        if stamp := _STAMP.search(line[-40:]):
            where = replace(where, at=float(stamp[1]))
        where = replace(where, rate=seen_in(line, where, frozenset()).rate)
        seconds = seconds_in(line) or self._seconds
        differs = self._differs or bool(_DIFFERS.search(before[-80:]) or _DIFFERS.search(rest[:40]))
        for one, name in pairs:
            mine = where
            for key, value in re.findall(r"(\w{1,40})=\"([^\"]{0,120})\"", one[2] or ""):
                mine = told(key.lower(), value, mine) if key.lower() in KEYS else mine
            value = _of(name, one[3])
            if value is None:
                continue
            if one[5] and (last := number(one[5])) is not None:
                self.looks.between(mine, name, value, last, seconds)
            elif one[4]:
                self.looks.rose(mine, name, value * 60, 60.0)
            elif one[3][:1] == "+" or differs or " by " in one[0]:
                self.looks.rose(mine, name, value, seconds)
            else:
                self.looks.put(mine, name, value)

    # Tables ----------------------------------------------------------------------------------------------------------

    def _table_row(self, line: str) -> bool:
        if re.fullmatch(r"[\s|+=:-]{2,400}", line[:400]):
            return True  # a rule below the heads
        plain = [cell.strip().strip('"') for cell in line.split(",")]
        cells = plain if self._csv and len(plain) == len(self._columns) else cells_of(line)
        if len(cells) == len(self._columns) + 1:  # a date and a time
            cells = next(
                ([*cells[:at], f"{cells[at]} {cells[at + 1]}", *cells[at + 2 :]] for at in range(len(cells) - 1)
                 if re.fullmatch(r"\d{4}-\d\d-\d\d", cells[at])), cells,
            )  # fmt: skip
        if len(cells) != len(self._columns):
            self._columns = []
            return False
        where = replace(self._here, kind="", name="", port=None, label="")
        values: list[tuple[str, str, str]] = []
        for head, cell in zip(self._columns, cells, strict=True):
            ends = _SUFFIX.match(head)
            name = short(head) or (short(ends[1]) if ends else "")
            if name:
                values.append((name, cell, ends[2].lower() if ends and not short(head) else ""))
            elif head.lower().strip("#()") in KEYS and not (head.lower() == "name" and device(cell) is None):
                where = told(head.lower().strip("#()"), cell, where)
            else:
                where = seen_in(cell, where, self._hosts)
        values, seconds = _staged(values)
        firsts = {name: number(cell) for name, cell, stage in values if _FIRST.fullmatch(stage)}
        for name, cell, stage in values:
            value = _of(name, cell.rpartition("/")[0] or cell) if re.fullmatch(rf"\+?{_NUM}(?:/s)?", cell) else None
            if value is None or _FIRST.fullmatch(stage or "-"):
                continue
            first = firsts.get(name)
            if _LAST.fullmatch(stage or "-") and first is not None:
                self.looks.between(where, name, first, value, seconds or self._seconds)
            elif stage in ("delta", "diff") or cell[:1] == "+":
                if name not in firsts:
                    self.looks.rose(where, name, value, self._seconds)
            elif stage == "rate" or cell.endswith("/s"):
                self.looks.rose(where, name, value * 60, 60.0)
            elif self._differs:
                self.looks.rose(where, name, value, self._seconds)
            else:
                self.looks.put(where, name, value)
        return True

    def _across(self, line: str, name: str, rest: str) -> bool:
        """One counter, a number for each host, port or look."""
        numbers = [value for one in re.findall(_NUM, rest) if (value := number(one)) is not None]
        heads = self._head[-len(numbers) :] if len(self._head) >= len(numbers) else []
        where = self._here
        places = [seen_in(head, where, self._hosts) for head in heads]
        if places and len({place.key() for place in places}) == len(numbers):
            for place, value in zip(places, numbers, strict=True):
                self.looks.put(place, name, value)
            return True
        times = [moment_in(head) for head in heads]
        if heads and all(at is not None for at in times):
            for at, value in zip(times, numbers, strict=True):
                self.looks.put(replace(where, at=at), name, value)
            return True
        if len(numbers) == 2 or (len(numbers) == 3 and numbers[1] - numbers[0] == numbers[2]):
            self.looks.between(where, name, numbers[0], numbers[1], self._seconds or seconds_in(" ".join(heads)))
            return True
        return False


def _named(word: str) -> str:
    return canonical(word) or (short(word) if "_" in word else "")


def _title(line: str) -> str:
    """The counter that a line names, which is no row of values itself."""
    if ber := _BER.search(line[:300]):
        return f"{'symbol' if ber[1][:1] in 'sS' else 'effective'}_ber_e18"
    return next((name for word in re.findall(r"[A-Za-z]\w{4,60}", line[:300])[:24] if (name := _named(word))), "")


def _staged(values: list[tuple[str, str, str]]) -> tuple[list[tuple[str, str, str]], float | None]:
    """Columns of one counter that are headed by times, as before and after; and the seconds from one to the other."""
    seen: dict[str, float] = {}
    found, seconds = [], None
    for name, cell, stage in values:
        at = moment_in(stage if stage.count(":") == 2 else f"{stage}:00") if _CLOCK.fullmatch(stage) else None
        if at is not None:
            seconds = at - seen[name] if name in seen and at > seen[name] else seconds
            stage = "after" if name in seen else "before"
            seen.setdefault(name, at)
        found.append((name, cell, stage))
    return found, seconds
