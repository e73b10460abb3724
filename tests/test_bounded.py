"""No page takes a longer body than it needs: refused before Django keeps any of it."""

from __future__ import annotations

from typing import Any

import pytest

from config.bounded import FORM, MOST, Bounded


class Application:
    """Reads the whole body and answers 200, as Django does."""

    def __init__(self) -> None:
        self.read = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        while True:
            message = await receive()
            self.read += len(message.get("body", b""))
            if not message.get("more_body"):
                break
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})


async def status(path: str, size: int, announced: int | None = None, parts: int = 4) -> tuple[int, int]:
    """(status, bytes that the application read) of a body of `size` bytes."""
    application, told = Application(), []
    waiting = [size // parts] * parts

    async def receive() -> Any:
        body = b"x" * waiting.pop()
        return {"type": "http.request", "body": body, "more_body": bool(waiting)}

    async def send(message: Any) -> None:
        told.append(message)

    headers = [] if announced is None else [(b"content-length", str(announced).encode())]
    await Bounded(application)({"type": "http", "path": path, "headers": headers}, receive, send)
    assert waiting == [], "read to its end, so that the browser hears the answer"
    return told[0]["status"], application.read


@pytest.mark.parametrize("announced", [True, False])
async def test_a_form_takes_some_megabytes_and_an_upload_as_many_as_is_set(settings: Any, announced: bool) -> None:
    settings.UPLOAD_BYTES = 20_000_000
    long = 12_000_000
    told = long if announced else None
    assert long > MOST
    assert await status("/incidents/declare", long, told) == (413, 0 if announced else 6_000_000)
    assert await status("/incidents/files", long, told) == (200, long)
    assert await status("/incidents/7/files", long, told) == (200, long)
    assert (await status("/incidents/7/files/x", long, told))[0] == 413
    assert (await status("/incidents/files", 20_000_000 + FORM + 4, 20_000_000 + FORM + 4))[0] == 413
    assert await status("/incidents/declare", 4_000_000, 4_000_000) == (200, 4_000_000)


async def test_a_length_that_is_none_is_refused() -> None:
    application: list[Any] = []

    async def send(message: Any) -> None:
        application.append(message["type"])

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    await Bounded(None)({"type": "http", "path": "/", "headers": [(b"content-length", b"-5")]}, receive, send)
    assert application == ["http.response.start", "http.response.body"]
