"""Reads the files of an incident in a process of its own, and hands what they tell to the services.

All files that were brought so far are read together: one says of which rank or node another one is. They lie in a
private folder only while that takes, under numbers, so that no name that somebody chose is ever opened.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path, PurePosixPath

from django.conf import settings

from incidents.models import Upload, UploadedFile
from incidents.services import files, runs
from probes.intake.apart import Failed, Limits, read_apart
from probes.intake.files import Given

RENEW_S = 4.0


def read_files(held: runs.Claim) -> None:
    """Read, record, finish. Raises LeaseLost when another worker took over."""
    with tempfile.TemporaryDirectory(prefix="golden15-files-") as folder:
        try:
            _read(held, Path(folder))
        except Failed as failed:
            files.fail_files(held, str(failed))
    runs.finish_shard(held)


def _read(held: runs.Claim, folder: Path) -> None:
    renewed = time.monotonic()

    def alive() -> None:
        nonlocal renewed
        if time.monotonic() - renewed >= RENEW_S:
            runs.renew(held)
            renewed = time.monotonic()

    upload = Upload.objects.get(run=held.run_id)
    together = Upload.objects.filter(incident=upload.incident, complete_at__isnull=False, pk__lte=upload.pk)
    given: list[Given] = []
    shas: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    for row in UploadedFile.objects.filter(upload__in=together).order_by("upload", "number"):
        alive()
        name = row.name
        if (name, row.sha256) in seen:  # brought again; equal files of other names are of other nodes or ranks
            continue
        seen.add((name, row.sha256))
        if name in shas:  # the same path with other bytes: both count, the later one under a folder of its own
            name = f"upload {row.upload_id}/{name}"
        path = folder / str(row.pk)
        with path.open("wb") as handle:
            for part in files.contents(row):
                handle.write(part)
        given.append(Given(path, PurePosixPath(name), row.modified))
        shas[name] = row.sha256
    limits = Limits(memory=settings.UPLOAD_MEMORY, seconds=settings.UPLOAD_SECONDS)
    told = read_apart(given, limits, alive)
    try:
        rows = [files.reading_of_file(held.run_id, said, shas) for said in told.readings()]
    finally:
        told.close()
    files.record_files(held, rows, told.unread, told.asked, told.expected)
