"""Stacks of Python that somebody shortened or wrote down, in the form in which py-spy prints them.

    pyspy rank 0 pid 4121                Thread 4121 "MainThread" idle
    MainThread (idle)                      train.py:88 train
      wait (threading.py:324)
      _try_get_data (dataloader.py:1275)

Shape    as_py_spy(text) -> the text as of py-spy dump, "" where it is no stack
Errors   none
"""

from __future__ import annotations

import re

from probes.core import lines_of

LEAST, MOST_LINES, LONGEST_TEXT = 3, 2000, 65_536
_STATE = r"(?P<state>(?:idle|active|running|waiting|sleeping)(?:\s?[+,]\s?gil)?|gil)"
_HEAD = re.compile(
    r"\s{0,4}[-*]{0,2}\s{0,2}(?:Thread[ :#]{0,2})?(?:0x[0-9a-f]{1,16}|\d{1,10})?[ :]{0,2}"
    r"[\"'(]?(?P<name>MainThread|[A-Za-z_][\w.-]{0,40}(?: \(?\w{1,20}\)?)?)[\"')]?"
    rf"\s{{0,2}}[(\[,:]?\s{{0,2}}{_STATE}[)\]]?:?\s{{0,4}}",
    re.I,
)
_PLACE = r"(?P<file>[\w./<>-]{1,200}\.pyx?)(?::|, line |:L|#L)(?P<line>\d{1,7})"
_NAME = r"(?P<name>[A-Za-z_<][\w.<>]{0,120})(?:\(\))?"
_FRAME = re.compile(
    rf"\s{{0,16}}(?:#?\d{{1,3}}[:.)]?\s|at |in |[-*>↳└─|]{{1,4}}\s)?\s{{0,8}}{_NAME}"
    rf"\s{{0,4}}(?:\(|@ ?|at |in |- |\s){_PLACE}\)?\s{{0,8}}"
)
_TURNED = re.compile(rf"\s{{0,16}}(?:#?\d{{1,3}}[:.)]?\s|at )?\s{{0,8}}{_PLACE}[:,]?\s{{1,4}}(?:in )?{_NAME}\s{{0,8}}")
_PID = re.compile(r"\b(?:pid|process)[ =:#]{1,3}(\d{1,10})\b", re.I)
_HOLDS = re.compile(r"gil", re.I)
_ACTIVE = re.compile(r"active|running|gil", re.I)


def as_py_spy(text: str) -> str:
    if len(text) > LONGEST_TEXT or ".py" not in text or "most recent call" in text:
        return ""
    lines = [line for line in lines_of(text, 1000) if line.strip()][:MOST_LINES]
    threads: list[tuple[str, str, list[str]]] = []
    frames = heads = 0
    for line in lines:
        if found := _FRAME.fullmatch(line) or _TURNED.fullmatch(line):
            if not threads:
                threads.append(("MainThread", "idle", []))
            threads[-1][2].append(f"    {found['name']} ({found['file']}:{found['line']})")
            frames += 1
        elif (head := _HEAD.fullmatch(line)) is not None:
            heads += 1
            threads.append((head["name"], head["state"], []))
    threads = [one for one in threads if one[2]]
    if frames < LEAST or not threads or 2 * (frames + heads) < len(lines):
        return ""
    pid = _PID.search(text[:4096])
    told = [f"Process {pid[1]}: python", ""] if pid else []
    for at, (name, state, rows) in enumerate(threads):
        words = "active" if _ACTIVE.search(state) else "idle"
        words += "+gil" if _HOLDS.search(state) else ""
        if rows[0].lstrip().startswith("<module>"):  # the outermost first
            rows.reverse()
        number = f"{pid[1]}" if pid and name == "MainThread" else f"0x{at + 1:x}"
        told += [f'Thread {number} ({words}): "{name}"', *rows]
    return "\n".join(told) + "\n"
