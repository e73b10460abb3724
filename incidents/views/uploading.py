"""Files onto the page: judged by themselves, or added to an incident."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable, Iterator
from functools import wraps
from typing import IO, Any

from django.conf import settings
from django.contrib import messages
from django.core.exceptions import RequestDataTooBig, SuspiciousOperation, TooManyFilesSent
from django.core.files.uploadedfile import UploadedFile
from django.core.files.uploadhandler import FileUploadHandler
from django.http import HttpRequest, HttpResponse
from django.http.multipartparser import MultiPartParserError
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt, csrf_protect

from incidents import policy
from incidents.forms import JudgeFilesForm
from incidents.models import Incident
from incidents.queries import people
from incidents.services import files as services
from incidents.services.fleet import Refused
from incidents.views.acting import by, found_or_404

FORM_BYTES = 4_194_304  # what a form adds to its files


class _Spooled(UploadedFile):  # type: ignore[type-arg]
    """One file of a request, a stretch of the file in which all of them lie: thousands of open files are too many."""

    def __init__(self, name: str, spool: IO[bytes], begin: int, size: int) -> None:
        super().__init__(file=None, name=name, size=size)
        self.spool, self.begin = spool, begin

    def chunks(self, chunk_size: int | None = None) -> Iterator[bytes]:
        self.spool.seek(self.begin)
        left = self.size or 0
        while left > 0 and (part := self.spool.read(min(left, 1_048_576))):
            left -= len(part)
            yield part


class _Spool(FileUploadHandler):
    """Puts all files of a request into one temporary file without a name."""

    def __init__(self, request: HttpRequest | None = None) -> None:
        super().__init__(request)
        self.kept = contextlib.ExitStack()
        self.spool: IO[bytes] | None = None
        self.begin = 0

    def new_file(self, *args: Any, **kwargs: Any) -> None:
        super().new_file(*args, **kwargs)
        if self.spool is None:
            spool = tempfile.TemporaryFile(prefix="golden15-upload-")  # noqa: SIM115 - it is closed with `kept`
            self.spool = self.kept.enter_context(spool)
        self.begin = self.spool.seek(0, 2)

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        assert self.spool is not None  # new_file comes first
        self.spool.write(raw_data)

    def file_complete(self, file_size: int) -> _Spooled:
        assert self.spool is not None
        return _Spooled(self.file_name or "file", self.spool, self.begin, file_size)


def _receives(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Files go into one spool; too many bytes are refused before they are looked at. The form's token is checked as
    everywhere, but after that: to check it means to read everything."""
    protected = csrf_protect(view)

    @csrf_exempt
    @never_cache
    @wraps(view)
    def guarded(request: HttpRequest, **place: Any) -> HttpResponse:
        if request.method != "POST":
            return protected(request, **place)
        length = request.META.get("CONTENT_LENGTH") or "0"
        if not length.isdigit() or int(length) > settings.UPLOAD_BYTES + FORM_BYTES:
            return _answer(request, place, services.too_much(), 413)
        spool = _Spool(request)
        request.upload_handlers = [spool]
        with spool.kept:
            try:
                _ = request.POST
            except (TooManyFilesSent, RequestDataTooBig):
                return _answer(request, place, services.too_many())
            except (MultiPartParserError, SuspiciousOperation):
                return _answer(request, place, "The upload was cut off. Send it again.")
            return protected(request, **place)

    return guarded


def _answer(request: HttpRequest, place: dict[str, Any], says: str, status: int = 422) -> HttpResponse:
    """The page again with what is wrong. The form in the request is not read for it."""
    incident = found_or_404(place["incident"]) if "incident" in place else None
    return render(request, "incidents/files.html", _context(request, incident, None, says), status=status)


def _context(
    request: HttpRequest, incident: Incident | None, form: JudgeFilesForm | None, error: str = ""
) -> dict[str, object]:
    fleets = people.fleets(request.user, policy.least_for("judge_files", "POST") or "")
    return {
        "incident": incident,
        "form": form or JudgeFilesForm(None, fleets=fleets),
        "error": error,
        "most": services.size_said(settings.UPLOAD_BYTES),
        "most_bytes": settings.UPLOAD_BYTES,
        "most_files": settings.UPLOAD_FILES,
        "most_incident": services.size_said(settings.UPLOAD_INCIDENT_BYTES),
    }


@_receives
def judge_files(request: HttpRequest) -> HttpResponse:
    """Files alone: an incident is opened for them, and no node is asked."""
    if request.method != "POST":
        return render(request, "incidents/files.html", _context(request, None, None))
    fleets = people.fleets(request.user, policy.least_for("judge_files", "POST") or "")
    form = JudgeFilesForm(request.POST, fleets=fleets)
    if not form.is_valid():
        return render(request, "incidents/files.html", _context(request, None, form), status=422)
    said = form.cleaned_data
    try:
        incident = services.judge_files(
            said["fleet"], _brought(request), by(request), said["title"], int(said["severity"])
        )
    except Refused as refused:
        return render(request, "incidents/files.html", _context(request, None, form, str(refused)), status=422)
    return redirect("incident", incident.pk)


@_receives
def add_files(request: HttpRequest, incident: int) -> HttpResponse:
    """More evidence for an incident that is open."""
    found = found_or_404(incident)
    if request.method != "POST":
        return render(request, "incidents/files.html", _context(request, found, None))
    try:
        services.add_files(found, _brought(request), by(request))
    except Refused as refused:
        if refused.field:
            return render(request, "incidents/files.html", _context(request, found, None, str(refused)), status=422)
        messages.error(request, str(refused))
    return redirect("incident", incident)


def _brought(request: HttpRequest) -> list[services.Brought]:
    """The files in their order, with the paths and times that the page's script adds: a browser sends names only."""
    sent = [*request.FILES.getlist("files"), *request.FILES.getlist("folder")]
    sent = [one for one in sent if one.name or one.size]
    told = _told(request.POST.get("about", ""))
    found = []
    for at, one in enumerate(sent):
        name, modified = str(one.name), None
        if at < len(told) and told[at][0].replace("\\", "/").rpartition("/")[2] == name:
            name, modified = told[at]
        found.append(services.Brought(name, one.chunks(), modified))
    return found


def _told(about: str) -> list[tuple[str, float | None]]:
    """[[path, milliseconds since the epoch], ...] as the script sends it; [] for anything else."""
    try:
        rows = json.loads(about or "[]")
    except (ValueError, RecursionError):
        return []
    found: list[tuple[str, float | None]] = []
    for row in rows if isinstance(rows, list) else ():
        if not (isinstance(row, list) and len(row) == 2 and isinstance(row[0], str)):
            return []
        number = row[1] if isinstance(row[1], int | float) and 0 < row[1] < 1e14 else None
        found.append((row[0], number / 1000 if number is not None else None))
    return found
