"""Headings that people mark themselves: ===== gpu-017 =====, ### gpu-017, -- gpu-017 10:00:00 --.

Shape    mark(line) -> the match, with the characters in group 1 and the words in group 2; None where it is none
Errors   none
"""

from __future__ import annotations

import re

_MARKED = re.compile(r"([=#*~<>+_-])\1{2,100} {0,4}([^\n]{1,160}?) {0,4}\1{2,100}$")
_OPEN = re.compile(  # ### gpu-017, without an end; of two marks one word, or == n1 (srun -w n1 env)
    r"([=#*+])\1(?:\1{1,100} {1,4}| {1,2}(?=[\w.-]{2,63}(?: \1\1| \([^()\n][^\n]{1,400}\))?$"
    r"|[A-Za-z][a-z-]{0,40}\d[\w.-]{0,40}:? {1,4}\S))"  # ## n1  what was asked
    r"([^\n]{1,400}?)(?: \1\1)?$"
)
_AT = re.compile(r"(?<=\w) {1,4}(?:20\d\d-\d\d-\d\d[T ])?\d\d:\d\d:\d\dZ?(?=[ =#*~<>+_-]{0,100}$)")  # ### n1 10:00:00


def mark(line: str) -> re.Match[str] | None:
    """Without the time that may stand behind the words."""
    line = _AT.sub("", line[:1000])
    return _MARKED.match(line) or _OPEN.match(line)


def frame(marked: re.Match[str]) -> str:
    """How somebody marks headings: by the same characters each time."""
    return marked[0][: len(marked[0]) - len(marked[0].lstrip(marked[1]))]
