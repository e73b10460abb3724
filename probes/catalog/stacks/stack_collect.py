"""Takes the Python stacks of the ranks on a node and of their workers, without stopping or signalling any of them.

Brought to the node by rank.stack: standard library, the runner's names and the modules brought before it; nothing newer
than Python 3.6 but annotations.

- `py-spy dump --nonblocking` only reads memory: no pause, and it works on stopped processes, where the other way fails.
- py-spy is looked for on PATH, then beside the rank's own Python, then among what was sent along. Beside the rank's
  Python it is only run when nobody but root or this login could have put it there.
- Where that is denied, torch's worker server in the rank can print its stacks itself (faulthandler's text).
- A process in state D is not touched: its state, wchan and kernel stack are the evidence.
- No signal is sent for faulthandler's sake: it would kill a rank that did not register it.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable, Mapping
from typing import Any

from probes.catalog.ranks import reach
from probes.runner import Absent, attachment, isolate, need_ranks, process_state, read, sh, which

MOST = 192  # processes: 8 ranks with 16 workers each, and some
AT_ONCE = 16  # py-spy takes 50 ms of a core each
EACH_S = 4.0
ALL_S = 12.0
MOST_THREADS, MOST_FRAMES = 128, 100
SPY_BYTES = 8388608  # py-spy's own JSON: 300 bytes per frame
NOT_HAD = "neither on PATH nor sent; looked for beside each rank's Python"
# What sudo is asked for, as sudoers(5) since sudo 1.9.10 matches it: a `*` would let through what writes files as root.
DUMP = "^dump --nonblocking --json --pid [0-9]+$"
DENIED = ("Permission denied", "Permission Denied", "Operation not permitted", "os error 13", "os error 1)")


def collect() -> Mapping[str, str]:
    scan = need_ranks()
    rows = sorted(scan["ranks"], key=lambda row: (row["worker_of"] is not None, row["rank"], row["pid"]))
    tool, how = tool_of_all()
    parts = {"golden15/tool": json.dumps({"tool": how if tool else NOT_HAD, "left_out": len(rows[MOST:])})}
    parts.update(_of_unread([row for row in scan["unread"] if row["state"] not in "ZX"][:AT_ONCE]))
    began, rows = time.monotonic(), rows[:MOST]
    for first in range(0, len(rows), AT_ONCE):
        some = rows[first : first + AT_ONCE]
        left = began + ALL_S - time.monotonic()
        if left < 1:
            late = [dict(_about(row), why="not asked: no time was left") for row in some]
            parts.update({f"golden15/stack {row['pid']}": json.dumps(row) for row in late})
            continue
        calls = [(str(row["pid"]), _stack_of(row, tool, how)) for row in some]
        for row, answer in zip(some, isolate(calls, min(EACH_S, left), 2097152)):  # noqa: B905  (Python 3.6)
            told = _about(row)
            if answer["outcome"] == "ok":
                told.update(json.loads(answer["text"]))
            else:
                told.update(why=answer["why"], state=answer["state"] or told["state"], wchan=answer["wchan"])
            parts[f"golden15/stack {row['pid']}"] = json.dumps(told)
    return parts


def _about(row: Mapping[str, Any]) -> dict[str, Any]:
    words = {key: row[key] for key in ("pid", "rank", "comm", "state")}
    words.update(worker=row["worker_of"] is not None, how="", why="", wchan="", kernel=[], threads=[])
    return words


def tool_of_all() -> tuple[str, str]:
    """(path of py-spy, how it was had), or ("", why there is none that serves all ranks)."""
    path = which("py-spy")
    if path:
        return path, "py-spy"
    try:
        return attachment("py-spy"), "py-spy (sent)"
    except Absent as error:
        return "", f"py-spy is not on PATH; {error}"


def _stack_of(row: Mapping[str, Any], tool: str, how: str) -> Callable[[], str]:
    def work() -> str:
        pid = row["pid"]
        state, wchan, _ = process_state(pid)
        told = {"state": state, "wchan": wchan, "kernel": _kernel(pid, pid)}  # type: dict[str, Any]
        if not state:
            return json.dumps(dict(told, why="it ended while it was looked at"))
        if state == "D":
            return json.dumps(dict(told, why="it is in state D and was not touched; its kernel stack is what there is"))
        path, way = (tool, how) if tool else (beside(pid), "py-spy")
        threads, why = _spy(path, pid) if path else ([], how)
        if not threads and why != "it ended while it was looked at" and row["worker_of"] is None and state not in "Tt":
            told["text"], said = _by_server(row)
            way, why = ("worker server", "") if told["text"] else (way, f"{why}; {said}")
        told.update(how=way if threads or told.get("text") else "", why="" if threads else why)
        told["threads"] = [_with_kernel(pid, thread) for thread in threads]
        return json.dumps(told)

    return work


def _kernel(pid: int, tid: int) -> list[str]:
    """Functions of a thread's kernel stack, innermost first; none without root."""
    try:
        lines = read(f"/proc/{pid}/task/{tid}/stack", 8192).splitlines()
    except OSError:
        return []
    return [line.partition("] ")[2].partition("+")[0][:80] for line in lines[:24]]


def _of_unread(rows: list[dict[str, Any]]) -> dict[str, str]:
    """Processes that may be ranks and did not let their environment be read: only what the kernel says of them."""
    why = "it may be a rank, but its environment could not be read, so it was not touched"
    calls = [(str(row["pid"]), _kernel_only(row["pid"])) for row in rows]
    parts = {}
    for row, answer in zip(rows, isolate(calls, 1.0)):  # noqa: B905  (Python 3.6)
        told = dict(_about(dict(row, rank=None, worker_of=None)), why=why, wchan=row["wchan"])
        told["kernel"] = json.loads(answer["text"]) if answer["outcome"] == "ok" else []
        parts[f"golden15/stack {row['pid']}"] = json.dumps(told)
    return parts


def _kernel_only(pid: int) -> Callable[[], str]:
    return lambda: json.dumps(_kernel(pid, pid))


def beside(pid: int) -> str:
    """py-spy in the folder of the rank's Python or of its virtual environment, if it can be trusted; else ""."""
    folders = []
    try:
        if os.readlink(f"/proc/{pid}/ns/mnt") != os.readlink("/proc/self/ns/mnt"):
            return ""  # in a container the job itself may own what looks like root's
        folders.append(os.path.dirname(os.readlink(f"/proc/{pid}/exe")))
        for line in read(f"/proc/{pid}/maps", 4194304).splitlines():
            before, found, _ = line.partition("/lib/python3")
            if found and "-packages/" in line:
                folders.append("/" + before.partition("/")[2] + "/bin")
                break
    except OSError:
        pass
    for folder in folders:
        path = os.path.realpath(folder + "/py-spy")
        if os.access(path, os.X_OK) and _only_ours(path):
            return path
    return ""


def _only_ours(path: str) -> bool:
    """Whether nobody but root and this login can change the file or put another in its place."""
    while True:
        about = os.stat(path)
        others = about.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not about.st_mode & stat.S_ISVTX
        if about.st_uid not in (0, os.getuid()) or others:
            return False
        if path == "/":
            return True
        path = os.path.dirname(path)


def _spy(path: str, pid: int) -> tuple[list[dict[str, Any]], str]:
    """(threads, ""), or ([], why not)."""
    arguments = [path, "dump", "--nonblocking", "--json", "--pid", str(pid)]
    try:
        code, out, err = as_may_be(arguments, SPY_BYTES)
    except OSError as error:  # made for another kind of processor
        return [], f"py-spy cannot be run here: {error.strerror}"
    if code == 0:
        try:
            found = json.loads(out)
        except ValueError:
            return [], "py-spy printed more than is read, or no JSON"
        return [_thread(one) for one in found[:MOST_THREADS]], "" if found else "py-spy printed no thread"
    if not process_state(pid)[0]:
        return [], "it ended while it was looked at"
    if any(word in err for word in DENIED):
        return [], may_not(path, DUMP)
    if code == 127:
        return [], f"py-spy cannot be run here: {err[:120]}"
    said = [line.strip() for line in err.splitlines() if line.startswith(("Error", "    "))]
    return [], "py-spy: " + "; ".join(said)[:240]


def as_may_be(arguments: list[str], limit: int) -> tuple[int, str, str]:
    """Run py-spy, and once more by sudo where it may not read the process. What sudo says of itself is not kept."""
    told = sh(arguments, limit)
    installed = not arguments[0].startswith("/proc/")  # what was sent is in our memory: sudo cannot start it
    if told[0] and os.getuid() != 0 and any(word in told[2] for word in DENIED) and installed and which("sudo"):
        again = sh(["sudo", "-n"] + arguments, limit)
        if again[0] == 0 or not again[2].startswith("sudo: "):
            return again
    return told


def may_not(path: str, line: str) -> str:
    """Why py-spy may not look at a process of a rank, and what to allow. `line`: its arguments, for sudoers."""
    import pwd

    try:
        scope = read("/proc/sys/kernel/yama/ptrace_scope", 16).strip()
    except OSError:
        scope = "0"
    why = f" (kernel.yama.ptrace_scope is {scope})" if scope != "0" else ""
    if os.getuid() == 0:
        return f"py-spy may not read its memory{why}. Allow: CAP_SYS_PTRACE, which this root has not"
    if path.startswith("/proc/"):
        return f"py-spy may not read its memory{why}. Allow: a login as root, or py-spy installed and a line in sudoers"
    try:
        user = pwd.getpwuid(os.getuid())[0]
    except KeyError:
        user = f"#{os.getuid()}"
    return f"py-spy may not read its memory{why}. Allow in sudoers: {user} ALL=(root) NOPASSWD: {path} {line}"


def _thread(one: Mapping[str, Any]) -> dict[str, Any]:
    frames = [[frame.get("name"), frame.get("filename"), frame.get("line")] for frame in one["frames"][:MOST_FRAMES]]
    return {"tid": one.get("os_thread_id"), "thread_id": one.get("thread_id"), "name": one.get("thread_name"),
        "active": one.get("active"), "gil": one.get("owns_gil"), "frames": frames}  # fmt: skip


def _with_kernel(pid: int, thread: dict[str, Any]) -> dict[str, Any]:
    """The thread with its state and the kernel function it sleeps in."""
    base = f"/proc/{pid}/task/{thread['tid']}"
    thread["state"] = thread["wchan"] = ""
    try:
        thread["state"] = read(base + "/stat", 4096).rpartition(")")[2].split()[0]
        wchan = read(base + "/wchan", 128)
        thread["wchan"] = "" if wchan == "0" else wchan
    except (OSError, IndexError):
        pass
    return thread


def _by_server(row: Mapping[str, Any]) -> tuple[str, str]:
    """(faulthandler's text from the worker server in the rank, ""), or ("", why not)."""
    try:
        path, can, why = reach.server_of(row)
        if "dump_traceback" not in can:
            return "", why or "its worker server does not tell stacks"
        said = reach.ask(path, row["pid"], "POST /handler/dump_traceback", 1048576, 2.0)
        return said.decode("utf-8", "replace"), ""
    except (OSError, ValueError) as error:
        return "", f"its worker server: {error}"
