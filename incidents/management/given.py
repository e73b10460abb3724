"""A file that somebody gives to a command, or its standard input.

Errors   CommandError where it cannot be read
"""

from __future__ import annotations

import sys
from pathlib import Path

from django.core.management.base import CommandError


def text_of(name: str) -> str:
    """Its text; `-` is the standard input."""
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(errors="replace")
    except OSError as error:
        raise CommandError(f"{name}: {error.strerror}") from error
