"""Addresses of pages. Everything needs a signed-in person unless the view says otherwise."""

from django.contrib.auth.views import LogoutView
from django.urls import path
from django.views.generic import RedirectView

from incidents.views import fleet
from incidents.views.health import healthz
from incidents.views.sign_in import SignIn, sign_in_link

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="fleet"), name="home"),
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
