"""The evidence of an incident as one zip: captures as probes.transport.replay keeps them, and what was said about them.

<node>/<probe>.out and <node>/captures.json are what the last ranking rests on, silent nodes too. golden15/ tells about
the incident. The same record gives the same bytes: names are sorted, times are those of no clock.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Iterator
from itertools import groupby
from typing import IO, Any

from incidents import fabric
from incidents.models import Incident, Ranking, Reading, UploadedFile
from incidents.queries.review import Review, review
from incidents.queries.review.markdown import markdown
from probes.core import ABOUT, Capture
from probes.transport import replay

EPOCH = (1980, 1, 1, 0, 0, 0)  # the first that a zip can hold
EVERYTHING = 1 << 62  # without a ranking: up to the last reading there is
README = """{name}: what the nodes said, one folder per node, and in golden15/ what people said, decided and brought.
The verdict again, from these files alone: python -m probes explain {file}
Raw outputs are as the nodes gave them, tokens and passwords in variables masked; look through them before you share.
"""


def file_name(incident: Incident) -> str:
    """What the file is called."""
    return f"INC-{incident.pk}-evidence.zip"


def write(incident: Incident, into: IO[bytes]) -> None:
    """The zip into a file that can seek. One reading's output is in memory at a time.

    What was expected of the fabric is told as the last ranking was judged by it, whatever was learned since.
    """
    ranking = incident.rankings.first()
    with zipfile.ZipFile(into, "w") as archive:
        nodes = set(incident.nodes.values_list("name", flat=True))
        for node, captures in groupby(_captures(incident, ranking), key=lambda one: one.node):
            nodes.discard(node)
            _node(archive, node, captures)
        for node in sorted(nodes):  # asked, and nothing came of it yet
            _node(archive, node, iter(()))
        for name, text in _about(incident, ranking):
            _add(archive, f"{ABOUT}/{name}", text.encode())
        _brought(archive, incident)


def _brought(archive: zipfile.ZipFile, incident: Incident) -> None:
    """The files that people brought, one piece of one in memory at a time. A path that is taken gets its number."""
    taken: set[str] = set()
    rows = UploadedFile.objects.filter(upload__incident=incident, upload__complete_at__isnull=False)
    for row in rows.order_by("upload", "number"):
        name = row.name if row.name not in taken else f"upload {row.upload_id}/{row.name}"
        taken.add(name)
        with archive.open(_member(f"{ABOUT}/files/{name}"), "w") as member:
            for part in row.parts.order_by("number").iterator(chunk_size=4):
                member.write(zlib.decompress(part.data))


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    archive.writestr(_member(name), content)


def _member(name: str) -> zipfile.ZipInfo:
    about = zipfile.ZipInfo(name, EPOCH)
    about.compress_type, about.create_system, about.external_attr = zipfile.ZIP_DEFLATED, 3, 0o644 << 16
    return about


def _node(archive: zipfile.ZipFile, node: str, captures: Iterator[Capture]) -> None:
    folder, meta = replay.folder_of(node), {}
    for capture in captures:
        if capture.out:
            _add(archive, f"{folder}/{capture.probe}.out", capture.out)
        meta[capture.probe] = replay.told(capture)
    _add(archive, f"{folder}/captures.json", replay.as_text(meta).encode())


def _captures(incident: Incident, ranking: Ranking | None) -> Iterator[Capture]:
    until = ranking.readings if ranking is not None else EVERYTHING
    rows = Reading.objects.all().evidence(incident, until).defer(None).defer("facts", "findings")
    for row in rows.select_related("node").order_by("node__name", "probe").iterator(chunk_size=50):
        yield Capture(
            node=row.node_name,
            probe=row.probe,
            outcome=row.outcome,  # type: ignore[arg-type]  # the database holds one of the closed set
            out=zlib.decompress(row.out),
            err=row.err,
            why=row.why,
            reason=row.reason,
            at=row.node_at,
            mono=row.node_mono,
            took_s=row.took_s,
            truncated=row.truncated,
            boot_id=row.boot_id,
            state=row.state,
            wchan=row.wchan,
        )


def _about(incident: Incident, ranking: Ranking | None) -> Iterator[tuple[str, str]]:
    found = review(incident)
    yield "README.txt", README.format(name=found.name, file=file_name(incident))
    expected, _ = fabric.expected_of(ranking.topology if ranking is not None else None)  # not today's: see write
    mine = expected.of(incident.nodes.values_list("name", flat=True)) if expected is not None else None
    if mine is not None and mine.ports:
        yield "expected.json", _json(mine.body())
    yield "decisions.json", _json([_decision(found, at) for at in range(len(found.decisions))])
    yield "incident.json", _json(_incident(found, ranking))
    yield "review.md", markdown(found)
    yield "timeline.json", _json(list(_timeline(incident)))


def _json(value: object) -> str:
    return json.dumps(value, indent=1, sort_keys=True) + "\n"


def _incident(found: Review, ranking: Ranking | None) -> dict[str, Any]:
    incident = found.incident
    verdict = None
    if ranking is not None:
        verdict = {"cause": ranking.cause, "subject": ranking.subject, "probability": ranking.probability}
    return {
        "incident": incident.pk,
        "title": incident.title,
        "severity": incident.severity,
        "fleet": incident.fleet.name,
        "job": incident.job.name if incident.job else None,
        "nodes": found.nodes,
        "drill": incident.drill,
        "t0": incident.t0.isoformat(),
        "impact_at": incident.impact_at.isoformat() if incident.impact_at else None,
        "closed_at": incident.closed_at.isoformat() if incident.closed_at else None,
        "resolution": incident.resolution,
        "resolved_by": str(incident.resolved_by) if incident.resolved_by else None,
        "verdict": verdict,
        "accepted": found.cause.says if found.cause else None,
        "facts": {one.name: {"value": one.value, "how": one.how} for one in found.facts},
        "head": incident.head,
    }


def _decision(found: Review, at: int) -> dict[str, Any]:
    one = found.decisions[at]
    return {
        "at": one.moment.isoformat(),
        "t_plus": one.at,
        "by": one.who,
        "role": one.role,
        "question": one.question,
        "about": one.about,
        "chosen": one.chosen,
        "why": one.why,
        "over": one.over,
        "known_then": one.known,
        "superseded_at": one.superseded,
        "event": one.seq,
        "readings": [{"name": ref.name, "sha256": ref.sha256} for ref in one.readings],
        "actions": [{"argv": a.argv, "node": a.node, "state": a.state, "says": a.says} for a in one.outcomes],
    }


def _timeline(incident: Incident) -> Iterator[dict[str, Any]]:
    """All events with their hashes, and what those are made of: see incidents.models.Event.digest."""
    events = incident.events.filter(seq__lte=incident.last_seq).select_related("actor").order_by("seq")
    for event in events.iterator(chunk_size=500):
        yield {
            "seq": event.seq,
            "kind": event.kind,
            "at": event.at.isoformat(),
            "actor": event.actor_id,
            "who": event.actor.get_username() if event.actor else "",
            "payload": event.payload,
            "prev_hash": event.prev_hash,
            "hash": event.hash,
        }
