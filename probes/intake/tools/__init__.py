"""Output of tools that people bring as files: one module per tool, in the package of what it tells of.

Modules are found by themselves; there is no list to edit.

`TOOL` of each module says how to know the output and what facts it tells: those of the probe that asks a node the same,
or facts of its own where no probe asks it yet.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from probes.core import Finding


@dataclass(frozen=True, slots=True)
class Tool:
    """`fits` sees the first 64 KiB of the text and the file's name, and must be quick and sure: prose that quotes the
    tool is none of its output. `read` gives the facts or raises ParseError. `host`: the node that the text names, "".

    `beside`: it reads what any text may hold besides what it is, such as a log; it never decides what a file is.
    `findings` judges the facts of one node; None: the probe of that name does. `named` adds what only the file's path
    tells, such as the interface of `ethtool-S.eth0.txt`. `log`: lines of a job's log may stand beside it, which are
    read as well. `by_node`: facts of each node that the text names, where one text tells of many.
    """

    name: str
    probe: str
    fits: Callable[[str, str], bool]
    read: Callable[[str], Any]
    findings: Callable[[Any], Iterable[Finding]] | None = None
    host: Callable[[str], str] = lambda text: ""
    named: Callable[[Any, str], Any] = lambda facts, path: facts
    beside: bool = False
    log: bool = False
    by_node: Callable[[str], Mapping[str, Any]] | None = None


@functools.cache
def tools() -> tuple[Tool, ...]:
    """Every tool, by the name of its module, whichever package it is in."""
    found = {}
    for package in pkgutil.iter_modules(__path__, f"{__name__}."):
        if package.ispkg:
            for module in pkgutil.iter_modules(importlib.import_module(package.name).__path__, f"{package.name}."):
                last = module.name.rpartition(".")[2]
                if last in found:
                    raise ValueError(f"two tools are read by a module called {last}: rename one of them")
                if not last.startswith("_"):
                    found[last] = module.name
    return tuple(importlib.import_module(found[last]).TOOL for last in sorted(found))


@functools.cache
def facts_of_tool(probe: str) -> Any:
    """The type of the facts of this name, as the module that reads them says; None where none does."""
    found = next((tool for tool in tools() if tool.probe == probe), None)
    return typing.get_type_hints(found.read).get("return") if found is not None else None


@functools.lru_cache(maxsize=8)
def _fitting(head: str, name: str) -> tuple[Tool, ...]:
    """One text is asked about several times on its way."""
    return tuple(tool for tool in tools() if tool.fits(head, name))


def tool_of(head: str, name: str) -> Tool | None:
    """The first tool whose output this is."""
    return next(iter(tools_of(head, name)), None)


def tools_of(head: str, name: str) -> tuple[Tool, ...]:
    """Every tool whose output this is: `uptime` tells load and boot, `lspci -vvv` devices and access control."""
    return tuple(tool for tool in _fitting(head, name) if not tool.beside)


def beside(head: str, name: str) -> tuple[Tool, ...]:
    """Every tool that finds something in a text of any kind."""
    return tuple(tool for tool in _fitting(head, name) if tool.beside)
