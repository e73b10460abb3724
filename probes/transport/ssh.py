"""Asks many nodes over SSH at once: one connection and one channel per node, captures as they arrive.

Measured (docs/architecture.md): one channel with the runner costs the controller a fraction of a channel per
command. New connections through one jump host or to one sshd are made a few at a time and tried again when they
are turned away (MaxStartups): that is our doing, not a dead node.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Any

import asyncssh

from probes.core import Capture, clean
from probes.transport import sshconfig, trust
from probes.transport.protocol import BOOT, Conversation, Plan, Violation
from probes.transport.reasons import REASONS, Trouble, sentence, trouble_of

Connection = asyncssh.SSHClientConnection


@dataclass(frozen=True, slots=True)
class Target:
    """One node to ask. Empty fields are left to the SSH configuration; `jump` is `[user@]host[:port][,...]`."""

    node: str
    address: str = ""
    user: str = ""
    port: int = 0
    jump: str = ""

    @property
    def host(self) -> str:
        return self.address or self.node


@dataclass(frozen=True, slots=True)
class NodeEnd:
    """How one node ended. `reason` is "" when every probe was answered, else a key of REASONS; times in seconds.

    `offered_key` is the host key (known_hosts form) the node showed when it was not trusted.
    """

    node: str
    reason: str = ""
    detail: str = ""  # what the other side said
    took_s: float = 0.0
    connect_s: float = 0.0
    tries: int = 1
    python: str = ""
    uid: int | None = None
    chatter: str = ""
    offered_key: str = ""
    fingerprint: str = ""

    @property
    def why(self) -> str:
        """What failed and what to do next, for people; "" when the node answered."""
        return sentence(self.reason, self.detail) if self.reason else ""


@dataclass(slots=True)
class Settings:
    """Limits of one run. `accepted` holds known_hosts lines that people accepted; times in seconds."""

    fanout: int = 128
    connect_s: float = 8.0
    start_s: float = 8.0
    node_s: float = 25.0
    run_s: float = 120.0
    gate: int = 3
    config: list[str] = field(default_factory=sshconfig.readable)
    known_hosts: tuple[str, ...] = (*trust.USER_FILES, *trust.GLOBAL_FILES)
    accepted: str = ""


async def ask(
    targets: Iterable[Target], plan: Plan, settings: Settings | None = None
) -> AsyncIterator[Capture | NodeEnd]:
    """Yield captures as nodes answer, and one NodeEnd after the last capture of each node.

    Every (node, probe) is yielded exactly once, whatever happens to the node. Ends within `run_s`.
    """
    settings = settings or Settings()
    crew = _Crew(plan, settings)
    results: asyncio.Queue[Capture | NodeEnd | None] = asyncio.Queue(maxsize=512)
    waiting = list(targets)

    async def all_nodes() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for target in waiting:
                    group.create_task(crew.node(target, results))
        finally:
            await crew.close()
            await results.put(None)

    work = asyncio.create_task(all_nodes())
    try:
        while (item := await results.get()) is not None:
            yield item
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


class _Crew:
    """What the nodes of one run share: limits, jump hosts, trusted keys."""

    def __init__(self, plan: Plan, settings: Settings):
        self.plan = plan
        self.settings = settings
        self.program = plan.program()
        self.slots = asyncio.Semaphore(settings.fanout)
        self.gates: dict[tuple[str, int], asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(settings.gate))
        self.jumps: dict[str, asyncio.Task[Connection]] = {}
        self.trusted: dict[tuple[str, ...], trust.TrustedKeys] = {}
        self.ends_at = time.monotonic() + settings.run_s

    async def close(self) -> None:
        for task in self.jumps.values():
            task.cancel()
            if task.done() and not task.cancelled() and task.exception() is None:
                task.result().abort()

    async def node(self, target: Target, results: asyncio.Queue[Capture | NodeEnd | None]) -> None:
        async with self.slots:
            visit = _Visit(self, target, results)
            await visit.run()

    async def connect(self, target: Target, note: dict[str, Any]) -> Connection:
        """An authenticated connection, tried again while the sshd turns us away and time is left."""
        until = time.monotonic() + self.settings.connect_s
        last: Trouble | None = None
        while True:
            note["tries"] = note.get("tries", 0) + 1
            left = until - time.monotonic()
            try:
                return await self._connect_once(target, note, max(0.1, left))
            except Trouble as trouble:
                last = trouble
            pause = random.uniform(0.1, 0.3) * 2 ** min(note["tries"], 4)
            if last.reason != "sshd_busy" or time.monotonic() + pause >= until:
                raise last
            await asyncio.sleep(pause)

    async def _connect_once(self, target: Target, note: dict[str, Any], seconds: float) -> Connection:
        client = _Client()
        trusted_any = False
        options: Any = None
        tunnel = None
        try:
            options = self._options(target)
            keys = self._keys(options)
            tunnel = await self._jump(target.jump or options.tunnel or "")

            def known(host: str, address: str, port: int | None) -> Any:
                nonlocal trusted_any
                found = keys.match(host, address, port)
                trusted_any = bool(found[0] or found[1])
                return found

            # The gate is per sshd: through a shared jump host, only that node's own sshd sees new connections.
            async with self.gates[options.host, options.port], asyncio.timeout(seconds):
                return await asyncssh.connect(
                    target.host,
                    target.port or (),
                    username=target.user or (),
                    config=self.settings.config,
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
            config=self.settings.config, host=target.host, port=target.port or (), username=target.user or ()
        )

    def _keys(self, options: Any) -> trust.TrustedKeys:
        """The configuration's own known_hosts files, else the usual ones; read once per list of files."""
        named = [*(options.config.get("UserKnownHostsFile") or ()), *(options.config.get("GlobalKnownHostsFile") or ())]
        files = tuple(named) or self.settings.known_hosts
        if files not in self.trusted:
            self.trusted[files] = trust.TrustedKeys(files, self.settings.accepted)
        return self.trusted[files]

    async def _jump(self, spec: str) -> Connection | None:
        """The shared connection to a chain of jump hosts (`a,b` means: b through a), made once per run."""
        if not spec or spec.lower() == "none":
            return None
        task = self.jumps.get(spec)
        if task is None or (
            task.done() and not task.cancelled() and task.exception() is None and task.result().is_closed()
        ):
            task = self.jumps[spec] = asyncio.create_task(self._open_jump(spec))
        try:
            return await asyncio.shield(task)
        except Trouble as trouble:
            raise Trouble("jump_failed", f"{spec.rpartition(',')[2]}: {trouble}") from trouble

    async def _open_jump(self, spec: str) -> Connection:
        before, _, last = spec.rpartition(",")
        user, _, host_port = last.rpartition("@")
        host, colon, port = host_port.rpartition(":")
        if not colon or "]" in port:
            host, port = host_port, ""
        hop = Target(last, address=host.strip("[]"), user=user, port=int(port) if port.isdigit() else 0, jump=before)
        return await self.connect(hop, {})


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


class _Session(asyncssh.SSHClientSession[bytes]):
    """Feeds one channel's bytes to the conversation and wakes the visit. Reading pauses while the visit is behind."""

    def __init__(self) -> None:
        self.talk: Conversation
        self.chan: Any = None
        self.arrived: asyncio.Queue[Capture | None] = asyncio.Queue()
        self.violation: Violation | None = None
        self.status: int | None = None

    def connection_made(self, chan: Any) -> None:
        self.chan = chan

    def data_received(self, data: bytes, datatype: Any) -> None:
        if self.violation:
            return
        try:
            if datatype is None:
                for capture in self.talk.feed(data):
                    self.arrived.put_nowait(capture)
            else:
                self.talk.error_feed(data)
        except Violation as violation:
            self.violation = violation
            self.arrived.put_nowait(None)
        if self.talk.finished:
            self.arrived.put_nowait(None)
        if self.arrived.qsize() > 32:
            self.chan.pause_reading()

    def exit_status_received(self, status: int) -> None:
        self.status = status

    def connection_lost(self, exc: Exception | None) -> None:
        self.arrived.put_nowait(None)


class _Visit:
    """One node's turn: connect, talk, and account for every probe."""

    def __init__(self, crew: _Crew, target: Target, results: asyncio.Queue[Capture | NodeEnd | None]):
        self.crew = crew
        self.target = target
        self.results = results
        self.note: dict[str, Any] = {"tries": 0}
        self.talk: Conversation | None = None
        self.began = time.monotonic()
        self.connected_s = 0.0

    async def run(self) -> None:
        settings = self.crew.settings
        left = self.crew.ends_at - time.monotonic()
        trouble: Trouble | None = None
        try:
            if left <= 0:
                raise Trouble("run_deadline")
            async with asyncio.timeout(min(settings.node_s, left)):
                await self._talk()
        except Trouble as known:
            trouble = known
        except TimeoutError:
            trouble = Trouble("run_deadline" if left < settings.node_s else "deadline")
        except Exception as error:
            trouble = trouble_of(error)
        await self._account(trouble)

    async def _talk(self) -> None:
        crew = self.crew
        connection = await crew.connect(self.target, self.note)
        self.connected_s = time.monotonic() - self.began
        try:
            session = _Session()
            self.talk = session.talk = Conversation(
                self.target.node, crew.plan, crew.program, lambda data: session.chan.write(data)
            )
            await connection.create_session(lambda: session, BOOT, encoding=None)
            starts_by = time.monotonic() + crew.settings.start_s
            while True:
                wait = None if self.talk.hello else max(0.05, starts_by - time.monotonic())
                try:
                    async with asyncio.timeout(wait):
                        capture = await session.arrived.get()
                except TimeoutError:
                    if self.talk.hello:
                        continue
                    raise Trouble("shell_hung", _said(self.talk)) from None
                if capture is None:
                    break
                await self.results.put(capture)
                if session.arrived.empty():
                    session.chan.resume_reading()
            for capture in self.talk.close():
                await self.results.put(capture)
            self._judge_end(session)
        finally:
            connection.abort()  # closes the channel: the runner sees the end of its input and ends its children

    def _judge_end(self, session: _Session) -> None:
        talk = session.talk
        if session.violation:
            raise Trouble(session.violation.reason, str(session.violation))
        if talk.finished:
            return
        if talk.hello:
            raise Trouble("lost", _said(talk))
        if talk.ready:
            raise Trouble("python_failed", _said(talk))
        said = _said(talk)
        if session.status == 127 or "not found" in said:
            raise Trouble("no_python", said)
        raise Trouble("login_closed", said)

    async def _account(self, trouble: Trouble | None) -> None:
        """Answer for every probe that the node did not, so that no cell of the matrix stays open."""
        took = time.monotonic() - self.began
        missing = list(self.talk.waiting.values()) if self.talk else list(self.crew.plan.probes)
        if missing and trouble is None:
            trouble = Trouble("no_answer")
        for probe in missing:
            assert trouble is not None
            outcome = REASONS[trouble.reason].outcome
            await self.results.put(
                Capture(self.target.node, probe.name, outcome, why=str(trouble), reason=trouble.reason, took_s=took)
            )
        hello = self.talk.hello if self.talk else {}
        uid = hello.get("uid")
        await self.results.put(
            NodeEnd(
                node=self.target.node,
                reason=trouble.reason if trouble else "",
                detail=trouble.detail if trouble else "",
                took_s=took,
                connect_s=self.connected_s,
                tries=self.note["tries"],
                python=clean(str(hello.get("python", "")))[:20],
                uid=uid if isinstance(uid, int) else None,
                chatter=_said(self.talk) if self.talk else "",
                offered_key=self.note.get("offered", ""),
                fingerprint=self.note.get("fingerprint", ""),
            )
        )


def _said(talk: Conversation) -> str:
    return clean(talk.chatter.decode("utf-8", "replace")).strip()[-300:]
