"""Rules and policies that drop or reject: iptables -L/-S, iptables-save, `nft list ruleset`, firewalld's zones, ufw.

Source   firewalld.zone(5): what no rule of a zone lets in is rejected, with "target: ACCEPT" it is let in; ufw(8)
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from probes.catalog.network.net_facts import FilterRule, Settings
from probes.core import clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, mentions, refuse, whole
from probes.intake.tools.host.limits import quiet

_CHAIN = re.compile(r"^Chain (\S{1,60}) \((?:policy (\w{2,12})|\d{1,6} references)")
_SAVED = re.compile(r"^(?:\[(\d{1,18}):\d{1,18}\] )?-A (\S{1,60}) (.{0,400}?)-j (DROP|REJECT)\b")
_POLICY = re.compile(r"^(?::(\S{1,60}) (DROP|REJECT)|-P (\S{1,60}) (DROP|REJECT))\b")
_LISTED = re.compile(
    r"^\s{0,12}(?:(\d{1,12}[KMG]?)\s{1,12}\d{1,12}[KMG]?\s{1,12})?(?:\d{1,5}\s{1,8})?(DROP|REJECT)\s{1,12}(\S{1,12})\s{1,8}(.{0,300})$"
)
_NFT_CHAIN = re.compile(r"^\s{0,12}chain (\S{1,60}) \{")
_NFT_HOOK = re.compile(r"type filter hook (\w{1,16})[^;\n]{0,60};(?: policy (drop|accept);)?")
_ZONE = re.compile(r"^([\w-]{1,40}) \(active\)$", re.M)
_NEXT_ZONE = re.compile(r"\n(?=[\w-]{1,40}(?: \(active\))?\n)")
_TARGET = re.compile(r"^  target: (default|DROP|ACCEPT|%%REJECT%%)$", re.M)
_LISTS = re.compile(r"firewall-cmd_(?:--?[\w-]{1,40}_){0,3}--list-ports")
_LISTED_PORTS = re.compile(r"\s{0,8}(?:\d{1,5}(?:-\d{1,5})?/(?:tcp|udp)\s{0,8}){1,64}")
_UFW = re.compile(r"^Status: active\n(?:Logging: [^\n]{1,60}\n)?Default: (deny|reject) \(incoming\)", re.M)
_PORTS = re.compile(r"(?:dpts?:|--dports?(?: |=)|dports |dport )(?:\{ ?)?([\d,: -]{1,120})")


def fits(head: str, name: str) -> bool:
    if _LISTS.search(name) and _LISTED_PORTS.fullmatch(head[:2000]):
        return True
    if not mentions(head, ("chain", "iptables", "target", "-p ", "-a ", "ufw", "table ", "zone", "policy")):
        return False
    if (_ZONE.search(head) and _TARGET.search(head)) or _UFW.search(head):
        return True
    lines = list(lines_of(head, 500))
    if any(_CHAIN.match(line) for line in lines) and re.search(
        r"^(?:num\s+|\s*pkts\s+)?.{0,30}target\s+prot", head, re.M
    ):
        return True
    if any(_SAVED.match(line) or _POLICY.match(line) for line in lines) or re.search(r"^-P INPUT ", head, re.M):
        return True
    return bool(re.search(r"^table (?:inet|ip|ip6) \w{1,60} \{", head, re.M) and _NFT_HOOK.search(head))


def read(text: str) -> Settings:
    if _LISTED_PORTS.fullmatch(text[:2000]):
        says = f"firewalld lets in only its services and ports {' '.join(text.split())}"
        return Settings(filters=(FilterRule("INPUT", clean(says)[:200], "REJECT", policy=True),), filters_told=True)
    if zones := list(_zones(text[:262_144])):
        return Settings(filters=tuple(zones), filters_told=True)
    found = list(_nft(text)) if "type filter hook" in text[:1_048_576] else list(_iptables(text))
    if not found and not fits(text[:65536], ""):
        raise refuse("rules as iptables or nft list them", text)
    return Settings(filters=tuple(found[:2000]), filters_told=True)


def _zones(text: str) -> Iterator[FilterRule]:
    """Zones of firewalld that let in only what they list, and ufw where it denies; the sources that one trusts too."""
    for zone in _ZONE.finditer(text):
        block = _NEXT_ZONE.split(text[zone.start() : zone.start() + 8000], 1)[0]
        target = _TARGET.search(block)
        if target is None or target[1] == "ACCEPT" or zone[1] in ("trusted", "docker"):
            continue
        ports = re.search(r"^  ports: ([^\n]{0,400})$", block, re.M)
        says = (
            f"firewalld zone {zone[1]} lets in only its services and ports {ports[1].strip() if ports else ''}".strip()
        )
        yield FilterRule("INPUT", clean(says)[:200], "DROP" if target[1] == "DROP" else "REJECT", policy=True)
    if ufw := _UFW.search(text):
        yield FilterRule("INPUT", clean(f"ufw: Default: {ufw[1]} (incoming)"), "DROP", policy=True)


def _iptables(text: str) -> Iterator[FilterRule]:
    chain = ""
    for line in lines_of(text, 500):
        if head := _CHAIN.match(line):
            chain = head[1]
            if head[2] in ("DROP", "REJECT"):
                packets = whole(line.partition(f"policy {head[2]} ")[2].partition(" ")[0])
                yield FilterRule(clean(chain), clean(line)[:200], head[2], packets=packets, policy=True)
        elif policy := _POLICY.match(line):
            yield FilterRule(clean(policy[1] or policy[3]), clean(line)[:200], policy[2] or policy[4], policy=True)
        elif saved := _SAVED.match(line):
            protocol = re.search(r"-p (\w{2,6})", saved[3])
            ports, packets = _ports(saved[3]), whole(saved[1]) if saved[1] else None
            yield FilterRule(
                clean(saved[2]), clean(line)[:200], saved[4], ports, protocol[1] if protocol else "", packets
            )
        elif listed := _LISTED.match(line):
            packets = _count(listed[1]) if listed[1] else None
            told = {"6": "tcp", "17": "udp", "0": "", "all": ""}.get(listed[3], listed[3])
            yield FilterRule(clean(chain), clean(line.strip())[:200], listed[2], _ports(line), told, packets)


def _nft(text: str) -> Iterator[FilterRule]:
    chain = ""
    for line in lines_of(text, 500):
        if head := _NFT_CHAIN.match(line):
            chain = head[1]
        elif (hook := _NFT_HOOK.search(line)) and hook[2] == "drop":
            yield FilterRule(clean(chain), clean(line.strip())[:200], "DROP", policy=True)
        elif re.search(r"\b(?:drop|reject)\b", line) and "policy" not in line:
            packets = re.search(r"packets (\d{1,18})", line)
            action = "REJECT" if " reject" in line else "DROP"
            protocol = re.search(r"\b(tcp|udp)\b", line)
            yield FilterRule(
                clean(chain), clean(line.strip())[:200], action, _ports(line),
                protocol[1] if protocol else "", int(packets[1]) if packets else None,
            )  # fmt: skip


def _count(text: str) -> int | None:
    unit = {"K": 1000, "M": 10**6, "G": 10**9}.get(text[-1], 1)
    number = whole(text.rstrip("KMG"))
    return None if number is None else number * unit


def _ports(text: str) -> tuple[tuple[int, int], ...]:
    found = []
    for part in _PORTS.findall(text):
        for one in re.split(r"[, ]{1,3}", part.strip()):
            first, _, last = one.replace("-", ":").partition(":")
            if first.isdecimal() and (not last or last.isdecimal()):
                found.append((int(first), int(last or first)))
    return tuple(found[:64])


TOOL = Tool("firewall", "host.settings", fits, read, quiet, host_in)
