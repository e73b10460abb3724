"""What people paste together into one file: the same command of many nodes, many commands of one, or both.

    gpu-017: text            pdsh, clush: the node before every line
    [pod/worker-3/main] text kubectl logs --prefix: the pod before every line
    ===== gpu-017 =====      a heading of their own; also with a command in it
    ----- / gpu-017 / -----  dshbak and clush -b, also folded: gpu-[017-020]
    gpu-017 | CHANGED | rc=0 >>     ansible
    [1] 12:00:00 [SUCCESS] gpu-017  pssh
    $ dmesg -T               a prompt and what was typed; also root@gpu-017:~# and [root@gpu-017 ~]#

Shape    parts_of(text) -> Parts, none when it is one file
Errors   none
Source   manuals of pdsh 2.34 (dshbak), ClusterShell 1.9 (clush), pssh 2.3, ansible; kubectl logs --help
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from probes.core import lines_of
from probes.intake import commands
from probes.intake.hosts import alike
from probes.intake.names import is_host, looks_like_a_node

LOOKED_AT = 65_536  # characters by which it is known
MOST_PARTS, MOST_NODES = 20_000, 1_024
MOST_LABEL = 200  # characters: which process it is about may stand at its end
_PREFIX = re.compile(r"(?:\[pod/)?([A-Za-z][\w.-]{0,80})(?:: |:$|/[\w.-]{1,80}\] )")
_MARKED = re.compile(r"([=#*~<>+_-])\1{2,100} {0,4}([^\n]{1,160}?) {0,4}\1{2,100}$")
_OPEN = re.compile(r"([=#*+])\1{2,100} {1,4}([^\n]{1,100})$")  # ### gpu-017, without an end
_RULE = re.compile(r"-{4,200}$|={4,200}$")
_ANSIBLE = re.compile(
    r"([A-Za-z][\w.-]{0,62}) \| (?:CHANGED|SUCCESS|FAILED|UNREACHABLE)!? (?:\| rc=-?\d{1,3} )?(?:>>|=>)"
)
_PSSH = re.compile(r"\[\d{1,6}\] \d\d:\d\d:\d\d \[(?:SUCCESS|FAILURE)\] ([A-Za-z][\w.-]{0,62})(?: |$)")
_PROMPT = re.compile(
    r"(?:\([\w./-]{1,40}\) )?(?:\[?[A-Za-z_][\w.-]{0,31}@([A-Za-z][\w.-]{0,62})(?::| )[^\]#$%\n]{0,80}\]? ?"
    r"|([A-Za-z][\w.-]{0,62}):[^\s#$]{0,80})?"
    r"[#$] {0,2}(\S[^\n]{0,400})$"
)
_COMMANDS = ("dmesg", "journalctl", "nvidia-smi", "dcgmi", "ibstat", "ibstatus", "ibdev2netdev", "ibqueryerrors",
    "iblinkinfo", "ibnetdiscover", "ibdiagnet", "perfquery", "mlxlink", "rdma", "ethtool", "ip", "ss", "netstat", "ps",
    "top", "py-spy", "pystack", "gdb", "cuda-gdb", "strace", "cat", "tail", "head", "grep", "zcat", "free", "df",
    "du", "mount", "nfsstat", "nfsiostat", "lfs", "lctl", "iostat", "vmstat", "mpstat", "uptime", "numactl", "lscpu",
    "lspci", "ipmitool", "chronyc", "ntpq", "timedatectl", "timedatectl", "scontrol", "squeue", "sinfo", "sacct",
    "ncclras", "nc", "env", "printenv", "uname", "hostname", "lsmod", "sysctl", "systemctl", "kubectl", "curl",
    "rocm-smi", "amd-smi", "sensors", "dmidecode", "nvidia-bug-report.sh", "fabricmanager", "nv-fabricmanager",
    "ulimit", "prlimit", "lsof", "fuser", "pstree", "taskset", "cgget", "mpirun", "torchrun", "srun", "date",
    "ibv_devinfo", "show_gids", "sminfo", "mlnx_qos", "dcb", "lldptool", "mstlink", "ifconfig", "iptables",
    "iptables-save", "nft", "pidstat", "nproc", "findmnt")  # fmt: skip
_COUNTS = re.compile(
    r"ethtool_-S|ethtool_--stat|perfquery|ibqueryerrors|rdma_.{0,20}stat|infiniband|counters|cpu\.stat|nr_thr"
)
_TIME = re.compile(r"\d\d:\d\d|\d{4}-\d\d")
_NOT_OF_A_NODE = re.compile(r"[0-9a-f]{12}|localhost.{0,40}|host", re.I)  # a container's number, nobody's name
_WORD = re.compile(r"[\w.+/-]{1,80}")


@dataclass(frozen=True, slots=True)
class Part:
    """A file in a file. `nodes`: whose it is, () for nobody known; `label`: the command or heading."""

    nodes: tuple[str, ...]
    label: str
    text: str


def parts_of(text: str) -> list[Part]:
    """The files in it, at least two or one with a name; [] when it is one file by itself."""
    head = [line for line in lines_of(text[:LOOKED_AT], 1000) if line.strip()]
    if len(text) > LOOKED_AT and head:
        head.pop()
    if names := _prefixed(head):
        return _by_prefix(text, names)
    framed = (found[2].strip() for line in head if (found := _MARKED.match(line) or _OPEN.match(line)))
    known = alike(framed)
    parts = list(_by_headings(text, known)) if any(_may_head(line) for line in head) else []
    named = [part for part in parts if part.nodes or part.label]
    parts = _timed(parts)
    return parts if named and [part for part in parts if part.text.strip()] else []


def _timed(parts: list[Part]) -> list[Part]:
    """Outputs of counters with the time that `date` printed before them: between two looks the time matters."""
    found, when = [], ""
    for part in parts:
        told = part.text.strip()
        if re.match(r"date(?:_|$)", part.label) and _TIME.search(told[:80]):
            when = told.split("\n")[0][:80]
        elif when and _COUNTS.search(part.label) and told[:1] not in "[{":
            part = Part(part.nodes, part.label, f"{when}\n{part.text}")
        found.append(part)
    return found


# The node before every line -----------------------------------------------------------------------------------------


def _prefixed(head: list[str]) -> set[str]:
    """The names that stand before the lines, when they stand before nearly all of them."""
    found = [match[1] for line in head if (match := _PREFIX.match(line))]
    names = set(found)
    if len(found) * 20 < len(head) * 19 or len(names) > MOST_NODES:
        return set()
    pods = sum(line.startswith("[pod/") for line in head) > len(head) // 2
    alike = {re.sub(r"\d+", "#", name) for name in names}
    return (
        names if pods or all(map(_is_node, names)) or (len(names) > 1 and len(alike) == 1 and _digit(names)) else set()
    )


def _digit(names: set[str]) -> bool:
    return all(any(c.isdigit() for c in name) for name in names)


def _is_node(name: str) -> bool:
    return looks_like_a_node(name) or looks_like_a_node(name.partition(".")[0])


def _by_prefix(text: str, names: set[str]) -> list[Part]:
    lines: dict[str, list[str]] = {}
    last = ""
    for line in text.split("\n"):
        match = _PREFIX.match(line[:200])
        if match and (match[1] in names or len(lines) < MOST_NODES):
            last = match[1]
            lines.setdefault(last, []).append(line[match.end() :])
        elif last and line:
            lines[last].append(line)  # one that was torn
    return [Part((name,), "", "\n".join(some) + "\n") for name, some in lines.items()]


# Headings -----------------------------------------------------------------------------------------------------------


def _may_head(line: str) -> bool:
    return line[:1] in "=#*~<>+_-[$" or " | " in line[:80] or "$ " in line[:120] or "# " in line[:120]


def _by_headings(text: str, known: set[str]) -> Iterator[Part]:
    """Parts between headings. A command below a node's heading is that node's."""
    nodes: tuple[str, ...] = ()
    away: tuple[str, ...] = ()  # of one command alone, which asked another node
    label, typed, body = "", "", list[str]()
    lines = text.split("\n")
    at = count = 0
    while at < len(lines):
        found = _heading(lines, at, known) if count < MOST_PARTS and _may_head(lines[at][:200]) else None
        if found is None:
            body.append(lines[at])
            at += 1
            continue
        taken, who, command = found
        if any(line.strip() for line in body):
            yield Part(away or nodes, label, _headed(typed, body))
            count += 1
        nodes, label, body = who or nodes, command if command or who else label, []
        typed = _typed(lines[at][:500])
        away = _away(typed)
        at += taken
    if any(line.strip() for line in body):
        yield Part(away or nodes, label, _headed(typed, body))


def _typed(line: str) -> str:
    """What was typed behind a prompt."""
    prompt = _PROMPT.match(line.rstrip())
    return prompt[3] if prompt else ""


def _away(command: str) -> tuple[str, ...]:
    """The node that a command asked, be it another one."""
    name = commands.far(command)
    return (name,) if name and is_host(name) else ()


def _headed(command: str, body: list[str]) -> str:
    """The output, with the heading of its table where that was filtered away."""
    heading = commands.heading(command)
    if heading and not any(" PID " in f" {line} " or "%CPU" in line for line in body[:3]):
        body = [heading, *body]
    return "\n".join(body) + "\n"


def _heading(lines: list[str], at: int, known: set[str]) -> tuple[int, tuple[str, ...], str] | None:
    """(lines that the heading takes, nodes it names, command it tells), None when this line is none."""
    line = lines[at].rstrip()
    if len(line) > 500:
        return None
    if _RULE.match(line) and at + 2 < len(lines) and _RULE.match(lines[at + 2].rstrip()[:500]):
        nodes = _folded(lines[at + 1].strip()[:2000])
        return (3, nodes, "") if nodes else None
    if found := _ANSIBLE.match(line) or _PSSH.match(line):
        return 1, (found[1],), ""
    marked = _MARKED.match(line) or _OPEN.match(line)
    if marked and marked[2].strip() in known:  # before prompts: a root's is # too
        return 1, (marked[2].strip(),), ""
    if prompt := _PROMPT.match(line):
        host = prompt[1] or prompt[2] or ""
        if host or _command(prompt[3]):
            return 1, (host,) if is_host(host) and not _NOT_OF_A_NODE.fullmatch(host) else (), _label(prompt[3])
        return None
    return _told(marked[2].strip()) if marked else None


def _told(says: str) -> tuple[int, tuple[str, ...], str] | None:
    """A heading's words: a node, a command, or both."""
    words = [word.strip("()[]<>,;'\"").rstrip(":") for word in re.split(r"[\s|]+", says)][:12]
    nodes = next((nodes for word in words if (nodes := _folded(word))), ())
    rest = " ".join(word for word in words if not (nodes and _folded(word)))
    command = _label(rest) if _command(rest) else ""
    return (1, nodes, command) if nodes or command else None


def _folded(word: str) -> tuple[str, ...]:
    """The nodes of a name, or of a folded list with a count behind it, as clush prints it."""
    word = re.sub(r" \(\d{1,6}\)$", "", word)
    if _is_node(word):
        return (word,)
    if not re.fullmatch(r"[A-Za-z][\w.-]{0,62}\[[\d,-]{1,400}\][\w.,\[\]-]{0,400}", word):
        return ()
    names = tuple(_unfolded(word))
    return names if len(names) <= MOST_NODES and all(map(_is_node, names)) else ()


def _unfolded(word: str) -> Iterator[str]:
    """The names of gpu-[017-020,023],login1, as far as MOST_NODES."""
    for part in re.findall(r"[^,\[]+(?:\[[\d,-]*\])?[^,\[]*", word)[:MOST_NODES]:
        before, bracket, rest = part.partition("[")
        ranges, _, after = rest.partition("]")
        if not bracket:
            yield before
            continue
        for one in ranges.split(","):
            first, _, last = one.partition("-")
            last = last or first
            if first.isdigit() and last.isdigit() and int(last) - int(first) < MOST_NODES:
                for number in range(int(first), int(last) + 1):
                    yield f"{before}{number:0{len(first)}}{after}"


def _command(says: str) -> bool:
    words = _WORD.findall(says[:200])
    while (
        words and words[0] in ("sudo", "time", "timeout", "root", "output", "of", "node", "host") or words[:1] == ["-n"]
    ):
        words = words[1:]
    name = words[0].rpartition("/")[2] if words else ""
    return name in _COMMANDS or commands.known(name)


def _label(says: str) -> str:
    """A command as the name of a file."""
    return re.sub(r"[^\w.+-]+", "_", says.strip())[:MOST_LABEL].strip("_.") or "part"
