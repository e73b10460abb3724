"""Lists of nodes as clush, pdsh and Slurm fold them: gpu-[017-020,023],login1.

Shape    folded(word) -> names, () for none; at most MOST_NODES
Errors   none
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from probes.intake.names import is_host
from probes.intake.prefixed import MOST_NODES, is_node


def folded(word: str, ruled: bool = False) -> tuple[str, ...]:
    """The nodes of a name, or of a folded list with a count behind it, as clush prints it. `ruled`: between two rules,
    where dshbak and clush put nodes and nothing else, whatever they are called."""
    plain = re.sub(r" \(\d{1,6}\)$", "", word)
    if is_node(plain) or (ruled and plain != word and is_host(plain)):
        return (plain,)
    if ruled and plain != word and (several := plain.split(",")) and f"{plain} ({len(several)})" == word:
        return tuple(several[:MOST_NODES]) if all(map(is_host, several)) else ()
    if not re.fullmatch(r"[A-Za-z][\w.-]{0,62}\[[\d,-]{1,400}\][\w.,\[\]-]{0,400}", plain):
        return ()
    names = tuple(_unfolded(plain))
    return names if len(names) <= MOST_NODES and all(ruled or is_node(name) for name in names) else ()


def _unfolded(word: str) -> Iterator[str]:
    """The names of gpu-[017-020,023],login1, as far as MOST_NODES."""
    for part in re.findall(r"[^,\[]+(?:\[[\d,-]*\])?[^,\[]*", word)[:MOST_NODES]:
        before, bracket, rest = part.partition("[")
        ranges, _, after = rest.partition("]")
        if not bracket:
            yield before
            continue
        for one in ranges.split(","):
            first, _, last = one.partition("-")
            last = last or first
            if first.isdigit() and last.isdigit() and int(last) - int(first) < MOST_NODES:
                for number in range(int(first), int(last) + 1):
                    yield f"{before}{number:0{len(first)}}{after}"
