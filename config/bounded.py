"""How long the body of a request may be. Django keeps all of it on a disk before a view sees anything."""

from __future__ import annotations

import re
from typing import Any

from django.conf import settings

MOST = 8_388_608  # bytes of any other form: the longest field, pasted host keys, takes 5 000 000
FORM = 4_194_304  # what the form of an upload adds to its files
_UPLOADS = re.compile(r"/incidents/(?:\d{1,19}/)?files")
_SAYS = b"This is more than is taken here at once. Go back, and send less.\n"


class _TooLong(Exception):
    """The body is longer than what was announced, or was not announced."""


class Bounded:
    """ASGI middleware: a longer body is read to its end, so that the answer arrives, and nothing of it is kept."""

    def __init__(self, application: Any) -> None:
        self.application = application

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        most = settings.UPLOAD_BYTES + FORM if _UPLOADS.fullmatch(scope["path"]) else MOST
        told = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if not told.isdigit() or int(told) > most:
            await _refuse(receive, send)
            return
        taken, began = 0, False

        async def receive_some() -> Any:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b"")) if message["type"] == "http.request" else 0
            if taken > most:
                raise _TooLong
            return message

        async def send_on(message: Any) -> None:
            nonlocal began
            began = True
            await send(message)

        try:
            await self.application(scope, receive_some, send_on)
        except _TooLong:
            if not began:
                await _refuse(receive, send)


async def _refuse(receive: Any, send: Any) -> None:
    while True:
        message = await receive()
        if message["type"] != "http.request" or not message.get("more_body", False):
            break
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(_SAYS)).encode())]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": _SAYS})
