"""Shapes of log lines: all their needles are looked for at once, and the first shape in their order counts."""

from __future__ import annotations

from probes.catalog.logs.lines import Line
from probes.catalog.logs.shapes import Shapes, shape


def _kind(shapes: Shapes, text: str) -> str:
    found = shapes.first(Line(text))
    return "" if found is None else found.kind


def test_the_order_of_shapes_counts_and_not_the_order_in_which_their_words_stand() -> None:
    shapes = Shapes((shape("nan", "loss is"), shape("checkpoint", "saved"), shape("progress", "step")))
    assert _kind(shapes, "step 4 saved, loss is odd") == "nan"
    assert _kind(shapes, "step 4 saved") == "checkpoint"
    assert _kind(shapes, "nothing of it") == ""


def test_a_word_within_another_is_found_too() -> None:
    shapes = Shapes((shape("progress", "nan iterations", r"nan iterations: [1-9]"), shape("nan", "nan")))
    assert _kind(shapes, "nan iterations: 3") == "progress"
    assert _kind(shapes, "nan iterations: 0") == "nan"


def test_two_shapes_with_one_word_are_both_tried() -> None:
    shapes = Shapes((shape("progress", "step", r"step \d"), shape("nan", "step", r"step nan")))
    assert _kind(shapes, "step nan") == "nan"


def test_half_a_character_and_letters_of_other_languages_are_no_error() -> None:
    shapes = Shapes((shape("nan", "loss"),))
    assert _kind(shapes, "Schritt \ud800 für Übung loss") == "nan"
