"""Tables of processes with their share of the CPU: top -b, htop, ps with any columns, one row a process or a thread.

ps prints an average over the process's life, top the time since its last screen: of several screens the last counts.
"""

from __future__ import annotations

import re
from dataclasses import replace

from probes.catalog.host.load_facts import CpuUse, Load, Process, ranges_of
from probes.core import clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, number, refuse, whole
from probes.intake.tools.host._load import load, process

MOST = 4096
_SUMMARY = re.compile(r"^%?C[Pp][Uu]\(s\) ?:(.{10,160})$")
_RUNNING = re.compile(r"(\d{1,7}) running")
_PART = re.compile(r"(\d{1,3}(?:[.,]\d{1,2})?)[ %]{1,2}(us|sy|ni|id|wa|hi|si|st)\b")
_LOADS = re.compile(
    r"[Ll]oad averages?: (\d{1,6}(?:[.,]\d\d)?),? {1,2}(\d{1,6}(?:[.,]\d\d)?),? {1,2}(\d{1,6}(?:[.,]\d\d)?)"
)
# The last column of top and ps in German, French, Spanish, Italian and Portuguese.
_ABROAD = ("BEFEHL", "COM.", "COMMANDE", "ORDEN", "COMANDO", "CMND")
_HTOP = re.compile(r"\bTasks: \d{1,7}, \d{1,7} thr(?:, \d{1,7} kthr)?; (\d{1,7}) running")
_BAR = re.compile(r"(?:^|\s)(\d{1,4})\s?\[[|#*'\s]{0,200}(\d{1,3}(?:\.\d)?)%\]")  # of a CPU in htop
BARS = 4  # of CPUs: a screen of htop without its table
_EACH = re.compile(r"^%?Cpu(\d{1,4})\s{0,4}:(.{10,160})$")  # top, after 1 was pressed: a line a CPU
_CPU = ("%CPU", "PCPU", "C", "CP", "CPU%")
_THREAD = ("LWP", "TID", "SPID")
_ON = ("PSR", "P", "CPUID")  # the CPU that it was last on
_THREADS = ("NLWP", "THCNT", "nTH")
_NAME = ("COMMAND", "CMD", "COMM", "ARGS", "UCMD")


def columns(line: str) -> dict[str, int] | None:
    """Column name -> place, for the head of a table with processes and their CPU, or where and how many they are."""
    words = re.sub(r"[^\x20-\x7e]|\[|\]", " ", line[:1000]).split()
    words = ["COMMAND" if word == "Command" or word in _ABROAD else word for word in words]
    tells = (*_CPU, "PSR", "CPUID", *_THREADS)
    if {"%usr", "%wait", "%guest", "cswch/s"} & set(words):  # pidstat
        return None
    if (
        len(words) > 40
        or not {"PID", *_THREAD} & set(words)
        or not set(tells) & set(words)
        or not set(_NAME) & set(words)
    ):
        return None
    return {word: place for place, word in reversed(list(enumerate(words)))}


def fits(head: str, name: str) -> bool:
    lines = list(lines_of(head, 400))[:40]
    return any(columns(line) is not None for line in lines) or sum(len(_BAR.findall(line)) for line in lines) >= BARS


def read(text: str) -> Load:
    """The last screen: its summary, and its processes with the busiest first."""
    heads: dict[str, int] | None = None
    each, running, bars_seen = 0, None, False  # type: int, int | None, bool
    rows: dict[int, Process] = {}
    idle: dict[int, float] = {}
    use, loads, top, fields_ = None, (None, None, None), False, 0  # type: CpuUse | None, tuple[float | None, ...], bool, int
    for line in lines_of(text, 2000):
        if bars := _BAR.findall(line):
            idle |= {int(cpu): 100.0 - float(used) for cpu, used in bars[:16]}
            bars_seen = True
        if told := _HTOP.search(line[:400]):
            running = int(told[1])
        if found := _LOADS.search(line):
            loads = tuple(number(one.replace(",", ".")) for one in found.groups())
        elif line.startswith(("Threads:", "Tasks:")):  # top -H: a row a thread
            each = each or int(line.startswith("Threads:"))
            running = int(told[1]) if (told := _RUNNING.search(line[:200])) else running
        elif found := _SUMMARY.match(line):
            use, top = _use(found[1]), True
        elif found := _EACH.match(line):
            if (part := _use(found[2])) is not None:
                idle[int(found[1])] = part.idle
        elif (new := columns(line)) is not None:
            heads, rows, fields_ = new, {}, len(re.sub(r"[^\x20-\x7e]", " ", line).split())
        elif heads is not None and len(rows) < MOST:
            _take(rows, heads, fields_, line, top)
    if each:
        rows = {pid: replace(one, threads=each) for pid, one in rows.items()}
    if not rows and heads is None and len(idle) < BARS:
        raise refuse("a table of processes with PID, %CPU and COMMAND", text)
    if idle and use is None:  # htop has no summary of all CPUs
        left = sum(idle.values()) / len(idle)
        use = CpuUse(round(100 - left, 2), 0.0, 0.0, 0.0, round(left, 2))
    busiest = sorted(rows.values(), key=lambda one: -(one.cpu_percent or 0.0))
    cpus = max(idle) + (0 in idle) if bars_seen else None  # htop counts from 0 or 1; a screen may be cut
    runnable = sum(one.state[:1] == "R" for one in busiest) if any(one.state for one in busiest) else None
    return load(
        load1=loads[0], load5=loads[1], load15=loads[2], cpu=use, processes=tuple(busiest[:400]),
        runnable=running if running is not None else runnable if top else None, cpus=cpus, **by_cpu(idle),
    )  # fmt: skip


def _use(text: str) -> CpuUse | None:
    part = {name: number(value.replace(",", ".")) or 0.0 for value, name in _PART.findall(text)}
    if "id" not in part:
        return None
    user = part.get("us", 0.0) + part.get("ni", 0.0)
    system = part.get("sy", 0.0) + part.get("hi", 0.0) + part.get("si", 0.0)
    return CpuUse(round(user, 2), round(system, 2), part.get("wa", 0.0), part.get("st", 0.0), part["id"])


def _take(rows: dict[int, Process], heads: dict[str, int], count: int, line: str, top: bool) -> None:
    last = next(name for name in _NAME if name in heads)
    words = line.split(None, count - 1) if heads[last] == count - 1 else line.split()
    row = {name: words[place] for name, place in heads.items() if place < len(words)}
    thread = next((whole(row[name]) for name in _THREAD if name in row), None)
    pid = whole(row.get("PID", "")) if "PID" in heads else thread
    share = next((number(row[name].rstrip("%").replace(",", ".")) for name in _CPU if name in row), None)
    if pid is None or (share is None and set(_CPU) & set(heads)) or last not in row:
        return
    args = clean(row[last].strip())[:400]
    state = next((row[name] for name in ("S", "STAT", "STATE") if name in row), "")
    threads = next((whole(row[name]) for name in _THREADS if name in row), None)
    comm = clean(row["COMM"])[:64] if "COMM" in row else name_of(args)
    on = next((whole(row[name]) for name in _ON if name in row), None)
    seen_on = (on,) if on is not None else ()
    runs = int(state[:1] == "R") if thread is not None else None
    if pid in rows:  # a row a thread
        there = rows[pid]
        total = None if share is None else round((there.cpu_percent or 0.0) + share, 1)
        more = tuple(sorted({*there.seen_on, *seen_on}))
        rows[pid] = replace(there, cpu_percent=total, seen_on=more, running=(there.running or 0) + (runs or 0))
        if thread == pid:  # the main thread has the process's name
            rows[pid] = replace(rows[pid], comm=comm, args=args)
        return
    rows[pid] = process(
        pid, comm, share, ppid=whole(row.get("PPID", "")) or 0, state=state[:1], args=args, threads=threads,
        lifetime=not top and "CPU%" not in heads, user=clean(row.get("USER", row.get("UID", "")))[:32],
        seen_on=seen_on, running=runs,
    )  # fmt: skip


FULL, FREE = 5.0, 80.0  # percent of idle time; judgement


def by_cpu(idle: dict[int, float]) -> dict[str, str]:
    """Which CPUs have no time left, and which have nearly all, where each is told."""
    return {
        "cpus_full": ranges_of(cpu for cpu, left in idle.items() if left < FULL),
        "cpus_free": ranges_of(cpu for cpu, left in idle.items() if left > FREE),
    }


def name_of(args: str) -> str:
    """`/usr/bin/python3 -u train.py` is python3; `[kworker/0:1]` stays."""
    first = args.split(" ")[0] if args else ""
    return first[:64] if first.startswith("[") else first.rpartition("/")[2][:64]


TOOL = Tool("process table", "host.load", fits, read, host=host_in)
