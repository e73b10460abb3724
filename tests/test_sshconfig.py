"""Lines of an SSH configuration that have no effect here are told, not swallowed."""

from __future__ import annotations

from pathlib import Path

from probes.transport.sshconfig import ignored_options


def told(tmp_path: Path, text: str) -> list[str]:
    (tmp_path / "config").write_text(text)
    return [str(line).removeprefix(f"{tmp_path}/") for line in ignored_options([str(tmp_path / "config")])]


def test_options_that_are_honoured_or_harmless_are_not_mentioned(tmp_path: Path) -> None:
    text = (
        "Host gpu-*\n  HostName %h.cluster\n  Port=2222\n  User ops\n  ProxyJump bastion\n"
        "  IdentityFile ~/.ssh/k\n  ControlMaster auto\n  LogLevel ERROR\n"
    )
    assert told(tmp_path, text) == []


def test_an_unknown_option_is_told_with_its_line(tmp_path: Path) -> None:
    (line,) = told(tmp_path, "Host *\n\n  KnownHostsCommand /usr/bin/keys %H\n")
    assert line.startswith("config:3: KnownHostsCommand is not honoured")


def test_switching_host_key_checks_off_is_told_to_have_no_effect(tmp_path: Path) -> None:
    (line,) = told(tmp_path, "StrictHostKeyChecking accept-new\n")
    assert "always checked strictly" in line
    assert told(tmp_path, "StrictHostKeyChecking yes\n") == []


def test_included_files_are_looked_into(tmp_path: Path) -> None:
    (tmp_path / "more.conf").write_text("RevokedHostKeys /etc/ssh/revoked\n")
    (line,) = told(tmp_path, "Include *.conf\n")
    assert line.startswith("more.conf:1: RevokedHostKeys")


def test_a_file_that_cannot_be_read_and_a_line_that_cannot_be_split_are_survived(tmp_path: Path) -> None:
    (line,) = ignored_options([str(tmp_path / "missing")])
    assert "cannot be read" in str(line)
    assert told(tmp_path, 'ProxyCommand sh -c "unclosed\n') == []
