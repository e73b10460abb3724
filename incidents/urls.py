"""Addresses of pages. Everything needs a signed-in person unless the view says otherwise."""

from django.contrib.auth.views import LogoutView
from django.urls import path
from django.views.generic import RedirectView

from incidents.views import alerts, evidence, fleet, incidents, notes, timeline
from incidents.views.health import healthz
from incidents.views.sign_in import SignIn, sign_in_link

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="fleet"), name="home"),
    path("incidents/", incidents.incident_list, name="incidents"),
    path("incidents/state", incidents.list_state, name="incidents_state"),
    path("incidents/declare", incidents.declare, name="declare"),
    path("incidents/<int:pk>", incidents.incident, name="incident"),
    path("incidents/<int:pk>/after", incidents.after, name="incident_after"),
    path("incidents/<int:pk>/advance", incidents.advance, name="advance"),
    path("incidents/<int:pk>/command", incidents.take_command, name="take_command"),
    path("incidents/<int:pk>/note", notes.add_note, name="add_note"),
    path("incidents/<int:pk>/evidence/<int:reading>", evidence.evidence, name="evidence"),
    path("incidents/<int:pk>/evidence/<int:reading>/output", evidence.output, name="evidence_output"),
    path("incidents/<int:pk>/timeline", timeline.timeline, name="timeline"),
    path("alerts/<slug:source>", alerts.receive, name="alerts"),
    path("fleet/", fleet.fleet, name="fleet"),
    path("fleet/state", fleet.fleet_state, name="fleet_state"),
    path("fleet/add", fleet.add_nodes, name="add_nodes"),
    path("fleet/check", fleet.check_fleet, name="check_fleet"),
    path("fleet/keys", fleet.accept_pasted, name="accept_pasted"),
    path("fleet/keys/<int:key_id>", fleet.accept_key, name="accept_key"),
    path("fleet/nodes/<str:name>", fleet.node, name="node"),
    path("fleet/nodes/<str:name>/remove", fleet.remove_node, name="remove_node"),
    path("sign-in/", SignIn.as_view(), name="sign_in"),
    path("sign-in/<str:token>", sign_in_link, name="sign_in_link"),
    path("sign-out/", LogoutView.as_view(), name="sign_out"),
    path("healthz", healthz, name="healthz"),
]
