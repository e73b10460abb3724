"""Names of nodes in names of files and of reports: gpu-017.dmesg.txt, sosreport-gpu-017-2026-06-01-abcdefg.

Shape    node_of_name(path, known names) -> node; of_report(folder) -> node; "" for none
Errors   none
Source   sos 4: sosreport-<host>[-<case>]-<date>-<letters>, sos/policies (build_archive_name)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from probes.intake.names import (
    KEYED,
    begins_as_other,
    is_address,
    is_host,
    looks_like_a_node,
    named,
    stem,
    without_rank,
)

_REPORT = re.compile(r"sosreport-([A-Za-z][\w.-]{0,62}?)(?:-\d{4,12})?-\d{4}-\d\d-\d\d(?:-[a-z]{7})?")
# Renamed by people: a shorter date, no date, a ticket.
_RENAMED = re.compile(r"sosreport[-_]([A-Za-z][\w.-]{0,62}?)(?:[-_.](?:\d{4,12}|[a-z]{7}))*")
# What else stands in a name beside a node's: tools, forms, and what they are of.
NOT_NODE = re.compile(
    r"dmesg|kern(?:el)?|kmsg|nvsmi|syslog|messages|journal(?:ctl)?|nvidia|(?:nvidia|amd|rocm)?smi|bug|report|dcgm[iq]?|diag|ib\w{0,16}|perfquery"
    r"|mlxlink|mlnx|qos|dcb|rdma|ethtool|pyspy|py|spy|stacks?|dump|logs?|out|err|stdout|stderr|output|txt|json|csv|tsv|xml|ps|aux|top"
    r"|topo|pidstat|mpstat|vmstat|lscpu|lspci|lsmod|modules|numactl|nproc|limits|ulimit|psi|pressure|cpu|stat|max"
    r"|load(?:avg)?|uptime|env|xid|ip|link|addr|counters?|sysfs|iptables|nft|ss|netstat|taskset|before|after|first|second"
    r"|free|df|mounts?|chrony\w{0,2}|ntpq|timedatectl|sminfo|show|gids|statistics?|full|[qtskS]|t\d|hw|os|sos|sosreport"
    r"|slurmd|slurmctld|slurmstepd|munged?|unmunge|kubelet|raylet|gcs_server|chronyd|ntpd|mmfs|mmdiag|weka|beegfs|lustre"
    r"|threads?|sched(?:stat)?|nccl|amd|rocm|ecc|remap(?:ped)?|power|clocks?|thermal|check|health|kubectl|pods?|events?|status"
    r"|state|info|version|list|sel|ipmi\w{0,4}|sensors?|bmc|firmware|raw|tail|head|metrics?"
    r"|sol|serial|consoles?|conman|conserver|screen|tty\w{0,4}|idrac\d?|ilo\d?|i?lom|redfish|oob|mgmt|netconsole|pstore|crash"
    r"|erst|efi(?:vars)?|ramoops|nvram|pmsg|ftrace|vmcore|kdump|mce(?:log)?|edac|rasdaemon|fabric(?:manager)?|fm|sdr|fru|hwlog|eventlog|events|boot|panic|gpustat|nvlink|nvsm|[dp]mon|perf|p2p|nvbandwidth|bandwidth|bw|latency|results?|burn"
    r"|simplep2p|(?:p2p)?bandwidthlatencytest|collect(?:ed|ion|or)?|gather(?:ed)?|bundle"
    r"|diagnostics?|carrier|mtu|host|of|from|on|the|\d|\d{4,20}", re.I,
)  # fmt: skip
# Of private networks (RFC 1918, RFC 6598): 10.9.0.2.log, dmesg-10.9.0.2; others may be versions.
_AT = re.compile(r"(?:^|[-_@ ])((?:10|172|192|100)(?:\.\d{1,3}){3})(?:$|[-_@ .](?!\d))")
_IP = re.compile(r"ip-\d")  # ip-10-0-0-4 is a name, `ip link` a tool
_SAYS_HOST = re.compile(r"(?:etc[-_.])?(?:hostname|host_?name|nodename|uname[-_]{1,3}n)(?:[-_]{1,3}[fs])?", re.I)
_UNAME = re.compile(r"Linux ([A-Za-z][\w.-]{0,62}) \d{1,2}\.\d{1,3}[\w.+-]{0,80} #\d")
TIME = re.compile(r"(?<!\d)(?:20\d{6}(?!\d)|1[6-9]\d{8}(?!\d)|20\d\d-[01]\d-[0-3]\d)")  # when, not where
# Parts of a node, and looks at it: eth0 and eth1, look1 and look2.
PART = re.compile(
    r"(?:eth|en[opsx]|ib|mlx|hfi|bond|nvme|sd|port|hca|nic|rail|lid|dev|cpu|numa|socket|leaf|spine|switch|sw|swp|look|pass|take"
    r"|sample|snap|round|shot|time|min|sec|part|t|v|r)[-_]?\d", re.I,
)  # fmt: skip
_GPU_NUMBER = re.compile(r"gpu\d|(?:gb|h|a|b)\d{1,2}")  # an index, or a model: gpu3, h100 needs more around it
_OF_GPU = re.compile(r"gpu[-_]?\d{1,2}", re.I)  # a device of the node that is named before it

_LOGIN = re.compile(r"^([A-Za-z][\w.-]{0,62}) login:(?=\s|$)", re.M)  # getty, on a serial console
_KERNEL_HOST = re.compile(
    r"(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})?|\d{4}-\d\d-\d\d[T ]\S{8,32}(?: [A-Z]{3,5})?)"
    r" ([\w.-]{1,80}) kernel:"
)
_BARE_HOST = re.compile(r"^([A-Za-z][\w.-]{1,62}) kernel: ", re.M)  # somebody cut the times away
_TITLE = re.compile(  # "gpu-07 dmesg:", of who wrote it above
    r"\A\W{0,4}(?:(?:on|of|node|host) )?([A-Za-z][\w.-]{0,60}\d)[:,]? {0,2}\(?(?:dmesg|kernel log|journalctl|console)\b"
)
_NO_HOST = ("the", "from", "my", "linux", "daemon", "user", "warn", "err", "info", "kern")


def kernel_host(text: str) -> str:
    """The node that the lines of a kernel log or of a serial console name most often."""
    hosts = _KERNEL_HOST.findall(text[:1_048_576]) or _LOGIN.findall(text[:65_536])
    hosts = hosts or _TITLE.findall(text.lstrip()[:200])[:1]
    hosts = hosts or [name for name in _BARE_HOST.findall(text[:65_536]) if name.lower() not in _NO_HOST]
    return max(set(hosts), key=hosts.count) if hosts else ""


def told_by(name: str, text: str) -> str:
    """The node that a file tells which was written to say it: `hostname`, /etc/hostname, `uname -n` or `uname -a`."""
    said = text.strip()
    if len(said) > 400 or "\n" in said:
        return ""
    if found := _UNAME.match(said):
        said = found[1]
    elif not any(_SAYS_HOST.fullmatch(part) for part in (stem(name), *re.split(r"[._ ]", stem(name)))):
        return ""
    return said.partition(".")[0] if len(said) < 64 and is_host(said) and said.partition(".")[0] != "localhost" else ""


def of_report(folder: str) -> str:
    """The node of a folder that sos wrote, sosreport-<node>[-<case>]-<date>-<letters>, or node=<node>."""
    found = _REPORT.fullmatch(folder) or KEYED.fullmatch(folder)
    return found[1] if found else ""


# What collectors put behind a node's name: n021-collect, n021_bundle.
_COLLECTED = re.compile(
    r"([A-Za-z][\w.-]{0,60}\d)[-_.](?:collect(?:ed|ion|or)?|gather(?:ed)?|bundle|diag(?:nostic)?s?|logs?|debug|report"
    r"|support|evidence|info|out(?:put)?)",
    re.I,
)


def called(folder: str, hosts: set[str]) -> str:
    """What the node of a folder is called: threads_n021 is of n021, where something else names that node."""
    inner = node_of_name(PurePosixPath(folder), hosts - {folder}) if re.search("[-_]", folder) else ""
    collected = found[1] if (found := _COLLECTED.fullmatch(folder)) and is_host(found[1]) else ""
    return of_report(folder) or (inner if inner in hosts else "") or _renamed(folder, hosts) or collected or folder


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
    known = frozenset(known)
    spaced = _spaced(name)
    bare = without_time(stem(name))
    if (at := _AT.search(bare)) is not None and is_address(at[1]):
        return at[1]
    parts = re.split(r"[._+,@ ]+", bare)
    mine = [
        one
        for one in known
        if (len(one) > 2 and re.search(rf"(?<![\w-]){re.escape(one)}(?![\w-])", spaced)) or one in parts
    ]
    if mine:
        return max(mine, key=len)
    found = set()
    for token in parts:
        if within := _within(token, known):
            return within
        words = token.split("-")
        while len(words) > 1 and NOT_NODE.fullmatch(words[0]) and not _IP.match("-".join(words)):
            words = words[1:]
        while len(words) > 1 and NOT_NODE.fullmatch(words[-1]) and not words[-1].isdigit():
            words = words[:-1]
        if len(words) > 1 and _OF_GPU.fullmatch(words[-1]) and looks_like_a_node("-".join(words[:-1])):
            words = words[:-1]  # one GPU of that node: dgx-23-gpu4
        one = "-".join(words)
        if looks_like_a_node(one) and not _GPU_NUMBER.fullmatch(one.lower()) and named(PurePosixPath(one)).rank is None:
            found.add(one)
    return found.pop() if len(found) == 1 else ""


def _within(token: str, known: frozenset[str]) -> str:
    """The known node whose name begins or ends a longer one: dgx-23-sol, console-dgx-23, nic-of-dgx-23. A word with a
    number makes it another's name: dgx-2-1 is not dgx-2's, but dgx-2-gpu4 is of a GPU there."""
    words = token.split("-")
    for size in range(len(words) - 1, 0, -1):
        for mine, rest in ((words[:size], words[size:]), (words[-size:], words[:-size])):
            name = "-".join(mine)
            numbered = [word for word in rest if any(c.isdigit() for c in word) and not _OF_GPU.fullmatch(word)]
            if name in known and any(c.isdigit() for c in name) and not numbered:
                return name
    return ""


_COUNTING = re.compile(r"(?:[a-z]{1,12}[-_])?(?:node|host|machine|server)[-_]?(\d{1,4})", re.I)
_ENDS = re.compile(r"[^\d]\d{1,6}$")


def same_as(name: str, known: Iterable[str]) -> str:
    """The known node that people call shorter: g18 is mn1-g18, and node3 beside w-0 to w-3 is w-3. "" where it is
    known itself, or where two may be meant."""
    some = set(known)
    if name in some or not _ENDS.search(name):
        return ""
    longer = {one for one in some if re.search(rf"[-_]{re.escape(name)}(?:\.|$)", one)}
    if len({one.partition(".")[0] for one in longer}) == 1:
        return min(longer, key=len)
    counted = _COUNTING.fullmatch(name)
    family = {one for one in some if _ENDS.search(one)}
    if counted is None or longer or len({NUMBERED.sub("#", one) for one in family}) != 1:
        return ""
    numbers = {int(re.findall(r"\d+", one)[-1]): one for one in family}
    zero_based = len(numbers) > 1 and len(numbers) == len(family) and 0 in numbers
    return numbers.get(int(counted[1]), "") if zero_based else ""


def shorter_in(path: PurePosixPath, known: Iterable[str]) -> str:
    """The known node that a word of a file's name calls shorter: mn1-g18 of g18-rank11.log, "" for none."""
    words = (
        plain(without_rank(one).strip(" -_")) for one in re.split(r"[._+,@ ]+", without_time(stem(path.name[:200])))
    )
    some = frozenset(known)
    return next((found for word in words if word and (found := same_as(word, some))), "")


def plain(name: str) -> str:
    """dgx-23-bmc, bmc-dgx-23 and dgx-23-console as dgx-23: words of tools and service processors are no part of it."""
    words = bare(name).split("-")
    while len(words) > 1 and NOT_NODE.fullmatch(words[0]) and not _IP.match("-".join(words)):
        words = words[1:]
    return "-".join(words)


_STAMP = re.compile(r"[-_.T]?(?<!\d)20\d\d-?[01]\d-?[0-3]\d(?:[-_.T]?[0-2]\d[-:.]?[0-5]\d(?:[-:.]?[0-5]\d)?Z?)?(?!\d)")


def without_time(name: str) -> str:
    """n031-dmesg-2026-03-02 as n031-dmesg."""
    return _STAMP.sub("", name) or name


def _spaced(name: str) -> str:
    return re.sub(r"[._]+", " ", name) + " " + name


NUMBERED = re.compile(r"\d+|(?<=[-_])[a-hA-H]$")  # tz-1 and tz-2, rack-a and rack-b


def alike(words: Iterable[str]) -> set[str]:
    """Of these words those that differ from another one in their number only, and are no ranks, steps or GPUs: what
    people call nodes, whatever they call them."""
    groups: dict[str, set[str]] = {}
    for word in words:
        shape = NUMBERED.sub("#", word)
        a_host = is_host(word) and shape != word and not _GPU_NUMBER.fullmatch(word.lower()) and not TIME.search(word)
        if a_host and not begins_as_other(word) and named(PurePosixPath(word)).rank is None:
            groups.setdefault(shape, set()).add(word)
    return {word for group in groups.values() if len(group) > 1 for word in group}


NO_NODE_FOLDER = re.compile(
    r"good|bad|ok|fine|baseline|idle|busy|prev\w{0,4}|curr\w{0,4}|now|then|later|earlier|start|end|slow|fast|hung"
    r"|healthy|sick|control|reference|compare\w?|today|yesterday|morning|night|am|pm|t\d{1,4}|runs?|jobs?|nodes?|hosts?"
    r"|all|misc|etc|var|tmp|proc|sys|home|root|usr|opt|network|net|fabric|hardware|kernel|system|process|gpus?|cpus?"
    r"|commands?|sos_commands", re.I,
)  # fmt: skip


DEVICE = re.compile(r"(?:mlx\d_(?:bond_?)?|bnxt_re|rdmap|rocep|ibp|irdma|efa_?)\w{0,12}(?![a-z0-9])", re.I)


_LONE = re.compile(r"(?=[^\d]{0,40}\d)[a-z][a-z0-9]{0,23}(?:-[a-z0-9]{1,16}){0,4}", re.I)
_HASH = re.compile(r"[0-9a-f]{7,}|[0-9a-f]{8}-[0-9a-f-]{4,30}", re.I)
_MODEL = re.compile(
    r"(?:rtx|gtx|mi)\d{2,4}\w?|g?[ahbv][1-8]00|a10|a16|a[34]0|h20|l4|l20|l40s?|t4|p40?|\w{0,3}xid-?\d.{0,4}", re.I
)
# What people number beside machines: versions and settings, models, times, parts of what they brought, and tickets.
_NUMBERED = """
py python cuda torch nccl rocm driver dcgm rev rc v x u bf fp int dp tp pp ep cp zero world seed cfg config model
variant trial set lvl level phase exp
gpt llama qwen mixtral bert vit t resnet yolo opt
utc gmt day week hour h m s jan feb mar apr may jun jul aug sep oct nov dec mon tue wed thu fri sat sun
top tail head last first page seg cmd note notes chat paste session window pane shell screen output fig no nr
ticket sev sn bug question jira ops sre chg req issue pid pod ecc
"""
_NUMBERED_WORDS = frozenset(_NUMBERED.split())
# What people call files that they number: terminal2, evidence1, snippet-3, mail1.
_OF_FILES = re.compile(
    r"term\w{0,6}|evid\w{0,6}|snip\w{0,6}|mail|msg|messages?|text|txt|file|doc|excerpt|extract|console|buffer|clip|lines?"
    r"|grep|cmd|command|session|shell|slack|teams|thread|alert|grafana|prom\w{0,8}|dashboard|panel|query|table|sheet|list|rows?"
    r"|(?!n)[a-z]\d{1,2}$", re.I,
)  # fmt: skip
_COUNTED = re.compile(r"([a-z]{1,10})-?\d{1,4}(?:[._-]\d{1,4}){0,3}[a-z]{0,2}", re.I)


def lone_node(path: PurePosixPath) -> str:
    """The node that the only word of a file's name can be that is no tool, c0417 of dmesg-c0417.txt, or its
    folder's. Nothing else names it, so it counts after all that does."""
    name = numbered_word(path.name)
    if name and may_be_lone(name) and (name != stem(path.name) or not _OF_FILES.match(name)):
        return name  # beside a tool's name, or as the whole name of the file
    folders = [folder.name for folder in path.parents if folder.name]
    return next((one for folder in folders if (one := numbered_word(folder)) and may_be_lone(one)), "")


def numbered_word(name: str) -> str:
    """The only word with a number that is no tool, of what somebody called a file or a folder."""
    words = [word for word in re.split(r"[._+,@ ]+", DEVICE.sub(" ", without_time(stem(name)[:200]))) if word]
    left = [one for word in words if not NOT_NODE.fullmatch(one := plain(word)) and not TIME.search(one)]
    left = [one for one in left if any(c.isdigit() for c in one)]  # nvlink-e, lspci-vv: an option
    return left[0] if len(left) == 1 else ""


def may_be_lone(name: str) -> bool:
    """Whether it is nothing else that has a number, such as a model, a version or a day."""
    if not _LONE.fullmatch(name) or _MODEL.fullmatch(name) or _HASH.fullmatch(name):
        return False
    if NOT_NODE.fullmatch(name.rstrip("0123456789")):  # dmesg2: the second look
        return False
    if (counted := _COUNTED.fullmatch(name)) and counted[1].lower() in _NUMBERED_WORDS:
        return False
    if PART.fullmatch(name) or _GPU_NUMBER.fullmatch(name):
        return False
    return not begins_as_other(name) and not NO_NODE_FOLDER.fullmatch(name) and named(PurePosixPath(name)).rank is None


def names_a_tool(name: str) -> bool:
    """Whether every word of it is of tools, looks and forms: ethtool-S_0, ibstat-before."""
    return all(NOT_NODE.fullmatch(word) for word in re.split(r"[-_. ]+", name) if word)


def bare(word: str) -> str:
    """gpu-19-dmesg as gpu-19: what a tool is called is no part of its node's name."""
    parts = word.split("-")
    while len(parts) > 1 and NOT_NODE.fullmatch(parts[-1]) and not parts[-1].isdigit():
        parts.pop()
    return "-".join(parts)
