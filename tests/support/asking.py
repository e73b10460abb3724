"""Asking the nodes of a lab, and looking whether anything stayed on them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator

from probes import suites
from probes.core import Capture, Finding, Probe
from probes.transport import NodeEnd, Plan, Settings, Target, ssh
from tests.support.sshd_nodes import Lab
from tests.support.wait import until

CHECK = suites.SUITES["check"]


def settings_of(lab: Lab, **more: object) -> Settings:
    return Settings(config=[str(lab.config)], **more)  # type: ignore[arg-type]


def ask(
    lab: Lab, names: list[str], plan: Plan | None = None, **more: object
) -> tuple[dict[tuple[str, str], Capture], dict[str, NodeEnd]]:
    """Captures by (node, probe) and ends by node. Each must come exactly once."""
    captures: dict[tuple[str, str], Capture] = {}
    ends: dict[str, NodeEnd] = {}

    async def collect() -> None:
        async for item in ssh.ask([Target(name) for name in names], plan or CHECK.plan(), settings_of(lab, **more)):
            if isinstance(item, NodeEnd):
                assert item.node not in ends
                ends[item.node] = item
            else:
                assert (item.node, item.probe) not in captures
                assert item.node not in ends, "a capture came after its node's end"
                captures[item.node, item.probe] = item

    asyncio.run(collect())
    wanted = {(name, probe.name) for name in names for probe in (plan or CHECK.plan()).probes}
    assert set(captures) == wanted, "every probe of every node is answered for"
    assert set(ends) == set(names)
    return captures, ends


def nothing_left(lab: Lab) -> None:
    for node in lab.nodes.values():
        until(lambda node=node: not node.processes(), 10, f"{node.name} to be rid of {node.processes()}")  # type: ignore[misc]
        assert node.left_behind() == {}, node.name


def probe(name: str, *command: str, **how: object) -> Probe[str]:
    def nothing(_: str) -> list[Finding]:
        return []

    return Probe(name, "?", str, nothing, command=command, **how)  # type: ignore[arg-type]


@contextlib.contextmanager
def occupied(address: str, port: int, connections: int, seconds: float) -> Iterator[None]:
    """Hold that many unauthenticated connections to an sshd for some seconds, as a crowd at 3 am would."""
    held = [socket.create_connection((address, port)) for _ in range(connections)]
    for connection in held:
        assert connection.recv(4) == b"SSH-"
    timer = threading.Timer(seconds, lambda: [connection.close() for connection in held])
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        for connection in held:
            connection.close()
