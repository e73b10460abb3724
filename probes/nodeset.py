"""Lists of nodes as people have them: folded nodesets, hostfiles, inventories, /etc/hosts lines, pasted text.

ClusterShell does the folding (`gpu-[001-064]`). A line is one of:
    gpu-[001-064],login1                    nodesets, separated by comma or blank
    gpu-001 slots=8                         MPI hostfile
    root@gpu-001:2222                       user and port
    gpu-001 ansible_host=10.0.0.1 ansible_port=22 ansible_user=ops     Ansible inventory (INI); gpu-[001:064] too
    10.0.0.1 gpu-001 gpu-001.cluster        /etc/hosts: address, then names (the first is taken)
Group headings like [workers], `#` comments and blank lines are skipped.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetParseError

from probes.transport.targets import Target

MOST_NODES = 20_000
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_SCOPE = re.compile(r"[A-Za-z0-9._-]{1,15}")  # an interface name behind an IPv6 address
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")
_RANGE = re.compile(r"\[([0-9,/-]{1,4000})\]")
_ANSIBLE_RANGE = re.compile(r"\[(\d{1,9}):(\d{1,9})\]")
_HEADING = re.compile(r"\[[A-Za-z][\w:.-]*\]")


class NodesetError(ValueError):
    """The text is not a list of nodes. Says which line, what stands there and what was expected."""


def expand(text: str) -> list[str]:
    """Node names of a folded nodeset, in order. Raises NodesetError, also above MOST_NODES nodes."""
    text = text.strip()
    if _size(text) > MOST_NODES:
        raise NodesetError(f"{text[:60]!r} names more than {MOST_NODES} nodes")
    try:
        names = [str(name) for name in NodeSet(text, resolver=RESOLVER_NOGROUP)]
    except (NodeSetParseError, ValueError, TypeError) as error:
        raise NodesetError(f"{text[:60]!r} is not a nodeset such as gpu-[001-064]: {error}") from error
    for name in names:
        if not is_name(name):
            raise NodesetError(f"{name[:60]!r} is not a node name: letters, digits, dot, dash and underscore only")
    if not names:
        raise NodesetError("the nodeset is empty")
    return names


def fold(names: Iterable[str]) -> str:
    """Names as one folded nodeset, for people: gpu-[001-003,007]."""
    return str(NodeSet.fromlist(list(names), resolver=RESOLVER_NOGROUP))


def is_name(name: str) -> bool:
    """A host name or an IP address, and nothing that could be an option or a command."""
    if _NAME.fullmatch(name):
        return True
    return _address(name) is not None


def parse_hosts(text: str) -> list[Target]:
    """Targets of a hostfile, inventory or pasted list, in order, each node once. Raises NodesetError with the line."""
    found: dict[str, Target] = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.partition("#")[0].strip()
        if not line or _HEADING.fullmatch(line):
            continue
        try:
            for target in _line(line):
                found.setdefault(target.node, target)
        except NodesetError as error:
            raise NodesetError(f"line {number}: {error}") from error
        if len(found) > MOST_NODES:
            raise NodesetError(f"more than {MOST_NODES} nodes")
    if not found:
        raise NodesetError("no node in it; expected names such as gpu-[001-064], one or more on a line")
    return list(found.values())


def _line(line: str) -> list[Target]:
    line = _ANSIBLE_RANGE.sub(r"[\1-\2]", line)
    words = [word for piece in line.split() if (word := piece.strip(","))]
    options = dict(word.split("=", 1) for word in words[1:] if "=" in word)
    plain = [word for word in words if "=" not in word]
    if not plain:
        raise NodesetError(f"{line[:60]!r} names no node")
    if len(plain) > 1 and _address(plain[0]) is not None and _address(plain[1]) is None:
        return [Target(checked_name(plain[1]), address=plain[0])]
    targets = []
    for word in plain:
        user, rest, port = _login(word)
        for name in expand(rest):
            targets.append(Target(name, user=user, port=port))
    if options:
        targets = [_with_options(target, options) for target in targets]
    return targets


def _with_options(target: Target, options: dict[str, str]) -> Target:
    return Target(
        target.node,
        address=checked_name(options["ansible_host"]) if "ansible_host" in options else target.address,
        user=checked_user(options.get("ansible_user", target.user)),
        port=checked_port(options.get("ansible_port", str(target.port or ""))),
    )


def _login(word: str) -> tuple[str, str, int]:
    """user@nodes:port into its parts; an address with colons (IPv6) needs brackets for a port."""
    user, at, rest = word.rpartition("@")
    if at and (not user or user.endswith(",")):
        raise NodesetError(f"{rest[:60]!r} has no user before its @")
    if _address(rest) is not None:
        return checked_user(user), rest, 0
    nodes, colon, port = rest.rpartition(":")
    if colon and port.isdigit():
        return checked_user(user), nodes, checked_port(port)
    return checked_user(user), rest, 0


def checked_name(name: str) -> str:
    """The name, if it is a host name or address. Raises NodesetError."""
    if not is_name(name):
        raise NodesetError(f"{name[:60]!r} is not a node name or address")
    return name


def checked_user(user: str) -> str:
    """The user name, which may be empty. Raises NodesetError."""
    if user and not _USER.fullmatch(user):
        raise NodesetError(f"{user[:40]!r} is not a user name")
    return user


def checked_port(text: str) -> int:
    """A port as a number, 0 for none. Raises NodesetError."""
    if not text:
        return 0
    if not text.isdigit() or not 0 < int(text[:6]) < 65536:
        raise NodesetError(f"{text[:20]!r} is not a port (1-65535)")
    return int(text)


def checked_jump(text: str) -> str:
    """A chain of jump hosts, `[user@]host[:port][,...]`, which may be empty. Raises NodesetError."""
    if len(text) > 300:
        raise NodesetError("a chain of jump hosts has at most 300 characters")
    for hop in filter(None, text.strip().split(",")):
        user, host, port = _login(hop)
        checked_name(host)
    return text.strip()


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    scope = text.strip("[]").partition("%")[2]
    if scope and not _SCOPE.fullmatch(scope):
        return None
    try:
        return ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return None


def _size(text: str) -> int:
    """How many nodes a nodeset names at most, without expanding it: `x[1-999999999]` must not fill the memory."""
    total = 0
    for part in re.split(r",(?![^\[]*\])", text):
        product = 1
        for ranges in _RANGE.findall(part):
            product *= sum(_span(piece) for piece in ranges.split(","))
            if product > MOST_NODES:
                return product
        total += product
    return total


def _span(piece: str) -> int:
    low, dash, high = piece.partition("/")[0].partition("-")
    if not dash or not low.isdigit() or not high.isdigit():
        return 1
    return max(1, int(high[:18]) - int(low[:18]) + 1)
