"""What a suite of probes costs a node: the runner and all that it starts, on this machine, beside ranks that train."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from probes.core import Capture
from probes.suites import SUITES
from probes.transport import local
from tests.bench.measure import Cost
from tests.bench.rows import Row

RANKS = 8
# A rank that sleeps most of the time, so that what is measured is not its own.
TRAINS = "import time\nprint('runs', flush=True)\nwhile True:\n    sum(range(1000))\n    time.sleep(0.01)\n"
GOALS = {"capture": "5 s of one core"}


def suites(folder: Path, quick: bool) -> Iterator[Row]:
    """Seconds of CPU of one node with eight ranks and without any, suite by suite."""
    for ranks in (0, 2 if quick else RANKS):
        with _training(ranks):
            for name in ("capture", "triage", "suspects"):
                what = f"suite {name} on a node with {ranks or 'no'} ranks"
                yield Row(what, "Golden15's runner", _asked(name), GOALS.get(name, ""))


@contextmanager
def _training(ranks: int) -> Iterator[None]:
    started = []
    try:
        for rank in range(ranks):
            env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank)}
            env |= {"MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
            one = subprocess.Popen([sys.executable, "-c", TRAINS], stdout=subprocess.PIPE, text=True, env=env)
            started.append(one)
            assert one.stdout is not None and one.stdout.readline() == "runs\n"
        yield
    finally:
        for one in started:
            one.kill()
            one.communicate()


def _asked(name: str) -> Cost:
    suite = SUITES[name]
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    answered = asyncio.run(_ask(name))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert answered == set(suite.probes), answered
    return Cost(
        after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, time.monotonic() - begun, 0
    )  # the ranks are children too, but they are not waited for before they are measured


async def _ask(name: str) -> set[str]:
    return {item.probe async for item in local.ask(SUITES[name].plan()) if isinstance(item, Capture)}
