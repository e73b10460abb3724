"""Reads for files that people brought: the panel of an incident, and the file that a reading is of."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils import timezone

from incidents.models import Incident, Reading, Upload, UploadedFile
from probes.core import SEVERITIES

MOST = 200  # readings and unread files that are listed


@dataclass(frozen=True, slots=True)
class FileView:
    """One reading of a file. `level` is that of its worst finding."""

    file: str
    node: str
    probe: str
    level: str
    says: str
    reading: int


@dataclass(frozen=True, slots=True)
class UploadView:
    """One upload. `state` is waiting, reading, read, failed or lost."""

    upload: Upload
    state: str
    name: str

    @property
    def busy(self) -> bool:
        return self.state in ("waiting", "reading")


@dataclass(frozen=True, slots=True)
class Panel:
    """`unread`: pairs of file and why, of the latest read. `more`, `more_unread`: how many are not listed."""

    uploads: list[UploadView]
    files: list[FileView]
    unread: list[tuple[str, str]]
    more: int
    more_unread: int
    nothing: bool


def panel(incident: Incident) -> Panel:
    """What was brought and what it told. Four queries."""
    uploads = list(incident.uploads.exclude(complete_at=None).select_related("by", "run"))
    if not uploads:
        return Panel([], [], [], 0, 0, False)
    read = next((one for one in uploads if one.read_at is not None), None)
    rows = Reading.objects.filter(run=read.run_id).defer("facts", "out", "err") if read is not None else []
    files = sorted((_view(row) for row in rows), key=lambda one: (-_RANK[one.level], one.file))
    unread = [(str(file), str(why)) for file, why in read.unread] if read is not None else []
    return Panel(
        uploads=[_upload(one) for one in uploads],
        files=files[:MOST],
        unread=unread[:MOST],
        more=max(0, len(files) - MOST),
        more_unread=max(0, len(unread) - MOST),
        nothing=read is not None and not files,
    )


_RANK = {"ok": 0, "unknown": 1, "warn": 2, "bad": 3}


def _view(row: Reading) -> FileView:
    worst = max(row.findings, key=lambda one: SEVERITIES.index(one["severity"]), default=None)
    if row.outcome != "ok":
        return FileView(row.file, row.said_node, row.probe, "unknown", f"{row.outcome}: {row.why}"[:300], row.pk)
    if worst is None or worst["severity"] == "info":
        return FileView(row.file, row.said_node, row.probe, "ok", "read", row.pk)
    return FileView(row.file, row.said_node, row.probe, worst["severity"], worst["says"][:300], row.pk)


def _upload(one: Upload) -> UploadView:
    first = one.files.first()
    name = first.name.partition("/")[0] if first is not None else ""
    if one.file_count > 1 and first is not None and "/" not in first.name:
        name = f"{name} and {one.file_count - 1} more"
    return UploadView(one, _state(one), name)


def _state(one: Upload) -> str:
    if one.problem:
        return "failed"
    if one.read_at is not None:
        return "read"
    if one.run is None or one.run.finished_at is not None:
        return "lost"
    held = one.run.shards.filter(lease_until__gte=timezone.now()).exists()
    return "reading" if held else "waiting"


def brought_file(reading: Reading) -> UploadedFile | None:
    """The file that a reading is of, or the archive that holds it; None for a reading of a node."""
    if not reading.file or not reading.sha256:
        return None
    incident = reading.run.incident_id
    return UploadedFile.objects.filter(upload__incident=incident, sha256=reading.sha256).order_by("pk").first()
