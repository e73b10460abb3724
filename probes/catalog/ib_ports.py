"""Is every InfiniBand and RoCE port of this node up, at its full width and rate, and what do its counters stand at?

Source   /sys/class/infiniband (Linux Documentation/ABI/stable/sysfs-class-infiniband); no root, no fabric sweep
Units    Gb/s; counters raw, with port_xmit_data and port_rcv_data in units of 4 octets (reference/ib_counters.toml);
         seconds of the node's clocks beside them
Shape    IbPorts: boot id, ports in natural order, silent HCAs; counters twice, a second apart (the first in `samples`);
         `rates(earlier, later)` compares two readings
Errors   ParseError when a file holds what the kernel cannot print there, naming the file
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from probes.catalog._collected import as_object, number_or_none
from probes.catalog.network.ib_collect import collect
from probes.catalog.network.ib_facts import IbPorts, Port, Sample, Silent, rates, saturated
from probes.core import Finding, ParseError, Probe, Severity, clean, sections

__all__ = ["PROBE", "IbPorts", "Port", "Silent", "findings", "parse", "rates", "saturated"]

MOST = 512  # ports of one node; SR-IOV makes many, a hostile file could make more than can be compared
RAILS = 3  # Ethernet adapters of one kind at work that make it likely that all of them are meant to be; judgement
BOOT_ID = "/proc/sys/kernel/random/boot_id"
# phys_state_to_str in drivers/infiniband/core/sysfs.c; what it means for a port that is down.
MEANING = {
    "Polling": "it sees no signal: cable, transceiver or peer",
    "Disabled": "it is switched off, by an administrator or a fabric manager",
    "Sleep": "it sleeps",
    "PortConfigurationTraining": "it tries to train the link and does not get through",
    "LinkErrorRecovery": "it retrains the link after errors",
    "LinkUp": "the cable works, but no subnet manager has brought it up",
}


def parse(text: str) -> IbPorts:
    """Blocks of `tail -v -n +1 FILES` into IbPorts. Any prefix before `infiniband/` in the names is accepted."""
    parts = sections(text)
    files: dict[str, dict[str, str]] = {}
    silent = []
    for name, value in parts.items():
        hca, _, path = ("/" + name).partition("/infiniband/")[2].partition("/")
        if hca and path:
            files.setdefault(hca, {})[path] = value.strip()
        elif name.startswith("golden15/silent "):
            silent.append(_silent(name, value))
    if len({(hca, path.split("/")[1]) for hca, at in files.items() for path in at if path.startswith("ports/")}) > MOST:
        raise ParseError(f"expected the ports of one node, found more than {MOST}")
    if not files and not silent:
        raise ParseError(f"expected files below /sys/class/infiniband, found {clean(next(iter(parts)))[:80]!r}")
    ports = [port for hca in files for port in _ports(hca, files[hca], parts)]
    boot_id = next((value.strip() for name, value in parts.items() if name.endswith(BOOT_ID)), "")
    return IbPorts(boot_id, tuple(sorted(ports, key=_natural)), tuple(silent))


def _silent(name: str, value: str) -> Silent:
    told = as_object(value, name)
    words = [clean(str(told.get(key) or ""))[:200] for key in ("outcome", "why", "state", "wchan")]
    return Silent(name.rpartition(" ")[2], *words)


def _natural(port: Port) -> tuple[str, int, int]:
    stem = port.hca.rstrip("0123456789")
    digits = port.hca[len(stem) :][:9]
    return (stem, int(digits) if digits.isascii() and digits else -1, port.port)


def _ports(hca: str, files: Mapping[str, str], parts: Mapping[str, str]) -> Iterator[Port]:
    numbers = {path.split("/")[1] for path in files if path.startswith("ports/")}
    netdevs = {path.split("/")[2]: value for path, value in files.items() if path.startswith("device/net/")}
    uevent = dict(line.partition("=")[::2] for line in files.get("device/uevent", "").splitlines())
    for number in numbers:
        base = f"ports/{number}/"
        mine = {path.removeprefix(base): value for path, value in files.items() if path.startswith(base)}
        where = f"{hca}/ports/{number}"
        rate, width, speed = _rate(mine.get("rate", ""), where)
        at, mono = _clock(parts.get(f"golden15/clock {hca}/{number}", ""), where)
        hw = _counters(mine, "hw_counters/", where)
        lifespan = hw.pop("lifespan", None)
        counters, samples = _counters(mine, "counters/", where), ()  # type: dict[str, int | None], tuple[Sample, ...]
        if again := parts.get(f"golden15/again {hca}/{number}", ""):
            samples = (Sample(counters, hw, at, mono),)
            at, mono, counters, hw = _again(again, where)
        yield Port(
            hca=hca,
            port=_whole(number, f"{hca}: port number"),
            link_layer=mine.get("link_layer") or None,
            state=_state(mine, "state", where),
            phys_state=_state(mine, "phys_state", where),
            rate_gbps=rate,
            width=width,
            speed=speed,
            lid=_lid(mine.get("lid", ""), where),
            sm_lid=_lid(mine.get("sm_lid", ""), where),
            node_guid=files.get("node_guid") or None,
            node_desc=files.get("node_desc") or None,
            fw_ver=files.get("fw_ver") or None,
            hca_type=files.get("hca_type") or None,
            board_id=files.get("board_id") or None,
            pci=uevent.get("PCI_SLOT_NAME"),
            netdev=mine.get("gid_attrs/ndevs/0") or None,
            netdevs=netdevs,
            counters=counters,
            hw_counters=hw,
            hw_lifespan_ms=lifespan,
            at=at,
            mono=mono,
            gids=_gids(mine),
            samples=samples,
            pkeys=_pkeys(mine),
        )


def _gids(files: Mapping[str, str]) -> tuple[str, ...]:
    """`3 RoCE v2 0000:...:ffff:0a00:0001`, of the places that are taken."""
    places = (path.removeprefix("gids/") for path in files if path.startswith("gids/"))
    taken = sorted(int(at) for at in places if at.isdecimal() and len(at) < 4 and files[f"gids/{at}"].strip("0: "))
    told = (f"{at} {files.get(f'gid_attrs/types/{at}', '?')} {files[f'gids/{at}']}" for at in taken[:64])
    return tuple(clean(one)[:80] for one in told)


def _pkeys(files: Mapping[str, str]) -> tuple[str, ...]:
    """Partitions, without the empty places."""
    values = {value for path, value in files.items() if path.startswith("pkeys/") and value != "0x0000"}
    return tuple(sorted(value for value in values if re.fullmatch(r"0x[0-9a-f]{4}", value))[:128])


Counts = dict[str, int | None]


def _again(text: str, where: str) -> tuple[float | None, float | None, Counts, Counts]:
    """The second look at the counters, a second after the first: it is what the port is told with."""
    told = as_object(text, f"golden15/again {where}")
    groups = []
    for group in ("counters", "hw_counters"):
        files = told.get(group)
        if not isinstance(files, dict):
            raise ParseError(f"{where}: expected counters as an object, found {str(files)[:60]!r}")
        groups.append(_counters({f"{group}/{name}": str(value) for name, value in files.items()}, f"{group}/", where))
    groups[1].pop("lifespan", None)
    return number_or_none(told, "at", where), number_or_none(told, "mono", where), groups[0], groups[1]


def _whole(text: str, where: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 20):
        raise ParseError(f"{where}: expected a whole number, found {clean(text)[:60]!r}")
    return int(text)


def _state(files: Mapping[str, str], name: str, where: str) -> str | None:
    """`4: ACTIVE`, `5: LinkUp`."""
    if not files.get(name):
        return None
    number, colon, word = files[name].partition(": ")
    if not colon or not number.isdecimal() or not word:
        raise ParseError(f"{where}/{name}: expected a line such as '4: ACTIVE', found {clean(files[name])[:60]!r}")
    return word.strip()


def _rate(text: str, where: str) -> tuple[float | None, int | None, str | None]:
    """`400 Gb/sec (4X NDR)`; some drivers leave the speed's name out: `10 Gb/sec (4X)`."""
    if not text:
        return None, None, None
    rate, middle, rest = text.partition(" Gb/sec (")
    lanes, _, speed = rest.rstrip(")").partition("X")
    try:
        if not middle or not lanes.isdecimal() or len(text) > 60:
            raise ValueError
        return float(rate), int(lanes), speed.strip() or None
    except ValueError:
        raise ParseError(f"{where}/rate: expected such as '400 Gb/sec (4X NDR)', found {clean(text)[:60]!r}") from None


def _lid(text: str, where: str) -> int | None:
    try:
        return int(text[:12], 16) if text else None
    except ValueError:
        raise ParseError(f"{where}: expected a LID such as 0x1b, found {clean(text)[:60]!r}") from None


def _counters(files: Mapping[str, str], group: str, where: str) -> dict[str, int | None]:
    """Unreadable files are empty; a port without performance management shows `N/A (no PMA)`."""
    found: dict[str, int | None] = {}
    for path, value in files.items():
        if path.startswith(group):
            unknown = not value or value.startswith("N/A")
            found[path.removeprefix(group)] = None if unknown else _whole(value, f"{where}/{path}")
    return found


def _clock(text: str, where: str) -> tuple[float | None, float | None]:
    if not text.strip():
        return None, None
    try:
        at, mono = (float(word) for word in text.split())
        return at, mono
    except ValueError:
        raise ParseError(f"{where}: expected two times in seconds, found {text[:60]!r}") from None


def findings(facts: IbPorts) -> Iterator[Finding]:
    """What is wrong now. A counter since boot is at most worth a mention: only its change can be a fault."""
    stuck = Counter(name for port in facts.ports for name, value in port.counters.items() if saturated(name, value))
    if stuck:
        which = ", ".join(f"{name} on {ports} port{'s' if ports > 1 else ''}" for name, ports in sorted(stuck.items()))
        says = f"these counters stand at their highest value and cannot show further errors: {which}"
        yield Finding("ib.counters_saturated", "info", says)
    for silent in facts.silent:
        asleep = f": process in state {silent.state} in {silent.wchan}" if silent.wchan else f": {silent.why}"
        yield Finding("ib.no_answer", "bad", f"{silent.hca} does not answer{asleep}", {"hca": silent.hca})
    for port in facts.ports:
        for code, severity, says in (*_link(port, facts), *_width(port, facts), *_past(port)):
            yield Finding(code, severity, f"{port.name} {says}", {"hca": port.hca, "port": port.port})


Said = Iterator[tuple[str, Severity, str]]


def _alike(port: Port, facts: IbPorts) -> list[Port]:
    """Active ports of other HCAs of the same kind: the other rails. A storage adapter is not measured by them."""
    return [
        other
        for other in facts.ports
        if other.hca != port.hca
        and other.state == "ACTIVE"
        and (other.link_layer, other.hca_type, other.board_id) == (port.link_layer, port.hca_type, port.board_id)
    ]


def _link(port: Port, facts: IbPorts) -> Said:
    """Not active. Bad when the HCA's rail is missing while others like it work; a second, empty cage is common."""
    if port.state in ("ACTIVE", None):
        return
    if port.link_layer == "Ethernet" and "up" not in port.netdevs.values():
        rails = not port.netdevs and len(_alike(port, facts)) >= RAILS  # a tool that tells nothing of interfaces
        if not rails:
            return  # an Ethernet port that nobody configured
    alone = all(other.state != "ACTIVE" for other in facts.ports if other.hca == port.hca)
    severity: Severity = "bad" if alone and _alike(port, facts) else "warn"
    phys = port.phys_state or "not shown"
    meaning = MEANING.get(phys, "")
    words = f"physical state {clean(phys)}" + (f", {meaning}" if meaning else "")
    if port.state == "DOWN":
        yield "ib.port_down", severity, f"is down: {words}"
    else:
        yield "ib.port_not_active", severity, f"is in state {clean(port.state)}, not ACTIVE: {words}"


def _width(port: Port, facts: IbPorts) -> Said:
    """Fewer lanes or a lower rate than the other rails. Two lanes alone are no fault: HDR100 and NDR200 are made so.

    RoCE ports are compared only with each other: the kernel puts 25 and 200 Gb/s Ethernet as 1X and 2X.
    """
    if port.state != "ACTIVE" or port.rate_gbps is None:
        return
    others = Counter(other.rate_gbps for other in _alike(port, facts) if other.rate_gbps is not None)
    usual = max(others, key=lambda rate: (others[rate], -rate)) if others else None
    shown = f"{port.rate_gbps:g} Gb/s"
    if port.width is not None:
        shown += f" ({port.width}X {port.speed or ''}".rstrip() + ")"
    if usual is not None and port.rate_gbps < usual:
        yield "ib.rate_low", "bad", f"runs at {shown}, other ports like it at {usual:g} Gb/s"
    elif port.width == 1 and port.link_layer == "InfiniBand":
        yield "ib.width_low", "bad", f"runs on one lane: {shown}"
    elif port.width == 2 and port.link_layer == "InfiniBand":
        yield "ib.width_low", "info", f"runs on two lanes: {shown}, usual only with a split cable"


def _past(port: Port) -> Said:
    downed = port.counters.get("link_downed")
    if downed:
        least = "at least " if saturated("link_downed", downed) else ""
        yield "ib.link_downed", "info", f"went down {least}{downed} times since its counters were cleared"


PROBE = Probe(
    "ib.ports",
    "Is every InfiniBand and RoCE port up, at full width and rate?",
    parse,
    findings,
    collect=collect,
    by_hand="tail -v -n +1 /sys/class/infiniband/*/ports/*/{state,phys_state,rate,link_layer,counters/*}",
    timeout_s=5.0,
    max_bytes=1_048_576,
    touches="proc",
    cost="not measured: there was no such hardware",
)
