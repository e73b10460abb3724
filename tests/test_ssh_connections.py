"""Getting through to real sshds: full ones, jump hosts, agents, and what is no sshd at all."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import threading
import time

import asyncssh
import pytest

from probes.transport import NodeEnd, Plan, Target, ssh
from tests.support.asking import CHECK, ask, occupied, probe, settings_of
from tests.support.sshd_nodes import Lab, free_port
from tests.support.wait import until


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


def test_a_jump_host_that_leads_back_to_itself_is_named_at_once(lab: Lab) -> None:
    """`Host *` with a ProxyJump applies to the jump host as well: a common slip."""
    lab.start("bastion")
    lab.start("inner")
    lab.config.write_text(lab.config.read_text() + "  ProxyJump bastion\n")
    began = time.monotonic()
    _, ends = ask(lab, ["inner"], node_s=30)
    assert time.monotonic() - began < 5
    assert "leads back to itself" in ends["inner"].why


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


def test_a_user_certificate_named_in_the_configuration_is_used(lab: Lab) -> None:
    """The node trusts an authority and knows no single key."""
    ca = lab.folder / "user_ca"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", ca], check=True)
    sign = ["ssh-keygen", "-q", "-s", ca, "-I", "oncall", "-n", lab.user, "-V", "+1h", f"{lab.key}.pub"]
    subprocess.run(sign, check=True)
    lab.start("node", sshd=f"TrustedUserCAKeys {ca}.pub", config=f"  CertificateFile {lab.key}-cert.pub\n")
    (lab.folder / "node" / "authorized_keys").write_text("")
    lab.start("stranger")
    (lab.folder / "stranger" / "authorized_keys").write_text("")
    _, ends = ask(lab, ["node", "stranger"])
    assert ends["node"].reason == ""
    assert ends["stranger"].reason == "key_refused"


def test_an_address_takes_the_place_of_the_host_name_and_nothing_else(lab: Lab) -> None:
    """As `ssh -o HostName=ADDRESS NODE`: port, user, key and jump host of the node's own lines still count."""
    node = lab.start("gpu-001")
    lab.config.write_text(lab.config.read_text().replace(f"HostName {node.address}", "HostName wrong.invalid"))
    target = Target("gpu-001", address=node.address)

    async def one() -> NodeEnd:
        items = [item async for item in ssh.ask([target], CHECK.plan(), settings_of(lab))]
        assert isinstance(items[-1], NodeEnd)
        return items[-1]

    end = asyncio.run(one())
    assert end.reason == "", end.why
    assert end.reached == f"{lab.user}@{node.address}:{node.port}"


def test_a_missing_identity_file_is_named(lab: Lab) -> None:
    lab.start("node")
    lab.config.write_text("IdentityFile /no/such/key\n" + lab.config.read_text())
    _, ends = ask(lab, ["node"])
    assert ends["node"].reason == "bad_config"
    assert "/no/such/key" in ends["node"].why


def test_a_key_with_a_passphrase_is_skipped_not_asked_for(lab: Lab) -> None:
    """Nobody sits at the worker's terminal; the agent is the way for such keys."""
    lab.start("node")
    subprocess.run(["ssh-keygen", "-q", "-p", "-N", "secret", "-P", "", "-f", lab.key], check=True)
    _, ends = ask(lab, ["node"])
    assert ends["node"].reason == "no_key", ends["node"].why
    assert "ssh-agent" in ends["node"].why


def test_asyncssh_is_new_enough_to_be_safe() -> None:
    """Floor 2.24.1: Terrapin, SCP traversal and the authentication race are fixed there."""
    assert tuple(map(int, asyncssh.__version__.split("."))) >= (2, 24, 1)
