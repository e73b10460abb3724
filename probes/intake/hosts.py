"""Names of nodes in names of files and of reports: gpu-017.dmesg.txt, sosreport-gpu-017-2026-06-01-abcdefg.

Shape    node_of_name(path, known names) -> node; of_report(folder) -> node; "" for none
Errors   none
Source   sos 4: sosreport-<host>[-<case>]-<date>-<letters>, sos/policies (build_archive_name)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from probes.intake.brought import NodeFile
from probes.intake.names import KEYED, is_host, is_other, is_other_word, looks_like_a_node, named, stem

_REPORT = re.compile(r"sosreport-([A-Za-z][\w.-]{0,62}?)(?:-\d{4,12})?-\d{4}-\d\d-\d\d(?:-[a-z]{7})?")
# Renamed by people: a shorter date, no date, a ticket.
_RENAMED = re.compile(r"sosreport[-_]([A-Za-z][\w.-]{0,62}?)(?:[-_.](?:\d{4,12}|[a-z]{7}))*")
_UNAME = re.compile(r"\s{0,8}Linux ([A-Za-z][\w.-]{0,62}) \d{1,2}\.\d{1,3}[.\w+-]{0,60} #")
# What else stands in a file's name beside its node's: tools, forms, and what they are of.
_NOT_NODE = re.compile(
    r"dmesg|kern(?:el)?|kmsg|syslog|messages|journal(?:ctl)?|nvidia|smi|bug|report|dcgm[iq]?|diag|ib\w{0,16}|perfquery"
    r"|mlxlink|mlnx|qos|dcb|rdma|ethtool|pyspy|py|spy|stacks?|dump|logs?|out|err|stdout|stderr|output|txt|json|ps|aux|top"
    r"|topo|pidstat|mpstat|vmstat|lscpu|lspci|lsmod|modules|numactl|nproc|limits|ulimit|psi|pressure|cpu|stat|max"
    r"|load(?:avg)?|uptime|env|xid|ip|link|addr|counters?|sysfs|iptables|nft|ss|netstat|taskset|before|after|first|second"
    r"|free|df|mounts?|chrony\w{0,2}|ntpq|timedatectl|sminfo|show|gids|statistics?|full|[qtskS]|t\d|hw|os|sos|sosreport"
    r"|slurmd|slurmctld|slurmstepd|munged?|unmunge|kubelet|raylet|gcs_server|chronyd|ntpd|mmfs|mmdiag|weka|beegfs|lustre"
    r"|threads?|sched(?:stat)?|nccl|amd|rocm|ecc|remap(?:ped)?|power|clocks?|thermal|check|health|kubectl|pods?|events?|status"
    r"|state|info|version|list|sel|ipmi\w{0,4}|sensors?|bmc|firmware|raw|tail|head|metrics?"
    r"|host|of|from|on|the|\d|\d{4,14}", re.I,
)  # fmt: skip
_IP = re.compile(r"ip-\d")  # ip-10-0-0-4 is a name, `ip link` a tool
_SAYS_HOST = re.compile(r"(?:etc[-_.])?(?:hostname|host_?name|nodename|uname[-_]{1,3}n)(?:[-_]{1,3}[fs])?", re.I)
_UNAME = re.compile(r"Linux ([A-Za-z][\w.-]{0,62}) \d{1,2}\.\d{1,3}[\w.+-]{0,80} #\d")
_TIME = re.compile(r"(?<!\d)(?:20\d{6}(?!\d)|1[6-9]\d{8}(?!\d)|20\d\d-[01]\d-[0-3]\d)")  # when, not where
# Parts of a node, and looks at it: eth0 and eth1, look1 and look2.
_PART = re.compile(
    r"(?:eth|en[opsx]|ib|mlx|hfi|bond|nvme|sd|port|hca|nic|rail|lid|dev|cpu|numa|socket|leaf|spine|switch|sw|swp|look|pass|take"
    r"|sample|snap|round|shot|time|min|sec|part|t|v|r)[-_]?\d", re.I,
)  # fmt: skip
_GPU_NUMBER = re.compile(r"(?:gpu|gb|h|a|b)\d{1,2}")  # an index, or a model: gpu3, h100 needs more around it

_LOGIN = re.compile(r"^([A-Za-z][\w.-]{0,62}) login:(?=\s|$)", re.M)  # getty, on a serial console
_KERNEL_HOST = re.compile(
    r"(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})?|\d{4}-\d\d-\d\d[T ]\S{8,32}(?: [A-Z]{3,5})?)"
    r" ([\w.-]{1,80}) kernel:"
)


def kernel_host(text: str) -> str:
    """The node that the lines of a kernel log or of a serial console name most often."""
    hosts = _KERNEL_HOST.findall(text[:1_048_576]) or _LOGIN.findall(text[:65_536])
    return max(set(hosts), key=hosts.count) if hosts else ""


def told_by(name: str, text: str) -> str:
    """The node that a file tells which was written to say it: `hostname`, /etc/hostname, `uname -n` or `uname -a`."""
    said = text.strip()
    if len(said) > 400 or "\n" in said:
        return ""
    if found := _UNAME.match(said):
        said = found[1]
    elif not _SAYS_HOST.fullmatch(stem(name)):
        return ""
    return said.partition(".")[0] if len(said) < 64 and is_host(said) and said.partition(".")[0] != "localhost" else ""


def of_report(folder: str) -> str:
    """The node of a folder that sos wrote, sosreport-<node>[-<case>]-<date>-<letters>, or node=<node>."""
    found = _REPORT.fullmatch(folder) or KEYED.fullmatch(folder)
    return found[1] if found else ""


def called(folder: str, hosts: set[str]) -> str:
    """What the node of a folder is called: threads_n021 is of n021, where something else names that node."""
    inner = node_of_name(PurePosixPath(folder), hosts - {folder}) if "_" in folder else ""
    return of_report(folder) or (inner if inner in hosts else "") or _renamed(folder, hosts) or folder


def _renamed(folder: str, hosts: set[str]) -> str:
    """The node of a report that somebody gave another name, "" for none."""
    found = _RENAMED.fullmatch(folder)
    if found is None:
        return ""
    rest = re.split(r"[-_]", folder, maxsplit=1)[1]
    known = [host for host in hosts if re.match(rf"{re.escape(host)}(?:[-_.]|$)", rest)]
    return max(known, key=len) if known else found[1] if looks_like_a_node(found[1]) else ""


def node_of_name(path: PurePosixPath, known: Iterable[str]) -> str:
    """The node that a file's name says: gpu-017.dmesg.txt, dmesg_gpu-017.log. `known`: names from elsewhere."""
    name = path.name[:200]
    plain = _spaced(name)
    parts = re.split(r"[._+,@ ]+", stem(name))
    mine = [
        one
        for one in known
        if (len(one) > 2 and re.search(rf"(?<![\w-]){re.escape(one)}(?![\w-])", plain)) or one in parts
    ]
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
        plain = is_host(word) and shape != word and not _GPU_NUMBER.fullmatch(word.lower()) and not _TIME.search(word)
        if plain and not is_other(word) and named(PurePosixPath(word)).rank is None:
            groups.setdefault(shape, set()).add(word)
    return {word for group in groups.values() if len(group) > 1 for word in group}


def of_names(paths: Sequence[PurePosixPath]) -> set[str]:
    """Nodes of files of whole nodes that lie beside each other: tz-1_dmesg.txt and tz-2_dmesg.txt, ibstat_tz1.txt and
    ibstat_tz2.txt, or mlxlink_tz1_mlx5_0.json and mlxlink_tz2_mlx5_0.json."""
    words = [re.split(r"[._ ]+", stem(path.name)[:200]) for path in paths]
    last = [some[-1] for some in words if len(some) > 1 and _NOT_NODE.fullmatch(some[0]) and not _PART.match(some[-1])]
    # mlxlink_oak11_mlx5_0.json: the tool, the node, and which part of it
    inner = [some[1] for some in words if len(some) > 2 and _NOT_NODE.fullmatch(some[0]) and not _PART.match(some[1])]
    lone = (one for path in paths if (one := _only(path)))
    return alike(_bare(some[0]) for some in words) | alike(last) | alike(inner) | alike(lone)


_TICKET = re.compile(
    r"(?:inc|chg|req|prb|sr|tkt|ticket|jira|ops|sup|bug|issue|case)[-_]?\d|(?:gb?|[habvlt]|mi)\d{2,3}[a-z]?$", re.I
)


def of_repeated(paths: Iterable[PurePosixPath], kernel: Iterable[PurePosixPath]) -> set[str]:
    """The node whose name begins several files: am2.dmesg.txt and am2.ibstat.txt; or is all that a kernel log's says
    beside its tool: dmesg_am2.txt."""
    begins: dict[str, set[str]] = {}
    for path in paths:
        words = re.split(r"[._ ]+", stem(path.name)[:200])
        begins.setdefault(_bare(words[0]), set()).add(path.name)
    some = {word for word, names in begins.items() if len(names) > 1} | {_only(path) for path in kernel}
    return {
        word
        for word in some
        if len(word) > 2 and is_host(word) and word[-1].isdigit()
        and not _begins_as_other(word) and not _TICKET.match(word)
        and not _NOT_NODE.fullmatch(word) and not _PART.match(word) and not _GPU_NUMBER.fullmatch(word.lower())
        and not _TIME.search(word) and not _DEVICE.match(word) and named(PurePosixPath(word)).rank is None
    }  # fmt: skip


def beside_known(paths: Iterable[PurePosixPath], known: set[str]) -> set[str]:
    """Names of files that are like one of a node that something else names: kb-1.err of kb-1, then also kb-2.err."""
    words = {_bare(re.split(r"[._ ]+", stem(path.name)[:200])[0]) for path in paths}
    groups = {_NUMBERED.sub("#", word) for word in words & known}
    return {word for word in alike(words) | (words & known) if _NUMBERED.sub("#", word) in groups}


_NO_NODE_FOLDER = re.compile(
    r"good|bad|ok|fine|baseline|idle|busy|prev\w{0,4}|curr\w{0,4}|now|then|later|earlier|start|end|slow|fast|hung"
    r"|healthy|sick|control|reference|compare\w?|today|yesterday|morning|night|am|pm|t\d{1,4}|runs?|jobs?|nodes?|hosts?"
    r"|all|misc|etc|var|tmp|proc|sys|home|root|usr|opt|network|net|fabric|hardware|kernel|system|process|gpus?|cpus?"
    r"|commands?|sos_commands", re.I,
)  # fmt: skip


def _begins_as_other(name: str) -> bool:
    """rank3, step-7 and out, but not pollux, which only begins with the letters of poll."""
    letters = re.match(r"[A-Za-z]{0,60}", name)
    return is_other(name) and (letters is None or is_other_word(letters[0]))


def of_twins(insides: Iterable[PurePosixPath]) -> set[PurePosixPath]:
    """Folders beside each other with files of the same names, of whole nodes: alpha/dmesg.txt and beta/dmesg.txt."""
    groups: dict[tuple[PurePosixPath, str], set[PurePosixPath]] = {}
    for inside in insides:
        folder = inside.parent
        if folder.name and not node_of_name(PurePosixPath(inside.name), ()):
            groups.setdefault((folder.parent, inside.name), set()).add(folder)
    found = {folder for group in groups.values() if len(group) > 1 for folder in group}
    return {
        folder
        for folder in found
        if is_host(folder.name)
        and not _begins_as_other(folder.name)
        and not _NOT_NODE.fullmatch(folder.name)
        and not _NO_NODE_FOLDER.fullmatch(folder.name)
        and named(PurePosixPath(folder.name)).rank is None
    }


_DEVICE = re.compile(r"(?:mlx\d_(?:bond_?)?|bnxt_re|rdmap|rocep|ibp|irdma|efa_?)\w{0,12}(?![a-z0-9])", re.I)


def _only(path: PurePosixPath) -> str:
    """The one word of a file's name that is no tool, no adapter and no time; "" where there are several."""
    words = re.split(r"[._+,@ ]+", _DEVICE.sub(" ", stem(path.name)[:200]))
    left = [one for word in words if word and (one := _bare(word)) and not _NOT_NODE.fullmatch(one)
            and not _PART.match(one) and not _TIME.search(one)]  # fmt: skip
    return left[0] if len(left) == 1 and len(words) > 1 else ""


def of_fabric(nodes: Iterable[NodeFile], folders: Iterable[PurePosixPath]) -> set[str]:
    """Nodes that a sweep of the fabric names and that stand in the names of files or folders."""
    nodes = list(nodes)
    there = "\n".join({str(one.inside)[:400] for one in nodes} | {str(one)[:400] for one in folders})
    names = {
        device.name.rpartition(" ")[0].split(" ")[0]
        for one in nodes if one.probe == "ib.fabric" and one.reading.facts is not None
        for device in one.reading.facts.devices[:50_000] if device.kind == "hca" and " " in device.name
    }  # fmt: skip
    return {name for name in names if 2 < len(name) < 64 and is_host(name) and name in there}


def _bare(word: str) -> str:
    """gpu-19-dmesg as gpu-19: what a tool is called is no part of its node's name."""
    parts = word.split("-")
    while len(parts) > 1 and _NOT_NODE.fullmatch(parts[-1]) and not parts[-1].isdigit():
        parts.pop()
    return "-".join(parts)
