"""JSON that our own collectors wrote on the node: text from another machine all the same."""

from __future__ import annotations

import json
from typing import Any

from probes.core import ParseError, clean


def as_object(text: str, what: str) -> dict[str, Any]:
    """A JSON object written by our collector. Errors: ParseError."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ParseError(f"{what}: expected JSON from the collector, found {text[:60]!r} ({error})") from None
    if not isinstance(value, dict):
        raise ParseError(f"{what}: expected a JSON object, found {text[:60]!r}")
    return value


def as_rows(text: str, what: str) -> list[dict[str, Any]]:
    """One JSON object per line. Errors: ParseError."""
    return [as_object(line, what) for line in text.split("\n") if line.strip()]


def whole(row: dict[str, Any], key: str, what: str) -> int:
    """A whole number that a 64-bit counter can hold. Errors: ParseError."""
    value = row.get(key)
    if type(value) is not int or not -(2**63) <= value < 2**64:
        raise ParseError(f"{what}: expected a whole number as {key}, found {str(value)[:60]!r}")
    return value


def whole_or_none(row: dict[str, Any], key: str, what: str) -> int | None:
    """The same, or None where the collector did not learn it."""
    return None if row.get(key) is None else whole(row, key, what)


def number_or_none(row: dict[str, Any], key: str, what: str) -> float | None:
    """A finite number, or None. Errors: ParseError."""
    value = row.get(key)
    if value is None:
        return None
    if type(value) not in (int, float) or not -1e18 < value < 1e18:
        raise ParseError(f"{what}: expected a number as {key}, found {str(value)[:60]!r}")
    return float(value)


def word(row: dict[str, Any], key: str, what: str, limit: int = 256) -> str:
    """A text made safe to show, cut at `limit` characters. Errors: ParseError."""
    value = row.get(key)
    if not isinstance(value, str):
        raise ParseError(f"{what}: expected a text as {key}, found {str(value)[:60]!r}")
    return clean(value[:limit]).replace("\n", "\u240a").replace("\t", "\u2409")


def word_or_none(row: dict[str, Any], key: str, what: str, limit: int = 256) -> str | None:
    """The same, or None where the collector did not learn it."""
    return None if row.get(key) is None else word(row, key, what, limit)


def wholes(row: dict[str, Any], key: str, what: str) -> tuple[int, ...]:
    """A list of whole numbers, 64 at most. Errors: ParseError."""
    value = row.get(key)
    if not isinstance(value, list):
        raise ParseError(f"{what}: expected a list as {key}, found {str(value)[:60]!r}")
    return tuple(whole({key: one}, key, what) for one in value[:64])
