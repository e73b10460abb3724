"""The real supervisor in a folder of its own: its own port, database, broker socket and secret key."""

from __future__ import annotations

import http.cookiejar
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import psutil

from tests.support.wait import until

BASE = Path(__file__).resolve().parent.parent.parent
READY = re.compile(r"^Golden15 is ready: (http://\S+)$")
OURS = ("GOLDEN15_", "DATABASE_URL", "REDIS_URL", "DJANGO_", "PYTEST_", "PORT", "HOST", "CELERY_", "MAKE", "MFLAGS")


def clean_environment() -> dict[str, str]:
    """This process's environment without anything that Golden15 or pytest reads."""
    return {name: value for name, value in os.environ.items() if not name.startswith(OURS)}


def processes_of(data: Path) -> list[psutil.Process]:
    """Every living process that was started with this data folder, however it was orphaned."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            # The broker writes its title over its environment.
            by_environment = process.environ().get("GOLDEN15_DATA") == str(data)
            if by_environment or any(str(data) in argument for argument in process.cmdline()):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


class Golden15:
    """A started supervisor. `lines` grows as it prints."""

    def __init__(self, data: Path, **env: str) -> None:
        self.data = data
        self.env = {**clean_environment(), "PORT": "0", "HOST": "127.0.0.1", "GOLDEN15_DATA": str(data), **env}
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "config", "up"],
            cwd=BASE,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    @property
    def output(self) -> str:
        return "\n".join(self.lines)

    def wait_for(self, pattern: str, seconds: float = 60) -> re.Match[str]:
        """The first line that matches. Fails with the whole output, at once when the supervisor has ended."""

        def found() -> re.Match[str] | None:
            ended = self.process.poll() is not None
            if ended:
                self._reader.join(5)
            match = next((m for line in list(self.lines) if (m := re.search(pattern, line))), None)
            assert match or not ended, f"it ended without a line like {pattern!r}:\n{self.output}"
            return match

        match = until(found, seconds, f"a line like {pattern!r} in:\n{self.output}")
        assert match is not None
        return match

    def wait_ready(self, seconds: float = 60) -> str:
        """The one-time sign-in link."""
        return self.wait_for(READY.pattern, seconds).group(1)

    @property
    def url(self) -> str:
        return self.wait_ready().split("/sign-in/")[0]

    def fresh_link(self, user: str = "admin") -> str:
        """A new sign-in link, from the command that people use."""
        command = [sys.executable, "manage.py", "sign_in_link", user]
        done = subprocess.run(command, cwd=BASE, env=self.env, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout.strip()

    def part(self, name: str) -> psutil.Process:
        """The main process of a part: a child of the supervisor whose command line tells it."""
        word = {"broker": "server", "web": "config.web", "worker": "celery", "sweeper": "sweeper"}[name]

        def found() -> psutil.Process | None:
            children = psutil.Process(self.process.pid).children()
            try:
                return next((child for child in children if any(word in a for a in child.cmdline())), None)
            except psutil.Error:  # one ended while we looked
                return None

        process = until(found, 20, f"a {name} process")
        assert process is not None
        return process

    def stop(self, number: int = signal.SIGINT) -> int:
        """Stop it as a Ctrl-C does; the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(60)
        self._reader.join(10)
        return status

    def kill_all(self) -> None:
        """Last resort at the end of a test: nothing of it may reach the next."""
        self.stop_quietly()
        for process in processes_of(self.data):
            process.kill()
        self.process.wait(10)
        self._reader.join(10)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def stop_quietly(self) -> None:
        try:
            self.stop()
        except subprocess.TimeoutExpired:
            self.process.kill()


class Visitor:
    """A browser without JavaScript: it keeps cookies and follows redirects."""

    def __init__(self) -> None:
        cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        self.opener = urllib.request.build_opener(cookies, urllib.request.ProxyHandler({}))

    def get(self, url: str) -> tuple[int, str, str]:
        """Status, final address and text."""
        try:
            with self.opener.open(url, timeout=20) as answer:
                return answer.status, answer.url, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.url or url, error.read().decode()
