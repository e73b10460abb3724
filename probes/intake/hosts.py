"""Names of nodes in names of files and of reports: gpu-017.dmesg.txt, sosreport-gpu-017-2026-06-01-abcdefg.

Shape    node_of_name(path, known names) -> node; of_report(folder) -> node; "" for none
Errors   none
Source   sos 4: sosreport-<host>[-<case>]-<date>-<letters>, sos/policies (build_archive_name)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from probes.intake.names import is_host, is_other, looks_like_a_node, named, stem

_REPORT = re.compile(r"sosreport-([A-Za-z][\w.-]{0,62}?)(?:-\d{4,12})?-\d{4}-\d\d-\d\d(?:-[a-z]{7})?")
_HOSTNAME = re.compile(r"hostname|uname_-n|(?<![a-z])nodename", re.I)
_UNAME = re.compile(r"\s{0,8}Linux ([A-Za-z][\w.-]{0,62}) \d{1,2}\.\d{1,3}[.\w+-]{0,60} #")
# What else stands in a file's name beside its node's: tools, forms, and what they are of.
_NOT_NODE = re.compile(
    r"dmesg|kern(?:el)?|kmsg|syslog|messages|journal(?:ctl)?|nvidia|smi|bug|report|dcgm[iq]?|diag|ib\w{0,16}|perfquery"
    r"|mlxlink|mlnx|qos|dcb|rdma|ethtool|pyspy|py|spy|stacks?|dump|logs?|out|err|stdout|stderr|output|txt|json|ps|aux|top"
    r"|topo|pidstat|mpstat|vmstat|lscpu|lspci|lsmod|modules|numactl|nproc|limits|ulimit|psi|pressure|cpu|stat|max"
    r"|load(?:avg)?|uptime|env|xid|ip|link|addr|counters?|sysfs|iptables|nft|ss|netstat|taskset|before|after|first|second"
    r"|free|df|mounts?|chrony\w{0,2}|ntpq|timedatectl|sminfo|show|gids|statistics?|full|[qtskS]|t\d|hw|os|sos|sosreport"
    r"|host|of|from|on|the|\d|\d{4,14}", re.I,
)  # fmt: skip
_IP = re.compile(r"ip-\d")  # ip-10-0-0-4 is a name, `ip link` a tool
_GPU_NUMBER = re.compile(r"(?:gpu|gb|h|a|b)\d{1,2}")  # an index, or a model: gpu3, h100 needs more around it


def told_by(name: str, text: str) -> str:
    """The node that the output of `hostname` or `uname -a` names, "" where a file is none of them."""
    words = text[:400].split()
    if len(words) == 1 and _HOSTNAME.search(name[:200]) and is_host(words[0]) and len(words[0]) < 64:
        return words[0].partition(".")[0]
    found = _UNAME.match(text[:400])
    return found[1].partition(".")[0] if found and text.strip().count("\n") == 0 else ""


def of_report(folder: str) -> str:
    """The node of a folder that sos wrote: sosreport-<node>[-<case>]-<date>-<letters>."""
    found = _REPORT.fullmatch(folder)
    return found[1] if found else ""


def node_of_name(path: PurePosixPath, known: Iterable[str]) -> str:
    """The node that a file's name says: gpu-017.dmesg.txt, dmesg_gpu-017.log. `known`: names from elsewhere."""
    name = path.name[:200]
    plain = _spaced(name)
    mine = [one for one in known if len(one) > 2 and re.search(rf"(?<![\w-]){re.escape(one)}(?![\w-])", plain)]
    if mine:
        return max(mine, key=len)
    found = set()
    for token in re.split(r"[._+,@ ]+", stem(name)):
        words = token.split("-")
        while len(words) > 1 and _NOT_NODE.fullmatch(words[0]) and not _IP.match(token):
            words = words[1:]
        while len(words) > 1 and _NOT_NODE.fullmatch(words[-1]) and not words[-1].isdigit():
            words = words[:-1]
        one = "-".join(words)
        if looks_like_a_node(one) and not _GPU_NUMBER.fullmatch(one.lower()) and named(PurePosixPath(one)).rank is None:
            found.add(one)
    return found.pop() if len(found) == 1 else ""


def _spaced(name: str) -> str:
    return re.sub(r"[._]+", " ", name) + " " + name


_NUMBERED = re.compile(r"\d+|(?<=[-_])[a-h]$")  # tz-1 and tz-2, rack-a and rack-b


def alike(words: Iterable[str]) -> set[str]:
    """Of these words those that differ from another one in their number only, and are no ranks, steps or GPUs: what
    people call nodes, whatever they call them."""
    groups: dict[str, set[str]] = {}
    for word in words:
        shape = _NUMBERED.sub("#", word)
        plain = is_host(word) and shape != word and not _GPU_NUMBER.fullmatch(word.lower())
        if plain and not is_other(word) and named(PurePosixPath(word)).rank is None:
            groups.setdefault(shape, set()).add(word)
    return {word for group in groups.values() if len(group) > 1 for word in group}


def of_names(paths: Iterable[PurePosixPath]) -> set[str]:
    """Nodes of files of whole nodes that lie beside each other: tz-1_dmesg.txt and tz-2_dmesg.txt, dmesg.tz-1.txt."""
    words = (word for path in paths for word in re.split(r"[._ ]+", stem(path.name)[:200])[:8])
    return alike(word for word in words if not _NOT_NODE.fullmatch(re.sub(r"[-\d]+$", "", word)))
