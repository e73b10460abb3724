"""Asking more by itself: the suspects closer, and everybody a second time.

The capture sends little to many nodes. Once somebody is suspected, py-spy is sent to those few nodes where it is
missing, or where samples tell more than one look: a rank that works is late for something. A second look at all ranks decides between slow and standing. How the machines are set up, which lasts longer
than the evidence of ranks, is asked once the capture is over, and compared along the job.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from incidents.models import Incident, Node, Ranking, Reading
from incidents.services.fleet import Refused
from incidents.services.runs import start_told

CAPTURE, HANG, SUSPECTS, TRIAGE = "capture", "hang", "suspects", "triage"
MOST_SUSPECTS = 4  # nodes that are sent megabytes
LIKELY = 0.1  # hypotheses below this share are not worth it; judgement
SECOND_AFTER = timedelta(seconds=10)
# What a rank does while others wait: samples of three seconds show it, one stack may not.
WORKS = frozenset(("fw.rank_busy", "fw.rank_straggler", "fw.checkpoint_stall", "fw.rank_missing_collective",
    "cpu.gil_contention", "cpu.dataloader_starved"))  # fmt: skip


@transaction.atomic
def look_closer(incident: Incident, ranking: Ranking) -> int:
    """Ask the suspects' nodes again, with py-spy sent along, where stacks are missing or samples would tell more. Once
    per node; returns nodes."""
    incident = Incident.objects.select_for_update(of=("self",)).get(pk=incident.pk)
    likely = [
        one
        for one in ranking.body["hypotheses"]
        if one["probability"] >= LIKELY and "rank" in one["subject"] and one["subject"].get("node")
    ]
    names = [one["subject"]["node"] for one in likely]
    working = {one["subject"]["node"] for one in likely if one["cause"] in WORKS and not incident.fleet.replay}
    nodes = sorted(incident.nodes.filter(name__in=names), key=lambda node: names.index(node.name))
    asked = set(incident.runs.filter(suite=SUSPECTS).values_list("shards__nodes", flat=True))
    left = max(0, MOST_SUSPECTS - len(asked))
    wanted = [
        node for node in nodes if node.pk not in asked and (node.name in working or _stacks_missing(incident, node))
    ]
    return _ask(incident, SUSPECTS, wanted[:left]) if incident.closed_at is None else 0


def _stacks_missing(incident: Incident, node: Node) -> bool:
    """Whether a rank's process on this node was seen without py-spy's eyes."""
    last = Reading.objects.filter(run__incident=incident, node=node, probe="rank.stack").order_by("-pk").first()
    if last is None or last.facts is None:
        return last is None or last.outcome not in ("absent", "unreachable")
    return any(not process["how"].startswith("py-spy") for process in last.facts["processes"])


def sweep_second_looks() -> int:
    """A second look at the ranks of each open incident, some seconds after its capture has ended. Returns how many."""
    before = timezone.now() - SECOND_AFTER
    ended = Incident.objects.filter(closed_at=None, runs__suite=CAPTURE, runs__finished_at__lt=before)
    once = ended.exclude(runs__suite=HANG).distinct()
    return sum(_look_again(pk) for pk in once.values_list("pk", flat=True)[:64])


@transaction.atomic
def _look_again(incident_id: int) -> int:
    incident = Incident.objects.select_for_update(of=("self",)).get(pk=incident_id)
    if incident.closed_at is not None or incident.runs.filter(suite=HANG).exists():
        return 0
    with_ranks = Reading.objects.filter(run__incident=incident, probe="rank.map", outcome="ok").values("node")
    return 1 if _ask(incident, HANG, list(incident.nodes.filter(pk__in=with_ranks).select_related("fleet"))) else 0


def sweep_set_ups() -> int:
    """How the nodes of each open incident are set up, once its capture has ended. Returns how many are asked."""
    ended = Incident.objects.filter(closed_at=None, runs__suite=CAPTURE, runs__finished_at__isnull=False)
    once = ended.filter(fleet__replay=False).exclude(runs__suite=TRIAGE).distinct()
    return sum(_set_up(pk) for pk in once.values_list("pk", flat=True)[:64])


@transaction.atomic
def _set_up(incident_id: int) -> int:
    incident = Incident.objects.select_for_update(of=("self",)).get(pk=incident_id)
    if incident.closed_at is not None or incident.runs.filter(suite=TRIAGE).exists():
        return 0
    answering = Reading.objects.filter(run__incident=incident, run__suite=CAPTURE, outcome="ok").values("node")
    return 1 if _ask(incident, TRIAGE, list(incident.nodes.filter(pk__in=answering).select_related("fleet"))) else 0


def _ask(incident: Incident, suite: str, nodes: Sequence[Node]) -> int:
    if not nodes:
        return 0
    try:
        start_told(incident, suite, nodes, None)
    except Refused:
        return 0
    return len(nodes)
