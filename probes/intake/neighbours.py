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


def of_names(paths: Sequence[PurePosixPath]) -> set[str]:
    """Nodes of files of whole nodes that lie beside each other: tz-1_dmesg.txt and tz-2_dmesg.txt, ibstat_tz1.txt and
    ibstat_tz2.txt, or mlxlink_tz1_mlx5_0.json and mlxlink_tz2_mlx5_0.json."""
    words = [re.split(r"[._ ]+", without_time(stem(path.name)[:200])) for path in paths]
    last = [some[-1] for some in words if len(some) > 1 and NOT_NODE.fullmatch(some[0]) and not PART.match(some[-1])]
    # mlxlink_oak11_mlx5_0.json: the tool, the node, and which part of it
    inner = [some[1] for some in words if len(some) > 2 and NOT_NODE.fullmatch(some[0]) and not PART.match(some[1])]
    lone = (one for path in paths if (one := _only(path)))
    numbered = (one for path in paths if (one := lone_node(PurePosixPath(path.name))))
    return alike(plain(some[0]) for some in words) | alike(last) | alike(inner) | alike(lone) | alike(numbered)


def of_twins(insides: Iterable[PurePosixPath]) -> set[PurePosixPath]:
    """Folders beside each other with files of the same names, of whole nodes: alpha/dmesg.txt and beta/dmesg.txt."""
    groups: dict[tuple[PurePosixPath, str], set[PurePosixPath]] = {}
    for inside in insides:
        folder = inside.parent
        if folder.name and not node_of_name(PurePosixPath(inside.name), ()):
            groups.setdefault((folder.parent, inside.name), set()).add(folder)
    found = {folder for group in groups.values() if len(group) > 1 for folder in group}
    return {
        folder
        for folder in found
        if is_host(folder.name)
        and not begins_as_other(folder.name)
        and not NOT_NODE.fullmatch(folder.name)
        and not NO_NODE_FOLDER.fullmatch(folder.name)
        and named(PurePosixPath(folder.name)).rank is None
    }


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
    for inside in insides:
        who = named(inside)
        rank = who.rank if who.rank is not None else who.maybe
        word = numbered_word(without_rank(stem(inside.name)) if who.rank is not None else inside.name)
        folder = plain(inside.parent.name) if rank is not None or who.local is not None else ""
        above = {plain(one.name) for one in list(inside.parents)[2:]} if who.attempt is not None else set()
        for name in ({word, folder} | above) - {""}:
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
    return {name for group in apart for name in group}


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
