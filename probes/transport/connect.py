"""Connections to nodes: through jump hosts, with strict host keys, a few new ones at a time per sshd.

New connections to one sshd are made a few at a time and tried again when they are turned away (MaxStartups): that is
our doing, not a dead node.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import asyncssh

from probes.transport import trust
from probes.transport.reasons import ABOUT_THE_ADDRESS, Trouble, trouble_of
from probes.transport.targets import Settings, Target

Connection = asyncssh.SSHClientConnection


class Connector:
    """Opens connections for one run: its nodes share the limits, the jump hosts and the trusted keys."""

    def __init__(self, settings: Settings):
        self.settings = settings
        self.gates: dict[tuple[str, int], asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(settings.gate))
        self.jumps: dict[str, asyncio.Task[Connection]] = {}
        self.folder: tempfile.TemporaryDirectory[str] | None = None
        self.trusted: dict[tuple[str, ...], trust.TrustedKeys] = {}

    async def close(self) -> None:
        for task in self.jumps.values():
            task.cancel()
            if task.done() and not task.cancelled() and task.exception() is None:
                task.result().abort()
        if self.folder is not None:
            self.folder.cleanup()

    async def connect(self, target: Target, note: dict[str, Any], through: frozenset[str] = frozenset()) -> Connection:
        """An authenticated connection, tried again while the sshd turns us away and time is left. Raises Trouble.

        `note` takes the number of tries and an offered host key; `through` are the jump hosts that are being opened.
        """
        until = time.monotonic() + self.settings.connect_s
        last: Trouble | None = None
        while True:
            note["tries"] = note.get("tries", 0) + 1
            left = until - time.monotonic()
            try:
                return await self._connect_once(target, note, max(0.1, left), through)
            except Trouble as trouble:
                last = trouble
            pause = random.uniform(0.1, 0.3) * 2 ** min(note["tries"], 4)
            if last.reason != "sshd_busy" or time.monotonic() + pause >= until:
                raise last
            await asyncio.sleep(pause)

    async def _connect_once(
        self, target: Target, note: dict[str, Any], seconds: float, through: frozenset[str]
    ) -> Connection:
        client = _Client()
        trusted_any = False
        options: Any = None
        tunnel = None
        try:
            options = self._options(target)
            note["reached"] = f"{options.username}@{options.host}:{options.port}"
            keys = self._keys(options)
            tunnel = await self._jump(target.jump or options.tunnel or "", through)

            def known(host: str, address: str, port: int | None) -> Any:
                nonlocal trusted_any
                found = keys.match(host, "", port)  # by name alone: an address may be another node's tomorrow
                trusted_any = bool(found[0] or found[1])
                return found

            # The gate is per sshd: through a shared jump host, only that node's own sshd sees new connections.
            async with self.gates[options.host, options.port], asyncio.timeout(seconds):
                return await asyncssh.connect(
                    target.node,
                    target.port or (),
                    username=target.user or (),
                    config=self._config(target),
                    tunnel=tunnel,
                    known_hosts=known,
                    server_host_key_algs=keys.algorithms(options),
                    client_factory=lambda: client,
                    agent_forwarding=False,
                    x11_forwarding=False,
                    request_pty=False,
                    keepalive_interval=5,
                    keepalive_count_max=3,
                    login_timeout=seconds,
                )
        except Exception as error:
            trouble = trouble_of(error, key_known=trusted_any)
            if isinstance(error, TimeoutError) and client.connected:
                trouble = Trouble("sshd_silent")
            if trouble.reason == "key_refused" and not options.client_keys and not options.agent_path:
                trouble = Trouble("no_key")
            if trouble.reason in ABOUT_THE_ADDRESS and not trouble.detail:
                trouble = Trouble(trouble.reason, note["reached"])
            if tunnel is not None and tunnel.is_closed():
                trouble = Trouble("jump_failed", "its connection was lost")
            if client.offered is not None and trouble.reason.startswith("host_key"):
                name = options.host_key_alias or options.host
                note["offered"] = trust.known_hosts_line(name, options.port, client.offered)
                note["fingerprint"] = trust.fingerprint(client.offered)
                trouble = Trouble(trouble.reason, note["fingerprint"])
            raise trouble from error

    def _options(self, target: Target) -> Any:
        return asyncssh.SSHClientConnectionOptions(
            config=self._config(target), host=target.node, port=target.port or (), username=target.user or ()
        )

    def _config(self, target: Target) -> list[str]:
        """The configuration files for a node. Its own address goes before them as a file: the first HostName wins."""
        if not target.address:
            return self.settings.config
        if self.folder is None:
            self.folder = tempfile.TemporaryDirectory(prefix="golden15-")
        name = hashlib.sha256(target.address.encode()).hexdigest()[:32]
        path = Path(self.folder.name) / name
        if not path.exists():
            path.write_text(f"HostName {target.address.replace('%', '%%')}\n")
        return [str(path), *self.settings.config]

    def _keys(self, options: Any) -> trust.TrustedKeys:
        """The files that the run names, else those of the configuration, else the usual ones; read once per list."""
        named = [*(options.config.get("UserKnownHostsFile") or ()), *(options.config.get("GlobalKnownHostsFile") or ())]
        files = self.settings.known_hosts or tuple(named) or (*trust.USER_FILES, *trust.GLOBAL_FILES)
        if files not in self.trusted:
            self.trusted[files] = trust.TrustedKeys(files, self.settings.accepted)
        return self.trusted[files]

    async def _jump(self, spec: str, through: frozenset[str]) -> Connection | None:
        """The shared connection to a chain of jump hosts (`a,b` means: b through a), made once per run."""
        if not spec or spec.lower() == "none":
            return None
        if spec in through:
            raise Trouble("bad_config", f"ProxyJump {spec} leads back to itself")
        task = self.jumps.get(spec)
        if task is None or (
            task.done() and not task.cancelled() and task.exception() is None and task.result().is_closed()
        ):
            task = self.jumps[spec] = asyncio.create_task(self._open_jump(spec, through | {spec}))
        try:
            return await asyncio.shield(task)
        except Trouble as trouble:
            raise Trouble("jump_failed", f"{spec.rpartition(',')[2]}: {trouble}") from trouble

    async def _open_jump(self, spec: str, through: frozenset[str]) -> Connection:
        before, _, last = spec.rpartition(",")
        user, _, host_port = last.rpartition("@")
        host, colon, port = host_port.rpartition(":")
        if not colon or "]" in port:
            host, port = host_port, ""
        hop = Target(host.strip("[]"), user=user, port=int(port) if port.isdigit() else 0, jump=before)
        return await self.connect(hop, {}, through)


class _Client(asyncssh.SSHClient):
    """Keeps the host key that was offered and refused, so that a person can be shown its fingerprint."""

    def __init__(self) -> None:
        self.offered: Any = None
        self.connected = False

    def connection_made(self, conn: Connection) -> None:
        self.connected = True

    def validate_host_public_key(self, host: str, addr: str, port: int, key: Any) -> bool:
        self.offered = key
        return False
