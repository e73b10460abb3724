"""Why a node gave no answer, in plain words, and what to do next. One closed list for command, page and tests."""

from __future__ import annotations

import asyncio
import errno
import socket
from dataclasses import dataclass

import asyncssh
from asyncssh.packet import PacketDecodeError

from probes.core import Outcome, clean


@dataclass(frozen=True, slots=True)
class Reason:
    """`outcome` of every probe that was not answered; `says` what happened; `next` what a person does about it."""

    outcome: Outcome
    says: str
    next: str


REASONS: dict[str, Reason] = {
    "name_not_found": Reason("unreachable", "name not found", "check the spelling, DNS, or give the node an address"),
    "refused": Reason(
        "unreachable", "connection refused", "start sshd there, or correct the port; the machine itself is up"
    ),
    "no_route": Reason("unreachable", "no route to the node", "check the network, or set a jump host"),
    "connect_timeout": Reason(
        "unreachable",
        "no answer to the connection",
        "see whether the node has power and network; a firewall may drop the packets",
    ),
    "no_ssh": Reason("unreachable", "something answers, but it is not an SSH server", "check address and port"),
    "sshd_silent": Reason(
        "unreachable",
        "connected, but the SSH server says nothing",
        "the node is overloaded or hung: use its console or BMC",
    ),
    "sshd_busy": Reason(
        "unreachable",
        "its SSH server closed the connection at once",
        "it is alive: raise MaxStartups there, or read its sshd's log",
    ),
    "key_refused": Reason(
        "denied",
        "the node refused our SSH key",
        "put our public key into authorized_keys of this user, set the user, or load the key into ssh-agent",
    ),
    "no_key": Reason(
        "denied",
        "we have no SSH key to offer",
        "name an IdentityFile in the SSH configuration, or start Golden15 where an ssh-agent runs",
    ),
    "host_key_unknown": Reason(
        "unreachable", "host key not accepted yet", "compare the fingerprint, then accept it on the Fleet page"
    ),
    "host_key_changed": Reason(
        "unreachable",
        "HOST KEY CHANGED",
        "the node was reinstalled or somebody is in between: find out which before you accept the new key",
    ),
    "no_common_algorithm": Reason(
        "unreachable",
        "no SSH algorithm in common",
        "allow curve25519-sha256 and ssh-ed25519 on the node; sntrup761 alone is not supported",
    ),
    "jump_failed": Reason(
        "unreachable",
        "the jump host did not let us through",
        "check the jump host first; to accept its key, add it to the fleet",
    ),
    "bad_config": Reason(
        "unreachable", "the SSH configuration cannot be used", "mend what is named here in the SSH configuration"
    ),
    "shell_hung": Reason(
        "timeout",
        "logged in, but the shell never started python3",
        "the home directory or the shell's start-up file hangs: look from the console",
    ),
    "no_python": Reason(
        "failed",
        "no python3 on the node",
        "install python3 (3.6 or later), or add it to PATH for non-interactive shells",
    ),
    "python_failed": Reason(
        "failed", "python3 on the node could not run the probes", "see what it said; Python 3.6 or later is needed"
    ),
    "login_closed": Reason(
        "failed",
        "logged in, but the login ended at once",
        "check the user's shell, its start-up file and forced commands",
    ),
    "flood": Reason(
        "failed",
        "it prints without end, so the connection was closed",
        "look at its login banner and shell start-up file",
    ),
    "lost": Reason(
        "unreachable",
        "the connection was lost during the run",
        "ask again; if it happens again the node may be going down",
    ),
    "deadline": Reason(
        "timeout", "not finished within the deadline", "the node is slow or hung: see which probes answered"
    ),
    "no_answer": Reason(
        "failed", "the node left this probe out", "ask again; if it stays, report it with the node's Python version"
    ),
    "run_deadline": Reason("skipped", "not asked: the run's time was over", "ask again, with fewer nodes or more time"),
    "not_recorded": Reason(
        "unreachable",
        "the recording holds no answer of this node",
        "nothing: in a drill no real node is asked",
    ),
    "asker_lost": Reason(
        "skipped", "not known: whoever was asking died", "ask again; if it stays, see the worker's log"
    ),
}


# Reasons for which it helps to see which user, address and port were tried.
ABOUT_THE_ADDRESS = frozenset(
    ("refused", "no_route", "connect_timeout", "no_ssh", "sshd_silent", "sshd_busy", "key_refused", "no_key")
)


class Trouble(Exception):
    """A node could not be asked. `reason` is a key of REASONS, `detail` what the other side said."""

    def __init__(self, reason: str, detail: str = ""):
        self.reason = reason
        self.detail = " ".join(clean(detail).split())[:300]
        super().__init__(sentence(reason, self.detail))


def sentence(reason: str, detail: str = "") -> str:
    """What failed and what to do next, as one line for people."""
    known = REASONS[reason]
    said = f" ({detail})" if detail else ""
    return f"{known.says}{said}: {known.next}"


def trouble_of(error: BaseException, key_known: bool = False) -> Trouble:
    """The Trouble behind whatever asyncssh or the socket raised while connecting.

    `key_known`: an accepted host key exists for this node, so a key that does not fit has changed.
    """
    if isinstance(error, Trouble):
        return error
    text = str(error) or type(error).__name__
    if isinstance(error, socket.gaierror):
        return Trouble("name_not_found", error.strerror or text)
    if isinstance(error, asyncssh.HostKeyNotVerifiable):
        return Trouble("host_key_changed" if key_known else "host_key_unknown")
    if isinstance(error, asyncssh.PermissionDenied):
        return Trouble("key_refused")
    if isinstance(error, asyncssh.KeyExchangeFailed):
        changed = key_known and "host key" in text.lower()
        return Trouble("host_key_changed" if changed else "no_common_algorithm", text)
    if isinstance(error, asyncssh.ConfigParseError | asyncssh.KeyImportError):
        return Trouble("bad_config", text)
    if isinstance(error, asyncssh.ChannelOpenError):
        return _trouble_behind_jump(text)
    if isinstance(error, asyncssh.ProtocolNotSupported | asyncssh.ProtocolError | PacketDecodeError):
        return Trouble("no_ssh", text)
    if isinstance(error, asyncssh.ConnectionLost | ConnectionResetError | BrokenPipeError):
        return Trouble("sshd_busy")
    if isinstance(error, asyncssh.DisconnectError):
        return Trouble("lost", text)
    return _trouble_of_socket(error, text)


def _trouble_of_socket(error: BaseException, text: str) -> Trouble:
    if isinstance(error, ConnectionRefusedError):
        return Trouble("refused")
    if isinstance(error, asyncio.TimeoutError | TimeoutError):
        return Trouble("connect_timeout")
    if isinstance(error, OSError) and error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return Trouble("no_route", error.strerror or text)
    if isinstance(error, OSError) and "Multiple exceptions" in text:  # asyncio tried several addresses
        return Trouble("refused" if text.count("[Errno 111]") else "no_route", text[:200])
    if isinstance(error, OSError) and error.filename:
        return Trouble("bad_config", f"{error.filename}: {error.strerror}")
    if isinstance(error, OSError | ValueError):
        return Trouble("bad_config", f"{type(error).__name__}: {text}")
    return Trouble("lost", f"{type(error).__name__}: {text}")


def _trouble_behind_jump(text: str) -> Trouble:
    """What the jump host's sshd said about the node, in the words of connect(2)."""
    said = text.lower()
    if "refused" in said:
        return Trouble("refused", "seen from the jump host")
    if "timed out" in said:
        return Trouble("connect_timeout", "seen from the jump host")
    if "name or service" in said or "resolve" in said:
        return Trouble("name_not_found", "seen from the jump host")
    if "route" in said or "unreachable" in said:
        return Trouble("no_route", "seen from the jump host")
    return Trouble("jump_failed", text)
