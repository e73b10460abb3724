"""What is committed: locked requirements with reasons, one list of system packages, no address of a package index."""

import re
import subprocess

from tests.support.server import BASE, clean_environment

PIN = re.compile(r"^(?P<name>[A-Za-z0-9-]+)(\[[a-z,]+\])?==(?P<version>\S+)\s+# (?P<reason>.+); (?P<licence>[^;]+)$")


def pins(name: str) -> dict[str, re.Match[str]]:
    lines = [line for line in (BASE / name).read_text().splitlines() if line and not line.startswith(("#", "-r "))]
    found = [PIN.match(line) for line in lines]
    assert None not in found, [line for line, match in zip(lines, found, strict=True) if match is None]
    return {match["name"].lower(): match for match in found if match}


def locked(name: str) -> dict[str, str]:
    return dict(re.findall(r"^([A-Za-z0-9-]+)==(\S+)", (BASE / name).read_text(), re.MULTILINE))


def test_every_direct_requirement_is_pinned_with_a_reason_and_a_licence() -> None:
    assert {"django", "channels", "celery", "redis", "psutil", "pynvml", "plotly", "asyncssh"} <= set(
        pins("requirements.txt")
    )
    assert {"pytest", "pytest-django", "ruff", "mypy", "playwright"} <= set(pins("requirements-dev.txt"))


def test_the_lock_files_hold_the_pinned_versions_and_agree() -> None:
    run, dev = locked("requirements.lock"), locked("requirements-dev.lock")
    wanted = {name: match["version"] for name, match in pins("requirements.txt").items()}
    assert {name: run.get(name) for name in wanted} == wanted
    wanted_dev = {name: match["version"] for name, match in pins("requirements-dev.txt").items()}
    assert {name: dev.get(name) for name in wanted_dev} == wanted_dev
    assert {name: dev.get(name) for name in run} == run, "run `make lock`"


def test_every_locked_package_has_a_hash() -> None:
    for name in ("requirements.lock", "requirements-dev.lock"):
        text = (BASE / name).read_text()
        blocks = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)[1:]
        assert [block.split()[0] for block in blocks if "--hash=sha256:" not in block] == []


def test_no_requirements_file_names_a_package_index() -> None:
    for name in ("requirements.txt", "requirements-dev.txt", "requirements.lock", "requirements-dev.lock"):
        assert not re.search(r"https?://|file:|--(extra-)?index|--find-links", (BASE / name).read_text()), name


def test_the_queue_gets_the_packaging_that_it_wants() -> None:
    run = locked("requirements.lock")
    assert (run["kombu"], run["packaging"]) == ("5.7.0", "26.3")


def test_every_system_package_has_a_program_and_a_reason() -> None:
    lines = (BASE / "tests" / "system-packages.txt").read_text().splitlines()
    rows = [line.split(None, 2) for line in lines if line and not line.startswith("#")]
    assert {"openssh-server", "redis-server", "postgresql", "chromium"} <= {row[0] for row in rows}
    assert [row for row in rows if len(row) != 3] == []


def test_make_help_names_the_targets() -> None:
    done = subprocess.run(["make", "--no-print-directory"], cwd=BASE, capture_output=True, text=True, timeout=20)
    assert done.returncode == 0
    assert {"run", "sign-in", "test", "check", "fix", "lock"} <= set(
        re.findall(r"^make (\S+)", done.stdout, re.MULTILINE)
    )


def test_without_any_python_make_run_names_the_packages_to_install() -> None:
    command = ["make", "run", "PYTHON="]
    done = subprocess.run(command, cwd=BASE, env=clean_environment(), capture_output=True, text=True, timeout=20)
    assert done.returncode == 2
    assert done.stdout.splitlines() == [
        "Golden15 needs Python 3.11 or newer, and there is no python3. Install it: apt install python3 python3-venv"
    ]


def test_ci_runs_what_contributors_run() -> None:
    script = BASE / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    commands = [line for line in script.read_text().splitlines() if line and not line.startswith("#")]
    assert commands == ["set -euo pipefail", 'cd "$(dirname "$0")/.."', "make lab test"]
