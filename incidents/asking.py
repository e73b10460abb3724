"""Asks the nodes of one claimed shard and hands what comes back to the services, in batches.

In a drill the incident's recording answers, in the same way and at the pace of nodes; a node of a fleet of recordings
is never asked over SSH, whatever else is wrong.

SSH runs in an asyncio loop in a thread of its own; this thread parses, judges and writes, because Django's ORM does
not run inside a loop. Between them is a bounded queue: a slow database slows the nodes down, it loses nothing.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Sequence

from django.conf import settings as conf

from incidents import replaying
from incidents.models import Fleet, Node, Shard, SuiteRun
from incidents.queries import drills
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


class OnlyRecorded(RuntimeError):
    """A node that exists only in a recording was to be reached."""


def target_of(node: Node) -> Target:
    """How to reach a node of the fleet. Raises OnlyRecorded where there is none to reach."""
    if node.fleet.replay:
        raise OnlyRecorded(f"{node.name} exists only in a recording: nothing is asked of a real node")
    return Target(node.name, node.address, node.user, node.port or 0, node.jump)


def settings_of(fleet: Fleet) -> Settings:
    """Whom to trust and how to reach the nodes of a fleet."""
    return Settings(accepted=accepted_lines(fleet), config=ssh_config_files())


def ask_here(run: SuiteRun) -> None:
    """Ask the shards of a run that no worker holds, from the process of a command."""
    for shard in Shard.objects.filter(run=run):
        held = runs.claim(shard.pk)
        if held is not None:
            ask_shard(held)


def ask_shard(held: runs.Claim) -> None:
    """Ask every open node of the claim; record as answers come. Raises LeaseLost when another worker took over."""
    plan = suites.suite_or_probe(held.suite).plan(held.log_paths)
    settings = settings_of(held.fleet)
    settings.node_s = plan.deadline_s + settings.connect_s + 5
    settings.fanout = min(settings.fanout, runs.SHARD_NODES)
    items: queue.Queue[Item] = queue.Queue(maxsize=512)
    stop = threading.Event()
    recorded = drills.recorded(held.run_id)
    if recorded is not None or held.fleet.replay:
        asker = threading.Thread(target=_replay, args=(held, plan, recorded, items, stop), daemon=True)
    else:
        targets = [target_of(node) for node in held.nodes]
        asker = threading.Thread(target=_ask, args=(held, targets, plan, settings, items, stop), daemon=True)
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


def _replay(
    held: runs.Claim, plan: Plan, recorded: drills.Recorded | None, items: queue.Queue[Item], stop: threading.Event
) -> None:
    """In a thread of its own: what the recording answers, spread over some seconds as nodes would."""
    probes = [probe.name for probe in plan.probes]
    last: Item = None
    try:
        for due, item in replaying.schedule(held.nodes, probes, recorded, held.answered, float(conf.DRILL_SECONDS)):
            if stop.wait(max(0.0, due - time.monotonic())):
                return
            _put(items, item, stop)
    except BaseException as error:  # as in _ask
        last = error
    _put(items, last, stop)


def _put(items: queue.Queue[Item], item: Item, stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            items.put(item, timeout=0.2)
            return
        except queue.Full:
            continue


def _ask(
    held: runs.Claim,
    targets: Sequence[Target],
    plan: Plan,
    settings: Settings,
    items: queue.Queue[Item],
    stop: threading.Event,
) -> None:
    """In a thread of its own: ask, and put what comes into the queue. Ends soon after `stop`, whatever happens."""

    async def ask() -> None:
        stream = ssh.ask(targets, plan, settings, held.answered)
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
    _put(items, last, stop)
