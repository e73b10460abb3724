"""Which ports of the InfiniBand fabric count errors, as this node sees it, and which of them rise now?

Source   ibqueryerrors(8) of infiniband-diags with -r and no thresholds, twice, a second apart and more: it asks each
         port of the fabric for its counters (PMA, InfiniBand Architecture Specification vol. 1, 16.1.3.5) and prints
         those that are not 0. Since when they count nobody knows: only what rises between the two tells of now
Units    counters raw, which stop at their end (ib_counters.toml)
Shape    Counters: two sets of each port that counted, by node GUID; a counter that only the second names was 0
Errors   ParseError on what the tool cannot print. Absent without the tool or without InfiniBand; Denied without the
         right to send management datagrams. One look of 512 nodes with 4096 adapters took 4.1 s on a simulator (ibsim);
         on switches it never ran
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from probes.catalog.network import ib_fabric_collect
from probes.catalog.network.ib_queryerrors import SUMMARY, counted
from probes.catalog.network.net_facts import Counters, CounterSet
from probes.core import Finding, ParseError, Probe, clean, sections

__all__ = ["PROBE", "Counters", "findings", "parse"]

LOOK = "ibqueryerrors at "
MOST = 100_000  # ports


def _collect() -> Mapping[str, str]:
    import time

    found = {}
    for look in range(2):
        at = time.time()
        # A site's own file of thresholds would hide what is below them.
        arguments = ["-r", "--threshold-file", "/dev/null"]
        found[f"ibqueryerrors at {at:.3f}"] = ib_fabric_collect.ask("ibqueryerrors", arguments, (0, 1), 8388608)
        if look == 0:
            time.sleep(1.0)
    return found


def parse(text: str) -> Counters:
    """Blocks `==> ibqueryerrors at SECONDS <==`, the earlier first."""
    looks: list[list[CounterSet]] = []
    times: list[float] = []
    for title, body in sections(text).items():
        try:
            at = float(title.removeprefix(LOOK))
        except ValueError:
            raise ParseError(f"expected a block '==> {LOOK}SECONDS <==', found {clean(title)[:60]!r}") from None
        sets = counted(body, at)[:MOST]
        if body.strip() and not sets and SUMMARY not in body:
            raise ParseError(f"expected rows such as 'Errors for \"leaf-01\"', found {clean(body.strip())[:80]!r}")
        looks.append(sets)
        times.append(at)
    if len(looks) != 2:
        return Counters(tuple(one for sets in looks for one in sets))
    before = {(one.name, one.port): one for one in looks[0]}
    first = [_before(one, before.pop((one.name, one.port), None), times[0]) for one in looks[1]]
    return Counters((*first, *before.values(), *looks[1]))


def _before(now: CounterSet, told: CounterSet | None, at: float) -> CounterSet:
    """The first look at a port that the second names: what it did not print was 0."""
    counters = {**dict.fromkeys(now.counters, 0), **(told.counters if told is not None else {})}
    return replace(now, counters=counters, at=at)


def findings(facts: Counters) -> Iterator[Finding]:
    """None: counts since nobody knows when accuse nobody, and a rise is judged beside the nodes' own ports."""
    yield from ()


PROBE = Probe(
    "ib.fabric_errors",
    "Which ports of the InfiniBand fabric count errors, and which of them rise now?",
    parse,
    findings,
    collect=_collect,
    by_hand="sudo ibqueryerrors -r; sleep 1; sudo ibqueryerrors -r",
    timeout_s=18.0,
    max_bytes=16_777_216,
    touches="driver",
    needs="read and write on /dev/infiniband/umad*, or `sudo -n ibqueryerrors`",
    cost="not measured: there was no such hardware",
    brings=(ib_fabric_collect,),
)
