"""Tables that somebody made, with a row for each node or each GPU of it: GPUs that are seen, NVLinks that are up,
whether fabric manager runs and nvidia-smi answers, the last Xid. Whatever its marks: markdown, CSV, blanks.

    | node | GPUs in nvidia-smi | GPUs in lspci |        host,gpu,nvlinks_up        node   fabricmanager  nvidia-smi
    | n12  | 7                  | 8             |        n12,3,16                   n12    failed         hangs

Source   names of the columns are people's; what is usual is what most rows of the same table say
Shape    facts gpu.verdicts, of each node that differs
Errors   ParseError where no row tells of a fault
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from probes.core import ParseError
from probes.intake.names import is_address, is_host
from probes.intake.own_tables import table_in
from probes.intake.tools import Tool
from probes.intake.tools.gpu.gpu_verdicts import Verdict, Verdicts, findings

MOST = 20_000
_NODE = re.compile(r"(?:node|host|machine|server|instance|worker)(?:_?name)?s?", re.I)
_INDEX = re.compile(r"gpu(?:[ _]?(?:id|index|idx|no|#|nr))?", re.I)
_LINKS = re.compile(r"(?!.{0,40}(?:err|crc|replay|bw|gb|speed|total|expected)).{0,20}nv-?[ _]?links?", re.I)
_PCI = re.compile(r"(?=.{0,40}(?:lspci|pci|bus)).{0,20}(?:gpu|lspci|pci|devices)", re.I)
_SEEN = re.compile(
    r"(?!.{0,40}(?:util|mem|temp|pci|hours|power|clock|type|model|name|xid|ecc)).{0,20}gpus?(?:\b|_)", re.I
)
_MANAGER = re.compile(r".{0,20}(?:fabric[ _-]?manager|\bfm\b)(?!.{0,20}(?:vers|ver\b))", re.I)
_ANSWERS = re.compile(r"nvidia-smi(?: answers?| status| works\??| exit\w{0,5}| rc)?|driver(?: answers?| status)", re.I)
_XID = re.compile(r"(?:last |latest )?xids?(?: code| no)?", re.I)
_UP = re.compile(r"(?:is )?(?:running|active(?: \(running\))?|up|ok|yes|enabled|healthy|fine|started)", re.I)
_DOWN = re.compile(
    r"(?:is )?(?:failed|inactive|dead|stopped|down|not running|not started|no|exited|crashed|missing)\b.{0,60}", re.I
)
_HANGS = re.compile(
    r".{0,12}(?:hangs?|hung|time[ds]?[ -]?out|no(?: |t )?(?:answer|response|reply)|stuck|d[ -]state|blocked)\b.{0,60}",
    re.I,
)
_COUNT = re.compile(r"(\d{1,2})(?: ?(?:/|of) ?(\d{1,2}))?(?: (?:up|active|gpus?))?(?: ?[!*<(].{0,40})?", re.I)
Row = dict[str, str]


def _tells(name: str) -> bool:
    return (
        any(words.fullmatch(name) for words in (_ANSWERS, _XID))
        or any(words.match(name) for words in (_LINKS, _PCI, _MANAGER))
        or bool(_SEEN.match(name) and not _INDEX.fullmatch(name))
    )


def _is_head(names: Sequence[str], above: str) -> bool:
    return sum(bool(_NODE.fullmatch(one)) for one in names) == 1 and any(map(_tells, names))


def _table(text: str) -> tuple[str, list[Row]]:
    """(the column of nodes, rows) of the first such table."""
    table = table_in(text, _is_head, MOST)
    if table is None:
        return "", []
    node = next(one for one in table.heads if _NODE.fullmatch(one))
    return node, [row for row in table.dicts() if is_host(row[node]) or is_address(row[node])]


def _usual(rows: list[Row], name: str) -> int | None:
    """What most rows say, where at least two thirds agree; judgement."""
    counts = Counter(int(found[1]) for row in rows if (found := _COUNT.fullmatch(row[name])))
    value, often = counts.most_common(1)[0] if counts else (0, 0)
    return value if often > 1 and often * 3 >= 2 * counts.total() else None


def _verdicts(rows: list[Row]) -> Iterator[tuple[Row, Verdict]]:
    for name in rows[0]:
        usual = _usual(rows, name)
        pci = next((one for one in rows[0] if one != name and _PCI.match(one)), "")
        for row in rows:
            cell, index = row[name], next((row[one] for one in row if _INDEX.fullmatch(one)), "")
            gpu = int(found[1]) if (found := re.fullmatch(r"(?:GPU ?)?(\d{1,2})", index, re.I)) else None
            count = _COUNT.fullmatch(cell)
            number = int(count[1]) if count else None
            of_all = int(count[2]) if count and count[2] else usual
            if _INDEX.fullmatch(name) or _NODE.fullmatch(name):
                continue
            if _MANAGER.match(name) and _DOWN.fullmatch(cell) and any(_UP.fullmatch(one[name]) for one in rows):
                yield row, Verdict("gpu.switch_told", "bad", None, None, f"fabric manager: {cell[:60]}")
            elif _ANSWERS.fullmatch(name) and _HANGS.fullmatch(cell):
                yield row, Verdict("gpu.driver_no_answer", "bad", gpu, None, "does not answer")
            elif _XID.fullmatch(name) and number and count and not count[2]:
                yield row, Verdict("gpu.xid_written", "bad", gpu, number, f"had Xid {number}")
            elif _LINKS.match(name) and number is not None and of_all and number < of_all:
                yield row, Verdict("gpu.nvlink_inactive", "bad", gpu, number, f"has {number} of {of_all} NVLinks")
            elif _SEEN.match(name) and number is not None:
                there = _COUNT.fullmatch(row[pci]) if pci else None
                most = int(there[1]) if there else of_all
                if most and most // 2 < number < most:  # half as many are another kind of node
                    says = f"is missing: {number} of {most} are seen"
                    known = there or (count and count[2])
                    yield row, Verdict("gpu.not_visible" if known else "gpu.fewer_told", "bad", None, None, says)


def by_node(text: str) -> dict[str, Verdicts]:
    column, rows = _table(text)
    found: dict[str, list[Verdict]] = {}
    for row, verdict in _verdicts(rows) if rows else ():
        some = found.setdefault(row[column], [])
        if len(some) < 64:
            some.append(verdict)
    if not found:
        raise ParseError("a table of nodes: no row tells of a GPU at fault")
    return {node: Verdicts("a table that somebody made", tuple(some)) for node, some in found.items()}


def fits(head: str, name: str) -> bool:
    if not re.search(r"gpu|nv-?link|fabric|nvidia-smi|driver|xid", head[:4096], re.I):
        return False
    _, rows = _table(head)
    return bool(rows) and next(_verdicts(rows), None) is not None


def read(text: str) -> Verdicts:
    return next(iter(by_node(text).values()))


TOOL = Tool("tables of nodes and their GPUs", "gpu.verdicts", fits, read, findings, beside=True, by_node=by_node)
