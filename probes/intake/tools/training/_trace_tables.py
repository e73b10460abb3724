"""The tables of torchfrtrace -j and of torch's debug server: calls of all ranks side by side, and collectives.

    Rank 0                                         Rank 1
    ---------------------------------------------  ---------------------------------------------
    all_reduce(input_sizes=[[8]], state=completed)  all_reduce(input_sizes=[[8]], state=completed)

    id    group_id  pass_check      collective_seq_id  collective_name    missing_ranks
    ----  --------  ------------  -------------------  -----------------  ---------------

Source: tabulate's "simple" form: a row of dashes below the heads tells where each column begins and ends
"""

from __future__ import annotations

import re
from collections import Counter

from probes.catalog.stacks.trace_report import Place
from probes.core import clean, lines_of

MOST_ROWS, MOST_COLUMNS = 100_000, 4_096
_DASHES = re.compile(r"-{2,100000}")
_NUMBERS = re.compile(r"\d{1,7}")
_RANK = re.compile(r"Rank (\d{1,6})$")
_CALL = re.compile(r"([a-z_]\w{2,60})\((?=[^\n]{0,4000}state=(\w{3,12}))")
_NAMED = re.compile(r"pg_description=([^,)]{1,80})")
_SIZES = re.compile(r"input_sizes=(\[[\d,\[\] ]{0,400}\])")


def rows_of(text: str, head: str) -> tuple[list[str], list[list[str]]]:
    """(heads, rows of cells) of the first table whose heads begin with this word."""
    lines = list(lines_of(text, 400_000))
    for at, line in enumerate(lines[:-1]):
        if line.lstrip().startswith(head) and set(lines[at + 1].strip()) <= {"-", " "} and "--" in lines[at + 1]:
            spans = [one.span() for one in _DASHES.finditer(lines[at + 1])][:MOST_COLUMNS]
            ends = [begin for begin, _ in spans[1:]] + [400_000]
            heads = [line[begin:end].strip() for (begin, _), end in zip(spans, ends, strict=True)]
            rows = []
            for row in lines[at + 2 : at + 2 + MOST_ROWS]:
                if not row.strip() or _DASHES.match(row):
                    break
                rows.append([row[begin:end].strip() for (begin, _), end in zip(spans, ends, strict=True)])
            return heads, rows
    return [], []


def of_collectives(text: str) -> list[Place]:
    """Of the debug server's table the collectives that not all have joined."""
    heads, rows = rows_of(text, "id")
    found = []
    for row in rows:
        told = dict(zip(heads, row, strict=True))
        missing = tuple(sorted({int(one) for one in _NUMBERS.findall(told.get("missing_ranks", ""))}))
        if not missing:
            continue
        seq, op = told.get("collective_seq_id", ""), told.get("collective_name", "")
        expected = tuple(sorted({int(one) for one in _NUMBERS.findall(told.get("expected_ranks", ""))}))
        group = told.get("pg_desc") or told.get("group_id", "")
        number = int(seq) if seq.isdecimal() and len(seq) < 18 else None
        state = told.get("collective_state", "")
        found.append(
            Place(
                clean(group)[:120],
                number,
                clean(op.partition(":")[2] or op)[:60],
                missing,
                (),
                "",
                expected,
                0,
                state[:20],
                "",
            )  # fmt: skip
        )
    return found[:256]


def of_calls(text: str) -> list[Place]:
    """Where the calls of the ranks part: of each group the first place at which some have no call, or another one."""
    heads, rows = rows_of(text, "Rank ")
    ranks = [int(one[1]) if (one := _RANK.match(head)) else -1 for head in heads]
    by_group: dict[str, dict[int, list[tuple[str, str, str]]]] = {}
    for column, rank in enumerate(ranks):
        for row in rows:
            call = _CALL.match(row[column][:4200])
            if rank < 0 or call is None or call[1] in ("send", "recv"):
                continue
            named, sizes = _NAMED.search(row[column][:4200]), _SIZES.search(row[column][:4200])
            calls = by_group.setdefault(named[1] if named else "", {}).setdefault(rank, [])
            calls.append((call[1], sizes[1] if sizes else "", call[2]))
    members = {rank for rank in ranks if rank >= 0}
    return [
        place
        for group, calls in by_group.items()
        if (place := _parted(group, {rank: calls.get(rank, []) for rank in (members if not group else calls)}))
    ]


def _parted(group: str, calls: dict[int, list[tuple[str, str, str]]]) -> Place | None:
    expected = tuple(sorted(calls))
    for at in range(max(map(len, calls.values()))):
        here = {rank: some[at] for rank, some in calls.items() if at < len(some)}
        missing = tuple(rank for rank in expected if rank not in here)
        waits = any(state != "completed" for *_, state in here.values())
        ops = Counter(op for op, _, _ in here.values()).most_common()
        sizes = Counter((op, size) for op, size, _ in here.values()).most_common()
        if len(ops) > 1:
            odd = tuple(rank for rank, (op, _, _) in here.items() if op != ops[0][0])
            error = "COLLECTIVE_TYPE_MISMATCH"
        elif len(sizes) > 1 and ops[0][0] not in ("all_to_all", "all_to_all_single", "scatter", "gather", "broadcast"):
            odd = tuple(rank for rank, (op, size, _) in here.items() if (op, size) != sizes[0][0])
            error = "SIZE_OR_SYNTAX_MISMATCH"
        elif missing and waits:
            return Place(group, at + 1, ops[0][0], missing, (), "", expected, len(expected), "scheduled", "")
        else:
            continue
        return Place(group, at + 1, ops[0][0], (), odd, error, expected, len(expected), "", "")
    return None
