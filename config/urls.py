"""All addresses are the app's; this module only names the pages for errors."""

from django.urls import include, path

urlpatterns = [path("", include("incidents.urls"))]
handler400 = "incidents.views.errors.bad_request"
handler403 = "incidents.views.errors.forbidden"
handler404 = "incidents.views.errors.not_found"
handler500 = "incidents.views.errors.server_error"
