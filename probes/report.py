"""What `python -m probes` prints: a progress bar while nodes answer, then what is wrong, worst first."""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from probes import catalog, nodeset, probes_page, suites
from probes.core import SEVERITIES, Reading, Severity, clean, finding_as_json
from probes.transport import REASONS, NodeEnd, installed
from probes.transport.reasons import sentence

SCHEMA = 1  # of the JSON lines, see docs/probes-command.md
_MARK = {"bad": "[red]◆[/]", "warn": "[yellow]▲[/]", "info": "[dim]·[/]"}
_MOST_LINES = 60


def listing() -> int:
    """Print the suites and the probes."""
    console = Console(highlight=False, soft_wrap=True)
    for suite in suites.SUITES.values():
        console.print(f"[bold]{suite.name}[/]  {suite.says}, within {suite.deadline_s:g} s")
        console.print(f"    {' '.join(suite.probes)}", style="dim")
    console.print()
    for name, probe in catalog.load().items():
        console.print(f"[bold]{name}[/]  {escape(probe.question)}")
        console.print(f"    by hand: {escape(probe.by_hand)}", style="dim")
    return 0


def page() -> int:
    """Print docs/probes.md."""
    print(probes_page.page(), end="")
    return 0


def installed_runner() -> int:
    """Print the runner as a file to install."""
    print(installed.program(), end="")
    return 0


class Screen:
    """Takes readings and node ends as they come. As JSON they are printed at once, one object per line."""

    def __init__(self, nodes: list[str], as_json: bool):
        self.nodes = nodes
        self.as_json = as_json
        self.readings: list[Reading] = []
        self.ends: list[NodeEnd] = []
        self.progress = Progress(
            TextColumn("asking"), BarColumn(), MofNCompleteColumn(), TextColumn("nodes"), TimeElapsedColumn(),
            TextColumn("{task.fields[last]}", style="dim"), console=Console(stderr=True), transient=True,
            disable=as_json and not sys.stderr.isatty(),
        )  # fmt: skip
        self.task = self.progress.add_task("asking", total=len(nodes), last="")

    def __enter__(self) -> Screen:
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()

    def reading(self, reading: Reading) -> None:
        self.readings.append(reading)
        if self.as_json:
            self._line(reading_as_json(reading))

    def node(self, end: NodeEnd) -> None:
        self.ends.append(end)
        self.progress.update(self.task, advance=1, last=escape(end.node[:40]))
        if self.as_json:
            self._line({"kind": "node", "node": end.node, "reason": end.reason, "why": end.why,
                        "took_s": round(end.took_s, 3), "tries": end.tries, "python": end.python,
                        "reached": end.reached, "chatter": end.chatter,
                        "offered_key": end.offered_key.strip(), "fingerprint": end.fingerprint})  # fmt: skip

    def _line(self, words: dict[str, Any]) -> None:
        print(json.dumps({"schema": SCHEMA, **words}, ensure_ascii=True), flush=True)

    def close(self) -> int:
        """Print the summary; 0 when every probe of every node was answered, else 1."""
        unanswered = [reading for reading in self.readings if reading.outcome not in ("ok", "absent")]
        silent = [end for end in self.ends if end.reason]
        if self.as_json:
            counts = Counter(reading.outcome for reading in self.readings)
            self._line({"kind": "summary", "nodes": len(self.nodes), "silent": len(silent), "outcomes": dict(counts)})
        else:
            self._print(silent, unanswered)
        return 1 if silent or unanswered else 0

    def _print(self, silent: list[NodeEnd], unanswered: list[Reading]) -> None:
        console = Console(highlight=False, soft_wrap=True)
        said = self._findings(console)
        told = {reading.capture.node for reading in self.readings if not reading.capture.reason}
        for title, ends in (
            ("No answer", [end for end in silent if end.node not in told]),
            ("Stopped early", [end for end in silent if end.node in told]),
        ):
            said += self._grouped(console, f"[red]○[/] {title}", [(e.node, _why(e), e.detail) for e in ends])
        quiet = {end.node for end in silent}
        partly = [r for r in unanswered if r.capture.node not in quiet]
        said += self._grouped(console, "[magenta]○[/] Not known", [(r.capture.node, _unknown(r), "") for r in partly])
        absent = [r for r in self.readings if r.outcome == "absent"]
        self._grouped(console, "[dim]·[/] Absent", [(r.capture.node, _unknown(r), "") for r in absent])
        answered = len(self.ends) - len(silent)
        fine = "" if said else " Nothing wrong found."
        console.print(
            f"{answered} of {count(len(self.nodes), 'node')} answered; {count(len(self.readings), 'reading')}.{fine}"
        )

    def _findings(self, console: Console) -> int:
        """Prints and counts. One row per finding, worst first; nodes with the same words are folded into one row."""
        same: dict[tuple[Severity, str], list[str]] = defaultdict(list)
        for reading in self.readings:
            for finding in reading.findings:
                if finding.severity != "info":
                    same[finding.severity, clean(finding.says)].append(reading.capture.node)
        ordered = sorted(same.items(), key=lambda item: (-SEVERITIES.index(item[0][0]), len(item[1]), item[1]))
        table = Table(box=None, show_header=False, padding=(0, 1))
        for (severity, says), nodes in ordered[:_MOST_LINES]:
            table.add_row(_MARK[severity], escape(nodeset.fold(nodes)), escape(says))
        if ordered:
            console.print(table)
        if len(ordered) > _MOST_LINES:
            console.print(f"... and {len(ordered) - _MOST_LINES} more: use --json or --save")
        return len(ordered)

    def _grouped(self, console: Console, title: str, rows: list[tuple[str, str, str]]) -> int:
        """Prints (node, why, detail) and counts: one line per reason with its nodes folded, so that 500 dead nodes are
        one line. A detail is told where it is the same for all."""
        by_reason: dict[str, dict[str, str]] = defaultdict(dict)
        for node, why, detail in rows:
            by_reason[why][node] = detail
        for why, nodes in sorted(by_reason.items(), key=lambda item: -len(item[1])):
            details = set(nodes.values())
            detail = f" ({details.pop()})" if len(details) == 1 and details != {""} else ""
            says, colon, what_next = why.partition(": ")
            text = escape(clean(f"{says}{detail}{colon}{what_next}"))
            console.print(f"{title}: [bold]{escape(nodeset.fold(nodes))}[/] {text}")
        return len(by_reason)


def count(number: int, noun: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _why(end: NodeEnd) -> str:
    """The reason and what to do next, without the node's own detail. This command does not read the Fleet's keys."""
    if end.reason == "host_key_unknown":
        return f"{REASONS[end.reason].says}: compare the fingerprint, then add the key to known_hosts"
    return sentence(end.reason)


def _unknown(reading: Reading) -> str:
    why = reading.parse_error or reading.capture.why or reading.capture.err.strip()[:200]
    return f"{reading.capture.probe}{'' if reading.outcome == 'absent' else ' ' + reading.outcome}: {why}"


def reading_as_json(reading: Reading) -> dict[str, Any]:
    """One reading as the JSON line `kind: reading`. Raw output is left out; `--save` keeps it."""
    capture = reading.capture
    return {
        "kind": "reading",
        "node": capture.node,
        "probe": capture.probe,
        "outcome": reading.outcome,
        "reason": capture.reason,
        "why": reading.parse_error or capture.why,
        "at": capture.at,
        "took_s": capture.took_s,
        "truncated": capture.truncated,
        "state": capture.state,
        "wchan": capture.wchan,
        "facts": reading.facts_json,
        "findings": [finding_as_json(finding) for finding in reading.findings],
    }
