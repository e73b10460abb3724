"""The calls of a sampled profile as one tree: what a flame graph draws.

Units    samples
Shape    Tree.add(frames, count) for each stack; Tree.frames() -> Frames, each after its parent, the heaviest first
Errors   none: what is too small or too much is left out, and its parent's samples still count it
"""

from __future__ import annotations

from dataclasses import dataclass

from probes.core import clean

MOST = 600  # frames that are kept; a picture shows no more
LEAST = 0.002  # of all samples; judgement: three pixels of a wide page
MOST_SEEN = 200_000  # frames that are counted at all: a profile with more is cut there
LONGEST = 160


@dataclass(frozen=True, slots=True)
class Frame:
    """One call, with the samples in it and in what it called. `parent`: place of its caller, -1 for the outermost."""

    parent: int
    name: str
    samples: int


class Tree:
    def __init__(self) -> None:
        self._ids: dict[tuple[int, str], int] = {}
        self._parents: list[int] = []
        self._names: list[str] = []
        self._samples: list[int] = []
        self._total = 0

    def add(self, frames: list[str], count: int) -> None:
        """One stack, outermost first."""
        self._total += count
        here = -1
        for frame in frames:
            key = (here, frame)
            found = self._ids.get(key)
            if found is None:
                if len(self._parents) >= MOST_SEEN:
                    return
                found = self._ids[key] = len(self._parents)
                self._parents.append(here)
                self._names.append(frame)
                self._samples.append(0)
            self._samples[found] += count
            here = found

    def frames(self) -> tuple[Frame, ...]:
        least = max(1.0, LEAST * self._total)
        # A caller has at least the samples of what it calls, and was met before it: it is never left out alone.
        kept = sorted(
            (one for one, samples in enumerate(self._samples) if samples >= least),
            key=lambda one: (-self._samples[one], one),
        )[:MOST]
        below: dict[int, list[int]] = {}
        for one in kept:
            below.setdefault(self._parents[one], []).append(one)
        found: list[Frame] = []
        todo = [(one, -1) for one in reversed(below.get(-1, []))]
        while todo:
            one, parent = todo.pop()
            found.append(Frame(parent, clean(self._names[one])[:LONGEST], self._samples[one]))
            todo += [(inner, len(found) - 1) for inner in reversed(below.get(one, []))]
        return tuple(found)
