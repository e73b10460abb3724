"""Every route for every role: what the table says is what happens, and nothing is outside the table."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, reverse

from incidents import policy
from incidents.consumers import IncidentSocket
from incidents.models import User
from incidents.sockets import websocket_urlpatterns

pytestmark = [pytest.mark.django_db]

ARGUMENTS: dict[str, list[Any]] = {
    "incident": [1],
    "incident_after": [1],
    "advance": [1],
    "take_command": [1],
    "add_note": [1],
    "evidence": [1, 1],
    "evidence_output": [1, 1],
    "timeline": [1],
    "node": ["gpu-001"],
    "remove_node": ["gpu-001"],
    "accept_key": [1],
    "sign_in_link": ["no-such-token"],
    "alerts": ["no-such-source"],
}


def routes(resolver: URLResolver | None = None) -> Iterator[URLPattern]:
    for pattern in (resolver or get_resolver()).url_patterns:
        if isinstance(pattern, URLResolver):
            yield from routes(pattern)
        else:
            yield pattern


def test_every_route_is_in_the_table_and_the_table_has_no_other() -> None:
    assert {str(pattern.name) for pattern in routes()} == set(policy.POLICY)


@pytest.mark.parametrize("name", sorted(policy.POLICY))
@pytest.mark.parametrize("role", policy.ROLES)
def test_each_role_gets_in_where_the_table_says_and_nowhere_else(client: Client, name: str, role: str) -> None:
    client.force_login(User.objects.create(username=role, role=role))
    path = reverse(name, args=ARGUMENTS.get(name, []))
    for method in ("GET", "POST"):
        least = policy.least_for(name, method)
        if least is None:
            continue
        allowed = least == policy.ANYBODY or policy.ROLES.index(role) >= policy.ROLES.index(least)
        if name in ("sign_out", "sign_in_link"):
            continue  # these end or begin a session: shown below
        status = client.generic(method, path).status_code
        assert (status != 403) is allowed, f"{method} {path} as {role}: {status}"


@pytest.mark.parametrize("name", sorted(policy.POLICY))
def test_a_stranger_is_led_to_the_sign_in_page(client: Client, name: str) -> None:
    path = reverse(name, args=ARGUMENTS.get(name, []))
    for method in ("GET", "POST"):
        if policy.least_for(name, method) in (policy.ANYBODY, None):
            continue
        answer = client.generic(method, path)
        assert answer.status_code == 302
        assert answer["Location"].startswith(reverse("sign_in"))


def test_a_route_that_nobody_listed_is_refused_to_everybody(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    client.force_login(User.objects.create(username="root", is_superuser=True))
    assert client.get(reverse("fleet")).status_code == 200
    monkeypatch.delitem(policy.POLICY, "fleet")
    assert client.get(reverse("fleet")).status_code == 403


def test_roles_include_each_other_and_a_disabled_person_has_none() -> None:
    people = [User(username=role, role=role) for role in policy.ROLES]
    for i, person in enumerate(people):
        assert [policy.has(person, least) for least in policy.ROLES] == [j <= i for j in range(4)]
    assert not policy.has(User(username="gone", role="admin", is_active=False), "viewer")


def test_nobody_is_shown_a_button_that_is_refused(client: Client) -> None:
    client.force_login(User.objects.create(username="vic", role="viewer"))
    page = client.get(reverse("fleet")).content.decode() + client.get(reverse("incidents")).content.decode()
    for action in ("add_nodes", "check_fleet", "declare"):
        assert reverse(action) not in page


def test_a_person_is_made_with_a_role_and_given_another(client: Client) -> None:
    out = io.StringIO()
    call_command("person", "sam", stdout=out)
    assert "sam is responder, made just now." in out.getvalue()
    call_command("person", "sam", "--role", "commander", stdout=out)
    assert User.objects.get(username="sam").role == "commander"
    call_command("person", stdout=out)
    assert "sam  commander" in out.getvalue()
    with pytest.raises(CommandError, match="not a user name"):
        call_command("person", "sam; rm -rf", stdout=out)


def test_every_socket_is_in_the_table_and_the_table_has_no_other() -> None:
    named = {pattern.name for pattern in websocket_urlpatterns if getattr(pattern, "name", None)}
    assert named == set(policy.SOCKETS)


@pytest.mark.parametrize("least", policy.ROLES)
@pytest.mark.parametrize("role", [*policy.ROLES, None])
def test_a_socket_opens_for_the_roles_that_the_table_says(
    monkeypatch: pytest.MonkeyPatch, role: str | None, least: str
) -> None:
    """The real consumer, asked whether it lets this person in."""
    monkeypatch.setitem(policy.SOCKETS, "incident", least)
    user = User(username="x", role=role) if role else AnonymousUser()
    socket = IncidentSocket()
    socket.scope = {"user": user}
    allowed = role is not None and policy.ROLES.index(role) >= policy.ROLES.index(least)
    closed: list[int] = []

    async def end(code: int) -> None:
        closed.append(code)

    async def no_incident() -> None:
        return None

    monkeypatch.setattr(socket, "_end", end)
    monkeypatch.setattr(socket, "_seq", no_incident)
    asyncio.run(socket.connect())
    assert closed == ([4404] if allowed else [4401]), "a person with the role gets as far as the unknown incident"
