"""Waiting for something to become true, with a deadline instead of a sleep of a guessed length."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(check: Callable[[], T], seconds: float = 20.0, what: str = "") -> T:
    """The first true value of `check()`; AssertionError naming `what` after `seconds`."""
    ends = time.monotonic() + seconds
    while not (value := check()):
        assert time.monotonic() < ends, f"not within {seconds} s: {what or check}"
        time.sleep(0.02)
    return value
