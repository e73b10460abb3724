"""A port runs slower or narrower than its peers, or bit errors rise on its cable: on which side decides what rises."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.job import quoted
from probes.diagnosis.ports import Ports, PortView, usual

CAUSE = "ib.link_degraded"
OVERRUN = "excessive_buffer_overrun_errors"  # flow control of the link fails: its cable or firmware, no bit errors
# Rise on the side that receives over a bad cable: InfiniBand Architecture Specification vol. 1, 16.1.3.5; mlx5.
ERRORS = ("link_error_recovery", "port_rcv_errors", "local_link_integrity_errors", "port_local_physical_errors",
    OVERRUN, "rx_symbol_err_phy", "rx_pcs_symbol_err_phy", "rx_crc_errors_phy", "symbol_errors", "effective_errors",
    "rx_icrc_encapsulated", "link_error_recovery_phy")  # fmt: skip
REMOTE = "port_rcv_remote_physical_errors"  # packets that a switch upstream had marked bad: not this cable
NOISY = ("HDR", "NDR", "XDR", "GDR")  # PAM4: symbol errors before correction are normal
SOFTWARE = ("rxe", "siw")  # RDMA in software: it tells a rate that means nothing
MANY, TIMES, FEWEST = 10, 10, 3  # judgement: errors, times those of other ports, ports that a usual rate needs
# Which receivers count even with correction, and how many; judgement: burn-in and reboots leave tens.
RECOVERIES = ("link_error_recovery", "link_error_recovery_phy")
HARD, THOUSANDS = ("port_rcv_errors", *RECOVERIES, "local_link_integrity_errors"), 1000
UNSET = 10.0  # Gb/s: what mlx5 tells of a port without a link
BER = 1000  # bit error rate after correction of 1e-15, in parts of 1e-18; judgement (field: 1e-12 warns)


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    ports: Ports = evidence.ports
    yield from _slow(evidence, ports)
    yield from _links(evidence)
    own = {id(view): _errors(view, ports) for view in ports.views.values()}
    rising = any(own.values())
    if not rising:
        yield from _swept(evidence, ports)
    for view in ports.views.values():
        if own[id(view)] or not rising:
            yield from _rising(evidence, ports, view, own)
        yield from _bit_errors(evidence, view)


def _hypothesis(evidence: Evidence, view: PortView, says: str, because: list[Reason], signals: list[str]) -> Hypothesis:
    if (said := _completions(evidence, view)) is not None:
        because.append(said)
        signals.append("completion_error")
    end = f" (its cable goes to {view.peer[0]} port {view.peer[1]})" if view.peer else ""
    adapter = evidence.ports.adapter_of(view)
    return Hypothesis(
        CAUSE, adapter.subject, says + end, tuple(because), tuple(signals),
        would_change=("the same counters a minute later, unchanged", "the port at the rate of its peers"),
        nodes=adapter.nodes,
    )  # fmt: skip


def _completions(evidence: Evidence, view: PortView) -> Reason | None:
    """A completion error on this adapter that is no flush: those follow another error."""
    for event, log, seen in evidence.job.said("ib_completion"):
        if not event.secondary and event.where.partition(":")[0] == view.hca and seen.node in (view.node, ""):
            return quoted(event, log, seen)
    return None


# Rate -----------------------------------------------------------------------------------------------------------------


def _slow(evidence: Evidence, ports: Ports) -> Iterator[Hypothesis]:
    told = set()
    for seen, finding in evidence.findings("ib.rate_low", "ib.width_low"):
        view = ports.views.get((seen.node, str(finding.subject["hca"]), int(finding.subject["port"])))
        if finding.severity == "bad" and view is not None:
            told.add(id(view))
            says = f"Port {view.called} {finding.says.partition(' ')[2]}"
            soft = view.hca.startswith(SOFTWARE) or _by_design(ports, view)
            signal = "link_slow" if finding.code == "ib.rate_low" else "link_narrow"
            if not soft:
                yield _hypothesis(evidence, view, says, [Reason(finding.says, seen.ref)], [signal])
    same_hca: dict[str, list[PortView]] = {}
    for view in ports.of_nodes:
        if view.rate_gbps is not None:
            same_hca.setdefault(view.hca, []).append(view)
    highest = {hca: max(view.rate_gbps or 0.0 for view in views) for hca, views in same_hca.items()}
    for view in ports.of_nodes:
        rate = view.rate_gbps
        if id(view) in told or rate is None or (view.facts is not None and view.facts.state not in ("ACTIVE", None)):
            continue
        if (beside := _beside(ports, view, rate, same_hca[view.hca])) is not None:
            says = f"{view.called} runs at {rate:g} Gb/s, other ports like it at {beside:g} Gb/s"
            yield _hypothesis(evidence, view, f"Port {says}", [Reason(says, view.ref)], ["link_slow"])
            continue
        if rate >= highest[view.hca]:  # nearly all: only few are compared with all others
            continue
        same = [one.rate_gbps for one in same_hca[view.hca] if one is not view and _alike(one, view)]
        most = usual(one for one in same if one is not None)
        if most is not None and rate < most and same.count(most) >= FEWEST - 1 and same.count(most) * 2 > len(same):
            says = (
                f"{view.called} runs at {rate:g} Gb/s, the same port of {same.count(most)} other nodes at {most:g} Gb/s"
            )
            yield _hypothesis(evidence, view, f"Port {says}", [Reason(says, view.ref)], ["link_slow"])
    yield from _interfaces(evidence, ports)


def _beside(ports: Ports, view: PortView, rate: float, same_hca: list[PortView]) -> float | None:
    """The rate of its node's other ports, two at least and all the same, that one by one were looked at: of the same
    model, or at which its twin on another node runs; None where that is not higher."""
    rates = [one.rate_gbps for one in ports.on(view.node)
        if one is not view and one.rate_gbps is not None and _alike(one, view)]  # fmt: skip
    if len(rates) < FEWEST - 1 or len(set(rates)) > 1 or rates[0] is None or rate >= rates[0] or rate <= UNSET:
        return None
    known = view.facts is not None and view.facts.hca_type is not None
    twins = [one.rate_gbps for one in same_hca if one.node != view.node]
    return rates[0] if (twins and set(twins) == {rates[0]}) or (known and not twins) else None


def _by_design(ports: Ports, view: PortView) -> bool:
    """The same port of two other nodes at least runs at this rate too, and none faster: nodes are built so."""
    same = [
        one.rate_gbps
        for one in ports.of_nodes
        if one is not view and (one.hca, one.port) == (view.hca, view.port) and one.rate_gbps is not None
    ]
    return len(same) >= FEWEST - 1 and all(rate == view.rate_gbps for rate in same)


def _alike(one: PortView, other: PortView) -> bool:
    if one.facts is None or other.facts is None:
        return True
    return (one.facts.link_layer, one.facts.hca_type) == (other.facts.link_layer, other.facts.hca_type)


def _interfaces(evidence: Evidence, ports: Ports) -> Iterator[Hypothesis]:
    """Network interfaces that no port is known of, by name: the same one on other nodes is faster."""
    attached = {id(view.link) for view in ports.of_nodes if view.link is not None}
    for (node, name), (link, ref) in ports.links.items():
        if id(link) in attached or not link.speed_gbps:
            continue
        same = [
            one.speed_gbps for (n, m), (one, _) in ports.links.items() if m == name and n != node and one.speed_gbps
        ]
        most = usual(same)
        if most is not None and link.speed_gbps < most and same.count(most) >= FEWEST - 1:
            says = (
                f"{name} on {node} runs at {link.speed_gbps:g} Gb/s, on {same.count(most)} other nodes at {most:g} Gb/s"
            )
            view = PortView(node, name, 1)
            yield _hypothesis(evidence, view, f"Interface {says}", [Reason(says, ref)], ["link_slow"])


def _links(evidence: Evidence) -> Iterator[Hypothesis]:
    """Cables of adapters that a sweep shows slower than most others."""
    for seen in evidence.of("ib.fabric"):
        devices = {one.guid: one for one in seen.facts.devices}
        cables = [one for one in seen.facts.links if one.a in devices and devices[one.a].kind == "hca" and one.gbps]
        most = usual(one.gbps for one in cables if one.gbps is not None)
        slow = [one for one in cables if most is not None and one.gbps is not None and one.gbps < most]
        if most is None or len(cables) < FEWEST or len(slow) * 4 > len(cables):
            continue  # many that are slower are another kind of adapter
        for one in slow[:20]:
            name, switch = devices[one.a].name, devices[one.b].name if one.b in devices else one.b
            view = _of_device(evidence.ports, one.a, name, one.a_port)
            view.peer = view.peer or (switch, one.b_port)
            runs = f"runs at {one.gbps:g} Gb/s ({one.lanes}X {one.speed}), most adapters at {most:g} Gb/s"
            says = f"{name} port {one.a_port} {runs}"
            yield _hypothesis(evidence, view, f"Port {says}", [Reason(says, seen.ref)], ["link_slow"])


def _of_device(ports: Ports, guid: str, name: str, port: int) -> PortView:
    from probes.catalog.network.ib_fabric_facts import guid_of

    for view in ports.of_nodes:
        if view.port == port and view.facts is not None and guid_of(view.facts.node_guid) == guid:
            return view
    node, _, hca = name.rpartition(" ")
    return ports.views.get((node, hca, port)) or PortView(node, hca or name, port)


# Errors ---------------------------------------------------------------------------------------------------------------


def _errors(view: PortView, ports: Ports) -> int:
    rise = view.rise(*ERRORS)
    symbols = view.rise("symbol_error")
    speed = view.facts.speed if view.facts is not None else None
    if symbols and speed is None:  # only where the others have next to none
        others = [
            one.rise("symbol_error")
            for one in ports.views.values()
            if one is not view and "symbol_error" in one.changes
        ]
        alone = len(others) >= FEWEST - 1 and symbols >= THOUSANDS * max(1, *others)
        return rise + (symbols if alone else 0)
    return rise + (symbols if speed not in NOISY else 0)


def _rising(evidence: Evidence, ports: Ports, view: PortView, own: dict[int, int]) -> Iterator[Hypothesis]:
    count = own[id(view)]
    if count:
        others = [own[id(one)] for one in ports.views.values() if one is not view and one.changes]
        if others and count < TIMES * max(1.0, median(others)) and median(others) > 0:
            return  # all alike: noise, or a common cause
        names = [name for name in (*ERRORS, "symbol_error") if view.rise(name)]
        seconds = view.seconds(names[0])
        over = f" in {seconds:.0f} s" if seconds else " between two looks"
        rose = ", ".join(f"{name} by {view.rise(name)}" for name in names)
        beside = f"; on {len(others)} other ports at most by {max(others)}" if others else ""
        strong = count >= MANY or view.rise(*RECOVERIES) > 0
        because = [Reason(f"{view.called}: {rose}{over}{beside}", view.ref_of(*names))]
        what = "Errors of flow control" if names == [OVERRUN] else "Bit errors"
        says = f"{what} rise on {view.called}: {rose}{over}"
        yield _hypothesis(evidence, view, says, because, ["errors_rise" if strong else "errors_rise_few"])
        return
    remote = view.rise(REMOTE)
    if remote:
        where = view.peer[0] if view.peer else "the switch"
        says = f"Bad packets come to {view.called} from beyond {where}: a cable upstream of it has errors, not its own"
        reason = Reason(f"{REMOTE} rose by {remote}, no error of its own cable", view.ref_of(REMOTE))
        subject = {"switch": view.peer[0]} if view.peer else view.subject
        yield Hypothesis(
            CAUSE, subject, says, (reason,), ("errors_upstream",),
            would_change=("counters of the ports of that switch, twice",), nodes=frozenset(),
        )  # fmt: skip


def _swept(evidence: Evidence, ports: Ports) -> Iterator[Hypothesis]:
    """One look at a whole fabric, in which one cable has counted far more than all others: on either of its ends."""
    swept = any(seen.facts.sets for seen in evidence.of("ib.fabric_errors"))
    if not swept or any(seen.facts.sets for seen in evidence.of("ib.counters")):
        return
    counts = {id(view): sum(look.counters.get(name) or 0 for look in view.looks[-1:] for name in HARD)
              for view in ports.views.values()}  # fmt: skip
    bad = [view for view in ports.views.values() if counts[id(view)] >= THOUSANDS]
    if any(view.known(*HARD) for view in bad):  # at a second look nothing had risen
        return
    rest = sum(count for count in counts.values() if count < THOUSANDS)
    cables = {(one.node, one.hca, one.switch, one.port) for one in map(ports.adapter_of, bad)}
    if len(cables) == 1 and rest * TIMES < counts[id(bad[0])]:
        told = ", ".join(f"{name} {value:,}" for name in HARD if (value := bad[0].looks[-1].counters.get(name)))
        says = f"Of all ports that were swept only {bad[0].called} has many errors: {told}"
        yield _hypothesis(evidence, bad[0], says, [Reason(says, bad[0].looks[-1].ref)], ["errors_of_one_port"])


def _bit_errors(evidence: Evidence, view: PortView) -> Iterator[Hypothesis]:
    """mlxlink: errors that are left after correction."""
    for look in view.looks:
        rates = {name: value for name in ("effective_ber_e18", "symbol_ber_e18") if (value := look.counters.get(name))}
        worst = max(rates.values(), default=0)
        if worst > BER:
            says = f"bit error rate of {view.called} after correction is {worst / 1e18:.0e}"
            signal = "bit_errors" if worst > 1000 * BER else "bit_errors_some"
            yield _hypothesis(evidence, view, f"The {says}", [Reason(says, look.ref)], [signal])
            return


RULE = Rule((CAUSE,), judge)
