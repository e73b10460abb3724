"""What is asked of a node, and the program that asks it: the runner's source with the plan as one call at its end.

Modules that a collector brings are sent as source in the plan, attachments as bytes behind the program.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import json
import textwrap
import threading
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from probes import runner
from probes.core import Probe
from probes.transport.attachments import Attachment


@dataclass(frozen=True, slots=True)
class Plan:
    """What one run asks of each node: probes, the node's own deadline in seconds, byte budget, children at a time."""

    probes: tuple[Probe[Any], ...]
    deadline_s: float = 15.0
    max_bytes: int = 4_194_304
    parallel: int = 6
    site: tuple[str, ...] = field(default=())  # extra import folders, only for probes on the dashboard's own machine
    not_attached: Mapping[str, str] = field(default_factory=dict)  # what should have been attached, and why it is not
    attachments: tuple[Attachment, ...] = ()  # megabytes to every node asked: for a few suspects, not for a fleet

    def as_json(self) -> dict[str, Any]:
        brought = {module.__name__: module for probe in self.probes for module in probe.brings}
        return {
            "probes": [_probe_as_json(probe) for probe in self.probes],
            "modules": {_last(name): module_source(module) for name, module in brought.items()},
            "not_attached": dict(self.not_attached),
            "attachments": [{"name": one.name, "size": len(one.packed)} for one in self.attachments],
            "deadline_s": self.deadline_s,
            "max_bytes": self.max_bytes,
            "parallel": self.parallel,
            "site": list(self.site),
        }

    def source(self, watch_stdin: bool = True) -> str:
        """The whole program: the runner's source and the plan as one call at its end.

        Attachments are named in it only when standard input is there to bring them.
        """
        asked = self.as_json() if watch_stdin else {**self.as_json(), "attachments": []}
        plan = json.dumps(asked)
        return f"{inspect.getsource(runner)}\n\nmain(json.loads({plan!r}), {watch_stdin})\n"

    def program(self) -> bytes:
        """The bytes to send after `ready`: decimal length, newline, compressed source, attachments."""
        packed = zlib.compress(self.source().encode(), 9)
        return b"%d\n" % len(packed) + packed + b"".join(one.packed for one in self.attachments)


def _probe_as_json(probe: Probe[Any]) -> dict[str, Any]:
    asked: dict[str, Any] = {"name": probe.name, "timeout_s": probe.timeout_s, "max_bytes": probe.max_bytes}
    if probe.touches == "driver":
        asked["lock"] = "driver"
    if probe.brings:
        asked["brings"] = [_last(module.__name__) for module in probe.brings]
    if probe.attachments:
        asked["attachments"] = list(probe.attachments)
    if probe.command:
        asked["command"] = list(probe.command)
    elif probe.collect:
        asked["collect"] = collector_source(probe.collect)
    return asked


def collector_source(collect: Any) -> str:
    """The source of a collector, renamed `collect`, without annotations and docstring: old Pythons must compile it."""
    with _one_at_a_time:
        return _collector_source(collect)


# Debian 12's Python 3.11.2 fails when two threads build syntax trees at once ("AST constructor recursion depth").
_one_at_a_time = threading.Lock()


@functools.cache
def _collector_source(collect: Any) -> str:
    tree = _bare(ast.parse(textwrap.dedent(inspect.getsource(collect))))
    tree.body[0].name = "collect"  # type: ignore[attr-defined]
    return ast.unparse(tree)


def module_source(module: ModuleType) -> str:
    """The source of a module that a collector brings, made to compile on old Pythons like a collector.

    Its imports from this package go: the runner's names and the modules brought before it are there already.
    """
    with _one_at_a_time:
        return _module_source(module)


@functools.cache
def _module_source(module: ModuleType) -> str:
    tree = _bare(ast.parse(inspect.getsource(module)))
    tree.body = [there for node in tree.body for there in _on_the_node(node)]
    return ast.unparse(ast.fix_missing_locations(tree))


def _on_the_node(node: ast.stmt) -> list[ast.stmt]:
    """A statement of a brought module as it stands on the node: imports from this package become plain assignments."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return []
    if not isinstance(node, ast.ImportFrom) or (node.module or "").partition(".")[0] not in ("probes", "__future__"):
        return [node]
    if not (node.module or "").startswith("probes.catalog"):
        return []
    of_modules = hasattr(importlib.import_module(node.module or ""), "__path__")  # what a package gives is modules
    owner = "" if of_modules else _last(node.module or "") + "."
    lines = [f"{alias.asname or alias.name} = {owner}{alias.name}" for alias in node.names if alias.asname or owner]
    return ast.parse("\n".join(lines)).body


def _bare(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
            for arg in (*node.args.args, *node.args.kwonlyargs, *node.args.posonlyargs):
                arg.annotation = None
            if ast.get_docstring(node) is not None:
                node.body = node.body[1:] or [ast.Pass()]
    bare: ast.Module = _PlainAssignments().visit(tree)
    return bare


def _last(name: str) -> str:
    return name.rpartition(".")[2]


class _PlainAssignments(ast.NodeTransformer):
    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is None:
            return ast.Pass()
        return ast.copy_location(ast.Assign(targets=[node.target], value=node.value, lineno=node.lineno), node)
