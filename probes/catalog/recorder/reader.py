"""Reads one flight-recorder dump of torch and keeps what a merge across ranks needs: megabytes become kilobytes.

Source   torch/csrc/distributed/c10d/FlightRecorder.hpp and FlightRecorderDetail.hpp of torch 2.13 (schema 2.10), and
         dumps of it; for older schemas, down to the bare list of torch 2.1 and 2.2, the history of these files
Units    seconds since the epoch, milliseconds
Shape    plain JSON values; _flight_recorder_facts reads them again
Errors   Refused, with why, for whatever is no dump

Brought to the node by rank.flight_recorder: standard library only, nothing newer than Python 3.6 but annotations.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import marshal
from collections.abc import Mapping
from typing import Any

from probes.catalog.recorder import decode, values

LIMITS = {
    "input_bytes": 67108864,  # 2000 entries with stacks have 0.3 MB
    "memory_bytes": 1073741824,  # of address space, see confine
    "cpu_s": 10,
    "entries": 20000,
    "groups": 256,
    "last": 24,  # entries told in full per group, beside the pending ones
    "pending": 64,  # per group
    "rows": 400,  # of both, over all groups
    "history": 200,  # collectives of each group whose signature is told
    "bytes": 200000,  # of the answer as JSON
}
SIGNED = ("profiling_name", "input_sizes", "output_sizes", "input_dtypes", "output_dtypes")
MOST_SEQ = 2**63
# Parts of a path that say: not the program of the job, but what it is built on.
LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python3", "/lib64/python3", "<frozen ", "/torch/")


def reduce(data: bytes, limits: Mapping[str, int] = LIMITS) -> dict[str, Any]:
    """One dump, pickle or JSON, as plain values. Raises Refused."""
    if len(data) > limits["input_bytes"]:
        raise decode.Refused(f"it has more than {limits['input_bytes']} bytes, which are not read")
    form, whole = decode.decode(data)
    if isinstance(whole, list) and whole:  # torch 2.1 and 2.2
        whole = {"version": "list", "entries": whole}
    if not isinstance(whole, dict) or not ({"entries", "pg_config", "pg_status"} & set(map(str, list(whole)[:64]))):
        raise decode.Refused("it holds none of entries, pg_config and pg_status, so it is no flight-recorder dump")
    entries = whole.get("entries", [])  # the key is missing from JSON when there are none
    if not isinstance(entries, (list, tuple)) or set(map(type, entries)) - {dict}:
        raise decode.Refused("its entries are not a list of records")
    reduced = _Reducer(whole, entries, limits).reduced()
    reduced["form"] = form
    return reduced


class _Group:
    def __init__(self, name: str, desc: str, pg_id: int | None):
        self.name, self.desc, self.pg_id = name, desc, pg_id
        self.backend = ""
        self.entries = []  # type: list[dict[str, Any]]
        self.ended = set()  # type: set[int]  # ids of entries whose end another entry tells


class _Reducer:
    """The tables that the rows of one dump point into, and the rows."""

    def __init__(self, whole: Mapping[str, Any], entries: Any, limits: Mapping[str, int]):
        self.whole, self.limits = whole, limits
        self.held = len(entries)
        self.entries = list(entries)[-limits["entries"] :]
        self.signatures = []  # type: list[list[Any]]
        self.frames = []  # type: list[list[Any]]
        self._signature_at = {}  # type: dict[Any, int]
        self._raw_signature_at = {}  # type: dict[bytes, int]
        self._frame_at = {}  # type: dict[Any, int]
        self._own = {}  # type: dict[str, bool]  # by path: whether it is the job's own program
        self.problems = []  # type: list[str]

    def reduced(self) -> dict[str, Any]:
        if self.held > len(self.entries):
            self.problems.append(f"{self.held - len(self.entries)} older entries were left out")
        groups = self._groups()
        dropped = [values.whole(entry.get("record_id")) for entry in self.entries[:1]]
        told = {
            "schema": values.text(self.whole.get("version"))[:20],
            "comm_lib_version": values.text(self.whole.get("comm_lib_version"))[:40],
            "entries": self.held,
            "first_record": dropped[0] if dropped else None,
            "groups": [self._group(group) for group in groups],
            "signatures": self.signatures,
            "frames": self.frames,
            "problems": self.problems,
        }
        return self._fitted(told)

    def _groups(self) -> list[_Group]:
        """In the order of first use; those that were only configured last."""
        found = {}  # type: dict[Any, _Group]
        seen = {}  # type: dict[Any, _Group]  # by the pair as the pickle has it: 2000 entries are of a few groups
        for entry in self.entries:
            pair = entry.get("process_group")
            quick = pair if type(pair) is tuple and len(pair) == 2 and type(pair[0]) is type(pair[1]) is str else None
            group = seen.get(quick) if quick else None
            if group is None:
                pg_id = values.whole(entry.get("pg_id"))
                if isinstance(pair, (list, tuple)) and len(pair) == 2:
                    name, desc = values.text(pair[0]), values.text(pair[1])
                else:
                    name, desc = str(pg_id), ""
                group = found.get((name, desc))
                if group is None:
                    if len(found) >= self.limits["groups"]:
                        continue
                    group = found[(name, desc)] = _Group(name, desc, pg_id)
                    group.backend = values.text(entry.get("profiling_name")).partition(":")[0]
                if quick:
                    seen[quick] = group
            group.entries.append(entry)
        config = self.whole.get("pg_config")
        named = {group.name for group in found.values()}
        for name, words in list(config.items())[:4096] if isinstance(config, dict) else ():
            if (
                isinstance(words, dict)
                and name
                and values.text(name) not in named
                and len(found) < self.limits["groups"]
            ):
                found[(name, None)] = _Group(values.text(name), values.text(words.get("desc")), None)
        return list(found.values())

    def _group(self, group: _Group) -> dict[str, Any]:
        collectives, p2p = {}, 0  # type: dict[int, list[dict[str, Any]]], int
        enqueued = started = completed = None  # type: int | None
        pending, timed_out = [], 0
        gloo = group.backend == "gloo"
        ended = set() if gloo else values.ended_parts(group.entries)
        group.ended = ended
        for entry in group.entries:  # most of the time is spent here
            state = entry.get("state")
            done = state == "completed" or (gloo and entry.get("retired") is True) or id(entry) in ended
            if not done:
                pending.append(entry)
                timed_out += self._timed_out(group, entry)
            if entry.get("is_p2p") is True:
                p2p += 1
                continue
            seq = entry.get("collective_seq_id")
            if type(seq) is not int or not -MOST_SEQ < seq < MOST_SEQ:
                seq = self._seq(entry)
                if seq is None:
                    continue
            if seq in collectives:
                collectives[seq].append(entry)
            else:
                collectives[seq] = [entry]
            if enqueued is None or seq > enqueued:
                enqueued = seq
            if done:
                if completed is None or seq > completed:
                    completed = seq
            elif state == "started" and (started is None or seq > started):
                started = seq
        if completed is not None and (started is None or completed > started):
            started = completed
        told = {
            "name": group.name,
            "desc": group.desc,
            "pg_id": group.pg_id,
            "backend": group.backend,
            "enqueued": enqueued,
            "started": None if group.backend == "gloo" else started,  # gloo never tells
            "completed": completed,
            "first": min(collectives) if collectives else None,
            "held": len(group.entries),
            "p2p": p2p,
            "pending_count": len(pending),
            "timed_out": timed_out,
            "pending": [self._row(group, entry) for entry in pending[: self.limits["pending"]]],
            "last": [self._row(group, entry) for entry in group.entries[-self.limits["last"] :]],
            "history": self._history(collectives),
        }
        told.update(values.configured(self.whole, group.name, group.desc, group.pg_id))
        return told

    @staticmethod
    def _seq(entry: Mapping[str, Any]) -> int | None:
        return values.whole(entry.get("collective_seq_id", entry.get("seq_id")))

    @staticmethod
    def _done(group: _Group, entry: Mapping[str, Any]) -> bool:
        """Gloo leaves every state at "scheduled" and only retires what has ended, failures too."""
        retired = group.backend == "gloo" and entry.get("retired") is True
        return entry.get("state") == "completed" or retired or id(entry) in group.ended

    @staticmethod
    def _timed_out(group: _Group, entry: Mapping[str, Any]) -> bool:
        """FlightRecorder.hpp: "a retired but not completed event has timed out"."""
        return group.backend != "gloo" and entry.get("retired") is True and entry.get("state") != "completed"

    def _history(self, collectives: Mapping[int, list[dict[str, Any]]]) -> list[Any]:
        """[first seq, [signature or list of signatures or null per seq]]: several in one coalesced collective."""
        if not collectives:
            return []
        last = max(collectives)
        first = max(min(collectives), last - self.limits["history"] + 1)
        marks = []  # type: list[Any]
        for seq in range(first, last + 1):
            some = [self._signature(entry) for entry in collectives.get(seq, [])[:32]]
            marks.append(some[0] if len(some) == 1 else some or None)
        return [first, marks]

    def _row(self, group: _Group, entry: Mapping[str, Any]) -> list[Any]:
        """The columns of _flight_recorder_facts.COLUMNS."""
        duration = entry.get("duration_ms")
        known = isinstance(duration, (int, float)) and not isinstance(duration, bool) and 0 <= duration < 1e15
        return [
            self._seq(entry),
            values.whole(entry.get("p2p_seq_id")),
            values.whole(entry.get("op_id")),
            values.whole(entry.get("record_id")),
            self._signature(entry),
            values.text(entry.get("state"))[:20],
            not self._done(group, entry),
            self._timed_out(group, entry),
            entry.get("is_p2p") is True,
            values.moment(entry, "time_created"),
            values.moment(entry, "time_discovered_started"),
            values.moment(entry, "time_discovered_completed"),
            round(duration, 3) if known else None,  # type: ignore[arg-type]
            values.whole(entry.get("timeout_ms")),
            values.whole(entry.get("thread_id")),
            self._stack(entry.get("frames")),
        ]

    def _signature(self, entry: Mapping[str, Any]) -> int:
        """What ranks must agree on, as a row of the table `signatures`."""
        try:
            raw = marshal.dumps([entry.get(key) for key in SIGNED], 2)  # half the time of str()
        except ValueError:  # nested without end
            return self._new_signature(entry)
        at = self._raw_signature_at.get(raw)
        if at is None:
            at = self._raw_signature_at[raw] = self._new_signature(entry)
        return at

    def _new_signature(self, entry: Mapping[str, Any]) -> int:
        sizes = values.sizes(entry.get("input_sizes")), values.sizes(entry.get("output_sizes"))
        types = values.words(entry.get("input_dtypes")), values.words(entry.get("output_dtypes"))
        key = (values.text(entry.get("profiling_name")), sizes, types)
        at = self._signature_at.get(key)
        if at is None:
            digest = hashlib.sha256(repr(key).encode("utf-8", "replace")).hexdigest()[:12]
            few = [[list(size) for size in sizes[side][:8]] for side in (0, 1)]
            name = [key[0], few[0], list(types[0][:8]), few[1], list(types[1][:8]), len(sizes[0]), digest]
            at = self._signature_at[key] = len(self.signatures)
            self.signatures.append(name)
        return at

    def _stack(self, frames: Any) -> list[int]:
        """The innermost frames of the job's own program, or of whatever there is, as rows of the table `frames`."""
        if not isinstance(frames, (list, tuple)):
            return []
        known = [frame for frame in frames[:256] if isinstance(frame, dict)]
        own = list(itertools.islice(filter(self._is_own, known), 3))
        rows = []
        for frame in own or known[:2]:
            key = (values.text(frame.get("name")), values.text(frame.get("filename")), values.whole(frame.get("line")))
            if key not in self._frame_at:
                self._frame_at[key] = len(self.frames)
                self.frames.append(list(key))
            rows.append(self._frame_at[key])
        return rows

    def _is_own(self, frame: Mapping[str, Any]) -> bool:
        path = frame.get("filename")
        if type(path) is not str:
            return True
        is_own = self._own.get(path)
        if is_own is None:
            is_own = self._own[path] = not any(part in path[: values.TEXT] for part in LIBRARIES)
        return is_own

    def _fitted(self, told: dict[str, Any]) -> dict[str, Any]:
        """Within the limits of rows and bytes: stacks go first, then old entries, then pending ones, then history."""
        rows = sum(len(group["last"]) + len(group["pending"]) for group in told["groups"])
        if rows > self.limits["rows"]:
            most = max(1, self.limits["rows"] // (2 * len(told["groups"])))
            self.problems.append(f"{len(told['groups'])} groups: the last {most} entries of each are told")
            for group in told["groups"]:
                group["last"], group["pending"] = group["last"][-most:], group["pending"][:most]
        for part in ("frames", "last", "pending", "history", "signatures", "groups"):
            if len(json.dumps(told)) <= self.limits["bytes"]:
                break
            self.problems.append(f"too much for one answer: {part} left out")
            if part in ("frames", "signatures", "groups"):
                told[part] = []
            for group in told["groups"]:
                if part in group:
                    group[part] = []
                for row in [*group["last"], *group["pending"]] if part == "frames" else ():
                    row[-1] = []
        return told
