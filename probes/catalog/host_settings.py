"""How is this node set up for training: limits and CPU masks of its ranks, kernel modules, clock source, governor?

Source   /proc/PID/limits, status, fd and cgroup of ranks (proc(5)), pids.max and pids.current of cgroups v1 and v2,
         the tasks of their users, /proc/cpuinfo, /proc/modules, /sys/devices/system/{cpu,node}, clocksource and cpufreq
         there, transparent_hugepage/enabled, /sys/kernel/iommu_groups/*/type, /sys/fs/pstore (names and times),
         /proc/sys/kernel/numa_balancing. Only files of the kernel are read, and
         the names in /dev/infiniband of ranks in containers
Units    bytes
Shape    Settings
Errors   ParseError when a line is not what the collector writes; None or "" where the kernel does not say
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from probes.catalog._collected import as_object, whole, whole_or_none, word
from probes.catalog.network.net_facts import Limit, Mask, Room, Settings
from probes.core import Finding, ParseError, Probe, sections
from probes.runner import isolate, ranks, read

__all__ = ["PROBE", "Settings", "findings", "parse"]

MOST = 4096
NEARLY = 0.95  # of a limit; judgement
# Each look at such a clock is a slow trip to the chip set: gpu-and-host.md, row 38.
SLOW_CLOCKS = ("hpet", "acpi_pm", "pit", "refined-jiffies", "jiffies")


def _collect() -> Mapping[str, str]:
    import functools
    import json
    import os
    import time

    cpu = "/sys/devices/system/cpu"

    def text(path: str, limit: int = 65536) -> str:
        try:
            return read(path, limit).strip()
        except OSError:
            return ""

    def names(folder: str, start: str) -> list[str]:
        try:
            return [name for name in os.listdir(folder) if name.startswith(start) and name[len(start) :].isdigit()]
        except OSError:
            return []

    def whole(word: str) -> int | None:
        return int(word) if word.isdigit() else None

    def entries(folder: str) -> int | None:
        try:
            return len(os.listdir(folder))
        except OSError:
            return None

    def tasks(here: str) -> list[int] | None:
        """[tasks, limit] of the control group, or of one above it, that is the nearest to its limit."""
        tightest = None
        for line in text(here + "/cgroup").split("\n"):
            number, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            if number == "0" and not controllers:
                roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
            else:
                roots = ["/sys/fs/cgroup/pids"] if "pids" in controllers.split(",") else []
            for root in roots:
                folder = root + path.rstrip("/")
                while ".." not in path and folder.startswith(root):
                    most, now = whole(text(folder + "/pids.max", 64)), whole(text(folder + "/pids.current", 64))
                    if most and now is not None and (tightest is None or now * tightest[1] > tightest[0] * most):
                        tightest = [now, most]
                    folder = folder.rpartition("/")[0]
        return tightest

    def tasks_of_users() -> dict[int, int]:
        """Threads of each user: what RLIMIT_NPROC counts, getrlimit(2)."""
        found: dict[int, int] = {}
        for pid in [entry for entry in os.listdir("/proc") if entry.isdigit()][:32768]:
            try:
                user = os.stat("/proc/" + pid).st_uid
            except OSError:
                continue
            fields = text(f"/proc/{pid}/stat", 4096).rpartition(")")[2].split()
            found[user] = found.get(user, 0) + (int(fields[17]) if len(fields) > 17 else 1)
        return found

    def verbs(pid: str) -> int:
        """How many RDMA devices a process finds, as ib_uverbs makes them."""
        return len(names(f"/proc/{pid}/root/dev/infiniband", "uverbs"))

    def mounts(pid: str) -> str:
        try:
            return os.readlink(f"/proc/{pid}/ns/mnt")
        except OSError:
            return ""

    def verbs_of_ranks(rows: list[dict[str, Any]]) -> None:
        """Of those in containers. What lies below another root may be on a dead file system."""
        home = mounts("self")
        first: dict[str, str] = {}  # mount namespace -> a process in it
        for row in rows:
            row["verbs"] = mounts(str(row["pid"]))
            if row["verbs"] not in ("", home) and len(first) < 32:
                first.setdefault(row["verbs"], str(row["pid"]))
        calls: list[tuple[str, Callable[[], str]]] = []
        for inside, pid in first.items():
            calls.append((inside, functools.partial(lambda pid: str(verbs(pid)), pid)))
        found = {one["name"]: one["text"] for one in isolate(calls, 1.0) if one["outcome"] == "ok"}
        for row in rows:
            row["verbs"] = whole(found.get(row["verbs"], ""))

    def records() -> list[str]:
        """What the kernel kept of a crash; where systemd moved it to disk, it is there."""
        found = []
        for folder in ("/sys/fs/pstore", "/var/lib/systemd/pstore"):
            for name in sorted(os.listdir(folder))[:32] if os.access(folder, os.R_OK | os.X_OK) else []:
                at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(os.stat(folder + "/" + name).st_mtime))
                found.append(name + " at " + at)
        return found

    groups = "/sys/kernel/iommu_groups"
    members = sorted(os.listdir(groups))[:256] if os.path.isdir(groups) else []
    kinds = sorted({text(f"{groups}/{name}/type", 64) for name in members})
    cores = set()
    for name in names(cpu, "cpu"):
        place = f"{cpu}/{name}/topology"
        core = text(place + "/core_id")
        if core:
            cores.add((text(place + "/physical_package_id"), core))
    rows: list[dict[str, Any]] = []
    users: dict[int, int] = {}
    for row in [row for row in ranks() if row["worker_of"] is None][:256]:
        here = f"/proc/{row['pid']}"
        locked, mask, switched = "", "", None
        soft = {}
        for line in text(here + "/limits").split("\n"):
            for name in ("Max locked memory", "Max open files", "Max processes"):
                if line.startswith(name):
                    soft[name] = line[len(name) :].split()[0]
        locked = soft.get("Max locked memory", "")
        for line in text(here + "/status").split("\n"):
            key, _, value = line.partition(":")
            if key == "Cpus_allowed_list":
                mask = value.strip()
            elif key == "nonvoluntary_ctxt_switches" and value.strip().isdigit():
                switched = int(value)
        told: dict[str, Any] = {"pid": row["pid"], "comm": row["comm"], "memlock": locked, "cpus": mask}
        told.update(preempted=switched, files=whole(soft.get("Max open files", "")), tasks=tasks(here))
        told.update(processes=whole(soft.get("Max processes", "")), files_open=entries(here + "/fd"))
        if row["uid"] and told["processes"]:  # root has no such limit
            users = users or tasks_of_users()
            told["user_tasks"] = users.get(row["uid"])
        rows.append(told)
    verbs_of_ranks(rows)
    models = [
        line.partition(":")[2].strip() for line in text("/proc/cpuinfo", 4096).split("\n") if "model name" in line
    ]
    modules = [line.split(" ", 1)[0] for line in text("/proc/modules", 1048576).split("\n") if line]
    governors = sorted({text(f"{cpu}/{name}/cpufreq/scaling_governor") for name in names(cpu, "cpu")[:1024]} - {""})
    answer = {
        "modules": modules[:4096],
        "online": text(cpu + "/online"),
        "cores": len(cores) or None,
        "numa_nodes": len(names("/sys/devices/system/node", "node")) or None,
        "clocksource": text("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "governors": governors[:8],
        "cpu_model": " ".join(models[0].split()) if models else "",
        "numa_balancing": text("/proc/sys/kernel/numa_balancing"),
        "ranks": rows,
        "verbs": verbs("self"),
        "huge_pages": text("/sys/kernel/mm/transparent_hugepage/enabled", 256),
        "iommu": [kind for kind in kinds if kind] if kinds else ["none"],
        "crash_records": records(),
    }
    return {"settings": json.dumps(answer)}


def parse(text: str) -> Settings:
    """One JSON object."""
    parts = sections(text)
    if "settings" not in parts:
        raise ParseError(f"expected the section settings, found {', '.join(parts)[:80]}")
    told = as_object(parts["settings"], "settings")
    ranks_told, modules, governors = (_rows(told, key) for key in ("ranks", "modules", "governors"))
    limits, masks = [], []
    for row in ranks_told:
        pid, locked = whole(row, "pid", "rank"), word(row, "memlock", "rank", 24)
        if locked.isdecimal() or locked == "unlimited":
            limits.append(Limit(pid, None if locked == "unlimited" else int(locked)))
        cpus = word(row, "cpus", "rank", 400)
        if cpus:
            masks.append(Mask(pid, cpus, word(row, "comm", "rank", 20), whole_or_none(row, "preempted", "rank")))
    return Settings(
        limits=tuple(limits),
        modules=tuple(word({"m": name}, "m", "modules", 64) for name in modules)
        or None,  # a container may not see them
        masks=tuple(masks),
        cpus=_many(word(told, "online", "settings", 400)),
        cores=whole_or_none(told, "cores", "settings"),
        numa_nodes=whole_or_none(told, "numa_nodes", "settings"),
        clocksource=word(told, "clocksource", "settings", 40),
        governors=tuple(word({"g": name}, "g", "governors", 24) for name in governors),
        numa_balancing=word(told, "numa_balancing", "settings", 8) not in ("", "0"),
        rooms=tuple(_room(row) for row in ranks_told),
        huge_pages=_chosen(word(told, "huge_pages", "settings", 256)) if "huge_pages" in told else "",
        iommu=" and ".join(word({"w": one}, "w", "iommu", 24) for one in _rows(told, "iommu"))
        if "iommu" in told
        else "",
        cpu_model=word(told, "cpu_model", "settings", 80) if "cpu_model" in told else "",
        verbs=whole_or_none(told, "verbs", "settings"),
        crash_records=tuple(word({"w": one}, "w", "crash record", 120) for one in told.get("crash_records") or ()),
    )


def _room(row: dict[str, Any]) -> Room:
    tasks = row.get("tasks") or [None, None]
    if not isinstance(tasks, list) or len(tasks) != 2:
        raise ParseError(f"rank: expected tasks and their limit, found {str(tasks)[:60]!r}")
    numbers = dict(row, now=tasks[0], most=tasks[1])
    keys = ("files", "files_open", "processes", "user_tasks", "now", "most", "verbs")
    return Room(whole(row, "pid", "rank"), *(whole_or_none(numbers, key, "rank") for key in keys))


def _chosen(words: str) -> str:
    """`always [madvise] never`"""
    return words.partition("[")[2].partition("]")[0]


def _rows(told: dict[str, Any], key: str) -> list[Any]:
    rows = told.get(key)
    if not isinstance(rows, list):
        raise ParseError(f"settings: expected a list as {key}, found {str(rows)[:60]!r}")
    if key == "ranks" and not all(isinstance(row, dict) for row in rows):
        raise ParseError(f"settings: expected an object per rank, found {str(rows)[:60]!r}")
    return rows[:MOST]


def _many(ranges: str) -> int | None:
    """`0-3,8` is five. None where the kernel does not say."""
    count = 0
    for part in ranges.split(",") if ranges else ():
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ParseError(f"settings: expected ranges of CPUs as online, found {ranges[:60]!r}")
        count += int(last or first) - int(first) + 1
    return count or None


def findings(settings: Settings) -> Iterator[Finding]:
    """What costs every rank of the node time, whatever it runs."""
    if settings.clocksource in SLOW_CLOCKS:
        says = f"the kernel's clock is {settings.clocksource}: each look at the time is slow, tsc is quick"
        yield Finding("host.slow_clocksource", "warn", says)
    slow = [name for name in settings.governors if name in ("powersave", "conservative", "ondemand", "userspace")]
    if slow:
        says = f"CPUs are governed by {', '.join(slow)}: they may run below their speed, performance keeps them up"
        yield Finding("host.governor", "info", says)
    for room in settings.rooms:
        for whose, what, has, most in (
            (f"process {room.pid}", "open files", room.files_open, room.files),
            (f"the control group of {room.pid}", "tasks", room.tasks, room.tasks_max),
            (f"the user of process {room.pid}", "tasks (limit of processes)", room.user_tasks, room.processes),
        ):
            if has is not None and most and has >= NEARLY * most:
                says = f"{whose} has {has} of {most} {what}: it can hardly get more"
                yield Finding("host.limit_near", "warn", says, {"pid": room.pid})
        if settings.verbs and room.verbs == 0:
            says = f"process {room.pid} finds none of the node's {settings.verbs} RDMA devices in its container"
            says = f"{says} (/dev/infiniband/uverbs*): NCCL can use only sockets there"
            yield Finding("host.no_rdma_device", "warn", says, {"pid": room.pid})
    if settings.crash_records:
        says = f"the kernel left records of a crash: {', '.join(settings.crash_records[:3])} (UTC)"
        yield Finding("host.crash_record", "warn", says)
    if settings.numa_balancing:
        says = "the kernel moves memory between NUMA nodes by itself (numa_balancing): it stalls threads meanwhile"
        yield Finding("host.numa_balancing", "info", says)


PROBE = Probe(
    "host.settings",
    "How is this node set up: limits and CPU masks of ranks, kernel modules, clock source, governor?",
    parse,
    findings,
    collect=_collect,
    by_hand="grep 'locked memory' /proc/PID/limits; grep Cpus_allowed_list /proc/PID/status; lsmod; "
    "cat /sys/devices/system/clocksource/clocksource0/current_clocksource",
    timeout_s=5.0,
    max_bytes=524_288,
    needs="for ranks: root or the login of the user who trains",
    cost="14 ms",
)
