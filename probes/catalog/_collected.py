"""JSON that our own collectors wrote on the node: text from another machine all the same."""

from __future__ import annotations

import json
from typing import Any

from probes.core import ParseError


def as_object(text: str, what: str) -> dict[str, Any]:
    """A JSON object written by our collector. Errors: ParseError."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ParseError(f"{what}: expected JSON from the collector, found {text[:60]!r} ({error})") from None
    if not isinstance(value, dict):
        raise ParseError(f"{what}: expected a JSON object, found {text[:60]!r}")
    return value
