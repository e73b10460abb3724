"""The fleet's services: nodes in and out, and host keys that only a person's word makes trusted."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from incidents.models import HostKey, Node, User
from incidents.queries.fleet import accepted_lines, waiting_keys
from incidents.services import fleet
from incidents.services.fleet import Login, Refused
from tests.support.fleets import main

pytestmark = [pytest.mark.django_db, pytest.mark.database]

# Made by ssh-keygen -t ed25519; the fingerprints are what ssh-keygen -lf printed for them.
KEYS = {
    "one": ("AAAAC3NzaC1lZDI1NTE5AAAAIKsyYsmOqTjnDG9bSI4o3IHt4ckZRgNVhRzkd9CeZThX", "SHA256:ONE"),
    "two": ("AAAAC3NzaC1lZDI1NTE5AAAAIDi2fEqyqDL8IrrZnX5VTEKzDcvZwlWUmxRtmnUgHg7p", "SHA256:TWO"),
}


@pytest.fixture
def ada() -> User:
    return User.objects.create(username="ada")


def add(text: str, **login: object) -> fleet.Added:
    return fleet.add_nodes(main(), text, Login(**login), None)  # type: ignore[arg-type]


def offer(name: str, which: str, changed: bool = False) -> HostKey:
    node = Node.objects.get(name=name)
    key, _ = KEYS[which]
    fleet.offer_key(node.pk, f"{name} ssh-ed25519 {key}\n", fingerprint(which), changed)
    return node.host_keys.get(line=f"{name} ssh-ed25519 {key}", replaced_at=None)


def fingerprint(which: str) -> str:
    import base64
    import hashlib

    digest = hashlib.sha256(base64.b64decode(KEYS[which][0])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def test_a_folded_list_adds_its_nodes_with_the_common_login() -> None:
    added = add("gpu-[001-003]", user="ops", port=2222, jump="bastion")
    assert added.new == ["gpu-001", "gpu-002", "gpu-003"]
    node = Node.objects.get(name="gpu-002")
    assert (node.user, node.port, node.jump) == ("ops", 2222, "bastion")


def test_what_a_line_says_wins_over_the_common_login() -> None:
    add("root@gpu-001:22\ngpu-002", user="ops", port=2222)
    assert (Node.objects.get(name="gpu-001").user, Node.objects.get(name="gpu-001").port) == ("root", 22)
    assert Node.objects.get(name="gpu-002").user == "ops"


def test_adding_again_changes_what_differs_and_keeps_the_rest() -> None:
    add("gpu-001 ansible_host=10.0.0.1\ngpu-002")
    added = add("gpu-001\ngpu-002:2200\ngpu-003")
    assert (added.new, added.changed, added.same) == (["gpu-003"], ["gpu-002"], ["gpu-001"])
    assert Node.objects.get(name="gpu-001").address == "10.0.0.1"


@pytest.mark.parametrize(
    ("text", "login"),
    [("gpu-001\nbad;name", {}), ("gpu-001", {"jump": "-oProxyCommand=id"}), ("gpu-001", {"user": "a b"}), ("", {})],
)
def test_a_list_that_cannot_be_read_adds_nothing(text: str, login: dict[str, object]) -> None:
    with pytest.raises(Refused, match="Nothing was added"):
        add(text, **login)
    assert not Node.objects.exists()


def test_an_offered_key_opens_nothing_until_somebody_accepts_it(ada: User) -> None:
    add("gpu-001")
    key = offer("gpu-001", "one")
    assert accepted_lines(main()) == ""
    fleet.accept_key(main(), key.pk, ada)
    assert accepted_lines(main()) == f"gpu-001 ssh-ed25519 {KEYS['one'][0]}\n"
    key.refresh_from_db()
    assert (key.accepted_by, key.how) == (ada, "one")
    assert key.accepted_at is not None


def test_a_changed_key_needs_a_reason_and_replaces_the_old_one(ada: User) -> None:
    add("gpu-001")
    fleet.accept_key(main(), offer("gpu-001", "one").pk, ada)
    changed = offer("gpu-001", "two", changed=True)
    assert [key.changed for key in waiting_keys(main())] == [True]
    with pytest.raises(Refused, match="CHANGED"):
        fleet.accept_key(main(), changed.pk, ada, "  ")
    fleet.accept_key(main(), changed.pk, ada, "reinstalled this morning, ticket 4711")
    assert accepted_lines(main()) == f"gpu-001 ssh-ed25519 {KEYS['two'][0]}\n"
    old = HostKey.objects.get(line__contains=KEYS["one"][0])
    assert old.replaced_at is not None
    assert old.accepted_by == ada, "history is kept"


def test_an_old_key_that_comes_back_needs_a_new_acceptance(ada: User) -> None:
    add("gpu-001")
    fleet.accept_key(main(), offer("gpu-001", "one").pk, ada)
    fleet.accept_key(main(), offer("gpu-001", "two", changed=True).pk, ada, "reinstalled")
    offer("gpu-001", "one", changed=True)
    assert [key.line.split()[2] for key in waiting_keys(main())] == [KEYS["one"][0]]
    rows = HostKey.objects.filter(line__contains=KEYS["one"][0])
    assert [row.accepted_by for row in rows] == [ada, None], "who accepted it the first time is not forgotten"


def test_a_key_is_accepted_once(ada: User) -> None:
    add("gpu-001")
    key = offer("gpu-001", "one")
    fleet.accept_key(main(), key.pk, ada)
    with pytest.raises(Refused, match="already"):
        fleet.accept_key(main(), key.pk, ada)
    with pytest.raises(Refused, match="not here any more"):
        fleet.accept_key(main(), 999_999, ada)


@pytest.mark.parametrize(
    "line",
    [
        "gpu-001 ssh-ed25519 {key}",
        "gpu-001,10.0.0.1 ssh-ed25519 {key} root@gpu-001",
        "[gpu-001]:2222 ssh-ed25519 {key}",
        "ssh-ed25519 {key} comment",
        "256 {fingerprint} gpu-001 (ED25519)",
        "256 {fingerprint} root@gpu-001 (ED25519)",
        "{fingerprint}",
    ],
)
def test_every_form_of_a_trusted_list_accepts_the_key_on_it(ada: User, line: str) -> None:
    add("gpu-001")
    offer("gpu-001", "one")
    pasted = fleet.accept_pasted(main(), line.format(key=KEYS["one"][0], fingerprint=fingerprint("one")), ada)
    assert pasted.accepted == ["gpu-001"]
    assert HostKey.objects.get().how == "list"


def hashed(tmp_path: Path, name: str, which: str) -> str:
    """A known_hosts line with its name hashed, by ssh-keygen -H."""
    file = tmp_path / f"known-{name}"
    file.write_text(f"{name} ssh-ed25519 {KEYS[which][0]}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", file], check=True, capture_output=True)
    line = file.read_text()
    assert line.startswith("|1|")
    return line


def test_hashed_lines_count_for_the_name_that_they_hide(ada: User, tmp_path: Path) -> None:
    add("gpu-[001-003]")
    offer("gpu-001", "one")
    offer("gpu-002", "one")
    offer("gpu-003", "one")
    pasted = fleet.accept_pasted(main(), hashed(tmp_path, "gpu-001", "one") + hashed(tmp_path, "gpu-002", "two"), ada)
    assert (pasted.accepted, pasted.refused, pasted.not_listed) == (["gpu-001"], ["gpu-002"], ["gpu-003"])


def test_a_changed_key_on_a_list_is_accepted_and_told_apart(ada: User) -> None:
    add("gpu-001")
    fleet.accept_key(main(), offer("gpu-001", "one").pk, ada)
    offer("gpu-001", "two", changed=True)
    pasted = fleet.accept_pasted(main(), f"gpu-001 ssh-ed25519 {KEYS['two'][0]}", ada)
    assert pasted.accepted == pasted.changed == ["gpu-001"]
    assert accepted_lines(main()) == f"gpu-001 ssh-ed25519 {KEYS['two'][0]}\n"
    assert HostKey.objects.get(line__contains=KEYS["two"][0]).reason == "its new key stood on the list"


def test_a_very_long_key_is_kept_too(ada: User) -> None:
    """An RSA key of 16,384 bits makes a line that no database index holds."""
    add("gpu-001")
    node = Node.objects.get()
    fleet.offer_key(node.pk, "gpu-001 ssh-rsa AAAA" + "B" * 2740, "SHA256:" + "x" * 43, False)
    fleet.offer_key(node.pk, "gpu-001 ssh-rsa AAAA" + "B" * 2740, "SHA256:" + "x" * 43, False)
    assert len(waiting_keys(main())) == 1


def test_a_list_with_another_key_for_the_node_accepts_nothing_and_says_so(ada: User) -> None:
    add("gpu-[001-003]")
    offer("gpu-001", "one")
    offer("gpu-002", "two")
    offer("gpu-003", "two")
    pasted = fleet.accept_pasted(
        main(), f"gpu-001 ssh-ed25519 {KEYS['two'][0]}\ngpu-002 ssh-ed25519 {KEYS['two'][0]}\n", ada
    )
    assert (pasted.accepted, pasted.refused, pasted.not_listed) == (["gpu-002"], ["gpu-001"], ["gpu-003"])
    assert f"gpu-001 ssh-ed25519 {KEYS['one'][0]}" not in accepted_lines(main())


def test_a_revoked_line_trusts_nothing(ada: User) -> None:
    add("gpu-001")
    offer("gpu-001", "one")
    with pytest.raises(Refused, match="No key in it"):
        fleet.accept_pasted(main(), f"@revoked gpu-001 ssh-ed25519 {KEYS['one'][0]}", ada)


def test_removed_nodes_take_their_keys_with_them(ada: User) -> None:
    add("gpu-[001-002]")
    fleet.accept_key(main(), offer("gpu-001", "one").pk, ada)
    assert fleet.remove_nodes(main(), ["gpu-001", "never-there"]) == 1
    assert accepted_lines(main()) == ""


def test_how_a_node_is_reached_can_be_changed_and_emptied() -> None:
    add("ops@gpu-001:2222")
    fleet.change_node(main(), "gpu-001", "10.0.0.1", Login("", None, "bastion,inner"))
    node = Node.objects.get()
    assert (node.address, node.user, node.port, node.jump) == ("10.0.0.1", "", None, "bastion,inner")
    for address, login in (("a b", Login()), ("", Login(jump="x y")), ("", Login(user="-l"))):
        with pytest.raises(Refused, match="Nothing was changed"):
            fleet.change_node(main(), "gpu-001", address, login)
