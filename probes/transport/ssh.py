"""Asks many nodes over SSH at once: one connection and one channel per node, captures as they arrive.

One channel with the runner costs the controller a fraction of a channel per command (docs/architecture.md).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

import asyncssh

from probes.core import Capture, clean
from probes.transport.connect import Connector
from probes.transport.plan import Plan
from probes.transport.protocol import BOOT, Conversation
from probes.transport.reasons import REASONS, Trouble, trouble_of
from probes.transport.targets import NodeEnd, Settings, Target

WAITING = 512  # answers that may wait for the reader; beyond it the nodes wait


async def ask(
    targets: Iterable[Target],
    plan: Plan,
    settings: Settings | None = None,
    answered: Mapping[str, Collection[str]] | None = None,
) -> AsyncIterator[Capture | NodeEnd]:
    """Yield captures as nodes answer, and one NodeEnd after the last capture of each node.

    Every (node, probe) is yielded exactly once, whatever happens to the node, but for those that were `answered`
    before (probes by node), which are not asked. Ends within `run_s`.
    """
    settings = settings or Settings()
    run = _Run(plan, settings, answered or {})
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
        await work  # what went wrong in there must not look like the end
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


class _Run:
    """What the nodes of one run share."""

    def __init__(self, plan: Plan, settings: Settings, answered: Mapping[str, Collection[str]]):
        self.plan = plan
        self.settings = settings
        self.answered = answered
        self.programs: dict[tuple[str, ...], bytes] = {}
        self.connector = Connector(settings)
        self.slots = asyncio.Semaphore(settings.fanout)
        self.ends_at = time.monotonic() + settings.run_s
        self.results: asyncio.Queue[Capture | NodeEnd | None] = asyncio.Queue(maxsize=WAITING)

    def plan_for(self, node: str) -> tuple[Plan, bytes]:
        """What is left to ask of a node, and the program that asks it."""
        done = self.answered.get(node, ())
        plan = replace(self.plan, probes=tuple(p for p in self.plan.probes if p.name not in done))
        names = tuple(probe.name for probe in plan.probes)
        if names not in self.programs:
            self.programs[names] = plan.program()
        return plan, self.programs[names]

    async def node(self, target: Target) -> None:
        async with self.slots:
            await _Visit(self, target).run()


class _Session(asyncssh.SSHClientSession[bytes]):
    """Feeds one channel's bytes to the conversation and wakes the visit. Reading pauses while the visit is behind."""

    def __init__(self, inbox: deque[Capture]) -> None:
        self.talk: Conversation
        self.chan: Any = None
        self.inbox = inbox
        self.woken = asyncio.Event()
        self.over = False
        self.status: int | None = None

    def connection_made(self, chan: Any) -> None:
        self.chan = chan

    def data_received(self, data: bytes, datatype: Any) -> None:
        if datatype is None:
            self.inbox.extend(self.talk.feed(data))
        else:
            self.talk.error_feed(data)
        self.over = self.over or self.talk.finished or self.talk.violation is not None
        if len(self.inbox) > 32:
            self.chan.pause_reading()
        self.woken.set()

    def exit_status_received(self, status: int) -> None:
        self.status = status

    def connection_lost(self, exc: Exception | None) -> None:
        self.over = True
        self.woken.set()


class _Visit:
    """One node's turn: connect, talk, and account for every probe."""

    def __init__(self, run: _Run, target: Target):
        self.shared = run
        self.target = target
        self.plan, self.program = run.plan_for(target.node)
        self.note: dict[str, Any] = {"tries": 0}
        self.talk: Conversation | None = None
        self.inbox: deque[Capture] = deque()
        self.answered: set[str] = set()
        self.began = time.monotonic()
        self.connected_s = 0.0

    async def run(self) -> None:
        left = self.shared.ends_at - time.monotonic()
        trouble: Trouble | None = None
        try:
            if left <= 0:
                raise Trouble("run_deadline")
            async with asyncio.timeout(min(self.shared.settings.node_s, left)):
                await self._talk()
        except Trouble as known:
            trouble = known
        except TimeoutError:
            trouble = Trouble("deadline")
        except Exception as error:
            trouble = trouble_of(error)
        await self._account(trouble)

    async def _talk(self) -> None:
        run = self.shared
        connection = await run.connector.connect(self.target, self.note)
        self.connected_s = time.monotonic() - self.began
        try:
            session = _Session(self.inbox)
            self.talk = session.talk = Conversation(
                self.target.node, self.plan, self.program, lambda data: session.chan.write(data)
            )
            await connection.create_session(lambda: session, BOOT, encoding=None)
            starts_by = time.monotonic() + run.settings.start_s
            while not session.over:
                await self._wake(session, starts_by)
                await self._hand_over()
                session.chan.resume_reading()
            self._judge_end(session)
        finally:
            connection.abort()  # closes the channel: the runner sees the end of its input and ends its children

    async def _wake(self, session: _Session, starts_by: float) -> None:
        """Until something arrived. Raises Trouble when the runner does not begin in time."""
        begun = bool(session.talk.hello)
        try:
            async with asyncio.timeout(None if begun else max(0.05, starts_by - time.monotonic())):
                await session.woken.wait()
        except TimeoutError:
            raise Trouble("shell_hung", _said(session.talk)) from None
        session.woken.clear()

    async def _hand_over(self) -> None:
        """Give what arrived to the reader. A capture leaves the inbox once it is given: a deadline here loses none."""
        while self.inbox:
            await self.shared.results.put(self.inbox[0])
            self.answered.add(self.inbox.popleft().probe)

    def _judge_end(self, session: _Session) -> None:
        talk = session.talk
        if talk.violation:
            raise Trouble(talk.violation.reason, str(talk.violation))
        if talk.finished:
            return
        said = _said(talk)
        if talk.hello and session.status is None:
            raise Trouble("lost", said)
        if talk.ready:
            raise Trouble("python_failed", said)
        if session.status == 127 or "not found" in said:
            raise Trouble("no_python", said)
        raise Trouble("login_closed", said)

    async def _account(self, trouble: Trouble | None) -> None:
        """Answer for every probe that the node did not, so that no cell of the matrix stays open."""
        took = time.monotonic() - self.began
        if self.talk:
            self.inbox.extend(self.talk.close())
        await self._hand_over()
        missing = [probe for probe in self.plan.probes if probe.name not in self.answered]
        if missing and trouble is None:
            trouble = Trouble("no_answer")
        for probe in missing:
            assert trouble is not None
            await self.shared.results.put(unanswered(self.target.node, probe.name, trouble, took))
        hello = self.talk.hello if self.talk else {}
        await self.shared.results.put(
            NodeEnd(
                node=self.target.node,
                reason=trouble.reason if trouble else "",
                detail=trouble.detail if trouble else "",
                took_s=took,
                connect_s=self.connected_s,
                tries=self.note["tries"],
                reached=clean(self.note.get("reached", ""))[:320],
                python=clean(str(hello.get("python", "")))[:20],
                chatter=_said(self.talk) if self.talk else "",
                offered_key=self.note.get("offered", ""),
                fingerprint=self.note.get("fingerprint", ""),
            )
        )


def unanswered(node: str, probe: str, trouble: Trouble, took_s: float) -> Capture:
    """The capture of a probe that got no answer."""
    outcome = REASONS[trouble.reason].outcome
    return Capture(node, probe, outcome, why=str(trouble), reason=trouble.reason, took_s=took_s)


def _said(talk: Conversation) -> str:
    return clean(talk.chatter.decode("utf-8", "replace")).strip()[-300:]
