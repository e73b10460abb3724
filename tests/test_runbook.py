"""Runbook files: what is wrong in one is said with file, line and word; those that are shipped are sound."""

from __future__ import annotations

from pathlib import Path

import pytest

from incidents import runbook
from probes.reference import rows

GOOD = """title = "A rank is stopped"
says = "One rank holds all others."
causes = ["fw.rank_stopped"]
start = "state"

[steps.state]
question = "Is it stopped?"
show = ["rank.process"]
ask = "hang"

[[steps.state.options]]
id = "yes"
label = "Yes: continue it"
effect = "sends SIGCONT"
undo = "stop it again"
loses = "nothing"
remedy = "continue_rank"
next = "after"

[[steps.state.options]]
id = "no"
label = "No"
next = "done"

[steps.after]
question = "Does it go on?"

[[steps.after.options]]
id = "yes"
label = "Yes"
next = "done"

[[steps.after.options]]
id = "no"
label = "No"
next = "state"
"""


def checked(folder: Path, text: str) -> list[str]:
    path = folder / "stopped.toml"
    path.write_text(text)
    return [str(trouble) for trouble in runbook.check(path)]


def test_a_sound_runbook_has_no_trouble(tmp_path: Path) -> None:
    assert checked(tmp_path, GOOD) == []


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('next = "after"', 'next = "afterwards"', "stopped.toml:18: 'afterwards': a dead link"),
        ('ask = "hang"', 'ask = "hangs"', "stopped.toml:9: 'hangs': no such suite"),
        ('show = ["rank.process"]', 'show = ["rank.proces"]', "stopped.toml:8: 'rank.proces': no such probe"),
        ('["fw.rank_stopped"]', '["fw.rank_stoped"]', "stopped.toml:3: 'fw.rank_stoped': no such cause"),
        ('start = "state"', 'start = "begin"', "stopped.toml:4: 'begin': no such step to start with"),
        ('remedy = "continue_rank"', 'remedy = "reboot"', "stopped.toml:17: 'reboot': no such remedy"),
        ('remedy = "continue_rank"', 'remedy = "end_rank"', "stopped.toml:17: 'end_rank': this remedy destroys"),
        ('loses = "nothing"\n', "", "stopped.toml:12: 'yes': option yes of step state lacks loses"),
        ('undo = "stop it again"', 'undoo = "stop it again"', "stopped.toml:15: 'undoo': no such key here"),
        ('label = "No"\nnext = "done"', 'label = ""\nnext = "done"', "stopped.toml:22: 'label': expected some text"),
        ('question = "Is it stopped?"', "", "stopped.toml:6: 'state': step state lacks question"),
        ('id = "no"\nlabel = "No"\nnext = "state"', 'id = "yes"\nlabel = "No"\nnext = "state"',
            "'yes': two options of this step have this id"),
        ("[steps.after]", "[steps.after", "stopped.toml:25: '[steps.after': is not TOML"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_line_and_word(tmp_path: Path, old: str, new: str, says: str) -> None:
    assert GOOD.count(old) >= 1
    told = checked(tmp_path, GOOD.replace(old, new, 1))
    assert any(says in one for one in told), told


def test_a_step_that_no_way_leads_out_of_is_told(tmp_path: Path) -> None:
    circle = GOOD.replace('next = "done"', 'next = "state"')
    assert [one.partition(": no way")[0] for one in checked(tmp_path, circle)] == [
        "stopped.toml:6: 'state'",
        "stopped.toml:25: 'after'",
    ]


def test_a_step_that_no_way_leads_to_is_told(tmp_path: Path) -> None:
    (told,) = checked(tmp_path, GOOD.replace('next = "after"', 'next = "done"'))
    assert told == "stopped.toml:25: 'after': no way leads to this step"


@pytest.mark.parametrize(
    "text", ["", "steps = 3", "[steps]\nstate = 4", 'title = 1\nsteps = {a = {options = "x"}}', "\x00"]
)
def test_nonsense_is_told_and_survived(tmp_path: Path, text: str) -> None:
    assert checked(tmp_path, text)


def test_a_file_that_is_no_text_is_told(tmp_path: Path) -> None:
    path = tmp_path / "stopped.toml"
    path.write_bytes(b"\xff\xfe")
    assert [str(one) for one in runbook.check(path)] == ["stopped.toml:1: 'stopped.toml': is not UTF-8 text"]


def test_the_shipped_runbooks_are_sound() -> None:
    paths = sorted(runbook.FOLDER.glob("*.toml"))
    assert {path.stem for path in paths} >= {"gpu_fault", "link_down", "rank_stopped_or_missing"}
    assert [str(trouble) for path in paths for trouble in runbook.check(path)] == []
    assert set(runbook.load()) == {path.stem for path in paths}


def test_what_an_incident_keeps_is_the_whole_runbook() -> None:
    for book in runbook.load().values():
        assert runbook.of_json(book.as_json()) == book


def test_each_cause_finds_its_runbook_and_others_find_none() -> None:
    assert [one.id for one in runbook.fitting("ib.link_down")] == ["link_down"]
    assert [one.id for one in runbook.fitting("gpu.fell_off_bus")] == ["gpu_fault"]
    for cause in ("fw.rank_stopped", "fw.rank_missing_collective", "fw.rank_exited"):
        assert [one.id for one in runbook.fitting(cause)] == ["rank_stopped_or_missing"]
    assert runbook.fitting("none") == []
    assert {row["id"] for row in rows("causes")} >= {c for one in runbook.load().values() for c in one.causes}
