"""Every probe keeps the rules of the house, and reads each of its recorded outputs as the truth beside it says."""

from __future__ import annotations

import builtins
import dis
import inspect
import json
import re
import shutil
import subprocess
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from probes import catalog, runner, suites
from probes.core import Capture, Probe, facts_as_json, interpret
from probes.record import finding_line
from probes.transport.plan import collector_source, module_source

FIXTURES = Path(__file__).parent / "fixtures"
PROBES = catalog.load()
CASES = sorted(path for name in PROBES for path in (FIXTURES / name).glob("*.json"))
OLD_PYTHONS = [
    str(path)
    for version in ("3.6", "3.7", "3.8")
    for path in [
        *Path.home().glob(f".pyenv/versions/{version}.*/bin/python"),
        *map(Path, filter(None, [shutil.which(f"python{version}")])),
    ][:1]
    if "shims" not in str(path)
]


def at(facts: Any, path: str) -> Any:
    """The value at a dotted path; `#` is the length of a list or of an object."""
    for step in path.split("."):
        if step == "#":
            facts = len(facts)
        elif isinstance(facts, list):
            facts = facts[int(step)]
        else:
            assert step in facts, f"no fact {path}: {step} is not among {sorted(facts)}"
            facts = facts[step]
    return facts


@pytest.mark.parametrize("case", CASES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_recorded_output_reads_as_the_truth_beside_it_says(case: Path) -> None:
    truth = json.loads(case.read_text())
    assert {"recorded", "source", "licence"} <= set(truth), "a recording says where it came from"
    capture = Capture("node", case.parent.name, "ok", case.with_suffix(".out").read_bytes())
    reading = interpret(PROBES[case.parent.name], capture)
    if "error" in truth:
        assert re.search(truth["error"], reading.parse_error), reading.parse_error or "it was read without an error"
        return
    assert reading.parse_error == ""
    facts = facts_as_json(reading.facts)
    for path, value in truth["facts"].items():
        seen = at(facts, path)
        same = seen == pytest.approx(value) if isinstance(value, float) else seen == value
        assert same, f"{path}: read {seen!r}, the truth is {value!r}"
    assert sorted(finding_line(finding) for finding in reading.findings) == sorted(truth["findings"])


@pytest.mark.parametrize("probe", PROBES.values(), ids=lambda probe: probe.name)
def test_a_probe_keeps_the_rules_of_the_house(probe: Probe[Any]) -> None:
    module = inspect.getmodule(probe.parse)
    assert module is not None and module.__doc__ is not None
    own = inspect.getdoc(__import__(f"probes.catalog.{probe.name.replace('.', '_')}", fromlist=["PROBE"])) or ""
    for word in ("Source", "Units", "Shape", "Errors"):
        assert re.search(rf"^{word}\b", own, re.MULTILINE), f"the docstring has no line {word}"
    assert own.splitlines()[0].endswith("?"), "the first line is the question it answers"
    assert probe.question.endswith("?")
    assert probe.by_hand, "what a person would type to see the same"
    assert probe.cost, "what one run costs the node, or why nobody measured it"
    cases = [path.stem for path in (FIXTURES / probe.name).glob("*.out")]
    assert len(cases) >= 3, f"recorded outputs: {cases}; at least a healthy, a broken and a garbled one"
    assert sorted(cases) == sorted(path.stem for path in (FIXTURES / probe.name).glob("*.json"))
    assert any("error" in json.loads(path.read_text()) for path in (FIXTURES / probe.name).glob("*.json"))


@pytest.mark.parametrize("probe", PROBES.values(), ids=lambda probe: probe.name)
def test_hostile_output_never_takes_the_run_down(probe: Probe[Any]) -> None:
    for text in (
        b"",
        b"\0" * 500,
        b"==> x <==\n" * 50,
        b"\xff\xfe\x00",
        b"9" * 20_000,
        "\u202e‮".encode() * 50,
        b"==> access <==\n[[[[",
    ):
        reading = interpret(probe, Capture("node", probe.name, "ok", text))
        assert reading.parse_error == "" or "parser stopped" not in reading.parse_error, reading.parse_error


@pytest.mark.parametrize("probe", [probe for probe in PROBES.values() if probe.collect], ids=lambda probe: probe.name)
def test_a_collector_uses_nothing_but_the_runners_own_names(probe: Probe[Any]) -> None:
    """It is sent as source: a name from its module would not exist on the node."""
    code = compile(collector_source(probe.collect), probe.name, "exec")
    known = set(dir(runner)) | set(dir(builtins)) | {"collect", "__name__"}
    for module in probe.brings:
        brought = compile(module_source(module), module.__name__, "exec")
        assert _globals(brought) - known - _bound(brought) == set(), module.__name__
        known.add(module.__name__.rpartition(".")[2])
    assert _globals(code) - known - _bound(code) == set()


def _globals(code: CodeType) -> set[str]:
    names = {str(i.argval) for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return names.union(*(_globals(const) for const in code.co_consts if isinstance(const, CodeType)))


def _bound(code: CodeType) -> set[str]:
    """Names that a class body or the module binds itself."""
    names = {str(i.argval) for i in dis.get_instructions(code) if i.opname == "STORE_NAME"}
    return names.union(*(_bound(const) for const in code.co_consts if isinstance(const, CodeType)))


def test_old_pythons_can_compile_every_collector(tmp_path: Path) -> None:
    if not OLD_PYTHONS:
        pytest.skip("cannot run here: no Python 3.6 to 3.8")
    for probe in PROBES.values():
        if probe.collect:
            (tmp_path / f"{probe.name}.py").write_text(collector_source(probe.collect))
        for module in probe.brings:
            (tmp_path / f"{module.__name__}.py").write_text(module_source(module))
    for python in OLD_PYTHONS:
        done = subprocess.run([python, "-m", "compileall", "-q", str(tmp_path)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_suite_names_probes_that_exist_and_can_end_within_its_deadline() -> None:
    for suite in suites.SUITES.values():
        for probe in suite.members():
            assert probe.timeout_s < suite.deadline_s, f"{suite.name}: {probe.name}"


def test_two_files_cannot_use_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    import probes.catalog.host_access as one
    import probes.catalog.host_clock as other

    monkeypatch.setattr(other, "PROBE", one.PROBE)
    catalog.load.cache_clear()
    try:
        with pytest.raises(ValueError, match="two probes are called host.access"):
            catalog.load()
    finally:
        catalog.load.cache_clear()
