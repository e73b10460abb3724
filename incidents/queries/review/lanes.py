"""What happened when, by lane: the same spans feed the figure, its table and the Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from incidents import clock
from incidents.lanes import Span
from incidents.models import Event
from incidents.models.diagnosis import UNNAMED, same
from incidents.models.runs import FILES
from incidents.queries.diagnosis import share_said
from incidents.queries.lines import line
from incidents.queries.review.kept import Judged, Kept

ACTIONS = ("action_asked", "action_approved", "action_declined")
PEOPLE = {"note", "decision", "command", "phase", "scoped", "resolved", *ACTIONS}
SURE = 0.5  # from this share on a cause is shown as implicated


def spans(kept: Kept) -> list[Span]:
    """Of all lanes, lane by lane, each in the order of time."""
    lanes = (_phases(kept), _rule(kept), _probes(kept), _verdicts(kept), _people(kept), _job(kept))
    return [span for lane in lanes for span in lane]


def _phases(kept: Kept) -> Iterator[Span]:
    for phase in kept.phases:
        if phase.started_at is None:
            continue
        until = phase.ended_at or kept.as_of
        title, took, late = clock.TITLES[phase.name], clock.span(phase.started_at, until), until > phase.due_at
        words = [took, "over its time" if late else "in time", "" if phase.ended_at else "not ended"]
        says = f"{title}: {', '.join(filter(None, words))}"
        mark = " ▲ late" if late else ""
        yield Span("Phase", phase.started_at, until, f"{title} {took}{mark}", says, "warn" if late else "now")


def _rule(kept: Kept) -> Iterator[Span]:
    since = kept.incident.t0
    for phase in kept.phases:
        due = f"due {clock.t_plus(kept.incident.t0, phase.due_at)}"
        yield Span("Clock rule", since, phase.due_at, due, f"{clock.TITLES[phase.name]} {due}", "plain")
        since = phase.due_at


def _probes(kept: Kept) -> Iterator[Span]:
    for run in (one for one in kept.runs if one.suite != FILES):
        nodes = f"{run.node_count} node{'' if run.node_count == 1 else 's'}"
        ended = kept.first("suite_ended", run=run.pk)
        answered = f"{ended.payload['answered']} of {nodes} answered" if ended else f"{nodes} asked"
        until = run.finished_at or max(kept.as_of, run.started_at)
        over = "" if run.finished_at else ", not ended"
        whole = ended is not None and ended.payload["answered"] == run.node_count
        level = "ok" if whole else "unknown"
        says = f"{run.suite}: {answered}{over}"
        yield Span("Probes", run.started_at, until, f"{run.suite} · {nodes}", says, level, ended.seq if ended else None)


def _verdicts(kept: Kept) -> Iterator[Span]:
    """Rankings that say the same one after the other are one span, with the shares at its begin and end."""
    groups: list[list[Judged]] = []
    for one in kept.judged:
        if groups and same(groups[-1][-1].about, one.about):
            groups[-1].append(one)
        else:
            groups.append([one])
    ends = [*(group[0].at for group in groups[1:]), kept.as_of]
    for group, until in zip(groups, ends, strict=False):  # without a ranking there is an end and no group
        first, last = group[0], group[-1]
        share, begin = share_said(last.probability), share_said(first.probability)
        told = kept.first("verdict", ranking=first.pk)
        label = last.says if last.cause == "unknown" else f"{share} {last.says}"
        grew = f" ({share})" if share == begin else f" ({begin}, at the end {share})"
        says = last.says if last.cause == "unknown" else f"{last.says}{grew}"
        seq = told.seq if told else None
        yield Span("Verdict", first.at, max(first.at, until), label, says, _level(last), seq)


def _level(one: Judged) -> str:
    unnamed = {"none": "ok", "unknown": "unknown"}
    return unnamed[one.cause] if one.cause in UNNAMED else "bad" if one.probability >= SURE else "warn"


def _people(kept: Kept) -> Iterator[Span]:
    for event in kept.events:
        if event.kind in PEOPLE and event.actor is not None:
            told = line(kept.incident, event)
            yield Span("People", event.at, None, _short(event), f"{told.who} {told.says}", "now", event.seq)


def _short(event: Event) -> str:
    said = event.payload
    if event.kind == "phase":
        return f"→ {clock.TITLES.get(said.get('to', ''), 'next phase')}"
    words = {
        "decision": str(said.get("chosen", "decision")),
        "command": "takes command",
        "resolved": "closes",
        "scoped": "gives nodes",
        "action_asked": f"asks {said.get('remedy', '')}",
        "action_approved": "approves",
        "action_declined": "declines",
    }
    return words.get(event.kind, event.kind)


# Job ----------------------------------------------------------------------------------------------------------

STATES = {  # of a `training` event: what the lane says, its level
    "advances": ("advancing", "ok"),
    "stands": ("standing", "bad"),
    "not known": ("not known whether it advances", "unknown"),
}


def _job(kept: Kept) -> Iterator[Span]:
    """Standing from the impact on, where an alert told one; then what training and actions say, as they say it."""
    changes = [_before(kept), *_changes(kept)]
    merged: list[tuple[datetime, str, str, str, int | None]] = []
    for change in changes:
        if not merged or merged[-1][1] != change[1]:
            merged.append(change)
    ends = [change[0] for change in merged[1:]] + [kept.as_of]
    for (at, label, says, level, seq), until in zip(merged, ends, strict=True):
        if until - at >= timedelta(0):
            yield Span("Job", at, until, label, says, level, seq)


def _before(kept: Kept) -> tuple[datetime, str, str, str, int | None]:
    incident = kept.incident
    declared = kept.first("declared")
    seq = declared.seq if declared else None
    if incident.impact_at is not None:
        ago = clock.span(incident.impact_at, incident.t0)
        who = "recording" if incident.drill else "alert"
        return incident.impact_at, "standing", f"standing since {ago} before T0, as the {who} says", "bad", seq
    return incident.t0, "not known whether it advances", "not known: no reading, and no alert told it", "unknown", seq


def _changes(kept: Kept) -> Iterator[tuple[datetime, str, str, str, int | None]]:
    for event in kept.events:
        if event.kind == "training":
            label, level = STATES.get(event.payload.get("state", ""), STATES["not known"])
            yield event.at, label, str(event.payload.get("says") or label), level, event.seq
        elif event.kind == "action_begun":
            what = f"{event.payload.get('remedy', 'an action')} on {event.payload.get('node', 'a node')}"
            yield event.at, f"after {what}", f"after {what}, not verified yet", "warn", event.seq
