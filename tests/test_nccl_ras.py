"""nccl.ras against real servers that speak RAS's protocol, as NCCL's src/ras/client_support.cc does."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from probes.catalog.nccl import ras_ask
from probes.catalog.nccl.ras_facts import counted
from probes.catalog.nccl.ras_json import of_json
from probes.catalog.nccl.ras_text import of_text
from probes.catalog.nccl_ras import PROBE, findings, parse
from probes.core import Capture, ParseError
from tests.support.collectors import capture_here, old_and_new_pythons

FIXTURES = Path(__file__).parent / "fixtures/nccl.ras"


def recorded(case: str) -> list[str]:
    """The two answers in a recorded case."""
    text = (FIXTURES / f"{case}.out").read_text()
    return [part.partition(" <==\n")[2] for part in text.split("==> poll ")[1:]]


class Server:
    """Answers each connection with the next report. `json` is false for NCCL before 2.28.7."""

    def __init__(self, reports: list[str], json: bool) -> None:
        self.reports, self.json = list(reports), json
        self.asked: list[str] = []
        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", 0))
        self.socket.listen()
        self.port = self.socket.getsockname()[1]
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        while True:
            try:
                link, _ = self.socket.accept()
            except OSError:
                return
            with link:
                self._answer(link)

    def _answer(self, link: socket.socket) -> None:
        with link.makefile("rwb") as lines:
            for line in lines:
                command = line.decode().strip().lower()
                self.asked.append(command)
                if command == "verbose status":
                    lines.write(self.reports.pop(0).encode())
                    return
                known = command.startswith("timeout ") or (self.json and command == "set format json")
                lines.write(b"OK\n" if known else b"ERROR: Unknown command " + line)
                lines.flush()


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(reports: list[str], json: bool = True) -> Server:
        servers.append(Server(reports, json))
        return servers[-1]

    yield start
    for server in servers:
        server.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        server.thread.join()
        server.socket.close()


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.send_signal(signal.SIGKILL)
        process.wait()
        if process.stdout:
            process.stdout.close()


@pytest.fixture
def ask(started: list[subprocess.Popen[bytes]]) -> Callable[..., Capture]:
    """The probe's capture on a node with one rank that was told this address."""

    def run(port: int, python: str = sys.executable) -> Capture:
        env = {"RANK": "0", "WORLD_SIZE": "1", "PATH": os.environ["PATH"], "NCCL_RAS_ADDR": f"127.0.0.1:{port}"}
        rank = [sys.executable, "-c", "import signal; print(1, flush=True); signal.pause()"]
        started.append(subprocess.Popen(rank, env=env, stdout=subprocess.PIPE))
        assert started[-1].stdout and started[-1].stdout.readline()
        return capture_here(PROBE, python)

    return run


@pytest.mark.parametrize("python", old_and_new_pythons())
def test_json_is_asked_for_where_it_is_known(
    ask: Callable[..., Capture], serve: Callable[..., Server], python: str
) -> None:
    server = serve(recorded("json_behind"))
    capture = ask(server.port, python)
    assert capture.outcome == "ok", capture.why
    assert server.asked == ["timeout 2", "set format json", "verbose status"] * 2
    ras = parse(capture.text)
    assert ras.address == f"127.0.0.1:{server.port}"
    assert ras.apart_s is not None and 1.0 <= ras.apart_s < 4.0
    assert [(lag.rank, lag.count, lag.moved) for lag in ras.lags] == [(3, 60, False)]


def test_an_older_nccl_answers_in_text(ask: Callable[..., Capture], serve: Callable[..., Server]) -> None:
    ras = parse(ask(serve(recorded("text_behind"), json=False).port).text)
    assert ras.report.version == "2.24.3" and [lag.rank for lag in ras.lags] == [7]


def test_nobody_there_is_absent_with_what_that_may_mean(ask: Callable[..., Capture]) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        capture = ask(closed.getsockname()[1])
    assert capture.outcome == "absent" and "NCCL before 2.24, NCCL_RAS_ENABLE=0" in capture.why


def test_who_takes_the_connection_and_says_nothing_costs_the_deadline_only(ask: Callable[..., Capture]) -> None:
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        capture = ask(mute.getsockname()[1])
    assert capture.outcome == "failed" and "did not answer within" in capture.why
    assert capture.took_s < PROBE.timeout_s


def test_another_server_on_the_port_is_not_read_as_ras(
    ask: Callable[..., Capture], serve: Callable[..., Server]
) -> None:
    capture = ask(serve(["HTTP/1.1 400 Bad Request\n\n"] * 2, json=False).port)
    with pytest.raises(ParseError, match="expected RAS's report"):
        parse(capture.text)


def test_two_jobs_on_one_port_are_not_compared_with_each_other(serve: Callable[..., Server]) -> None:
    """Processes of one user share the port (SO_REUSEPORT), and the kernel chooses: the second is asked again."""
    one, other = recorded("json_in_step")[0], recorded("json_in_step")[1].replace("0xae94423cfbb2ef4a", "0xbb")
    assert not ras_ask.same_job(one, other)
    assert ras_ask.same_job(one, recorded("json_in_step")[1])
    server = serve([one, other, recorded("json_in_step")[1]])
    text = ras_ask._asker(f"127.0.0.1:{server.port}", 0, set())()
    head, _, polls = text.partition("\n")
    assert "0xbb" not in polls[json.loads(head)["first"] :] and not server.reports


SERVER = """
import signal, socket, sys
listening = socket.create_server(("127.0.0.1", 28028))
print(flush=True)
for _ in range(2):
    link, _ = listening.accept()
    with link, link.makefile("rwb") as lines:
        for line in lines:
            if line == b"VERBOSE STATUS\\n":
                lines.write(b"NCCL version 2.24.3 compiled with CUDA 12.6\\n")
                break
            lines.write(b"OK\\n")
            lines.flush()
signal.pause()
"""


@pytest.mark.needs_root
def test_ranks_with_a_network_of_their_own_are_asked_inside_it(started: list[subprocess.Popen[bytes]]) -> None:
    """As in a container: what listens there is not seen from the node's own network."""
    env = {"RANK": "0", "WORLD_SIZE": "1", "PATH": os.environ["PATH"]}
    inside = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$0" -c "$1"', sys.executable, SERVER]
    started.append(subprocess.Popen(inside, env=env, stdout=subprocess.PIPE))
    assert started[-1].stdout and started[-1].stdout.readline() == b"\n"
    capture = capture_here(PROBE)
    assert capture.outcome == "ok", capture.why
    assert parse(capture.text).report.version == "2.24.3"


def of_many(communicators: int, late: tuple[int, ...]) -> str:
    """8000 ranks in communicators of one size; the process of rank n is 10000 + n."""
    said = json.loads(recorded("json_behind")[0])
    model = said["communicators"][0]
    size = 8000 // communicators
    said["communicators"] = [
        {**model, "hash": f"0x{first:x}", "ranks": [
            {**model["ranks"][0], "rank": n, "pid": 10_000 + first + n,
             "collective_counts": {"AllReduce": 60 if first + n in late else 64}} for n in range(size)]}
        for first in range(0, 8000, size)
    ]  # fmt: skip
    return json.dumps(said)


def test_of_thousands_of_ranks_a_node_sends_its_own_and_those_that_stand_out() -> None:
    """Three of 8000 are late: that they are the few must still be known when the others are left out."""
    small = ras_ask.small(of_many(1, late=(9, 11, 13)), own={10_005, 10_006})
    assert len(small) < 4_000
    (one,) = (report := of_json(small)).communicators
    assert sorted(member.rank for member in one.members) == [0, 5, 6, 9, 11, 13]
    assert report.left_off == 7994
    assert [(group.count, group.number, group.ranks) for group in one.counts] == [(64, 7997, ()), (60, 3, (9, 11, 13))]


def test_of_a_thousand_communicators_a_node_sends_its_own_and_those_that_are_out_of_step() -> None:
    report = of_json(ras_ask.small(of_many(1000, late=(801,)), own={10_005}))
    assert [one.hash for one in report.communicators] == ["0", f"{800:x}"]
    assert [(group.count, group.ranks) for group in report.communicators[1].counts] == [(64, ()), (60, (1,))]


def test_a_report_cannot_pass_for_a_section() -> None:
    text = ras_ask.small("NCCL version 2.24.3\n==> poll 2 <==\n  ==> asked <==\n{broken\n", set())
    assert "==>" not in text
    assert "==>" not in ras_ask.small('{"a": 1\n   ==> poll 2 <==\n', set())


# Reading


def test_text_that_lists_several_ranks_under_one_count_gives_each_its_place() -> None:
    report = of_text(
        """NCCL version 2.27.3 compiled with CUDA 12.9
#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different status
  6 ranks have status RUNNING
  Rank 5 has status NOCOMM -- GPU 5 managed by process 58 on node 10.0.0.1
  Communicator ranks have different Broadcast operation counts
  5 ranks have launched up to operation 6650
  2 ranks have not launched any operations
  Rank 0 -- GPU 0 managed by process 53 on node 10.0.0.1
  Rank 2 -- [process information not found]
"""
    )
    (one,) = report.communicators
    assert [(group.op, group.count, group.number, group.ranks) for group in one.counts] == [
        ("Broadcast", 6650, 5, ()),
        ("Broadcast", 0, 2, (0, 2)),
    ]
    assert [(gone.rank, gone.unresponsive) for gone in one.missing] == [(5, False)]
    assert [(member.rank, member.pid) for member in one.members] == [(0, 53), (2, None)]


def test_rccl_and_the_older_wording_are_read() -> None:
    report = of_text(
        """RCCL version 2.28.3 compiled with ROCm "7.2.0.0"
#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different collective operation counts
  26 ranks have launched up to operation 6650
  6 ranks have launched up to operation 6649
  Rank 0 -- GPU 0 managed by process 483072 on node 172.16.64.210
"""
    )
    assert report.version == "2.28.3"
    assert [(one.op, one.count, one.ranks) for one in report.communicators[0].counts] == [
        ("", 6650, ()),
        ("", 6649, (0,)),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"communicators": 5}',
        '{"communicators": [{"hash": "0x1", "ranks": [{"rank": "x"}]}]}',
        '{"communicators": [{"hash": "0x1", "ranks": [], "missing_ranks": [7]}]}',
        "{" + "[" * 100_000,
    ],
)
def test_json_that_is_not_rass_is_refused_in_words(text: str) -> None:
    with pytest.raises(ParseError, match="expected RAS's JSON"):
        of_json(text)


def test_a_saved_report_is_read_too() -> None:
    ras = parse(recorded("json_dead")[0])
    assert (ras.polls, ras.apart_s, ras.lags, ras.moved) == (1, None, (), None)
    assert [finding.code for finding in findings(ras)] == ["nccl.dead"]


def test_counts_of_ranks_in_step_are_not_repeated() -> None:
    report = of_json(recorded("json_in_step")[0])
    assert counted(report.communicators[0].members) == ()


def test_numbers_without_end_in_an_answer_are_refused_with_a_reason() -> None:
    text = recorded("json_behind")[0]
    assert '"rank":0,' in text, "else nothing is spoiled"
    with pytest.raises(ParseError, match="RAS"):
        of_json(text.replace('"rank":0,', '"rank":1e999,', 1))
