"""The socket of an incident's page: says how far the timeline is, and what time it is here. Nothing is done over it.

Frames to the page: `hello`, `seq` and `beat` with `seq` (int) and `now` (ISO 8601, UTC); `pong` with `c` (as sent) and
`s` (epoch ms here). Frames from the page: `ping` with `c` (finite number). Close codes: 4401 not or no longer signed
in, 4404 no such incident for this person (any more), 4429 too many messages, 1009 too long a message.
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

from incidents import live, policy
from incidents.queries.people import role_at, signed_in
from incidents.queries.timeline import last_seq

log = logging.getLogger(__name__)

FRAME = 0.1  # seconds between two `seq` frames: ten a second at most
CHECK = 5.0  # seconds between two looks at the session
BEATS = 2  # every second look also says how far the timeline is
JOIN = 0.5  # seconds that a socket waits for the broker before it opens without
LONGEST = 1024  # characters of a message from the page
MESSAGES, WINDOW = 40, 10.0  # so many messages from the page in so many seconds


class IncidentSocket(AsyncWebsocketConsumer):  # type: ignore[misc]  # Channels has no types
    """One open page. Only the latest seq is kept for a slow one, so nothing piles up."""

    channel_layer_alias = ""  # no channel layer: see live.Hub

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.tasks: list[asyncio.Task[None]] = []
        self.news = asyncio.Event()
        self.latest = self.told = 0
        self.missed = self.ended = False
        self.window, self.messages = 0.0, 0
        self.incident_id: int = scope["url_route"]["kwargs"]["incident"]
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._stop()

    async def connect(self) -> None:
        user = self.scope["user"]
        if not user.is_authenticated:
            await self._end(4401)
        elif not await database_sync_to_async(self._may_listen)(user):
            await self._end(4404)
        else:
            await self.accept()
            await live.hub().add(self.incident_id, self, JOIN)
            # Read after joining: what is committed from here on rings.
            self.missed = False
            self.told = await self._seq() or 0
            await self._say(kind="hello", seq=self.told, now=_now())
            for work in (self._frames(), self._looks()):
                self.tasks.append(asyncio.create_task(self._guarded(work)))

    def _may_listen(self, user: Any) -> bool:
        return policy.has(role_at(user, self.incident_id), policy.SOCKETS["incident"])

    def _listener(self) -> tuple[bool, bool]:
        """Whether the person is still signed in, and whether they may still listen."""
        person = signed_in(self.scope["session"].session_key)
        return person is not None, person is not None and self._may_listen(person)

    def _stop(self) -> None:
        self.ended = True
        live.hub().remove(self.incident_id, self)
        for task in self.tasks:
            if task is not asyncio.current_task():
                task.cancel()

    async def _end(self, code: int) -> None:
        """Close, and say nothing more."""
        self._stop()
        await self.close(code)

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except OSError:
            pass  # the page went away while something was on its way to it
        except Exception:
            log.exception("the socket of incident %s failed", self.incident_id)
            await self._end(1011)

    async def _seq(self) -> int | None:
        seq: int | None = await database_sync_to_async(last_seq)(self.incident_id)
        return seq

    async def _say(self, **frame: object) -> None:
        await self.send(text_data=json.dumps(frame))

    def rung(self, seq: int) -> None:
        self.latest = max(self.latest, seq)
        self.news.set()

    def deaf_until_now(self) -> None:
        self.missed = True
        self.news.set()

    async def _frames(self) -> None:
        """The first ring at once, then the latest of every FRAME seconds."""
        while True:
            await self.news.wait()
            self.news.clear()
            if self.missed:
                self.missed = False
                self.latest = max(self.latest, await self._seq_or_none() or 0)
            if self.latest > self.told:
                self.told = self.latest
                await self._say(kind="seq", seq=self.told, now=_now())
                await asyncio.sleep(FRAME)

    async def _looks(self) -> None:
        """Close for who is signed out, disabled or out of the fleet; beat, so that a lost ring heals. Silent while the
        database is."""
        turn = 0
        while True:
            await asyncio.sleep(CHECK)
            turn += 1
            try:
                here, listens = await database_sync_to_async(self._listener)()
            except DatabaseError as error:
                log.warning("the database does not answer a socket: %s", error)
                continue
            if not listens:
                await self._end(4404 if here else 4401)
                return
            if turn % BEATS == 0 and (seq := await self._seq_or_none()) is not None:
                self.told = max(self.told, seq)
                await self._say(kind="beat", seq=seq, now=_now())

    async def _seq_or_none(self) -> int | None:
        try:
            return await self._seq()
        except DatabaseError as error:
            log.warning("the database does not answer a socket: %s", error)
            return None

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if self.ended:
            return
        now = time.monotonic()
        if now - self.window > WINDOW:
            self.window, self.messages = now, 0
        self.messages += 1
        if self.messages > MESSAGES:
            await self._end(4429)
        elif len(text_data or bytes_data or "") > LONGEST:
            await self._end(1009)
        elif text_data:
            try:
                message = json.loads(text_data)
            except (ValueError, RecursionError):
                return
            kind = message.get("kind") if isinstance(message, dict) else None
            answer = KINDS.get(kind) if isinstance(kind, str) else None
            if answer is not None:
                await answer(self, message)

    async def _pong(self, message: dict[str, Any]) -> None:
        sent = message.get("c")
        if isinstance(sent, float) and math.isfinite(sent) or type(sent) is int:
            await self._say(kind="pong", c=sent, s=round(time.time() * 1000, 1))


KINDS = {"ping": IncidentSocket._pong}  # what a page may say, and what answers


def _now() -> str:
    return timezone.now().isoformat()
