"""Lines that hold a node's name and nothing else, above what is that node's: `n031:`, `# n031`, `On n031:`.

    n031:                        salt 'n*' cmd.run ...: the output is indented by four
        [Mon Mar  2 ...] ...

Shape    names_in(lines) -> the names; name_of(line, names) -> the name that this line is, "" for none
Errors   none
Source   Salt's default outputter (nested): the minion's name and a colon, its output indented by four
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from probes.intake.hosts import alike, may_be_lone
from probes.intake.names import is_host, looks_like_a_node

_HEAD = re.compile(
    r"(?:#{1,4} {1,2}|\*\*|- )?(?P<said>(?:on|from|node|host|server|machine) )?`?(?P<name>[A-Za-z][\w.-]{0,62}?)`?"
    r"(?P<end>:|\*\*:?|:\*\*)?\s{0,4}",
    re.I,
)
_NUMBERED = re.compile(r"(?<=[a-z])[-_.]?\d{1,5}$", re.I)
MOST = 1024


def _found(line: str) -> re.Match[str] | None:
    """A name by itself needs a mark: a hash before it, or a colon behind."""
    found = _HEAD.fullmatch(line) if line[:1].isalpha() or line[:1] in "#*-`" else None
    return found if found and (found["end"] or line[:1] in "#*") else None


def names_in(lines: Sequence[str]) -> set[str]:
    """Several that are called alike, or one that can only be a node's. Parts of a
    machine, mlx5_0: and eth0:, are none."""
    told = [found for line in lines if len(line) < 120 and (found := _found(line))][:MOST]
    may = [found for found in told if may_be_lone(found["name"].partition(".")[0]) and "_" not in found["name"]]
    names = {found["name"] for found in may}
    sure = {found["name"] for found in may if found["said"] or looks_like_a_node(found["name"].partition(".")[0])}
    return (alike(names) & names) | sure


def places_in(words: set[str]) -> set[str]:
    """Of headings under which somebody typed those that differ in their number alone: a place with a shell is a machine
    or a pod, also where it is called worker-3."""
    names = {word for word in words if is_host(word) and _NUMBERED.search(word)}
    return names if len(names) > 1 and len({_NUMBERED.sub("#", name) for name in names}) == 1 else set()


def name_of(line: str, names: set[str]) -> str:
    found = _found(line) if names and len(line) < 120 else None
    return found["name"] if found and found["name"] in names else ""


def undented(body: list[str]) -> list[str]:
    """Without the four blanks that Salt puts before each line."""
    some = [line for line in body if line.strip()]
    return [line[4:] for line in body] if some and all(line.startswith("    ") for line in some) else body
