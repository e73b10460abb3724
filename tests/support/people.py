"""People of a running Golden15, made with the command that administrators use."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

from tests.support.server import BASE, Golden15


def manage(server: Golden15, *arguments: str) -> str:
    """What a management command of that server prints."""
    command = [sys.executable, "manage.py", *arguments]
    done = subprocess.run(command, cwd=BASE, env=server.env, check=True, timeout=60, capture_output=True, text=True)
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
    page.get_by_role("button", name="Declare").click()
    page.wait_for_url(re.compile(r"/incidents/\d+$"))
    return str(page.url)
