"""The probes, one per file. A file in this folder with a `PROBE` is a probe: there is no list to edit.

The packages below it hold what probes are made of: larger collectors, parsers, facts, findings."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Mapping
from typing import Any

from probes.core import Capture, Probe, Reading, interpret


@functools.cache
def load() -> Mapping[str, Probe[Any]]:
    """Every probe by name, in the order of the names. Raises ValueError when two files use one name."""
    found: dict[str, Probe[Any]] = {}
    for module in pkgutil.iter_modules(__path__):
        if module.ispkg:
            continue
        probe = getattr(importlib.import_module(f"{__name__}.{module.name}"), "PROBE", None)
        if probe is None:
            continue
        if probe.name in found:
            raise ValueError(f"two probes are called {probe.name}: rename one of them")
        if module.name != probe.name.replace(".", "_"):
            raise ValueError(f"probe {probe.name} belongs in {probe.name.replace('.', '_')}.py, not {module.name}.py")
        found[probe.name] = probe
    return dict(sorted(found.items()))


def read(capture: Capture) -> Reading:
    """Parse and judge a capture with its own probe. Raises KeyError when no probe has its name."""
    return interpret(load()[capture.probe], capture)
