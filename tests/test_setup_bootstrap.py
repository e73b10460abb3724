"""The way from a bare machine to a running program, and one clear line for each thing that can be in it."""

import ast
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.server import BASE, clean_environment

BOOTSTRAP = BASE / "config" / "bootstrap.py"
OFFLINE = {
    "PIP_CONFIG_FILE": os.devnull,
    "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
    "PIP_FIND_LINKS": "",
    "PIP_EXTRA_INDEX_URL": "",
}
ONE_PACKAGE = f"six==1.17.0 --hash=sha256:{'0' * 64}\n"


@pytest.fixture
def checkout() -> Iterator[Path]:
    """A folder with what the bootstrap reads, and lock files that ask for nothing. Others may enter it."""
    folder = Path(tempfile.mkdtemp(prefix="g15-checkout-", dir="/tmp"))
    folder.chmod(0o755)
    (folder / "config").mkdir()
    shutil.copy(BOOTSTRAP, folder / "config")
    for name in ("requirements.lock", "requirements-dev.lock"):
        (folder / name).write_text("# nothing\n")
    yield folder
    folder.chmod(0o755)  # a test may have closed it
    shutil.rmtree(folder)


def bootstrap(checkout: Path, what: str = "dev", python: str = sys.executable, **env: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [python, str(checkout / "config" / "bootstrap.py"), what],
        env={**clean_environment(), **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
    )
    return done.returncode, done.stdout, done.stderr


def one_line(text: str) -> str:
    lines = text.splitlines()
    assert len(lines) == 1, text
    return lines[0]


def fake_python(path: Path, version: str) -> None:
    """An interpreter that says it is of another version: (3, 6, 9) for "3, 6, 9"."""
    code = f"import sys, runpy; sys.version_info = ({version}); sys.argv.pop(0)"
    code += "; runpy.run_path(sys.argv[0], None, '__main__')"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{code}" "$@"\n')
    path.chmod(0o755)


def test_even_python_3_6_can_read_the_bootstrap() -> None:
    ast.parse(BOOTSTRAP.read_text(), feature_version=(3, 6))
    imported = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(BOOTSTRAP.read_text()))
        for name in ([a.name for a in node.names] if isinstance(node, ast.Import) else [getattr(node, "module", "")])
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert imported <= set(sys.stdlib_module_names)


def test_an_old_python_is_one_line_that_names_the_version_needed(checkout: Path, tmp_path: Path) -> None:
    fake_python(tmp_path / "python3", "3, 6, 9")
    status, out, err = bootstrap(checkout, python=str(tmp_path / "python3"), PATH=str(tmp_path))
    assert (status, out) == (2, "")
    assert one_line(err).startswith("Golden15 needs Python 3.11 or newer, and ")
    assert " is 3.6. Install a newer one" in err
    assert "apt install python3 python3-venv" in err


@pytest.mark.long
def test_an_old_python_gives_way_to_a_newer_one_on_the_path(checkout: Path, tmp_path: Path) -> None:
    fake_python(tmp_path / "python3", "3, 6, 9")
    # A version manager's shim that is on PATH but does not run, and one that does.
    for name, line in (("python3.13", "exit 127"), ("python3.12", f'exec {sys.executable} "$@"')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    (checkout / "requirements-dev.lock").write_text(ONE_PACKAGE)
    status, out, err = bootstrap(
        checkout, python=str(tmp_path / "python3"), PATH=f"{tmp_path}:/usr/bin:/bin", **OFFLINE
    )
    assert out == "Installing 1 packages into .venv. This happens once.\n"
    assert (status, "Python 3.11" in err) == (2, False)


def test_a_missing_venv_module_names_the_package_to_install(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "ensurepip.py").write_text("raise ImportError('as on Debian without python3-venv')\n")
    status, _, err = bootstrap(checkout, PYTHONPATH=str(tmp_path))
    assert status == 2
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert one_line(err) == (
        f"Python's venv module is missing. Install it (Debian, Ubuntu: apt install python{version}-venv)."
    )


def test_no_network_is_one_line_and_the_next_try_starts_again(checkout: Path) -> None:
    (checkout / "requirements-dev.lock").write_text(ONE_PACKAGE)
    for _ in range(2):  # a failed install leaves no stamp
        status, _, err = bootstrap(checkout, **OFFLINE)
        assert status == 2
        assert one_line(err).startswith("No network to install from: pip cannot reach its package index")
        assert "Traceback" not in err
    assert (checkout / ".venv" / "golden15-pip.log").exists()


def test_a_folder_one_cannot_write_to_is_one_line(checkout: Path) -> None:
    command = ["/usr/bin/python3", str(checkout / "config" / "bootstrap.py"), "dev"]
    checkout.chmod(0o555)
    if os.geteuid() == 0:  # root may write anywhere
        command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *command]
    done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert one_line(done.stderr) == (
        f"Golden15 cannot write to {checkout} (permission denied). Clone it into a folder of your own and run it there."
    )


def test_it_installs_once_and_again_only_when_the_lock_file_changed(checkout: Path) -> None:
    said = "Installing 0 packages into .venv. This happens once.\n"
    assert bootstrap(checkout) == (0, said, "")
    assert bootstrap(checkout) == (0, "", "")
    (checkout / "requirements-dev.lock").write_text("# nothing else\n")
    assert bootstrap(checkout) == (0, said, "")


@pytest.mark.long
def test_a_virtual_environment_whose_python_is_gone_is_made_again(checkout: Path) -> None:
    assert bootstrap(checkout)[0] == 0
    python = checkout / ".venv" / "bin" / "python"
    python.unlink()
    python.symlink_to("/gone/python3.11")
    assert bootstrap(checkout)[0] == 0
    assert subprocess.run([python, "-c", ""]).returncode == 0


def test_an_unknown_request_says_how_it_is_used(checkout: Path) -> None:
    assert bootstrap(checkout, "up") == (2, "", "usage: python3 config/bootstrap.py run | dev\n")
