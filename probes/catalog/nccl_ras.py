"""Which ranks does NCCL itself miss, or see out of step with the others?

Source   NCCL's RAS service (2.24 and later), localhost:28028 or NCCL_RAS_ADDR of a rank: VERBOSE STATUS, as JSON where
         it is known (2.28.7), else as text; asked twice, a second apart. Any node of a job answers for the whole job
Units    launches of operations since the communicator was made; seconds
Shape    Ras (see _ras_facts.py)
Errors   ParseError when an answer is not RAS's. Absent when nobody listens: NCCL is older, RAS is off, or no NCCL runs
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from probes.catalog.nccl import ras_ask
from probes.catalog.nccl.ras_facts import Communicator, Lag, Missing, Ras, Report, lags, moved
from probes.catalog.nccl.ras_json import of_json
from probes.catalog.nccl.ras_text import is_text, of_text
from probes.core import Finding, ParseError, Probe, clean, sections

MANY, MANY_COMMUNICATORS = 32, 128  # findings of one kind, communicators judged; the facts hold the rest


def _collect() -> Mapping[str, str]:
    found: Mapping[str, str] = ras_ask.node_ras()
    return found


_BEGINS = re.compile(r"^[NR]CCL version \d", re.M)


def parse(text: str) -> Ras:
    """The sections of the collector, or one saved report (`ncclras -v`, with `-f json` or without)."""
    if not text.lstrip().startswith("==> "):
        return _by_hand(text)
    parts = sections(text)
    polls = [_report(parts[name]) for name in ("poll 1", "poll 2") if name in parts]
    if not polls:
        raise ParseError(f"no section with an answer of RAS, only {', '.join(parts)[:120]}")
    address, apart, other = _asked(parts.get("asked", "{}"))
    one, two = polls[0], polls[-1]
    both = len(polls) == 2
    return Ras(
        address,
        two,
        len(polls),
        apart if both else None,
        tuple(lags(one, two)) if both else (),
        moved(one, two) if both else None,
        other,
    )


def _by_hand(text: str) -> Ras:
    """One report, or several that somebody asked for one after the other: the first and the last are compared."""
    begins = [found.start() for found in _BEGINS.finditer(text)] if is_text(text) else []
    if len(begins) < 2:
        return Ras("", _report(text), 1, None)
    one, two = _report(text[begins[0] : begins[1]]), _report(text[begins[-1] :])
    return Ras("", two, len(begins), None, tuple(lags(one, two)), moved(one, two))


def _report(text: str) -> Report:
    return of_text(text) if is_text(text) else of_json(text)


def _asked(text: str) -> tuple[str, float | None, tuple[str, ...]]:
    try:
        said: dict[str, Any] = json.loads(text)
        times = [float(at) for at in said.get("at", ())]
        other = tuple(clean(f"{name}: {why}")[:200] for name, why in said.get("other", ()))
        return clean(str(said.get("address", "")))[:80], times[1] - times[0] if len(times) == 2 else None, other
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ParseError(f"section asked: expected an address and times ({error}), found {text[:60]!r}") from None


def findings(ras: Ras) -> Iterator[Finding]:
    """Processes that RAS lost, errors, and mismatches that lasted from one poll to the next."""
    for process in ras.report.processes[:MANY]:
        yield _process(process)
    gone = {(process.host, process.pid) for process in ras.report.processes}
    for communicator in ras.report.communicators[:MANY_COMMUNICATORS]:
        yield from _communicator(communicator, gone)
    for lag in sorted(ras.lags, key=lambda lag: (not lag.behind, lag.moved, lag.count))[:MANY]:
        yield _lag(lag, ras.apart_s or 0.0)


def _process(process: Missing) -> Finding:
    who = f"process {process.pid} on {process.host} (GPU {process.gpus})"
    subject: dict[str, str | int] = {"host": process.host, "pid": process.pid if process.pid is not None else "?"}
    if process.dead:
        return Finding("nccl.dead", "bad", f"RAS considers {who} dead: it has not answered for over 60 s", subject)
    return Finding("nccl.unresponsive", "bad", f"RAS gets no answer from {who}", subject)


def _communicator(one: Communicator, gone: set[tuple[str, int | None]]) -> Iterator[Finding]:
    for missing in [missing for missing in one.missing if (missing.host, missing.pid) not in gone][:MANY]:
        subject: dict[str, str | int] = {
            "communicator": one.hash,
            "rank": missing.rank if missing.rank is not None else "?",
        }
        if missing.unresponsive:
            says = f"RAS has no data of rank {missing.rank} of communicator {one.hash} ({missing.host})"
            yield Finding("nccl.unresponsive", "bad", says, subject)
        else:
            says = f"rank {missing.rank} on {missing.host} has left communicator {one.hash}, which others still use"
            yield Finding("nccl.left", "warn", says, subject)
    for member in [member for member in one.members if member.error][:MANY]:
        says = f"rank {member.rank} of communicator {one.hash} on {member.host} reports: {member.error}"
        yield Finding("nccl.error", "bad", says, {"communicator": one.hash, "rank": member.rank})
    states = {member.state for member in one.members if member.state}
    if len(states) > 1:
        few = [member for member in one.members if member.state and member.state != one.status]
        ranks = ", ".join(str(member.rank) for member in few[:16])
        says = f"ranks of communicator {one.hash} stand differently: {', '.join(sorted(states))}; look at {ranks}"
        yield Finding("nccl.state", "warn", says, {"communicator": one.hash})


def _lag(lag: Lag, apart: float) -> Finding:
    where = f"rank {lag.rank} of communicator {lag.communicator}" + (f" on {lag.host}" if lag.host else "")
    op = lag.op or "collective"
    subject: dict[str, str | int] = {"communicator": lag.communicator, "rank": lag.rank}
    if not lag.behind:
        says = f"{where} has launched {op} {lag.count}; most others have not got beyond {lag.usual}"
        return Finding("nccl.ahead", "warn", f"{says} in {apart:.1f} s", subject)
    says = f"{where} has launched {lag.count} {op} operations where most had launched {lag.usual} {apart:.1f} s before"
    if lag.moved:
        return Finding("nccl.behind", "warn", f"{says}: it moves, but is late", subject)
    return Finding("nccl.behind", "bad", f"{says}, and none since: the others wait for it", subject)


PROBE = Probe(
    "nccl.ras",
    "Which ranks does NCCL itself miss, or see out of step?",
    parse,
    findings,
    collect=_collect,
    brings=(ras_ask,),
    by_hand="printf 'verbose status\\n' | nc -w 5 localhost 28028",
    timeout_s=9.0,
    max_bytes=1_572_864,
    touches="network",
    cost="25 ms where no RAS answers",
)
