"""Every route and socket for every role, in one's own fleet and in another's: what the table says is what happens, and
nothing is outside the table."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, transaction
from django.http import HttpResponse
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, reverse

from incidents import policy
from incidents.models import Fleet, Incident, User
from incidents.queries import people
from incidents.services import response
from incidents.services.fleet import Login, add_nodes
from incidents.sockets import websocket_urlpatterns
from tests.support.fleets import main, person

pytestmark = [pytest.mark.django_db]

OUTSIDE = ("sign_out", "sign_in_link")  # these end or begin a session: see test_sign_in


@pytest.fixture
def incident() -> Incident:
    """An incident of the first fleet, on its only node."""
    add_nodes(main(), "gpu-001", Login(), None)
    return response.declare(main(), "gpu-001", None)


def arguments(name: str, incident: Incident) -> dict[str, Any]:
    """What a route's address needs, all of it of the incident's fleet."""
    here = {"fleet": incident.fleet.name, "incident": incident.pk, "name": "gpu-001", "key_id": 1, "reading": 1}
    here["action"] = 1
    here |= {"token": "no-such-token", "source": "no-such-source", "drill": "rank-stopped"}
    pattern = next(pattern for pattern in routes() if pattern.name == name)
    return {key: here[key] for key in pattern.pattern.converters}


def routes(resolver: URLResolver | None = None) -> Iterator[URLPattern]:
    for pattern in (resolver or get_resolver()).url_patterns:
        if isinstance(pattern, URLResolver):
            yield from routes(pattern)
        else:
            yield pattern


def acts(name: str) -> list[str]:
    """The methods that do something on a route which not everybody may use."""
    return [m for m in ("GET", "POST") if policy.least_for(name, m) not in (None, policy.ANYBODY)]


SCOPED = [
    str(pattern.name) for pattern in routes() if {"fleet", "incident"} & set(pattern.pattern.converters)
]  # what belongs to a fleet


def test_every_route_is_in_the_table_and_the_table_has_no_other() -> None:
    assert {str(pattern.name) for pattern in routes()} == set(policy.POLICY)


@pytest.mark.parametrize("name", sorted(policy.POLICY))
@pytest.mark.parametrize("role", policy.ROLES)
def test_each_role_gets_in_where_the_table_says_and_nowhere_else(
    client: Client, incident: Incident, name: str, role: str
) -> None:
    client.force_login(person(role, role))
    path = reverse(name, kwargs=arguments(name, incident))
    for method in ("GET", "POST"):
        least = policy.least_for(name, method)
        if least is None or name in OUTSIDE:
            continue
        open_to_all = least in (policy.ANYBODY, policy.MEMBER)
        allowed = open_to_all or policy.ROLES.index(role) >= policy.ROLES.index(least)
        status = client.generic(method, path).status_code
        assert (status != 403) is allowed, f"{method} {path} as {role}: {status}"


@pytest.mark.parametrize("name", SCOPED)
def test_what_belongs_to_another_fleet_looks_as_if_it_did_not_exist(
    client: Client, incident: Incident, name: str
) -> None:
    """An admin of another team's fleet: each address of this one answers as one that was never there."""
    client.force_login(person("eve", "admin", Fleet.objects.create(name="theirs")))
    here = arguments(name, incident)
    nowhere = {**here, **{key: value for key, value in (("fleet", "nowhere"), ("incident", 999_999)) if key in here}}
    for method in acts(name):
        bodies = []
        for place in (here, nowhere):
            path = reverse(name, kwargs=place)
            answer = client.generic(method, path)
            assert answer.status_code == 404, f"{method} {path}"
            bodies.append(re.sub(rf'{path}|value="\w{{64}}"', "", answer.content.decode()))
        assert bodies[0] == bodies[1], "but for the address and the form's token"
    assert Incident.objects.get().phase == "capture"


def test_the_lists_show_only_what_is_in_ones_own_fleets(client: Client, incident: Incident) -> None:
    theirs = Fleet.objects.create(name="theirs")
    eve = person("eve", "admin", theirs)
    client.force_login(eve)
    add_nodes(theirs, "gpu-001", Login(), None)
    other = response.declare(theirs, "gpu-001", None, title="their own trouble")
    page = client.get(reverse("incidents")).content.decode()
    assert f"INC-{other.pk}" in page
    assert f"INC-{incident.pk} " not in page
    assert client.get(reverse("fleets"))["Location"] == reverse("fleet", args=["theirs"])
    assert ">main<" not in client.get(reverse("declare")).content.decode()


def test_two_fleets_may_have_nodes_and_jobs_of_the_same_name(incident: Incident) -> None:
    theirs = Fleet.objects.create(name="theirs")
    add_nodes(theirs, "10.0.0.9 gpu-001", Login(), None)
    response.save_job(theirs, "run7", list(theirs.nodes.all()))
    response.save_job(main(), "run7", list(main().nodes.all()))
    other = response.declare(theirs, "run7", None)
    assert [node.address for node in other.nodes.all()] == ["10.0.0.9"]
    assert [node.address for node in incident.nodes.all()] == [""]


def test_an_incident_is_declared_in_the_fleet_that_was_chosen_and_in_no_other(client: Client) -> None:
    first, second, theirs = main(), *(Fleet.objects.create(name=name) for name in ("second", "theirs"))
    for fleet in (first, second, theirs):
        add_nodes(fleet, "gpu-001", Login(), None)
    pat = person("pat", "responder", first)
    second.memberships.create(user=pat, role="responder")
    theirs.memberships.create(user=pat, role="viewer")
    client.force_login(pat)
    assert 'value="theirs"' not in client.get(reverse("declare")).content.decode()
    said = {"what": "gpu-001", "severity": "2"}
    assert client.post(reverse("declare"), said).status_code == 422, "which fleet?"
    assert client.post(reverse("declare"), {**said, "fleet": "theirs"}).status_code == 422
    assert client.post(reverse("declare"), {**said, "fleet": "second"}).status_code == 302
    assert Incident.objects.get().fleet == second


@pytest.mark.parametrize("name", sorted(policy.POLICY))
def test_a_stranger_is_led_to_the_sign_in_page(client: Client, incident: Incident, name: str) -> None:
    path = reverse(name, kwargs=arguments(name, incident))
    for method in acts(name):
        answer = client.generic(method, path)
        assert answer.status_code == 302
        assert answer["Location"].startswith(reverse("sign_in"))


def test_a_route_that_nobody_listed_is_refused_to_everybody(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    client.force_login(User.objects.create(username="root", is_superuser=True))
    assert client.get(reverse("fleet", args=["main"])).status_code == 200
    monkeypatch.delitem(policy.POLICY, "fleet")
    assert client.get(reverse("fleet", args=["main"])).status_code == 403


def test_roles_include_each_other_and_a_disabled_person_has_none() -> None:
    for i, role in enumerate(policy.ROLES):
        assert [policy.has(role, least) for least in policy.ROLES] == [j <= i for j in range(4)]
    assert not policy.has(None, "viewer")
    gone = person("gone", "admin", is_active=False)
    assert people.role_in(gone, main()) is None
    assert people.best_role(gone) is None
    assert people.fleets(gone) == []


def test_nobody_is_shown_a_button_that_is_refused(client: Client, incident: Incident) -> None:
    client.force_login(person("vic", "viewer"))
    pages = ("fleet", "incidents", "incident")
    shown = "".join(client.get(reverse(name, kwargs=arguments(name, incident))).content.decode() for name in pages)
    for action in ("add_nodes", "check_fleet", "declare", "advance", "take_command"):
        assert reverse(action, kwargs=arguments(action, incident)) not in shown


def test_a_person_is_made_with_a_role_given_another_and_taken_out() -> None:
    out = io.StringIO()
    call_command("person", "sam", stdout=out)
    assert "sam is responder in main, made just now." in out.getvalue()
    call_command("person", "sam", "--role", "commander", stdout=out)
    assert people.role_in(User.objects.get(username="sam"), main()) == "commander"
    call_command("fleet", "new", "second", stdout=out)
    with pytest.raises(CommandError, match=r"several fleets: say --fleet NAME\. Fleets: main, second\."):
        call_command("person", "sam", stdout=out)
    call_command("person", "sam", "--fleet", "second", "--role", "viewer", stdout=out)
    call_command("person", stdout=out)
    assert "sam  commander in main, viewer in second" in out.getvalue()
    call_command("person", "sam", "--fleet", "main", "--role", "none", stdout=out)
    assert [fleet.name for fleet in people.fleets(User.objects.get(username="sam"))] == ["second"]
    with pytest.raises(CommandError, match="not a user name"):
        call_command("person", "sam; rm -rf", "--fleet", "main", stdout=out)
    with pytest.raises(CommandError, match="There is no fleet nowhere"):
        call_command("person", "sam", "--fleet", "nowhere", stdout=out)


def test_a_person_in_no_fleet_is_told_whom_to_ask(client: Client) -> None:
    client.force_login(person("new", None))
    assert client.get("/", follow=True).status_code == 200
    page = client.get(reverse("fleets")).content.decode()
    assert "You are in no fleet yet" in page
    assert client.get(reverse("declare")).status_code == 403


def test_every_socket_is_in_the_table_and_the_table_has_no_other() -> None:
    named = {pattern.name for pattern in websocket_urlpatterns if getattr(pattern, "name", None)}
    assert named == set(policy.SOCKETS)


def test_a_responder_declares_on_nodes_of_the_fleet_and_adds_none(client: Client) -> None:
    add_nodes(main(), "gpu-001", Login(), None)
    client.force_login(person("pat", "responder"))
    refused = client.post(reverse("declare"), {"what": "root@gpu-002:2222", "severity": "2"})
    assert refused.status_code == 422
    page = refused.content.decode()
    assert "gpu-002: no job that is known here, and no node of fleet main." in page
    assert "ask a commander to add nodes" in page
    assert [node.name for node in main().nodes.all()] == ["gpu-001"]
    assert client.post(reverse("declare"), {"what": "gpu-001", "severity": "2"}).status_code == 302
    forced = client.post(reverse("declare"), {"what": "gpu-001,gpu-002", "severity": "2", "add": "yes"})
    assert (forced.status_code, main().nodes.count()) == (422, 1)


def test_a_slip_is_asked_about_before_it_becomes_a_node(client: Client) -> None:
    add_nodes(main(), "gpu-001", Login(), None)
    client.force_login(person("cam", "commander"))
    said = {"what": "gpu-001,gpu-0o2", "severity": "2"}
    asked = client.post(reverse("declare"), said)
    assert asked.status_code == 422
    assert "Add and declare" in asked.content.decode()
    assert (Incident.objects.count(), main().nodes.count()) == (0, 1)
    assert client.post(reverse("declare"), {**said, "add": "yes"}).status_code == 302
    assert [node.name for node in Incident.objects.get().nodes.all()] == ["gpu-001", "gpu-0o2"]
    again = client.post(reverse("declare"), said, follow=True).content.decode()
    assert "is open too, on 2 of its nodes." in again


def test_a_form_that_was_open_while_fleets_changed_acts_in_no_other_fleet(client: Client) -> None:
    pat = person("pat", "commander")
    client.force_login(pat)
    answer = client.post(reverse("declare"), {"what": "gpu-001", "severity": "2", "fleet": "gone"})
    assert answer.status_code == 422
    assert "You may not declare in this fleet" in answer.content.decode()
    Fleet.objects.create(name="second").memberships.create(user=pat, role="commander")
    answer = client.post(reverse("declare"), {"what": "gpu-001", "severity": "2"})
    assert answer.status_code == 422
    assert "Say in which fleet." in answer.content.decode()
    assert not Incident.objects.exists()


def test_the_page_of_fleets_counts_nodes_and_open_incidents(client: Client, incident: Incident) -> None:
    pat = person("pat", "viewer")
    Fleet.objects.create(name="second").memberships.create(user=pat, role="viewer")
    client.force_login(pat)
    page = " ".join(client.get(reverse("fleets")).content.decode().split())
    assert "1 node<" in page and "1 open incident<" in page
    assert "0 nodes<" in page and "no open incident" in page


@pytest.mark.parametrize("name", sorted(policy.POLICY))
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"])
def test_a_method_that_the_table_does_not_know_never_reaches_the_view(
    client: Client, incident: Incident, monkeypatch: pytest.MonkeyPatch, name: str, method: str
) -> None:
    """The view itself is replaced by one that would answer anybody."""
    client.force_login(person("root", "admin"))
    if policy.least_for(name, method) is not None:
        return
    pattern = next(pattern for pattern in routes() if pattern.name == name)
    monkeypatch.setattr(pattern, "callback", lambda request, **place: HttpResponse("reached"))
    get_resolver()._populate()  # type: ignore[attr-defined]
    answer = client.generic(method, reverse(name, kwargs=arguments(name, incident)))
    assert answer.status_code == 405


def test_nothing_changes_by_a_get(client: Client, incident: Incident) -> None:
    client.force_login(person("root", "admin"))
    add_nodes(main(), "gpu-002", Login(), None)
    before = (Incident.objects.get().last_seq, Incident.objects.get().commander, main().nodes.count())
    for name in sorted(policy.POLICY):
        if policy.least_for(name, "POST") not in (None, policy.ANYBODY):
            client.get(reverse(name, kwargs=arguments(name, incident)))
    assert (Incident.objects.get().last_seq, Incident.objects.get().commander, main().nodes.count()) == before


def test_a_role_that_nobody_knows_is_refused_by_the_database() -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        person("odd", "emperor")


def test_taking_somebody_out_who_is_not_there_makes_nobody() -> None:
    with pytest.raises(CommandError, match="There is no user samm"):
        call_command("person", "samm", "--role", "none")
    assert not User.objects.filter(username="samm").exists()
