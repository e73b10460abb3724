"""How is this node set up for training: limits and CPU masks of its ranks, kernel modules, clock source, governor?

Source   /proc/PID/limits and status of ranks (proc(5)), /proc/modules, /sys/devices/system/{cpu,node}, clocksource and
         cpufreq there, /proc/sys/kernel/numa_balancing. Only files of the kernel are read
Units    bytes
Shape    Settings
Errors   ParseError when a line is not what the collector writes; None or "" where the kernel does not say
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from probes.catalog._collected import as_object, whole, whole_or_none, word
from probes.catalog._net_facts import Limit, Mask, Settings
from probes.core import Finding, ParseError, Probe, sections
from probes.runner import ranks, read

__all__ = ["PROBE", "Settings", "findings", "parse"]

MOST = 4096
# Each look at such a clock is a slow trip to the chip set: gpu-and-host.md, row 38.
SLOW_CLOCKS = ("hpet", "acpi_pm", "pit", "refined-jiffies", "jiffies")


def _collect() -> Mapping[str, str]:
    import json
    import os

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

    cores = set()
    for name in names(cpu, "cpu"):
        place = f"{cpu}/{name}/topology"
        core = text(place + "/core_id")
        if core:
            cores.add((text(place + "/physical_package_id"), core))
    rows: list[dict[str, Any]] = []
    for row in [row for row in ranks() if row["worker_of"] is None][:256]:
        here = f"/proc/{row['pid']}"
        locked, mask, switched = "", "", None
        for line in text(here + "/limits").split("\n"):
            if line.startswith("Max locked memory"):
                locked = line[len("Max locked memory") :].split()[0]
        for line in text(here + "/status").split("\n"):
            key, _, value = line.partition(":")
            if key == "Cpus_allowed_list":
                mask = value.strip()
            elif key == "nonvoluntary_ctxt_switches" and value.strip().isdigit():
                switched = int(value)
        rows.append({"pid": row["pid"], "comm": row["comm"], "memlock": locked, "cpus": mask, "preempted": switched})
    modules = [line.split(" ", 1)[0] for line in text("/proc/modules", 1048576).split("\n") if line]
    governors = sorted({text(f"{cpu}/{name}/cpufreq/scaling_governor") for name in names(cpu, "cpu")[:1024]} - {""})
    told = {
        "modules": modules[:4096],
        "online": text(cpu + "/online"),
        "cores": len(cores) or None,
        "numa_nodes": len(names("/sys/devices/system/node", "node")) or None,
        "clocksource": text("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "governors": governors[:8],
        "numa_balancing": text("/proc/sys/kernel/numa_balancing"),
        "ranks": rows,
    }
    return {"settings": json.dumps(told)}


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
    )


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
