"""Files that people bring: kept as they came, read by a worker, judged with everything else that is known."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from pathlib import PurePosixPath
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Sum
from django.utils import timezone

from incidents.models import Fleet, Incident, Reading, Shard, SuiteRun, Upload, UploadedFile, UploadedPart, User
from incidents.models.runs import FILES
from incidents.services.diagnosing import ring_on_commit
from incidents.services.fleet import RECORDED, Refused
from incidents.services.recording import plain, text
from incidents.services.response import open_incident
from incidents.services.runs import Claim, hold, ring_workers
from incidents.services.timeline import tell
from probes.core import clean

PART = 1_048_576  # bytes of one piece
FORGOTTEN = timedelta(hours=1)  # an upload that was not completed by then never will be
MOST_TOLD = 1000  # files that were not read, of one upload
DEEP, LONG = 32, 200  # folders of a path, characters of each


@dataclass(frozen=True, slots=True)
class Brought:
    """One file as it comes: its path as the browser tells it, and its bytes. `modified`: seconds since the epoch."""

    name: str
    chunks: Iterable[bytes]
    modified: float | None = None


def size_said(size: int) -> str:
    """A limit in words."""
    return f"{size >> 30} GiB" if size >= 1 << 30 and not size % (1 << 30) else f"{max(1, size >> 20)} MiB"


def judge_files(fleet: Fleet, files: Sequence[Brought], by: User, title: str = "", severity: int = 3) -> Incident:
    """Open an incident of which these files are the evidence. Nobody is asked for it. Raises Refused."""
    if fleet.replay:
        raise Refused(RECORDED, "files")
    return _take(fleet, None, files, by, title, severity)


def add_files(incident: Incident, files: Sequence[Brought], by: User) -> Incident:
    """Add files to what is known of an incident. Raises Refused."""
    if incident.closed_at is not None:
        raise Refused(f"INC-{incident.pk} is closed.")
    there = incident.uploads.exclude(complete_at=None).aggregate(size=Sum("size"))["size"] or 0
    if there >= settings.UPLOAD_INCIDENT_BYTES:
        most = size_said(settings.UPLOAD_INCIDENT_BYTES)
        raise Refused(f"INC-{incident.pk} holds {most} of files, which is the most for one incident.", "files")
    return _take(incident.fleet, incident, files, by, "", 3)


def _take(
    fleet: Fleet, incident: Incident | None, files: Sequence[Brought], by: User, title: str, severity: int
) -> Incident:
    """Many short transactions, so that a slow upload holds nobody up; only the last one makes it count."""
    if not files:
        raise Refused("Choose files, a folder or an archive.", "files")
    if len(files) > settings.UPLOAD_FILES:
        raise Refused(too_many(), "files")
    upload = Upload.objects.create(fleet=fleet, by=by, at=timezone.now())
    try:
        kept = _keep(upload, files)
        if not upload.size:
            raise Refused("These files are empty." if len(files) > 1 else "This file is empty.", "files")
        return _complete(upload, incident, kept, by, title, severity)
    except BaseException:
        forget(upload)
        raise


def _keep(upload: Upload, files: Sequence[Brought]) -> list[UploadedFile]:
    """Store the bytes; many small files in one transaction."""
    kept: list[UploadedFile] = []
    small: list[tuple[UploadedFile, bytes]] = []
    for number, one in enumerate(files):
        row = UploadedFile(upload=upload, number=number, name=path_of(one.name), size=0, modified=one.modified)
        parts = _parts(one.chunks)
        first = next(parts, b"")
        if len(first) == PART:
            _keep_large(upload, row, first, parts)
        else:
            row.size, row.sha256 = len(first), hashlib.sha256(first).hexdigest()
            small.append((row, first))
        upload.size += row.size
        if upload.size > settings.UPLOAD_BYTES:
            raise Refused(too_much(), "files")
        if len(small) >= 200 or sum(len(data) for _, data in small) > 8 * PART:
            _keep_small(small)
            small = []
        kept.append(row)
    _keep_small(small)
    return kept


@transaction.atomic
def _keep_small(small: Sequence[tuple[UploadedFile, bytes]]) -> None:
    UploadedFile.objects.bulk_create([row for row, _ in small])
    UploadedPart.objects.bulk_create(
        [UploadedPart(file=row, number=0, data=zlib.compress(data, 1)) for row, data in small if data]
    )


def _keep_large(upload: Upload, row: UploadedFile, first: bytes, rest: Iterator[bytes]) -> None:
    """Piece by piece, each in a transaction of its own."""
    row.save()
    digest = hashlib.sha256()
    for number, part in enumerate(chain([first], rest)):
        digest.update(part)
        row.size += len(part)
        if upload.size + row.size > settings.UPLOAD_BYTES:
            raise Refused(too_much(), "files")
        UploadedPart.objects.create(file=row, number=number, data=zlib.compress(part, 1))
    row.sha256 = digest.hexdigest()
    row.save(update_fields=["size", "sha256"])


def too_much() -> str:
    """What is said of an upload over the limit."""
    return f"More than {size_said(settings.UPLOAD_BYTES)} at once. Pack the files, or bring those of fewer ranks."


def too_many() -> str:
    """What is said of an upload of too many files."""
    return f"More than {settings.UPLOAD_FILES} files at once. Pack them: zip or tar.gz."


def _parts(chunks: Iterable[bytes]) -> Iterator[bytes]:
    left = bytearray()
    for chunk in chunks:
        left += chunk
        while len(left) >= PART:
            yield bytes(left[:PART])
            del left[:PART]
    if left:
        yield bytes(left)


def path_of(name: str) -> str:
    """A path as it is shown and looked at, never opened: relative, on one line, and not too deep."""
    parts = [clean(part).replace("\n", " ").strip()[:LONG] for part in name.replace("\\", "/").split("/")]
    parts = [part for part in parts if part not in ("", ".", "..")]
    return str(PurePosixPath(*parts[-DEEP:]))[:1000] if parts else "file"


@transaction.atomic
def _complete(
    upload: Upload, incident: Incident | None, kept: list[UploadedFile], by: User, title: str, severity: int
) -> Incident:
    """From now on it counts: an event, and a worker is told to read all files of the incident."""
    now = timezone.now()
    what = kept[0].name.partition("/")[0] if len({one.name.partition("/")[0] for one in kept}) == 1 else kept[0].name
    if incident is None:
        called = what if len(kept) == 1 or "/" in kept[0].name else f"{what} and {len(kept) - 1} more"
        incident = open_incident(
            upload.fleet, None, [], by, severity, title.strip() or f"Files: {called}"[:300], from_files=True
        )
    else:
        incident = Incident.objects.select_for_update(of=("self",)).select_related("fleet").get(pk=incident.pk)
        if incident.closed_at is not None:
            raise Refused(f"INC-{incident.pk} is closed.")
    run = SuiteRun.objects.create(
        fleet=incident.fleet, suite=FILES, incident=incident, started_at=now, started_by=by, node_count=0
    )
    shard = Shard.objects.create(run=run, number=0, queued_at=now)
    lines = "".join(f"{one.sha256}  {one.name}\n" for one in kept)
    upload.incident, upload.run, upload.complete_at, upload.file_count = incident, run, now, len(kept)
    upload.sha256 = hashlib.sha256(lines.encode()).hexdigest()
    upload.save()
    said: dict[str, Any] = {"name": what[:200], "files": len(kept), "size": upload.size, "sha256": upload.sha256}
    tell(incident, "files_added", by, upload=upload.pk, run=run.pk, **said)
    ring_workers([shard.pk])
    return incident


def forget(upload: Upload) -> None:
    """Remove an upload that does not count. Raises nothing that hides why."""
    Upload.objects.filter(pk=upload.pk, complete_at=None).delete()


def contents(file: UploadedFile, most: int | None = None) -> Iterator[bytes]:
    """The bytes of a file, piece by piece."""
    for part in file.parts.order_by("number").iterator(chunk_size=4):
        data = zlib.decompress(part.data)
        yield data if most is None else data[:most]
        if most is not None:
            most -= len(data)
            if most <= 0:
                return


@transaction.atomic
def record_files(
    held: Claim, rows: Sequence[Reading], unread: Sequence[tuple[str, str]], asked: Sequence[str], expected: Any
) -> None:
    """Store what the files told, as one batch with one event. Raises LeaseLost."""
    hold(held)
    incident = Incident.objects.select_for_update(of=("self",)).get(runs=held.run_id)
    upload = Upload.objects.get(run=held.run_id)
    if upload.read_at is not None:
        return
    Reading.objects.bulk_create(rows, batch_size=200)
    upload.read_at = timezone.now()
    upload.unread = [[clean(file)[:400], clean(why)[:300]] for file, why in unread[:MOST_TOLD]]
    upload.asked, upload.expected = [clean(node)[:253] for node in asked[:4096]], expected
    upload.save(update_fields=["read_at", "unread", "asked", "expected"])
    content = "".join(sorted(f"{row.file} {row.probe} {row.outcome} {row.sha256}\n" for row in rows))
    digest = hashlib.sha256(content.encode()).hexdigest()
    files = len({row.file for row in rows})
    said = {"readings": len(rows), "files": files, "unread": len(unread), "digest": digest}
    tell(incident, "files_read", None, upload=upload.pk, run=held.run_id, **said)
    ring_on_commit(incident.pk)


@transaction.atomic
def fail_files(held: Claim, problem: str) -> None:
    """They could not be read at all; they stay as they are. Raises LeaseLost."""
    hold(held)
    incident = Incident.objects.select_for_update(of=("self",)).get(runs=held.run_id)
    upload = Upload.objects.get(run=held.run_id)
    if upload.problem or upload.read_at is not None:
        return
    upload.problem = text(problem)
    upload.save(update_fields=["problem"])
    tell(incident, "files_failed", None, upload=upload.pk, run=held.run_id, problem=upload.problem)


def reading_of_file(run_id: int, said: dict[str, Any], shas: dict[str, str]) -> Reading:
    """A row from what the process that read the files told. `shas`: of the files that were brought, by path; what lies
    in an archive has that of the archive."""
    file = said["file"]
    top = next((name for name in _above(file) if name in shas), "")
    return Reading(
        run_id=run_id,
        file=clean(file)[:1000],
        said_node=clean(said["node"])[:253],
        probe=said["probe"][:60],
        outcome=said["outcome"],
        why=text(said["why"]),
        facts=plain(said["facts"]),
        findings=plain(said["findings"]),
        out=b"",
        sha256=shas.get(top, ""),
        node_at=said["at"],
        took_s=0.0,
        recorded_at=timezone.now(),
    )


def _above(file: str) -> Iterator[str]:
    """The file, what it is a part of ("name: part"), and the folders and archives around it, the nearest first."""
    yield file
    for at in range(len(file) - 1, 0, -1):
        if file[at] == "/" or file[at : at + 2] == ": ":
            yield file[:at]


def sweep_uploads() -> int:
    """Remove what was never completed: its browser or this server went away. Returns how many."""
    old = Upload.objects.filter(complete_at=None, at__lt=timezone.now() - FORGOTTEN)
    return sum(
        bool(Upload.objects.filter(pk=pk, complete_at=None).delete()[0]) for pk in old.values_list("pk", flat=True)[:8]
    )
