"""Sections of rank.map into its facts."""

from __future__ import annotations

from typing import Any

from probes.catalog._collected import (
    as_object,
    as_rows,
    number_or_none,
    whole,
    whole_or_none,
    wholes,
    word,
    word_or_none,
)
from probes.catalog.ranks.rank_facts import Child, Rank, RankMap, Unread
from probes.core import ParseError, sections


def parse(text: str) -> RankMap:
    """Rows of the collector: one JSON object per process, and one about the scan."""
    parts = sections(text)
    if "golden15/scan" not in parts:
        raise ParseError(f"no section golden15/scan, only {', '.join(parts)[:120]}")
    scan = as_object(parts["golden15/scan"], "golden15/scan")
    what = "golden15/ranks"
    children: dict[int, list[Child]] = {}
    found: list[dict[str, Any]] = []
    for row in as_rows(parts.get(what, ""), what):
        if row.get("worker_of") is None:
            found.append(row)
        else:
            children.setdefault(whole(row, "worker_of", what), []).append(child(row, what))
    orphans = as_rows(parts.get("golden15/orphans", ""), "golden15/orphans")
    return RankMap(
        tuple(_rank(row, tuple(children.get(whole(row, "pid", what), ())), what) for row in found),
        tuple(child(row, "golden15/orphans") for row in orphans),
        tuple(unread(row) for row in as_rows(parts.get("golden15/unread", ""), "golden15/unread")),
        whole(scan, "denied", "golden15/scan"),
        whole(scan, "seen", "golden15/scan"),
        whole(scan, "skipped", "golden15/scan"),
        sum(whole_or_none(scan, f"cut {kind}", "golden15/scan") or 0 for kind in ("ranks", "orphans", "unread")),
    )


def _rank(row: dict[str, Any], children: tuple[Child, ...], what: str) -> Rank:
    visible = row.get("visible")
    if not isinstance(visible, dict):
        raise ParseError(f"{what}: expected an object as visible, found {str(visible)[:60]!r}")
    restarts = row.get("restarts")
    return Rank(
        whole(row, "rank", what),
        whole(row, "world_size", what),
        whole_or_none(row, "local_rank", what),
        whole_or_none(row, "local_world_size", what),
        whole_or_none(row, "node_rank", what),
        word_or_none(row, "run_id", what),
        word_or_none(row, "slurm_job", what),
        word_or_none(row, "master", what),
        word(row, "source", what, 16),
        whole(row, "pid", what),
        whole(row, "ppid", what),
        word(row, "comm", what),
        word(row, "state", what, 4),
        whole(row, "started", what),
        number_or_none(row, "start_time", what),
        whole_or_none(row, "uid", what),
        wholes(row, "ns_pids", what),
        wholes(row, "wrappers", what),
        {word({"": key}, "", what, 64): word(visible, key, what, 1024) for key in list(visible)[:8]},
        int(restarts) if isinstance(restarts, str) and restarts.isdecimal() and len(restarts) < 10 else None,
        children,
    )


def child(row: dict[str, Any], what: str) -> Child:
    """A process that a rank has started, or left."""
    return Child(
        whole(row, "rank", what),
        whole(row, "pid", what),
        whole(row, "ppid", what),
        word(row, "comm", what),
        word(row, "state", what, 4),
        number_or_none(row, "start_time", what),
        wholes(row, "ns_pids", what),
    )


def unread(row: dict[str, Any], what: str = "golden15/unread") -> Unread:
    """A process whose environment could not be read."""
    return Unread(
        whole(row, "pid", what),
        whole(row, "ppid", what),
        word(row, "comm", what),
        word(row, "state", what, 4),
        word(row, "wchan", what),
        word(row, "why", what),
    )
