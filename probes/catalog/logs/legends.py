"""What names beside times stand for in tables of ranks: their units, the rank within a column's name, legends.

    step=80 r0=401/212 r1=399/214 r2=598/9   # fwd ms / wait ms           a legend tells the values of each rank
    step,r0_compute_ms,r0_wait_ms,r1_compute_ms,r1_wait_ms                each rank has its columns

Source   none: everybody writes them so; `part_of` gives the part of a step that a name is of, "" for any other
Units    seconds
Shape    unit_of(name) -> (name, scale); by_legend(text, before, part_of) -> cells; columns_of(names, part_of)
Errors   none
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

Cell = tuple[int | None, str, str, float]  # rank (None: whose log it is), part, name, seconds
PartOf = Callable[[str], str]
LEAST = 3  # ranks
_UNIT = re.compile(r"(?i)[ _/\[(-]{1,2}(us|usec|ms|msec|millis|milliseconds|s|sec|secs|seconds)[\])]?$")
SCALE = {"u": 1e-6, "m": 1e-3, "s": 1.0}
SAYS_UNIT = re.compile(r"(?i)(?<![a-z])(us|usec|microseconds?|ms|msec|millis\w{0,7}|s|secs?|seconds?)(?![a-z])")
# Several values of each rank: "r16=1874/969 r17=1895/969", and the legend that names them in their order.
_EACH_SOME = re.compile(
    r"\b(?i:rank|r)[ _]?(\d{1,6})[ =:]{1,3}(\d{1,9}(?:\.\d{1,9})?(?:/\d{1,9}(?:\.\d{1,9})?){1,7})(?![\w./])"
)
# The rank in a column's name: r0_compute_ms, rank3.wait, wait_ms[rank 3], compute_r3_ms
_IN_NAME = re.compile(r"(?i)(?:^|(?<=[ _.:/\[{(-]))(?:rank|rk|r)[ _=]?(\d{1,6})(?=$|[ _.:/\]})-])")


def unit_of(name: str) -> tuple[str, float]:
    """`fwd_ms` is (fwd, 0.001), `compute (s)` is (compute, 1)."""
    found = _UNIT.search(name)
    if found is None:
        return name.strip().lower(), 1.0
    return name[: found.start()].strip().lower(), SCALE[found[1][0].lower()]


def by_legend(text: str, before: Sequence[str], part_of: PartOf) -> list[Cell]:
    """Several values of each rank in a line; a legend behind them, or in the lines `before`, tells what they are."""
    found = list(_EACH_SOME.finditer(text))
    if len(found) < LEAST or len({one[1] for one in found}) < len(found):
        return []
    width = found[0][2].count("/") + 1
    legends = (text[found[-1].end() :], text[: found[0].start()], *reversed(before))
    names = next((some for legend in legends if (some := _legend(legend, width, part_of))), ())
    return [
        (int(one[1]), part, name, float(value) * scale)
        for one in found
        for (part, name, scale), value in zip(names, one[2].split("/"), strict=False)
        if part
    ]


def _legend(text: str, width: int, part_of: PartOf) -> tuple[tuple[str, str, float], ...]:
    """What `width` names with strokes between them stand for, () where none has a unit."""
    said = text.rpartition("#")[2].rpartition(":")[2].split("/")
    units = [SAYS_UNIT.search(one) for one in said]
    shared = next((unit[1] for unit in reversed(units) if unit), "")
    if len(said) != width or not shared:
        return ()
    names = (f"{SAYS_UNIT.sub('', one).strip(' ()[],;')} {unit[1] if unit else shared}" for one, unit in
             zip(said, units, strict=True))  # fmt: skip
    return tuple((part_of(name), name, scale) for name, scale in map(unit_of, names))


def columns_of(names: Sequence[str], part_of: PartOf) -> tuple[list[int], list[tuple[int, str, str, float]]]:
    """(ranks, columns as (column, part, name, scale)), one by one, where each rank has columns of its own."""
    ranks, columns = [], []
    for at, name in enumerate(names):
        if (found := _IN_NAME.search(name)) is None:
            continue
        bare, scale = unit_of(f"{name[: found.start()]} {name[found.end() :]}".strip(" _.:/[]{}()-"))
        if part := part_of(bare):
            ranks.append(int(found[1]))
            columns.append((at, part, bare, scale))
    return (ranks, columns) if len(set(ranks)) >= LEAST else ([], [])
