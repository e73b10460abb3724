"""rank.sockets: real connections of real processes on this machine, and what unanswered ones of two nodes lead to."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from probes.catalog.network.net_facts import Socket
from probes.catalog.rank_sockets import PROBE, RankSockets, parse
from probes.core import ParseError
from probes.diagnosis import Seen, diagnose
from tests.support.collectors import capture_here, old_and_new_pythons
from tests.support.wait import until

# Connects to a port, says so, and waits for its standard input to end. Without an answer it stays in connect().
CLIENT = """
import socket, sys
one = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
print("connecting", flush=True)
one.connect((sys.argv[1], int(sys.argv[2])))
print("connected", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def rank() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a process that calls itself a rank and connects there."""
    started: list[subprocess.Popen[str]] = []

    def start(number: int, host: str, port: int) -> subprocess.Popen[str]:
        env = {**os.environ, "RANK": str(number), "WORLD_SIZE": "64", "LOCAL_RANK": "0"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen([sys.executable, "-c", CLIENT, host, str(port)], env=env, **pipes))
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.communicate()


def of(pid: int, python: str = sys.executable) -> tuple[Socket, ...]:
    capture = capture_here(PROBE, python)
    assert capture.outcome == "ok", capture.why
    return next(row.sockets for row in parse(capture.text).ranks if row.pid == pid)


@pytest.mark.parametrize("python", old_and_new_pythons())
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_connection_is_told_with_both_its_ends(
    rank: Callable[..., subprocess.Popen[str]], host: str, python: str
) -> None:
    with socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as server:
        port = server.getsockname()[1]
        process = rank(3, host, port)
        accepted, ends = server.accept()
        with accepted:
            (one,) = of(process.pid, python)
    shown = f"[{host}]" if ":" in host else host
    assert (one.state, one.peer, one.local) == ("ESTAB", f"{shown}:{port}", f"{shown}:{ends[1]}")
    assert (one.send_queue, one.backoff, one.probes_window) == (0, 0, False)


def test_a_connection_that_nobody_answers_tells_its_tries(rank: Callable[..., subprocess.Popen[str]]) -> None:
    """A server whose queue is full drops what comes: the same as a packet filter that drops, seen from the client."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        address = server.getsockname()
        with socket.create_connection(address):  # takes the one place in the queue, which nobody empties
            process = rank(5, *address)
            assert process.stdout is not None and process.stdout.readline() == "connecting\n"

            def unanswered() -> Socket | None:
                return next((one for one in of(process.pid) if one.state == "SYN-SENT" and one.backoff >= 1), None)

            one = until(unanswered, 20.0)
            assert one is not None and one.peer == f"127.0.0.1:{address[1]}"


def told(node: str, rank: int, *sockets: tuple[str, str, str, int]) -> Seen:
    rows = [[state, local, peer, 0, False, tries] for state, local, peer, tries in sockets]
    text = json.dumps({"rank": rank, "pid": 100 + rank, "sockets": rows, "left_out": 0, "why": ""})
    facts = parse(f"==> sockets <==\n{text}\n")
    return Seen(f"{node}/rank.sockets", node, "rank.sockets", "ok", "", facts, tuple(PROBE.findings(facts)))


def test_connections_to_a_port_that_a_rank_of_another_node_listens_at_are_blocked() -> None:
    listens = told("n0", 0, ("LISTEN", "0.0.0.0:29500", "0.0.0.0:0", 0))
    waits = [
        told("n1", rank, *(("SYN-SENT", f"10.0.0.2:4{n}000", "10.0.0.1:29500", 4) for n in (1, 2))) for rank in (8,)
    ]
    found = diagnose([listens, *waits]).verdict.hypothesis
    assert (found.cause, found.subject.get("node")) == ("net.bootstrap_blocked", "n1")
    young = told("n1", 8, *(("SYN-SENT", f"10.0.0.2:4{n}000", "10.0.0.1:29500", 1) for n in (1, 2)))
    assert diagnose([listens, young]).verdict.hypothesis.cause != "net.bootstrap_blocked", "a second is no silence"


def test_unanswered_connections_are_findings_of_their_rank() -> None:
    seen = told("n1", 8, ("SYN-SENT", "10.0.0.2:41000", "10.0.0.1:29500", 5), ("ESTAB", "a:1", "b:2", 6))
    assert [(one.code, one.subject["rank"]) for one in seen.findings] == [
        ("rank.syn_unanswered", 8),
        ("rank.send_unanswered", 8),
    ]
    assert "gets no answer from 10.0.0.1:29500: 5 tries" in seen.findings[0].says


def test_what_the_collector_does_not_write_is_refused() -> None:
    for row in ('{"rank": 1, "pid": 2, "sockets": [[1]], "why": ""}', '{"rank": 1, "pid": 2, "sockets": 7}', "[]"):
        with pytest.raises(ParseError):
            parse(f"==> sockets <==\n{row}\n")


def test_a_rank_that_hides_its_sockets_says_why() -> None:
    row = {"rank": 1, "pid": 2, "sockets": [], "left_out": 0, "why": "Permission denied"}
    facts = parse(f"==> sockets <==\n{json.dumps(row)}\n")
    assert isinstance(facts, RankSockets) and facts.ranks[0].why == "Permission denied" and facts.sockets == ()
