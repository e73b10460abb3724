"""The drills that Golden15 brings: each verdict is right, and is gone when its fault is taken out."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from incidents import runbook
from probes import catalog, drills, remedies, suites
from probes.core import Capture
from probes.diagnosis import diagnose
from probes.diagnosis.advancing import advancing
from probes.diagnosis.core import seen
from probes.diagnosis.judging import Diagnosis
from probes.transport import replay
from tests.lab.drills.__main__ import MADE, make

BASE = Path(__file__).parent.parent
NAMES = drills.names()
MOST_BYTES = 12_000_000  # of one drill, unpacked


def judged(captures: Iterable[Capture], nodes: Iterable[str]) -> Diagnosis:
    """Through the real parsers and all rules."""
    return diagnose((seen(catalog.read(capture)) for capture in captures), nodes)


def bytes_of(folder: Path) -> dict[str, bytes]:
    files = (file for file in folder.rglob("*") if file.is_file() and file.name != drills.DESCRIPTION)
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


@pytest.fixture(scope="module", params=NAMES)
def drill(request: pytest.FixtureRequest) -> drills.Drill:
    return drills.named(request.param)


def test_there_are_three_and_each_has_two_decoys_and_something_after_it() -> None:
    assert {"port-down-64", "rank-stopped", "gpu-off-bus"} <= set(NAMES)
    for one in drills.drills():
        assert len(one.decoys) >= 2, one.name
        assert one.stages, one.name
        assert one.truth is not None
        assert not {one.truth.subject["node"]} & {decoy.node for decoy in one.decoys}, "a decoy is somewhere else"


def test_port_down_64_has_64_nodes_of_8_ranks_and_stays_small() -> None:
    one = drills.named("port-down-64")
    assert one.nodes == tuple(f"gpu-{number:03}" for number in range(1, 65))
    maps = [next(c for c in replay.of_node(one.folder, node) if c.probe == "rank.map") for node in one.nodes]
    ranks = [rank.rank for capture in maps for rank in catalog.read(capture).facts.ranks]
    assert sorted(ranks) == list(range(512))
    assert sum(len(data) for data in bytes_of(one.folder).values()) < MOST_BYTES


def test_every_node_answers_every_probe_of_the_capture_and_each_answer_can_be_read(drill: drills.Drill) -> None:
    wanted = set(suites.SUITES["capture"].probes) - {"ib.fabric"}  # only a node that may ask the fabric answers that
    for node in drill.nodes:
        captures = {capture.probe: capture for capture in replay.of_node(drill.folder, node)}
        assert wanted <= set(captures), node
        assert [r.parse_error for c in captures.values() if (r := catalog.read(c)).parse_error] == [], node


def test_the_verdict_names_the_truth(drill: drills.Drill) -> None:
    found = judged(replay.captures(drill.folder), drill.nodes)
    assert found.failed == {}
    first, truth = found.verdict, drill.truth
    assert truth is not None
    assert first.hypothesis.cause == truth.cause
    assert truth.subject.items() <= dict(first.hypothesis.subject).items()
    assert first.probability >= 0.8


def test_without_the_fault_there_is_no_verdict_and_no_decoy_leads(drill: drills.Drill) -> None:
    found = judged(MADE[drill.name].recording(fault=False), drill.nodes)
    assert found.verdict.hypothesis.cause in ("none", "unknown")


def test_a_healthy_twin_of_the_faulty_node_takes_the_verdict_away(drill: drills.Drill) -> None:
    """Only that node's captures are exchanged: the others still wait, and nothing names a cause any more."""
    assert drill.truth is not None
    victim = drill.truth.subject["node"]
    healthy = [capture for capture in MADE[drill.name].recording(fault=False) if capture.node == victim]
    others = [capture for capture in replay.captures(drill.folder) if capture.node != victim]
    assert judged([*others, *healthy], drill.nodes).verdict.hypothesis.cause in ("none", "unknown")


def test_the_kernel_log_and_the_adapter_tell_of_one_port() -> None:
    """The kernel names the adapter by its PCI address, sysfs by its name."""
    drill = drills.named("port-down-64")
    first = judged(replay.captures(drill.folder), drill.nodes).verdict.hypothesis
    probes = [reason.reading.partition("/")[2] for reason in first.because]
    assert probes[:5] == ["ib.ports", "host.kernel_log", "rank.log", "rank.log", "rank.flight_recorder"]


def with_changes(name: str, node: str, probe: str, old: str, new: str) -> Diagnosis:
    """Of the drill without its fault, where one output of one node reads otherwise."""
    changed = []
    for capture in MADE[name].recording(fault=False):
        if (capture.node, capture.probe) == (node, probe):
            assert old in capture.text
            capture = dataclasses.replace(capture, out=capture.text.replace(old, new).encode())
        changed.append(capture)
    return judged(changed, drills.named(name).nodes)


def causes_of(found: Diagnosis) -> set[str]:
    return {one.hypothesis.cause for one in found.ranked}


def test_an_xid_of_a_program_counts_only_when_it_is_younger_than_the_job() -> None:
    """The job's ranks began at 21:55:05; the decoy's Xid 31 is of 21:16:33."""
    words = ("gpu-off-bus", "gpu-207", "host.kernel_log", "2026-11-24T21:16:33")
    assert "gpu.app_fault" not in causes_of(with_changes(*words, "2026-11-24T21:54:58"))
    assert "gpu.app_fault" in causes_of(with_changes(*words, "2026-11-24T22:16:33"))
    old_79 = with_changes("gpu-off-bus", "gpu-207", "host.kernel_log", "): 31, pid", "): 79, pid")
    assert "gpu.fell_off_bus" in causes_of(old_79), "of the hardware an old one tells as well"


def test_a_second_port_that_has_carried_data_is_not_taken_for_one_without_a_cable() -> None:
    counter = "==> /sys/class/infiniband/mlx5_4/ports/2/counters/port_rcv_data <==\n"
    words = ("port-down-64", "gpu-009", "ib.ports", f"{counter}0\n")
    assert "ib.link_down" not in causes_of(with_changes(*words, f"{counter}0\n"))
    assert "ib.link_down" in causes_of(with_changes(*words, f"{counter}912\n"))


def test_no_two_nodes_are_alike(drill: drills.Drill) -> None:
    """Not one output of a probe is the same on two nodes, and neither is an id that the nodes tell of themselves."""
    outs: dict[bytes, str] = {}
    ids: dict[str, str] = {}
    for node in drill.nodes:
        for capture in replay.of_node(drill.folder, node):
            if capture.outcome != "ok":
                continue
            assert outs.setdefault(capture.out, node) == node, f"{capture.probe} of {outs[capture.out]} and {node}"
            for one in own_ids(capture):
                assert ids.setdefault(one, node) == node, f"{one} on {ids[one]} and {node}"


def own_ids(capture: Capture) -> list[str]:
    facts = catalog.read(capture).facts
    if capture.probe == "gpu.state":
        return [gpu.uuid for gpu in facts.gpus if gpu.uuid]
    if capture.probe == "ib.ports":
        active = [port for port in facts.ports if port.state == "ACTIVE"]
        return [facts.boot_id] + [f"guid {p.node_guid}" for p in facts.ports] + [f"lid {p.lid}" for p in active]
    return []


@pytest.mark.parametrize("name", sorted(MADE))
def test_the_folder_is_what_the_generator_makes_byte_for_byte(name: str, tmp_path: Path) -> None:
    make(name, tmp_path / name)
    made, kept = bytes_of(tmp_path / name), bytes_of(drills.HERE / name)
    assert sorted(made) == sorted(kept)
    assert [file for file in kept if made[file] != kept[file]] == []


@pytest.mark.parametrize("name", NAMES)
def test_explain_says_the_same_of_the_folder(name: str) -> None:
    drill = drills.named(name)
    command = [sys.executable, "-m", "probes", "explain", "--json", str(drill.folder)]
    told = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)
    assert drill.truth is not None
    assert told["hypotheses"][0]["cause"] == drill.truth.cause
    assert drill.truth.subject.items() <= told["hypotheses"][0]["subject"].items()
    assert told["unread"] == [], "its description and its later looks are no evidence"


# What comes after a remedy ------------------------------------------------------------------------------------------


def look(drill: drills.Drill, number: int) -> list[Capture]:
    """What all nodes answer at the n-th look of the drill's stage."""
    probes = suites.SUITES["verify"].probes
    told = (replay.answers(drill.folder, node, drill.stages[0].name, number) for node in drill.nodes)
    return [answers[probe] for answers in told for probe in probes]


def numbers(captures: list[Capture]) -> dict[int, tuple[int, int]]:
    """(last collective, last step) of each rank."""
    facts = [(c.probe, catalog.read(c).facts) for c in captures if c.outcome == "ok"]
    seqs = {d.rank: d.groups[0].enqueued for probe, f in facts if probe == "rank.flight_recorder" for d in f.dumps}
    steps = {
        log.rank: max(event.seq for event in log.events if event.kind == "progress")
        for probe, f in facts
        if probe == "rank.log"
        for log in f.logs
    }
    assert set(seqs) == set(steps)
    return {rank: (seqs[rank], steps[rank]) for rank in seqs}


def test_after_the_remedy_every_rank_advances_by_more_than_a_step_between_two_looks(drill: drills.Drill) -> None:
    one, two = numbers(look(drill, 1)), numbers(look(drill, 2))
    world = 8 * (
        len(drill.nodes) - (drill.name != "rank-stopped")
    )  # the faulty node is left out where it was not mended
    assert sorted(one) == sorted(two) == list(range(world))
    per_step = 242  # collectives of a step of these jobs
    assert all(two[rank][0] - one[rank][0] > per_step and two[rank][1] - one[rank][1] > 1 for rank in one)


def test_the_stopped_rank_runs_again_after_it_was_continued() -> None:
    drill = drills.named("rank-stopped")
    rows = [p for c in look(drill, 1) if c.probe == "rank.process" for p in catalog.read(c).facts.processes]
    assert {process.state for process in rows} == {"R"}
    assert judged(look(drill, 2), drill.nodes).verdict.hypothesis.cause == "none"
    before = {c.node: catalog.read(c).facts for c in replay.captures(drill.folder) if c.probe == "rank.map"}
    after = {c.node: catalog.read(c).facts for c in look(drill, 1) if c.probe == "rank.map"}
    pids = [
        [(rank.rank, rank.pid, rank.started) for rank in facts.ranks] for facts in (before["gpu-103"], after["gpu-103"])
    ]
    assert pids[0] == pids[1], "it was continued, not started again"


def test_two_looks_say_that_training_advances(drill: drills.Drill) -> None:
    """In the words of the product, as after a choice in a runbook."""
    pairs = [[seen(catalog.read(one)) for one in look(drill, number)] for number in (1, 2)]
    found = advancing(*pairs, drill.nodes)
    assert found.state == "advances", found.says


def test_each_stage_follows_something_that_a_runbook_or_a_remedy_does() -> None:
    options = {
        f"{name}.{one.id}"
        for name, book in runbook.load().items()
        for step in book.steps.values()
        for one in step.options
    }
    done = options | set(remedies.load())
    assert {stage.after for one in drills.drills() for stage in one.stages} <= done


def test_what_a_look_lacks_the_one_before_tells_and_after_the_last_the_last_two_take_turns() -> None:
    drill = drills.named("port-down-64")

    def told(stage: str, probe: str, number: int) -> Capture | None:
        return replay.answers(drill.folder, "gpu-001", stage, number).get(probe)

    one, two = (told("without", "rank.log", number) for number in (1, 2))
    assert one != two != told("", "rank.log", 1) != one
    assert [told("without", "rank.log", number) for number in (3, 4, 5)] == [one, two, one]
    assert told("without", "rank.map", 2) == told("without", "rank.map", 1) != told("", "rank.map", 1)
    assert told("without", "ib.ports", 1) == told("", "ib.ports", 1), "the first captures tell the rest"
    assert told("without", "host.access", 1) is None
    assert told("", "rank.log", 7) == told("", "rank.log", 1)


def test_a_node_called_as_a_folder_that_means_something_else_keeps_its_captures(tmp_path: Path) -> None:
    names = ["Golden15", "gpu-1", "stages"]
    replay.save(tmp_path, [Capture(name, "rank.map", "absent", why=f"of {name}") for name in names])
    assert sorted(place.name for place in tmp_path.iterdir()) == ["Golden15_", "gpu-1", "stages_"]
    found = {capture.why for capture in replay.captures(tmp_path)}
    assert found == {f"of {name}" for name in names}
    assert list(drills.load(tmp_path).nodes) == replay.nodes(tmp_path) == ["Golden15_", "gpu-1", "stages_"]


def test_what_tells_about_an_incident_is_no_node_of_its_drill(tmp_path: Path) -> None:
    for name in ("gpu-1", "golden15"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "captures.json").write_text('{"rank.map": {"outcome": "absent"}}')
    assert drills.load(tmp_path).nodes == ("gpu-1",)


# The description ----------------------------------------------------------------------------------------------------


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A small drill that a person is about to change."""
    place = tmp_path / "mine"
    shutil.copytree(drills.HERE / "rank-stopped", place)
    return place


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("severity = 2", "severity = 7", "severity: expected 1 to 4, found 7"),
        ("severity = 2", "", "severity is missing"),
        ("severity = 2", "sevrity = 2", "sevrity is not known here"),
        ("severity = 2", "severity = ", "line 5"),
        ("2026-11-18T14:05:20Z", "2026-11-18T14:05:20", "t0: expected a time with its zone"),
        ("fw.rank_stopped", "fw.rank_stoped", "truth.cause: 'fw.rank_stoped' is not in causes.toml"),
        ('"gpu-103"', '"gpu-109"', "truth.subject.node: the recording has no node 'gpu-109'"),
        ('"gpu-104"', '"gpu-9"', "decoys.node: the recording has no node 'gpu-9'"),
        ('name = "mended"', 'name = "mendet"', "there is no folder stages/mendet/look-1"),
        ('name = "mended"', 'name = "../../etc"', "stage.name: expected letters, digits and dashes"),
    ],
)
def test_a_slip_in_the_description_is_said_with_file_and_word(copy: Path, old: str, new: str, says: str) -> None:
    file = copy / drills.DESCRIPTION
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(drills.DrillError) as error:
        drills.load(copy)
    assert says in str(error.value)
    assert str(file) in str(error.value)


def test_the_example_of_the_page_is_a_drill(copy: Path) -> None:
    page = (BASE / "docs" / "drills.md").read_text()
    (example,) = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (copy / drills.DESCRIPTION).write_text(example)
    drill = drills.load(copy)
    assert (drill.what, drill.severity, drill.stood_s, len(drill.decoys)) == ("llm-7b-run3", 3, 180, 1)
    told = set(re.findall(r"^\| `(\w+)` \|", page.split("## Add a drill")[1], re.MULTILINE))
    assert told == drills.WORDS, "every word is told"
    sizes = dict(re.findall(r"^\| `([\w-]+)` \| .*? \| ([\d.]+) MB", page, re.MULTILINE))
    real = {one.name: sum(len(data) for data in bytes_of(one.folder).values()) / 1e6 for one in drills.drills()}
    assert {name: float(size) for name, size in sizes.items()} == pytest.approx(real, abs=0.1)


def test_an_unknown_name_lists_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(drills.DrillError, match="no drill is called 'port-up'. Drills: .*port-down-64"):
        drills.named("port-up")
    with pytest.raises(drills.DrillError, match="holds no captures"):
        drills.load(tmp_path)
