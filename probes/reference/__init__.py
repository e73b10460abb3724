"""Tables of the field as data: one TOML file per table, each row with its source.

A file holds one array of tables, named like the file: `[[xid]]` in xid.toml. Every row has a `source`.
"""

from __future__ import annotations

import functools
import tomllib
from importlib import resources
from typing import Any


@functools.cache
def rows(name: str) -> tuple[dict[str, Any], ...]:
    """The rows of `name`.toml in their order. Raises FileNotFoundError for no such table, ValueError for a bad row."""
    with (resources.files(__name__) / f"{name}.toml").open("rb") as handle:
        found = tomllib.load(handle)[name]
    for row in found:
        if not row.get("source"):
            raise ValueError(f"{name}.toml: the row {row} names no source")
    return tuple(found)
