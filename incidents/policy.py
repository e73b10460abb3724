"""Who may do what: one table for every page, action and socket. What is not in it is refused to everybody.

Roles include each other, from left to right: a commander may do what a responder may.
"""

from __future__ import annotations

from typing import Any

ROLES = ("viewer", "responder", "commander", "admin")
ANYBODY = "anybody"  # also without signing in

# Route name -> the least role for reading it (GET) and for acting on it (POST); None: that method does nothing there.
POLICY: dict[str, tuple[str | None, str | None]] = {
    "home": ("viewer", None),
    "incidents": ("viewer", None),
    "incidents_state": ("viewer", None),
    "declare": ("responder", "responder"),
    "incident": ("viewer", None),
    "incident_after": ("viewer", None),
    "evidence": ("viewer", None),
    "evidence_output": ("viewer", None),
    "timeline": ("viewer", None),
    "advance": ("responder", "responder"),
    "take_command": ("responder", "responder"),
    "add_note": ("responder", "responder"),
    "fleet": ("viewer", None),
    "fleet_state": ("viewer", None),
    "check_fleet": ("responder", "responder"),
    "add_nodes": ("commander", "commander"),
    "node": ("viewer", "commander"),
    "accept_pasted": ("commander", "commander"),
    "accept_key": ("commander", "commander"),
    "remove_node": ("admin", "admin"),
    "sign_in": (ANYBODY, ANYBODY),
    "sign_in_link": (ANYBODY, None),
    "sign_out": (ANYBODY, ANYBODY),
    "healthz": (ANYBODY, None),
    "alerts": (None, ANYBODY),  # its bearer token is what lets a source in
}

# Socket -> the least role for listening. Nothing is done over a socket.
SOCKETS = {"incident": "viewer"}


def role_of(user: Any) -> str | None:
    """The role of a signed-in, active person, else None."""
    if not user.is_authenticated or not user.is_active:
        return None
    return "admin" if user.is_superuser else str(user.role)


def has(user: Any, least: str) -> bool:
    """Whether the person's role is at least this one."""
    if least == ANYBODY:
        return True
    role = role_of(user)
    return role is not None and ROLES.index(role) >= ROLES.index(least)


def least_for(route: str, method: str) -> str | None:
    """The least role for a route and HTTP method; None when nobody may."""
    read, act = POLICY.get(route, (None, None))
    return read if method in ("GET", "HEAD", "OPTIONS") else act


def may(user: Any, route: str, method: str = "POST") -> bool:
    """Whether the person may use a route with this method."""
    least = least_for(route, method)
    return least is not None and has(user, least)
