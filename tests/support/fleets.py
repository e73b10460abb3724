"""The fleet that is there from the start, and people with a role in it."""

from __future__ import annotations

from incidents.models import Fleet, Membership, User


def main() -> Fleet:
    return Fleet.objects.get(name="main")


def person(name: str, role: str | None = "admin", fleet: Fleet | None = None, **more: object) -> User:
    """A person, with this role in a fleet (the first one, unless said otherwise), or in none."""
    user = User.objects.create(username=name, **more)  # type: ignore[misc]
    if role is not None:
        Membership.objects.create(user=user, fleet=fleet or main(), role=role)
    return user
