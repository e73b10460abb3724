"""Signing in, by a one-time link or a password."""

from django.contrib.auth import login
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from incidents.services.sign_in import LinkRefused, Refusal, redeem

REASONS = {
    Refusal.UNKNOWN: "This sign-in link is not known here.",
    Refusal.USED: "This sign-in link was used already. Each link works once.",
    Refusal.EXPIRED: "This sign-in link is older than 15 minutes.",
    Refusal.INACTIVE: "This account is switched off.",
}


@login_not_required
@never_cache
@require_GET
def sign_in_link(request: HttpRequest, token: str) -> HttpResponse:
    """Sign in by a one-time link. 403 with a plain page when the link does not work."""
    try:
        user = redeem(token)
    except LinkRefused as refused:
        # The same tab opened twice, or the link clicked again: nothing to tell somebody who is in.
        if refused.reason is Refusal.USED and request.user.is_authenticated:
            return redirect("home")
        return render(request, "incidents/link_refused.html", {"reason": REASONS[refused.reason]}, status=403)
    login(request, user, backend="django.contrib.auth.backends.ModelBackend")
    return redirect("home")


class SignIn(LoginView):
    """The page for people with a password; it also says how to get a link."""

    template_name = "incidents/sign_in.html"
    redirect_authenticated_user = True
