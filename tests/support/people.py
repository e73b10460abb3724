"""People of a running Golden15, made with the command that administrators use."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

from playwright.sync_api import expect

from tests.support.server import BASE, Golden15


def manage(server: Golden15, *arguments: str) -> str:
    """What a management command of that server prints."""
    command = [sys.executable, "manage.py", *arguments]
    done = subprocess.run(command, cwd=BASE, env=server.env, timeout=60, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(arguments)[:200]}: {done.stderr[-2000:]}"
    return done.stdout


def sign_in(page: Any, server: Golden15, name: str, role: str) -> Any:
    """Signs a person of this role in on a page, and makes them first if need be."""
    manage(server, "person", name, "--role", role)
    page.goto(server.fresh_link(name))
    return page


def declared(page: Any, what: str = "nowhere-[1-2]") -> str:
    """Declares an incident on nodes that nobody can reach; its address, which the page is at."""
    page.goto("/incidents/declare")
    page.get_by_label("Which job, or which nodes?").fill(what)
    with page.expect_response(lambda answer: answer.request.method == "POST") as told:
        page.get_by_role("button", name="Declare", exact=True).click()
    if told.value.status == 422:  # the server's fleet has other nodes by now: whether these are a slip is asked
        page.get_by_role("button", name="Add and declare").click()
        page.troubles[:] = [one for one in page.troubles if "422" not in one]
    page.wait_for_url(re.compile(r"/incidents/\d+$"))
    return str(page.url)


class Changed:
    """From now on every answer to this page says that one slot of an incident changed."""

    def __init__(self, page: Any, slot: str) -> None:
        self.page, self.slot = page, slot
        page.route("**/after*", self.answer)

    def answer(self, route: Any) -> None:
        answer = route.fetch()
        news = json.loads(answer.text())
        if news["html"]:
            news["html"][self.slot] += "<p data-changed>changed</p>"
        route.fulfill(response=answer, json=news)

    def ring(self, other: Any) -> None:
        """Something happens, by another page's note; returns when this page shows it."""
        other.get_by_label("Note", exact=True).fill("something happens")
        other.get_by_label("Note", exact=True).press("Enter")
        expect(self.page.locator("[data-changed]")).to_have_count(1)
