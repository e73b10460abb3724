"""Who is let in: host keys, on real sshds."""

from __future__ import annotations

import subprocess

import pytest

from probes.transport.trust import TrustedKeys
from tests.support.asking import ask
from tests.support.sshd_nodes import Lab


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


def test_a_key_trusted_for_an_address_is_not_trusted_for_a_name_that_leads_there(lab: Lab) -> None:
    """Whoever spoofs a name must not be let in with the key of another node."""
    lab.start("here", sshd="ListenAddress 127.0.0.1\nListenAddress ::1")
    here = lab.nodes["here"]
    lab.name("by-name", "localhost", here.port)
    for address in ("127.0.0.1", "::1"):
        with lab.known_hosts.open("a") as known:
            known.write(f"[{address}]:{here.port} {key_of(lab, 'here')}\n")
    _, ends = ask(lab, ["by-name", "here"])
    assert ends["here"].reason == ""
    assert ends["by-name"].reason == "host_key_unknown"


def key_of(lab: Lab, name: str) -> str:
    return " ".join((lab.folder / name / "host_key.pub").read_text().split()[:2])


def test_one_bad_line_of_known_hosts_does_not_take_the_others_with_it(lab: Lab) -> None:
    lab.start("good")
    lab.start("revoked")
    bad = "one-word\n"
    lab.known_hosts.write_text(bad + lab.known_hosts.read_text() + f"@revoked * {key_of(lab, 'revoked')}\n")
    _, ends = ask(lab, ["good", "revoked"])
    assert ends["good"].reason == ""
    assert ends["revoked"].reason != ""
    (problem,) = TrustedKeys([str(lab.known_hosts)]).problems
    assert problem.startswith(f"{lab.known_hosts}:1: ")
