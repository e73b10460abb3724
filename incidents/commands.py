"""The command of a runbook's option, with its parameters filled in from what was read of the node.

What is shown before a choice and what is run after it come from here, so that they cannot differ unseen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from incidents.models import Incident, Node, Reading
from incidents.runbook import Option
from probes import remedies
from probes.remedies import BadParameter, Remedy


@dataclass(frozen=True, slots=True)
class Command:
    """A remedy with its parameters filled in: what is shown and what will run. `why` says why it cannot be."""

    remedy: Remedy
    node: Node | None = None
    argv: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()
    guard: Mapping[str, int] | None = None
    why: str = ""


def command_of(incident: Incident, subject: Mapping[str, Any], option: Option) -> Command | None:
    """The command of an option as it would run now; None where it has none."""
    if not option.remedy:
        return None
    remedy = remedies.load()[option.remedy]
    if lacking := [key for key in remedy.subject if key not in subject]:
        return Command(remedy, why=f"The verdict does not say which {' and '.join(lacking)} it is: nothing can be run.")
    node = incident.nodes.select_related("fleet").filter(name=subject["node"]).first()
    if node is None:
        return Command(remedy, why=f"{subject['node']} is none of this incident's nodes: nothing can be run on it.")
    values, guard = _process(incident, node, subject)
    if values is None:
        where = f"rank {subject.get('rank')} on {node}"
        return Command(remedy, why=f"It is not known which process {where} is. Ask the node for rank.map, then reload.")
    try:
        return Command(remedy, node, tuple(remedy.command(values)), tuple(remedy.undoing(values)), guard)
    except BadParameter as error:
        return Command(remedy, why=f"The command cannot be made: {error}.")


def _process(
    incident: Incident, node: Node, subject: Mapping[str, Any]
) -> tuple[dict[str, object] | None, dict[str, int] | None]:
    """The rank's process as the latest map of the node has it, and what tells it from a later one of its number."""
    rows = Reading.objects.filter(run__incident=incident, node=node, probe="rank.map").best()
    found = next((row for row in rows if row.facts), None)
    rows_of = (found.facts or {}).get("ranks", []) if found is not None else []
    ranks = [one for one in rows_of if one["rank"] == subject.get("rank")]
    if "pid" in subject:
        ranks = [one for one in ranks if one["pid"] == subject["pid"]]
    if len(ranks) != 1:
        return None, None
    return {"pid": ranks[0]["pid"]}, {"pid": ranks[0]["pid"], "started": ranks[0]["started"]}
