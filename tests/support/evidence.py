"""Evidence without nodes: recorded outputs, read by the catalogue's own parsers, stored by the services."""

from __future__ import annotations

import json
from collections.abc import Sequence

from incidents.models import Incident, Shard, SuiteRun
from incidents.services import runs
from incidents.services.recording import record
from probes import catalog
from probes.core import Capture, Outcome, Reading, interpret
from probes.transport import NodeEnd
from tests.support.server import BASE

PID, STARTED = 12, 90125  # of the stopped rank


def read(node: str, probe: str, recorded: str = "", outcome: Outcome = "ok", why: str = "") -> Reading:
    """What a probe says of a node, from tests/fixtures/<probe>/<recorded>.out; or that it did not answer, and why."""
    out = (BASE / "tests" / "fixtures" / probe / f"{recorded}.out").read_bytes() if outcome == "ok" else b""
    return interpret(catalog.load()[probe], Capture(node, probe, outcome, out, why=why))


def stopped_rank(node: str) -> list[Reading]:
    """Of a job of three ranks: rank 1, on this node, was sent SIGSTOP, and the others wait for it."""
    return [read(node, "rank.flight_recorder", "rank_1_stopped"), read(node, "rank.stack", "rank_1_stopped")]


def mapped(node: str, pid: int = PID, started: int = STARTED) -> Reading:
    """What rank.map says of the stopped rank: a recorded answer with its process in it."""
    text = (BASE / "tests" / "fixtures" / "rank.map" / "loader-workers.out").read_text()
    begin, end = (text.index(f"==> golden15/{name} <==") for name in ("ranks", "orphans"))
    row = json.loads(text[begin:end].splitlines()[1]) | {"rank": 1, "pid": pid, "started": started, "ns_pids": [pid]}
    row |= {"run_id": None, "master": None}  # of the same job as the other recordings here
    raw = f"{text[:begin]}==> golden15/ranks <==\n{json.dumps(row)}\n\n{text[end:]}"
    reading = catalog.read(Capture(node, "rank.map", "ok", raw.encode()))
    assert reading.facts is not None, reading.parse_error
    return reading


def store(incident: Incident, readings: Sequence[Reading], suite: str = "hang") -> SuiteRun:
    """As if this suite had been asked of the nodes that these readings are of, and had ended."""
    names = {reading.capture.node for reading in readings}
    nodes = list(incident.nodes.filter(name__in=names).select_related("fleet"))
    assert {node.name for node in nodes} == names
    run = runs.start_suite(suite, nodes, None, ring=False, incident=incident)
    for shard in Shard.objects.filter(run=run):
        held = runs.claim(shard.pk)
        assert held is not None
        here = {node.name for node in held.nodes}
        ends = [NodeEnd(name, "", took_s=0.1, connect_s=0.1, tries=1) for name in sorted(here)]
        record(held, [reading for reading in readings if reading.capture.node in here], ends)
        runs.finish_shard(held)
    return run
