"""Nodes by the names of several files or folders together: what differs in its number only, or holds the same files.

Shape    of_names, of_repeated, beside_known, of_logs and of_fabric give names, of_twins folders
Errors   none
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from probes.intake.hosts import (
    DEVICE,
    NO_NODE_FOLDER,
    NOT_NODE,
    NUMBERED,
    PART,
    TIME,
    alike,
    bare,
    lone_node,
    may_be_lone,
    node_of_name,
    numbered_word,
    plain,
    without_time,
)
from probes.intake.names import begins_as_other, is_host, named, stem, without_rank

if TYPE_CHECKING:
    from probes.intake.brought import NodeFile


# What people say of a file beside the name of its tool.
_SAYS = re.compile(
    r"(?:err|warn|brok|work|affect|unaffect|fail|norm|suspect|culprit|victim|other|rest|peer|mast|main|head|login|left|right"
    r"|short|filter|grep|train|eval|prod|dev|stag|run|hang|stuck|crash|clean|orig|bad|good|live|dead|cur|last|during|while"
    r"|middle|full|part|per|node|driver|boot|mine|ours|their|rdma|roce|infini|ether|gpu|cuda|slurm|k8s|kube|summ|detail|verb)",
    re.I,
)


def of_names(paths: Sequence[PurePosixPath]) -> set[str]:
    """Nodes of files of whole nodes that lie beside each other: tz-1_dmesg.txt and tz-2_dmesg.txt, ibstat_tz1.txt and
    ibstat_tz2.txt, or mlxlink_tz1_mlx5_0.json and mlxlink_tz2_mlx5_0.json."""
    words = [re.split(r"[._ ]+", without_time(stem(path.name)[:200])) for path in paths]
    last = [some[-1] for some in words if len(some) > 1 and NOT_NODE.fullmatch(some[0]) and not PART.match(some[-1])]
    # mlxlink_oak11_mlx5_0.json: the tool, the node, and which part of it
    inner = [some[1] for some in words if len(some) > 2 and NOT_NODE.fullmatch(some[0]) and not PART.match(some[1])]
    lone = (one for path in paths if (one := _only(path)))
    numbered = (one for path in paths if (one := lone_node(PurePosixPath(path.name))))
    worded: dict[str, set[str]] = {}  # sirius.dmesg and vega.dmesg
    for path in paths:
        if (one := _only(path)) and not any(c.isdigit() for c in one) and _may_be_named(one) and not _SAYS.match(one):
            worded.setdefault(path.name.replace(one, ""), set()).add(one)
    twins = {one for some in worded.values() if len(some) > 1 for one in some}
    return twins | alike(plain(some[0]) for some in words) | alike(last) | alike(inner) | alike(lone) | alike(numbered)


def of_twins(insides: Iterable[PurePosixPath]) -> set[PurePosixPath]:
    """Folders beside each other with files of the same names, of whole nodes: alpha/dmesg.txt and beta/dmesg.txt."""
    groups: dict[tuple[PurePosixPath, str], set[PurePosixPath]] = {}
    for inside in insides:
        folder = inside.parent
        if folder.name and not node_of_name(PurePosixPath(inside.name), ()):
            groups.setdefault((folder.parent, inside.name), set()).add(folder)
    found = {folder for group in groups.values() if len(group) > 1 for folder in group}
    return {folder for folder in found if _may_be_named(folder.name)}


def _may_be_named(name: str) -> bool:
    """Whether a node may be called so: sirius, but not before, nor a tool."""
    return (
        is_host(name)
        and not begins_as_other(name)
        and not NOT_NODE.fullmatch(name)
        and not NO_NODE_FOLDER.fullmatch(name)
        and named(PurePosixPath(name)).rank is None
    )


# What people call runs: their folders hold the same ranks again.
_RUN = re.compile(
    r"(?:exp|llama|gpt|qwen|mi[sx]tral|bert|vit|dpo|sft|rl|ft|finetune|pre-?train|train|base|ablat|debug|smoke|bench|sweep|seed)"
    r"\w{0,12}(?:$|[-_.])",
    re.I,
)


def of_launches(insides: Iterable[PurePosixPath]) -> dict[PurePosixPath, int | None]:
    """Folders of nodes that each hold the same local ranks below attempt_N, as torchrun lays logs out, and what makes
    those ranks of the job: known where the folders are numbered from 0 and hold as many each."""
    locals_of: dict[tuple[str, ...], set[int]] = {}
    for inside in insides:
        name = named(inside)
        at = next((at for at, part in enumerate(inside.parts) if part.startswith("attempt_")), 0)
        if at and name.local is not None and name.rank is None:
            locals_of.setdefault(inside.parts[:at], set()).add(name.local)
    shortest = min((len(root) for root in locals_of), default=0)
    apart = next((at for at in range(shortest) if len({root[at] for root in locals_of}) > 1), None)
    if apart is None:
        return {}
    found: dict[PurePosixPath, set[int]] = {}
    for root, mine in locals_of.items():
        found.setdefault(PurePosixPath(*root[: apart + 1]), set()).update(mine)
    plausible = all(_may_be_named(one.name) and not _RUN.match(one.name) for one in found)
    if not plausible or not set.intersection(*found.values()):
        return {}
    numbers = {one: int(last[0]) if (last := re.search(r"\d{1,6}$", one.name)) else -1 for one in found}
    whole = set(range(len(next(iter(found.values())))))
    even = all(mine == whole for mine in found.values()) and sorted(numbers.values()) == list(range(len(found)))
    return {one: numbers[one] * len(whole) if even else None for one in found}


def of_fabric(nodes: Iterable[NodeFile], folders: Iterable[PurePosixPath]) -> set[str]:
    """Nodes that a sweep of the fabric names and that stand in the names of files or folders."""
    nodes = list(nodes)
    there = "\n".join({str(one.inside)[:400] for one in nodes} | {str(one)[:400] for one in folders})
    names = {
        device.name.rpartition(" ")[0].split(" ")[0]
        for one in nodes if one.probe == "ib.fabric" and one.reading.facts is not None
        for device in one.reading.facts.devices[:50_000] if device.kind == "hca" and " " in device.name
    }  # fmt: skip
    return {name for name in names if 2 < len(name) < 64 and is_host(name) and name in there}


def of_logs(insides: Iterable[PurePosixPath]) -> set[str]:
    """Nodes of logs that lie beside each other: n7.log and n8.log, n02/rank13.log, train_rank13_n02.log. What two of
    them have the same rank of is no node: they are logs of two runs."""
    ranks: dict[str, set[int]] = {}
    worded: dict[str, set[int]] = {}  # vega.rank3.log and rigel.rank9.log
    for inside in insides:
        who = named(inside)
        rank = who.rank if who.rank is not None else who.maybe
        word = numbered_word(without_rank(stem(inside.name)) if who.rank is not None else inside.name)
        folder = plain(inside.parent.name) if rank is not None or who.local is not None else ""
        plain_word = _only(PurePosixPath(without_rank(inside.name))) if who.rank is not None else ""
        if plain_word and not any(c.isdigit() for c in plain_word) and _may_be_named(plain_word):
            worded.setdefault(plain_word, set()).add(rank or 0)
        for name in {word, folder} - {""}:
            if may_be_lone(name):
                ranks.setdefault(name, set()).update(() if rank is None else (rank,))
    told = alike(ranks)
    groups: dict[str, list[str]] = {}
    for name in told:
        groups.setdefault(NUMBERED.sub("#", name), []).append(name)
    apart = [
        group
        for group in groups.values()
        if sum(len(ranks[one]) for one in group) == len(set().union(*(ranks[one] for one in group)))
    ]
    found = {name for group in apart for name in group}
    return found | (
        set(worded)
        if len(worded) > 1
        and len({rank for some in worded.values() for rank in some}) == sum(map(len, worded.values()))
        else set()
    )


def of_repeated(paths: Iterable[PurePosixPath]) -> set[str]:
    """The node whose name begins several files of one node: am2.dmesg.txt and am2.ibstat.txt."""
    begins: dict[str, set[str]] = {}
    for path in paths:
        words = re.split(r"[._ ]+", stem(path.name)[:200])
        begins.setdefault(bare(words[0]), set()).add(path.name)
    some = {word for word, names in begins.items() if len(names) > 1}
    return {word for word in some if len(word) > 2 and word[-1:].isdigit() and may_be_lone(word)}


def beside_known(paths: Iterable[PurePosixPath], known: set[str]) -> set[str]:
    """Names of files that are like one of a node that something else names: kb-1.err of kb-1, then also kb-2.err."""
    words = {bare(re.split(r"[._ ]+", stem(path.name)[:200])[0]) for path in paths}
    groups = {NUMBERED.sub("#", word) for word in words & known}
    return {word for word in alike(words) | (words & known) if NUMBERED.sub("#", word) in groups}


def _only(path: PurePosixPath) -> str:
    """The one word of a file's name that is no tool, no adapter and no time; "" where there are several."""
    words = re.split(r"[._+,@ ]+", DEVICE.sub(" ", stem(path.name)[:200]))
    left = [one for word in words if word and (one := bare(word)) and not NOT_NODE.fullmatch(one)
            and not PART.match(one) and not TIME.search(one)]  # fmt: skip
    return left[0] if len(left) == 1 and len(words) > 1 else ""
