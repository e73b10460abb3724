"""Who may open a socket: pages of this very site. Browsers send cookies along from anywhere; this stops others."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.core.handlers.asgi import ASGIRequest


def is_ours(scope: dict[str, Any]) -> bool:
    """Whether the Origin is exactly scheme, host and port of the request as Django sees it, or a trusted one.

    Django's own view of a request counts the proxy's X-Forwarded-Proto only with GOLDEN15_HTTPS, and refuses a Host
    that is not in ALLOWED_HOSTS: without that, a foreign name that leads to this address would be its own origin.
    """
    given = [value for name, value in scope["headers"] if name == b"origin"]
    if len(given) != 1:
        return False
    request = ASGIRequest({**scope, "method": "GET", "scheme": _HTTP.get(scope.get("scheme", "ws"))}, BytesIO())
    try:
        own = f"{request.scheme}://{request.get_host()}".lower()
    except DisallowedHost:
        return False
    origin = given[0].decode("latin-1")
    return origin == own or origin in settings.CSRF_TRUSTED_ORIGINS


_HTTP = {"ws": "http", "wss": "https"}


class OwnOrigin:
    """ASGI middleware: sockets from anywhere else are refused in the handshake (HTTP 403)."""

    def __init__(self, application: Any) -> None:
        self.application = application

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if is_ours(scope):
            await self.application(scope, receive, send)
            return
        await receive()
        await send({"type": "websocket.close", "code": 4403})
