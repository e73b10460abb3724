"""Where does each rank of this node spend its time, and who holds its interpreter's lock?

Source   py-spy record --nonblocking --format raw (py-spy 0.4.3), on the node or sent along; where perf(1) is installed
         and may, perf record --call-graph dwarf of the main thread, for its native code: py-spy's --native stops the
         process while it looks, and refuses --nonblocking
Units    samples, 100 a second for three seconds; of perf 49 a second for two
Shape    Profiles: of each rank one of all running threads, one of the holder of the lock and one of native code; why
         others have none
Errors   ParseError when a part is not what the collector writes, naming the process
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from probes.catalog._collected import as_object, whole, whole_or_none, word
from probes.catalog.ranks import reach
from probes.catalog.stacks import profile_collect, stack_collect
from probes.catalog.stacks.profile import Profile, parse_profile
from probes.core import Finding, ParseError, Probe, sections

__all__ = ["PROBE", "RATE", "Profiles", "RankProfile", "findings", "parse"]

RATE = profile_collect.RATE  # samples a second


@dataclass(frozen=True, slots=True)
class RankProfile:
    """`profile` is None where there are no samples, and `why` says why: a process that only waits has none. `lock`: of
    whoever holds the interpreter's lock. `native`: of the main thread's native code, by perf."""

    pid: int
    rank: int | None
    lock: bool
    why: str
    profile: Profile | None
    native: bool = False


@dataclass(frozen=True, slots=True)
class Profiles:
    profiles: tuple[RankProfile, ...]
    left_out: int
    tool: str
    seconds: int


def _collect() -> Mapping[str, str]:
    return profile_collect.collect()


def parse(text: str) -> Profiles:
    """Parts of the collector."""
    head: dict[str, Any] = {}
    found = []
    for name, part in sections(text).items():
        if name == "golden15/tool":
            head = as_object(part, name)
        elif name.startswith("golden15/profile "):
            found.append(_profile(as_object(part, name), name))
    if not head:
        raise ParseError("expected the part golden15/tool, which the collector writes first")
    found.sort(key=lambda one: (one.rank is None, one.rank, one.pid, one.lock, one.native))
    what = "golden15/tool"
    return Profiles(
        tuple(found), whole(head, "left_out", what), word(head, "tool", what, 300), whole(head, "seconds", what)
    )


def _profile(row: dict[str, Any], what: str) -> RankProfile:
    rank, lock, native = whole_or_none(row, "rank", what), row.get("lock") is True, row.get("native") is True
    text, why = word(row, "text", what, 1_048_576).replace("\u240a", "\n"), word(row, "why", what, 500)
    profile = None
    if text.strip():
        try:
            profile = replace(parse_profile(text, least=1), lock=lock, rank=rank)
        except ParseError:
            why = why or f"what {'perf' if native else 'py-spy'} printed is no profile"
    else:
        why = why or "no thread of it ran while it was sampled: it waits"
    return RankProfile(whole(row, "pid", what), rank, lock, why, profile, native)


def findings(facts: Profiles) -> Iterator[Finding]:
    """What could not be sampled. What the samples mean is judged with the other ranks."""
    for one in facts.profiles:
        if one.profile is None and not one.lock and not one.native and "waits" not in one.why:
            subject = {"pid": one.pid} if one.rank is None else {"rank": one.rank, "pid": one.pid}
            who = f"process {one.pid}" if one.rank is None else f"rank {one.rank}"
            yield Finding("rank.no_profile", "warn", f"{who} without samples: {one.why}", subject)
    if facts.left_out:
        yield Finding("rank.too_many", "warn", f"{facts.left_out} ranks were not sampled: there are too many")


PROBE = Probe(
    "rank.profiles",
    "Where does each rank of this node spend its time, and who holds its interpreter's lock?",
    parse,
    findings,
    collect=_collect,
    by_hand="py-spy record --nonblocking --format raw --duration 3 --output /dev/stderr --pid PID",
    timeout_s=12.0,
    max_bytes=3_145_728,
    needs="root, CAP_SYS_PTRACE, or the login of who trains with ptrace_scope 0 or by sudo; py-spy, which can be sent",
    brings=(reach, stack_collect, profile_collect),
    attachments=("py-spy",),
    touches="process",
    cost="1.3 s: py-spy samples each rank for three seconds",
)
