"""What the ports of one node did between the two looks of ib.ports: how much they carried, which errors rose.

Units    Gb/s, percent of the port's rate, events per second
Shape    port_rates(reading) -> rows by port, or () where the reading has not two looks
Errors   none: facts of an older form show nothing
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from incidents.models import Reading
from probes.catalog.network.ib_facts import WORD, IbPorts, Port, rates_now
from probes.core import clean
from probes.stored import stored

TRAFFIC = re.compile(r"_(?:data|packets|wait|requests|connect)$|cnp|ecn")  # counters that are no errors
MOST = 6  # names that are told of one port


@dataclass(frozen=True, slots=True)
class Way:
    """One direction. None where it is not known; `percent` of the port's rate."""

    gbps: float | None
    percent: float | None


@dataclass(frozen=True, slots=True)
class Row:
    """`errors`: in words, "" where none rose. `unknown`: why some are not known, "" where all are."""

    port: str
    rate_gbps: float | None
    sends: Way
    receives: Way
    errors: str
    unknown: str

    @property
    def ways(self) -> tuple[Way, Way]:
        return self.sends, self.receives


def port_rates(reading: Reading) -> tuple[Row, ...]:
    if reading.probe != "ib.ports" or not reading.facts:
        return ()
    facts = stored("", reading.probe, "ok", "", reading.facts, []).facts
    if not isinstance(facts, IbPorts):
        return ()
    changed = rates_now(facts)
    return tuple(_row(port, changed[port.name]) for port in facts.ports if changed.get(port.name))


def _row(port: Port, changed: Mapping[str, float | str]) -> Row:
    errors = {name: rate for name, rate in changed.items() if not TRAFFIC.search(name)}
    numbers = ((rate, name) for name, rate in errors.items() if isinstance(rate, float))
    rising = sorted((one for one in numbers if one[0] > 0), reverse=True)
    told = [f"{clean(name)[:40]} {rate:,.{0 if rate >= 10 else 2}f}/s" for rate, name in rising[:MOST]]
    if len(rising) > MOST:
        told.append(f"{len(rising) - MOST} more")
    why = sorted({f"{clean(name)[:40]} {rate}" for name, rate in errors.items() if isinstance(rate, str)})
    return Row(
        clean(port.name)[:72], port.rate_gbps, _way(port, changed.get("port_xmit_data")),
        _way(port, changed.get("port_rcv_data")), ", ".join(told), ", ".join(why[:2]) + (" …" if len(why) > 2 else ""),
    )  # fmt: skip


def _way(port: Port, words: float | str | None) -> Way:
    if not isinstance(words, float):
        return Way(None, None)
    gbps = words * WORD * 8 / 1e9
    return Way(gbps, 100 * gbps / port.rate_gbps if port.rate_gbps else None)
