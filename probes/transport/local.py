"""Asks this machine, with the same runner and the same protocol over pipes instead of SSH."""

from __future__ import annotations

import asyncio
import sys
import sysconfig
import time
from collections.abc import AsyncIterator
from dataclasses import replace

from probes.core import Capture
from probes.transport.plan import Plan
from probes.transport.protocol import BOOT_ARGS, Conversation
from probes.transport.reasons import Trouble
from probes.transport.ssh import unanswered
from probes.transport.targets import NodeEnd

NAME = "localhost"


async def ask(plan: Plan, node: str = NAME, python: str = sys.executable) -> AsyncIterator[Capture | NodeEnd]:
    """Yield the captures of this machine and then its NodeEnd. psutil and pynvml of this environment are offered."""
    paths = sysconfig.get_paths()
    plan = replace(plan, site=tuple(dict.fromkeys([paths["purelib"], paths["platlib"]])))
    began = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        python,
        *BOOT_ARGS,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdin and process.stdout and process.stderr
    talk = Conversation(node, plan, plan.program(), process.stdin.write)
    trouble: Trouble | None = None
    answered: set[str] = set()
    try:
        async with asyncio.timeout(plan.deadline_s + 5):
            while not talk.violation and (data := await process.stdout.read(65536)):
                for capture in talk.feed(data):
                    answered.add(capture.probe)
                    yield capture
        if talk.violation:
            trouble = Trouble(talk.violation.reason, str(talk.violation))
        elif not talk.finished:
            trouble = Trouble("python_failed", (await process.stderr.read(2000)).decode(errors="replace"))
    except TimeoutError:
        trouble = Trouble("deadline")
    finally:
        process.stdin.close()  # the runner sees the end of its input and ends its children
        try:
            async with asyncio.timeout(2):
                await process.wait()
        except TimeoutError:
            process.kill()
    took = time.monotonic() - began
    for capture in talk.close():
        answered.add(capture.probe)
        yield capture
    for probe in plan.probes:
        if probe.name not in answered:
            yield unanswered(node, probe.name, trouble or Trouble("no_answer"), took)
    yield NodeEnd(
        node,
        trouble.reason if trouble else "",
        trouble.detail if trouble else "",
        took_s=took,
        python=str(talk.hello.get("python", "")),
    )
