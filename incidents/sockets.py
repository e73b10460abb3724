"""Addresses of WebSockets. An unknown one is closed, quietly."""

from typing import Any

from django.urls import re_path


async def no_such_socket(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Refuse the handshake (HTTP 403). Without it the router raises, and every stray client leaves a traceback."""
    await receive()
    await send({"type": "websocket.close", "code": 4404})


# Django's types know pages only; Channels' router calls ASGI applications.
websocket_urlpatterns = [re_path(r"", no_such_socket)]  # type: ignore[arg-type]
