"""How many threads each process has, or has running, as people count rows of `ps -eL` with uniq -c or awk.

    64 40123 python3.10         count, process, name
    252 python3.10              count, name
    40123 231                   process, count: for p in $(pgrep -f train.py); do echo $p $(ls /proc/$p/task | wc -l)

Whether only running threads were counted the command says: it looks for the state R.
Source: ps(1), uniq(1)
"""

from __future__ import annotations

import re
from dataclasses import replace

from probes.catalog.host.load_facts import Load
from probes.core import clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse
from probes.intake.tools.host._load import load, nameless, process
from probes.intake.tools.host.masks import OF_TRAINING

_ROW = re.compile(r"\s{0,12}(\d{1,6})\s{1,4}(?:(\d{1,10})\s{1,4})?([A-Za-z_(\[][\w.:/()\[\]-]{0,60})\s{0,4}")
_COMMAND = re.compile(r"ps_[\w.+-]{0,60}L[\w.+-]{0,400}?(?:uniq_-c|awk)|ps_[\w.+-]{0,20}[HT][\w.+-]{0,400}?uniq_-c")
_RUNNING = re.compile(r"(?:^|_)R(?:_|$)|stat_R|_R_n_")


_FOLDER = re.compile(r"proc_[\w.+-]{0,12}task[\w.+-]{0,12}wc_-l|nlwp")
_PAIR = re.compile(r"\s{0,12}(\d{2,10})\s{0,4}[\s:=]\s{0,4}(\d{1,6})(?: threads)?\s{0,4}")


def fits(head: str, name: str) -> bool:
    if _FOLDER.search(name):
        lines = [line for line in lines_of(head, 200) if line.strip()][:20]
        return bool(lines) and all(_PAIR.fullmatch(line) for line in lines)
    return bool(_COMMAND.search(name)) and any(_ROW.fullmatch(line) for line in list(lines_of(head, 200))[:20])


def read(text: str) -> Load:
    """Counts as threads; what counts only those that run `named` tells. A name without a process has one below 0."""
    pairs = [one for line in lines_of(text, 200) if (one := _PAIR.fullmatch(line))][:4096]
    if pairs:
        return load(processes=tuple(process(int(one[1]), "", None, threads=int(one[2])) for one in pairs))
    rows = [one for line in lines_of(text, 200) if (one := _ROW.fullmatch(line))][:4096]
    if not rows:
        raise refuse("rows of a count, a process and its name", text)
    return load(
        processes=tuple(
            process(int(one[2]) if one[2] else nameless(one[3]), clean(one[3])[:64], None, threads=int(one[1]))
            for one in rows
        )
    )


def named(facts: Load, path: str) -> Load:
    if OF_TRAINING.search(path):
        return replace(facts, processes=tuple(replace(one, comm=one.comm or "python") for one in facts.processes))
    if not _RUNNING.search(path.rpartition("/")[2]):
        return facts
    total = sum(one.threads or 0 for one in facts.processes)
    some = tuple(replace(one, running=one.threads) for one in facts.processes)
    return replace(facts, runnable=total, processes=some)


TOOL = Tool("thread tally", "host.load", fits, read, host=host_in, named=named)
