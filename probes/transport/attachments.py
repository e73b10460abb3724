"""Files that are sent to a node behind the program and kept there in memory: tools that the node does not have, and
what people gave that no program may be made of.

They cost every node asked their size (py-spy: 2.8 MB), so a suite that carries a tool is for chosen suspects.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import os
import zlib
from dataclasses import dataclass
from typing import Any

MOST_BYTES = 8_388_608  # compressed, of one attachment


class NoAttachment(LookupError):
    """There is nothing to send: not installed here, or too large. The text says which and what to do."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file by the name that collectors ask for, compressed with zlib. Raises NoAttachment when it is too large."""

    name: str
    packed: bytes

    def __post_init__(self) -> None:
        if len(self.packed) > MOST_BYTES:
            raise NoAttachment(f"{self.name} has {len(self.packed)} bytes compressed; at most {MOST_BYTES} are sent")


def of_json(name: str, value: Any) -> Attachment:
    """A JSON value as a file, in ASCII: nodes with old Pythons read it in any locale."""
    return Attachment(name, zlib.compress(json.dumps(value).encode("ascii"), 6))


@functools.cache
def load(name: str) -> Attachment:
    """The attachment of this name. Raises NoAttachment."""
    if name != "py-spy":
        raise NoAttachment(f"no attachment is called {name!r}: there is only py-spy")
    with open(_py_spy(), "rb") as program:
        return Attachment(name, zlib.compress(program.read(), 6))


def _py_spy() -> str:
    """The executable of the PyPI package py-spy: linked statically, so it runs on nodes of any distribution."""
    try:
        files = importlib.metadata.files("py-spy") or []
    except importlib.metadata.PackageNotFoundError:
        raise NoAttachment("py-spy is not installed beside the dashboard: pip install -r requirements.txt") from None
    for file in files:
        path = str(file.locate())
        if file.name == "py-spy" and os.access(path, os.X_OK):
            return path
    raise NoAttachment("the package py-spy is installed, but its program is missing: install it again")
