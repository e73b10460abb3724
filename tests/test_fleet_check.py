"""The check of the fleet on real sshd nodes: what is wrong with each is said in plain words, everywhere."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from incidents.models import HostKey, Node, Reading, SuiteRun, User
from incidents.queries.fleet import states
from incidents.services.fleet import Login, accept_key, add_nodes, change_node
from incidents.services.runs import start_suite
from tests.support.fleets import main, person
from tests.support.sshd_nodes import Lab, free_port

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]


@pytest.fixture(autouse=True)
def workers_use_the_labs_configuration(lab: Lab, settings: object) -> None:
    settings.SSH_CONFIG = str(lab.config)  # type: ignore[attr-defined]


@pytest.fixture
def ada() -> User:
    return person("ada")


def fleet(*words: str) -> tuple[str, int]:
    """Output and exit status of `manage.py fleet ...`."""
    out = io.StringIO()
    try:
        call_command("fleet", *words, stdout=out, stderr=io.StringIO())
    except SystemExit as ended:
        return out.getvalue(), int(ended.code or 0)
    return out.getvalue(), 0


def said() -> dict[str, tuple[str, str]]:
    return {state.node.name: (state.level, state.says) for state in states(main())}


@pytest.mark.needs_root
def test_each_node_is_told_what_is_wrong_with_it(lab: Lab) -> None:
    lab.start("healthy")
    lab.start("stranger", trust=False)
    lab.start("changed", trust=False)
    with lab.known_hosts.open("a") as known:
        other = (lab.folder / "stranger" / "host_key.pub").read_text().split()[:2]
        known.write(f"[{lab.nodes['changed'].address}]:{lab.nodes['changed'].port} {other[0]} {other[1]}\n")
    lab.start("keyless")
    (lab.folder / "keyless" / "authorized_keys").write_text("")
    lab.start("pythonless", bare_path=True)
    lab.name("down", lab.address(), free_port())
    names = ["healthy", "stranger", "changed", "keyless", "pythonless", "down", "no-such-name.invalid"]
    add_nodes(main(), "\n".join(names), Login(), None)
    out, status = fleet("check")
    assert status == 1
    assert "1 of 7 nodes ready." in out
    words = said()
    assert words["healthy"] == ("ok", "ready")
    for name, part in {
        "stranger": "host key not accepted yet",
        "changed": "HOST KEY CHANGED",
        "keyless": "the node refused our SSH key",
        "pythonless": "no python3 on the node",
        "down": "connection refused",
        "no-such-name.invalid": "name not found",
    }.items():
        assert words[name][0] == "bad"
        assert words[name][1].startswith(part), words[name]
        assert part in out
    assert all(state.next for state in states(main()) if state.level != "ok"), "each says what to do next"
    assert [key.node.name for key in HostKey.objects.filter(changed=True)] == ["changed"]
    assert SuiteRun.objects.get().finished_at is not None
    assert Reading.objects.count() == 2 * 7


@pytest.mark.needs_root
def test_refused_sudo_names_the_line_that_would_allow_it_and_that_line_is_enough(lab: Lab) -> None:
    lab.start("refused", account="ops")
    lab.start("allowed", account="ops", sudoers="ops ALL=(root) NOPASSWD: /usr/bin/dmesg")
    add_nodes(main(), "refused\nallowed", Login(), None)
    fleet("check")
    found = {state.node.name: state for state in states(main())}
    assert found["refused"].level == "warn"
    assert "may not read the kernel log and sudo is refused" in found["refused"].says
    assert "ops ALL=(root) NOPASSWD: /usr/bin/dmesg" in found["refused"].next
    assert found["allowed"].level == "ok", found["allowed"].says


@pytest.mark.needs_root
def test_a_slow_node_is_called_slow(lab: Lab) -> None:
    lab.start("slow", rc="sleep 3.2\n")
    add_nodes(main(), "slow", Login(), None)
    fleet("check")
    (state,) = states(main())
    assert state.level == "warn"
    assert state.says.startswith("slow: 3.")


@pytest.mark.needs_root
def test_accepting_the_offered_key_makes_the_node_ready(lab: Lab, ada: User) -> None:
    lab.start("stranger", trust=False)
    add_nodes(main(), "stranger", Login(), None)
    fleet("check")
    printed = (lab.folder / "stranger" / "host_key.pub").read_text()
    keys, _ = fleet("keys")
    assert "stranger ssh-ed25519 SHA256:" in keys
    (lab.folder / "trusted").write_text(printed)
    out, _ = fleet("accept", "--list", str(lab.folder / "trusted"), "--as", "ada")
    assert out == "1 accepted: stranger\n"
    fleet("check")
    assert said() == {"stranger": ("ok", "ready")}


def test_a_node_whose_key_type_changed_too_offers_its_new_key(lab: Lab, ada: User) -> None:
    """The client asks only for key types it knows, so the two find no common one; the key must be fetched."""
    node = lab.start("changed", trust=False)
    import subprocess

    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", lab.folder / "old"], check=True)
    kind, old = (lab.folder / "old.pub").read_text().split()[:2]
    lab.known_hosts.write_text(f"[{node.address}]:{node.port} {kind} {old}\n")
    add_nodes(main(), "changed", Login(), None)
    fleet("check")
    (state,) = states(main())
    assert state.says.startswith("HOST KEY CHANGED")
    assert HostKey.objects.get().kind == "ssh-ed25519"


@pytest.mark.needs_root
def test_the_fleets_own_login_wins_over_the_ssh_configuration(lab: Lab) -> None:
    node = lab.start("gpu-001")
    lab.config.write_text(lab.config.read_text().replace(f"Port {node.port}", "Port 1"))
    add_nodes(main(), f"gpu-001 ansible_host={node.address} ansible_port={node.port}", Login(), None)
    fleet("check")
    assert said() == {"gpu-001": ("ok", "ready")}


def test_the_command_refuses_what_it_cannot_do(ada: User) -> None:
    with pytest.raises(CommandError, match="no nodes to ask"):
        fleet("check")
    with pytest.raises(CommandError, match="not a nodeset"):
        fleet("add", "gpu-[1-")
    with pytest.raises(CommandError, match="Say which nodes"):
        fleet("add")
    with pytest.raises(CommandError, match="No such file"):
        fleet("add", "--file", "/no/such/file")
    with pytest.raises(CommandError, match=r"no user nobody. Users: ada"):
        fleet("accept", "--list", "/dev/null", "--as", "nobody")


def test_the_command_adds_lists_and_removes(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("gpu-001 slots=8\ngpu-002 slots=8\n")
    assert fleet("add", "--file", str(tmp_path / "hosts"), "--user", "ops")[0] == "2 added: gpu-[001-002]\n"
    assert Node.objects.get(name="gpu-001").user == "ops"
    assert "gpu-[001-002]  not checked yet: check the fleet" in fleet("list")[0]
    assert fleet("remove", "gpu-[001-002]")[0] == "2 taken out\n"


def test_the_pages_do_what_the_command_does(client: Client, ada: User) -> None:
    client.force_login(ada)
    page = client.get("/fleet/main/")
    assert "No nodes yet" in page.content.decode()
    assert client.post("/fleet/main/add", {"nodes": "gpu-[001-002]", "user": "ops"}, follow=True).status_code == 200
    assert Node.objects.get(name="gpu-001").added_by == ada
    bad = client.post("/fleet/main/add", {"nodes": "bad;name"})
    assert bad.status_code == 422
    assert "Nothing was added. line 1" in bad.content.decode()
    assert "bad;name" in bad.content.decode(), "what was typed is not lost"
    assert client.post("/fleet/main/nodes/gpu-001", {"address": "10.0.0.1"}).status_code == 302
    assert Node.objects.get(name="gpu-001").address == "10.0.0.1"
    assert client.get("/fleet/main/nodes/nobody").status_code == 404
    client.post("/fleet/main/nodes/gpu-001/remove")
    assert not Node.objects.filter(name="gpu-001").exists()


def test_reading_the_page_changes_nothing_and_strangers_see_nothing(client: Client, ada: User) -> None:
    add_nodes(main(), "gpu-001", Login(), None)
    for path in ("/fleet/main/", "/fleet/main/state", "/fleet/main/nodes/gpu-001"):
        assert client.get(path).status_code == 302
        assert "/sign-in/" in client.get(path)["Location"]
    for path in (
        "/fleet/main/add",
        "/fleet/main/check",
        "/fleet/main/keys",
        "/fleet/main/keys/1",
        "/fleet/main/nodes/gpu-001/remove",
    ):
        assert "/sign-in/" in client.post(path)["Location"]
        client.force_login(ada)
        assert client.get(path)["Location"] == "/fleet/main/", "a reload or a bookmark leads to the page"
        client.logout()
    assert Node.objects.count() == 1


def test_the_fleet_page_asks_the_same_few_queries_at_any_size(
    client: Client, ada: User, django_assert_max_num_queries: object
) -> None:
    client.force_login(ada)
    add_nodes(main(), "gpu-[0001-1024]", Login(), None)
    with django_assert_max_num_queries(12):  # type: ignore[operator]
        page = client.get("/fleet/main/")
    assert page.content.decode().count('data-key="node-') == 1024


def test_lines_of_the_ssh_configuration_without_effect_are_told(client: Client, ada: User, lab: Lab) -> None:
    client.force_login(ada)
    lab.config.write_text("StrictHostKeyChecking no\n" + lab.config.read_text())
    assert "no effect here" not in client.get("/fleet/main/").content.decode(), "facts of the server are not for all"
    ada.is_superuser = True
    ada.save()
    lab.config.write_text(lab.config.read_text().removeprefix("StrictHostKeyChecking no\n"))
    assert "no effect here" not in client.get("/fleet/main/").content.decode()
    lab.config.write_text("StrictHostKeyChecking no\n" + lab.config.read_text())
    page = client.get("/fleet/main/").content.decode()
    assert "1 line of the SSH configuration has no effect here" in page
    assert f"{lab.config}:1: StrictHostKeyChecking is not honoured" in page


def test_a_hostile_name_or_answer_is_shown_as_text(client: Client, ada: User) -> None:
    from django.utils import timezone

    from incidents.models import NodeVisit

    client.force_login(ada)
    add_nodes(main(), "gpu-001", Login(), None)
    run = SuiteRun.objects.create(fleet=main(), suite="check", started_at=timezone.now(), node_count=1)
    NodeVisit.objects.create(
        run=run,
        node=Node.objects.get(),
        at=timezone.now(),
        reason="lost",
        detail="<script>alert(1)</script>",
        took_s=1,
        connect_s=0,
        tries=1,
    )
    page = client.get("/fleet/main/").content.decode()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page


@pytest.mark.needs_root
def test_an_answer_that_was_overtaken_is_not_shown_as_news(lab: Lab, ada: User) -> None:
    lab.start("gpu-001")
    lab.start("gpu-002", trust=False)
    add_nodes(main(), "gpu-[001-002]", Login(), None)
    fleet("check")
    assert said()["gpu-001"] == ("ok", "ready")
    change_node(main(), "gpu-001", "", Login(user="nobody-here"))
    accept_key(main(), HostKey.objects.get(node__name="gpu-002").pk, ada)
    assert said() == {
        "gpu-001": ("unknown", "changed, not checked since"),
        "gpu-002": ("unknown", "key accepted, not checked since"),
    }
    fleet("check")
    assert said()["gpu-001"][0] == "bad"
    assert said()["gpu-002"] == ("ok", "ready")


@pytest.mark.needs_root
def test_a_check_that_another_began_is_joined_not_doubled(lab: Lab, ada: User, client: Client) -> None:
    lab.start("gpu-001")
    add_nodes(main(), "gpu-001", Login(), None)
    start_suite("check", list(Node.objects.all()), ada, ring=False)
    client.force_login(ada)
    page = client.post("/fleet/main/check", follow=True).content.decode()
    assert "A check of the fleet is running already" in page
    assert "1 of 1 nodes ready." in fleet("check")[0]
    assert SuiteRun.objects.count() == 1
