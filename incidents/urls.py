"""Addresses of pages. Everything needs a signed-in person unless the view says otherwise."""

from django.contrib.auth.views import LogoutView
from django.urls import path

from incidents.views import alerts, declaring, evidence, fleet, incidents, notes, timeline, topology, verdicts
from incidents.views.health import healthz
from incidents.views.sign_in import SignIn, sign_in_link

urlpatterns = [
    path("", fleet.home, name="home"),
    path("incidents/", incidents.incident_list, name="incidents"),
    path("incidents/state", incidents.list_state, name="incidents_state"),
    path("incidents/declare", declaring.declare, name="declare"),
    path("incidents/<int:incident>", incidents.page, name="incident"),
    path("incidents/<int:incident>/after", incidents.after, name="incident_after"),
    path("incidents/<int:incident>/advance", incidents.advance, name="advance"),
    path("incidents/<int:incident>/command", incidents.take_command, name="take_command"),
    path("incidents/<int:incident>/verdict", verdicts.decide_verdict, name="decide_verdict"),
    path("incidents/<int:incident>/nodes", declaring.set_scope, name="set_scope"),
    path("incidents/<int:incident>/note", notes.add_note, name="add_note"),
    path("incidents/<int:incident>/evidence/<int:reading>", evidence.evidence, name="evidence"),
    path("incidents/<int:incident>/evidence/<int:reading>/output", evidence.output, name="evidence_output"),
    path("incidents/<int:incident>/timeline", timeline.timeline, name="timeline"),
    path("incidents/<int:incident>/topology", topology.page, name="topology"),
    path("incidents/<int:incident>/topology/after", topology.after, name="topology_after"),
    path("incidents/<int:incident>/topology/after/<str:name>", topology.after, name="topology_node_after"),
    path("incidents/<int:incident>/topology/fabric", topology.ask_fabric, name="ask_fabric"),
    path("incidents/<int:incident>/topology/ports", topology.ask_ports, name="ask_ports"),
    path("incidents/<int:incident>/topology/expected", topology.learn_topology, name="learn_topology"),
    path("alerts/<slug:source>", alerts.receive, name="alerts"),
    path("fleet/", fleet.fleets, name="fleets"),
    path("fleet/<slug:fleet>/", fleet.fleet, name="fleet"),
    path("fleet/<slug:fleet>/state", fleet.fleet_state, name="fleet_state"),
    path("fleet/<slug:fleet>/alerts", fleet.fleet_alerts, name="fleet_alerts"),
    path("fleet/<slug:fleet>/add", fleet.add_nodes, name="add_nodes"),
    path("fleet/<slug:fleet>/check", fleet.check_fleet, name="check_fleet"),
    path("fleet/<slug:fleet>/keys", fleet.accept_pasted, name="accept_pasted"),
    path("fleet/<slug:fleet>/keys/<int:key_id>", fleet.accept_key, name="accept_key"),
    path("fleet/<slug:fleet>/nodes/<str:name>", fleet.node, name="node"),
    path("fleet/<slug:fleet>/nodes/<str:name>/remove", fleet.remove_node, name="remove_node"),
    path("sign-in/", SignIn.as_view(), name="sign_in"),
    path("sign-in/<str:token>", sign_in_link, name="sign_in_link"),
    path("sign-out/", LogoutView.as_view(), name="sign_out"),
    path("healthz", healthz, name="healthz"),
]
