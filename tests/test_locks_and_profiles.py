"""The interpreter's lock, synchronisations with the device, profiles, and torch's own checks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from probes.catalog.logs.events import LogEvent, RankLog, RankLogs
from probes.catalog.stacks.facts import Frame
from probes.catalog.stacks.profile import is_profile, parse_profile
from probes.catalog.stacks.profile_svg import stacks_of_svg
from probes.core import ParseError
from probes.diagnosis import Seen, diagnose
from probes.diagnosis.paths import StepState
from probes.explain import explain
from tests.support.brought import FIXTURES
from tests.support.hardware import judged, shares
from tests.support.rank_facts import dump, recorders, stack, stacked, wrote

RANKS = list(range(4))
REDUCE = ("all_reduce", 1024)


def chance(cause: str, *seen: Seen) -> float:
    return sum(one.probability for one in diagnose(seen).ranked if one.hypothesis.cause == cause)


def step(path: str, name: str, *seen: Seen) -> StepState:
    return next(one for one in diagnose(seen).paths[path].steps if one.id == name)


# The interpreter's lock ---------------------------------------------------------------------------------------------


def held(*before: str, main: str = "user code") -> Seen:
    """Rank 1's pin-memory thread holds the lock at every look; the other ranks are in their loop."""
    others = [stack(r, "user code", before) for r in RANKS if r != 1]
    return stacked("n", *others, stack(1, main, before, holder="pin_memory"))


def test_a_thread_that_holds_the_lock_at_two_looks_is_named() -> None:
    found = diagnose([held("user code")]).verdict.hypothesis
    assert (found.cause, found.subject["rank"]) == ("cpu.gil_contention", 1)
    assert "thread pin_memory holds the lock at work (keep.py:8) in 2 of 2 looks" in found.because[0].says
    assert chance("cpu.gil_contention", held()) < 0.2, "any thread holds it for moments"


def looks(folder: Path, *places: tuple[int, int], runs: bool = True) -> dict[str, float]:
    """Two dumps of rank 2 by py-spy: its main thread sends to the device; two shippers are at these lines."""
    files = {"rank2.log": "[rank2]: INFO rank 2 of 4, pid 900\n2026-01-01 10:00:00 [rank2] step 4 loss 2.0\n"}
    for number, lines in enumerate(places):
        how = ("active+gil" if number else "active", "idle") if runs else ("idle", "idle")
        threads = "".join(
            f'Thread {910 + at} ({how[at]}): "shipper_{at}"\n    pack (ship.py:{line})\n    run (threading.py:982)\n'
            for at, line in enumerate(lines)
        )
        files[f"pyspy_{number}.txt"] = (
            "Process 900: python -u train.py\nPython v3.12.3 (/usr/bin/python3.12)\n\n"
            f'Thread 900 (idle): "MainThread"\n    to_device (train.py:70)\n    <module> (train.py:99)\n{threads}'
        )
    return shares(judged(folder, files))


def test_several_threads_that_compute_at_every_look_share_the_lock_with_the_main_thread(tmp_path: Path) -> None:
    cause = "cpu.gil_contention"
    assert looks(tmp_path / "two", (11, 12), (12, 14))[cause] > 0.6
    assert looks(tmp_path / "asleep", (11, 11), (11, 11), runs=False).get(cause, 0.0) == 0
    assert looks(tmp_path / "one", (11, 12)).get(cause, 0.0) < 0.2


def test_who_waits_for_other_ranks_needs_no_lock() -> None:
    assert chance("cpu.gil_contention", held("collective", main="collective")) == 0


def test_torch_that_could_not_get_the_lock_supports_it() -> None:
    line = LogEvent("gil_stuck", "Could not acquire GIL within 300 ms on exit, possible GIL induced hang", rank=1)
    assert chance("cpu.gil_contention", held("user code"), wrote("n", line)) > chance(
        "cpu.gil_contention", held("user code")
    )
    assert 0.2 < chance("cpu.gil_contention", wrote("n", line)) < 0.6


def test_one_look_does_not_rule_the_lock_out() -> None:
    once, twice = stacked("n", stack(0, "user code")), stacked("n", stack(0, "user code", ["user code"]))
    assert step("gil-and-data-loader", "lock", once).state == "not known"
    assert "second py-spy dump" in step("gil-and-data-loader", "lock", once).why
    assert step("gil-and-data-loader", "lock", twice).state == "ruled out"


# Synchronisations ---------------------------------------------------------------------------------------------------


def test_most_ranks_in_a_synchronisation_at_two_looks_are_slow_by_their_own_program() -> None:
    twice = stacked("n", *(stack(r, "device sync", ["device sync"]) for r in RANKS))
    assert chance("cpu.implicit_sync", twice) > 0.4
    assert diagnose([twice]).paths["implicit-sync"].state in ("suspect", "implicated")
    once = stacked("n", *(stack(r, "device sync") for r in RANKS))
    assert chance("cpu.implicit_sync", once) < 0.1


def test_a_rank_that_waits_for_its_device_while_a_collective_stands_is_no_finding() -> None:
    waits = recorders(*(dump(r, {"g": (RANKS, [REDUCE], True)}) for r in RANKS))
    assert (
        chance("cpu.implicit_sync", waits, stacked("n", *(stack(r, "device sync", ["device sync"]) for r in RANKS)))
        == 0
    )


# Profiles -----------------------------------------------------------------------------------------------------------

CALLBACKS = """\
<module> (train.py:90);train (train.py:40);parse (codec.cpython-311-x86_64-linux-gnu.so);on_token (codec.py:12) 620
<module> (train.py:90);train (train.py:40);parse (codec.cpython-311-x86_64-linux-gnu.so) 200
<module> (train.py:90);train (train.py:44);_PyEval_EvalFrameDefault (libpython3.11.so.1.0);forward (model.py:7) 80
<module> (train.py:90);log (train.py:52);THPVariable_item (libtorch_python.so);cudaStreamSynchronize (libcudart.so) 100
"""


def test_python_below_an_extension_is_counted_as_a_call_back_and_the_interpreter_is_no_extension() -> None:
    told = parse_profile(CALLBACKS)
    assert (told.total, told.stacks, told.native) == (1000, 4, True)
    assert told.callbacks == (("codec.cpython-311-x86_64-linux-gnu.so", 620),)
    assert told.callback_at == "on_token (codec.py:12)"
    assert (told.sync, told.sync_at) == (100, "log (train.py:52)")


def test_perf_names_python_frames_in_its_own_way() -> None:
    told = parse_profile(
        "python;_start;Py_RunMain;py::train:/job/train.py;walk_tree;_PyEval_Vector;py::visit:/job/tree.py 9\n"
        "python;_start;Py_RunMain;py::train:/job/train.py;walk_tree 1\n"
    )
    assert told.callbacks == (("walk_tree", 9),)


PERF = """\
python 4242 [003] 1234.567890:   10101010 cycles:P:
            7f00aa10 visit_node+0x10 (/opt/job/tree.so)
            7f00aa00 py::visit:/job/tree.py (/tmp/perf-4242.map)
            7f00bb00 walk_tree+0x40 (/opt/job/tree.so)
            7f00cc00 py::train:/job/train.py (/tmp/perf-4242.map)

python 4242 [003] 1234.577890:   10101010 cycles:P:
            7f00bb00 walk_tree+0x44 (/opt/job/tree.so)
            7f00cc00 py::train:/job/train.py (/tmp/perf-4242.map)

"""


def test_the_text_of_perf_script_and_files_of_speedscope_are_profiles_too() -> None:
    assert is_profile(PERF)
    told = parse_profile(PERF)
    assert (told.total, told.callbacks) == (2, (("tree.so", 1),))
    frames = [{"name": "train", "file": "/job/train.py", "line": 9}, {"name": "walk", "file": "/opt/job/tree.so"}]
    frames.append({"name": "visit", "file": "/job/tree.py", "line": 3})
    whole = {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "shared": {"frames": frames},
        "profiles": [{"type": "sampled", "samples": [[0, 1, 2], [0, 1, 2], [0]], "weights": [1, 1, 1]}],
    }
    assert is_profile(json.dumps(whole))
    assert parse_profile(json.dumps(whole)).callbacks == (("tree.so", 2),)
    with pytest.raises(ParseError, match="speedscope"):
        parse_profile('{"$schema": "https://www.speedscope.app/file-format-schema.json", "shared": []}')


def test_several_dumps_with_native_frames_are_a_small_profile() -> None:
    calls = (
        Frame("visit", "/job/tree.py", 3),
        Frame("walk", "/opt/job/tree.so", None),
        Frame("train", "/job/train.py", 9),
    )
    plain = stack(0, "user code")
    look = replace(plain.look, frames=calls)
    main = replace(plain.threads[0], frames=calls)
    twice = replace(plain, threads=(main,), earlier=(look, look))
    assert chance("cpu.native_callback", stacked("n", twice)) > 0.5
    assert chance("cpu.native_callback", stacked("n", replace(twice, earlier=()))) < 0.1
    assert chance("cpu.native_callback", stacked("n", plain)) == 0


@pytest.mark.parametrize(
    "text",
    ["", "step 1; loss 3\n", "one; two; three 4 apples\n", "We saw a; b; c 3\nand no more than that\n", "a;b 1\n"],
)
def test_prose_is_no_profile(text: str) -> None:
    assert not is_profile(text)


def test_text_without_counts_is_refused() -> None:
    with pytest.raises(ParseError, match="expected lines such as"):
        parse_profile("a;b\nc;d\n")


def test_a_profile_among_the_files_names_the_rank_and_the_call_back(tmp_path: Path) -> None:
    (tmp_path / "profile_rank3.txt").write_text(CALLBACKS)
    found = explain([tmp_path]).diagnosis
    first = found.verdict.hypothesis
    assert (first.cause, first.subject["rank"]) == ("cpu.native_callback", 3)
    assert "62 % of 1000 samples" in first.says
    assert found.paths["native-callback"].state == "implicated"


def test_without_a_profile_the_path_says_how_to_take_one(tmp_path: Path) -> None:
    assert "py-spy record --native" in step("native-callback", "profile").why
    (tmp_path / "quiet.txt").write_text(
        "<module> (a.py:1);f (a.py:2);dot (libblas.so.3) 90\n<module> (a.py:1);g (a.py:9) 5\n"
    )
    assert explain([tmp_path]).diagnosis.paths["native-callback"].state == "ruled out"


# torch's own checks -------------------------------------------------------------------------------------------------


def test_a_race_that_the_sanitizer_saw_explains_the_exception() -> None:
    event = LogEvent("traceback", "CUDASanitizerErrors: detected 2 errors", rank=2, name="CUDASanitizerErrors")
    found = diagnose([wrote("n", event)]).verdict
    assert (found.hypothesis.cause, found.hypothesis.subject["rank"]) == ("fw.stream_order", 2)
    assert found.probability > 0.9


def test_work_that_was_never_waited_for_is_told_and_does_not_lead_by_itself() -> None:
    line = "[W1129 ...] Warning: At the time of process termination, there are still 3 unwaited collective calls. "
    log = RankLog(1, None, "rank1.log", tail=(line,))
    seen = Seen("n/rank.log", "n", "rank.log", "ok", "", RankLogs((log,)), ())
    assert 0.1 < chance("fw.async_not_awaited", seen) < 0.5
    assert step("async-op", "ended", seen).state == "suspect"
    awaited = step("async-op", "awaited", seen)
    assert awaited.state == "not known"
    assert "A missing wait stops neither NCCL nor gloo" in awaited.why


def test_looks_at_lines_of_which_torch_warns_are_waits_for_the_device(tmp_path: Path) -> None:
    warned = (
        "/srv/moe/route.py:61: UserWarning: called a synchronizing CUDA operation (Triggered internally at a.cpp:3.)\n"
    )
    stack_ = (
        "Process 90: python train.py\nPython v3.12.3 (/usr/bin/python3.12)\n\n"
        'Thread 90 (active): "MainThread"\n    counts (moe/route.py:{line})\n    <module> (train.py:9)\n\n'
    )
    steps = "".join(f"[rank4]: step {step} loss 2.0\n" for step in range(9))
    cause = "cpu.implicit_sync"
    here = {"rank4.log": steps + warned, "pyspy_rank4.txt": stack_.format(line=61) * 3}
    elsewhere = here | {"pyspy_rank4.txt": stack_.format(line=88) * 3}
    assert shares(judged(tmp_path / "here", here))[cause] > 0.3
    assert shares(judged(tmp_path / "elsewhere", elsewhere)).get(cause, 0.0) == 0


@pytest.mark.parametrize(("line", "counts"), [(61, True), (62, False)])
def test_a_line_that_waits_within_a_loop_of_processes_without_a_rank_counts(
    tmp_path: Path, line: int, counts: bool
) -> None:
    warned = "/srv/moe/route.py:61: UserWarning: called a synchronizing CUDA operation (Triggered internally at a:3.)\n"
    dump = "".join(
        f"Process {pid}: python train.py\nPython v3.12.3 (/usr/bin/python3.12)\n\n"
        f'Thread {pid} (active): "MainThread"\n    <genexpr> (moe/route.py:60)\n    counts (moe/route.py:{line})\n'
        f"    <module> (train.py:9)\n\n"
        for pid in range(90, 94)
    )
    found = shares(judged(tmp_path, {"stderr.txt": "".join(f"[rank{r}]: {warned}" for r in range(4)), "spy.txt": dump}))
    assert (found.get("cpu.implicit_sync", 0.0) > 0.3) == counts


# Flame graphs -------------------------------------------------------------------------------------------------------

FLAMES = (FIXTURES / "tools" / "pyspy_gil_two_shippers.svg").read_text()


def test_a_flame_graph_holds_the_samples_that_py_spy_counted() -> None:
    assert is_profile(FLAMES[:65_536])
    profile = parse_profile(FLAMES)
    assert (profile.total, profile.beside, profile.beside_at) == (391, 381, "Shipper.ship (busy.py:5)")


def test_a_flame_graph_whose_root_is_at_the_bottom_is_read_by_its_rectangles() -> None:
    rows = (("all", 20, 10, 64, 0), ("a", 15, 10, 48, 0), ("b &lt;c&gt;", 5, 58, 16, 0), ("d", 9, 10, 28.8, 1))
    text = "<svg><!-- Flame Graph -->\n" + "".join(
        f"<g><title>{name} ({samples} samples, 9%)</title>"
        f'<rect x="{x}" y="{90 - 16 * (up + (name != "all"))}" width="{width}" height="15"/></g>\n'
        for name, samples, x, width, up in rows
    )
    assert sorted(stacks_of_svg(text)) == [(["a"], 6), (["a", "d"], 9), (["b <c>"], 5)]


def test_a_flame_graph_of_the_lock_names_who_has_it(tmp_path: Path) -> None:
    assert shares(judged(tmp_path / "gil", {"rank1/gil.svg": FLAMES}))["cpu.gil_contention"] > 0.8
    assert shares(judged(tmp_path / "all", {"rank1/profile.svg": FLAMES})).get("cpu.gil_contention", 0.0) == 0
