"""Reads for one reading's evidence: what its outcome means, what to do about it, its facts as a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from incidents import clock
from incidents.models import NodeVisit, Reading
from incidents.queries.fleet import clock_offset
from probes import catalog
from probes.core import SEVERITIES, Probe
from probes.transport.reasons import REASONS


@dataclass(frozen=True, slots=True)
class Meaning:
    """What an outcome means and what a person does about it; `next` is "" when there is nothing to do."""

    says: str
    next: str = ""


# One line per outcome. {needs}, {where} and {stuck} are filled in from the probe and the reading.
OUTCOMES: dict[str, Meaning] = {
    "ok": Meaning("The node answered, and the answer could be read."),
    "absent": Meaning(
        "What this probe asks about is not on this node.",
        "Nothing, if it is not meant to be there. If it is, its absence is the fault: compare with a node that has it.",
    ),
    "failed": Meaning(
        "The probe ended with an error or an answer that cannot be read: nothing is known from it.",
        "Read the outputs below, then type the command by hand on the node.",
    ),
    "timeout": Meaning(
        "There was no full answer within the deadline, and the process could still be stopped.",
        "The node is slow here, not stuck: see its load and storage, then ask again.",
    ),
    "hung": Meaning("The process cannot be stopped: {where}. It was left alone.", "{stuck}"),
    "denied": Meaning("This login may not read it.", "It needs {needs}. Allow that to the login, then ask again."),
    "unreachable": Meaning(
        "The node could not be reached.", "Look at it from its console or BMC; see whether it has power and network."
    ),
    "skipped": Meaning(
        "It was not asked, so nothing is known.",
        "See what came before it on this node: a probe that hung, or time that was over. Then ask again.",
    ),
}

# By what the probe touches, for a process in state D.
STUCK = {
    "driver": "Do not ask the driver again: each further call waits on the same lock. Look at host.kernel_log for Xid "
    "lines and blocked tasks, then drain the node; only a reboot frees it.",
    "disk": "Do not touch the same path again. Look at host.storage: a mount whose server is away holds every process "
    "that touches it.",
    "": "Do not ask this again. Look at host.kernel_log for blocked tasks; the wchan names what the kernel waits for.",
}


def meaning(reading: Reading) -> Meaning:
    """What this reading's outcome means. A node that could not be asked says it in the words of its reason."""
    if known := REASONS.get(reading.reason):
        visit = NodeVisit.objects.filter(run=reading.run_id, node=reading.node_id).first()
        detail = f" ({visit.detail})" if visit and visit.detail else ""
        return Meaning(f"{_upper(known.says)}{detail}.", f"{_upper(known.next)}.")
    if reading.file:
        ok = reading.outcome == "ok"
        says = "Read from a file that somebody brought; nobody asked the node." if ok else "It could not be read."
        return Meaning(says, "" if ok else "Bring it again, whole and as the tool wrote it.")
    found = OUTCOMES[reading.outcome]
    probe = _probe(reading)
    words = {
        "needs": (probe.needs if probe else "") or "more rights than this login has",
        "where": _where(reading),
        "stuck": STUCK.get(probe.touches if probe else "", STUCK[""]),
    }
    return Meaning(found.says.format(**words), found.next.format(**words))


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _where(reading: Reading) -> str:
    state = f"state {reading.state}" if reading.state else "its state is not known"
    return f"{state}, in {reading.wchan}" if reading.wchan else state


def _probe(reading: Reading) -> Probe[object] | None:
    return catalog.load().get(reading.probe)


def by_hand(reading: Reading) -> str:
    """What a person types on the node to see the same; "" for a probe that is not in the catalogue any more."""
    probe = _probe(reading)
    return probe.by_hand if probe else ""


def offset(reading: Reading) -> str:
    """How far the node's clock was from ours in the same run: `+1.2 ± 0.3 ms`; "" when that is not known."""
    kept = Reading.objects.filter(run=reading.run_id, node=reading.node_id, probe="host.clock", outcome="ok").first()
    return clock_offset(kept.facts) if kept and kept.facts else ""


def findings(reading: Reading) -> list[dict[str, str]]:
    """Its findings, the worst first."""
    return sorted(reading.findings, key=lambda found: -SEVERITIES.index(found["severity"]))


# Facts as a table ---------------------------------------------------------------------------------------------

# Of one table; how deep; scalars of one list; characters of one value. What is beyond stands in the JSON.
ROWS, DEPTH, ITEMS, LONGEST = 600, 6, 24, 2000
UNITS = {"s": "s", "ms": "ms", "us": "µs", "mhz": "MHz", "w": "W", "mib": "MiB", "kib": "KiB", "gib": "GiB", "c": "°C"}
UNITS |= {"percent": "%", "bytes": "bytes", "gbps": "Gb/s"}
LONG_AGO = 1e8  # s; a smaller time is not since the epoch, but since the boot or another event
NAMES = ("bus_id", "name", "device", "mount", "hca", "port", "pid", "index")  # what tells one of a list from another


@dataclass(frozen=True, slots=True)
class Fact:
    """One row: a name, and either its value in words or the rows inside it."""

    name: str
    says: str = ""
    inside: tuple[Fact, ...] = ()


def facts(value: object) -> tuple[Fact, ...]:
    """A reading's facts as rows. Units are taken from the names of facts (`offset_s`), which end in them."""
    budget = iter(range(ROWS))
    return tuple(_rows(value, 0, budget)) if isinstance(value, dict) else ()


def _rows(value: dict[str, object], depth: int, budget: Iterator[int]) -> Iterator[Fact]:
    for name, item in value.items():
        if next(budget, None) is None:
            yield Fact("more", "see the JSON")
            return
        yield _row(name, item, depth, budget)


def _row(name: str, item: object, depth: int, budget: Iterator[int]) -> Fact:
    stem, _, last = name.rpartition("_")
    unit = UNITS.get(last, "") if stem else ""
    plain = (stem if unit else name).replace("_", " ")
    if isinstance(item, list) and any(isinstance(one, dict) for one in item):
        item = {_named(one, i): one for i, one in enumerate(item)}
    if isinstance(item, dict) and item:
        if depth >= DEPTH:
            return Fact(plain, "see the JSON")
        return Fact(f"{plain} ({unit})" if unit else plain, "", tuple(_rows(item, depth + 1, budget)))
    if last == "at" and isinstance(item, int | float) and item > LONG_AGO:
        return Fact(plain, f"{clock.moment(item)} UTC")
    return Fact(plain, _words(item, unit))


def _named(one: object, i: int) -> str:
    if not isinstance(one, dict):
        return f"{i + 1}"
    named = [str(one[name]) for name in NAMES if one.get(name) not in (None, "")]
    return f"{i + 1}: {' '.join(named[:2])}" if named else f"{i + 1}"


def _words(item: object, unit: str) -> str:
    if item is None:
        return "not known"
    if isinstance(item, bool):
        return "yes" if item else "no"
    if isinstance(item, list):
        told = ", ".join(_words(one, "") for one in item[:ITEMS])
        more = f" and {len(item) - ITEMS} more" if len(item) > ITEMS else ""
        return f"{told}{more}{f' {unit}' if unit and told else ''}" if item else "none"
    if isinstance(item, dict):
        return "none"
    if unit == "bytes" and isinstance(item, int) and item >= 1 << 20:
        return f"{item / (1 << 30):.2f} GiB" if item >= 1 << 30 else f"{item / (1 << 20):.1f} MiB"
    if isinstance(item, float):
        number = f"{item:.3f}" if 1e6 <= abs(item) < 1e15 else f"{item:.6g}"
    else:
        number = str(item)[:LONGEST] or "nothing"
    return f"{number} {unit}".strip()
