"""Sockets are opened by pages of this very site only: the truth table."""

from __future__ import annotations

from typing import Any

import pytest

from config.origin import is_ours

HOST = "dash.example:8443"


def scope(host: str, scheme: str = "ws", **headers: str) -> dict[str, Any]:
    named = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    return {"type": "websocket", "path": "/", "scheme": scheme, "headers": [(b"host", host.encode()), *named]}


@pytest.fixture(autouse=True)
def site(settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["dash.example", "localhost", "127.0.0.1", "[::1]"]
    settings.CSRF_TRUSTED_ORIGINS = ["https://front.example"]
    settings.SECURE_PROXY_SSL_HEADER = None


@pytest.mark.parametrize(
    ("host", "scheme", "origin", "ours"),
    [
        (HOST, "ws", "http://dash.example:8443", True),
        (HOST, "wss", "https://dash.example:8443", True),
        ("127.0.0.1:8000", "ws", "http://127.0.0.1:8000", True),
        ("[::1]:8000", "ws", "http://[::1]:8000", True),
        ("localhost", "ws", "http://localhost", True),
        (HOST, "ws", "https://front.example", True),  # listed
        (HOST, "ws", "https://dash.example:8443", False),  # another scheme
        (HOST, "wss", "http://dash.example:8443", False),
        (HOST, "ws", "http://dash.example", False),  # another port
        (HOST, "ws", "http://dash.example:8444", False),
        ("localhost:8000", "ws", "http://127.0.0.1:8000", False),  # another name of the same
        (HOST, "ws", "null", False),
        (HOST, "ws", "", False),
        (HOST, "ws", None, False),
        (HOST, "ws", "http://dash.example:8443.evil.example", False),
        (HOST, "ws", "http://evil-dash.example:8443", False),
        (HOST, "ws", "http://a.dash.example:8443", False),
        (HOST, "ws", "http://dash.example:8443/", False),
        (HOST, "ws", "http://dash.example:8443@evil.example", False),
        (HOST, "ws", "http://front.example", False),  # listed with another scheme
        (HOST, "ws", "https://a.front.example", False),
        ("evil.example", "ws", "http://evil.example", False),  # a foreign name that leads to this address
    ],
)
def test_only_an_exact_origin_is_ours(host: str, scheme: str, origin: str | None, ours: bool) -> None:
    assert is_ours(scope(host, scheme, **({} if origin is None else {"origin": origin}))) is ours


def test_two_origins_are_none() -> None:
    twice = scope(HOST, origin="http://dash.example:8443")
    twice["headers"].append((b"origin", b"http://dash.example:8443"))
    assert not is_ours(twice)


@pytest.mark.parametrize(
    ("proxied", "forwarded", "origin", "ours"),
    [
        (True, "https", "https://dash.example:8443", True),
        (True, "https", "http://dash.example:8443", False),
        (True, "http", "https://dash.example:8443", False),
        (False, "https", "https://dash.example:8443", False),  # anybody can send that header
        (False, "https", "http://dash.example:8443", True),
    ],
)
def test_a_proxys_word_counts_only_where_one_is_declared(
    settings: Any, proxied: bool, forwarded: str, origin: str, ours: bool
) -> None:
    if proxied:
        settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    assert is_ours(scope(HOST, x_forwarded_proto=forwarded, origin=origin)) is ours
