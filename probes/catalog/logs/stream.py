"""Chooses the lines that matter of a log of any size, piece by piece from its beginning to its end.

On the dashboard's side, for files that people bring. The node has _log_reduce, the same words with the standard library
only, which of a long file reads the beginning and the end. Here all words are looked for at once (Aho and Corasick), so
that a first error in the middle of a gigabyte is found at the speed of a disk.

Units    bytes; lines are counted from 1
Errors   none
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import ahocorasick_rs

from probes.catalog.logs.reduce import LINE, MASKED, SECRET, WORDS, traceback_lines

PIECE = 4_194_304  # of a file that is read at once
AHEAD = 65_536  # of it that is looked at again with the next one, so that a traceback is seen whole
# Words of progress stand in every line: their first and last are looked for from both ends instead of all of them.
PROGRESS = frozenset(("%|", "step", "Step", "iter", "Iter", "poch", "it=", "s=", "upd", "atch"))
TRACEBACK = "Traceback (most"
LAST_WORDS = 3
WHOLE, END = 16_777_216, 262_144  # progress is looked for in the beginning of a log, then at the end of each piece


class Chosen(NamedTuple):
    rank: int  # place in WORDS: what matters more stands first
    offset: int
    number: int
    text: str


@dataclass(frozen=True, slots=True)
class _Word:
    text: bytes
    rank: int
    first: int
    last: int
    traceback: bool


_ALL = [
    _Word(word.encode(), rank, first, last, word == TRACEBACK)
    for rank, (_, first, last, words) in enumerate(WORDS)
    for word in words
]
_RARE = [word for word in _ALL if word.text.decode() not in PROGRESS]
_OFTEN = [word for word in _ALL if word.text.decode() in PROGRESS]
_RARE_WORDS = ahocorasick_rs.BytesAhoCorasick(
    [word.text for word in _RARE], matchkind=ahocorasick_rs.MatchKind.LeftmostLongest
)


class _Kept:
    """The lines of one word: its first ones and its last ones."""

    __slots__ = ("first", "last", "room")

    def __init__(self, word: _Word) -> None:
        self.first: list[Chosen] = []
        self.last: deque[Chosen] = deque(maxlen=word.last)
        self.room = word.first

    def wanted(self, starts: list[int]) -> list[int]:
        """Of the lines of one piece those that may still be among the first or the last."""
        most = self.last.maxlen or 0
        rest = starts[self.room :]
        return starts[: self.room] + rest[max(0, len(rest) - most) :]

    def take(self, line: Chosen) -> None:
        if self.room > 0:
            self.room -= 1
            self.first.append(line)
        else:
            self.last.append(line)


class Chooser:
    """Takes the bytes of one log in any pieces; `lines` gives what was chosen, in the order of the file."""

    def __init__(self) -> None:
        self._kept = {word.text: _Kept(word) for word in _ALL}
        self._inner: deque[Chosen] = deque(maxlen=8000)  # lines of tracebacks
        self._new: list[bytes] = []  # not yet added to the rest: adding each small part would copy all of it
        self._waiting = 0
        self._rest = b""
        self._at = 0  # of self._rest in the file
        self._number = 1
        self._hits = 0
        self._tail: list[Chosen] = []

    def feed(self, data: bytes) -> None:
        """The next bytes of the file."""
        self._new.append(data)
        self._waiting += len(data)
        if len(self._rest) + self._waiting >= PIECE + AHEAD:
            self._join()
        while len(self._rest) >= PIECE + AHEAD:
            self._look()

    def _join(self) -> None:
        self._rest += b"".join(self._new).replace(b"\r", b"\n")
        self._new, self._waiting = [], 0

    def lines(self) -> tuple[list[Chosen], int]:
        """[lines], and how many lines of interest were passed over. Ends the reading."""
        self._join()
        while self._rest:
            self._look()
        found: dict[int, Chosen] = {}
        for kept in self._kept.values():
            for line in (*kept.first, *kept.last):
                there = found.get(line.offset)
                if there is None or line.rank < there.rank:
                    found[line.offset] = line
        passed = max(0, self._hits - len(found))
        for line in (*self._inner, *self._tail):
            found[line.offset] = line
        return [line for _, line in sorted(found.items()) if line.text.strip()], passed

    def _look(self) -> None:
        """Choose among the first lines of what is there, and let go of them."""
        data = self._rest
        size = len(data) if len(data) <= PIECE else data.rfind(b"\n", 0, PIECE) + 1 or PIECE  # a line without an end
        wanted: dict[int, list[_Word]] = {}
        inner: set[int] = set()
        for word, starts in self._found(data, size):
            self._hits += len(starts)
            for start in self._kept[word.text].wanted(starts):
                wanted.setdefault(start, []).append(word)
                if word.traceback:
                    inner.update(traceback_lines(data, start))
        number, before = self._number, 0
        for start in sorted(wanted.keys() | inner):
            number += data.count(b"\n", before, start)
            before = start
            for word in wanted.get(start, ()):
                self._kept[word.text].take(self._line(data, start, word.rank, number))
            if start in inner:
                self._inner.append(self._line(data, start, 0, number))
        self._number += data.count(b"\n", 0, size)
        self._remember_the_end(data[:size])
        self._at += size
        self._rest = data[size:]

    def _found(self, data: bytes, size: int) -> Iterator[tuple[_Word, list[int]]]:
        """(word, beginnings of the lines that hold it); of words of progress only the first and last ones."""
        starts: list[list[int]] = [[] for _ in _RARE]
        over = [-1] * len(_RARE)  # the end of the line that was taken last
        for index, at, _ in _RARE_WORDS.find_matches_as_indexes(data[:size]):
            if at > over[index]:
                stop = data.find(b"\n", at)
                over[index] = len(data) if stop < 0 else stop
                starts[index].append(_begin(data, at))
        yield from ((_RARE[index], found) for index, found in enumerate(starts) if found)
        # Where such a word is not at all, looking for it in everything would take longer than all the others together.
        part = data[:size] if self._at < WHOLE else data[max(0, size - END) : size]
        for word in _OFTEN:
            if found := [_begin(data, size - len(part) + at) for at in _both_ends(part, word)]:
                yield word, found

    def _line(self, data: bytes, start: int, rank: int, number: int) -> Chosen:
        stop = data.find(b"\n", start, start + LINE)
        raw = data[start : start + LINE if stop < 0 else stop]
        text = SECRET.sub(MASKED, " ".join(raw.decode("utf-8", "replace").splitlines()))
        return Chosen(rank, self._at + start, number, text)

    def _remember_the_end(self, data: bytes) -> None:
        """The last words of the log, if this is its end."""
        end, found = len(data.rstrip(b"\n")), []
        number = self._number - data.count(b"\n", end)
        for _ in range(LAST_WORDS):
            start = max(data.rfind(b"\n", 0, end) + 1, end - LINE)
            if end > 0:
                found.append(self._line(data, start, 0, number))
            end, number = max(0, start - 1), number - 1
        self._tail = (self._tail + found[::-1])[-LAST_WORDS:]


def _begin(data: bytes, at: int) -> int:
    """Where the line of this place begins; of a very long line, where what is worth showing begins."""
    start = data.rfind(b"\n", max(0, at - LINE), at) + 1
    return start if start or at <= LINE else at - LINE // 2


def _both_ends(data: bytes, word: _Word) -> Iterable[int]:
    """Places of the word in its first and in its last lines."""
    found: list[int] = []
    at = data.find(word.text)
    while at >= 0 and len(found) < word.first:
        found.append(at)
        stop = data.find(b"\n", at)
        at = data.find(word.text, stop) if stop >= 0 else -1
    end, front = len(data), found[-1] if found else -1
    for _ in range(word.last):
        hit = data.rfind(word.text, 0, end)
        if hit <= front:
            break
        found.append(hit)
        end = data.rfind(b"\n", 0, hit) + 1
    return sorted(found)
