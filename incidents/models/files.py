"""Files that people brought to an incident: kept as they came, in the database, so that any worker can read them."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from incidents.models.fleet import Fleet
from incidents.models.incident import Incident
from incidents.models.runs import SuiteRun


class Upload(models.Model):
    """What somebody brought at once. It counts from `complete_at` on; before, it is being received.

    Its run reads all files of the incident so far together, because one file says whose another one is: `unread`
    (pairs of file and why), `asked` (nodes that captures among them name) and `expected` (how the fabric should be, of
    an evidence bundle) are of all of them. `problem` says why they could not be read at all.
    """

    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, null=True, related_name="uploads")
    fleet = models.ForeignKey(Fleet, on_delete=models.PROTECT, related_name="+")
    by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+")
    at = models.DateTimeField()
    complete_at = models.DateTimeField(null=True)
    file_count = models.PositiveIntegerField(default=0)
    size = models.PositiveBigIntegerField(default=0, help_text="bytes, as they came")
    sha256 = models.CharField(max_length=64, blank=True, help_text="of the lines `sha256  path` of its files, in order")
    run = models.OneToOneField(SuiteRun, on_delete=models.CASCADE, null=True, related_name="upload")
    read_at = models.DateTimeField(null=True)
    problem = models.TextField(blank=True)
    unread = models.JSONField(default=list)
    asked = models.JSONField(default=list)
    expected = models.JSONField(null=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.file_count} files of upload {self.pk}"


class UploadedFile(models.Model):
    """One of them. `name` is its path as the browser told it, cleaned; it is never opened as a path."""

    upload = models.ForeignKey(Upload, on_delete=models.CASCADE, related_name="files")
    number = models.PositiveIntegerField()
    name = models.CharField(max_length=1000)
    size = models.PositiveBigIntegerField()
    sha256 = models.CharField(max_length=64)
    modified = models.FloatField(null=True, help_text="seconds since the epoch, as the browser told it")

    class Meta:
        ordering = ["upload", "number"]
        constraints = [models.UniqueConstraint(fields=["upload", "number"], name="uploaded_file_once")]

    def __str__(self) -> str:
        return self.name


class UploadedPart(models.Model):
    """A piece of a file: in order, together they are it. Compressed with zlib."""

    file = models.ForeignKey(UploadedFile, on_delete=models.CASCADE, related_name="parts")
    number = models.PositiveIntegerField()
    data = models.BinaryField()

    class Meta:
        ordering = ["file", "number"]
        constraints = [models.UniqueConstraint(fields=["file", "number"], name="uploaded_part_once")]

    def __str__(self) -> str:
        return f"part {self.number} of {self.file_id}"
