"""Words every probe speaks: cleaning of node text, sections, what becomes of a capture that cannot be read."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.core import Capture, ParseError, Probe, clean, interpret, sections


@given(st.text() | st.binary().map(lambda raw: raw.decode("utf-8", "replace")))
def test_cleaned_text_holds_nothing_that_acts(text: str) -> None:
    cleaned = clean(text)
    for character in cleaned:
        code = ord(character)
        assert code >= 0x20 or character in "\t\n"
        assert not 0x7F <= code < 0xA0
        assert not 0xD800 <= code < 0xE000
        assert code not in (*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070), 0xFEFF)
    cleaned.encode("utf-8")
    assert clean(cleaned) == cleaned


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]52;c;cm0gLXJmIC8=\x07copied", "copied"),
        ("\x1b]0;title\x1b\\x", "x"),
        ("over\rwrite", "over␍write"),
        ("bell\x07", "bell␇"),
        ("a\u202eb", "a‹U+202E›b"),
        ("zero\u200bwidth", "zero‹U+200B›width"),
        ("nul\0", "nul␀"),
        ("line\r\nend", "line\nend"),
    ],
)
def test_terminal_and_bidi_tricks_become_visible_or_vanish(hostile: str, shown: str) -> None:
    assert clean(hostile) == shown


def test_cleaning_a_block_of_nothing_but_escapes_is_quick() -> None:
    for block in ("\x1b[" * 131_072, "\x1b]" * 131_072, "\x1b[1m" * 65_536, "\x1b[" + "1;" * 131_072):
        began = time.process_time()
        clean(block)
        assert time.process_time() - began < 1.0, block[:10]


def test_sections_are_what_tail_prints_for_several_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\ntwo\n")
    (tmp_path / "b").write_text("")
    (tmp_path / "c").write_text("no newline at the end")
    names = [str(tmp_path / name) for name in "abc"]
    printed = subprocess.run(["tail", "-n", "+1", *names], capture_output=True, text=True, check=True).stdout
    assert sections(printed) == dict(zip(names, ["one\ntwo", "", "no newline at the end"], strict=True))


def test_text_before_the_first_header_is_an_error_that_shows_it() -> None:
    with pytest.raises(ParseError, match="found 'bash: command not found'"):
        sections("bash: command not found\n==> a <==\n")
    with pytest.raises(ParseError, match="empty"):
        sections("")


def _probe(parse: object) -> Probe[str]:
    return Probe("a.probe", "?", parse, lambda facts: [], command=("true",))  # type: ignore[arg-type,return-value]


def test_only_an_answer_is_parsed() -> None:
    def never(text: str) -> str:
        raise AssertionError("parsed")

    for outcome in ("absent", "failed", "timeout", "hung", "denied", "unreachable", "skipped"):
        reading = interpret(_probe(never), Capture("n", "a.probe", outcome))  # type: ignore[arg-type]
        assert (reading.outcome, reading.facts, reading.findings) == (outcome, None, ())


def test_an_answer_that_cannot_be_read_is_not_known_instead_of_healthy() -> None:
    def refuse(text: str) -> str:
        raise ParseError("line 3: expected a number")

    def stumble(text: str) -> str:
        raise IndexError("list index out of range")

    assert interpret(_probe(refuse), Capture("n", "a.probe", "ok")).outcome == "failed"
    stumbled = interpret(_probe(stumble), Capture("n", "a.probe", "ok"))
    assert stumbled.outcome == "failed"
    assert "parser stopped" in stumbled.parse_error


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [1.0, float("-inf")]])
def test_facts_that_are_no_number_are_not_known(value: object) -> None:
    reading = interpret(_probe(lambda text: value), Capture("n", "a.probe", "ok"))
    assert reading.outcome == "failed"
    assert reading.facts is None


def test_a_probe_asks_in_exactly_one_way() -> None:
    with pytest.raises(ValueError, match="exactly one"):
        Probe("a.b", "?", str, lambda facts: [])
    with pytest.raises(ValueError, match=r"area\.thing"):
        Probe("nodots", "?", str, lambda facts: [], command=("true",))
