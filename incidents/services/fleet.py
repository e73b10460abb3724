"""Nodes into and out of the fleet, and host keys accepted for them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from django.db import transaction
from django.utils import timezone

from incidents.models import HostKey, Node, User
from probes import nodeset


class Refused(Exception):
    """The service does not do this. The text is for the person who asked: what, why, what to do."""


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


def add_nodes(text: str, login: Login, by: User | None) -> Added:
    """Add the nodes of a nodeset, hostfile or pasted text. A node that is there already takes what the list says.

    Raises Refused with the line that cannot be read; then nothing was added.
    """
    try:
        targets = nodeset.parse_hosts(text)
        jump = nodeset.checked_jump(login.jump)
        user = nodeset.checked_user(login.user)
    except nodeset.NodesetError as error:
        raise Refused(f"Nothing was added. {error}") from error
    wanted = [
        Node(name=t.node, address=t.address, user=t.user or user, port=t.port or login.port, jump=jump) for t in targets
    ]
    return _merge(wanted, by)


@transaction.atomic
def _merge(wanted: list[Node], by: User | None) -> Added:
    added = Added()
    now = timezone.now()
    known = {node.name: node for node in Node.objects.filter(name__in=[node.name for node in wanted])}
    new: list[Node] = []
    for node in wanted:
        there = known.get(node.name)
        if there is None:
            node.added_at, node.added_by = now, by
            new.append(node)
            added.new.append(node.name)
            continue
        before = _login(there)
        for name in ("address", "user", "port", "jump"):
            setattr(there, name, getattr(node, name) or getattr(there, name))
        if _login(there) == before:
            added.same.append(node.name)
        else:
            there.save(update_fields=["address", "user", "port", "jump"])
            added.changed.append(node.name)
    Node.objects.bulk_create(new, batch_size=500)
    return added


def _login(node: Node) -> tuple[str, str, int | None, str]:
    return node.address, node.user, node.port, node.jump


@transaction.atomic
def change_node(name: str, address: str, login: Login) -> Node:
    """Set how one node is reached, all four fields. Raises Refused when a field cannot be one, or no such node."""
    node = Node.objects.filter(name=name).first()
    if node is None:
        raise Refused(f"There is no node {name} in the fleet.")
    try:
        node.address = nodeset.checked_name(address) if address else ""
        node.user = nodeset.checked_user(login.user)
        node.jump = nodeset.checked_jump(login.jump)
    except nodeset.NodesetError as error:
        raise Refused(f"Nothing was changed. {error}") from error
    node.port = login.port
    node.save(update_fields=["address", "user", "port", "jump"])
    return node


@transaction.atomic
def remove_nodes(names: Iterable[str]) -> int:
    """Take nodes out of the fleet, with their keys and readings; returns how many there were."""
    found = Node.objects.filter(name__in=list(names))
    count = found.count()
    found.delete()
    return count


@transaction.atomic
def offer_key(node_id: int, line: str, fingerprint: str, changed: bool) -> None:
    """Remember a key that a node showed and that is not trusted. Seen before: only its time moves."""
    key, made = HostKey.objects.get_or_create(
        node_id=node_id,
        line=line.strip(),
        defaults={"fingerprint": fingerprint, "changed": changed, "offered_at": timezone.now()},
    )
    if not made:
        key.offered_at, key.changed = timezone.now(), changed
        fields = ["offered_at", "changed"]
        if key.replaced_at is not None:  # an older key is back: it needs a new acceptance
            key.accepted_at = key.accepted_by = key.replaced_at = None
            key.how = key.reason = ""
            fields += ["accepted_at", "accepted_by", "replaced_at", "how", "reason"]
        key.save(update_fields=fields)


@transaction.atomic
def accept_key(key_id: int, by: User, reason: str = "") -> HostKey:
    """Trust one offered key. A changed key needs a reason; the keys it replaces are trusted no more."""
    key = HostKey.objects.select_related("node").filter(pk=key_id).first()
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


_FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")
_KEY = re.compile(r"\b((?:ssh|ecdsa|sk)-[a-z0-9@.-]{2,60})[ \t]{1,8}(AAAA[A-Za-z0-9+/]{20,2000}={0,2})")


@transaction.atomic
def accept_pasted(text: str, by: User) -> Pasted:
    """Trust the offered keys that a pasted list holds: known_hosts or ssh-keyscan lines, or ssh-keygen -l output.

    A line that names a node counts for that node only; a line without a name counts for the node that shows that key.
    Raises Refused when no line holds a key or fingerprint.
    """
    listed = _listed(text)
    if not listed:
        raise Refused(
            "No key in it. Paste known_hosts or ssh-keyscan lines, or what ssh-keygen -l prints (SHA256:...)."
        )
    pasted = Pasted()
    for key in HostKey.objects.select_related("node").filter(accepted_at=None):
        pattern, kind, public = key.line.split()[:3]
        names = {key.node.name, key.node.address, pattern.strip("[]"), pattern.partition("]")[0].strip("[")} - {""}
        for_node = [values for words, values in listed if words & names]
        if not for_node:
            for_node = [values for words, values in listed if not words]
        if not for_node:
            pasted.not_listed.append(key.node.name)
        elif any(values & {key.fingerprint, public} for values in for_node):
            _accept(key, by, HostKey.How.LIST, "")
            pasted.accepted.append(key.node.name)
        elif any(words & names for words, _ in listed):
            pasted.refused.append(key.node.name)
        else:
            pasted.not_listed.append(key.node.name)
    return pasted


def _listed(text: str) -> list[tuple[set[str], set[str]]]:
    """(names on the line, keys and fingerprints on it) of each line that holds any. `@revoked` lines trust nothing."""
    found = []
    for line in text.splitlines()[:50_000]:
        line = line.strip()[:4000]
        if line.startswith(("@", "#")):
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
