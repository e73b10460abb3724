"""The controller's side of one channel, fed with what broken and hostile nodes send."""

from __future__ import annotations

import base64
import json
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.core import Capture, Finding, Probe
from probes.transport.plan import Plan
from probes.transport.protocol import MAX_CHATTER, Conversation


def _nothing(_: str) -> list[Finding]:
    return []


PLAN = Plan(
    (
        Probe("a.one", "?", str, _nothing, command=("true",), max_bytes=1000),
        Probe("a.two", "?", str, _nothing, command=("true",), max_bytes=1000),
    ),
    max_bytes=100_000,
)


def conversation(plan: Plan = PLAN) -> tuple[Conversation, list[bytes]]:
    sent: list[bytes] = []
    return Conversation("node", plan, b"PROGRAM", sent.append), sent


def said(**words: object) -> bytes:
    return b"@golden15 " + json.dumps(words).encode() + b"\n"


def capture(probe: str = "a.one", **words: object) -> bytes:
    return said(kind="capture", probe=probe, **{"outcome": "ok", "out": "x", **words})


def test_the_program_is_sent_once_and_only_when_python_is_ready() -> None:
    talk, sent = conversation()
    talk.feed(b"Welcome to the cluster\n")
    assert sent == []
    talk.feed(b"@golden15 ready\n")
    talk.feed(b"@golden15 ready\n")
    assert sent == [b"PROGRAM"]


def test_a_banner_without_a_newline_does_not_hide_the_first_message() -> None:
    talk, sent = conversation()
    talk.feed(b"motd: hello @golden15 @golden15 ready\n")
    assert sent == [b"PROGRAM"]
    assert talk.chatter == b"motd: hello @golden15 "


def test_messages_may_be_cut_anywhere_by_the_network() -> None:
    talk, _ = conversation()
    stream = b"banner\n@golden15 ready\n" + said(kind="hello", boot_id="b") + capture(out="äö") + said(kind="bye")
    captures = [found for i in range(len(stream)) for found in talk.feed(stream[i : i + 1])]
    assert [(c.probe, c.text, c.boot_id) for c in captures] == [("a.one", "äö", "b")]
    assert talk.finished


def test_the_first_answer_stands_and_unasked_answers_are_dropped() -> None:
    talk, _ = conversation()
    found = talk.feed(capture(out="first") + capture(out="second") + capture("a.never", out="x"))
    assert [c.text for c in found] == ["first"]
    assert list(talk.waiting) == ["a.two"]


def test_bytes_come_through_exactly_whatever_they_are() -> None:
    raw = bytes(range(256)) * 3
    talk, _ = conversation()
    packed = base64.b64encode(zlib.compress(raw)).decode()
    (one,) = talk.feed(capture("a.one", out=raw.decode("utf-8", "surrogateescape")))
    (two,) = talk.feed(said(kind="capture", probe="a.two", outcome="ok", z=packed))
    assert one.out == raw
    assert two.out == raw


def test_a_compression_bomb_is_cut_at_the_probes_cap_without_being_unpacked() -> None:
    bomb = base64.b64encode(zlib.compress(b"\0" * 50_000_000, 9)).decode()
    plan = Plan((Probe("a.one", "?", str, _nothing, command=("true",), max_bytes=100_000),), max_bytes=1_000_000)
    talk, _ = conversation(plan)
    tracemalloc.start()
    (found,) = talk.feed(said(kind="capture", probe="a.one", outcome="ok", z=bomb))
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()
    assert found.truncated
    assert len(found.out) == 100_000


@pytest.mark.parametrize(
    ("flood", "words"),
    [
        (b"y\n" * (MAX_CHATTER // 2 + 1), "at login"),
        (b"y" * (MAX_CHATTER + 10_000), "at login"),
        (b"@golden15 " + b"x" * 50_000, "line without end"),
        (said(kind="capture", probe="a.one", out="x" * 900) * 2000, "byte budget"),
    ],
)
def test_a_node_that_prints_without_end_is_cut_off(flood: bytes, words: str) -> None:
    talk, _ = conversation()
    for i in range(0, len(flood), 4096):
        talk.feed(flood[i : i + 4096])
    assert talk.violation is not None
    assert talk.violation.reason == "flood"
    assert words in str(talk.violation)
    assert len(talk.chatter) <= 4096


@pytest.mark.parametrize(
    "words",
    [
        {"outcome": "excellent"},
        {"rc": 1e400, "at": "now", "took_s": None},
        {"rc": 2**80, "at": float("nan"), "mono": 10**40},
        {"out": 5, "z": 7, "why": ["x"]},
        {"z": "!!!not base64"},
        {"state": "\x1b[2J" * 100, "wchan": "\0" * 1000},
        {"out": "\ud800lone"},
    ],
)
def test_nonsense_in_any_field_gives_a_sound_capture(words: dict[str, object]) -> None:
    talk, _ = conversation()
    (found,) = talk.feed(capture(**words))
    assert isinstance(found, Capture)
    assert found.outcome in ("ok", "failed")
    assert found.rc is None or abs(found.rc) < 2**31
    assert found.at is None or found.at == found.at
    assert "\x1b" not in found.state + found.wchan
    assert len(found.wchan) <= 128
    found.text.encode("utf-8")


@given(st.lists(st.binary(max_size=200) | st.sampled_from([b"@golden15 ", b"\n", b'{"kind":', capture(), b"[" * 3000])))
def test_no_bytes_from_a_node_raise(pieces: list[bytes]) -> None:
    talk, _ = conversation()
    for piece in pieces:
        talk.feed(piece)
        talk.error_feed(piece)
    talk.close()


def test_captures_before_a_violation_are_kept_and_nothing_after_it_is_read() -> None:
    talk, _ = conversation()
    found = talk.feed(capture(out="told") + b"@golden15 {" + b"x" * 50_000)
    assert [c.text for c in found] == ["told"]
    assert talk.violation is not None
    assert talk.feed(capture("a.two")) == []


def test_a_capture_that_waits_for_pings_is_told_at_the_end_with_those_there_are() -> None:
    clock = Probe("a.clock", "?", str, _nothing, command=("true",), wants_pings=True)
    talk, sent = conversation(Plan((clock,)))
    assert talk.feed(said(kind="hello") + capture("a.clock", out="x\n")) == []
    assert talk.feed(said(kind="pong", n="1", at="123.5")) == []
    (found,) = talk.close()
    assert found.text.startswith("x\n==> golden15/pings <==\n")
    assert " 123.500000 " in found.text


@pytest.mark.parametrize("at", ["inf", "-inf", "nan", "ten", None, [], 10**400, {"x": 1}])
def test_a_pong_that_is_no_time_is_no_exchange(at: object) -> None:
    talk, _ = conversation()
    talk.feed(said(kind="hello"))
    talk.feed(said(kind="pong", n="1", at=at))
    assert talk.pings == []
