"""Is this node short of CPU, memory or I/O, and does a container's CPU quota hold its processes back?

Source   /proc/pressure/*, /proc/loadavg, /proc/stat, /proc/meminfo, /proc/PID/{stat,schedstat}, cpu.max and cpu.stat of
         cgroups v2 or cpu.cfs_quota_us of v1, {cpu,memory,io}.pressure of the ranks' own (v2 alone); proc_pid_stat(5)
         and the kernel's Documentation/accounting/psi.rst, admin-guide/cgroup-v2.rst, scheduler/sched-stats.rst;
         thermal_throttle of one CPU of each package (Intel; arch/x86/kernel/cpu/mce/therm_throt.c);
         hung_task_detect_count (admin-guide/sysctl/kernel.rst). psutil's own
         readings where it can be imported. Two samples about a second apart. Command lines are never read: that can
         hang on a task in state D
Units    percent of wall time (one CPU = 100 for a process), bytes, seconds, CPUs
Shape    Load
Errors   ParseError when a file is not what the kernel prints; None where this kernel lacks a file (PSI before 4.20)
"""

from __future__ import annotations

from collections.abc import Mapping

from probes.catalog.host.load_facts import Load, findings
from probes.catalog.host.load_parse import parse
from probes.core import Probe
from probes.runner import holds_gpu, isolate, read

__all__ = ["PROBE", "Load", "findings", "parse"]


def _collect() -> Mapping[str, str]:
    import json
    import os
    import sys
    import time

    began = time.monotonic()
    keep = ("MemTotal:", "MemFree:", "MemAvailable:", "Cached:", "Shmem:", "SwapTotal:", "SwapFree:", "Dirty:")

    def text(path: str, limit: int = 65536) -> str:
        try:
            return read(path, limit)
        except OSError:
            return ""

    def stat() -> str:
        wanted = ("cpu", "procs_running", "procs_blocked", "btime")
        return "\n".join(line for line in text("/proc/stat", 1048576).split("\n") if line.startswith(wanted))

    packages: dict[str, str] = {}  # package -> a CPU of it; the count of a package is the same on each of its CPUs
    for cpu in sorted(entry for entry in os.listdir("/sys/devices/system/cpu") if entry[3:].isdigit())[:2048]:
        here = "/sys/devices/system/cpu/" + cpu
        if os.path.isdir(here + "/thermal_throttle"):
            packages.setdefault(text(here + "/topology/physical_package_id").strip(), here)

    def heat() -> str:
        rows = []
        for package, here in packages.items():
            names = ("package_throttle_count", "package_throttle_total_time_ms")
            told = [text(here + "/thermal_throttle/" + name, 64).strip() or "?" for name in names]
            rows.append(" ".join([package or "?"] + told))
        return "\n".join(rows)

    def processes() -> dict[str, str]:
        found = {}
        for pid in [entry for entry in os.listdir("/proc") if entry.isdigit()][:20000]:
            line = text(f"/proc/{pid}/stat", 4096).strip().replace("\n", "?").replace("\r", "?")
            if line:
                found[pid] = line
        return found

    def after_name(line: str) -> list[str]:
        return line.rpartition(")")[2].split()

    def ticks(line: str) -> int:
        fields = after_name(line)
        return int(fields[11]) + int(fields[12])

    def is_ours(pid: str) -> bool:
        """Whether the runner or a process below it: a Python too, and no rank."""
        for _ in range(16):
            if pid == str(os.getppid()):
                return True
            pid = after_name(first[pid])[1] if pid in first else "0"
        return False

    def throttling(folders: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Every folder from a cgroup up to the root that sets a CPU limit: the tightest one may be above."""
        found: list[tuple[str, str]] = []
        for folder, root in folders:
            while folder.startswith(root):
                limit = text(folder + "/cpu.max").strip()
                quota = text(folder + "/cpu.cfs_quota_us").strip()
                if quota and quota != "-1":
                    limit = quota + " " + text(folder + "/cpu.cfs_period_us").strip()
                if limit and not limit.startswith("max") and (folder, limit) not in found:
                    found.append((folder, limit))
                folder = folder.rpartition("/")[0]
        return found

    def cgroup_folders(pid: str) -> list[tuple[str, str]]:
        found = []
        for line in text(f"/proc/{pid}/cgroup").split("\n"):
            number, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            roots = []
            if number == "0" and not controllers:
                roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
            elif "cpu" in controllers.split(","):
                roots = ["/sys/fs/cgroup/" + controllers, "/sys/fs/cgroup/cpu"]
            for root in roots:
                if ".." not in path and os.path.isdir(root + path.rstrip("/")):
                    found.append((root + path.rstrip("/"), root))
                    break
        return found

    def psutil_says() -> str:
        try:
            import psutil
        except ImportError:
            import site

            sys.path.extend(site.getsitepackages())
            import psutil
        use = psutil.cpu_times_percent(interval=0.4)
        said = {"version": psutil.__version__, "cpu": use._asdict(), "swap": psutil.swap_memory()._asdict()}
        said["physical_cores"] = psutil.cpu_count(logical=False)
        return json.dumps(said)

    parts = {}
    for path in ("/proc/pressure/cpu", "/proc/pressure/io", "/proc/pressure/memory", "/proc/loadavg"):
        if text(path):
            parts[path] = text(path)
    parts["/sys/devices/system/cpu/online"] = text("/sys/devices/system/cpu/online")
    parts["/proc/meminfo"] = "\n".join(line for line in text("/proc/meminfo").split("\n") if line.startswith(keep))

    hung = "/proc/sys/kernel/hung_task_detect_count"
    parts[hung + " 1"], parts["golden15/heat 1"] = text(hung, 64), heat()
    first_mono, parts["/proc/stat 1"], first = time.monotonic(), stat(), processes()
    kernel = [pid for pid, line in first.items() if pid == "2" or after_name(line)[1] == "2"]
    ranks = []
    for pid in first:
        if pid not in kernel and time.monotonic() - began < 0.45 and holds_gpu(pid):
            ranks.append(pid)
    ours = {pid for pid in first if is_ours(pid)}
    pythons = [pid for pid in first if ("(python" in first[pid] or "(pt_main" in first[pid]) and pid not in ours][:256]
    only_pythons = not ranks  # nobody holds a GPU here
    delays = {pid: text(f"/proc/{pid}/schedstat", 256).strip() for pid in first if pid not in kernel}
    groups: dict[tuple[str, str], tuple[str, list[str]]] = {}
    for pid in ["self"] + ranks[:64] + pythons:
        for limited in throttling(cgroup_folders(pid)):
            groups.setdefault(limited, (text(limited[0] + "/cpu.stat"), []))[1].append(pid)
    # psutil may be on a dead file system: its import runs in a child of its own
    answer = isolate([("psutil", psutil_says)], 0.8)[0]
    if answer["outcome"] == "ok":
        parts["psutil"] = answer["text"]
    time.sleep(max(0.0, first_mono + 1.0 - time.monotonic()))
    second_mono, parts["/proc/stat 2"], second = time.monotonic(), stat(), processes()

    parts[hung + " 2"], parts["golden15/heat 2"] = text(hung, 64), heat()
    spent = {pid: ticks(second[pid]) - ticks(first[pid]) for pid in second if pid in first and pid not in kernel}
    hz = os.sysconf("SC_CLK_TCK")
    waited = {}
    for pid in pythons:
        if pid in spent:
            late = text(f"/proc/{pid}/schedstat", 256).split()
            waited[pid] = (int(late[1]) - int(delays[pid].split()[1])) / 1e9 if len(late) > 1 and delays[pid] else 0.0
    # A rank held back by a quota uses little CPU and waits for more: both count.
    busy = 0.2 * (second_mono - first_mono)
    ranks += [pid for pid, wait in waited.items() if pid not in ranks and spent[pid] / hz + wait > busy]
    top = sorted(spent, key=lambda pid: -spent[pid])[:5]
    chosen = top + [pid for pid in ranks[:64] if pid not in top and pid in spent]
    parts["golden15/samples"] = f"hz {hz}\nmono {first_mono:.6f} {second_mono:.6f}\nranks {' '.join(ranks[:64])}"
    parts["/proc/PID/stat 1"] = "\n".join(first[pid] for pid in chosen)
    parts["/proc/PID/stat 2"] = "\n".join(second[pid] for pid in chosen)
    parts["/proc/PID/schedstat 1"] = "\n".join(f"{pid} {delays[pid]}" for pid in chosen if delays.get(pid))
    after = {pid: text(f"/proc/{pid}/schedstat", 256).strip() for pid in chosen}
    parts["/proc/PID/schedstat 2"] = "\n".join(f"{pid} {after[pid]}" for pid in chosen if after[pid])
    for (folder, limit), (before, pids) in list(groups.items())[:64]:
        if not any(pid == "self" or pid in ranks for pid in pids):
            continue
        who = " ".join(pid for pid in pids if pid == "self" or pid in ranks)
        parts["cgroup " + folder.replace("\n", "?")] = "\n".join(
            ["limit " + limit, "pids " + who, "[1]", before.strip(), "[2]", text(folder + "/cpu.stat").strip()]
        )
    wait_in: dict[str, list[str]] = {}  # a rank that waits for memory or a disk may use no CPU at all
    for pid in ranks[:64] + ([pid for pid in pythons if pid not in ranks][:64] if only_pythons else []):
        for folder, _ in cgroup_folders(pid):
            wait_in.setdefault(folder, []).append(pid)
    for folder, pids in list(wait_in.items())[:64]:
        told = [(name, text(f"{folder}/{name}.pressure", 1024).strip()) for name in ("cpu", "memory", "io")]
        if any(body for _, body in told):
            lines = ["pids " + " ".join(pids)] + [f"[{name}]\n{body}" for name, body in told if body]
            parts["pressure " + folder.replace("\n", "?")] = "\n".join(lines)
    return parts


PROBE = Probe(
    "host.load",
    "Is this node short of CPU, memory or I/O, or held back by a CPU quota?",
    parse,
    findings,
    collect=_collect,
    by_hand="tail -v -n +1 /proc/pressure/* /proc/loadavg /proc/meminfo; cat /sys/fs/cgroup/cpu.stat",
    timeout_s=5.0,
    cost="12 ms",
)
