"""Fleets, people, and the roles that people have in fleets."""

from __future__ import annotations

from django.db import transaction

from incidents import policy
from incidents.models import Fleet, Membership, User
from incidents.services.fleet import Refused


@transaction.atomic
def new_fleet(name: str) -> Fleet:
    """A fleet without nodes and people. Raises Refused for a name that cannot be one, or is one already."""
    if not name.isascii() or not name.replace("-", "").replace("_", "").isalnum() or len(name) > 40:
        raise Refused(f"{name[:60]!r} is no name for a fleet: up to 40 letters, digits, dashes and underscores.")
    fleet, made = Fleet.objects.get_or_create(name=name)
    if not made:
        raise Refused(f"There is a fleet {name} already.")
    return fleet


def fleet_named(name: str | None) -> Fleet:
    """The fleet of this name; without a name the only one. Raises Refused, with the names there are."""
    names = list(Fleet.objects.filter(replay=False).values_list("name", flat=True))
    if name is None and len(names) == 1:
        name = names[0]
    found = Fleet.objects.filter(name=name).first() if name else None
    if found is None:
        what = f"There is no fleet {name[:60]}." if name else "There are several fleets: say --fleet NAME."
        raise Refused(f"{what} Fleets: {', '.join(names)}.")
    return found


@transaction.atomic
def set_role(username: str, fleet: Fleet, role: str | None) -> tuple[User, bool]:
    """Give a person a role in a fleet, or none (None: they see nothing of it any more); returns whether it was made.

    The person is made, without a password, when there is none. Raises Refused for a role or a name that cannot be one.
    """
    if role is not None and role not in policy.ROLES:
        raise Refused(f"{role!r} is no role. Roles: {', '.join(policy.ROLES)}.")
    if not username.isascii() or not username.replace("-", "").replace("_", "").replace(".", "").isalnum():
        raise Refused(f"{username!r} is not a user name: letters, digits, dot, dash and underscore only.")
    if role is None and not User.objects.filter(username=username).exists():
        raise Refused(f"There is no user {username}.")
    user, made = User.objects.get_or_create(username=username)
    if made:
        user.set_unusable_password()
        user.save(update_fields=["password"])
    if role is None:
        Membership.objects.filter(user=user, fleet=fleet).delete()
    else:
        Membership.objects.update_or_create(user=user, fleet=fleet, defaults={"role": role})
    return user, made
