"""What somebody typed at a prompt: on which node it ran, and what it asked.

    ssh gpu-017 'dmesg -T | tail'            kubectl exec pod-3 -c main -- nvidia-smi
    ipmitool -H gpu-017-bmc sel list
    srun -w gpu-017 nvidia-smi               pdsh -w gpu-[001-004] "nvidia-smi --query-gpu=... --format=csv,noheader"

Shape    asked(command) -> Asked
Errors   none: what is not understood is the command as it stands
Source   manuals of ssh 9, kubectl exec, srun 24, pdsh 2.34, clush 1.9; nvidia-smi(1) on --format=noheader
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from probes.intake.hosts import plain
from probes.intake.names import is_address, is_host

MANY = ("pdsh", "clush", "dsh", "pssh", "parallel-ssh", "ansible", "for")  # run one command on many nodes
_BEFORE = ("sudo", "time", "nohup", "watch", "exec", "-n", "-E", "--")
# Options of each that take the next word.
_WITH_VALUE = {
    "ssh": "BbcDEeFIiJLlmOopQRSWw",
    "kubectl": "nc",
    "oc": "nc",
    "srun": "nNptJcwA",
    "docker": "euw",
    "podman": "euw",
}
_TELLS = {"logs": 0, "describe": 1}  # words before the name
_QUERY = re.compile(r"--query-(?:gpu|remapped-rows)[= ]\"?([A-Za-z][\w.,]{1,4000})")
MOST = 4096


@dataclass(frozen=True, slots=True)
class Asked:
    """`node`: where it ran, "" for where it was typed. `command`: what ran there. `many`: on many nodes, each named in
    the output. `columns`: of a nvidia-smi query whose output has no header."""

    node: str = ""
    command: str = ""
    many: bool = False
    columns: str = ""


def asked(text: str) -> Asked:
    text = text.strip()[:MOST]
    columns = ""
    if (query := _QUERY.search(text)) and "noheader" in text:
        columns = ", ".join(query[1].strip(",").split(","))
    words = text.split()
    while words and (words[0] in _BEFORE or re.fullmatch(r"[A-Z_]{1,40}=\S*", words[0])):
        words = words[1:]
    if words and words[0] == "timeout":
        words = words[1:]
        while words and re.fullmatch(r"-k|-s|--?\w[\w-]*(?:=\S+)?|\d{1,6}[smh]?", words[0]):
            words = words[1:]
    tool = words[0].rpartition("/")[2] if words else ""
    if tool in MANY:
        node, rest = _fanned(words)
        return Asked(node, rest or text, not node, columns)
    if tool == "ssh":
        node, rest = _remote(words[1:], "ssh")
        return Asked(node, rest, False, columns)
    if tool in ("kubectl", "oc", "docker", "podman") and "exec" in words[1:8]:
        node, rest = _remote(words[words.index("exec") + 1 :], tool)
        return Asked("" if tool in ("docker", "podman") else node, rest or text, False, columns)
    if tool in ("kubectl", "oc") and (verb := next((word for word in words[1:8] if word in _TELLS), "")):
        node, _ = _remote(words[words.index(verb) + 1 + _TELLS[verb] :], tool)  # describe pod NAME, logs NAME
        return Asked(node, text, False, columns)
    if tool in ("ipmitool", "ipmi-sel", "ipmi-sensors", "ipmiconsole", "racadm", "console"):
        found = re.search(r"\s(?:-[Hhr]|--hostname[= ])\s{0,2}([A-Za-z][\w.-]{0,62})", text)
        return Asked(plain(found[1].partition(".")[0]) if found else "", text, False, columns)
    if tool == "srun":
        found = re.search(r"(?:-w|--nodelist)[ =]?([A-Za-z][\w.-]{0,62})(?= )", text)
        _, rest = _remote(words[1:], "srun", host=False)
        return Asked(found[1] if found else "", rest or text, False, columns)
    return Asked("", text, False, columns)


_ECHO = re.compile(r"(?:^|[;&\s{])(?:echo|printf)(?: -[ne]{1,2})? {1,4}([^;|&\n]{1,200})")
_LOOP = re.compile(r"(?:^|[;&|\s])for (\w{1,40}) in ([^;\n]{1,2000}?) ?; ?do\b")
_BRACES = re.compile(r"([\w.-]{0,60})\{(?:(\d{1,5})\.\.(\d{1,5})|([\w.,-]{1,400}))\}([\w.-]{0,60})")


def looped(text: str) -> dict[str, str]:
    """{what stands for a node: the node} of those that a loop of the shell goes through: for h in n1 n2, n{1..4},
    n{1,3}, 10.0.0.{5,6}; also where it goes through numbers and prints the name of each: for i in 0 1; do echo
    "## worker-$i", and where it asks one of a longer name: for p in worker-0 worker-1; do ... kubectl exec job-$p."""
    found = _LOOP.search(text[:MOST])
    if found is None:
        return {}
    words = [name for word in _numbers(found[2]).split()[:1024] for name in _braced(word.strip("'\""))][:1024]
    body = text[found.end() : MOST]
    if re.search(rf"/\$\{{?{found[1]}\b", body):  # cat /sys/fs/cgroup/$f: the words are files
        return {}
    whole = {word: node for word in words if (node := _asked_of(found[1], word, body)) and not word.isdecimal()}
    words += _printed(found[1], words, body)
    return {word: whole.get(word, word) for word in words if is_address(word) or (is_host(word) and len(word) > 1)}


def _numbers(words: str) -> str:
    """`$(seq 0 3)` as bash writes it: {0..3}."""
    return re.sub(r"(?:\$\(|`)seq(?: -w)? (\d{1,5}) (\d{1,5})(?:\)|`)", r"{\1..\2}", words)


def _asked_of(name: str, word: str, body: str) -> str:
    """The host that the loop's body asks in the turn of this word, "" where that is the word itself."""
    found = re.search(
        rf"\b(?:ssh|rsh|exec|logs|-w)\s(?:-\S{{1,40}}\s(?:[\w./=-]{{1,60}}\s)?){{0,6}}(?:\S{{1,40}}[@/])?([\w.-]{{0,60}})\$\{{?{name}\b\}}?([\w.-]{{0,60}})",
        body,
    )
    node = f"{found[1]}{word}{found[2]}" if found else ""
    return node if node.partition(".")[0] != word and is_host(node) else ""


def _printed(name: str, words: list[str], body: str) -> list[str]:
    """The names that echo or printf makes of the loop's words: worker-$i, node${i}."""
    shape = _ECHO.search(body)
    variable = re.compile(rf"\$(?:\{{{name}\}}|{name}\b)")
    told = [word.strip("\"'=#:[]()<>-,;") for word in shape[1].replace("\\n", " ").split()[:12]] if shape else []
    return [
        variable.sub(lambda _, word=word: word, one)
        for one in told
        if variable.search(one) and not variable.fullmatch(one)
        for word in words
    ]


def _braced(word: str) -> list[str]:
    """What bash(1) makes of one pair of braces."""
    found = _BRACES.fullmatch(word)
    if found is None:
        return [word]
    if found[4]:
        return [f"{found[1]}{part}{found[5]}" for part in found[4].split(",")]
    width = len(found[2]) if found[2].startswith("0") else 0
    numbers = range(int(found[2]), min(int(found[3]), int(found[2]) + 1023) + 1)
    return [f"{found[1]}{number:0{width}}{found[5]}" for number in numbers]


def _remote(words: list[str], tool: str, host: bool = True) -> tuple[str, str]:
    """(host, command) of the words behind the tool's name."""
    node, at = "", 0
    while at < len(words):
        word = words[at]
        if word == "--":
            at += 1
            break
        if word.startswith("-"):
            takes = not word.startswith("--") and len(word) == 2 and word[1] in _WITH_VALUE[tool]
            at += 2 if takes else 1
        elif host and not node:
            node = word.rpartition("@")[2].rpartition("/")[2].strip("'\"")
            at += 1
        else:
            break
    if at < len(words) and words[at] == "--":
        at += 1
    return _node(node), _rest(words[at:])


def _node(word: str) -> str:
    return word if is_host(word) or is_address(word) else ""


def _rest(words: list[str]) -> str:
    return " ".join(words).strip("'\" ")


def _fanned(words: list[str]) -> tuple[str, str]:
    """(the node where it is only one, the command)."""
    if words[0] == "for":
        return "", ""
    where, at = "", 1
    while at < len(words):
        word = words[at]
        if found := re.fullmatch(r"-[A-Za-z]{0,6}w", word):
            where, at = (words[at + 1] if at + 1 < len(words) else ""), at + 2
        elif found := re.fullmatch(r"-w(\S{1,400})", word):
            where, at = found[1], at + 1
        elif word.startswith("-"):
            at += 1 if len(word) > 2 or word in ("-b", "-B", "-L", "-S", "-q", "-a", "-N") else 2
        else:
            break
    return _node(where.strip("'\"")), _rest(words[at:])
