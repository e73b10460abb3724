"""People and their roles."""

from __future__ import annotations

from django.db import transaction

from incidents import policy
from incidents.models import User
from incidents.services.fleet import Refused


@transaction.atomic
def set_role(username: str, role: str) -> tuple[User, bool]:
    """Give a person a role, and make the person, without a password, when there is none; returns whether it was made.

    Raises Refused for a role or a name that cannot be one.
    """
    if role not in policy.ROLES:
        raise Refused(f"{role!r} is no role. Roles: {', '.join(policy.ROLES)}.")
    if not username.isascii() or not username.replace("-", "").replace("_", "").replace(".", "").isalnum():
        raise Refused(f"{username!r} is not a user name: letters, digits, dot, dash and underscore only.")
    user, made = User.objects.get_or_create(username=username, defaults={"role": role})
    if made:
        user.set_unusable_password()
    user.role = role
    user.save(update_fields=["role", "password"])
    return user, made
