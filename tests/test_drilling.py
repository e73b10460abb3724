"""Drills in the product: a recording answers in place of nodes, by the way that every reading takes."""

from __future__ import annotations

import io
import json
import stat
import time
import zipfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, reverse
from django.utils import timezone

from incidents import asking, mending, policy, replaying, runbook
from incidents.commands import command_of
from incidents.models import Fleet, Incident, Node, Reading, Shard, SuiteRun, User
from incidents.queries import drills as queries
from incidents.queries import incident as incident_queries
from incidents.queries import people
from incidents.queries.lines import lines
from incidents.services import (
    alert_sources,
    alerts,
    diagnosing,
    drilling,
    looking,
    resolving,
    response,
    runbooks,
    runs,
)
from incidents.services.fleet import Login, Refused, add_nodes, change_node
from incidents.tasks import run_shard
from probes import drills
from probes.core import Capture
from probes.transport import NodeEnd, bundles, ssh
from tests.support.fleets import main, person

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]


@pytest.fixture(autouse=True)
def nobody_is_asked(monkeypatch: pytest.MonkeyPatch, rung: list[int]) -> None:
    """Workers are run by the tests; a connection to anywhere fails the test."""

    async def asked(*_: Any) -> Any:
        raise AssertionError("a node was asked over SSH")
        yield

    monkeypatch.setattr(ssh, "ask", asked)


@pytest.fixture
def ada() -> User:
    return person("ada", "responder")


def work(incident: Incident, suite: str = "") -> SuiteRun:
    """A suite is asked, where one is named; then a worker takes every shard that waits. The last run."""
    if suite:
        runs.start_suite(suite, list(incident.nodes.all()), None, ring=False, incident=incident)
    for pk in Shard.objects.filter(run__incident=incident, finished_at=None).values_list("pk", flat=True):
        run_shard(pk)
    run = incident.runs.first()
    assert run is not None
    return run


def verdict(incident: Incident) -> dict[str, Any]:
    diagnosing.judge(incident.pk)
    ranking = incident.rankings.first()
    assert ranking is not None
    first: dict[str, Any] = ranking.body["hypotheses"][0]
    return first


# Beginning and asking -----------------------------------------------------------------------------------------------


def test_a_drill_is_an_incident_like_any_other_in_a_fleet_of_its_own(ada: User) -> None:
    before = timezone.now()
    incident = drilling.start_drill("rank-stopped", ada)
    assert incident.fleet.replay
    assert [node.name for node in incident.nodes.all()] == ["gpu-101", "gpu-102", "gpu-103", "gpu-104"]
    assert before <= incident.t0 <= timezone.now()
    assert incident.t0 - incident.impact_at >= timedelta(seconds=187)  # type: ignore[operator]
    assert (incident.drill, incident.commander, incident.severity) == ("rank-stopped", ada, 2)
    assert Path(incident.recording) == drills.HERE / "rank-stopped"
    assert str(incident.job) == "vit-22b-run3"
    run = incident.runs.get()
    assert (run.suite, run.node_count) == ("capture", 4)
    assert [phase.name for phase in incident.phases.all()] == ["capture", "triage", "decide"]
    assert lines(incident)[-1].says.startswith("started the drill rank-stopped, a replayed recording, as SEV2")


def test_a_second_drill_has_the_same_fleet_and_nodes(ada: User) -> None:
    one, two = drilling.start_drill("rank-stopped", ada), drilling.start_drill("rank-stopped", ada)
    assert one.fleet == two.fleet
    assert Node.objects.filter(fleet=one.fleet).count() == 4
    assert incident_queries.overlapping(two) == [], "drills do not warn of each other"


@pytest.mark.parametrize("name", ["rank-stopped", "gpu-off-bus", "port-down-64"])
def test_every_node_answers_by_the_usual_way_and_the_verdict_is_right(ada: User, name: str) -> None:
    incident = drilling.start_drill(name, ada)
    run = work(incident)
    run.refresh_from_db()
    assert run.finished_at is not None
    assert set(run.visits.values_list("reason", flat=True)) == {""}
    drill = drills.named(name)
    asked = len(drill.nodes) * len(incident_queries.matrix(incident).rows)
    assert run.readings.count() == asked
    first = verdict(incident)
    assert drill.truth is not None
    assert first["cause"] == drill.truth.cause
    assert drill.truth.subject.items() <= first["subject"].items()
    kinds = list(incident.events.values_list("kind", flat=True))
    assert "readings" in kinds
    assert "suite_ended" in kinds


def test_its_readings_keep_the_nodes_own_times_and_no_clock_is_off(ada: User) -> None:
    incident = drilling.start_drill("rank-stopped", ada)
    run = work(incident)
    reading = run.readings.get(node__name="gpu-101", probe="host.clock")
    t0 = drills.named("rank-stopped").t0
    assert t0 is not None
    assert 0 < reading.node_at - t0.timestamp() < 3  # type: ignore[operator]
    assert abs(reading.facts["offset_s"]) < 0.01
    codes = {one["code"] for found in run.readings.values_list("findings", flat=True) for one in found}
    assert "host.clock_offset" not in codes


def test_a_second_look_is_taken_and_answered_too(ada: User) -> None:
    incident = drilling.start_drill("rank-stopped", ada)
    run = work(incident)
    SuiteRun.objects.filter(pk=run.pk).update(finished_at=timezone.now() - looking.SECOND_AFTER - timedelta(seconds=1))
    assert looking.sweep_second_looks() == 1
    again = work(incident)
    assert again.suite == "hang"
    assert set(again.readings.values_list("outcome", flat=True)) == {"ok"}
    assert verdict(incident)["cause"] == "fw.rank_stopped"


def test_what_the_recording_lacks_is_said_and_never_healthy(ada: User, tmp_path: Path) -> None:
    place = tmp_path / "small"
    (place / "gpu-1").mkdir(parents=True)
    source = drills.HERE / "rank-stopped" / "gpu-101" / "host.load.out"
    (place / "gpu-1" / "host.load.out").write_bytes(source.read_bytes())
    incident = drilling.start_drill(place, ada)
    lost = Node.objects.create(fleet=incident.fleet, name="gpu-2", changed_at=timezone.now())
    incident.nodes.add(lost)
    incident.runs.get().shards.get().nodes.add(lost)
    run = work(incident)
    outcomes = dict(run.readings.filter(node__name="gpu-1").values_list("probe", "outcome"))
    assert outcomes.pop("host.load") == "ok"
    assert set(outcomes.values()) == {"skipped"}
    assert set(run.readings.filter(node=lost).values_list("outcome", "reason")) == {("unreachable", "not_recorded")}
    assert run.visits.get(node=lost).reason == "not_recorded"


def test_a_recording_that_is_gone_is_said_by_every_node(ada: User) -> None:
    incident = drilling.start_drill("rank-stopped", ada)
    Incident.objects.filter(pk=incident.pk).update(recording="/nowhere/at/all")
    run = work(incident)
    assert set(run.visits.values_list("reason", flat=True)) == {"not_recorded"}


BROKEN = [
    ('{"rank.map": {"outcome": "ok", "took_s": "x"}}', "rank.map: took_s must be seconds from 0 on"),
    ('{"rank.map": {"outcome": "absent", "took_s": null}}', "rank.map: took_s must be"),
    ('{"rank.map": {"outcome": "absent", "took_s": -1e308}}', "rank.map: took_s must be"),
    ('{"rank.map": {"outcome": "absent", "took_s": NaN}}', "rank.map: took_s must be"),
    ('{"rank.map": {"outcome": "ok", "at": "x"}}', "rank.map: at must be seconds"),
    ('{"rank.map": {"outcome": "ok", "mono": 1' + "0" * 400 + "}}", "rank.map: mono must be seconds"),
    ('{"rank.map": {"outcome": "absent", "why": 5}}', "rank.map: why must be a text"),
    ('{"rank.map": {"outcome": "absent", "rc": true}}', "rank.map: rc must be a whole number"),
    ('{"rank.map": {"outcome": ["ok"]}}', "rank.map: outcome must be one of ok, absent"),
    ('{"rank.map": {"outcome": "ok", "truncated": 1}}', "rank.map: truncated must be true or false"),
    ("[" * 100_000, "is not JSON"),
]


@pytest.mark.parametrize(("meta", "says"), BROKEN)
def test_what_one_node_has_broken_in_a_recording_costs_that_node_only(
    ada: User, tmp_path: Path, meta: str, says: str
) -> None:
    for name in ("gpu-1", "gpu-2", "gpu-3"):
        (tmp_path / "rec" / name).mkdir(parents=True)
        (tmp_path / "rec" / name / "captures.json").write_text('{"rank.map": {"outcome": "absent", "why": "none"}}')
    (tmp_path / "rec" / "gpu-2" / "captures.json").write_text(meta)
    run = work(drilling.start_drill(tmp_path / "rec", ada))
    run.refresh_from_db()
    assert run.finished_at is not None
    assert dict(run.visits.values_list("node__name", "reason")) == {
        "gpu-1": "",
        "gpu-2": "not_recorded",
        "gpu-3": "",
    }
    assert says in run.visits.get(node__name="gpu-2").detail
    assert "gpu-2/captures.json" in run.visits.get(node__name="gpu-2").detail
    assert set(run.readings.filter(node__name="gpu-2").values_list("outcome", flat=True)) == {"unreachable"}


def test_trouble_that_nobody_foresaw_costs_its_node_only(ada: User, monkeypatch: pytest.MonkeyPatch) -> None:
    told = queries.answers_of

    def answers_of(found: queries.Recorded, node: str) -> dict[str, Capture]:
        if node == "gpu-102":
            raise RuntimeError("never seen before")
        return told(found, node)

    monkeypatch.setattr(queries, "answers_of", answers_of)
    run = work(drilling.start_drill("rank-stopped", ada))
    assert dict(run.visits.values_list("node__name", "reason"))["gpu-101"] == ""
    visit = run.visits.get(node__name="gpu-102")
    assert (visit.reason, visit.detail) == (
        "not_recorded",
        "its recording cannot be read: RuntimeError: never seen before",
    )


def test_answers_come_over_some_seconds_and_each_node_ends_after_its_last(ada: User) -> None:
    incident = drilling.start_drill("gpu-off-bus", ada)
    recorded = queries.recorded(incident.runs.get().pk)
    began = time.monotonic()
    nodes = list(incident.nodes.all())
    found = list(replaying.schedule(nodes, ["rank.map", "rank.process", "host.load"], recorded, {}, 3.0))
    dues = [due - began for due, _ in found]
    assert dues == sorted(dues)
    assert max(dues) <= 3.3
    assert max(dues) - min(dues) > 1.0
    ended: set[str] = set()
    for _, item in found:
        assert item.node not in ended
        ended |= {item.node} if isinstance(item, NodeEnd) else set()
    assert ended == {node.name for node in nodes}
    quick, slow = (
        next(due for due, item in found if isinstance(item, Capture) and (item.node, item.probe) == ("gpu-201", probe))
        for probe in ("rank.map", "rank.process")
    )
    assert quick < slow, "a probe that took longer answers later"


# No real node -------------------------------------------------------------------------------------------------------


def test_a_node_of_a_recording_cannot_be_reached_whatever_is_asked(ada: User) -> None:
    incident = drilling.start_drill("rank-stopped", ada)
    node = incident.nodes.select_related("fleet").first()
    assert node is not None
    with pytest.raises(asking.OnlyRecorded, match="gpu-101 exists only in a recording"):
        asking.target_of(node)
    stray = runs.start_suite("host", [node], None, ring=False)  # of no incident, so of no recording
    run_shard(stray.shards.get().pk)
    assert set(stray.visits.values_list("reason", flat=True)) == {"not_recorded"}


def test_what_makes_sense_for_real_nodes_only_is_refused(ada: User) -> None:
    fleet = drilling.start_drill("rank-stopped", ada).fleet
    with pytest.raises(Refused, match="only in recordings"):
        add_nodes(fleet, "gpu-999", Login(), ada)
    with pytest.raises(Refused, match="only in recordings"):
        change_node(fleet, "gpu-101", "10.0.0.1", Login())
    with pytest.raises(Refused, match="only in recordings"):
        runs.start_suite("check", list(fleet.nodes.all()), ada)
    with pytest.raises(Refused, match="only in recordings"):
        response.declare(fleet, "gpu-101", ada)
    with pytest.raises(Refused, match="only in recordings"):
        alert_sources.add_source(fleet, "prometheus", ada)


def test_a_fleet_of_real_nodes_called_drills_is_not_taken(ada: User) -> None:
    Fleet.objects.create(name="drills")
    with pytest.raises(Refused, match="a fleet drills of real nodes"):
        drilling.start_drill("rank-stopped", ada)
    assert not Incident.objects.exists()


def test_an_alert_never_joins_a_drill(ada: User) -> None:
    drill = drilling.start_drill("rank-stopped", ada)
    source, _ = alert_sources.add_source(main(), "prometheus", ada)
    labels = {"alertname": "Stalled", "job_name": "vit-22b-run3", "node": "gpu-101"}
    alert = {"status": "firing", "labels": labels, "annotations": {}, "fingerprint": "ab"}
    body = json.dumps({"version": "4", "status": "firing", "groupKey": "g", "alerts": [alert]})
    (opened,) = alerts.take_in(source, body).incidents
    assert opened != drill
    assert opened.fleet == main()
    assert list(Incident.objects.real()) == [opened]


# Stages -------------------------------------------------------------------------------------------------------------


def steps(run: SuiteRun) -> dict[str, int]:
    """The last step that each node's logs tell."""
    rows = run.readings.filter(probe="rank.log").values_list("node__name", "facts")
    return {name: max(e["seq"] for log in facts["logs"] for e in log["events"]) for name, facts in rows}


def test_after_its_remedy_the_recording_goes_on_look_by_look(ada: User) -> None:
    incident = drilling.start_drill("rank-stopped", ada)
    before = steps(work(incident))
    assert drilling.passed(incident, "continue_rank")
    incident.refresh_from_db()
    assert incident.stage == "mended"
    assert (
        lines(incident)[0].says
        == "the recording goes on: The process was continued, and the job goes on where it stood."
    )
    one = steps(work(incident, "rank.log"))
    work(incident, "hang")  # of another suite: it takes no look from the others
    two, three, four = (steps(work(incident, "rank.log")) for _ in range(3))
    assert before != one
    assert all(two[node] > one[node] + 1 for node in one)
    assert (three, four) == (one, two), "a second pair of looks says the same"
    work(incident, "ranks")
    work(incident, "hang")
    assert verdict(incident)["cause"] == "none"


def test_what_was_asked_before_is_answered_from_the_part_before(ada: User) -> None:
    incident = drilling.start_drill("rank-stopped", ada)
    assert drilling.passed(incident, "continue_rank")
    run = work(incident)
    states = {p["state"] for r in run.readings.filter(probe="rank.process") for p in r.facts["processes"]}
    assert "T" in states


def test_anything_else_that_is_done_changes_nothing(ada: User) -> None:
    incident = drilling.start_drill("rank-stopped", ada)
    for what in ("end_rank", "rank_stopped_or_missing.hand_over", ""):
        assert not drilling.passed(incident, what)
    assert drilling.passed(incident, "continue_rank")
    assert not drilling.passed(incident, "continue_rank"), "once"
    assert incident.events.filter(kind="drill_stage").count() == 1


def test_what_is_done_after_a_drill_was_closed_moves_nothing(ada: User) -> None:
    incident = drilling.start_drill("rank-stopped", ada)
    resolving.resolve(incident, ada, "other", "enough for today")
    told = incident.events.count()
    assert not drilling.passed(incident, "continue_rank")
    incident.refresh_from_db()
    assert (incident.stage, incident.events.count()) == ("", told)


def test_a_command_in_a_drill_is_run_nowhere_and_the_recording_goes_on(ada: User) -> None:
    """From the verdict through the runbook to the worker: with SSH barred, see `nobody_is_asked`."""
    incident = drilling.start_drill("rank-stopped", ada)
    work(incident)
    verdict(incident)
    ranking = incident.rankings.first()
    assert ranking is not None
    run = runbooks.start(incident, ada, "rank_stopped_or_missing", ranking.pk, 0)
    option = next(one for one in runbook.of_json(run.body).steps[run.step].options if one.id == "continue_rank")
    command = command_of(run.incident, run.subject["subject"], option)
    assert command is not None
    decision = runbooks.choose(
        incident, ada, "commander", run.pk, run.step, "continue_rank", "it is stopped", ranking.pk, command.argv
    )
    action = decision.actions.get()
    assert action.state == "ready"
    mending.mend(action.pk)
    action.refresh_from_db()
    typed = " ".join(command.argv)
    assert action.state == "done"
    assert action.says == f"Drill: “{typed}” was not run; the recording goes on as if it had."
    incident.refresh_from_db()
    assert incident.stage == "mended"
    looks = incident.runs.filter(suite="verify")
    assert looks.count() == 1, "and it is looked at whether training advances"
    look = work(incident)
    states = {p["state"] for r in look.readings.filter(probe="rank.process") for p in r.facts["processes"]}
    assert states == {"R"}
    mending.mend(action.pk)
    assert incident.events.filter(kind="drill_stage").count() == 1


# Bundles ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """What a finished incident exports: node folders, and what Golden15 wrote of it beside them."""
    place = tmp_path / "INC-7.zip"
    told = {"title": "vit-22b-run3 does not advance", "job": "vit-22b-run3", "severity": 1}
    with zipfile.ZipFile(place, "w") as archive:
        for file in sorted((drills.HERE / "rank-stopped").glob("gpu-*/*")):
            archive.write(file, f"{file.parent.name}/{file.name}")
        archive.writestr("golden15/incident.json", json.dumps(told))
        archive.writestr("golden15/review.md", "# INC-7\n\nXid 79 was discussed and dropped.\n")
    return place


def test_an_evidence_bundle_is_drilled_again_to_the_same_verdict(ada: User, bundle: Path) -> None:
    incident = drilling.start_drill(bundle, ada)
    assert (incident.title, incident.severity) == ("vit-22b-run3 does not advance", 1)
    assert incident.nodes.count() == 4
    assert Path(incident.recording).is_relative_to(settings.DATA_DIR)
    assert incident.drill.startswith("INC-7-")
    work(incident)
    first = verdict(incident)
    assert (first["cause"], first["subject"]["rank"]) == ("fw.rank_stopped", 19)


@pytest.mark.parametrize(
    "name", ["../../evil", "/etc/evil", "gpu-1/../../evil", "gpu-1/a b.out", "gpu-1/\n.out", ".ssh/keys", "a/b/c/d/e/f"]
)
def test_a_bundle_cannot_write_outside_its_folder(ada: User, tmp_path: Path, name: str) -> None:
    place = tmp_path / "evil.zip"
    with zipfile.ZipFile(place, "w") as archive:
        archive.writestr("gpu-1/host.load.out", "x")
        archive.writestr(name, "x")
    before = set((settings.DATA_DIR / "recordings").rglob("*"))
    with pytest.raises(Refused, match="no name of a file in a bundle|deep"):
        drilling.start_drill(place, ada)
    assert set((settings.DATA_DIR / "recordings").rglob("*")) == before
    assert not Incident.objects.exists()


def test_words_of_a_bundle_are_text_that_every_database_takes(ada: User, tmp_path: Path) -> None:
    (tmp_path / "gpu-1").mkdir()
    (tmp_path / "gpu-1" / "host.load.out").write_text("x")
    (tmp_path / "golden15").mkdir()
    told = '{"title": "a\\u0000b\\ud800 \\u001b[31mred", "job": "j\\u0000", "severity": 1}'
    (tmp_path / "golden15" / "incident.json").write_text(told)
    incident = drilling.start_drill(tmp_path, ada)
    assert incident.title == "a␀b� red"
    assert str(incident.job) == "j␀"


def test_a_link_in_a_bundle_is_refused(ada: User, tmp_path: Path) -> None:
    place = tmp_path / "link.zip"
    link = zipfile.ZipInfo("gpu-1/host.load.out")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(place, "w") as archive:
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(Refused, match="plain files"):
        drilling.start_drill(place, ada)


def test_a_bundle_larger_than_one_may_be_leaves_nothing_behind(
    ada: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundles, "FILE_BYTES", 1000)
    place = tmp_path / "big.zip"
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("gpu-1/host.load.out", "x" * 2_000_000)
    with pytest.raises(Refused, match="larger than a bundle may be"):
        drilling.start_drill(place, ada)
    assert list((settings.DATA_DIR / "recordings").glob("big-*")) == []


def test_a_bundle_that_was_damaged_on_its_way_is_said_to_be_so(ada: User, tmp_path: Path) -> None:
    """Every byte of it, one after another: either it can still be read, or the one error says that it cannot."""
    place = tmp_path / "damaged.zip"
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("gpu-1/host.load.out", "0.42 0.38 0.35 2/1402 3021\n" * 3)
    whole = place.read_bytes()
    said = set()
    for at in range(len(whole)):
        place.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            bundles.unpack(place, tmp_path / f"into-{at}")
        except (bundles.BundleError, OSError) as error:
            said.add(type(error).__name__)
            assert not (tmp_path / f"into-{at}").exists()
    assert "BundleError" in said
    place.write_bytes(whole.replace(whole[60:70], bytes(10)))
    with pytest.raises(Refused, match=r"damaged.zip: cannot be unpacked"):
        drilling.start_drill(place, ada)


@pytest.mark.parametrize("inside", ["gpu-1/host.load.out", "gpu-1", "golden15", "stages"])
def test_a_link_in_a_folder_is_refused_as_in_a_bundle(ada: User, tmp_path: Path, inside: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "host.load.out").write_text("x")
    place = tmp_path / "rec"
    (place / "gpu-2").mkdir(parents=True)
    (place / "gpu-2" / "host.load.out").write_text("x")
    (place / inside).parent.mkdir(exist_ok=True)
    target = tmp_path / "elsewhere" / ("host.load.out" if inside.endswith(".out") else "")
    (place / inside).symlink_to(target)
    with pytest.raises(Refused, match=f"{inside}': a bundle holds plain files"):
        drilling.start_drill(place, ada)
    assert not Incident.objects.exists()


def test_a_folder_that_is_itself_reached_by_a_link_is_taken(ada: User, tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to(drills.HERE / "rank-stopped")
    assert drilling.start_drill(tmp_path / "latest", ada).recording == str(drills.HERE / "rank-stopped")


@pytest.mark.parametrize("most", ["FILE_BYTES", "MOST_BYTES", "MOST_FILES"])
def test_a_folder_larger_than_a_bundle_may_be_is_refused(
    ada: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: str
) -> None:
    (tmp_path / "gpu-1").mkdir()
    for probe in ("host.load", "host.clock"):
        (tmp_path / "gpu-1" / f"{probe}.out").write_text("x" * 40)
    limits = {"FILE_BYTES": 39, "MOST_BYTES": 79, "MOST_FILES": 2}  # a folder and two files
    monkeypatch.setattr(bundles, most, limits[most])
    with pytest.raises(Refused, match="larger than a bundle may be|more than [12] files"):
        drilling.start_drill(tmp_path, ada)
    monkeypatch.setattr(bundles, most, limits[most] + 1)
    assert drilling.start_drill(tmp_path, ada).nodes.get().name == "gpu-1"


@pytest.mark.parametrize(("name", "says"), [("no.zip", "cannot be read"), ("text.zip", "cannot be unpacked")])
def test_what_is_no_bundle_is_said(ada: User, tmp_path: Path, name: str, says: str) -> None:
    (tmp_path / "text.zip").write_text("not a zip")
    with pytest.raises(Refused, match=says):
        drilling.start_drill(tmp_path / name, ada)


# People, command, page ----------------------------------------------------------------------------------------------


@pytest.fixture
def drill_fleet(ada: User) -> Iterator[Fleet]:
    yield drilling.start_drill("rank-stopped", ada).fleet


def test_in_a_drill_everybody_is_what_they_are_at_most_anywhere(drill_fleet: Fleet) -> None:
    other = Fleet.objects.create(name="other")
    ben = person("ben", "viewer")
    assert people.role_in(ben, drill_fleet) == "viewer"
    from incidents.services.people import set_role

    set_role("ben", other, "commander")
    assert people.role_in(ben, drill_fleet) == "commander"
    assert people.role_in(ben, main()) == "viewer", "elsewhere nothing changes"
    assert people.roles(ben) == {drill_fleet: "commander", main(): "viewer", other: "commander"}
    assert people.fleets(ben) == [main(), other], "its nodes are none to declare for"
    incident = Incident.objects.get()
    assert people.role_at(ben, incident.pk) == "commander"
    stranger = person("eve", None)
    assert people.role_in(stranger, drill_fleet) is None
    assert people.roles(stranger) == {}


def test_the_command_starts_a_drill_and_says_where_it_is(ada: User) -> None:
    out = io.StringIO()
    call_command("drill", "rank-stopped", "--as", "ada", stdout=out)
    incident = Incident.objects.get()
    assert out.getvalue().strip().endswith(f"/incidents/{incident.pk}")
    assert incident.commander == ada
    listed = io.StringIO()
    call_command("drill", "--list", stdout=listed)
    assert "port-down-64  64 nodes" in listed.getvalue()
    with pytest.raises(CommandError, match="no drill is called 'port-up'. Drills: "):
        call_command("drill", "port-up")
    with pytest.raises(CommandError, match="There is no user eve"):
        call_command("drill", "rank-stopped", "--as", "eve")


def test_the_command_replays_a_bundle(bundle: Path) -> None:
    out, err = io.StringIO(), io.StringIO()
    call_command("drill", str(bundle), stdout=out, stderr=err)
    assert Incident.objects.get().title == "vit-22b-run3 does not advance"
    assert "Everybody who has a role" in err.getvalue()


def test_while_nothing_is_wrong_the_list_offers_the_drills_and_starts_one(client: Client, ada: User) -> None:
    client.force_login(ada)
    page = client.get("/incidents/").content.decode()
    assert "All quiet" in page
    for drill in drills.drills():
        assert drill.title in page
        assert drill.says.replace("'", "&#x27;") in page
    answer = client.post("/drills/rank-stopped/start")
    incident = Incident.objects.get()
    assert answer["Location"] == f"/incidents/{incident.pk}"
    assert client.get("/drills/rank-stopped/start")["Location"] == "/drills/"


def test_a_drill_is_marked_everywhere_and_waits_for_nobody(client: Client, ada: User) -> None:
    client.force_login(ada)
    incident = drilling.start_drill("rank-stopped", None)
    run = work(incident)
    page = client.get("/incidents/").content.decode()
    assert "Needs a human" not in page, "a drill without a commander is nobody's trouble"
    assert "All quiet" in page
    assert "Drills that run" in page
    reading = run.readings.first()
    assert reading is not None
    for address in ("", "/timeline", f"/evidence/{reading.pk}"):
        shown = client.get(f"/incidents/{incident.pk}{address}").content.decode()
        assert "<title>◇ DRILL · " in shown, address
        assert "replayed recording, nothing is asked of real nodes" in shown, address


def test_a_drill_that_is_over_stands_among_the_closed_marked_as_one(client: Client, ada: User) -> None:
    client.force_login(ada)
    ended, runs_on = (drilling.start_drill("rank-stopped", ada) for _ in range(2))
    resolving.resolve(ended, ada, "handed over", "the next shift trains on")
    page = client.get("/incidents/").content.decode()
    running, closed = (page.split(f'id="{name}-title"')[1].split("</section>")[0] for name in ("training", "closed"))
    assert f"INC-{runs_on.pk} " in running and f"INC-{ended.pk} " not in running
    assert f"INC-{ended.pk} " in closed and f"INC-{runs_on.pk} " not in closed
    for part, incident in ((running, runs_on), (closed, ended)):
        assert "DRILL" in part
        assert f'href="/incidents/{incident.pk}"' in part
    assert "ada commands" in running and "left" in running
    assert "handed over" in closed
    assert f'href="/incidents/{ended.pk}/review"' in closed
    for address in ("", "/review", "/timeline"):
        assert "<title>◇ DRILL · " in client.get(f"/incidents/{ended.pk}{address}").content.decode()


def test_every_page_of_a_drill_says_that_it_is_one(client: Client, ada: User) -> None:
    """Also pages that are added later: whatever has an incident in its address and is a page."""
    client.force_login(ada)
    incident = drilling.start_drill("rank-stopped", ada)
    work(incident)
    pages = []
    for pattern in routes():
        if set(pattern.pattern.converters) == {"incident"} and policy.least_for(str(pattern.name), "GET"):
            answer = client.get(reverse(str(pattern.name), args=[incident.pk]))
            body = answer.getvalue().decode("utf-8", "replace")
            if answer.status_code == 200 and "<title>" in body:
                pages.append(pattern.name)
                assert "<title>◇ DRILL · " in body, pattern.name
                assert "replayed recording, nothing is asked of real nodes" in body, pattern.name
    assert {"incident", "timeline"} <= set(pages)


def routes(resolver: URLResolver | None = None) -> Iterator[URLPattern]:
    for pattern in (resolver or get_resolver()).url_patterns:
        if isinstance(pattern, URLResolver):
            yield from routes(pattern)
        else:
            yield pattern


def test_a_real_incident_is_never_marked(client: Client, ada: User) -> None:
    client.force_login(ada)
    add_nodes(main(), "gpu-101", Login(), None)
    incident = response.declare(main(), "gpu-101", ada)
    assert "DRILL" not in client.get(f"/incidents/{incident.pk}").content.decode()
    assert Reading.objects.count() == 0


def test_viewers_read_the_page_of_drills_and_cannot_start_one(client: Client) -> None:
    client.force_login(person("vic", "viewer"))
    page = client.get("/drills/").content.decode()
    assert "Never run here" in page
    assert "Start" not in page
    assert client.post("/drills/rank-stopped/start").status_code == 403


def test_only_names_are_taken_from_the_web(client: Client, ada: User, tmp_path: Path) -> None:
    client.force_login(ada)
    answer = client.post("/drills/no-such-drill/start", follow=True)
    assert "no drill is called" in answer.content.decode()
    assert client.post("/drills/..%2Fetc/start").status_code == 404
    assert not Incident.objects.exists()


class TestLesson:
    """What a drill tells of itself: while it runs only where its recording ends, after it what was broken."""

    def test_a_choice_that_the_recording_does_not_know_is_said_to_be_one(self, ada: User) -> None:
        incident = drilling.start_drill("rank-stopped", ada)
        assert queries.off_the_rails(incident) == "“It is stopped: continue it”"
        assert drilling.passed(incident, "end_rank") is False
        assert drilling.passed(incident, "continue_rank") is True
        assert queries.off_the_rails(Incident.objects.get()) == ""

    def test_what_was_broken_is_told_after_it_and_not_before(self, ada: User) -> None:
        incident = drilling.start_drill("rank-stopped", ada)
        truth = drills.named("rank-stopped").truth
        assert truth is not None
        right = {"cause": truth.cause, "subject": {**truth.subject, "pid": 7}}
        assert queries.solution(incident, right) is None
        resolving.resolve(incident, ada, "other", "over")
        incident.refresh_from_db()
        told = queries.solution(incident, right)
        assert told is not None
        assert (told.right, len(told.decoys) >= 2) == (True, True)
        assert told.says.startswith("A rank is stopped, traced or not scheduled: ")
        for accepted, verdict in ((None, None), ({**right, "cause": "ib.link_down"}, False)):
            told = queries.solution(incident, accepted)
            assert told is not None
            assert told.right is verdict
        elsewhere = queries.solution(incident, {**right, "subject": {"node": "gpu-101"}})
        assert elsewhere is not None and elsewhere.right is False
