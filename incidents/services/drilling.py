"""Drills: an incident whose nodes exist only in a recording, which answers in their place."""

from __future__ import annotations

import secrets
from datetime import timedelta
from pathlib import Path

from django.conf import settings
from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from incidents.models import Fleet, Incident, User
from incidents.services import topology
from incidents.services.fleet import Refused
from incidents.services.response import in_fleet, open_incident, save_job
from incidents.services.timeline import tell
from probes import drills
from probes.transport import bundles
from probes.transport.replay import BundleError
from probes.transport.targets import Target

FLEET = "drills"
MOST_NODES = 4096


def is_replay(incident: Incident) -> bool:
    """Whether this incident's nodes exist only in a recording: nothing may be asked of real ones for it."""
    return bool(incident.recording) or incident.fleet.replay


def start_drill(what: str | Path, by: User | None) -> Incident:
    """Begin a drill: one that Golden15 brings by its name, or a recording by its Path (a folder, or an evidence bundle
    as a zip, which is unpacked into the data folder first). T0 is now, and the capture starts by itself.

    Raises Refused with what is wrong and what there is.
    """
    try:
        return _begin(drills.named(what) if isinstance(what, str) else drills.load(_folder(what)), by)
    except (drills.DrillError, BundleError) as error:
        raise Refused(f"{error}") from error
    except OSError as error:
        raise Refused(f"{what} cannot be read: {error.strerror or error}") from error


def _folder(path: Path) -> Path:
    """The folder of a recording that a person gives."""
    if path.is_dir():
        bundles.check(path.resolve())
        return path.resolve()
    name = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "_" for c in path.stem)[:60] or "bundle"
    into: Path = settings.DATA_DIR / "recordings" / f"{name}-{secrets.token_hex(4)}"
    return bundles.unpack(path, into)


@transaction.atomic
def _begin(drill: drills.Drill, by: User | None) -> Incident:
    if len(drill.nodes) > MOST_NODES:
        raise Refused(f"{drill.name} holds {len(drill.nodes)} nodes; a drill has at most {MOST_NODES}.")
    fleet = _fleet()
    nodes = in_fleet(fleet, [Target(name) for name in drill.nodes], by)
    topology.adopt(fleet, drill.nodes, drill.expected, "the recordings of drills")
    job = save_job(fleet, drill.what, nodes) if drill.what else None
    stood = timezone.now() - timedelta(seconds=drill.stood_s) if drill.stood_s else None
    return open_incident(
        fleet,
        job,
        nodes,
        by,
        drill.severity,
        drill.title,
        impact_at=stood,
        drill=drill.name[:100],
        recording=str(drill.folder),
        what=drill.what or drill.name,
    )


def _fleet() -> Fleet:
    """The fleet of recordings, made with the first drill."""
    fleet, _ = Fleet.objects.get_or_create(name=FLEET, defaults={"replay": True})
    if not fleet.replay:
        raise Refused(f"There is a fleet {FLEET} of real nodes, so drills have no place. Give that fleet another name.")
    return fleet


@transaction.atomic
def passed(incident: Incident, what: str) -> bool:
    """Something was done in this incident: the id of a remedy that ran, or `runbook.option` that was chosen. Where the
    recording has a part for what comes after it, that part answers from now on; returns whether it does."""
    if not incident.recording:
        return False
    row = Incident.objects.select_for_update(of=("self",)).get(pk=incident.pk)
    stage = next((one for one in _stages(row) if one.after == what), None)
    if stage is None or stage.name == row.stage or row.closed_at is not None:
        return False
    row.stage = incident.stage = stage.name
    row.save(update_fields=["stage"])
    last = row.runs.aggregate(last=Max("pk"))["last"] or 0
    tell(incident, "drill_stage", None, stage=stage.name, after=what, says=stage.says, run=last)
    return True


def _stages(incident: Incident) -> tuple[drills.Stage, ...]:
    """The later parts of the incident's recording; none where it cannot be read any more."""
    try:
        return drills.load(Path(incident.recording)).stages
    except (drills.DrillError, OSError):
        return ()
