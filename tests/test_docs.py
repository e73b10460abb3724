"""What the documents say is run."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from probes import catalog, suites
from probes.core import Capture, Finding, facts_as_json, interpret
from probes.diagnosis import Evidence, Seen, judging, ranking
from probes.record import finding_line
from probes.transport import Plan, local

BASE = Path(__file__).parent.parent
DOCUMENTS = sorted([*BASE.glob("*.md"), *BASE.glob("docs/**/*.md")])


def blocks(name: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (BASE / name).read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def example(tmp_path: Path) -> ModuleType:
    (source,) = blocks("docs/add-a-probe.md", "python")
    path = tmp_path / "host_uptime.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("host_uptime", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["host_uptime"] = module
    spec.loader.exec_module(module)
    return module


def test_the_example_probe_reads_its_example_output_as_the_page_says(example: ModuleType) -> None:
    (out,) = blocks("docs/add-a-probe.md", "text")
    (truth,) = map(json.loads, blocks("docs/add-a-probe.md", "json"))
    reading = interpret(example.PROBE, Capture("node", "host.uptime", "ok", out.encode()))
    assert facts_as_json(reading.facts) == truth["facts"]
    assert [finding_line(finding) for finding in reading.findings] == truth["findings"]


def test_the_example_probe_runs_on_this_machine(example: ModuleType) -> None:
    async def ask() -> list[Any]:
        return [item async for item in local.ask(Plan((example.PROBE,), deadline_s=10))]

    capture, _ = asyncio.run(ask())
    reading = interpret(example.PROBE, capture)
    now = float(Path("/proc/uptime").read_text().split()[0])
    assert now - 30 < reading.facts.up_s <= now


def test_what_a_person_types_by_hand_gives_the_same_capture(example: ModuleType) -> None:
    printed = subprocess.run(example.PROBE.by_hand.split(), capture_output=True, text=True, check=True).stdout
    assert example.parse(printed).up_s > 0


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(BASE)))
def test_every_link_between_documents_leads_somewhere(document: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
        if not link.startswith("http"):
            assert (document.parent / link).exists(), f"{document.name}: {link}"


def test_every_make_target_and_module_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (BASE / "Makefile").read_text(), re.MULTILINE))
    for document in DOCUMENTS:
        text = document.read_text()
        assert (
            set(
                re.findall(
                    r"\bmake ([a-z][a-z-]+)\b(?=[`\s;]| +#)", "\n".join(re.findall(r"`[^`]*`|^make .*$", text, re.M))
                )
            )
            <= targets
        )
        for path in re.findall(r"`((?:probes|incidents|config|tests|docs|static)/[\w./-]+?)/?`", text):
            if "host_uptime" not in path and "host.uptime" not in path and "<" not in path:
                assert (BASE / path).exists() or list(BASE.glob(path)), f"{document.name} names {path}"


def test_the_commands_page_lists_the_suites_and_options_there_are() -> None:
    page = (BASE / "docs/probes-command.md").read_text()
    for suite in suites.SUITES:
        assert f"`{suite}`" in page
    usage = subprocess.run(
        [sys.executable, "-m", "probes", "run", "--help"], capture_output=True, text=True, check=True
    )
    for option in re.findall(r"--[a-z-]+", usage.stdout):
        assert option == "--help" or option in page or option == "--ssh-config", option


def test_the_page_of_probes_is_what_they_say_of_themselves() -> None:
    command = [sys.executable, "-m", "probes", "list", "--markdown"]
    printed = subprocess.run(command, cwd=BASE, capture_output=True, text=True, check=True).stdout
    assert (BASE / "docs/probes.md").read_text() == printed, (
        "write it: python -m probes list --markdown > docs/probes.md"
    )
    for name in catalog.load():
        assert f"\n## {name}\n" in printed


def test_the_changelog_names_every_probe() -> None:
    text = (BASE / "CHANGELOG.md").read_text()
    assert [name for name in catalog.load() if f"`{name}`" not in text] == []


def test_the_rule_of_the_page_is_the_rule_that_runs() -> None:
    (source,) = blocks("docs/add-a-rule.md", "python")
    (table,) = blocks("docs/add-a-rule.md", "toml")
    assert source == (BASE / "probes/diagnosis/rules/shm_full.py").read_text()
    (row,) = tomllib.loads(table)["likelihoods"]
    assert ranking.likelihoods()[row["signal"]] == row
    finding = Finding("host.shm_full", "bad", "/dev/shm has 0 bytes left", {"mount": "/dev/shm"})
    seen = Seen("gpu-001/host.storage", "gpu-001", "host.storage", "ok", "", None, (finding,))
    (found,) = judging.all_rules()["shm_full"].judge(Evidence([seen]))
    assert (found.cause, found.subject) == ("host.shm_full", {"node": "gpu-001"})
    assert list(judging.all_rules()["shm_full"].judge(Evidence([]))) == []


def test_the_example_runbook_is_sound(tmp_path: Path) -> None:
    from incidents import runbook

    (text,) = blocks("docs/add-a-runbook.md", "toml")
    path = tmp_path / "disk_full.toml"
    path.write_text(text)
    assert [str(trouble) for trouble in runbook.check(path)] == []
