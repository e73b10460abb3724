"""What the user's SSH configuration says about one node, and which of its lines are not honoured.

AsyncSSH skips options it does not know without a word. A `ProxyJump` or `Port` that is honoured beside an option
that is not would surprise at 3 am, so the skipped ones are listed.
"""

from __future__ import annotations

import glob
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from asyncssh.config import SSHClientConfig

CONFIG_FILES = ("~/.ssh/config", "/etc/ssh/ssh_config")

# Options that change nothing here: about terminals, multiplexing, escapes, hashing of a file we do not write.
_HARMLESS = frozenset(
    """addkeystoagent batchmode channeltimeout checkhostip clearallforwardings controlmaster controlpath controlpersist
    dynamicforward enableescapecommandline escapechar exitonforwardfailure fingerprinthash forkafterauthentication
    forwardx11 forwardx11timeout gatewayports hashknownhosts ignoreunknown ipqos localcommand localforward loglevel
    logverbose nohostauthenticationforlocalhost numberofpasswordprompts obscurekeystroketiming permitlocalcommand
    remotecommand remoteforward requesttty sessiontype stdinnull streamlocalbindmask streamlocalbindunlink
    syslogfacility tunnel tunneldevice updatehostkeys visualhostkey xauthlocation""".split()  # noqa: SIM905
)
_WEAKENING = {
    "stricthostkeychecking": "host keys are always checked strictly here",
}


def readable(files: Iterable[str] = CONFIG_FILES) -> list[str]:
    """The configuration files that exist, expanded, in OpenSSH's order (the user's own first)."""
    return [str(path) for name in files if _can_be_read(path := Path(name).expanduser())]


def _can_be_read(path: Path) -> bool:
    try:
        with path.open():
            return True
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class Ignored:
    """One option of a configuration file that has no effect here; line 0 stands for the whole file."""

    path: str
    line: int
    option: str
    why: str

    def __str__(self) -> str:
        if not self.line:
            return f"{self.path}: {self.why}"
        return f"{self.path}:{self.line}: {self.option} is not honoured: {self.why}"


def ignored_options(files: Sequence[str], depth: int = 0) -> list[Ignored]:
    """Every option in these files, and those they include, that AsyncSSH does not know and that could matter."""
    known = set(SSHClientConfig._handlers)
    found: list[Ignored] = []
    for name in files:
        try:
            lines = Path(name).read_text(errors="replace").splitlines()
        except OSError as error:
            found.append(Ignored(name, 0, "", f"cannot be read: {error.strerror}"))
            continue
        for number, line in enumerate(lines, 1):
            words = _words(line)
            if not words:
                continue
            option = words[0].lower()
            if option == "include" and depth < 8:
                found += ignored_options(_included(words[1:], name), depth + 1)
            elif option in _WEAKENING and words[-1].lower() not in ("yes", "ask"):
                found.append(Ignored(name, number, words[0], _WEAKENING[option]))
            elif option not in known and option not in _HARMLESS and option not in _WEAKENING:
                found.append(Ignored(name, number, words[0], "the SSH library does not know it"))
    return found


def _words(line: str) -> list[str]:
    """[option, argument...]; `Option value` and `Option=value` are the same, ssh_config(5)."""
    line = line.strip()
    if not line or line.startswith("#"):
        return []
    option = re.split(r"[\s=]", line, maxsplit=1)[0]
    rest = line[len(option) :].lstrip().removeprefix("=")
    try:
        return [option, *shlex.split(rest)]
    except ValueError:
        return [option, rest]


def _included(patterns: Iterable[str], parent: str) -> list[str]:
    found: list[str] = []
    for pattern in patterns:
        path = Path(pattern).expanduser()
        base = path if path.is_absolute() else Path(parent).parent / path
        found += sorted(glob.glob(str(base)))
    return found
