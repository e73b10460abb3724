"""From a committed event to an open socket, with a real broker; and what happens when something of that is away."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from channels.db import database_sync_to_async
from django.contrib.sessions.models import Session
from django.db import transaction
from django.test import Client
from django.utils import timezone

from incidents import consumers, live
from incidents.models import Event, Fleet, Incident, User
from incidents.services.timeline import tell
from tests.support.fleets import main, person
from tests.support.redis_server import free_port, redis_server
from tests.support.sockets import Socket

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]
Open = Callable[..., Any]


@pytest.fixture(autouse=True)
def fresh_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_outage", live._Outage())
    monkeypatch.setattr(live, "_heard", live._Outage())


@pytest.fixture
def broker(settings: Any) -> Iterator[str]:
    with redis_server() as url:
        settings.REDIS_URL = url
        yield url


@pytest.fixture
def incident() -> Incident:
    return Incident.objects.create(fleet=main(), title="all-reduce stalled", t0=timezone.now())


@pytest.fixture
def somebody() -> User:
    return person("lin", "viewer")


def another_incident() -> Incident:
    return Incident.objects.create(fleet=main(), title="another", t0=timezone.now())


def told(incident: Incident, count: int = 1) -> int:
    with transaction.atomic():
        for _ in range(count):
            tell(incident, "note", None, text="x")
    return incident.last_seq


in_thread = database_sync_to_async


def headers(user: User | None) -> list[tuple[bytes, bytes]]:
    client = Client()
    if user:
        client.force_login(user)
    cookies = "; ".join(f"{name}={morsel.value}" for name, morsel in client.cookies.items())
    return [(b"host", b"localhost"), (b"origin", b"http://localhost"), (b"cookie", cookies.encode())]


@pytest.fixture
async def open_socket() -> AsyncIterator[Open]:
    """Opens a socket of the real ASGI application; returns it, whether it was accepted, and else the close code."""
    from config.asgi import application

    opened: list[Socket] = []

    async def open_one(incident_id: int, user: User | None, given: Any = None) -> Any:
        given = given or await in_thread(headers)(user)
        one = Socket(application, f"/ws/incidents/{incident_id}", headers=given)
        opened.append(one)
        accepted, code = await one.connect(timeout=5)
        return one, accepted, code

    yield open_one
    for one in opened:
        with contextlib.suppress(BaseException):
            await one.disconnect(timeout=2)


@pytest.fixture
async def page(open_socket: Open, incident: Incident, somebody: User) -> Any:
    one, accepted, _ = await open_socket(incident.pk, somebody)
    assert accepted
    return one


async def frame(page: Any, kind: str, seconds: float = 5) -> dict[str, Any]:
    """The next frame of a kind; others are passed over."""
    async with asyncio.timeout(seconds):
        while True:
            got: dict[str, Any] = await page.receive_json_from(timeout=seconds + 1)
            if got["kind"] == kind:
                return got


async def closed(page: Any, seconds: float) -> tuple[int, float]:
    """The close code, and after how many seconds."""
    began = time.monotonic()
    while True:
        message = await page.receive_output(timeout=seconds)
        if message["type"] == "websocket.close":
            return message["code"], time.monotonic() - began


async def test_hello_says_how_far_the_database_is(
    broker: str, open_socket: Open, incident: Incident, somebody: User
) -> None:
    await in_thread(told)(incident, 3)
    one, accepted, _ = await open_socket(incident.pk, somebody)
    assert accepted
    hello = await one.receive_json_from()
    assert (hello["kind"], hello["seq"]) == ("hello", 3)
    assert abs((datetime.fromisoformat(hello["now"]) - timezone.now()).total_seconds()) < 5


async def test_a_committed_event_rings_every_open_page_of_its_incident_within_a_second(
    broker: str, open_socket: Open, incident: Incident, somebody: User
) -> None:
    other = await in_thread(another_incident)()
    pages = [(await open_socket(incident.pk, somebody))[0] for _ in range(2)]
    elsewhere, _, _ = await open_socket(other.pk, somebody)
    for one in (*pages, elsewhere):
        await frame(one, "hello")
    await in_thread(told)(incident)
    for one in pages:
        assert (await frame(one, "seq", 1))["seq"] == 1
    assert await elsewhere.receive_nothing(0.3)


async def test_two_hundred_events_in_a_second_are_a_dozen_frames_and_the_last_is_told(
    broker: str, page: Any, incident: Incident
) -> None:
    await frame(page, "hello")

    def burst() -> None:
        for n in range(1, 201):
            live.publish(incident.pk, n)
            time.sleep(0.004)

    sending = asyncio.create_task(sync_to_async(burst, thread_sensitive=False)())
    seqs = []
    began = time.monotonic()
    while not seqs or seqs[-1] < 200:
        seqs.append((await frame(page, "seq", 2))["seq"])
    took = time.monotonic() - began
    await sending
    assert len(seqs) <= took / consumers.FRAME + 2
    assert seqs == sorted(set(seqs))
    assert await page.receive_nothing(0.3)


async def test_what_is_rolled_back_does_not_ring(broker: str, page: Any, incident: Incident) -> None:
    await frame(page, "hello")

    def change_of_mind() -> None:
        with contextlib.suppress(ZeroDivisionError), transaction.atomic():
            tell(incident, "note", None)
            raise ZeroDivisionError

    await in_thread(change_of_mind)()
    assert await page.receive_nothing(0.5)


@pytest.fixture
def rings(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    monkeypatch.setattr(live, "publish", lambda incident_id, seq: found.append((incident_id, seq)))
    return found


def test_a_transaction_rings_once_for_each_incident(incident: Incident, rings: list[tuple[int, int]]) -> None:
    other = another_incident()
    with transaction.atomic():
        tell(incident, "note", None)
        with transaction.atomic():
            tell(incident, "note", None)
            tell(other, "note", None)
        tell(incident, "note", None)
    assert rings == [(incident.pk, 3), (other.pk, 1)]


def test_it_rings_with_what_was_committed_when_a_savepoint_was_not(
    incident: Incident, rings: list[tuple[int, int]]
) -> None:
    with transaction.atomic():
        with contextlib.suppress(ZeroDivisionError), transaction.atomic():
            tell(incident, "note", None)
            raise ZeroDivisionError
        tell(incident, "note", None)
        with contextlib.suppress(ZeroDivisionError), transaction.atomic():
            tell(incident, "note", None)
            tell(incident, "note", None)
            raise ZeroDivisionError
    assert rings == [(incident.pk, 1)]


@pytest.fixture(params=["nobody listens", "silent", "backlog full", "no socket file"])
def dead_broker(request: pytest.FixtureRequest, settings: Any) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        address = listener.getsockname()
        settings.REDIS_URL = f"redis://127.0.0.1:{address[1]}/0"
        if request.param == "silent":
            listener.listen(8)
        elif request.param == "backlog full":
            listener.listen(0)
            for _ in range(4):
                other = stack.enter_context(socket.socket())
                other.setblocking(False)
                other.connect_ex(address)
        elif request.param == "no socket file":
            settings.REDIS_URL = "unix:///nonexistent/golden15.sock"
        yield


def test_a_dead_broker_holds_up_no_commit_and_is_told_once(
    dead_broker: None, incident: Incident, caplog: pytest.LogCaptureFixture
) -> None:
    took = []
    for _ in range(20):
        began = time.monotonic()
        told(incident)
        took.append(time.monotonic() - began)
    assert Event.objects.count() == 20
    assert max(took) < 1.0  # measured: 0.2 at most
    assert sum(took) < 2.0  # one caller a second only: not 20 times 0.2
    assert len([r for r in caplog.records if r.name == "incidents.live" and r.levelno >= logging.WARNING]) == 1


async def test_without_a_broker_a_page_opens_and_learns_by_the_beat(
    settings: Any, monkeypatch: pytest.MonkeyPatch, open_socket: Open, incident: Incident, somebody: User
) -> None:
    settings.REDIS_URL = f"redis://127.0.0.1:{free_port()}/0"
    monkeypatch.setattr(consumers, "CHECK", 0.3)
    page, accepted, _ = await open_socket(incident.pk, somebody)
    assert accepted
    assert (await frame(page, "hello"))["seq"] == 0
    await in_thread(told)(incident)
    assert (await frame(page, "beat", 3))["seq"] == 1


async def test_a_broker_that_returns_rings_again_and_what_it_missed_is_told(
    settings: Any, open_socket: Open, incident: Incident, somebody: User
) -> None:
    port = free_port()
    settings.REDIS_URL = f"redis://127.0.0.1:{port}/0"
    with redis_server(port):
        page, _, _ = await open_socket(incident.pk, somebody)
        await frame(page, "hello")
        await in_thread(told)(incident)
        assert (await frame(page, "seq"))["seq"] == 1
    await in_thread(told)(incident)  # rings nowhere
    with redis_server(port):
        assert (await frame(page, "seq", 4))["seq"] == 2  # well before a beat of ten seconds
        await asyncio.sleep(live.PAUSE)  # this process does not try the broker again before
        await in_thread(told)(incident)
        assert (await frame(page, "seq", 2))["seq"] == 3


async def test_a_lost_ring_heals_with_the_next_beat(
    broker: str, monkeypatch: pytest.MonkeyPatch, page: Any, incident: Incident
) -> None:
    await frame(page, "hello")
    monkeypatch.setattr(live, "publish", lambda *_: None)
    await in_thread(told)(incident, 2)
    beat = await frame(page, "beat", 13)  # the promise: every ten seconds
    assert beat["seq"] == 2


@pytest.mark.parametrize("how", ["signed out", "disabled", "another password", "out of the fleet"])
async def test_who_is_signed_out_or_disabled_loses_the_socket_within_seconds(
    broker: str, page: Any, somebody: User, how: str
) -> None:
    await frame(page, "hello")

    def end() -> None:
        if how == "signed out":
            Session.objects.all().delete()
        elif how == "out of the fleet":
            somebody.memberships.all().delete()
        else:
            somebody.is_active = how != "disabled"
            somebody.set_password("correct horse battery staple")
            somebody.save()

    await in_thread(end)()
    code, seconds = await closed(page, 8)
    assert code == (4404 if how == "out of the fleet" else 4401)
    assert seconds < 6.5
    assert live.hub().ears == {}


@pytest.mark.parametrize(
    ("incident_id", "signed_in", "code"),
    [(None, False, 4401), (10**6, True, 4404), (10**30, True, 4404), (10**6, False, 4401)],
)
async def test_strangers_and_unknown_incidents_get_no_socket(
    broker: str, open_socket: Open, incident: Incident, somebody: User, incident_id: int, signed_in: bool, code: int
) -> None:
    _, accepted, got = await open_socket(incident_id or incident.pk, somebody if signed_in else None)
    assert (accepted, got) == (False, code)


async def test_somebody_of_another_fleet_gets_no_socket(broker: str, open_socket: Open, incident: Incident) -> None:
    eve = await in_thread(lambda: person("eve", "admin", Fleet.objects.create(name="theirs")))()
    _, accepted, code = await open_socket(incident.pk, eve)
    assert (accepted, code) == (False, 4404), "as for an incident that does not exist"


async def test_a_page_of_another_site_gets_no_socket(
    broker: str, open_socket: Open, incident: Incident, somebody: User
) -> None:
    given = [
        (name, b"http://evil.example" if name == b"origin" else value)
        for name, value in await in_thread(headers)(somebody)
    ]
    _, accepted, code = await open_socket(incident.pk, somebody, given)
    assert (accepted, code) == (False, 4403)


async def test_a_ping_is_answered_with_the_servers_clock(broker: str, page: Any) -> None:
    await page.send_json_to({"kind": "ping", "c": 1234.5})
    pong = await frame(page, "pong")
    assert pong["c"] == 1234.5
    assert abs(pong["s"] / 1000 - time.time()) < 5


HOSTILE = [
    "",
    "{",
    "[" * 1000,
    "null",
    "[]",
    '"ping"',
    '{"kind": "close"}',
    '{"kind": "disconnect", "type": "websocket.disconnect"}',
    '{"kind": "__class__"}',
    '{"kind": ["ping"]}',
    '{"kind": {"a": 1}}',
    '{"kind": "ping"}',
    '{"kind": "ping", "c": NaN}',
    '{"kind": "ping", "c": 1e999}',
    '{"kind": "ping", "c": true}',
    '{"kind": "ping", "c": "<script>"}',
    '{"kind": "hello", "seq": 99}',
    '{"kind": "doorbell", "seq": 99}',
    "\ud800".encode("utf-16", "surrogatepass").decode("latin-1"),
]


async def test_what_no_page_says_is_ignored(broker: str, page: Any) -> None:
    await frame(page, "hello")
    for text in HOSTILE:
        await page.send_to(text_data=text)
    await page.send_to(bytes_data=b"\x00\xff")
    await page.send_json_to({"kind": "ping", "c": 7})
    assert (await page.receive_json_from(timeout=5))["c"] == 7  # the first answer of all


async def test_a_long_message_closes_the_socket(broker: str, page: Any) -> None:
    await page.send_to(text_data=json.dumps({"kind": "ping", "c": 1, "pad": "x" * 1024}))
    assert (await closed(page, 3))[0] == 1009


async def test_a_flood_closes_the_socket(broker: str, page: Any) -> None:
    for n in range(200):
        await page.send_json_to({"kind": "ping", "c": n})
    code, _ = await closed(page, 5)
    assert code == 4429
