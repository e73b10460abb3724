"""Flame graphs: what a sampled profile's calls look like, and that no box lies where it does not belong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from incidents.queries.flame import ROW, flame, profiles, without_calls
from probes.catalog import rank_profiles
from probes.catalog.stacks.profile import findings, parse_profile
from probes.catalog.stacks.profile_tree import MOST, Tree
from probes.core import facts_as_json

PROFILE = """main (train.py:3);step (train.py:9);forward (model.py:4) 30
main (train.py:3);step (train.py:9);libcuda.so 50
main (train.py:3);load (data.py:2) 15
idle (threading.py:1);wait (threading.py:2) 5
"""
SVG = Path(__file__).parent / "fixtures/tools/pyspy_gil_two_shippers.svg"


def facts(text: str) -> dict[str, object]:
    told = facts_as_json(parse_profile(text))
    assert isinstance(told, dict)
    return told


def test_each_box_is_as_wide_as_its_share_and_lies_below_its_caller() -> None:
    drawn = flame(facts(PROFILE))
    assert drawn.total == 100
    assert [(box.name, box.x, box.width, box.y // ROW, box.kind) for box in drawn.boxes] == [
        ("main (train.py:3)", 0.0, 95.0, 0, "python"),
        ("step (train.py:9)", 0.0, 80.0, 1, "python"),
        ("libcuda.so", 0.0, 50.0, 2, "native"),
        ("forward (model.py:4)", 50.0, 30.0, 2, "python"),
        ("load (data.py:2)", 80.0, 15.0, 1, "python"),
        ("idle (threading.py:1)", 95.0, 5.0, 0, "python"),
        ("wait (threading.py:2)", 95.0, 5.0, 1, "python"),
    ]
    assert [(one.name, one.share) for one in drawn.heaviest][:2] == [
        ("libcuda.so", "50 %"),
        ("forward (model.py:4)", "30 %"),
    ]


def test_below_one_call_it_is_the_whole_width_and_its_callers_stay_above_it() -> None:
    drawn = flame(facts(PROFILE), 1)
    assert drawn.at == "step (train.py:9)"
    assert [(box.name, box.x, box.width, box.kind) for box in drawn.boxes] == [
        ("main (train.py:3)", 0.0, 100.0, "above"),
        ("step (train.py:9)", 0.0, 100.0, "python"),
        ("libcuda.so", 0.0, 62.5, "native"),
        ("forward (model.py:4)", 62.5, 37.5, "python"),
    ]
    assert flame(facts(PROFILE), 99) == flame(facts(PROFILE)), "an address that names no call shows all"


def test_a_recorded_profile_keeps_its_samples_and_no_box_leaves_its_caller() -> None:
    told = facts(SVG.read_text())
    drawn = flame(told)
    assert 0 < drawn.total <= told["total"]  # type: ignore[operator]
    for y in {box.y for box in drawn.boxes}:
        row = sorted((box.x, box.width) for box in drawn.boxes if box.y == y)
        assert all(x + width <= following + 0.01 for (x, width), (following, _) in zip(row, row[1:], strict=False))
        assert row[-1][0] + row[-1][1] <= 100.01


def test_a_profile_of_very_many_calls_is_cut_to_its_heaviest() -> None:
    tree = Tree()
    for number in range(3000):
        tree.add(["main", f"f{number}", f"g{number}"], 10 + (1000 if number < 20 else 0))
    kept = tree.frames()
    assert len(kept) <= MOST and kept[0].name == "main" and kept[0].samples == 50_000
    assert {f"f{number}" for number in range(20)} <= {one.name for one in kept}
    assert all(one.parent < place for place, one in enumerate(kept)), "a call stands after its caller"


def test_frames_of_python_without_a_file_are_no_native_code() -> None:
    text = "<module> (<string>:9);ship (<stdin>:4);dumps (a.py:1) 40\n<module> (<ipython-input-3>:1);f (a.py:2) 2\n"
    told = parse_profile(text)
    assert (told.native, told.callbacks) == (False, ())


def test_of_a_node_each_rank_has_two_and_the_table_of_facts_has_none_of_the_calls() -> None:
    recorded = (Path(__file__).parent / "fixtures/rank.profiles/healthy.out").read_text()
    told = facts_as_json(rank_profiles.parse(recorded))
    assert [one.name for one in profiles(told)] == [
        "rank 0, running threads",
        "rank 0, holder of the lock",
        "rank 1, running threads",
        "rank 1, holder of the lock",
    ]
    assert flame(profiles(told)[0].profile).boxes[0].name == "<module> (train.py:88)"
    assert "tree" not in str(without_calls(told)) and without_calls(told)["profiles"][0]["profile"]["total"] == 292


def test_a_profile_says_the_share_of_what_matters_most() -> None:
    (found,) = findings(replace(parse_profile(SVG.read_text()), lock=True))
    assert found.says.startswith(
        "391 samples of 34 stacks; 97 % of whoever holds the interpreter's lock in other threads"
    )


def test_what_is_no_profile_has_none() -> None:
    for told in (None, {"tree": []}, {"load1": 3}, {"profiles": 3}, {"profiles": [{"profile": None}]}):
        assert profiles(told) == []
