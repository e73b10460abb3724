"""Decodes one flight-recorder dump: a pickle that another machine wrote, or JSON.

Source   torch/csrc/jit/serialization/pickler.cpp writes protocol 2 and, for a dump, no name of a class or function
Errors   Refused, with why, for whatever is no dump

Brought to the node by rank.flight_recorder: standard library only, nothing newer than Python 3.6 but annotations.

The unpickler knows no class and no function. That does not stop a dump made to eat memory or time (nine bytes can ask
for a gigabyte), so bytes from elsewhere are decoded in a process of its own, after `confine`.
"""

from __future__ import annotations

import gc
import io
import json
import pickle
import resource
from collections.abc import Mapping
from typing import Any

READ_AHEAD = 262144


class Refused(ValueError):
    """These bytes are no flight-recorder dump, or one that is not read. The text says why, for people."""


def confine(limits: Mapping[str, int]) -> None:
    """Limit the memory and the time of this process, which reads one dump and ends."""
    confine_memory(limits)
    _limit(resource.RLIMIT_CPU, limits["cpu_s"])


def confine_memory(limits: Mapping[str, int]) -> None:
    """Limit the memory of this process, which reads dumps and does nothing else."""
    _limit(resource.RLIMIT_AS, limits["memory_bytes"])
    gc.disable()  # nothing here is a cycle worth finding, and looking for them takes longer than the rest


def _limit(kind: int, most: int) -> None:
    hard = resource.getrlimit(kind)[1]
    allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (allowed, allowed))


class _NoClasses(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise Refused(f"it asks for {module}.{name}, which no flight recorder writes; nothing of it was run")

    def persistent_load(self, pid: Any) -> Any:
        raise Refused("it refers to objects outside of itself, which no flight recorder does")


def decode(data: bytes) -> tuple[str, Any]:
    """("pickle" | "json", what it holds). Raises Refused."""
    start = data[:64].lstrip()[:1]
    try:
        if start in (b"{", b"["):
            return "json", json.loads(data.decode("utf-8", "replace"), parse_constant=lambda _: None)
        if data[:1] == b"\x80":  # torch writes protocol 2
            # A buffer that can be looked into; without it each of a hundred thousand opcodes is a call of read().
            source = io.BufferedReader(io.BytesIO(data), READ_AHEAD)
            return "pickle", _NoClasses(source, encoding="utf-8", errors="replace").load()
    except Refused:
        raise
    except MemoryError:
        raise Refused("it asks for more memory than a dump needs") from None
    except EOFError:
        raise Refused("it ends too early: cut off, or still being written") from None
    except Exception as error:  # whatever a garbled pickle makes of itself
        said = str(error)[:120]
        if "truncated" in said or "Unterminated" in said:
            raise Refused("it ends too early: cut off, or still being written") from None
        raise Refused(f"it cannot be decoded ({type(error).__name__}: {said})") from None
    raise Refused("it is empty" if not data else "it is neither a pickle nor JSON")
