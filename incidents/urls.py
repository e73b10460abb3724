"""Addresses of pages. Everything needs a signed-in person unless the view says otherwise."""

from django.contrib.auth.views import LogoutView
from django.urls import path
from django.views.generic import RedirectView

from incidents.views.fleet import fleet
from incidents.views.health import healthz
from incidents.views.sign_in import SignIn, sign_in_link

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="fleet"), name="home"),
    path("fleet/", fleet, name="fleet"),
    path("sign-in/", SignIn.as_view(), name="sign_in"),
    path("sign-in/<str:token>", sign_in_link, name="sign_in_link"),
    path("sign-out/", LogoutView.as_view(), name="sign_out"),
    path("healthz", healthz, name="healthz"),
]
