"""The socket of an incident's page: says how far the timeline is, and what time it is here. Nothing is done over it.

Frames to the page: `hello`, `seq` and `beat` with `seq` (int) and `now` (ISO 8601, UTC); `pong` with `c` (as sent) and
`s` (epoch ms here). Frames from the page: `ping` with `c` (finite number). Close codes: 4401 not or no longer signed
in, 4404 no such incident, 4429 too many messages, 1009 too long a message.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections.abc import Coroutine
from typing import Any

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.db import Error as DatabaseError
from django.utils import timezone

from incidents import live
from incidents.queries.people import signed_in
from incidents.queries.timeline import last_seq

log = logging.getLogger(__name__)

FRAME = 0.1  # seconds between two `seq` frames: ten per second at most
CHECK = 5.0  # seconds between two looks at the session
BEATS = 2  # every second look also says how far the timeline is
JOIN = 0.5  # seconds that a socket waits for the broker before it opens without
LONGEST = 1024  # characters of a message from the page
MESSAGES = 40  # messages from the page ...
WINDOW = 10.0  # ... in so many seconds


class IncidentSocket(AsyncWebsocketConsumer):
    """One open page. Only the latest seq is kept for a slow one, so nothing piles up."""

    channel_layer_alias = ""  # the base class would need the broker to open; live.follow does not

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.tasks: list[asyncio.Task[None]] = []
        self.news = asyncio.Event()
        self.joined = asyncio.Event()
        self.latest = self.told = 0
        self.window, self.messages = 0.0, 0
        try:
            await super().__call__(scope, receive, send)
        finally:
            for task in self.tasks:
                task.cancel()
            await asyncio.gather(*self.tasks, return_exceptions=True)

    async def connect(self) -> None:
        self.incident_id: int = self.scope["url_route"]["kwargs"]["incident"]
        if not self.scope["user"].is_authenticated:
            await self.close(4401)
            return
        if await self._seq() is None:
            await self.close(4404)
            return
        await self.accept()
        self._start(live.follow(self.incident_id, self._on_joined, self._on_rung))
        try:
            await asyncio.wait_for(self.joined.wait(), JOIN)
        except TimeoutError:
            log.info("a socket opens without the broker; its beats say what is new")
        # Read after joining: what is committed from here on rings.
        self.told = await self._seq() or 0
        await self._say(kind="hello", seq=self.told, now=_now())
        self._start(self._frames())
        self._start(self._looks())

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.create_task(self._guarded(coroutine)))

    async def _guarded(self, coroutine: Coroutine[Any, Any, None]) -> None:
        try:
            await coroutine
        except OSError:
            pass  # the page went away while something was on its way to it
        except Exception:
            log.exception("the socket of incident %s failed", self.incident_id)
            await self.close(1011)

    async def _seq(self) -> int | None:
        return await database_sync_to_async(last_seq)(self.incident_id)

    async def _say(self, **frame: object) -> None:
        await self.send(text_data=json.dumps(frame))

    async def _on_joined(self) -> None:
        if self.joined.is_set():  # joined again: what rang meanwhile was missed
            self._on_rung(await self._seq() or 0)
        self.joined.set()

    def _on_rung(self, seq: int) -> None:
        self.latest = max(self.latest, seq)
        if self.latest > self.told:
            self.news.set()

    async def _frames(self) -> None:
        """The first ring at once, then the latest of every FRAME seconds."""
        while True:
            await self.news.wait()
            self.news.clear()
            self.told = self.latest
            await self._say(kind="seq", seq=self.told, now=_now())
            await asyncio.sleep(FRAME)

    async def _looks(self) -> None:
        """Close for who is signed out or disabled; beat, so that a lost ring heals. Silent while the database is away."""
        turn = 0
        while True:
            await asyncio.sleep(CHECK)
            turn += 1
            try:
                if await database_sync_to_async(signed_in)(self.scope["session"].session_key) is None:
                    await self.close(4401)
                    return
                seq = await self._seq() if turn % BEATS == 0 else None
            except DatabaseError as error:
                log.warning("the database does not answer a socket: %s", error)
                continue
            if seq is not None:
                self.told = max(self.told, seq)
                await self._say(kind="beat", seq=seq, now=_now())

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        now = time.monotonic()
        if now - self.window > WINDOW:
            self.window, self.messages = now, 0
        self.messages += 1
        if self.messages > MESSAGES:
            await self.close(4429)
        elif len(text_data or bytes_data or "") > LONGEST:
            await self.close(1009)
        elif text_data:
            try:
                message = json.loads(text_data)
            except (ValueError, RecursionError):
                return
            kind = message.get("kind") if isinstance(message, dict) else None
            answer = KINDS.get(kind) if isinstance(kind, str) else None
            if answer is not None:
                await answer(self, message)

    async def _ping(self, message: dict[str, Any]) -> None:
        sent = message.get("c")
        if isinstance(sent, int | float) and not isinstance(sent, bool) and math.isfinite(sent):
            await self._say(kind="pong", c=sent, s=round(time.time() * 1000, 1))


KINDS = {"ping": IncidentSocket._ping}  # what a page may say


def _now() -> str:
    return timezone.now().isoformat()
