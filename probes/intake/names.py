"""What the names of files and folders say: which rank, which of its children, which node.

Shape    named(path) -> Named; nodes_of(paths) -> folder: node
Errors   none: what a name does not say is None
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

# The rank by a word, rank0 or nccl_trace_rank_0, and what may stand before it: local_rank0 is another number.
_RANK = re.compile(r"(local|node|group)?[_-]?rank[_.=-]?(\d{1,6})(?!\d)", re.I)
_SHORT = re.compile(
    r"(?:^|[^a-z0-9])(?!r\d{1,3}-(?:r?u|n|s|c|b)\d{1,3}(?!\d))"  # r12-u07: a rack, and what is in it
    r"(?:r|worker|trainer)[_.-]?(\d{1,6})(?![a-z0-9])(?!(?<=-r\d)-[a-z]{0,4}\d{1,3}(?!\d))"
    r"(?!(?<=-r\d\d)-[a-z]{0,4}\d{1,3}(?!\d))", re.I,
)  # fmt: skip
_CHILD = re.compile(r"(?:child|worker|loader)[_.-]?(\d{1,6})(?!\d)", re.I)
_LAST = re.compile(r"(?:^|[._-])(\d{1,5})$")  # fr.0, stderr_3, 0
_GLUED = re.compile(r"(\d{1,6})$")  # a prefix with the rank behind it, as torch writes dumps
_FORMS = (".txt", ".log", ".json", ".out", ".err", ".stderr", ".stdout", ".pickle", ".pkl", ".dump", ".trace", ".gz",
    ".bz2", ".xz", ".bin", ".dat", ".raw")  # fmt: skip
_NO_RANK = re.compile(
    r"(?:^|[^a-z])(?:slurm|job|jobid|pid|attempt|node|host|gpu|step|epoch|iter)[_.-]?\d"
    r"|_-{1,2}[a-z][a-z-]{0,20}_\d{1,9}(?:\.\d{1,3})?$",
    re.I,
)  # the value of an option of the command that is the name, and which run of it in one session
_LOCAL = re.compile(r"\d{1,4}")


@dataclass(frozen=True, slots=True)
class Named:
    """`rank` is what the name says for certain, `maybe` a number that may be one (of a dump it is), `local` a local
    rank, as in torchrun's run folder (attempt_0/3). `child`: the number of a worker of the rank. `attempt` counts
    restarts."""

    rank: int | None = None
    maybe: int | None = None
    local: int | None = None
    child: int | None = None
    attempt: int | None = None


def stem(name: str) -> str:
    """A file's name without the endings that only tell its form."""
    for _ in range(3):
        ending = next((form for form in _FORMS if name.lower().endswith(form) and len(name) > len(form)), "")
        name = name[: len(name) - len(ending)] if ending else name
    return name


def named(path: PurePosixPath) -> Named:
    """From the file's name first, then from its folders, the nearest first."""
    name = stem(path.name)[:200]
    folders = [part[:200] for part in reversed(path.parts[:-1])]
    rank, rest = _rank(name)
    child = _CHILD.search(rest) if rank is not None or "child" in rest.lower() else None
    if rank is None:
        rank = next((found for part in folders if (found := _rank(part)[0]) is not None), None)
    locals_ = (one for part in (name, *folders) for one in _RANK.finditer(part))
    local = next((int(one[2]) for one in locals_ if one[1] and one[1].lower() == "local"), None)
    attempt = None
    for inner, outer in zip(folders, folders[1:], strict=False):
        if outer.startswith("attempt_") and _LOCAL.fullmatch(inner):
            local = int(inner)
            attempt = int(outer[8:]) if _LOCAL.fullmatch(outer[8:]) else None
    last = None if _NO_RANK.search(name) else _LAST.search(name)
    maybe = int(last[1]) if last else None
    if maybe is None and folders and local is None and _LOCAL.fullmatch(folders[0]):
        maybe = int(folders[0])
    return Named(rank, maybe, local, int(child[1]) if child else None, attempt)


def _rank(part: str) -> tuple[int | None, str]:
    """The rank that a name says, and what else it says."""
    found = next((one for one in _RANK.finditer(part) if not one[1]), None)
    if found:
        return int(found[2]), part[: found.start()] + " " + part[found.end() :]
    short = _SHORT.search(part)
    return (int(short[1]), part[: short.start()] + " " + part[short.end() :]) if short else (None, part)


def without_rank(name: str) -> str:
    """What else a name says: n02_.log of n02_rank13.log."""
    return _rank(name)[1]


def after_prefix(path: PurePosixPath) -> int | None:
    """The number right behind the prefix of a dump, `<prefix>12`."""
    found = _GLUED.search(stem(path.name))
    return int(found[1]) if found else None


# Nodes ----------------------------------------------------------------------------------------------------------------

KEYED = re.compile(r"(?:node|node_?name|host|host_?name|instance|machine|pod)=([A-Za-z][\w.-]{0,62})", re.I)
_HOST = re.compile(r"[a-z][a-z0-9]*(?:[-_.][a-z0-9]+){0,8}", re.I)
_NODE_WORD = re.compile(r"(?:^|[-_.])(?:node|gpu|host|dgx|hgx|gb|ip|compute|cn|nid|[ahb][12]00)(?=[-_.\d])", re.I)
_OTHER = re.compile(
    r"(?:global_?)?rank|r\d{1,6}(?![a-z\d])(?!-(?:r?u|n|s|c|b)\d{1,3}(?!\d))|worker|attempt|local|proc|child|step|run|try|case|test|job|incident|inc|log|dump|stack|trace"
    r"|slurm|none|evidence|capture|pyspy|spy|nccl|fr|flight|v\d{1,4}(?![a-z\d])|part|batch|epoch|iter|tmp|out|err|data|files?|new|old"
    r"|samples?|snap|shot|poll|look|round|take|before|after|first|second|third|t\d{1,4}(?![a-z\d])|stage",
    re.I,
)


def is_host(name: str) -> bool:
    """Whether a node may be called so."""
    return bool(_HOST.fullmatch(name))


_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
_KEY = re.compile(r"(?:node|node_?name|host|host_?name|instance|machine)=(?=[A-Za-z0-9])", re.I)


def is_address(name: str) -> bool:
    """Whether it is the IPv4 address by which somebody calls a node."""
    return bool(_ADDRESS.fullmatch(name)) and all(int(part) < 256 for part in name.split("."))


def without_keys(path: PurePosixPath) -> PurePosixPath:
    """`node=gpu-017/dmesg.txt`, as collectors and object stores lay files out, as gpu-017/dmesg.txt."""
    return PurePosixPath(*[_KEY.sub("", part) or part for part in path.parts])


def is_other(name: str) -> bool:
    """Whether it begins as what is no node: rank3, step-7, out."""
    return bool(_OTHER.match(name))


def begins_as_other(name: str) -> bool:
    """rank3, step-7 and out, but not pollux or frontier4, which only begin with the letters of poll and fr."""
    letters = re.match(r"[A-Za-z]{0,60}", name)
    return is_other(name) and (letters is None or len(letters[0]) < 3 or is_other_word(letters[0]))


def is_other_word(word: str) -> bool:
    """Whether the whole word is of what is no node."""
    return bool(_OTHER.fullmatch(word))


def looks_like_a_node(name: str) -> bool:
    """Whether a folder's name by itself is a node's: gpu-017, node3, ip-10-0-0-4."""
    return bool(_HOST.fullmatch(name) and _NODE_WORD.search(name) and any(c.isdigit() for c in name))


def _says_so(name: str) -> bool:
    return name.startswith("sosreport-") or bool(KEYED.fullmatch(name))


def _below_nodes(folder: PurePosixPath) -> bool:
    """nodes/worker-b6, as must-gather and people lay nodes out: what the folder above says counts for any name."""
    return (
        folder.parent.name.lower() in ("nodes", "hosts")
        and bool(re.search(r"\d", folder.name))
        and is_host(folder.name)
    )


def _shape(name: str) -> str:
    return re.sub(r"\d+|(?<=[-_])[a-z]$", "#", name)


def nodes_of(
    folders: Iterable[PurePosixPath], hosts: Iterable[str], of_nodes: Iterable[PurePosixPath]
) -> set[PurePosixPath]:
    """Which folders are those of one node each. `hosts`: names that the content of files gave; `of_nodes`: folders that
    directly hold what is of a whole node, such as a kernel log.

    A folder is one when its name is such a host, reads like a node's or is an address, when it lies in a folder of
    nodes, or when it and its neighbours
    differ in their number only (lab-a1, lab-a2) and hold what is of a node, or are like one that is known.
    """
    known, whole = set(hosts), set(of_nodes)
    found = set()
    neighbours: dict[tuple[PurePosixPath, str], set[PurePosixPath]] = {}
    for folder in folders:
        name = folder.name
        if not name:
            continue
        told = name in known or name.partition(".")[0] in known or _below_nodes(folder)
        if told or is_address(name) or looks_like_a_node(name) or _says_so(name):
            found.add(folder)
        elif _HOST.fullmatch(name) and not begins_as_other(name):
            neighbours.setdefault((folder.parent, _shape(name)), set()).add(folder)
    shapes = {_shape(folder.name) for folder in found if folder.name in known and _shape(folder.name) != folder.name}
    for same in neighbours.values():
        if len(same) > 1 and (same & whole or any(_shape(folder.name) in shapes for folder in same)):
            found |= same
    return found
