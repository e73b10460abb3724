"""Timeline events as sentences for people. One function per kind; a kind without one is shown by its name."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from incidents import clock
from incidents.models import Event, Incident
from incidents.queries.diagnosis import share_said
from incidents.queries.timeline import HIDDEN
from probes.core import clean
from probes.remedies import shown

LONGEST = 4000  # characters of one event's payload on a page


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the timeline. `who` is "" when the product did it by itself; `says` is cleaned for people."""

    seq: int
    at: datetime
    t_plus: str
    mark: str
    level: str
    who: str
    says: str


def lines(incident: Incident, limit: int = 40) -> list[Line]:
    """The latest events that people see, the newest first."""
    shown = incident.events.exclude(kind__in=HIDDEN).select_related("actor").order_by("-seq")[:limit]
    return [line(incident, event) for event in shown]


def line(incident: Incident, event: Event) -> Line:
    """An event as one line."""
    mark, level, says = KINDS.get(event.kind, _unknown)(event.payload, event.kind)
    who = event.actor.get_username() if event.actor else ""
    return Line(event.seq, event.at, clock.t_plus(incident.t0, event.at), mark, level, who, clean(says))


@dataclass(frozen=True, slots=True)
class Entry:
    """One event with all that was recorded. `payload` is JSON, cleaned for people and cut at its cap."""

    line: Line
    kind: str
    payload: str
    hash: str


def entry(incident: Incident, event: Event) -> Entry:
    """An event as the page of the whole timeline shows it."""
    payload = clean(json.dumps(event.payload, indent=1, ensure_ascii=False, sort_keys=True))
    cut = payload[:LONGEST] + f"\n... {len(payload) - LONGEST} more characters" if len(payload) > LONGEST else payload
    return Entry(line(incident, event), event.kind, cut, event.hash)


Sentence = tuple[str, str, str]


def _unknown(said: dict[str, Any], kind: str) -> Sentence:
    return "▸", "", kind.replace("_", " ")


def _declared(said: dict[str, Any], kind: str) -> Sentence:
    scope = " on ".join(one for one in (f"job {said['job']}" if said.get("job") else "", said.get("nodes", "")) if one)
    alert = said.get("alert")
    by = f"{alert.get('source', 'an alert')}: {alert.get('says', '')}. Opened as" if alert else "declared"
    if said.get("from_files"):
        return "▸", "", "opened it to judge files; no node is asked for it"
    if said.get("drill"):
        return (
            "◇",
            "drill",
            f"started the drill {said['drill']}, a replayed recording, as SEV{said.get('severity', '?')}: {scope}",
        )
    return "◆", "bad", f"{by} SEV{said.get('severity', '?')}: {scope}"


def _scoped(said: dict[str, Any], kind: str) -> Sentence:
    job = f"job {said['job']} " if said.get("job") else ""
    how = {
        "named": f"found {job}on {said['nodes']}",
        "only": f"only one job runs here, {said.get('called')}: taken for {job or 'it '}on {said['nodes']}",
    }
    return "▸", "", how.get(said.get("how", ""), f"gave its nodes: {said['nodes']}")


def _scope_wanted(said: dict[str, Any], kind: str) -> Sentence:
    seen = f"{len(said['jobs'])} other jobs" if len(said["jobs"]) > 1 else "no job"
    return "▲", "warn", f"no rank of job {said['job']} on {said['answered']} of {_nodes(said['nodes'])}, {seen} seen"


def _suite_started(said: dict[str, Any], kind: str) -> Sentence:
    return "▸", "", f"{said['suite']} suite started on {_nodes(said['nodes'])}"


def _suite_ended(said: dict[str, Any], kind: str) -> Sentence:
    answered = f"{said['answered']} of {_nodes(said['nodes'])} answered"
    if said["answered"] == said["nodes"]:
        return "✓", "ok", f"{said['suite']} complete: {answered}"
    return "○", "unk", f"{said['suite']} ended: {answered}"


def _phase(said: dict[str, Any], kind: str) -> Sentence:
    return "▸", "", f"moved to {clock.TITLES[said['to']]}: “{said['word']}”"


def _overdue(said: dict[str, Any], kind: str) -> Sentence:
    return "▲", "bad", f"{clock.TITLES[said['phase']]} is over its time"


def _command(said: dict[str, Any], kind: str) -> Sentence:
    before = f", after {said['before']}" if said.get("before") else ""
    return "▸", "", f"took command{before}"


def _note(said: dict[str, Any], kind: str) -> Sentence:
    return "✎", "", f"“{said['text']}”"


def _readings(said: dict[str, Any], kind: str) -> Sentence:
    count = len(said["readings"])
    return "·", "", f"{count} reading{'' if count == 1 else 's'} stored, {_nodes(len(said['ended']))} ended"


def _alert(said: dict[str, Any], kind: str) -> Sentence:
    return "▲", "warn", f"{said.get('source', 'alert')}: {said.get('says', 'an alert')}"


def _verdict(said: dict[str, Any], kind: str) -> Sentence:
    mark, level = {"none": ("✓", "ok"), "unknown": ("○", "unk")}.get(said["cause"], ("◆", "bad"))
    begins = {"another": "Verdict changed", "surer": "Verdict surer", "less sure": "Verdict less sure"}
    what = f"{begins.get(said.get('change', ''), 'Verdict')}: {said['says']}"
    return mark, level, what if said["cause"] == "unknown" else f"{what} ({share_said(said['probability'])})"


def _decision(said: dict[str, Any], kind: str) -> Sentence:
    why = f" Why: “{said['why']}”" if said.get("why") else ""
    if "runbook" in said:
        return "●", "", f"decided “{said['chosen']}”. Asked: {said['question']}{why}"
    if said["chosen"] == "accept":
        return "▸", "ok", f"accepted the verdict “{said['says']}”.{why}"
    return "▸", "", f"says that it is not this: “{said['says']}”.{why}"


def _runbook_started(said: dict[str, Any], kind: str) -> Sentence:
    return "▸", "", f"started the runbook “{said['title']}”: {said['about']}"


def _runbook_left(said: dict[str, Any], kind: str) -> Sentence:
    return "▸", "", f"left the runbook “{said['title']}”: “{said['why']}”"


def _action(said: dict[str, Any], kind: str) -> Sentence:
    command = f"“{shown(said['argv'])}” on {said['node']}"
    second = " A second person has to approve it." if said.get("state") == "waiting" else ""
    sentences = {
        "action_asked": ("▸", "", f"asked for {command}.{second}"),
        "action_approved": ("▸", "ok", f"approved {command}"),
        "action_declined": ("▸", "", f"declined {command}: nothing was done"),
        "action_begun": ("▸", "", f"{command} begins"),
    }
    marks = {"done": ("✓", "ok"), "failed": ("◆", "bad"), "expired": ("▲", "warn")}
    return sentences.get(kind, (*marks.get(said["state"], ("○", "unk")), said["says"]))


def _training(said: dict[str, Any], kind: str) -> Sentence:
    mark, level = {"advances": ("✓", "ok"), "stands": ("◆", "bad")}.get(said["state"], ("○", "unk"))
    return mark, level, said["says"]


def _resolved(said: dict[str, Any], kind: str) -> Sentence:
    why = f" Why: “{said['why']}”" if said.get("why") else ""
    return "✓", "ok", f"closed the incident: {said['how']}.{why}"


def _drill_stage(said: dict[str, Any], kind: str) -> Sentence:
    return "◇", "drill", f"the recording goes on: {said['says']}"


def _topology(said: dict[str, Any], kind: str) -> Sentence:
    left = said.get("not_up_count", 0)
    how = {"leave out": "left out", "expect": "to be up"}.get(said.get("how", ""), "")
    odd = f"; {left} not up now: {how}" if left else ""
    return "▸", "", f"said that the fabric is as it should be: {said['ports']} ports of {said['nodes']} expected{odd}"


def _files(number: int) -> str:
    return f"{number} file{'' if number == 1 else 's'}"


def _files_added(said: dict[str, Any], kind: str) -> Sentence:
    size = f"{said['size'] / 1_048_576:.1f} MiB" if said["size"] >= 104_858 else f"{said['size']} bytes"
    return "▸", "", f"brought {_files(said['files'])} ({said['name']}, {size}), which are read now"


def _files_read(said: dict[str, Any], kind: str) -> Sentence:
    unread = f"; {_files(said['unread'])} told nothing" if said["unread"] else ""
    if not said["readings"]:
        return "▲", "warn", f"nothing in the files could be read{unread}"
    return "✓", "ok", f"the files are read: {said['readings']} readings of {_files(said['files'])}{unread}"


def _files_failed(said: dict[str, Any], kind: str) -> Sentence:
    return "▲", "warn", f"the files could not be read: {said['problem']}"


def _nodes(number: int) -> str:
    return f"{number} node{'' if number == 1 else 's'}"


KINDS: dict[str, Callable[[dict[str, Any], str], Sentence]] = {
    "declared": _declared,
    "scoped": _scoped,
    "scope_wanted": _scope_wanted,
    "suite_started": _suite_started,
    "suite_ended": _suite_ended,
    "phase": _phase,
    "overdue": _overdue,
    "command": _command,
    "alert": _alert,
    "verdict": _verdict,
    "decision": _decision,
    "runbook_started": _runbook_started,
    "runbook_left": _runbook_left,
    "action_asked": _action,
    "action_approved": _action,
    "action_declined": _action,
    "action_begun": _action,
    "action_ended": _action,
    "training": _training,
    "topology": _topology,
    "note": _note,
    "readings": _readings,
    "resolved": _resolved,
    "drill_stage": _drill_stage,
    "files_added": _files_added,
    "files_read": _files_read,
    "files_failed": _files_failed,
}
