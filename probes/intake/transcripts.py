"""One file that holds the output of several commands, or of one command on several nodes, taken apart.

Known forms: lines that repeat the command before its output (`$ ibstat`, `root@gpu-01:~# ibstat`, `+ ibstat`,
`=== ibstat ===`, `## ibstat`); pdsh and clush, which put `gpu-01: ` before each line; and dshbak's blocks.

Shape    parts_of(text) -> parts, none when it is a text of one piece
Errors   none
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from probes.core import clean, lines_of
from probes.intake.items import Item
from probes.intake.names import looks_like_a_node, node_in_name, stem

MOST = 2000  # parts of one file
# Commands whose output is evidence; a log may well quote others.
_COMMANDS = (
    r"ib(?:stat|status|v_devinfo|linkinfo|netdiscover|queryerrors|dev2netdev)|perfquery|sminfo|rdma|show_gids|ethtool|ip"
    r"|ifconfig|mlnx_qos|dcb|lldptool|mlxlink|mstlink|ulimit|prlimit|lsmod|iptables(?:-save)?|nft|ss|netstat|top|ps"
    r"|pidstat|mpstat|vmstat|iostat|uptime|taskset|lscpu|numactl|nproc|env|printenv|date|dmesg|journalctl|nvidia-smi"
    r"|lspci|df|free|mount|chronyc|ntpq|timedatectl|cat|grep|tail|head|sleep|hostname|uname|sysctl|py-spy|for|while"
    r"|rocm-smi|amd-smi|sinfo|squeue|scontrol|findmnt|nfsstat|watch|sudo|dcgmi|ncclras|nc"
)
_PROMPT = (
    r"(?:\S{1,40}@(?P<host>[\w.-]{1,60}?)[: ]\S{0,60} ?[#$%] {1,3}"
    r"|\[\S{1,40}@(?P<host2>[\w.-]{1,60}?) \S{1,40}\][#$] {1,3}|[$+] {1,3})"
)
_KNOWN = rf"(?:sudo (?:-n )?)?(?:/\S{{1,40}}/)?(?:{_COMMANDS})(?: [^\n]{{0,300}})?"
_ANY = re.compile(rf"{_PROMPT}(?P<command>[a-zA-Z./][^\n]{{0,300}})$")  # also one that is no evidence ends the last
_COMMAND = re.compile(rf"(?:{_PROMPT}|[#>%] {{1,3}})(?P<command>{_KNOWN})$")
_HEADING = re.compile(
    r"(?:={2,40}|-{2,40}|#{2,40}|\*{2,40}|>{2,10}|\[) {0,3}"
    rf"(?P<command>(?:\$ )?(?:sudo )?(?:{_COMMANDS})(?: [^\n]{{0,200}}?)?)"
    r" {0,3}(?:={2,40}|-{2,40}|#{2,40}|\*{2,40}|\]|:)?$"
)
_PREFIX = re.compile(r"([a-zA-Z][\w.-]{1,60}):(?: (.*)|)$")  # with a blank: NCCL writes host:pid:thread
_BLOCK = re.compile(r"^-{4,80}\n([\w.,\[\]-]{2,200})\n-{4,80}$", re.M)
_COUNTS = re.compile(
    r"ethtool (?:-S|--stat)|perfquery|ibqueryerrors|rdma\b.{0,20}\bstat|infiniband|counters|cpu\.stat|nr_thr"
)
_TIME = re.compile(r"\d{4}|\d\d:\d\d")


@dataclass(frozen=True, slots=True)
class Part:
    """`node` is "" where the text does not tell it; `command` is what was typed, or "" for the same of another node."""

    node: str
    command: str
    text: str


def parts_of(text: str) -> list[Part]:
    """Its parts in order; [] when it is no such text."""
    return _blocks(text) or _prefixed(text) or _commands(text)


def _blocks(text: str) -> list[Part]:
    found = list(_BLOCK.finditer(text[:4_194_304]))
    if not found or text[: found[0].start()].strip():
        return []
    ends = [one.start() for one in found[1:]] + [len(text)]
    hosts = [one[1] for one in found]
    if not all(looks_like_a_node(re.split(r"[,\[]", host)[0] + "1") for host in hosts):
        return []
    # Nodes that said the same share a block: its first node stands for them.
    pairs = zip(found, ends, strict=True)
    return [Part(host_of(one[1]), "", text[one.end() : end].strip("\n")) for one, end in pairs][:MOST]


def host_of(names: str) -> str:
    """The first of `gpu-[01-04,07]` or `gpu-01,gpu-02`."""
    stem, bracket, rest = names.partition("[")
    return stem + re.split(r"[-,\]]", rest)[0] if bracket else stem.partition(",")[0]


def _prefixed(text: str) -> list[Part]:
    by_node: dict[str, list[str]] = {}
    lines = other = 0
    for line in lines_of(text):
        if not line.strip():
            continue
        lines += 1
        found = _PREFIX.match(line)
        if found and looks_like_a_node(found[1]) and len(by_node) < MOST:
            by_node.setdefault(found[1], []).append(found[2] or "")
        else:
            other += 1
        if lines == 40 and other > 20:
            return []
    if not by_node or other * 10 > lines:
        return []
    return [Part(node, "", "\n".join(some)) for node, some in by_node.items()]


def _heading(line: str) -> re.Match[str] | None:
    if len(line) > 500 or not line or line[0] in " \t":
        return None
    line = line.rstrip()
    return _COMMAND.match(line) or _HEADING.match(line) or _ANY.match(line)


def _commands(text: str) -> list[Part]:
    """Only where the first lines hold a known command: the rest may be long."""
    if not any(_COMMAND.match(line.rstrip()) or _HEADING.match(line.rstrip()) for line in lines_of(text[:65_536], 500)):
        return []
    parts: list[Part] = []
    node, command, when = "", "", ""
    body: list[str] = []

    def end() -> None:
        nonlocal when
        told = "\n".join(body).strip("\n")
        if command.startswith("date") and _TIME.search(told):
            when = told.strip().splitlines()[0][:80]
        elif told and len(parts) < MOST:
            timed = f"{when}\n{told}" if when and _COUNTS.search(command) and told[:1] not in "[{" else told
            parts.append(Part(node, command, timed))

    for line in lines_of(text, 20_000):
        found = _heading(line)
        if found is None:
            body.append(line)
            continue
        end()
        told = found.groupdict()
        node = told.get("host") or told.get("host2") or node
        command, body = clean(found["command"].removeprefix("$ ").removeprefix("sudo ")).strip(" ="), []
    end()
    return parts if len(parts) > 1 or (parts and parts[0].command) else []


def items_of(item: Item, text: str) -> list[Item]:
    """Each part as a file of its own, in a folder of its node: that which the text tells, else the file's name."""
    own = node_in_name(item.inside) or stem(item.name)
    found = []
    for place, part in enumerate(parts_of(text), 1):
        name = re.sub(r"[^\w.=,:@ -]", "_", part.command or item.name)[:120]
        inside = item.inside.parent / (part.node or own) / f"{place}" / name
        ref = f"{item.ref}: {part.node} {part.command}".rstrip()[:1000] + (f" ({place})" if part.command else "")
        found.append(Item(ref, inside, part.text.encode("utf-8", "replace")))
    return found
