"""A review as Markdown, for a wiki or a terminal. What nodes and people wrote stays text: none of it is markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from incidents import clock
from incidents.queries.review import Because, DecisionView, Review
from probes.core import clean

_BEGINS = re.compile(r"^()([#+=>-])|^(\d{1,9})([.)])(?=\s|$)")  # what would begin a heading, a list or a line
_MARKS = re.compile(r"[\\`*<|~$]|\](?=[(\[:])|&(?=[#\w])")  # a bracket that nothing follows makes no link
_EDGE = re.compile(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")  # inside a word it is no emphasis


def text(words: object) -> str:
    """Anybody's words on one line of Markdown, as they are: no markup, no HTML, no link, no new line."""
    plain = " ".join(clean(str(words)).split())
    plain = _MARKS.sub(r"\\\g<0>", plain)
    plain = _EDGE.sub(r"\\_", plain)
    plain = plain.replace("://", ":\\//").replace("www.", "www\\.")  # else some readers make links of them
    return _BEGINS.sub(lambda found: f"{found[1] or found[3] or ''}\\{found[2] or found[4]}", plain)


def code(words: str) -> str:
    """Words as code on one line, whatever back-ticks they hold."""
    plain = " ".join(clean(words).split())
    fence = "`" * (1 + max([len(run) for run in re.findall(r"`+", plain)], default=0))
    pad = " " if plain[:1] == "`" or plain[-1:] == "`" else ""
    return f"{fence}{pad}{plain}{pad}{fence}" if plain else ""


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """Lines of a table, its columns padded so that a terminal shows them one below the other."""
    lines = [list(head), *[list(row) for row in rows]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    widths[-1] = 3  # nothing stands to the right of the last

    def shown(cells: list[str]) -> str:
        return f"| {' | '.join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))} |"

    yield shown(lines[0])
    yield shown(["-" * max(3, width) for width in widths])
    yield from (shown(line) for line in lines[1:])


def markdown(found: Review) -> str:
    """The whole review. The same record gives the same text."""
    parts = (_top(found), _facts(found), _cause(found), _decisions(found), _lanes(found), _story(found), _record(found))
    return "\n".join(line for part in parts for line in part) + "\n"


def _top(found: Review) -> Iterator[str]:
    incident = found.incident
    yield f"# {found.name} {text(incident.title)}"
    yield ""
    if incident.drill:
        yield f"**Drill {text(incident.drill)}: nothing of this was real.**"
        yield ""
    t0 = incident.t0.strftime("%Y-%m-%d %H:%M:%S UTC")
    job = f", job {text(incident.job.name)}" if incident.job else ""
    yield f"SEV{incident.severity}, fleet {text(incident.fleet.name)}{job}. T0 is {t0}. All times count from it."
    yield f"Nodes ({found.count}): {text(found.nodes) or 'none'}."
    yield ""
    if found.open:
        yield f"**Not finished: this is the record up to {found.lasted}.**"
    else:
        who = f" by {text(found.ended.who)}" if found.ended and found.ended.who else ""
        why = f" Why: “{text(found.why)}”" if found.why else ""
        yield f"Closed at {found.lasted}{who}: {text(incident.resolution or 'not said how')}.{why}"
    yield ""


def _facts(found: Review) -> Iterator[str]:
    yield "## In numbers"
    yield ""
    rows = ((text(one.value), text(one.name), text(one.how)) for one in found.facts)
    yield from table(("Value", "What", "How it was computed"), rows)
    yield ""


def _cause(found: Review) -> Iterator[str]:
    yield "## Root cause"
    yield ""
    cause = found.cause
    if cause is None:
        yield "Nobody accepted a verdict."
        yield ""
        return
    why = f" Why: “{text(cause.why)}”" if cause.why else ""
    yield f"{text(cause.says)}. Accepted by {text(cause.who)} at {cause.at}.{why}"
    yield ""
    yield from (_reason("because", one) for one in cause.because)
    yield from (_reason("against it", one) for one in cause.against)
    yield from (f"- it explains: {text(one)}" for one in cause.consequences)
    yield ""


def _reason(word: str, one: Because) -> str:
    return f"- {word}: {text(one.says)} ({code(one.name)})"


def _decisions(found: Review) -> Iterator[str]:
    yield f"## Decisions ({len(found.decisions)})"
    yield ""
    for one in found.decisions:
        yield from _decision(one)
    if not found.decisions:
        yield "None was recorded."
    yield ""


def _decision(one: DecisionView) -> Iterator[str]:
    about = f" “{text(one.about)}”" if one.about else ""
    yield f"- {one.at} **{text(one.who)}** ({text(one.role)}): {text(one.question)}{about} **{text(one.chosen)}**"
    if one.superseded:
        yield f"  - superseded by the decision at {one.superseded}"
    if one.why:
        yield f"  - why: “{text(one.why)}”"
    if one.over:
        yield f"  - over: {' · '.join(text(label) for label in one.over)}"
    yield f"  - known then: {text(one.known)}"
    for ref in one.readings:
        changed = "" if ref.there == ref.sha256 else ", which is not what is kept now"
        yield f"  - reading {code(ref.name)} SHA-256 {text(ref.sha256)}{changed}"
    for action in one.outcomes:
        approved = f", {text(action.approved)}" if action.approved else ""
        says = f": {text(action.says)}" if action.says else ""
        yield f"  - {code(action.argv)} on {text(action.node)}: {text(action.state)}{says}{approved}"


def _lanes(found: Review) -> Iterator[str]:
    yield "## The 15 minutes"
    yield ""
    t0 = found.incident.t0
    rows = (
        (
            one.lane,
            clock.t_plus(t0, one.start),
            clock.t_plus(t0, one.end) if one.end else "",
            text(one.says),
        )
        for one in found.spans
    )
    yield from table(("Lane", "From", "To", "What"), rows)
    yield ""


def _story(found: Review) -> Iterator[str]:
    yield "## Timeline"
    yield ""
    for one in found.story:
        who = f"{text(one.who)} " if one.who else ""
        yield f"- {one.t_plus} {one.mark} {who}{text(one.says)}"
    yield ""


def _record(found: Review) -> Iterator[str]:
    kept = found.record
    yield "## Record"
    yield ""
    yield f"{kept.events} events. Hash of the last: {code(kept.head) or 'none'}."
    if kept.broken:
        yield from (f"- **broken**: {text(one)}" for one in kept.broken)
    else:
        yield "The chain of hashes is whole."
    size = f"{kept.stored / 1e6:.1f} MB compressed"
    yield f"{kept.readings} readings, {kept.outputs} raw outputs ({size})."
