"""Environment variables and folders: typed, private, and loud when wrong."""

import os
from pathlib import Path

import pytest

from config import env, paths
from config.env import SettingError


def test_a_flag_reads_yes_and_no_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, meant in {"1": True, "YES": True, "on": True, "0": False, "false": False, " ": False, "": False}.items():
        monkeypatch.setenv("G15_X", value)
        assert env.flag("G15_X") is meant
    monkeypatch.setenv("G15_X", "maybe")
    with pytest.raises(SettingError, match=r"G15_X is 'maybe'\. Set it to 1 or 0"):
        env.flag("G15_X")


@pytest.mark.parametrize("value", ["-1", "65536", "8e3", "²", "0x50", "1 2"])
def test_a_number_out_of_range_or_malformed_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("G15_X", value)
    with pytest.raises(SettingError, match="G15_X is .* Set it to a whole number from 0 to 65535"):
        env.number("G15_X", 8000, 0, 65535)


def test_a_wrong_url_is_refused_without_showing_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("G15_X", "http://me:secret@host")
    with pytest.raises(SettingError) as refused:
        env.url("G15_X", ("redis",), "redis://host")
    assert "secret" not in str(refused.value)


def test_a_list_of_words_forgives_blanks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("G15_X", " a.example, ,b.example,")
    assert env.words("G15_X") == ["a.example", "b.example"]


def test_the_secret_key_is_made_once_and_only_its_owner_may_read_it(data_folder: Path) -> None:
    key = paths.secret_key(data_folder)
    assert len(key) >= 50
    assert paths.secret_key(data_folder) == key
    assert (data_folder / "secret_key").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in data_folder.iterdir()] == ["secret_key"]


def test_a_secret_key_that_others_may_read_stops_the_start(data_folder: Path) -> None:
    paths.secret_key(data_folder)
    (data_folder / "secret_key").chmod(0o644)
    with pytest.raises(SettingError, match="chmod 600"):
        paths.secret_key(data_folder)


def test_a_short_secret_key_is_refused(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOLDEN15_SECRET_KEY", "short")
    with pytest.raises(SettingError, match="shorter than 50"):
        paths.secret_key(data_folder)


def test_the_run_folder_is_private_also_after_a_loose_copy(data_folder: Path) -> None:
    (data_folder / "run").mkdir(mode=0o777)
    (data_folder / "run").chmod(0o777)
    assert paths.run_folder(data_folder) == data_folder / "run"
    assert (data_folder / "run").stat().st_mode & 0o777 == 0o700


@pytest.fixture
def deep(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder too deep for a socket, beside a private runtime folder."""
    (data_folder / "runtime").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(data_folder / "runtime"))
    folder = data_folder / ("d" * 100)
    folder.mkdir()
    return folder


def test_a_deep_data_folder_gets_a_short_run_folder(deep: Path, data_folder: Path) -> None:
    run = paths.run_folder(deep)
    assert run.parent == data_folder / "runtime"
    assert len(os.fsencode(run / paths.SOCKET_NAME)) <= 107
    assert run.stat().st_mode & 0o777 == 0o700
    assert paths.run_folder(deep) == run


def test_a_runtime_folder_that_others_may_enter_is_not_used(deep: Path, data_folder: Path) -> None:
    (data_folder / "runtime").chmod(0o755)
    run = paths.run_folder(deep)
    assert run.parent == Path("/tmp")
    run.rmdir()


@pytest.mark.parametrize("trap", ["open", "link", "file"])
def test_a_planted_run_folder_is_refused(deep: Path, data_folder: Path, trap: str) -> None:
    run = paths.run_folder(deep)
    run.rmdir()
    if trap == "open":
        run.mkdir()
        run.chmod(0o777)
    elif trap == "link":
        run.symlink_to(data_folder)
    else:
        run.touch()
    with pytest.raises(SettingError, match="run folder"):
        paths.run_folder(deep)


@pytest.mark.needs_root
def test_a_run_folder_of_somebody_else_is_refused(deep: Path) -> None:
    run = paths.run_folder(deep)
    os.chown(run, 65534, 65534)
    with pytest.raises(SettingError, match="only you can enter"):
        paths.run_folder(deep)
