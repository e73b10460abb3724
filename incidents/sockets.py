"""Addresses of WebSockets. An unknown one is closed, quietly."""

from typing import Any

from django.urls import path, re_path

from incidents.consumers import IncidentSocket


async def no_such_socket(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Refuse the handshake (HTTP 403). Without it the router raises, and every stray client leaves a traceback."""
    await receive()
    await send({"type": "websocket.close", "code": 4404})


# Django's types know pages only; Channels' router calls ASGI applications.
websocket_urlpatterns = [
    path("ws/incidents/<int:incident>", IncidentSocket.as_asgi(), name="incident"),
    re_path(r"", no_such_socket),  # type: ignore[arg-type]
]
