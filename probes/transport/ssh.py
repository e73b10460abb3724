"""Asks many nodes over SSH at once: one connection and one channel per node, captures as they arrive.

One channel with the runner costs the controller a fraction of a channel per command (docs/architecture.md).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from typing import Any

import asyncssh

from probes.core import Capture, clean
from probes.transport.connect import Connector
from probes.transport.protocol import BOOT, Conversation, Plan, Violation
from probes.transport.reasons import REASONS, Trouble, trouble_of
from probes.transport.targets import NodeEnd, Settings, Target


async def ask(
    targets: Iterable[Target], plan: Plan, settings: Settings | None = None
) -> AsyncIterator[Capture | NodeEnd]:
    """Yield captures as nodes answer, and one NodeEnd after the last capture of each node.

    Every (node, probe) is yielded exactly once, whatever happens to the node. Ends within `run_s`.
    """
    settings = settings or Settings()
    run = _Run(plan, settings)
    waiting = list(targets)

    async def all_nodes() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for target in waiting:
                    group.create_task(run.node(target))
        finally:
            await run.connector.close()
            await run.results.put(None)

    work = asyncio.create_task(all_nodes())
    try:
        while (item := await run.results.get()) is not None:
            yield item
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


class _Run:
    """What the nodes of one run share."""

    def __init__(self, plan: Plan, settings: Settings):
        self.plan = plan
        self.settings = settings
        self.program = plan.program()
        self.connector = Connector(settings)
        self.slots = asyncio.Semaphore(settings.fanout)
        self.ends_at = time.monotonic() + settings.run_s
        self.results: asyncio.Queue[Capture | NodeEnd | None] = asyncio.Queue(maxsize=512)

    async def node(self, target: Target) -> None:
        async with self.slots:
            await _Visit(self, target).run()


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

    def __init__(self, run: _Run, target: Target):
        self.shared = run
        self.target = target
        self.note: dict[str, Any] = {"tries": 0}
        self.talk: Conversation | None = None
        self.began = time.monotonic()
        self.connected_s = 0.0

    async def run(self) -> None:
        settings = self.shared.settings
        left = self.shared.ends_at - time.monotonic()
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
        run = self.shared
        connection = await run.connector.connect(self.target, self.note)
        self.connected_s = time.monotonic() - self.began
        try:
            session = _Session()
            self.talk = session.talk = Conversation(
                self.target.node, run.plan, run.program, lambda data: session.chan.write(data)
            )
            await connection.create_session(lambda: session, BOOT, encoding=None)
            starts_by = time.monotonic() + run.settings.start_s
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
                await self.shared.results.put(capture)
                if session.arrived.empty():
                    session.chan.resume_reading()
            for capture in self.talk.close():
                await self.shared.results.put(capture)
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
        missing = list(self.talk.waiting.values()) if self.talk else list(self.shared.plan.probes)
        if missing and trouble is None:
            trouble = Trouble("no_answer")
        for probe in missing:
            assert trouble is not None
            outcome = REASONS[trouble.reason].outcome
            await self.shared.results.put(
                Capture(self.target.node, probe.name, outcome, why=str(trouble), reason=trouble.reason, took_s=took)
            )
        hello = self.talk.hello if self.talk else {}
        uid = hello.get("uid")
        await self.shared.results.put(
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
