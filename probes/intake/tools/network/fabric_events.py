"""Events of a fabric: logs of UFM (event.log, syslog, REST as JSON, tables exported as CSV) and of opensm, syslogs of
Ethernet switches (SONiC, Cumulus' switchd, Arista EOS, Cisco NX-OS).

    2026-01-26 21:44:13.101 [88177] [329] WARNING [Hardware] IBPort [default / Switch: leaf-2 / 17]: Link went down: ...
    Feb 17 13:05:41 223672 [812D2700] 0x02 -> osm_pi_rcv_process: Switch 0xe8.. spine-1 port 3 changed state from ...

Source   UFM Enterprise REST API guide (Events), imbue's host-health (ufm_events); OpenSM osm_drop_mgr.c and
         osm_port_info_rcv.c; sonic-swss portsorch.cpp; Arista and Cisco: system message guides
"""

from __future__ import annotations

import json
import re
from typing import Any

from probes.catalog.network.fabric_events import End, FabricEvent, FabricEvents
from probes.core import Finding, clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import mentions, refuse
from probes.intake.tools.network._counter_sets import is_switch
from probes.topology.expected import switch_name

MOST = 20_000
_STAMP = re.compile(
    r"20\d\d[-/][01]\d[-/][0-3]\d[T ]\d\d:\d\d:\d\d|[A-Z][a-z]{2} {1,2}\d{1,2} (?:20\d\d )?\d\d:\d\d:\d\d"
    r"|20\d\d [A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:\d\d"
)
_MARK = re.compile(
    r"0x[0-9A-F]{2} -> (?:\w{0,12}(?:osm|drop_mgr|sweep|log_notice|state_mgr)|SUBNET)|\"object_path\"|\"event_source\""
    r"|\] (?:WARNING|INFO|MINOR|CRITICAL|ERROR) \[\w{2,30}\] \w{2,30} \[|\b(?:Switch|Computer): ?[^\n/]{1,80} / "
    r"|\blink [^\n]{0,40}\((?:Switch|Computer|Host): ?[^()\n]{1,80}\)"
    r"|%(?:LINEPROTO|LINK|ETHPORT|ETH_PORT_CHANNEL)-\d-|oper state set from|switchd\[\d|updatePortOperStatus"
    r"|(?:port|interface|intf) (?:swp|Ethernet|Eth)[\w/]{1,12}[:,]?"
    r" (?:changed |link |oper(?:ational)? ?|state |is |went |to |status ){1,4}(?:up|down)"
    r"|\bSwitch [\w.-]{2,60}(?: \([^()\n]{0,60}\))?:? {1,2}(?:node |switch )?(?:is |went )?"
    r"(?:down|unreachable|lost|not responding)"
    r"|\bLink (?:is |went )?(?:down|up): [^\n]{3,120}<-{1,2}>"
    r"|\bufm\b[^\n]{0,80}Link|^-[EW]- [^\n]{0,200}(?:link width|link speed|BER)",
    re.I | re.M,
)  # fmt: skip
_QUICK = (
    "osm", "drop_mgr", "sweep", "log_notice", "state_mgr", "-> subnet", "portoperstatus", "object_path",
    "event_source", "switch:", "computer:", "%line", "%link", "%eth", "oper state set", "switchd[", "ufm",
    "changed state", "link is", "link down", "is down", "went down", "unreachable",
    "port eth", "interface eth", "port swp",
    "-e- ", "-w- ", "] warning [", "] info [", "] minor [", "] critical [",
)  # fmt: skip
_WHAT = (
    ("slow", re.compile(r"^-[EW]- [^\n]{0,300}(?:unexpected (?:actual )?link (?:width|speed)"
                        r"|(?:width|speed) [^\n]{0,40}(?:is|but) )", re.I)),
    ("flaps", re.compile(r"unhealthy due to FLAPPING|link (?:is )?flapp", re.I)),
    ("gone", re.compile(r"\b(?:node|switch|director switch) (?:is|went) down"
                        r"|\bSwitch:? (?!port\b)[\w.-]{2,60} (?:is|went|has gone) (?:down|offline|dead)"
                        r"|Remov(?:ed port with GUID"
                        r"|(?:ing|ed) (?:switch|node))|not reachable in fabric"
                        r"|\bSwitch:? [\w.-]{2,60}[^\n]{0,70}?(?:unreachable|not responding|is lost)", re.I)),
    ("back", re.compile(r"\b(?:node|switch|director switch) (?:is|went) up"
                        r"|\bSwitch:? (?!port\b)[\w.-]{2,60} (?:is|went|came|has come) (?:back|up|online)"
                        r"|Discovered new port with GUID", re.I)),
    ("down", re.compile(r"link (?:went|is|state)? ?(?:changed to )?down|carrier down|to (?:state )?DOWN\b"
                        r"|from up to down|is down \(|IF_DOWN|port (?:is|went) down", re.I)),
    ("up", re.compile(r"link (?:went|is|state)? ?(?:changed to )?up\b|carrier up|to (?:state )?(?:UP|ACTIVE)\b"
                      r"|from down to up|IF_UP\b|port (?:is|went) up", re.I)),
    ("congested", re.compile(r"congested bandwidth|normalized xmit ?wait|congestion", re.I)),
    ("errors", re.compile(r"symbol (?:error|bit error|BER)|effective BER|BER [^\n]{0,60}exceed", re.I)),
)  # fmt: skip
_PAIR = re.compile(
    r"\((Switch|Computer|Host|Gateway): ?([^()\n]{1,120}?)\)(?:(?:0x)?[0-9a-f]{16}:?|:)?"
    r"(\d{1,3}(?![0-9a-f])|(?:mlx\d|bnxt_re|hfi\d|ibp|rocep)\w{1,20})?",
    re.I,
)
_PATH = re.compile(
    r"\b(Switch|Computer|Host): ?([^/\]\[\n\"]{1,80}?)(?: / ([^\]/\n\":]{1,40}?))?(?: / (\d{1,3}))?(?=[\]\"\n:,]|\s*$)"
)
_OSM = re.compile(r"\bSwitch 0x[0-9a-f]{1,16}[ (]{1,2}?(\S[^\n]{0,100}?)\)? port (?:num )?(\d{1,3})", re.I)
_REMOVED = re.compile(
    r"(?:Remov(?:ing|ed) (switch) [^\n]{0,90})?\bof node: ?(\S[^\n]{0,100}?)\s{0,4}$|Remov(?:ing|ed) (switch|node):? "
    r"(?!with )(?:0x[0-9a-f]{1,16}[ (]{1,2})?(\S[^\n(]{0,100}?)\)?(?: \(0x[0-9a-f]{1,16}\))?\s{0,4}$",
    re.I,
)
_SWITCH_GONE = re.compile(  # as somebody retypes UFM: Switch leaf07 (b8:ce:..): Node is down / unreachable
    r"\bSwitch:? ([\w.-]{2,60})(?: \([^()\n]{0,60}\))?:? {1,2}(?:node |switch )?"
    r"(?:is |went |came |has gone |has come )?(?:down|unreachable|lost|not responding|offline|dead|back|up|online)\b",
    re.I,
)
_BOTH = re.compile(  # leaf07 port 1 <-> n01 mlx5_2
    r"(?:: |\s|^)([\w.-]{2,60})[ :/](?:port )?(\S{1,16}) {0,2}<-{1,2}> {0,2}"
    r"([\w.-]{2,60})[ :/]((?:mlx\d|bnxt|hfi|rdmap|ib|HCA-)\w{0,20})",
    re.I,
)
_DIAGNOSED = re.compile(r"([\w.-]{2,64})(?: |/U1/|/)((?:mlx\d|hfi\d|ibp|HCA-)\w{0,20})")
_ETHERNET = re.compile(r"\b((?:swp|Ethernet|Eth)(\d{1,3})(?:[/s]\d{1,3}){0,2})\b")
_LOGGER = re.compile(
    r"^\s{0,4}(?:<\d{1,3}>)?(?:20\d\d-\S{10,40}|(?:20\d\d )?[A-Z][a-z]{2} {1,2}\d{1,2} [\d:.]{8,18}) ([\w.-]{2,63}):? "
)
_ADAPTER = re.compile(
    r"^(\S{1,64})[ /:]{1,3}((?:mlx\d|bnxt_re|hfi\d|rdmap|ibp|rocep)\w{0,20}|HCA-\d{1,2})(?:[ /:]{1,2}\d{1,2})?$"
)


def fits(head: str, name: str) -> bool:
    if not mentions(head, _QUICK) or not _MARK.search(head):
        return False
    if head.lstrip()[:1] in "[{" and '"description"' in head:
        return any(pattern.search(head) for _, pattern in _WHAT)
    return any(_MARK.search(line) and (_what(line) or "0x02 ->" in line) for line in lines_of(head, 1000))


def read(text: str) -> FabricEvents:
    rows = _rows(text) if text.lstrip()[:1] in "[{" else [line for line in lines_of(text, 2000) if line.strip()]
    switches = {clean(found[1]) for row in rows[:200_000] if (found := _OSM.search(row))}
    events = [event for row in rows[:200_000] if (event := _event(row, switches)) is not None][:MOST]
    if not events and not _MARK.search(text[:1_048_576]):
        raise refuse("events of UFM, opensm or a switch", text)
    source = (
        "opensm"
        if re.search(r"0x[0-9A-F]{2} -> ", text[:65_536])
        else "ufm"
        if _PATH.search(text[:65_536])
        else "switch"
    )
    return FabricEvents(source, tuple(events))


def _rows(text: str) -> list[str]:
    """Events of UFM's REST interface, one line each."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        raise refuse("a list of events", text) from None
    some: Any = said
    if isinstance(said, dict):
        some = next((value for value in said.values() if isinstance(value, list)), [said])
    rows = []
    for one in some[:200_000]:
        if isinstance(one, dict):
            words = (one.get(key) for key in ("timestamp", "severity", "name", "object_path", "description"))
            rows.append(" ".join(f"[{word}]" if n == 3 else str(word) for n, word in enumerate(words) if word)[:2000])
    return rows


def _what(row: str) -> str:
    return next((what for what, pattern in _WHAT if pattern.search(row)), "")


def _event(row: str, switches: set[str]) -> FabricEvent | None:
    what = _what(row)
    if not what:
        return None
    ends = _ends(row, switches)
    if not ends:
        return None
    stamp = _STAMP.search(row[:80])
    ends.sort(key=lambda end: bool(end.switch))
    return FabricEvent(what, tuple(ends[:2]), stamp[0] if stamp else "", clean(row.strip())[:300])


def _ends(row: str, switches: set[str]) -> list[End]:
    if row[:4] in ("-E- ", "-W- "):
        return _of_ibdiagnet(row)
    if both := _BOTH.search(row):
        return [_end("Switch", both[1], re.sub(r"\D{1,16}", "", both[2])), _end("Computer", f"{both[3]} {both[4]}", "")]
    if gone := _SWITCH_GONE.search(row):
        return [_end("Switch", gone[1], "")]
    if found := _PAIR.findall(row):
        return [_end(kind, name, port) for kind, name, port in found[:2]]
    if removed := _REMOVED.search(row):
        name = clean(removed[2] or removed[4])
        switch = (removed[1] or removed[3] or "").lower() == "switch" or _is_switch(name, switches)
        return [_end("Switch" if switch else "Computer", name, "")]
    if osm := _OSM.search(row):
        return [_end("Switch", osm[1], osm[2])]
    if path := _PATH.search(row):
        kind, name, part, port = path[1], path[2], path[3] or "", path[4] or ""
        if kind == "Switch":
            return [_end(kind, name, port or (part if part.isdigit() else part.rpartition("/")[2]))]
        return [_end(kind, f"{name} {part}" if part and not part.isdigit() and part != "NA" else name, port)]
    logger, port_name = _LOGGER.match(row), _ETHERNET.search(row)
    if logger and port_name:
        return [End(switch=clean(logger[1]), port=int(port_name[2]))]
    return []


def _of_ibdiagnet(row: str) -> list[End]:
    """`S../N..(leaf-07)(17)<-->gpu-31 mlx5_2(U1)/P1`, `gpu-31/U1/mlx5_2/P1`, `leaf-07/U1/P17`."""
    ends = []
    for side in re.split(r"<-{1,2}>", row[4:], maxsplit=1):
        if found := _DIAGNOSED.search(side):
            ends.append(End(node=clean(found[1]), hca=clean(found[2]), port=1))
        elif found := re.search(r"\(([\w.;:/-]{2,80})\)\((\d{1,3})\)|([\w.;:-]{2,80})/U1/P(\d{1,3})", side):
            ends.append(End(switch=clean(found[1] or found[3]), port=int(found[2] or found[4])))
    return ends


def _is_switch(name: str, switches: set[str]) -> bool:
    plain = name in switches or name.startswith(("MF0;", "Quantum", "SwitchX", "SwitchIB")) or is_switch(name)
    return plain and not _ADAPTER.match(name)


def _end(kind: str, name: str, port: str) -> End:
    name = clean(name.strip())[:120]
    number = int(port) if port.isdecimal() else None
    if kind == "Switch":
        base, _, rest = name.partition(":")  # T3-E21:1/17/1 names the port as well
        if re.fullmatch(r"[\d/]{1,12}", rest):
            name = base
        return End(switch=switch_name(name, ""), port=number)
    if port and not number:  # (Computer:n01 HCA-1)mlx5_0
        return End(node=name.split(" ")[0], hca=clean(port), port=1)
    if found := _ADAPTER.match(name):
        return End(node=found[1], hca=found[2], port=number or 1)
    return End(node=name.split(" ")[0], port=number)


def quiet(facts: FabricEvents) -> tuple[Finding, ...]:
    """Events by themselves are none: rules see what became of each link."""
    return ()


TOOL = Tool("fabric events", "ib.events", fits, read, quiet)
