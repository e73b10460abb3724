"""Commands that people type before what they paste, and on which node each of them ran.

Shape    known(word) -> whether a line that begins so is a command; far(command) -> the node or pod that it ran on, "";
         heading(command) -> the heading of the table that it prints, which a grep behind it takes away, ""
Errors   none
Source   manuals of kubectl exec, oc, ssh(1), pdsh, clush, srun; a pod counts as a node: it is what its readings are of
"""

from __future__ import annotations

import re

# What pasted.py does not list: shells over many nodes, containers, and what people look at CPUs and limits with.
_KNOWN = re.compile(
    r"pdsh|dsh|clush|pssh|pdcp|rsh|ssh|ansible|salt|xdsh|psh|kubectl|oc|crictl|ctr|docker|podman|nerdctl"
    r"|apptainer|enroot|singularity|tr|cut|awk|sed|egrep|fgrep|zgrep|ls|stat|file|find|wc|sort|sleep|watch"
    r"|for|while|sh|bash|echo|htop|atop|sar|perf|pidof|pgrep|pmap|turbostat|cpupower|systemd-cgtop"
    r"|systemd-cgls|cgroups|lstart|schedtool|chrt|numastat|nsys|ncu|dcgm-exporter|nv-hostengine|python"
    r"|python3|bpftrace|runqlat|offcputime|cyclictest|stress-ng|nvtop|gpustat|tload|w|dstat|glances|sadf"
    r"|mpstat|who|last|lsblk|iotop|blkid|getent|tuned-adm|irqbalance|nfsstat|ibping|ib_write_bw|ib_read_bw"
    r"|ib_send_bw|opensm|show_counters|rdmatool|traceroute|ping|arp|route|tc|nstat|sos|crash|kdump|lstopo"
    r"|hwloc-ls|hwloc-bind|sbatch|sattach|sstat|sprio|sreport|seff"
)
_NAME = re.compile(r"(?:pods?/|nodes?/)?(?:[\w.-]{1,40}@)?([A-Za-z0-9][\w.-]{0,80})")
# Options whose value is a word of its own.
_VALUED = {
    "kubectl": re.compile(r"-[ncsl]|--(?:namespace|container|context|kubeconfig|server|selector|as)"),
    "ssh": re.compile(r"-[bcDEeFIiJLlmOopQRSWw]"),
}
_LISTS = ("-w", "--nodelist")
_ASKED = {"exec": 0, "logs": 0, "attach": 0, "describe": 1, "debug": 0}  # words between it and the name


def known(word: str) -> bool:
    """Whether a command is called so. `for` and `while` begin loops of them."""
    return bool(_KNOWN.fullmatch(word))


def far(command: str) -> str:
    """The one node, or pod, that this command asked; "" where it ran where it was typed, or on several."""
    words = command[:400].replace("'", " ").replace('"', " ").split()[:40]
    while words and words[0] in ("sudo", "time", "timeout", "-n"):
        words = words[1:]
    name = words[0].rpartition("/")[2] if words else ""
    if name in ("kubectl", "oc", "k"):
        plain = _without_options(words[1:], "kubectl")
        skipped = _ASKED.get(plain[0]) if plain else None
        if skipped and plain[1:2] and "/" in plain[1]:  # describe pod/NAME
            skipped = 0
        return _one(plain[1 + skipped :]) if skipped is not None else ""
    if name == "ssh":
        return _one(_without_options(words[1:], "ssh"))
    if name in ("srun", "pdsh", "clush", "dsh"):
        told = [after for before, after in zip(words, words[1:], strict=False) if before in _LISTS]
        told += [word.partition("=")[2] for word in words if word.startswith("--nodelist=")]
        return _one(told)
    return ""


def _without_options(words: list[str], tool: str) -> list[str]:
    found: list[str] = []
    skip = False
    for word in words:
        if word == "--":
            break
        if skip:
            skip = False
        elif word.startswith("-"):
            skip = bool(_VALUED[tool].fullmatch(word))
        else:
            found.append(word)
    return found


def _one(words: list[str]) -> str:
    """The first word, where it is the plain name of one node or pod."""
    found = _NAME.fullmatch(words[0].rstrip(";|")) if words else None
    return found[1] if found and not found[1].isdecimal() else ""


_ASKS_COLUMNS = re.compile(
    r"(?:^|[\s\"'])-?[A-Za-z]{0,6}o[ =]?((?:[%a-z_]{1,16}(?::\d{1,3})?=?)(?:,[%a-z_]{1,16}(?::\d{1,3})?=?){1,24})"
)
_NAMES = {
    "pid": "PID", "ppid": "PPID", "lwp": "LWP", "tid": "LWP", "spid": "LWP", "psr": "PSR", "stat": "STAT", "s": "S",
    "state": "S", "pcpu": "%CPU", "%cpu": "%CPU", "c": "C", "cp": "CP", "comm": "COMMAND", "ucmd": "COMMAND",
    "ucomm": "COMMAND", "args": "COMMAND", "cmd": "COMMAND", "command": "COMMAND", "nlwp": "NLWP", "thcount": "NLWP",
    "user": "USER", "euser": "USER", "uname": "USER", "uid": "UID", "wchan": "WCHAN",
}  # fmt: skip
_MORE_WORDS = ("lstart", "bsdstart", "start")  # printed with spaces in them
_KINDS = (
    (re.compile(r"-?a?ux\w{0,4}|aux\w{0,4}"), "USER PID %CPU %MEM VSZ RSS TTY STAT START TIME COMMAND"),
    (re.compile(r"-eLf|-Lef|-ALf"), "UID PID PPID LWP C NLWP STIME TTY TIME CMD"),
    (re.compile(r"-[eA]f|-fe"), "UID PID PPID C STIME TTY TIME CMD"),
)


def heading(command: str) -> str:
    """Of ps, whose columns its options name."""
    first = command[:400].partition("|")[0]
    words = first.replace("'", " ").replace('"', " ").split()
    if "ps" not in [word.rpartition("/")[2] for word in words]:
        return ""
    if asked := _ASKS_COLUMNS.search(first):
        keys = [re.sub(r"[:=].*", "", key) for key in asked[1].split(",")]
        if set(keys) & set(_MORE_WORDS):
            return ""
        return " ".join(_NAMES.get(key, key.upper()) for key in keys)
    options = words[[word.rpartition("/")[2] for word in words].index("ps") + 1 :]
    return next((heads for word in options for pattern, heads in _KINDS if pattern.fullmatch(word)), "")
