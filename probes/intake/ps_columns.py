"""The heading of a table that ps printed, by its options: a grep behind it takes the heading away.

Shape    heading(command) -> the heading, "" where the command is not ps or its columns hold spaces
Errors   none
Source   ps(1)
"""

from __future__ import annotations

import re

_ASKS_COLUMNS = re.compile(
    r"(?:^|[\s\"'])-?[A-Za-z]{0,6}o[ =]?((?:[%a-z_]{1,16}(?::\d{1,3})?=?)(?:,[%a-z_]{1,16}(?::\d{1,3})?=?){1,24})"
)
_NAMES = {
    "pid": "PID", "ppid": "PPID", "lwp": "LWP", "tid": "LWP", "spid": "LWP", "psr": "PSR", "stat": "STAT", "s": "S",
    "state": "S", "pcpu": "%CPU", "%cpu": "%CPU", "c": "C", "cp": "CP", "comm": "COMMAND", "ucmd": "COMMAND",
    "ucomm": "COMMAND", "args": "COMMAND", "cmd": "COMMAND", "command": "COMMAND", "nlwp": "NLWP", "thcount": "NLWP",
    "user": "USER", "euser": "USER", "uname": "USER", "uid": "UID", "wchan": "WCHAN",
}  # fmt: skip
_TALLIES = re.compile(r"\buniq -c|\bwc\b|\+\+|\+=")  # what comes out of the pipe are counts, not its rows
_MORE_WORDS = ("lstart", "bsdstart", "start")  # printed with spaces in them
_KINDS = (
    (re.compile(r"-?a?ux\w{0,4}|aux\w{0,4}"), "USER PID %CPU %MEM VSZ RSS TTY STAT START TIME COMMAND"),
    (re.compile(r"-eLf|-Lef|-ALf"), "UID PID PPID LWP C NLWP STIME TTY TIME CMD"),
    (re.compile(r"-[eA]f|-fe"), "UID PID PPID C STIME TTY TIME CMD"),
)


def heading(command: str) -> str:
    """Of ps, whose columns its options name."""
    first, _, then = command[:400].partition("|")
    if _TALLIES.search(then):
        return ""
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
