"""Who may do what: one table for every page, action and socket. What is not in it is refused to everybody.

A person has a role per fleet (see incidents.queries.people). Roles include each other, from left to right: a commander
may do what a responder may. Pure: it knows roles, not people.
"""

from __future__ import annotations

from incidents.models.people import ROLES as ROLES

ANYBODY = "anybody"  # also without signing in
MEMBER = "member"  # signed in; the page shows only what is in the person's fleets, which may be nothing

# Route name -> the least role for reading it (GET) and for acting on it (POST); None: that method does nothing there.
# The role counts in the fleet of the address, or of the incident in it; where there is none, in any of the person's.
POLICY: dict[str, tuple[str | None, str | None]] = {
    "home": (MEMBER, None),
    "incidents": (MEMBER, None),
    "incidents_state": (MEMBER, None),
    "declare": ("responder", "responder"),
    "judge_files": ("responder", "responder"),
    "add_files": ("responder", "responder"),
    "drills": (MEMBER, None),
    "start_drill": ("responder", "responder"),
    "incident": ("viewer", None),
    "incident_after": ("viewer", None),
    "evidence": ("viewer", None),
    "evidence_output": ("viewer", None),
    "timeline": ("viewer", None),
    "resolve": ("commander", "commander"),
    "review": ("viewer", None),
    "review_markdown": ("viewer", None),
    "bundle": ("viewer", None),
    "topology": ("viewer", None),
    "topology_after": ("viewer", None),
    "topology_node_after": ("viewer", None),
    "ask_fabric": ("responder", "responder"),
    "ask_ports": ("responder", "responder"),
    "learn_topology": ("commander", "commander"),
    "advance": ("responder", "responder"),
    "set_scope": ("responder", "responder"),
    "take_command": ("responder", "responder"),
    "fleets": (MEMBER, None),
    "add_note": ("responder", "responder"),
    "decide_verdict": ("responder", "responder"),
    "start_runbook": ("responder", "responder"),
    "choose_option": ("responder", "responder"),
    "ask_for_step": ("responder", "responder"),
    "leave_runbook": ("responder", "responder"),
    "look_if_it_advances": ("responder", "responder"),
    "approve_action": ("commander", "commander"),
    "decline_action": ("responder", "responder"),
    "fleet": ("viewer", None),
    "fleet_state": ("viewer", None),
    "fleet_alerts": ("viewer", None),
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

# Socket -> the least role, in the incident's fleet, for listening. Nothing is done over a socket.
SOCKETS = {"incident": "viewer"}


def has(role: str | None, least: str) -> bool:
    """Whether this role is at least that one."""
    return role in ROLES and ROLES.index(role) >= ROLES.index(least)


def least_for(route: str, method: str) -> str | None:
    """The least role for a route and HTTP method; None when nobody may."""
    read, act = POLICY.get(route, (None, None))
    return read if method in ("GET", "HEAD", "OPTIONS") else act


def may(role: str | None, route: str, method: str = "POST") -> bool:
    """Whether somebody with this role, and signed in, may use a route with this method."""
    least = least_for(route, method)
    return least in (ANYBODY, MEMBER) or (least is not None and has(role, least))
