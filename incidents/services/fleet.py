"""Nodes into and out of the fleet, and host keys accepted for them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from django.db import transaction
from django.utils import timezone

from incidents.models import Fleet, HostKey, Node, User
from probes import nodeset
from probes.transport import trust


class Refused(Exception):
    """The service does not do this. The text is for the person who asked: what, why, what to do.

    `field` names the input that is wrong, where one is.
    """

    def __init__(self, text: str, field: str = ""):
        super().__init__(text)
        self.field = field


RECORDED = "The nodes of this fleet exist only in recordings: they are not declared, checked or changed. Start a drill."


@dataclass(frozen=True, slots=True)
class Added:
    """What adding a list of nodes did: names, in order."""

    new: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    same: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Login:
    """How to reach nodes whose list does not say: user, port and jump host; empty leaves it to the configuration."""

    user: str = ""
    port: int | None = None
    jump: str = ""


def add_nodes(fleet: Fleet, text: str, login: Login, by: User | None) -> Added:
    """Add the nodes of a nodeset, hostfile or pasted text. A node that is there already takes what the list says.

    Raises Refused with the line that cannot be read; then nothing was added.
    """
    if fleet.replay:
        raise Refused(RECORDED, "nodes")
    try:
        targets = nodeset.parse_hosts(text)
    except nodeset.NodesetError as error:
        raise Refused(f"Nothing was added. {error}", "nodes") from error
    user, jump = _checked(login, "Nothing was added.")
    wanted = [
        Node(fleet=fleet, name=t.node, address=t.address, user=t.user or user, port=t.port or login.port, jump=jump)
        for t in targets
    ]
    return _merge(fleet, wanted, by)


def _checked(login: Login, nothing: str) -> tuple[str, str]:
    """User and jump host, if they can be that. Raises Refused."""
    field = "user"
    try:
        user = nodeset.checked_user(login.user)
        field = "port"
        nodeset.checked_port(str(login.port or ""))
        field = "jump"
        return user, nodeset.checked_jump(login.jump)
    except nodeset.NodesetError as error:
        raise Refused(f"{nothing} {error}", field) from error


@transaction.atomic
def _merge(fleet: Fleet, wanted: list[Node], by: User | None) -> Added:
    added = Added()
    now = timezone.now()
    known = {node.name: node for node in fleet.nodes.filter(name__in=[node.name for node in wanted])}
    new: list[Node] = []
    for node in wanted:
        there = known.get(node.name)
        if there is None:
            node.changed_at, node.added_by = now, by
            new.append(node)
            added.new.append(node.name)
            continue
        before = _login(there)
        for name in ("address", "user", "port", "jump"):
            setattr(there, name, getattr(node, name) or getattr(there, name))
        if _login(there) == before:
            added.same.append(node.name)
        else:
            there.changed_at = now
            there.save(update_fields=["address", "user", "port", "jump", "changed_at"])
            added.changed.append(node.name)
    Node.objects.bulk_create(new, batch_size=500)
    return added


def _login(node: Node) -> tuple[str, str, int | None, str]:
    return node.address, node.user, node.port, node.jump


@transaction.atomic
def change_node(fleet: Fleet, name: str, address: str, login: Login) -> Node:
    """Set how one node is reached, all four fields. Raises Refused when a field cannot be one, or no such node."""
    if fleet.replay:
        raise Refused(RECORDED)
    node = fleet.nodes.filter(name=name).first()
    if node is None:
        raise Refused(f"There is no node {name} in the fleet.")
    try:
        node.address = nodeset.checked_name(address) if address else ""
    except nodeset.NodesetError as error:
        raise Refused(f"Nothing was changed. {error}", "address") from error
    node.user, node.jump = _checked(login, "Nothing was changed.")
    node.port, node.changed_at = login.port, timezone.now()
    node.save(update_fields=["address", "user", "port", "jump", "changed_at"])
    return node


@transaction.atomic
def remove_nodes(fleet: Fleet, names: Iterable[str]) -> int:
    """Take nodes out of the fleet, with their keys and readings; returns how many there were.

    Raises Refused when one is part of an incident: its readings are evidence.
    """
    found = fleet.nodes.filter(name__in=list(names))
    if evidence := list(found.filter(incidents__isnull=False).distinct().values_list("name", flat=True)):
        raise Refused(f"Nothing was taken out. The readings of {nodeset.fold(evidence)} are evidence of an incident.")
    count = found.count()
    found.delete()
    return count


@transaction.atomic
def offer_key(node_id: int, line: str, fingerprint: str, changed: bool) -> None:
    """Remember a key that a node showed and that is not trusted. One that waits already is only marked anew."""
    line = line.strip()
    now = timezone.now()
    HostKey.objects.update_or_create(
        node_id=node_id,
        digest=hashlib.sha256(line.encode()).hexdigest(),
        replaced_at=None,
        defaults={"offered_at": now, "changed": changed},
        create_defaults={"line": line, "fingerprint": fingerprint, "changed": changed, "offered_at": now},
    )


@transaction.atomic
def accept_key(fleet: Fleet, key_id: int, by: User, reason: str = "") -> HostKey:
    """Trust one offered key. A changed key needs a reason; the keys it replaces are trusted no more."""
    key = HostKey.objects.select_related("node").filter(pk=key_id, node__fleet=fleet).first()
    if key is None:
        raise Refused("This key is not here any more. Check the fleet again.")
    if key.accepted_at is not None:
        raise Refused(f"The key of {key.node} was accepted already.")
    if key.changed and not reason.strip():
        raise Refused(f"The key of {key.node} CHANGED. Say why: what did you find out about it?")
    _accept(key, by, HostKey.How.ONE, reason)
    return key


@dataclass(frozen=True, slots=True)
class Pasted:
    """What a pasted list of keys did: node names."""

    accepted: list[str] = field(default_factory=list)
    not_listed: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)  # listed, but with another key
    changed: list[str] = field(default_factory=list)  # those of `accepted` whose key had changed


_FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")
_KEY = re.compile(r"\b((?:ssh|ecdsa|sk)-[a-z0-9@.-]{2,60})[ \t]{1,8}(AAAA[A-Za-z0-9+/]{20,6000}={0,2})")


@transaction.atomic
def accept_pasted(fleet: Fleet, text: str, by: User) -> Pasted:
    """Trust offered keys that a pasted list holds: known_hosts or ssh-keyscan lines, or ssh-keygen -l output.

    A line that names a node counts for that node only; a line without a name counts for the node that shows that key.
    Raises Refused when no line holds a key or fingerprint.
    """
    listed = _listed(text)
    hashed = "\n".join(line for line in text.splitlines() if line.startswith("|1|"))
    if not listed and not hashed:
        raise Refused("No key in it. Paste known_hosts or ssh-keyscan lines, or what ssh-keygen -l prints.")
    pasted = Pasted()
    for key in HostKey.objects.select_related("node").filter(node__fleet=fleet, accepted_at=None, replaced_at=None):
        verdict = _stands_on(key, listed, hashed)
        if verdict == "same":
            _accept(key, by, HostKey.How.LIST, "its new key stood on the list" if key.changed else "")
        names = {"same": pasted.accepted, "another": pasted.refused, "none": pasted.not_listed}[verdict]
        names.append(key.node.name)
        if verdict == "same" and key.changed:
            pasted.changed.append(key.node.name)
    return pasted


def _stands_on(key: HostKey, listed: list[tuple[set[str], set[str]]], hashed: str) -> str:
    """Whether a list holds this key for its node: "same", "another" (a key that is not this one) or "none"."""
    pattern, _, public = key.line.split()[:3]
    host, _, port = pattern.removeprefix("[").partition("]:")
    names = {key.node.name, key.node.address, host} - {""}
    named = [values for words, values in listed if words & names]
    if hashed:
        named += [found] if (found := trust.listed_keys(hashed, names, int(port or 22))) else []
    nameless = [values for words, values in listed if not words]
    if any(values & {key.fingerprint, public} for values in named or nameless):
        return "same"
    return "another" if named else "none"


def _listed(text: str) -> list[tuple[set[str], set[str]]]:
    """(names on the line, keys and fingerprints on it) of each line that holds any. `@revoked` lines trust nothing."""
    found = []
    for line in text.splitlines()[:50_000]:
        line = line.strip()[:8000]
        if line.startswith(("@", "#", "|")):
            continue
        values = set(_FINGERPRINT.findall(line)) | {public for _, public in _KEY.findall(line)}
        if not values:
            continue
        rest = _KEY.sub(" ", _FINGERPRINT.sub(" ", line))
        words = {word.strip("[]") for piece in rest.split() for word in re.split(r"[,]|\]:\d+$", piece)}
        found.append(({word for word in words if nodeset.is_name(word) and not word.isdigit()} - _NOT_NAMES, values))
    return found


_NOT_NAMES = {"ED25519", "ECDSA", "RSA", "DSA", "root", "no", "comment"}


def _accept(key: HostKey, by: User, how: HostKey.How, reason: str) -> None:
    now = timezone.now()
    others = HostKey.objects.filter(node_id=key.node_id, replaced_at=None, accepted_at__isnull=False).exclude(pk=key.pk)
    if key.changed:
        others.update(replaced_at=now)
    key.accepted_at, key.accepted_by, key.how, key.reason = now, by, how, reason.strip()
    key.save(update_fields=["accepted_at", "accepted_by", "how", "reason"])
