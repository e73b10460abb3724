"""Signing in: a link that works once, a password for those who have one, and nothing without either."""

import re
import threading
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO

import pytest
from django.contrib.auth import get_user
from django.core.management import CommandError, call_command
from django.db import connections
from django.http import HttpRequest, HttpResponse
from django.test import Client, override_settings
from django.urls import URLPattern, URLResolver, get_resolver, path, reverse
from django.utils import timezone

from incidents import policy
from incidents.models import SignInToken, User
from incidents.services.sign_in import LinkRefused, Refusal, issue_first_link, issue_link, redeem

pytestmark = [pytest.mark.django_db, pytest.mark.database]


@pytest.fixture
def user() -> User:
    return User.objects.create_user("ada", password="a long enough password")


def open_link(client: Client, token: str) -> HttpResponse:
    return client.get(reverse("sign_in_link", args=[token]))


def test_a_link_signs_its_user_in(client: Client, user: User) -> None:
    answer = open_link(client, issue_link(user))
    assert (answer.status_code, answer["Location"]) == (302, "/")
    assert client.get("/", follow=True).redirect_chain == [("/fleet/", 302)]
    assert get_user(client).username == "ada"  # type: ignore[arg-type]


def test_a_link_works_once(client: Client, user: User) -> None:
    token = issue_link(user)
    open_link(client, token)
    answer = open_link(Client(), token)
    assert answer.status_code == 403
    assert "used already" in answer.content.decode()
    assert "make sign-in" in answer.content.decode()


def test_the_same_link_again_in_the_signed_in_browser_just_goes_on(client: Client, user: User) -> None:
    token = issue_link(user)
    open_link(client, token)
    answer = open_link(client, token)
    assert (answer.status_code, answer["Location"]) == (302, "/")


def test_a_link_is_refused_after_15_minutes_and_not_before(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    issued = timezone.now()
    monkeypatch.setattr(timezone, "now", lambda: issued)
    early, late = issue_link(user), issue_link(user)
    monkeypatch.setattr(timezone, "now", lambda: issued + timedelta(minutes=14, seconds=59))
    assert redeem(early) == user
    monkeypatch.setattr(timezone, "now", lambda: issued + timedelta(minutes=15))
    with pytest.raises(LinkRefused) as refused:
        redeem(late)
    assert refused.value.reason is Refusal.EXPIRED


@pytest.mark.parametrize("token", ["x", "a" * 43, "é" * 20, "-" * 5000, "%00", "%ED%A0%80"])
def test_an_unknown_link_is_refused_politely(client: Client, token: str) -> None:
    answer = client.get(f"/sign-in/{token}")
    assert answer.status_code == 403
    assert "not known" in answer.content.decode()


def test_a_link_of_a_switched_off_account_is_refused(client: Client, user: User) -> None:
    token = issue_link(user)
    User.objects.filter(pk=user.pk).update(is_active=False)
    assert open_link(client, token).status_code == 403
    assert not get_user(client).is_authenticated  # type: ignore[arg-type]


def test_the_database_never_holds_a_usable_token(user: User) -> None:
    token = issue_link(user)
    row = SignInToken.objects.values_list().get()
    assert token not in repr(row)
    with pytest.raises(LinkRefused):
        redeem(SignInToken.objects.get().digest)


def test_signing_in_gives_the_browser_a_new_session(client: Client, user: User) -> None:
    before = client.session
    before["planted"] = "by somebody else"
    before.save()
    client.cookies["golden15_session"] = before.session_key
    open_link(client, issue_link(user))
    assert client.cookies["golden15_session"].value != before.session_key


def test_old_links_are_forgotten_when_a_new_one_is_made(user: User) -> None:
    issue_link(user)
    SignInToken.objects.update(created=timezone.now() - timedelta(days=3), expires=timezone.now() - timedelta(days=2))
    issue_link(user)
    assert SignInToken.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_of_two_browsers_at_once_only_one_gets_in(user: User) -> None:
    token = issue_link(user)
    outcomes: list[str] = []
    together = threading.Barrier(8)

    def attempt() -> None:
        together.wait(10)
        try:
            outcomes.append(redeem(token).username)
        except LinkRefused as refused:
            outcomes.append(refused.reason.value)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=attempt) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(outcomes) == ["ada", *["used"] * 7]


def test_the_first_link_makes_one_administrator_without_a_password() -> None:
    redeem(issue_first_link())
    issue_first_link()
    admin = User.objects.get()
    assert (admin.username, admin.is_superuser, admin.has_usable_password()) == ("admin", True, False)


def test_the_command_prints_a_link_that_works(client: Client, user: User) -> None:
    out = StringIO()
    call_command("sign_in_link", "ada", stdout=out)
    found = re.fullmatch(r"http://127\.0\.0\.1:8000/sign-in/([\w-]{43})\n", out.getvalue())
    assert found, out.getvalue()
    assert redeem(found[1]) == user


def test_the_command_says_when_there_is_no_such_person() -> None:
    with pytest.raises(CommandError, match=r"There is no active user 'nobody'\."):
        call_command("sign_in_link", "nobody")


def test_a_password_signs_in_and_leads_to_where_one_wanted_to_go(client: Client, user: User) -> None:
    wanted = client.get("/fleet/")
    assert wanted["Location"] == "/sign-in/?next=/fleet/"
    form = {"username": "ada", "password": "a long enough password", "next": "/fleet/"}
    answer = client.post("/sign-in/", form)
    assert (answer.status_code, answer["Location"]) == (302, "/fleet/")


def test_a_wrong_password_is_said_without_telling_which_part_was_wrong(client: Client, user: User) -> None:
    texts = []
    for name in ("ada", "nobody"):
        answer = client.post("/sign-in/", {"username": name, "password": "wrong"})
        assert answer.status_code == 200
        text = re.sub(r'name="csrfmiddlewaretoken" value="\w+"', "", answer.content.decode())
        texts.append(text.replace(f'value="{name}"', ""))
    assert "do not match" in texts[0]
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    "target", ["//evil.example/", "https://evil.example/", "/\\evil.example", "javascript:alert(1)"]
)
def test_signing_in_never_leads_to_another_site(client: Client, user: User, target: str) -> None:
    form = {"username": "ada", "password": "a long enough password", "next": target}
    assert client.post("/sign-in/", form)["Location"] == "/"


def test_signing_out_needs_a_form_and_ends_the_session(client: Client, user: User) -> None:
    client.force_login(user)
    assert client.get("/sign-out/").status_code == 405
    assert client.post("/sign-out/")["Location"] == "/sign-in/"
    assert client.get("/fleet/").status_code == 302


def every_address(resolver: URLResolver, prefix: str = "/") -> Iterator[str]:
    """Every address of the site, parameters filled with something."""
    for pattern in resolver.url_patterns:
        route = prefix + re.sub(r"<int:\w+>", "1", re.sub(r"<(?!int)[^>]+>", "x", str(pattern.pattern)))
        if isinstance(pattern, URLResolver):
            yield from every_address(pattern, route)
        elif isinstance(pattern, URLPattern):
            yield route.replace("//", "/")


def test_every_page_but_the_few_public_ones_asks_for_a_sign_in(client: Client) -> None:
    public = {"/sign-in/", "/sign-in/x", "/healthz"}
    addresses = set(every_address(get_resolver()))
    assert public < addresses
    assert "/alerts/x" in addresses  # lets in by a token of its own, see test_alerts
    for address in sorted(addresses - public - {"/alerts/x"}):
        for answer in (client.get(address), client.post(address)):
            assert answer.status_code == 302, address
            assert answer["Location"].startswith("/sign-in/"), address


def test_cookies_are_out_of_reach_of_scripts_and_other_sites(client: Client, user: User) -> None:
    open_link(client, issue_link(user))
    cookie = client.cookies["golden15_session"]
    assert (cookie["httponly"], cookie["samesite"], cookie["secure"]) == (True, "Lax", "")


def test_every_page_says_that_nothing_inline_and_nothing_foreign_may_run(client: Client) -> None:
    answer = client.get("/sign-in/")
    policy = dict(part.strip().split(" ", 1) for part in answer["Content-Security-Policy"].split(";"))
    for directive in ("default-src", "frame-ancestors", "base-uri", "object-src"):
        assert policy[directive] == "'none'"
    for directive in ("script-src", "style-src", "form-action", "connect-src"):
        assert policy[directive] == "'self'"
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", answer.content.decode())
    assert answer["X-Frame-Options"] == "DENY"
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Referrer-Policy"] == "same-origin"


def test_a_foreign_host_name_is_refused(client: Client) -> None:
    assert client.get("/sign-in/", headers={"host": "evil.example"}).status_code == 400


def test_a_form_without_its_token_is_told_to_reload(user: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(user)
    answer = client.post("/sign-out/")
    assert answer.status_code == 403
    assert "Nothing was changed." in answer.content.decode()
    assert client.get("/fleet/").status_code == 200


def broken(request: HttpRequest) -> HttpResponse:
    raise RuntimeError("as a bug would")


class BrokenSite:
    urlpatterns = [path("broken", broken, name="broken")]
    handler500 = "incidents.views.errors.server_error"


def test_a_bug_shows_a_plain_page_without_details(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(policy.POLICY, "broken", (policy.MEMBER, None))  # the broken page is in no table
    client = Client(raise_request_exception=False)
    client.force_login(user)
    with override_settings(ROOT_URLCONF=BrokenSite):
        answer = client.get("/broken")
    assert answer.status_code == 500
    text = answer.content.decode()
    assert "The fault is in the server" in text
    assert "as a bug would" not in text


def test_an_unknown_page_is_plain_for_everybody(client: Client, user: User) -> None:
    assert "There is no such page" in client.get("/no/such/page").content.decode()
    client.force_login(user)
    answer = client.get("/no/such/page")
    assert answer.status_code == 404
    assert "There is no such page" in answer.content.decode()


def test_health_is_503_without_a_database(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from django.db import OperationalError
    from django.db.backends.utils import CursorWrapper

    answer = client.get("/healthz")
    # No broker runs beside these tests: pages work without it, so that is told but no failure.
    assert (answer.status_code, answer.json()) == (200, {"database": "ok", "broker": "no answer"})

    def fail(*args: object) -> None:
        raise OperationalError("disk I/O error")

    monkeypatch.setattr(CursorWrapper, "execute", fail)
    answer = client.get("/healthz")
    assert (answer.status_code, answer.json()["database"]) == (503, "no answer")
