"""Which host keys are trusted: the known_hosts files of the SSH configuration, and the keys a person accepted.

Strict, always. `StrictHostKeyChecking no`, `accept-new` and `UserKnownHostsFile none` in a configuration do not
weaken it: AsyncSSH reads the last as "check nothing", so the lists are read here and never left to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import asyncssh
from asyncssh.public_key import get_default_certificate_algs, get_default_public_key_algs

USER_FILES = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
GLOBAL_FILES = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")


class TrustedKeys:
    """Lookup of host keys over several known_hosts files and extra lines. What cannot be read is told in `problems`."""

    def __init__(self, files: Iterable[str] = (*USER_FILES, *GLOBAL_FILES), lines: str = ""):
        self.problems: list[str] = []
        self._lists: list[Any] = []
        for name in files:
            path = Path(name).expanduser()
            try:
                if path.is_file():
                    self._read(str(path), path.read_text(errors="replace"))
            except OSError as error:
                self.problems.append(f"{path}: {error.strerror}. The keys in it are not trusted.")
        self._read("accepted keys", lines)

    def _read(self, name: str, text: str) -> None:
        """One bad line must not take the rest with it, its @revoked lines least of all."""
        try:
            self._lists.append(asyncssh.import_known_hosts(text))
        except ValueError:
            for number, line in enumerate(text.splitlines(), 1):
                try:
                    self._lists.append(asyncssh.import_known_hosts(line))
                except ValueError as error:
                    self.problems.append(f"{name}:{number}: {error}. This line is not used.")

    def match(self, host: str, address: str, port: int | None) -> tuple[list[Any], ...]:
        """(trusted, CA, revoked, ...) keys for a host, in the order that asyncssh's known_hosts callable returns."""
        merged: tuple[list[Any], ...] = ([], [], [], [], [], [], [])
        for known in self._lists:
            for collected, found in zip(merged, asyncssh.match_known_hosts(known, host, address, port), strict=True):
                collected.extend(found)
        return merged

    def algorithms(self, options: Any) -> Any:
        """Host key algorithms to ask for: those of the known keys first, then all others.

        Asking for the known ones alone would turn a node whose key type changed into a lost connection without a word.
        A configuration with HostKeyAlgorithms is left as it is.
        """
        if options.config.get("HostKeyAlgorithms"):
            return ()
        name = options.host_key_alias or options.host
        trusted, authorities, *_ = self.match(name, "", options.port if options.port != 22 else None)
        known = [algorithm.decode() for key in trusted for algorithm in key.sig_algorithms]
        certified = [algorithm.decode() for algorithm in get_default_certificate_algs()] if authorities else []
        rest = [algorithm.decode() for algorithm in get_default_public_key_algs()]
        return list(dict.fromkeys([*certified, *known, *rest]))


def listed_keys(hashed: str, names: Iterable[str], port: int) -> set[str]:
    """Public keys (base64) that hashed known_hosts lines (`|1|salt|hash key`) hold for any of these names."""
    known = TrustedKeys((), hashed)
    found = [key for name in names for key in known.match(name, "", None if port == 22 else port)[0]]
    return {key.export_public_key("openssh").decode().split()[1] for key in found}


def fingerprint(key: Any) -> str:
    """`SHA256:...` as ssh-keygen -l prints it."""
    return str(key.get_fingerprint("sha256"))


def known_hosts_line(name: str, port: int, key: Any) -> str:
    """One known_hosts line (sshd(8)) that trusts `key` for `name`; the port is in brackets unless it is 22."""
    public = key.export_public_key("openssh").decode().split()
    host = name if port in (0, 22) else f"[{name}]:{port}"
    return f"{host} {public[0]} {public[1]}\n"
