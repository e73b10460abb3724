"""Real sshd nodes, one of each kind of trouble, asked in one run. What a tired engineer sees must be right."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import asyncssh
import pytest

from probes import catalog, suites
from probes.core import Capture, Finding, Probe
from probes.transport import NodeEnd, Plan, Settings, Target, ssh
from tests.support.sshd_nodes import ROOT, FrozenMount, Lab, free_port
from tests.support.wait import until

CHECK = suites.SUITES["check"]
needs_namespaces = [pytest.mark.needs_root, pytest.mark.skipif(not ROOT, reason="needs root: namespaces")]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with Lab(tmp_path) as lab:
        yield lab


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


NVIDIA_SMI_FLOODS = "#!/bin/sh\nexec yes 'GPU 0: forty-two'\n"


@pytest.mark.needs_root
@pytest.mark.skipif(not ROOT, reason="needs root: namespaces, fsfreeze and a loop device")
def test_one_run_over_a_healthy_node_and_one_of_each_trouble(lab: Lab, tmp_path: Path) -> None:
    """The promise of the capture suite, on real sshds: healthy answers complete, each bad node says what is wrong,
    the run ends within its deadline, and nothing is left on any node."""
    suite = suites.SUITES["capture"]
    with FrozenMount(tmp_path) as frozen:
        lab.start("healthy")
        lab.name("down", lab.address(), free_port())
        lab.start("flooding", tools={"nvidia-smi": NVIDIA_SMI_FLOODS})
        lab.start(
            "chatty",
            sshd=f"Banner {lab.known_hosts}",
            rc="echo 'Welcome to'; printf 'the cluster @golden15 '; cat >/dev/null </dev/null\n",
        )
        lab.start("wedged", tools={"nvidia-smi": f"#!/bin/sh\necho x > {frozen.mount}/nvidia\n"})
        lab.start("busy", sshd="MaxStartups 3")
        names = ["healthy", "down", "flooding", "chatty", "wedged", "busy"]
        with occupied(lab.nodes["busy"].address, lab.nodes["busy"].port, 3, seconds=2.0):
            began = time.monotonic()
            captures, ends = ask(lab, names, suite.plan(), node_s=25, run_s=40)
            took = time.monotonic() - began

        assert took < 30, "the run ends within its deadline"
        for name in ("healthy", "chatty", "busy"):
            for probe_name in suite.probes:
                reading = catalog.read(captures[name, probe_name])
                assert reading.outcome in ("ok", "absent"), (name, probe_name, reading.capture.why, reading.parse_error)
            assert ends[name].reason == ""
        assert ends["busy"].tries > 1, "turned away at first, then let in"
        assert "Welcome to" in ends["chatty"].chatter
        assert ends["down"].reason == "refused"
        assert {captures["down", p].outcome for p in suite.probes} == {"unreachable"}
        assert (
            captures["flooding", "gpu.state"].outcome == "failed"
            or catalog.read(captures["flooding", "gpu.state"]).parse_error
        )
        assert captures["flooding", "host.load"].outcome == "ok", "one probe's flood costs the others nothing"
        wedged = captures["wedged", "gpu.state"]
        told = wedged.state == "D" or '"D"' in wedged.text or "state D" in wedged.text
        assert told, "the wedged driver call is named with its state"
        assert captures["wedged", "host.load"].outcome == "ok"
        assert captures["wedged", "host.kernel_log"].outcome == "ok"
        frozen.thaw()
        nothing_left(lab)


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


def test_a_full_sshd_is_called_busy_not_dead(lab: Lab) -> None:
    node = lab.start("busy", sshd="MaxStartups 3")
    with occupied(node.address, node.port, 3, seconds=60):
        captures, ends = ask(lab, ["busy"], connect_s=1.5)
    assert ends["busy"].reason == "sshd_busy"
    assert ends["busy"].tries > 1
    assert "it is alive" in ends["busy"].why


def test_forty_names_on_one_full_sshd_all_get_their_turn(lab: Lab) -> None:
    node = lab.start("crowded", sshd="MaxStartups 3:100:5")
    names = [f"crowd-{i}" for i in range(40)]
    for name in names:
        lab.name(name, node.address, node.port)
    _, ends = ask(lab, names, Plan((probe("a.echo", "echo", "x"),), deadline_s=5), connect_s=20)
    assert [end.reason for end in ends.values()] == [""] * 40


def test_who_cannot_be_asked_is_told_in_plain_words(lab: Lab) -> None:
    lab.start("stranger", trust=False)
    lab.start("changed", trust=False)
    with lab.known_hosts.open("a") as known:  # another key is known for it
        other = (lab.folder / "stranger" / "host_key.pub").read_text().split()[:2]
        known.write(f"[{lab.nodes['changed'].address}]:{lab.nodes['changed'].port} {other[0]} {other[1]}\n")
    lab.start("keyless")
    (lab.folder / "keyless" / "authorized_keys").write_text("")
    lab.start("pythonless", bare_path=True)
    lab.start("closed", sshd="ForceCommand /bin/false")
    _, ends = ask(lab, ["stranger", "changed", "keyless", "pythonless", "closed", "no-such-name.invalid"])
    assert {name: end.reason for name, end in ends.items()} == {
        "stranger": "host_key_unknown",
        "changed": "host_key_changed",
        "keyless": "key_refused",
        "pythonless": "no_python",
        "closed": "login_closed",
        "no-such-name.invalid": "name_not_found",
    }
    printed = subprocess.run(
        ["ssh-keygen", "-lf", lab.folder / "stranger" / "host_key.pub"], capture_output=True, text=True, check=True
    ).stdout.split()[1]
    assert ends["stranger"].fingerprint == printed, "the fingerprint is the one ssh-keygen prints"
    assert printed in ends["stranger"].why
    assert all(end.why for end in ends.values())


def test_an_offered_key_that_a_person_accepted_opens_the_node_and_no_other(lab: Lab) -> None:
    lab.start("stranger", trust=False)
    lab.start("other", trust=False)
    _, ends = ask(lab, ["stranger"])
    _, ends = ask(lab, ["stranger", "other"], accepted=ends["stranger"].offered_key)
    assert ends["stranger"].reason == ""
    assert ends["other"].reason == "host_key_unknown"


def test_a_host_certificate_of_a_trusted_authority_is_enough(lab: Lab) -> None:
    node = lab.start("certified", trust=False)
    place = lab.folder / "certified"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", lab.folder / "ca"], check=True)
    subprocess.run(
        [
            "ssh-keygen",
            "-q",
            "-s",
            lab.folder / "ca",
            "-I",
            "certified",
            "-h",
            "-n",
            node.address,
            place / "host_key.pub",
        ],
        check=True,
    )
    lab.stop(node)
    with (place / "sshd_config").open("a") as config:
        config.write(f"HostCertificate {place}/host_key-cert.pub\n")
    lab._spawn(node, place, "")
    kind, key = (lab.folder / "ca.pub").read_text().split()[:2]
    with lab.known_hosts.open("a") as known:
        known.write(f"@cert-authority 127.15.0.* {kind} {key}\n")
    _, ends = ask(lab, ["certified"])
    assert ends["certified"].reason == ""


@pytest.mark.parametrize(
    "line", ["UserKnownHostsFile none", "StrictHostKeyChecking no", "StrictHostKeyChecking accept-new"]
)
def test_no_line_of_an_ssh_configuration_switches_host_keys_off(lab: Lab, line: str) -> None:
    lab.start("stranger", trust=False)
    lab.config.write_text(f"{line}\nUserKnownHostsFile /dev/null\n{lab.config.read_text()}")
    _, ends = ask(lab, ["stranger"])
    assert ends["stranger"].reason == "host_key_unknown"


@pytest.mark.needs_root
@pytest.mark.skipif(not ROOT, reason="needs root: an rc file of the node's own")
def test_a_shell_that_hangs_and_a_shell_that_floods_are_told_apart(lab: Lab) -> None:
    lab.start("stale-home", rc="sleep 600\n")
    lab.start("endless", rc="yes\n")
    began = time.monotonic()
    _, ends = ask(lab, ["stale-home", "endless"], start_s=2)
    assert time.monotonic() - began < 8
    assert ends["stale-home"].reason == "shell_hung"
    assert ends["endless"].reason == "flood"
    assert len(ends["endless"].chatter) <= 300
    until(lambda: not lab.nodes["endless"].processes(), 10, "the flooding shell to end")


def test_what_listens_but_is_not_ssh_and_what_never_answers(lab: Lab) -> None:
    web, silent = socket.create_server(("127.0.0.1", 0)), socket.create_server(("127.0.0.1", 0))
    lab.name("web", "127.0.0.1", web.getsockname()[1])
    lab.name("silent", "127.0.0.1", silent.getsockname()[1])

    def answer() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = web.accept()
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\nServer: x\r\n\r\n" + b"x" * 2000 + b"\r\n")
                connection.close()

    threading.Thread(target=answer, daemon=True).start()
    _, ends = ask(lab, ["web", "silent"], connect_s=2)
    web.close()
    silent.close()
    assert ends["silent"].reason == "sshd_silent"
    assert ends["web"].reason in ("no_ssh", "sshd_busy")


def test_a_jump_host_is_connected_to_once_for_all_nodes_behind_it(lab: Lab) -> None:
    lab.start("bastion", sshd="MaxStartups 1:100:1\nLogLevel VERBOSE")
    for i in range(8):
        lab.start(f"inner-{i}", config="  ProxyJump bastion\n")
    lab.name("inner-down", "127.15.9.9", free_port(), "  ProxyJump bastion\n")
    names = [f"inner-{i}" for i in range(8)]
    captures, ends = ask(lab, [*names, "inner-down"])
    assert [ends[name].reason for name in names] == [""] * 8
    assert ends["inner-down"].reason == "refused"
    assert "jump host" in ends["inner-down"].why
    log = (lab.folder / "bastion" / "sshd.log").read_text()
    assert log.count("Accepted publickey") == 1


def test_a_jump_host_that_is_down_is_named(lab: Lab) -> None:
    lab.name("bastion", lab.address(), free_port())
    lab.start("inner", config="  ProxyJump bastion\n")
    _, ends = ask(lab, ["inner"])
    assert ends["inner"].reason == "jump_failed"
    assert "bastion" in ends["inner"].why
    assert "refused" in ends["inner"].why


def test_a_key_from_the_agent_is_used(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.start("node")
    agent_socket = lab.folder / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", agent_socket], stdout=subprocess.DEVNULL)
    try:
        until(agent_socket.exists, 5, "ssh-agent")
        monkeypatch.setenv("SSH_AUTH_SOCK", str(agent_socket))
        subprocess.run(["ssh-add", "-q", lab.key], check=True, env={**os.environ, "SSH_AUTH_SOCK": str(agent_socket)})
        lines = [line for line in lab.config.read_text().splitlines() if "Identit" not in line]
        lab.config.write_text("\n".join(lines) + "\n")
        lab.key.unlink()
        _, ends = ask(lab, ["node"])
        assert ends["node"].reason == ""
    finally:
        agent.terminate()
        agent.wait()


def test_a_node_that_dies_in_the_middle_keeps_what_it_had_told(lab: Lab) -> None:
    node = lab.start("dying")
    plan = Plan((probe("a.first", "echo", "told"), probe("a.last", "sleep", "60", timeout_s=50)), deadline_s=60)

    async def collect() -> list[Capture | NodeEnd]:
        items = []
        async for item in ssh.ask([Target("dying")], plan, settings_of(lab, node_s=30)):
            items.append(item)
            if isinstance(item, Capture) and item.probe == "a.first":
                lab.stop(node) if ROOT else subprocess.run(["pkill", "-9", "-P", str(node.sshd_pid)])
        return items

    first, last, end = asyncio.run(collect())
    assert isinstance(first, Capture) and isinstance(last, Capture) and isinstance(end, NodeEnd)
    assert (first.outcome, first.text) == ("ok", "told\n")
    assert (last.outcome, last.reason) == ("unreachable", "lost")
    assert end.reason == "lost"


def test_a_run_ends_at_its_deadline_and_says_what_was_not_asked(lab: Lab) -> None:
    lab.start("slow")
    lab.start("waiting")
    plan = Plan((probe("a.sleep", "sleep", "60", timeout_s=50),), deadline_s=60)
    began = time.monotonic()
    captures, _ = ask(lab, ["slow", "waiting"], plan, fanout=1, run_s=2)
    assert time.monotonic() - began < 5
    assert captures["slow", "a.sleep"].outcome == "skipped"
    assert captures["waiting", "a.sleep"].outcome == "skipped"
    assert "run's time was over" in captures["waiting", "a.sleep"].why


def test_stopping_the_reader_early_leaves_nothing_behind(lab: Lab) -> None:
    lab.start("node")
    plan = Plan((probe("a.first", "echo", "x"), probe("a.last", "sleep", "600", timeout_s=500)), deadline_s=600)

    async def first_only() -> None:
        stream = ssh.ask([Target("node")], plan, settings_of(lab, node_s=600))
        async for _ in stream:
            break
        await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(first_only())
    if ROOT:
        nothing_left(lab)


@pytest.mark.needs_root
@pytest.mark.skipif(not ROOT, reason="needs root: to look into the node's processes")
def test_nothing_is_left_on_any_node_after_the_controller_was_killed_in_the_middle(lab: Lab) -> None:
    slow = {"nvidia-smi": "#!/bin/sh\nsleep 600\n"}
    names = [f"node-{i}" for i in range(3)]
    for name in names:
        lab.start(name, tools=slow)
    command = [
        sys.executable,
        "-m",
        "probes",
        "run",
        "--nodes",
        "node-[0-2]",
        "--suite",
        "capture",
        "--json",
        "-F",
        str(lab.config),
    ]
    controller = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    for name in names:
        until(lambda name=name: any("sleep" in p for p in lab.nodes[name].processes()), 20, f"{name} to be busy")  # type: ignore[misc]
    controller.send_signal(signal.SIGKILL)
    controller.communicate()
    nothing_left(lab)


@pytest.mark.needs_root
@pytest.mark.skipif(not ROOT, reason="needs root: mounts in the node's namespace")
def test_a_node_whose_disks_are_full_still_answers(lab: Lab) -> None:
    fill = "mount -t tmpfs -o size=4k tmpfs {0}; mkdir -p /run/sshd; head -c 4096 /dev/zero >{0}/full"
    lab.start("full", mounts="\n".join(fill.format(place) for place in ("/dev/shm", "/var/tmp", "/run")))
    captures, ends = ask(lab, ["full"])
    assert ends["full"].reason == ""
    assert {capture.outcome for capture in captures.values()} == {"ok"}


@pytest.mark.needs_root
@pytest.mark.skipif(not ROOT, reason="needs root: namespaces")
def test_a_clock_that_is_903_seconds_ahead_is_measured_within_its_bound(lab: Lab) -> None:
    faketime = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
    shim = f'#!/bin/sh\nLD_PRELOAD={faketime} FAKETIME=+903 FAKETIME_DONT_FAKE_MONOTONIC=1 exec /usr/bin/python3 "$@"\n'
    lab.start("ahead", tools={"python3": shim})
    lab.start("right")
    captures, _ = ask(lab, ["ahead", "right"])
    ahead = catalog.read(captures["ahead", "host.clock"])
    assert abs(ahead.facts.offset_s - 903) <= ahead.facts.bound_s + 0.001
    assert ahead.facts.bound_s < 0.5
    assert [f.severity for f in ahead.findings if f.code == "host.clock_offset"] == ["bad"]
    right = catalog.read(captures["right", "host.clock"])
    assert abs(right.facts.offset_s) <= right.facts.bound_s
    assert not [f for f in right.findings if f.code == "host.clock_offset"]


def test_the_command_prints_what_a_person_needs(lab: Lab) -> None:
    lab.start("gpu-001")
    lab.name("gpu-002", lab.address(), free_port())
    lab.name("gpu-003", lab.address(), free_port())
    base = [
        sys.executable,
        "-m",
        "probes",
        "run",
        "--nodes",
        "gpu-[001-003]",
        "--suite",
        "check",
        "-F",
        str(lab.config),
    ]
    said = subprocess.run(base, capture_output=True, text=True, timeout=60)
    assert said.returncode == 1
    assert "No answer: gpu-[002-003] connection refused" in said.stdout
    assert "1 of 3 nodes answered" in said.stdout
    lines = [
        json.loads(line)
        for line in subprocess.run([*base, "--json"], capture_output=True, text=True).stdout.splitlines()
    ]
    assert {line["schema"] for line in lines} == {1}
    assert [line["kind"] for line in lines].count("reading") == 6
    assert [line["kind"] for line in lines].count("node") == 3
    assert lines[-1]["kind"] == "summary"
    assert lines[-1]["silent"] == 2


def test_saved_captures_replay_to_the_same_readings(lab: Lab, tmp_path: Path) -> None:
    lab.start("gpu-001")
    lab.name("gpu-002", lab.address(), free_port())
    base = [sys.executable, "-m", "probes", "run", "--suite", "check", "--json"]
    live = subprocess.run(
        [*base, "--nodes", "gpu-[001-002]", "-F", str(lab.config), "--save", str(tmp_path / "saved")],
        capture_output=True,
        text=True,
    )
    again = subprocess.run([*base, "--replay", str(tmp_path / "saved")], capture_output=True, text=True)

    def readings(text: str) -> dict[tuple[str, str], object]:
        lines = [json.loads(line) for line in text.splitlines()]
        return {
            (x["node"], x["probe"]): {k: x[k] for k in ("outcome", "why", "facts", "findings", "at")}
            for x in lines
            if x["kind"] == "reading"
        }

    assert readings(live.stdout) == readings(again.stdout)
    assert len(readings(again.stdout)) == 4


def test_a_probe_is_recorded_from_a_real_node_as_a_draft_case(lab: Lab, tmp_path: Path) -> None:
    lab.start("gpu-001")
    command = [
        sys.executable,
        "-m",
        "probes",
        "record",
        "gpu-001",
        "host.clock",
        "fine",
        "--into",
        str(tmp_path / "cases"),
        "-F",
        str(lab.config),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "golden15/pings" in (tmp_path / "cases/host.clock/fine.out").read_text()
    draft = json.loads((tmp_path / "cases/host.clock/fine.json").read_text())
    assert "offset_s" in draft["facts"]
    again = subprocess.run(command, capture_output=True, text=True)
    assert again.returncode == 2
    assert "exists already" in again.stderr


def test_asyncssh_is_new_enough_to_be_safe() -> None:
    """Floor 2.24.1: Terrapin, SCP traversal and the authentication race are fixed there."""
    assert tuple(map(int, asyncssh.__version__.split("."))) >= (2, 24, 1)
