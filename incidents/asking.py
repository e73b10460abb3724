"""Asks the nodes of one claimed shard and hands what comes back to the services, in batches.

SSH runs in an asyncio loop in a thread of its own; this thread parses, judges and writes, because Django's ORM does
not run inside a loop. Between them is a bounded queue: a slow database slows the nodes down, it loses nothing.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time

from incidents.models import Fleet, Node
from incidents.queries.fleet import accepted_lines, ssh_config_files
from incidents.services import recording, runs
from probes import catalog, suites
from probes.core import Capture
from probes.core import Reading as Read
from probes.transport import NodeEnd, Plan, Settings, Target, ssh

Item = Capture | NodeEnd | BaseException | None  # None: every node has ended

BATCH_S = 0.1
BATCH_ROWS = 200
RENEW_S = 4.0


def target_of(node: Node) -> Target:
    """How to reach a node of the fleet."""
    return Target(node.name, node.address, node.user, node.port or 0, node.jump)


def settings_of(fleet: Fleet) -> Settings:
    """Whom to trust and how to reach the nodes of a fleet."""
    return Settings(accepted=accepted_lines(fleet), config=ssh_config_files())


def ask_shard(held: runs.Claim) -> None:
    """Ask every open node of the claim; record as answers come. Raises LeaseLost when another worker took over."""
    plan = suites.suite_or_probe(held.suite).plan(held.log_paths)
    settings = settings_of(held.fleet)
    settings.node_s = plan.deadline_s + settings.connect_s + 5
    settings.fanout = min(settings.fanout, runs.SHARD_NODES)
    items: queue.Queue[Item] = queue.Queue(maxsize=512)
    stop = threading.Event()
    asker = threading.Thread(target=_ask, args=(held, plan, settings, items, stop), daemon=True)
    asker.start()
    try:
        _drain(held, items)
    finally:
        stop.set()
    asker.join(timeout=5)
    runs.finish_shard(held)


def _drain(held: runs.Claim, items: queue.Queue[Item]) -> None:
    readings: list[Read] = []
    ends: list[NodeEnd] = []
    flushed = time.monotonic()
    while True:
        over = False
        try:
            item = items.get(timeout=BATCH_S)
            over = item is None
            if isinstance(item, BaseException):
                raise item
            if isinstance(item, NodeEnd):
                ends.append(item)
            elif item is not None:
                readings.append(catalog.read(item))
        except queue.Empty:
            pass
        since = time.monotonic() - flushed
        if (readings or ends) and (over or since >= BATCH_S or len(readings) >= BATCH_ROWS):
            recording.record(held, readings, ends)
            readings, ends, flushed = [], [], time.monotonic()
        elif since >= RENEW_S:
            runs.renew(held)
            flushed = time.monotonic()
        if over:
            return


def _ask(held: runs.Claim, plan: Plan, settings: Settings, items: queue.Queue[Item], stop: threading.Event) -> None:
    """In a thread of its own: ask, and put what comes into the queue. Ends soon after `stop`, whatever happens."""

    async def ask() -> None:
        stream = ssh.ask([target_of(node) for node in held.nodes], plan, settings, held.answered)
        async for item in stream:
            while not stop.is_set():
                try:
                    items.put_nowait(item)
                    break
                except queue.Full:
                    await asyncio.sleep(0.02)

    async def until_stopped() -> None:
        asking = asyncio.create_task(ask())
        while not stop.is_set() and not asking.done():
            await asyncio.wait([asking], timeout=0.2)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=stop.is_set())

    last: Item = None
    try:
        asyncio.run(until_stopped())
    except BaseException as error:  # told to the writing thread: the shard must not be called finished
        last = error
    while not stop.is_set():
        try:
            items.put(last, timeout=0.2)
            return
        except queue.Full:
            continue
