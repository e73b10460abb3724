"""The evidence bundle: the page's last verdict again from the file alone, silent nodes too; the same bytes each time.

The recorded jobs are those of tests/fixtures/hangs, in the form in which a node sends them (tests/fixtures/rank.*).
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import stat
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connections
from django.test import AsyncClient, Client
from django.urls import reverse
from django.utils import timezone

from incidents.models import ExpectedTopology, Incident, Ranking
from incidents.queries.review import bundle
from incidents.services.deciding import decide_verdict
from incidents.services.diagnosing import judge
from incidents.services.fleet import Login, add_nodes
from incidents.services.notes import add_note
from incidents.services.resolving import resolve
from probes import catalog, intake
from probes.core import Capture, Reading, interpret
from probes.diagnosis.telling import told
from probes.explain import SUBJECT, explain
from probes.topology import ExpectedPort, Topology
from probes.transport import replay
from tests.support.evidence import read, stopped_rank, store
from tests.support.fleets import main, person
from tests.support.server import BASE

pytestmark = [pytest.mark.django_db, pytest.mark.database]

LOGS = sorted(file.stem for file in (BASE / "tests/fixtures/rank.log").glob("hang_*.out"))
SILENT = ("rank.stack", "rank.flight_recorder", "rank.log")


def unreachable(node: str) -> list[Reading]:
    """A node whose every probe got no answer."""
    return [
        interpret(
            catalog.load()[probe],
            Capture(node, probe, "unreachable", why="no route to host", reason="no_route"),
        )
        for probe in SILENT
    ]


@pytest.fixture
def incident() -> Incident:
    """On four nodes: one that answers, a second that will, one that is silent, and one that was never asked."""
    add_nodes(main(), "gpu-[001-004]", Login(), None)
    one = Incident.objects.create(fleet=main(), title="all-reduce stalled", t0=timezone.now(), phase="triage")
    one.nodes.set(main().nodes.all())
    return one


def zipped(incident: Incident) -> bytes:
    into = io.BytesIO()
    bundle.write(Incident.objects.get(pk=incident.pk), into)
    return into.getvalue()


def saved(incident: Incident, folder: Path) -> Path:
    file = folder / bundle.file_name(incident)
    file.write_bytes(zipped(incident))
    return file


def unpacked(file: Path) -> Path:
    folder = file.with_suffix("")
    with zipfile.ZipFile(file) as archive:
        archive.extractall(folder)
    return folder


def short(body: dict[str, Any]) -> list[tuple[str, dict[str, Any], float]]:
    """Every hypothesis by cause, subject (what a person outside the node can use) and share."""
    return [
        (
            one["cause"],
            {k: v for k, v in one["subject"].items() if k in SUBJECT and v not in (None, "")},
            one["probability"],
        )
        for one in body["hypotheses"]
    ]


def same_verdict(incident: Incident, path: Path) -> None:
    """As the page's last ranking: causes, subjects and shares of all hypotheses, and the states of all paths."""
    page = Ranking.objects.filter(incident=incident).latest("pk").body
    again = told(explain([path]).diagnosis)
    for (cause, subject, share), (cause_, subject_, share_) in zip(short(page), short(again), strict=True):
        assert (cause, subject) == (cause_, subject_)
        assert share == pytest.approx(share_, abs=0.001)
    assert {k: v["state"] for k, v in page["paths"].items()} == {k: v["state"] for k, v in again["paths"].items()}


@pytest.mark.parametrize("case", LOGS)
def test_a_recorded_hang_read_back_gives_the_verdict_of_the_page(incident: Incident, case: str, tmp_path: Path) -> None:
    store(incident, [read("gpu-001", "rank.log", case), *unreachable("gpu-003")])
    judge(incident.pk)
    file = saved(incident, tmp_path)
    same_verdict(incident, file)
    same_verdict(incident, unpacked(file))


@pytest.mark.parametrize("case", ["rank_1_stopped", "rank_1_skips"])
def test_stacks_and_recorders_with_links_and_silent_nodes_give_it_too(
    incident: Incident, case: str, tmp_path: Path
) -> None:
    store(incident, [read("gpu-001", "rank.stack", case), read("gpu-001", "rank.flight_recorder", case)])
    store(incident, [read("gpu-002", "ib.ports", "h100_five_bad_ports"), *unreachable("gpu-003")])
    judge(incident.pk)
    assert Ranking.objects.latest("pk").cause.startswith("fw.")
    file = saved(incident, tmp_path)
    same_verdict(incident, file)
    same_verdict(incident, unpacked(file))


@pytest.mark.parametrize("case", ["rank_1_stopped", "rank_1_skips"])
def test_nodes_that_have_said_nothing_yet_leave_as_much_open_as_on_the_page(
    incident: Incident, case: str, tmp_path: Path
) -> None:
    store(incident, [read("gpu-001", "rank.flight_recorder", case)])
    judge(incident.pk)
    same_verdict(incident, saved(incident, tmp_path))


def test_with_no_answer_at_all_the_bundle_says_so_as_the_page_does(incident: Incident, tmp_path: Path) -> None:
    store(incident, [one for n in (1, 2, 3, 4) for one in unreachable(f"gpu-00{n}")])
    judge(incident.pk)
    assert Ranking.objects.get().body["hypotheses"][0]["says"] == "No node answered: nothing is known"
    file = saved(incident, tmp_path)
    same_verdict(incident, file)
    assert explain([file]).diagnosis.verdict.hypothesis.says == "No node answered: nothing is known"


def test_the_command_reads_the_file_and_lists_nothing_of_it_as_unread(incident: Incident, tmp_path: Path) -> None:
    store(incident, [*stopped_rank("gpu-002"), *unreachable("gpu-003")])
    judge(incident.pk)
    file = saved(incident, tmp_path)
    for path in (file, unpacked(file)):
        argv = [sys.executable, "-m", "probes", "explain", str(path), "--json"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, cwd=BASE)
        answer = json.loads(done.stdout)
        assert (done.returncode, answer["verdict"], answer["unread"]) == (0, "fw.rank_stopped", [])
        assert answer["hypotheses"][0]["subject"]["node"] == "gpu-002"


def test_what_people_wrote_in_it_is_never_evidence(incident: Incident, tmp_path: Path) -> None:
    """A note that quotes another rank's error must not become one."""
    store(incident, stopped_rank("gpu-002"))
    judge(incident.pk)
    before = intake.read([saved(incident, tmp_path)])
    log = (BASE / "tests/fixtures/hangs/sigkill/torchrun.log").read_text()[:1800]
    add_note(incident, person("ada"), log, "6f1c0e8e-6f5b-4f0e-9d51-0d5fd3f8c0aa")
    file = saved(incident, tmp_path)
    assert log.splitlines()[0][:20] in unpacked(file).joinpath("golden15/timeline.json").read_text()
    after = intake.read([file])
    assert [ref for ref, _ in before.readings] == [ref for ref, _ in after.readings]
    assert after.unread == ()


def test_a_folder_that_is_only_called_golden15_is_read(tmp_path: Path) -> None:
    (tmp_path / "golden15").mkdir()
    log = (BASE / "tests/fixtures/hangs/sigkill/torchrun.log").read_bytes()
    (tmp_path / "golden15" / "torchrun.log").write_bytes(log)
    assert len(intake.read([tmp_path]).readings) == 1


def test_the_form_is_that_of_saved_captures_also_for_what_did_not_answer(incident: Incident, tmp_path: Path) -> None:
    stuck = Capture(
        *("gpu-002", "host.storage", "hung"), err="ls: stuck", why="state D", at=1.5, mono=2.5, took_s=5.0, boot_id="b",
        state="D", wchan="nfs_wait",
    )  # fmt: skip
    store(
        incident, [interpret(catalog.load()["host.storage"], stuck), *unreachable("gpu-003"), *stopped_rank("gpu-001")]
    )
    judge(incident.pk)
    got = {(one.node, one.probe): one for one in replay.captures(unpacked(saved(incident, tmp_path)))}
    assert got["gpu-002", "host.storage"] == stuck
    assert got["gpu-003", "rank.log"] == Capture(
        "gpu-003", "rank.log", "unreachable", why="no route to host", reason="no_route"
    )
    out = (BASE / "tests/fixtures/rank.stack/rank_1_stopped.out").read_bytes()
    assert got["gpu-001", "rank.stack"] == Capture("gpu-001", "rank.stack", "ok", out)
    assert {node for node, _ in got} == {"gpu-001", "gpu-002", "gpu-003"}


def test_it_holds_what_the_last_ranking_rests_on_and_not_what_came_later(incident: Incident, tmp_path: Path) -> None:
    store(incident, stopped_rank("gpu-002"))
    judge(incident.pk)
    store(incident, [read("gpu-001", "ib.ports", "h100_five_bad_ports")])
    store(incident, [read("gpu-002", "rank.stack", outcome="timeout", why="late")])
    got = {(one.node, one.probe): one.outcome for one in replay.captures(unpacked(saved(incident, tmp_path)))}
    assert got == {("gpu-002", "rank.stack"): "ok", ("gpu-002", "rank.flight_recorder"): "ok"}
    judge(incident.pk)
    got = {(one.node, one.probe): one.outcome for one in replay.captures(unpacked(saved(incident, tmp_path)))}
    assert got["gpu-001", "ib.ports"] == "ok"
    assert got["gpu-002", "rank.stack"] == "ok", "a later look that failed takes nothing away"


def test_the_page_about_it_lists_every_file_that_tells_about_the_incident(incident: Incident) -> None:
    """Where something was expected of the fabric that is one more."""
    store(incident, [read("gpu-001", "ib.ports", "h100_connectx7")])
    whole = Topology((ExpectedPort("gpu-001", "mlx5_0", 1, 0),))
    ExpectedTopology.objects.create(fleet=main(), at=timezone.now(), source="a test", body=whole.body())
    judge(incident.pk)
    with zipfile.ZipFile(io.BytesIO(zipped(incident))) as archive:
        held = {name for name in archive.namelist() if name.startswith("golden15/")}
    page = (BASE / "docs" / "review.md").read_text()
    assert set(re.findall(r"^(golden15/[\w.]+) ", page, re.MULTILINE)) == held


def test_a_node_that_is_called_as_the_folder_is_kept_apart(tmp_path: Path) -> None:
    replay.save(tmp_path, [Capture("golden15", "host.clock", "absent", why="x")])
    assert [one.outcome for one in replay.captures(tmp_path)] == ["absent"]


def test_an_adapter_that_only_the_expected_topology_knows_is_missed_again(incident: Incident, tmp_path: Path) -> None:
    """A missing adapter has no row anywhere: without what was expected the bundle would say that nothing is wrong."""
    ports = ("gpu-001", "gpu-002", "gpu-003", "gpu-004")
    readings = [read(node, "ib.ports", "h100_connectx7") for node in ports]
    seen = [port.hca for port in readings[1].facts.ports]
    there = [ExpectedPort("gpu-002", hca, 1, rail) for rail, hca in enumerate(seen)]
    whole = Topology((*there, ExpectedPort("gpu-002", "mlx5_99", 1, len(seen), leaf="leaf-03", leaf_port=17)))
    ExpectedTopology.objects.create(fleet=main(), at=timezone.now(), source="a test", body=whole.body())
    store(incident, readings)
    judge(incident.pk)
    first = Ranking.objects.latest("pk")
    assert (first.cause, first.subject["hca"]) == ("ib.link_down", "mlx5_99")
    file = saved(incident, tmp_path)
    same_verdict(incident, file)
    assert explain([file]).unread == ()
    (unpacked(file) / "golden15" / "expected.json").write_text('{"form": 9}')
    assert [one.why for one in explain([file.with_suffix("")]).unread] == [
        "the expected topology has form 9, this version reads 1: learn it again"
    ]


def test_what_is_learned_after_the_verdict_does_not_change_the_file_nor_its_verdict(
    incident: Incident, tmp_path: Path
) -> None:
    hcas = [port.hca for port in read("gpu-001", "ib.ports", "h100_connectx7").facts.ports]

    def expect(*more: str) -> None:
        ports = tuple(
            ExpectedPort(node, hca, 1, rail)
            for node in ("gpu-002", "gpu-777")
            for rail, hca in enumerate([*hcas, *more])
        )
        row = {"at": timezone.now(), "source": "a test", "body": Topology(ports).body()}
        ExpectedTopology.objects.create(fleet=main(), **row)

    expect("mlx5_99")
    store(incident, [read(f"gpu-00{n}", "ib.ports", "h100_connectx7") for n in (1, 2, 3, 4)])
    judge(incident.pk)
    assert Ranking.objects.latest("pk").subject["hca"] == "mlx5_99"
    first = zipped(incident)
    expect()
    assert zipped(incident) == first
    same_verdict(incident, saved(incident, tmp_path))


def test_it_holds_what_is_expected_of_the_incidents_own_nodes_only(incident: Incident) -> None:
    """Another team's nodes, and where they are cabled, are not in a file that leaves the house."""
    ports = [ExpectedPort(node, "mlx5_0", 1, 0, leaf=f"leaf-of-{node}") for node in ("gpu-002", "gpu-777")]
    body = Topology(tuple(ports)).body()
    ExpectedTopology.objects.create(fleet=main(), at=timezone.now(), source="a test", body=body)
    store(incident, [read("gpu-002", "ib.ports", "h100_connectx7")])
    judge(incident.pk)
    with zipfile.ZipFile(io.BytesIO(zipped(incident))) as archive:
        told_ = {name: archive.read(name) for name in archive.namelist()}
    assert b"leaf-of-gpu-002" in told_["golden15/expected.json"]
    assert [name for name, content in told_.items() if b"gpu-777" in content or "gpu-777" in name] == []


def test_the_folder_about_the_incident_is_no_node(tmp_path: Path) -> None:
    (tmp_path / "golden15").mkdir()
    (tmp_path / "golden15" / "captures.json").write_text('{"host.clock": {"outcome": "ok"}}')
    with pytest.raises(replay.BundleError, match="hold no captures"):
        list(replay.captures(tmp_path))


def test_the_same_incident_gives_the_same_bytes(incident: Incident) -> None:
    store(incident, [*stopped_rank("gpu-002"), *unreachable("gpu-003")])
    judge(incident.pk)
    ada = person("ada", "commander")
    decide_verdict(incident, ada, "commander", Ranking.objects.latest("pk").pk, 0, "accept")
    resolve(incident, ada, "other", "x")
    first = zipped(incident)
    assert zipped(incident) == first
    with zipfile.ZipFile(io.BytesIO(first)) as archive:
        for about in archive.infolist():
            assert about.date_time == (1980, 1, 1, 0, 0, 0)
            assert stat.S_IMODE(about.external_attr >> 16) == 0o644
            assert not about.filename.startswith("/") and ".." not in about.filename
        assert archive.testzip() is None


def test_golden15_tells_the_incident_its_decisions_with_hashes_and_a_chain_that_anybody_can_check(
    incident: Incident,
) -> None:
    store(incident, stopped_rank("gpu-002"))
    judge(incident.pk)
    ada = person("ada", "commander")
    made = decide_verdict(incident, ada, "commander", Ranking.objects.latest("pk").pk, 0, "accept", "seen it")
    resolve(incident, ada, "handed over", "to the job's owner")
    with zipfile.ZipFile(io.BytesIO(zipped(incident))) as archive:
        files = {
            name.removeprefix("golden15/"): archive.read(name) for name in archive.namelist() if "golden15/" in name
        }
    assert set(files) == {"README.txt", "decisions.json", "incident.json", "review.md", "timeline.json"}
    assert len(files["README.txt"].splitlines()) == 3
    told_ = json.loads(files["incident.json"])
    assert (told_["resolution"], told_["resolved_by"], told_["nodes"]) == ("handed over", "ada", "gpu-[001-004]")
    (decision,) = json.loads(files["decisions.json"])
    assert (decision["by"], decision["chosen"], decision["why"]) == ("ada", "accept", "seen it")
    for ref, (_, sha) in zip(decision["readings"], made.readings, strict=True):
        probe = ref["name"].partition("/")[2]
        assert ref["sha256"] == sha
        assert sha == hashlib.sha256((BASE / f"tests/fixtures/{probe}/rank_1_stopped.out").read_bytes()).hexdigest()
    before = ""
    for seq, event in enumerate(json.loads(files["timeline.json"]), 1):
        said = {key: event[key] for key in ("seq", "kind", "at", "actor", "payload", "prev_hash")}
        said["incident"] = incident.pk
        text = json.dumps(said, sort_keys=True, separators=(",", ":"))
        assert (event["seq"], event["prev_hash"]) == (seq, before)
        assert event["hash"] == hashlib.sha256(text.encode()).hexdigest()
        before = event["hash"]
    assert before == told_["head"]


def test_a_viewer_downloads_it_under_its_name(client: Client, incident: Incident) -> None:
    client.force_login(person("vera", "viewer"))
    store(incident, stopped_rank("gpu-002"))
    answer = client.get(reverse("bundle", args=[incident.pk]))
    assert answer["Content-Disposition"] == f'attachment; filename="INC-{incident.pk}-evidence.zip"'
    assert answer["Content-Type"] == "application/zip"
    content = b"".join(answer.streaming_content)
    assert len(content) == int(answer["Content-Length"])
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert "gpu-002/rank.stack.out" in archive.namelist(), "also before anything was judged"
        assert archive.read("gpu-004/captures.json") == b"{}\n"


@pytest.mark.django_db(transaction=True)
async def test_the_asynchronous_server_sends_it_in_pieces(incident: Incident) -> None:
    """Django reads the whole of a synchronous file into memory there, with a warning, which fails this test."""
    client, vera = AsyncClient(), await sync_to_async(person)("vera", "viewer")
    await sync_to_async(store)(incident, stopped_rank("gpu-002"))
    await client.aforce_login(vera)
    answer = await client.get(reverse("bundle", args=[incident.pk]))
    pieces = [piece async for piece in answer]
    await sync_to_async(connections.close_all)()  # those of the thread in which the view ran
    assert b"".join(pieces)[:2] == b"PK"
    assert sum(map(len, pieces)) == int(answer["Content-Length"])
