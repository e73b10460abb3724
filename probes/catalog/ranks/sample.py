"""Two looks at each rank, its children and their threads, a second apart. Brought to the node by rank.process.

Reads only what takes no lock of a process's memory: stat, schedstat, status, wchan, comm and files of cgroups.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from typing import Any

from probes.runner import read

MANY_PROCESSES = 512
MANY_THREADS = 512  # per process: those that are looked at
SHOWN_THREADS = 48  # of a rank; of a child a sixth: the rest is counted by name, state and function
ASLEEP = "SITt"  # a stopped or traced process is told by its main thread
IDLE_NS = 1000000  # who ran or waited for a CPU less than this between the looks was idle
LOOK_S = 1.3  # a look that lasts longer stops reading threads
STATUS = ("VmRSS", "VmLck", "VmPin", "VmSwap", "TracerPid", "Threads", "SigPnd", "ShdPnd")


def text(path: str, limit: int = 4096) -> str:
    try:
        return read(path, limit)
    except OSError:
        return ""


def words_of(status: str) -> dict[str, str]:
    """`Name: value` lines of a status file."""
    return {line.partition(":")[0]: line.partition(":")[2].strip() for line in status.split("\n") if ":" in line}


def thread(folder: str) -> dict[str, Any] | None:
    """One look at one thread; None when it is gone. Counters are the kernel's own."""
    name, _, rest = text(folder + "/stat").rpartition(")")
    fields, status, delay = rest.split(), words_of(text(folder + "/status", 8192)), text(folder + "/schedstat").split()
    if len(fields) < 37:
        return None
    wchan = text(folder + "/wchan", 128).strip()
    return {
        "comm": name.partition("(")[2],
        "state": fields[0],
        "wchan": "" if wchan == "0" else wchan,
        "major": int(fields[9]),
        "user": int(fields[11]),
        "system": int(fields[12]),
        "started": int(fields[19]),
        "last_cpu": int(fields[36]),
        "delay": int(delay[1]) if len(delay) > 1 else None,
        "voluntary": number(status.get("voluntary_ctxt_switches")),
        "involuntary": number(status.get("nonvoluntary_ctxt_switches")),
        "cpus": status.get("Cpus_allowed_list", ""),
    }


def number(word: str | None) -> int | None:
    return int(word) if word and word.isdigit() else None


def look(rows: list[dict[str, Any]], folder: str = "/proc") -> dict[int, dict[str, Any]]:
    """{pid: {"at", "stat" (the whole process), "status", "threads" {tid: thread}, "unread"}}, none of what is gone."""
    until, found = time.monotonic() + LOOK_S, {}
    for row in rows:
        place = f"{folder}/{row['pid']}"
        whole = thread(place)
        if whole is None or whole["started"] != row["started"]:  # gone, and perhaps its pid is used again
            continue
        threads: dict[int, dict[str, Any]] = {}
        at = time.monotonic()
        try:
            tids = [int(entry) for entry in os.listdir(place + "/task") if entry.isdigit()]
        except OSError:
            tids = []
        for tid in tids[:MANY_THREADS]:
            one = thread(f"{place}/task/{tid}") if time.monotonic() < until else None
            if one:
                threads[tid] = one
        status = words_of(text(place + "/status", 8192))
        kept = {key: status[key] for key in STATUS if key in status}
        missed = len(tids) - len(threads)
        found[row["pid"]] = {"at": at, "stat": whole, "status": kept, "threads": threads, "unread": missed}
    return found


def moved(one: dict[str, Any], two: dict[str, Any]) -> int:
    """Nanoseconds a thread ran or waited for a CPU between two looks, clock ticks taken as 10 ms."""
    ticks = two["user"] + two["system"] - one["user"] - one["system"]
    return int(ticks * 10000000 + (two["delay"] or 0) - (one["delay"] or 0))


def reduced(pid: int, one: dict[str, Any], two: dict[str, Any], most: int) -> dict[str, Any]:
    """Threads that matter, whole, and the rest counted: first the main one, who is not asleep, who ran or waited most.

    Threads that slept through both looks are counted too: a rank has a hundred of them.
    """
    both = [(tid, one["threads"][tid], late) for tid, late in two["threads"].items() if tid in one["threads"]]
    once = [late for tid, late in two["threads"].items() if tid not in one["threads"]]

    def order(item: tuple[int, dict[str, Any], dict[str, Any]]) -> tuple[bool, bool, int]:
        tid, early, late = item
        asleep = late["state"] in ASLEEP and early["state"] in ASLEEP
        return (tid != pid, asleep, -moved(early, late))

    both.sort(key=order)
    told = [item for item in both if order(item) < (True, True, -IDLE_NS)][:most]
    counted: dict[tuple[str, str, str, str], int] = {}
    for late in [late for _, _, late in both[len(told) :]] + once:
        key = (late["comm"], late["state"], late["wchan"], late["cpus"])
        counted[key] = counted.get(key, 0) + 1
    groups = sorted(counted.items(), key=lambda item: -item[1])[:24]
    return {
        "threads": [{"tid": tid, "looks": [early, late]} for tid, early, late in told],
        "others": [dict(zip(("comm", "state", "wchan", "cpus"), key), count=count) for key, count in groups],  # noqa: B905
        "unread": two["unread"] + sum(counted.values()) - sum(count for _, count in groups),
    }


def cgroup_folders(pid: int, root: str = "/sys/fs/cgroup") -> list[tuple[str, str]]:
    """(folder, "inner" | "above" | "top") of a process's cgroups for memory and CPU and of all above them."""
    found: list[tuple[str, str]] = []
    for line in text(f"/proc/{pid}/cgroup", 65536).split("\n"):
        names, _, path = line.partition(":")[2].partition(":")
        places = []
        if line.startswith("0:") and not names:
            places = [root, root + "/unified"]
        elif "cpu" in names.split(",") or "memory" in names.split(","):
            places = [root + "/" + names, root + "/cpu", root + "/memory"]
        for top in places:
            folder, kind = top + path.rstrip("/"), "inner"
            if ".." in path or not os.path.isdir(folder):
                continue
            while folder != top:
                found.append((folder, kind))
                folder, kind = folder.rpartition("/")[0], "above"
            found.append((top, "top"))
            break
    return found


ONCE = ("memory.max", "memory.high", "memory.current", "memory.limit_in_bytes", "memory.usage_in_bytes", "cpu.max",
        "cpu.cfs_quota_us", "cpu.cfs_period_us")  # fmt: skip
TWICE = ("cpu.stat", "memory.events", "memory.oom_control")


def limits(folder: str) -> bool:
    """Whether this cgroup sets a limit of its own."""
    limit, quota = text(folder + "/cpu.max").split(), text(folder + "/cpu.cfs_quota_us").strip()
    memory = text(folder + "/memory.max").strip() or text(folder + "/memory.limit_in_bytes").strip()
    has_memory = memory.isdigit() and int(memory) < 2**60  # v1 writes a huge number for no limit
    return has_memory or (bool(limit) and limit[0] != "max") or quota not in ("", "-1")


def cgroups(pids: list[int]) -> dict[str, dict[str, Any]]:
    """{folder: {"pids", "first" {file: text}}} of these processes' innermost cgroups and of those above with limits."""
    found: dict[str, dict[str, Any]] = {}
    known: dict[str, bool] = {}
    for pid in pids:
        for folder, kind in cgroup_folders(pid):
            if folder not in known:  # the counters of the root are the node's own, unless it is a container's root
                known[folder] = (kind == "inner" or limits(folder)) and len(found) < 128
            if known[folder]:
                row = found.setdefault(folder, {"pids": [], "first": {}})
                row["pids"].append(pid)
                row["first"] = row["first"] or {name: text(f"{folder}/{name}") for name in TWICE}
    return found


def sample(scan: Mapping[str, Any], began: float, interval_s: float = 1.0, patience_s: float = 4.5) -> dict[str, str]:
    """Sections of rank.process. The interval is shorter when the scan before it took long: see `patience_s`."""
    rows = sorted(scan["ranks"], key=lambda row: row["worker_of"] is not None)
    chosen = rows[:MANY_PROCESSES]
    groups = cgroups([row["pid"] for row in chosen])
    mono = time.monotonic()
    first = look(chosen)
    took = time.monotonic() - mono
    left = patience_s - (time.monotonic() - began) - took
    time.sleep(max(0.3, min(mono + interval_s - time.monotonic(), left)))
    second = look(chosen)
    told = []
    for row in chosen:
        pid = row["pid"]
        words = {key: row[key] for key in ("pid", "rank", "world_size", "run_id", "worker_of", "comm", "state")}
        if pid in first and pid in second:
            one, two = first[pid], second[pid]
            words.update({"status": two["status"], "at": [one["at"], two["at"]], "looks": [one["stat"], two["stat"]]})
            words.update(reduced(pid, one, two, SHOWN_THREADS if row["worker_of"] is None else SHOWN_THREADS // 6))
            tracer = number(two["status"].get("TracerPid"))
            words["tracer_before"] = number(one["status"].get("TracerPid"))
            words["tracer"] = text(f"/proc/{tracer}/comm", 64).rstrip("\n") if tracer else ""
            words["oom_score"] = number(text(f"/proc/{pid}/oom_score").strip())
        told.append(words)
    about = {"hz": os.sysconf("SC_CLK_TCK"), "denied": scan["denied"], "left_out": len(rows) - len(chosen)}
    parts = {"golden15/samples": json.dumps(about), "golden15/processes": "\n".join([json.dumps(row) for row in told])}
    parts["golden15/unread"] = "\n".join([json.dumps(row) for row in scan["unread"][:500]])
    for folder, row in groups.items():
        files = {name: text(f"{folder}/{name}").strip() for name in ONCE}
        row["files"] = {name: said for name, said in files.items() if said}
        row["second"] = {name: text(f"{folder}/{name}") for name in TWICE if row["first"][name]}
        row["first"] = {name: said for name, said in row["first"].items() if said}
    parts["golden15/cgroups"] = "\n".join([json.dumps(dict(row, folder=folder)) for folder, row in groups.items()])
    return parts
