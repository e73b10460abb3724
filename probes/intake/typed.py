"""Words that begin a command, and the columns that a command asked for, whose heading a grep behind it takes away.

Shape    known(word) -> whether a line that begins so is a command; heading(command) -> the heading of its table, ""
Errors   none
Source   ps(1)
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


def known(word: str) -> bool:
    """Whether a command is called so. `for` and `while` begin loops of them."""
    return bool(_KNOWN.fullmatch(word))


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
