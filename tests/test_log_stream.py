"""A log of any size is read piece by piece, and what is chosen of it is what the node would choose of the whole."""

from __future__ import annotations

import random

import pytest

from probes.catalog.logs import reduce, stream
from probes.catalog.logs.stream import Chooser


def lines(count: int, seed: int = 1) -> list[str]:
    """A log of training with an error, a traceback and NCCL's lines among many that do not matter."""
    draw = random.Random(seed)
    rows = []
    for step in range(count):
        rows.append(
            f"INFO train: iteration {step} | loss {draw.random():.4f} | tokens per second {draw.randrange(9000)}"
        )
        if draw.random() < 0.01:
            rows.append(f"gpu-003:4711:4713 [2] NCCL INFO Channel {step % 32:02d}/0 : 3[2] -> 4[3] via P2P/CUMEM")
        if draw.random() < 0.002:
            rows += [
                "Traceback (most recent call last):",
                '  File "train.py", line 7, in <module>',
                "    step()",
                "ValueError: odd",
            ]
    return rows


def chosen(text: str, piece: int) -> list[tuple[int, str]]:
    chooser, data = Chooser(), text.encode()
    for at in range(0, len(data), piece):
        chooser.feed(data[at : at + piece])
    return [(line.offset, line.text) for line in chooser.lines()[0]]


@pytest.mark.parametrize("piece", [1000, 65_536, 10_000_000])
def test_the_lines_are_those_that_the_node_chooses_of_the_whole(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "PIECE", 40_000)
    monkeypatch.setattr(stream, "AHEAD", 4_000)
    text = "\n".join(lines(4000)) + "\nRuntimeError: NCCL error in: ProcessGroupNCCL.cpp:2006\n"
    by_node = [(offset, row) for _, offset, row in reduce.chosen_lines(text.encode())[0]]
    assert chosen(text, piece) == by_node


def test_each_line_is_told_with_its_number() -> None:
    rows = lines(2000)
    chooser = Chooser()
    chooser.feed("\n".join(rows).encode())
    found, _ = chooser.lines()
    assert found and all(rows[line.number - 1] == line.text for line in found)


def test_an_error_in_the_middle_of_a_flood_is_found() -> None:
    flood = "\n".join(lines(30_000, 2))
    middle = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    assert any(middle in row for _, row in chosen(f"{flood}\n{middle}\n{flood}", 100_000))


def test_a_line_without_an_end_is_cut_around_what_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "PIECE", 50_000)
    text = "x" * 120_000 + " NCCL WARN Cuda failure 'out of memory' " + "y" * 120_000
    found = [row for _, row in chosen(text, 7000)]
    assert any("NCCL WARN Cuda failure 'out of memory'" in row for row in found)
    assert max(map(len, found)) <= reduce.LINE


def test_a_token_in_a_line_is_masked() -> None:
    assert chosen("RuntimeError: login failed for hf_" + "a" * 30, 100) == [
        (0, "RuntimeError: login failed for (masked)")
    ]


def test_a_flood_of_one_word_keeps_its_first_and_last_lines_in_little_memory() -> None:
    text = "\n".join(f"{number} NCCL WARN NET/IB : Got completion with error 12" for number in range(200_000))
    found = [row for _, row in chosen(text, 1_000_000)]
    assert found[0].startswith("0 ") and found[-1].startswith("199999 ")
    assert len(found) < 500
