"""Sections of host.load into its facts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from probes.catalog.host.load_facts import CpuUse, Load, PackageHeat, Pressure, Process, Quota, Waits
from probes.core import ParseError, clean, sections

HUNG = "/proc/sys/kernel/hung_task_detect_count"


def parse(text: str) -> Load:
    """Sections named after the files, a second sample marked " 2"."""
    parts = sections(clean(text))
    one, two = _stat(parts, "/proc/stat 1"), _stat(parts, "/proc/stat 2")
    hz, interval, ranks = _samples(parts)
    memory = _meminfo(parts.get("/proc/meminfo", ""))
    total, free = memory.get("SwapTotal"), memory.get("SwapFree")
    swap = (total, None if total is None or free is None else total - free)
    use, cores, source = _use(one, two), None, "proc"
    if said := _psutil(parts.get("psutil", "")):
        source, use, cores, swap = said
    loads, hung = _loadavg(parts), [_hung(parts, look) for look in "12"]
    return Load(
        *loads,
        _online(parts.get("/sys/devices/system/cpu/online", "")),
        cores,
        _least(one, two, "procs_running"),
        _least(one, two, "procs_blocked"),
        one["btime"][0] if one.get("btime") else None,
        interval,
        use,
        _pressure(parts, "cpu"),
        _pressure(parts, "io"),
        _pressure(parts, "memory"),
        memory.get("MemTotal"),
        memory.get("MemAvailable"),
        *swap,
        _processes(parts, hz, interval, ranks),
        tuple(_quota(name[7:], body) for name, body in parts.items() if name.startswith("cgroup ")),
        source,
        heat=_heat(parts, interval),
        waits=tuple(_waits(name[9:], body) for name, body in parts.items() if name.startswith("pressure ")),
        hung_tasks=hung[1],
        hung_tasks_more=hung[1] - hung[0]
        if hung[0] is not None and hung[1] is not None and hung[1] >= hung[0]
        else None,
    )


def _hung(parts: Mapping[str, str], look: str) -> int | None:
    """One number, of a kernel that counts; root may set it back to 0."""
    text = parts.get(f"{HUNG} {look}", "").strip()
    if text and not text.isdecimal():
        raise ParseError(f"{HUNG}: expected a number, found {text[:60]!r}")
    return int(text) if text else None


def _heat(parts: Mapping[str, str], interval: float | None) -> tuple[PackageHeat, ...]:
    """Rows `package events milliseconds`; a question mark where the kernel does not tell."""
    looks: list[dict[int, tuple[int, int | None]]] = []
    for name in ("golden15/heat 1", "golden15/heat 2"):
        rows: dict[int, tuple[int, int | None]] = {}
        for line in parts.get(name, "").splitlines()[:256]:
            words = line.split()
            if len(words) != 3 or not all(word == "?" or word.isdecimal() for word in words):
                raise ParseError(f"{name}: expected a package and two counts, found {line[:60]!r}")
            if "?" not in words[:2]:
                rows[int(words[0])] = (int(words[1]), None if words[2] == "?" else int(words[2]))
        looks.append(rows)
    found = []
    for package, (events, ms) in looks[1].items():
        before = looks[0].get(package, (events, ms))
        held = ms - before[1] if ms is not None and before[1] is not None else None
        share = round(min(100.0, held / 10 / interval), 1) if held is not None and held >= 0 and interval else None
        found.append(PackageHeat(package, max(0, events - before[0]), events, share))
    return tuple(found)


def _loadavg(parts: Mapping[str, str]) -> tuple[float | None, float | None, float | None]:
    text = parts.get("/proc/loadavg")
    if text is None and any(name.startswith("/proc/pressure/") for name in parts):
        return None, None, None  # only these files were saved, by hand
    if text is None:
        raise ParseError(f"no section /proc/loadavg, only {', '.join(parts)[:120]}")
    try:
        one, five, fifteen = (float(word) for word in text.split()[:3])
    except ValueError:
        raise ParseError(f"/proc/loadavg: expected three numbers, found {text[:80]!r}") from None
    return one, five, fifteen


def _pressure(parts: Mapping[str, str], name: str) -> Pressure | None:
    """`some avg10=0.00 avg60=0.00 avg300=0.00 total=0`, and the same for full (not for cpu before 5.13)."""
    return _psi(f"/proc/pressure/{name}", parts.get(f"/proc/pressure/{name}", ""))


def _waits(cgroup: str, text: str) -> Waits:
    """`pids 12 13`, then below [cpu], [memory] and [io] what the group's file says."""
    head, *rest = text.split("\n[")
    pids = head.split()
    if pids[:1] != ["pids"] or not all(pid.isdecimal() for pid in pids[1:]):
        raise ParseError(f"pressure {cgroup[:80]}: expected pids first, found {head[:80]!r}")
    told = {name: body for name, _, body in (part.partition("]\n") for part in rest)}
    found = {name: _psi(f"{cgroup[:80]}/{name}.pressure", told.get(name, "")) for name in ("cpu", "memory", "io")}
    return Waits(cgroup, tuple(map(int, pids[1:])), found["cpu"], found["memory"], found["io"])


def _psi(where: str, text: str) -> Pressure | None:
    if not text:
        return None
    found: dict[str, float] = {}
    for line in text.splitlines():
        kind, _, rest = line.partition(" ")
        for pair in rest.split():
            key, _, value = pair.partition("=")
            try:
                found[f"{kind}_{key}"] = float(value)
            except ValueError:
                raise ParseError(f"{where}: expected numbers, found {line[:80]!r}") from None
    if "some_avg10" not in found:
        raise ParseError(f"{where}: no line 'some avg10=', found {text[:80]!r}")
    return Pressure(*(found.get(key) for key in ("some_avg10", "some_avg60", "full_avg10", "full_avg60")))


def _stat(parts: Mapping[str, str], name: str) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for line in parts.get(name, "").splitlines():
        key, _, rest = line.partition(" ")
        if key in ("cpu", "procs_running", "procs_blocked", "btime"):
            try:
                found[key] = [int(word) for word in rest.split()]
            except ValueError:
                raise ParseError(f"{name}: expected numbers after {key}, found {rest[:80]!r}") from None
    if name in parts and len(found.get("cpu", ())) < 4:
        raise ParseError(f"{name}: no line of CPU times, found {parts[name][:80]!r}")
    return found


def _least(one: Mapping[str, list[int]], two: Mapping[str, list[int]], key: str) -> int | None:
    values = [sample[key][0] for sample in (one, two) if sample.get(key)]
    return min(values) if values else None


def _use(one: Mapping[str, list[int]], two: Mapping[str, list[int]]) -> CpuUse | None:
    """proc_stat(5): user nice system idle iowait irq softirq steal guest guest_nice; user holds guest already."""
    if not one or not two:
        return None
    spent = [max(0, after - before) for before, after in zip(one["cpu"], two["cpu"], strict=False)]
    spent = (spent + [0] * 8)[:8]
    whole = sum(spent)
    if not whole:
        return None
    user, nice, system, idle, iowait, irq, softirq, steal = (round(100 * part / whole, 2) for part in spent)
    return CpuUse(round(user + nice, 2), round(system + irq + softirq, 2), iowait, steal, idle)


def _psutil(text: str) -> tuple[str, CpuUse | None, int | None, tuple[int | None, int | None]] | None:
    if not text:
        return None
    try:
        said: dict[str, Any] = json.loads(text)
        cpu, swap, cores = said["cpu"], said["swap"], said["physical_cores"]
        part = {key: float(value) for key, value in cpu.items()}
        use = CpuUse(
            round(part["user"] + part["nice"], 2),
            round(part["system"] + part.get("irq", 0.0) + part.get("softirq", 0.0), 2),
            part.get("iowait", 0.0),
            part.get("steal", 0.0),
            part["idle"],
        )
        memory = (int(swap["total"]), int(swap["used"]))
        return f"psutil {str(said['version'])[:20]}", use, None if cores is None else int(cores), memory
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ParseError(f"psutil: expected its readings as JSON ({error}), found {text[:80]!r}") from None


def _samples(parts: Mapping[str, str]) -> tuple[int | None, float | None, frozenset[int]]:
    if "golden15/samples" not in parts:
        return None, None, frozenset()
    words = {line.partition(" ")[0]: line.split()[1:] for line in parts["golden15/samples"].splitlines()}
    try:
        first, second = (float(word) for word in words["mono"])
        hz, ranks = int(words["hz"][0]), frozenset(int(word) for word in words.get("ranks", ()))
        if second <= first or hz <= 0:
            raise ValueError
    except (KeyError, IndexError, ValueError):
        raise ParseError(f"golden15/samples: expected hz, mono, ranks; found {words!r:.120}") from None
    return hz, round(second - first, 6), ranks


def _meminfo(text: str) -> dict[str, int]:
    found = {}
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        words = rest.split()
        if not colon or not words or not words[0].isdecimal() or len(words[0]) > 16:
            raise ParseError(f"/proc/meminfo: expected 'Name: number kB', found {line[:80]!r}")
        found[name] = int(words[0]) * (1024 if words[1:] == ["kB"] else 1)
    return found


def _online(text: str) -> int | None:
    """`0-3,8` is five CPUs."""
    if not text.strip():
        return None
    try:
        ranges = [[int(end) for end in part.split("-")] for part in text.strip().split(",")]
        count = sum(ends[-1] - ends[0] + 1 for ends in ranges)
    except ValueError:
        raise ParseError(f"/sys/devices/system/cpu/online: expected ranges, found {text[:80]!r}") from None
    return count


def _stats(text: str) -> dict[int, tuple[str, str, int, int]]:
    """pid -> comm, state, ppid, ticks. The name may hold brackets and spaces: it ends at the last bracket."""
    found = {}
    for line in text.splitlines():
        before, _, after = line.rpartition(")")
        pid, _, comm = before.partition(" (")
        fields = after.split()
        try:
            found[int(pid)] = (comm, fields[0], int(fields[1]), int(fields[11]) + int(fields[12]))
        except (ValueError, IndexError):
            raise ParseError(f"/proc/PID/stat: expected proc_pid_stat(5), found {line[:80]!r}") from None
    return found


def _delays(text: str) -> dict[int, int]:
    """pid -> nanoseconds it waited on a run queue: the second number of schedstat."""
    found = {}
    for line in text.splitlines():
        words = line.split()
        try:
            found[int(words[0])] = int(words[2])
        except (ValueError, IndexError):
            raise ParseError(f"/proc/PID/schedstat: expected a pid and three numbers, found {line[:80]!r}") from None
    return found


def _processes(
    parts: Mapping[str, str], hz: int | None, interval: float | None, ranks: frozenset[int]
) -> tuple[Process, ...]:
    one, two = _stats(parts.get("/proc/PID/stat 1", "")), _stats(parts.get("/proc/PID/stat 2", ""))
    early, late = _delays(parts.get("/proc/PID/schedstat 1", "")), _delays(parts.get("/proc/PID/schedstat 2", ""))
    found = []
    for pid, (comm, state, ppid, ticks) in two.items():
        use = delay = None
        if hz and interval and pid in one:
            use = round(max(0, ticks - one[pid][3]) / hz / interval * 100, 1)
        if interval and pid in early and pid in late:
            delay = round(max(0, late[pid] - early[pid]) / 1e9 / interval * 100, 1)
        found.append(Process(pid, ppid, comm, state, use, delay, pid in ranks))
    return tuple(found)


def _quota(cgroup: str, text: str) -> Quota:
    """`limit 400000 100000`, `pids self 12`, then cpu.stat twice."""
    head, _, rest = text.partition("\n[1]")
    before, _, after = rest.partition("\n[2]")
    words = {line.partition(" ")[0]: line.split()[1:] for line in head.splitlines()}
    try:
        quota, period = (int(word) for word in words["limit"])
        if period <= 0 or quota <= 0:
            raise ValueError
        one, two = _cpu_stat(before), _cpu_stat(after)
        pids = words.get("pids", [])
        numbers = tuple(int(pid) for pid in pids if pid != "self")
    except (KeyError, ValueError):
        raise ParseError(
            f"cgroup {cgroup[:80]}: expected limit, pids and cpu.stat twice, found {text[:80]!r}"
        ) from None
    periods = throttled = share = None
    if {"nr_periods", "nr_throttled"} <= one.keys() & two.keys():
        periods, throttled = two["nr_periods"] - one["nr_periods"], two["nr_throttled"] - one["nr_throttled"]
        share = round(100 * throttled / periods, 1) if periods > 0 else None
    return Quota(cgroup, round(quota / period, 3), numbers, "self" in pids, periods, throttled, share)


def _cpu_stat(text: str) -> dict[str, int]:
    pairs = (line.split() for line in text.strip().splitlines())
    return {words[0]: int(words[1]) for words in pairs if len(words) == 2}
