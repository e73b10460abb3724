"""The review of an incident: the page, the Markdown, the evidence as one file."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import AsyncIterator
from typing import IO, Any

from asgiref.sync import sync_to_async
from django.http import FileResponse, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from incidents import lanes
from incidents.queries import review as queries
from incidents.queries.drills import solution
from incidents.queries.review import bundle as bundles
from incidents.queries.review.markdown import markdown
from incidents.views.acting import found_or_404

CHUNK = 1 << 16


@never_cache
@require_safe
def review(request: HttpRequest, incident: int) -> HttpResponse:
    """The page. Right at any time; while the incident is open it says that it is not finished."""
    found = queries.review(found_or_404(incident))
    context = {
        "incident": found.incident,
        "review": found,
        "figure": lanes.figure(found.spans, found.incident.t0),
        "solution": solution(found.incident, found.accepted),
    }
    return render(request, "incidents/review.html", context)


@never_cache
@require_safe
def review_markdown(request: HttpRequest, incident: int) -> HttpResponse:
    """The same as text. Never shown by a browser as anything else."""
    found = queries.review(found_or_404(incident))
    headers = {"X-Content-Type-Options": "nosniff", "Content-Disposition": f'inline; filename="{found.name}.md"'}
    return HttpResponse(markdown(found), content_type="text/plain; charset=utf-8", headers=headers)


class _File(FileResponse):
    """Sent in pieces by an asynchronous server too, where Django would read the whole file into memory first."""

    def __init__(self, file: IO[bytes], **more: Any) -> None:
        super().__init__(file, **more)
        self.file = file

    async def __aiter__(self) -> AsyncIterator[bytes]:
        read = sync_to_async(self.file.read, thread_sensitive=False)
        while piece := await read(CHUNK):
            yield piece


@never_cache
@require_safe
def bundle(request: HttpRequest, incident: int) -> FileResponse:
    """The evidence as a zip, made in a temporary file that is gone when it was sent."""
    found = found_or_404(incident)
    file = tempfile.TemporaryFile()  # noqa: SIM115  # closed by Django when it was sent
    try:
        bundles.write(found, file)
        file.seek(0)
        answer = _File(file, as_attachment=True, filename=bundles.file_name(found), content_type="application/zip")
        weakref.finalize(answer, file.close)  # also when nobody reads it
        return answer
    except BaseException:
        file.close()
        raise
