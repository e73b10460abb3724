"""Rules of the tree that no linter knows."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

BASE = Path(__file__).resolve().parent.parent


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Line and top-level name of every import, wherever in the file it stands. A relative one is "."."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.split(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, "." if node.level else (node.module or "").split(".")[0]


def test_the_runner_that_is_sent_to_nodes_imports_the_standard_library_only() -> None:
    found = list(imported(BASE / "probes" / "runner.py"))
    assert found, "nothing was read"
    assert [(line, name) for line, name in found if name not in sys.stdlib_module_names] == []


def test_the_runner_is_readable_by_python_3_6() -> None:
    ast.parse((BASE / "probes" / "runner.py").read_text(), feature_version=(3, 6))


def test_only_services_write_to_the_database() -> None:
    """Calls that write, outside services, migrations (and what they end in) and Django's own sign-in."""
    writing = {"save", "create", "update_or_create", "get_or_create", "bulk_create", "bulk_update", "delete", "raw"}
    found = []
    for path in sorted((BASE / "incidents").rglob("*.py")):
        parts = path.relative_to(BASE / "incidents").parts
        if parts[0] in {"services", "services.py", "migrations", "apps.py"}:  # apps.py: the first fleet, by a migration
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in writing:
                found.append(f"{path.name}:{node.lineno} .{node.func.attr}()")
    assert found == []


def test_files_stay_readable() -> None:
    """Python, templates and scripts of 300 lines at most; longer ones are split by noun."""
    folders = ["config", "incidents", "templates"]
    long = {
        str(path.relative_to(BASE)): count
        for folder in folders
        for path in (BASE / folder).rglob("*.*")
        if path.suffix in {".py", ".html", ".js"} and "migrations" not in path.parts
        for count in [len(path.read_text().splitlines())]
        if count > 300
    }
    assert long == {}
