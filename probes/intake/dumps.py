"""Flight-recorder dumps of a job, one per rank: the one that tells most, and none that is older than the others."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from probes.catalog.recorder.facts import Dump, FlightRecorder, Missing, dump_of
from probes.core import ParseError, Reading
from probes.intake.brought import Brought, DumpFile
from probes.intake.items import Unread
from probes.intake.who import Who

MOST_RANKS = 131_072
APART_S = 0.01  # one entry told twice differs by rounding only


@dataclass(frozen=True, slots=True)
class _Held:
    """`taken_with`: the file's path without its rank, which dumps of one moment share. `reached`: the last record."""

    file: DumpFile
    dump: Dump
    taken_with: str
    reached: int

    @property
    def score(self) -> tuple[int, int, bool, bool]:
        """The later tells more; of equals, who still waits (gloo forgets that when it gives up), and has stacks."""
        pending = sum(group.pending_count for group in self.dump.groups)
        stacks = any(entry.frames for group in self.dump.groups for entry in group.last[-1:])
        return self.reached, pending, stacks, self.dump.form == "pickle"


def dump_readings(
    brought: Brought, who: Who, reading: Callable[[str, str, Any], Reading]
) -> Iterator[tuple[str, Reading] | Unread]:
    """One reading per rank. A rank of which there is only a dump that is not read has a reading that says so."""
    held: dict[int, list[_Held]] = {}
    refused: dict[int, DumpFile] = {}
    for at, file in enumerate(brought.dumps):
        rank = who.of_dump(file)
        if file.packed is None:
            if rank is not None:
                refused.setdefault(rank, file)
        elif rank is None:
            yield Unread(file.ref, "a flight-recorder dump, but neither its name nor another file says of which rank")
        else:
            try:
                held.setdefault(rank, []).append(_held(file, rank, who))
                brought.dumps[at] = held[rank][-1].file  # of thousands of ranks the facts alone are kept
            except ParseError as error:
                yield Unread(file.ref, str(error))
    others = _other_runs(held)
    for rank, some in list(held.items()):
        for one in [one for one in some if one.taken_with in others]:
            yield Unread(
                one.file.ref, "a dump of another run than the newest ones here: two runs are not judged as one"
            )
        held[rank] = [one for one in some if one.taken_with not in others]
    held = {rank: some for rank, some in held.items() if some}
    best = {rank: max(some, key=lambda one: one.score) for rank, some in held.items()}
    outdated = _outdated(held, best)
    for rank in sorted(outdated):
        yield Unread(best[rank].file.ref, f"an older dump: other ranks moved on after it ({outdated[rank]})")
        del best[rank]
    for _, one in sorted(best.items()):
        facts = FlightRecorder(one.dump.host, (one.dump,), (), 0)
        yield one.file.ref, reading(one.dump.host, "rank.flight_recorder", facts)
    yield from _missing(best, refused, who, reading)


def _other_runs(held: dict[int, list[_Held]]) -> set[str]:
    """Of what was taken together, what contradicts the newest: one process cannot have made one entry at two moments.
    Two runs, or two jobs, lie in one folder then."""
    newest: dict[str, float] = {}
    for some in held.values():
        for one in some:
            newest[one.taken_with] = max(newest.get(one.taken_with, 0.0), max(_made(one).values(), default=0.0))
    if len(newest) < 2:
        return set()
    last = max(newest, key=lambda name: newest[name])
    found: set[str] = set()
    for some in held.values():
        of_last = [one for one in some if one.taken_with == last]
        found |= {one.taken_with for one in some for other in of_last if one is not other and _contradicts(one, other)}
    return found - {last}


def _made(one: _Held) -> dict[int, float]:
    """Record -> when it was made, as far as the dump tells."""
    rows = (entry for group in one.dump.groups for entry in (*group.last, *group.pending))
    return {row.record: row.created_at for row in rows if row.record is not None and row.created_at is not None}


def _contradicts(one: _Held, other: _Held) -> bool:
    """Whether two dumps cannot be of one process: an entry made at two moments, or a later one made earlier."""
    ours, theirs = _made(one), _made(other)
    if not ours or not theirs:
        return False
    if any(abs(ours[record] - theirs[record]) > APART_S for record in ours.keys() & theirs.keys()):
        return True
    early, late = sorted((ours, theirs), key=max)
    return max(late) > max(early) and late[max(late)] < early[max(early)] - APART_S


def _missing(
    best: dict[int, _Held], refused: dict[int, DumpFile], who: Who, reading: Callable[[str, str, Any], Reading]
) -> Iterator[tuple[str, Reading]]:
    """Ranks of which no dump counts, where others have one: said for each, with the folder as the place."""
    world = max([one.dump.world_size or 0 for one in best.values()], default=0)
    places: dict[tuple[str, str], list[Missing]] = {}
    folder = next((one.file.ref.rpartition("/")[0] for _, one in sorted(best.items())), "")
    for rank in [rank for rank in range(min(world, MOST_RANKS)) if rank not in best]:
        file = refused.get(rank)
        why = f"{file.ref}: {file.why}" if file else "none is among the files"
        node = who.node_of_rank.get(rank, "")
        where = file.ref if file else _neighbour(best, node) or folder or "."
        one = Missing(rank, None, why[:1000], "", file is not None, None, None, None)
        places.setdefault((where, node), []).append(one)
    for (where, node), some in places.items():
        yield where, reading(node, "rank.flight_recorder", FlightRecorder(node, (), tuple(some), 0))


def _neighbour(best: dict[int, _Held], node: str) -> str:
    """The folder in which the dumps of a node lie."""
    there = (one.file.ref.rpartition("/")[0] for _, one in sorted(best.items()) if node and one.dump.host == node)
    return next(there, "")


def _held(file: DumpFile, rank: int, who: Who) -> _Held:
    dump = _dump(file, rank, who)
    records = [entry.record for group in dump.groups for entry in group.last if entry.record is not None]
    said = rank - who.shift.get(who.folder_node(file.inside), 0)
    parts = [part for part in file.inside.parts if part != dump.host]
    mine = re.compile(rf"(?<!\d)0*{said}(?!\d)")
    if mine.search(file.inside.name):  # dump-2/rank2.json: the folder's number is that of the moment
        taken_with = "/".join([*parts[:-1], mine.sub("#", parts[-1])])
    else:
        taken_with = mine.sub("#", "/".join(parts))
    return _Held(dataclasses.replace(file, packed=None), dump, taken_with, max(records, default=-1))


def _dump(file: DumpFile, rank: int, who: Who) -> Dump:
    """A file says neither when it was taken nor how: times since then are not known."""
    node, reduced = who.node(rank, file.inside), json.loads(file.packed or b"{}")
    pids, world = who.pids_of.get(rank, ()), file.world or who.world
    stamp = {"rank": rank, "pid": pids[0] if len(pids) == 1 else None, "world_size": world, "host": node,
        "how": "file", "path": file.ref[-400:], "mtime": None, "at": 0.0, "bytes": file.size}  # fmt: skip
    return dump_of(reduced, stamp)


def _outdated(held: dict[int, list[_Held]], best: dict[int, _Held]) -> dict[int, str]:
    """Ranks of which there is only a dump of a moment after which another rank was seen further on. Such a dump would
    make its rank look late. {rank: which rank moved}"""
    moved: dict[str, int] = {}
    for rank, some in held.items():
        for one in some:
            if one.taken_with != best[rank].taken_with and one.reached < best[rank].reached:
                moved.setdefault(one.taken_with, rank)
    return {rank: f"rank {moved[one.taken_with]} did" for rank, one in best.items() if one.taken_with in moved}
