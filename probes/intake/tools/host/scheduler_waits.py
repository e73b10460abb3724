"""How long tasks waited for a CPU, by tracers of the scheduler: `perf sched latency`, and histograms of runqlat.

      Task                  |   Runtime ms  |  Count   | Avg delay ms    | Max delay ms    |
      python:(8)            |  41200.110 ms |     9120 | avg:   6.210 ms | max:  48.121 ms |

         usecs               : count     distribution          bcc; bpftrace prints [4K, 8K)   812 |@@@@   |
          4096 -> 8191       : 812      |********              |

Of a histogram the share of the waits that took a turn of another task or more.
Source   perf-sched(1); bcc tools/runqlat.py, bpftrace tools/runqlat.bt
Errors   ParseError without rows
"""

from __future__ import annotations

import re
from dataclasses import replace

from probes.catalog.host.load_facts import Load, Process
from probes.core import clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, mentions, refuse
from probes.intake.tools.host._load import load, nameless, process

_HEAD = re.compile(
    r"Task\s{1,40}\|\s{1,8}Runtime ms\s{1,8}\|\s{1,8}(?:Count|Switches)\s{1,8}\|\s{1,8}(?:Avg|Average) delay", re.I
)
_ROW = re.compile(
    r"\s{0,8}([^|\n]{1,40}?):(?:\((\d{1,6})\)|(\d{1,10}))\s{0,30}\|\s{0,20}(\d{1,12}(?:\.\d{1,4})?) ms\s{0,8}\|"
    r"\s{0,12}(\d{1,12})\s{0,8}\|\s{0,8}(?:avg:)?\s{0,12}(\d{1,9}(?:\.\d{1,4})?) ms\s{0,8}\|[^\n]{0,300}"
)
_QUEUE = re.compile(r"run queue latency|runq_?lat|CPU scheduler\.\.\.", re.I)
_BCC = re.compile(r"\s{0,12}(\d{1,12}) -> (\d{1,12})\s{0,12}: (\d{1,12})\s{0,12}\|")
_BPF = re.compile(r"\[(\d{1,12})([KMG]?), (?:\d{1,12}[KMG]?|\.\.\.)\)\s{1,20}(\d{1,12}) \|")
_SCALE = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
_PERIOD = re.compile(r"sleep_(\d{1,4})(?:_|$)")
TURN_US = 4096  # microseconds: a turn of another task, at 250 Hz; judgement
LEAST = 100  # waits: fewer tell nothing


def fits(head: str, name: str) -> bool:
    if mentions(head, ("runtime ms",)) and _HEAD.search(head):
        return True
    known = bool(_QUEUE.search(head[:20_000]) or _QUEUE.search(name))
    return known and any(_BCC.match(line) or _BPF.match(line) for line in list(lines_of(head, 300))[:200])


def read(text: str) -> Load:
    if _HEAD.search(text[:262_144]):
        rows = [one for line in lines_of(text, 600) if (one := _ROW.fullmatch(line))][:4096]
        if not rows:
            raise refuse("rows of perf sched latency", text)
        return load(processes=tuple(map(_process, rows)))
    return _histogram(text)


def _process(row: re.Match[str]) -> Process:
    """Tasks of one name that perf put together have no number of their own: theirs is below 0."""
    comm = clean(row[1].strip())[:64]
    waited = float(row[6]) * int(row[5])
    return process(
        int(row[3]) if row[3] else nameless(comm), comm, None, rank=comm.startswith(("python", "pt_")),
        ran_ns=round(1e6 * float(row[4])), waited_ns=round(1e6 * waited), threads=int(row[2]) if row[2] else None,
    )  # fmt: skip


def _histogram(text: str) -> Load:
    """Of several histograms all together."""
    millis = bool(re.search(r"^\s{0,20}msecs\s{0,20}:", text[:262_144], re.M))
    total = late = 0
    for line in lines_of(text, 300):
        if bcc := _BCC.match(line):
            least, count = int(bcc[1]) * (1000 if millis else 1), int(bcc[3])
        elif bpf := _BPF.match(line):
            least, count = int(bpf[1]) * _SCALE[bpf[2]], int(bpf[3])
        else:
            continue
        total += count
        late += count if least >= TURN_US else 0
    if total < LEAST:
        raise refuse(f"a histogram of {LEAST} waits or more", text)
    return load(late_waits_percent=round(100 * late / total, 1))


def named(facts: Load, path: str) -> Load:
    """How long perf recorded the command before it tells: with that, the CPUs that each task used."""
    seconds = _PERIOD.search(path.rpartition("/")[2])
    if seconds is None or int(seconds[1]) < 1:
        return facts
    each = 10**9 * int(seconds[1])
    told = tuple(
        one if one.ran_ns is None else replace(one, cpu_percent=round(100 * one.ran_ns / each, 1))
        for one in facts.processes
    )
    return replace(facts, processes=told)


TOOL = Tool("scheduler waits", "host.load", fits, read, host=host_in, named=named)
