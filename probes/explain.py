"""python -m probes explain: from files that people have to a verdict, with no server and no database.

Exit status: 0 a cause is named, 3 none is, 2 not one file could be read. The JSON is described in docs/explain.md.
"""

from __future__ import annotations

import gc
import json
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from probes import intake
from probes.core import clean
from probes.diagnosis import Diagnosis, Reason, diagnose, telling
from probes.diagnosis.core import seen
from probes.diagnosis.flow import COLUMNS
from probes.diagnosis.paths import WORST, PathState
from probes.diagnosis.ranking import Ranked, causes
from probes.report import count

NAMED, NOTHING_READ, NO_CAUSE = 0, 2, 3
SUBJECT = ("node", "rank", "gpu", "bus_id", "hca", "port", "switch", "group")
LANES = ("hardware", "communication", "framework")
_MARK = {"implicated": "[red]◆[/]", "suspect": "[yellow]▲[/]", "not known": "[magenta]○[/]", "ruled out": "[green]✓[/]"}
_SHOWN = 0.005  # of the other hypotheses: less is not worth a line
_MOST_UNREAD = 12


@dataclass(frozen=True, slots=True)
class Explained:
    """`read`: how many readings the verdict rests on."""

    diagnosis: Diagnosis
    read: int
    unread: tuple[intake.Unread, ...]

    @property
    def status(self) -> int:
        """The exit status."""
        if not self.read:
            return NOTHING_READ
        return NO_CAUSE if self.diagnosis.verdict.hypothesis.cause in ("none", "unknown") else NAMED


def explain(paths: Sequence[Path]) -> Explained:
    """Read everything under these paths and judge it. Raises intake.NoSuchPath."""
    found = intake.read(paths)
    diagnosis = diagnose((seen(reading, ref) for ref, reading in found.readings), found.asked, found.expected)
    return Explained(diagnosis, len(found.readings), found.unread)


def command(paths: Sequence[Path], as_json: bool) -> int:
    """Explain and print; the exit status. Raises intake.NoSuchPath."""
    gc.set_threshold(100_000)  # facts are a million small objects without circles, and looking for these takes time
    told = explain(paths)
    if as_json:
        print(json.dumps(explained_as_json(told), indent=1, ensure_ascii=True))
    else:
        show(told)
    for rule, why in told.diagnosis.failed.items():
        print(f"probes: the rule {rule} stopped on this evidence: {clean(why)}", file=sys.stderr)
    if told.status == NOTHING_READ:
        why = "not one of these files could be read as evidence" if told.unread else "there is no file in it"
        print(f"probes: {why}", file=sys.stderr)
    return told.status


# JSON ---------------------------------------------------------------------------------------------------------------


def explained_as_json(told: Explained) -> dict[str, Any]:
    """The form of schema 1, see docs/explain.md. What only a node can use, such as a pid, is left out of subjects."""
    body = telling.told(told.diagnosis, [(one.file, one.why) for one in told.unread])
    for hypothesis in (one for found in body["hypotheses"] for one in (found, *found["consequences"])):
        named = hypothesis["subject"]
        hypothesis["subject"] = {key: named[key] for key in SUBJECT if named.get(key) not in (None, "")}
    return body


def to_bring(states: Mapping[str, PathState]) -> list[str]:
    """What would tell most where nothing is known, of the paths by which most incidents are found: four at most."""
    found: list[str] = []
    for path in ("collective-order", "gpu-fault", "host-fault", "rdma"):
        steps = states[path].steps if path in states else ()
        found += [step.bring for step in steps if step.bring and step.bring not in found][:1]
    return found


# For people -----------------------------------------------------------------------------------------------------------


def show(told: Explained) -> None:
    """Print it for people."""
    _Page(told).show()


class _Page:
    def __init__(self, told: Explained) -> None:
        self.told = told
        self.console = Console(highlight=False, soft_wrap=True)

    def show(self) -> None:
        """The verdict and what it rests on, what else it may be, the paths, and the files that told nothing."""
        if self.told.read:
            first, *others = self.told.diagnosis.ranked
            self._verdict(first)
            self._others(others)
            self._chains()
            self._differences()
            self._flow()
            self._speeds()
            self._paths(self.told.diagnosis.paths)
        self._unread()

    def _line(self, text: str, indent: int = 2) -> None:
        self.console.print(" " * indent + text)

    def _verdict(self, one: Ranked) -> None:
        hypothesis = one.hypothesis
        self.console.print(f"[bold]{_safe(hypothesis.says)}[/]")
        title = causes()[hypothesis.cause]["title"]
        self._line(f"{_percent(one.probability)}  {hypothesis.cause}: {_safe(title)}", 0)
        self._reasons("because", hypothesis.because)
        self._reasons("against", hypothesis.against)
        for under in one.consequences:
            self._line(f"[dim]it explains[/]  {_safe(under.says)}")
        for says in hypothesis.would_change:
            self._line(f"[dim]would speak against it[/]  {_safe(says)}")
        if hypothesis.cause == "unknown" and (wanted := to_bring(self.told.diagnosis.paths)):
            self._line(f"[dim]bring next[/]  {_safe('; '.join(wanted))}")

    def _reasons(self, word: str, reasons: Sequence[Reason]) -> None:
        for reason in reasons:
            self._line(f"[dim]{word}[/]  {_safe(reason.says)}  [dim]{_safe(reason.reading)}[/]")

    def _others(self, others: Sequence[Ranked]) -> None:
        shown = [one for one in others if one.probability >= _SHOWN]
        if shown:
            self.console.print("\n[bold]Also possible[/]")
        for one in shown:
            self._line(f"{_percent(one.probability):>5}  {one.hypothesis.cause}  {_safe(one.hypothesis.says)}")

    def _chains(self) -> None:
        if self.told.diagnosis.chains:
            self.console.print("\n[bold]Who waits for whom[/]")
        for chain in self.told.diagnosis.chains:
            for depth, link in enumerate(chain):
                self._line(f"{'└ ' if depth else ''}{_safe(link.says)}", 2 * depth if depth else 2)

    def _differences(self) -> None:
        if self.told.diagnosis.differences:
            self.console.print("\n[bold]Differences between nodes[/]")
        for one in self.told.diagnosis.differences:
            self._line(_safe(one.says))

    def _flow(self) -> None:
        if self.told.diagnosis.flow:
            self.console.print("\n[bold]How RoCE is set up[/]")
        for row in self.told.diagnosis.flow:
            cells = (
                f"{name} {cell.says}" + (f" ({cell.odd})" if cell.odd else "")
                for name, cell in zip(COLUMNS, row.cells, strict=True)
            )
            self._line(_safe(f"{row.where} {row.interface}: {'; '.join(cells)}"))

    def _speeds(self) -> None:
        if self.told.diagnosis.speeds:
            self.console.print("\n[bold]How fast collectives were[/]")
        for one in self.told.diagnosis.speeds:
            self._line(_safe(one.says))

    def _paths(self, paths: Mapping[str, PathState]) -> None:
        for lane in LANES:
            self.console.print(f"\n[bold]{lane.capitalize()}[/]")
            mine = [path for path in paths.values() if path.lane == lane]
            for path in sorted(mine, key=lambda one: -WORST.index(one.state)):
                worst = max(path.steps, key=lambda step: WORST.index(step.state))
                self._line(f"{_MARK[path.state]} {_safe(path.title)}: {path.state}. [dim]{_safe(worst.why)}[/]")

    def _unread(self) -> None:
        by_why: dict[str, list[str]] = defaultdict(list)
        for one in self.told.unread:
            by_why[clean(one.why)].append(one.file)
        if by_why:
            self.console.print(f"\n[bold]Not read[/]  {count(len(self.told.unread), 'file')}")
        for why, files in list(by_why.items())[:_MOST_UNREAD]:
            more = f" and {len(files) - 1} more" if len(files) > 1 else ""
            self._line(f"[dim]·[/] {_safe(files[0])}{more}: {_safe(why)}")
        if len(by_why) > _MOST_UNREAD:
            self._line(f"and for {len(by_why) - _MOST_UNREAD} more reasons: --json lists them")


def _percent(share: float) -> str:
    """Nothing here is certain, so no share is shown as 100 %."""
    return ">99 %" if share > 0.995 else f"{100 * share:.{1 if share < 0.1 else 0}f} %"


def _safe(text: str) -> str:
    """Text that may be a node's, for rich."""
    return escape(clean(text)).replace("\n", " ")
