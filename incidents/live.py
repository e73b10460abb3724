"""The one door from the database to browsers: a doorbell that says how far an incident's timeline is.

The database is the truth; a bell that is lost costs time, never data. A ring is a Redis PUBLISH of the seq on a channel
of the incident; each web process has one subscription for all its sockets. Why not a channel layer: see
docs/decisions/0004-doorbell.md.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
import time
from collections import defaultdict
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from django.conf import settings
from redis import ConnectionError, Redis, RedisError
from redis import asyncio as aredis
from redis.backoff import NoBackoff
from redis.retry import Retry

log = logging.getLogger(__name__)

CHANNEL = "golden15:incident:"  # and the incident's number
PATIENCE = 0.2  # seconds that a broker may hold up the caller: to connect, and to answer
PAUSE = 1.0  # seconds without a try after one that failed


class _Outage:
    """Whether the broker is away, as one side of this process last saw it: said once, however many ask."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.away = False
        self.next_try = 0.0

    def begins(self, reason: Exception) -> None:
        with self.lock:
            news, self.away, self.next_try = not self.away, True, time.monotonic() + PAUSE
        if news:
            log.warning("the broker is away, so open pages learn of news some seconds late: %s", reason)

    def ends(self) -> None:
        with self.lock:
            news, self.away, self.next_try = self.away, False, 0.0
        if news:
            log.warning("the broker is back")


_outage = _Outage()


@functools.cache
def _client(url: str) -> Redis:
    """Right in threads and after a fork: redis-py's pool sees to both. A second try replaces a connection that died."""
    retry = Retry(NoBackoff(), 1, supported_errors=(ConnectionError,))
    return Redis.from_url(url, socket_timeout=PATIENCE, socket_connect_timeout=PATIENCE, retry=retry)


def publish(incident_id: int, seq: int) -> None:
    """Tell every open page that `incident_id` is at `seq`. Call it after the commit, from any thread or process.

    Never raises. A broker that is away holds up one caller a second, for about twice PATIENCE; the others not at all.
    """
    if time.monotonic() < _outage.next_try:
        return
    try:
        _client(settings.REDIS_URL).publish(f"{CHANNEL}{incident_id}", seq)
    except (RedisError, OSError) as error:
        _outage.begins(error)
    else:
        _outage.ends()


class Ear(Protocol):
    """Who listens. Called in the loop, so it must not wait."""

    def rung(self, seq: int) -> None: ...

    def deaf_until_now(self) -> None:
        """The subscription stands again: what rang before is lost, and the database knows it."""


class Hub:
    """The subscription of one event loop, there while somebody listens. A broker that is away is tried every second."""

    def __init__(self) -> None:
        self.ears: defaultdict[int, set[Ear]] = defaultdict(set)
        self.subscribed = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    async def add(self, incident_id: int, ear: Ear, patience: float) -> bool:
        """Whether rings arrive from here on; False when the broker did not answer in `patience` seconds."""
        self.ears[incident_id].add(ear)
        if self.task is None or self.task.done():
            self.task = asyncio.create_task(self._listen())
        try:
            await asyncio.wait_for(self.subscribed.wait(), patience)
        except TimeoutError:
            return False
        return True

    def remove(self, incident_id: int, ear: Ear) -> None:
        self.ears[incident_id].discard(ear)
        if not self.ears[incident_id]:
            del self.ears[incident_id]
        if not self.ears and self.task is not None:
            self.task.cancel()
            self.task = None
            self.subscribed.clear()

    async def _listen(self) -> None:
        while True:
            try:
                await self._listen_once()
            except (RedisError, OSError) as error:
                _heard.begins(error)
            self.subscribed.clear()
            await asyncio.sleep(PAUSE)

    async def _listen_once(self) -> None:
        # No retries inside redis-py: it would subscribe again without a word, and what rang meanwhile were missed.
        retry = aredis.retry.Retry(NoBackoff(), 0)
        client = aredis.Redis.from_url(settings.REDIS_URL, socket_connect_timeout=2, socket_timeout=None, retry=retry)
        async with client, client.pubsub() as bell:
            await bell.psubscribe(f"{CHANNEL}*")
            async for message in bell.listen():
                self._hear(message)

    def _hear(self, message: dict[str, Any]) -> None:
        if message["type"] == "psubscribe":
            _heard.ends()
            self.subscribed.set()
            for ears in list(self.ears.values()):
                for ear in list(ears):
                    ear.deaf_until_now()
        elif message["type"] == "pmessage":
            try:
                incident_id, seq = int(message["channel"].rsplit(b":", 1)[1]), int(message["data"])
            except ValueError:
                return  # not from us
            for ear in list(self.ears.get(incident_id, ())):
                ear.rung(seq)


_heard = _Outage()
_hubs: WeakKeyDictionary[asyncio.AbstractEventLoop, Hub] = WeakKeyDictionary()


def hub() -> Hub:
    """The hub of the running loop."""
    return _hubs.setdefault(asyncio.get_running_loop(), Hub())
