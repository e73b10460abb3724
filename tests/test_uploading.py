"""Files on the page: kept with the incident, read by a worker apart, judged like what nodes say."""

from __future__ import annotations

import hashlib
import io
import json
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connections
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from incidents import filing, tasks
from incidents.models import Event, Incident, Reading, Upload, UploadedFile, UploadedPart, User
from incidents.queries import files as queries
from incidents.queries.lines import lines
from incidents.queries.review import bundle
from incidents.queries.timeline import broken_links
from incidents.services import diagnosing, files, runs
from incidents.services.fleet import Refused
from incidents.services.sweeping import sweep
from tests.support.fleets import main, person

pytestmark = [pytest.mark.django_db, pytest.mark.database]
HANGS = Path(__file__).parent / "fixtures" / "hangs"
CASE = HANGS / "loader_slow"


@pytest.fixture
def ada() -> User:
    return person("ada", "responder")


@pytest.fixture(autouse=True)
def nobody_is_rung(rung: list[int], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    monkeypatch.setattr(tasks, "close_old_connections", lambda: None)  # a test has only this one
    return rung


def brought(folder: Path = CASE) -> list[files.Brought]:
    return [files.Brought(f"run7/{one.name}", [one.read_bytes()]) for one in sorted(folder.iterdir()) if one.is_file()]


def work(incident: Incident) -> None:
    """What a worker does, once."""
    for shard in runs.Shard.objects.filter(run__incident=incident, run__suite="files", finished_at=None):
        tasks.run_shard(shard.pk)
    diagnosing.judge(incident.pk)


def packed(members: dict[str, bytes]) -> bytes:
    into = io.BytesIO()
    with zipfile.ZipFile(into, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return into.getvalue()


# Services and worker ------------------------------------------------------------------------------------------------


def test_files_alone_lead_to_the_verdict_that_explain_gives_and_nobody_is_asked(
    ada: User, rung: list[int], django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        incident = files.judge_files(main(), brought(), ada)
    assert (incident.from_files, incident.title, incident.nodes.count()) == (True, "Files: run7", 0)
    assert [run.suite for run in incident.runs.all()] == ["files"]
    assert rung == [incident.runs.get().shards.get().pk]
    work(incident)
    ranking = incident.rankings.get()
    assert (ranking.cause, ranking.subject["rank"]) == ("cpu.dataloader_starved", 1), "what the case was made as"
    assert ranking.probability > 0.9
    reasons = [one["reading"] for one in ranking.body["hypotheses"][0]["because"]]
    assert "run7/pyspy_nb_rank1.json" in reasons
    links = ranking.rests_on(reasons)
    assert links["run7/pyspy_nb_rank1.json"].probe == "rank.stack"
    assert incident.runs.get().finished_at is not None


def test_the_files_are_kept_as_they_came_with_who_brought_them_and_their_hashes(ada: User) -> None:
    data = b"[rank0]: " + bytes(range(256)) * 9000
    incident = files.judge_files(main(), [files.Brought("a/rank0.log", [data[:7], data[7:]], 1_700_000_000.0)], ada)
    upload = incident.uploads.get()
    kept = upload.files.get()
    assert b"".join(files.contents(kept)) == data
    assert kept.parts.count() == 3
    assert (kept.name, kept.size, kept.modified) == ("a/rank0.log", len(data), 1_700_000_000.0)
    assert kept.sha256 == hashlib.sha256(data).hexdigest()
    assert upload.sha256 == hashlib.sha256(f"{kept.sha256}  a/rank0.log\n".encode()).hexdigest()
    event = incident.events.get(kind="files_added")
    assert (event.actor, event.payload["sha256"], event.payload["size"]) == (ada, upload.sha256, len(data))
    assert list(broken_links(Incident.objects.get(pk=incident.pk))) == []


def test_names_lead_nowhere_and_are_shown_clean(ada: User) -> None:
    names = ["../../etc/passwd", "/etc/rank1.log", "a\\..\\b\x1b[31m\n.log", "", "x/" * 60 + "y", "C:\\run\\r.log"]
    incident = files.judge_files(main(), [files.Brought(name, [b"[rank1]: x"]) for name in names], ada)
    kept = [one.name for one in UploadedFile.objects.filter(upload__incident=incident).order_by("number")]
    assert kept[:2] == ["etc/passwd", "etc/rank1.log"]
    assert "\x1b" not in kept[2] and "\n" not in kept[2] and ".." not in kept[2]
    assert kept[3] == "file"
    assert len(kept[4].split("/")) == 32
    work(incident)
    assert incident.uploads.get().read_at is not None


def test_what_could_not_be_read_is_said_and_the_rest_is_judged(ada: User) -> None:
    archive = packed(
        {f"run/{one.name}": one.read_bytes() for one in CASE.iterdir() if one.is_file()}
        | {"../../up.log": b"[rank9]: x"}
    )
    given = [
        files.Brought("case.zip", [archive]),
        files.Brought("picture.png", [b"\x89PNG" + b"\0" * 500]),
        files.Brought("cut.zip", [archive[:300]]),
        files.Brought("nothing.log", []),
    ]
    incident = files.judge_files(main(), given, ada)
    work(incident)
    why = {file.removeprefix("case.zip/"): said for file, said in incident.uploads.get().unread}
    assert why["picture.png"] == "binary, of no known form"
    assert "damaged" in why["cut.zip"]
    assert "leads out" in why["../../up.log"]
    assert "empty" in why["nothing.log"]
    assert incident.rankings.get().cause == "cpu.dataloader_starved"
    said = [line.says for line in lines(incident)]
    assert any("told nothing" in one and "the files are read" in one for one in said)


def test_files_of_two_uploads_are_read_together_and_the_last_reading_counts(ada: User) -> None:
    everything = brought()
    dumps = [one for one in everything if "fr_trace" in one.name]
    incident = files.judge_files(main(), dumps, ada)
    work(incident)
    first = incident.rankings.get()
    files.add_files(incident, [one for one in everything if one not in dumps] + dumps[:1], ada)
    work(incident)
    last = incident.rankings.first()
    assert last is not None
    assert (first.cause == last.cause, last.cause) == (False, "cpu.dataloader_starved")
    upload = incident.uploads.first()
    assert upload is not None
    counted = Reading.objects.all().of_files(incident, last.readings)
    assert {row.run_id for row in counted} == {upload.run_id}
    old = Reading.objects.all().of_files(incident, first.readings)
    assert {row.run_id for row in old} == {incident.uploads.last().run_id}, "as it was then"  # type: ignore[union-attr]


def test_two_nodes_that_tell_the_same_are_two_nodes_and_a_file_that_comes_again_is_one(ada: User) -> None:
    told = b"Mon Jan  5 09:03:25 UTC 2026\n 09:03:25 up 40 days,  2:11,  1 user,  load average: 4.00, 4.00, 4.00\n"
    given = [files.Brought(f"{node}/uptime.txt", [told]) for node in ("gpu-01", "gpu-02")]
    incident = files.judge_files(main(), given, ada)
    files.add_files(incident, given[:1], ada)
    work(incident)
    upload = incident.uploads.first()
    assert upload is not None and upload.unread == []
    loads = Reading.objects.filter(run_id=upload.run_id, probe="host.load")
    assert sorted(row.file.split("/")[0] for row in loads) == ["gpu-01", "gpu-02"]


def test_an_evidence_bundle_is_judged_as_the_incident_was(ada: User) -> None:
    incident = files.judge_files(main(), brought(), ada)
    into = io.BytesIO()
    from incidents.services import drilling

    drill = drilling.start_drill("rank-stopped", ada)
    from incidents.asking import ask_here

    for run in drill.runs.all():
        ask_here(run)
    diagnosing.judge(drill.pk)
    wanted = drill.rankings.first()
    bundle.write(drill, into)
    again = files.judge_files(main(), [files.Brought("INC-9-evidence.zip", [into.getvalue()])], ada)
    work(again)
    got = again.rankings.first()
    assert wanted is not None and got is not None
    assert (got.cause, got.subject.get("rank")) == (wanted.cause, wanted.subject.get("rank"))
    assert again.pk != incident.pk


def test_the_bundle_of_an_incident_on_files_holds_them_and_gives_its_verdict_again(ada: User) -> None:
    incident = files.judge_files(main(), [*brought(), *brought()[:1]], ada)
    work(incident)
    into = io.BytesIO()
    bundle.write(incident, into)
    with zipfile.ZipFile(into) as archive:
        assert archive.read("golden15/files/run7/pyspy_nb_rank1.json") == (CASE / "pyspy_nb_rank1.json").read_bytes()
    again = files.judge_files(main(), [files.Brought("INC-1-evidence.zip", [into.getvalue()])], ada)
    work(again)
    wanted, got = incident.rankings.get(), again.rankings.get()
    assert (got.cause, got.probability) == (wanted.cause, wanted.probability)


def test_too_much_and_nothing_is_refused_and_leaves_nothing_behind(ada: User, settings: Any) -> None:
    settings.UPLOAD_BYTES = 3_000_000
    for given, says in (
        ([files.Brought("big.log", [b"x" * 1_000_000] * 4)], "More than 2 MiB"),
        ([], "Choose files"),
        ([files.Brought("a.log", [])], "empty"),
        ([files.Brought(f"{n}.log", [b"x"]) for n in range(5001)], "More than 5000 files"),
    ):
        with pytest.raises(Refused, match=says):
            files.judge_files(main(), given, ada)
    assert (Incident.objects.count(), Upload.objects.count(), UploadedPart.objects.count()) == (0, 0, 0)
    settings.UPLOAD_INCIDENT_BYTES = 10
    incident = files.judge_files(main(), [files.Brought("a.log", [b"[rank0]: line"])], ada)
    with pytest.raises(Refused, match="the most for one incident"):
        files.add_files(incident, [files.Brought("b.log", [b"x"])], ada)
    Incident.objects.filter(pk=incident.pk).update(closed_at=timezone.now())
    with pytest.raises(Refused, match="is closed"):
        files.add_files(Incident.objects.get(pk=incident.pk), [files.Brought("b.log", [b"x"])], ada)


def test_a_reader_that_needs_too_long_or_dies_is_said_and_the_files_stay(
    ada: User, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    from probes.intake import apart

    incident = files.judge_files(main(), [files.Brought("a.log", [b"[rank0]: line"])], ada)
    monkeypatch.setattr(apart, "_PROGRAM", "while True: pass")
    monkeypatch.setattr(apart, "TICK_S", 0.05)
    settings.UPLOAD_SECONDS = 1
    work(incident)
    upload = incident.uploads.get()
    assert "more than 1 s" in upload.problem
    assert upload.files.count() == 1
    assert "could not be read" in lines(incident)[0].says
    assert queries.panel(incident).uploads[0].state == "failed"
    files.add_files(incident, [files.Brought("b.log", [b"[rank1]: line"])], ada)
    monkeypatch.setattr(apart, "_PROGRAM", "x = 'a' * 10; raise MemoryError")
    work(incident)
    assert "memory" in incident.uploads.first().problem  # type: ignore[union-attr]


def test_who_reads_files_knows_no_password_of_ours(ada: User, monkeypatch: pytest.MonkeyPatch) -> None:
    from probes.intake import apart

    monkeypatch.setenv("GOLDEN15_SECRET_KEY", "secret")
    monkeypatch.setattr(apart, "_PROGRAM", "import os, sys; sys.exit(7 if 'GOLDEN15_SECRET_KEY' in os.environ else 8)")
    incident = files.judge_files(main(), [files.Brought("a.log", [b"[rank0]: line"])], ada)
    work(incident)
    assert "status 8" in incident.uploads.get().problem


def test_thousands_of_files_are_stored_in_few_queries(ada: User, django_assert_max_num_queries: Any) -> None:
    with django_assert_max_num_queries(80):
        files.judge_files(main(), [files.Brought(f"run/{n}.log", [b"[rank0]: line %d" % n]) for n in range(1000)], ada)
    assert UploadedFile.objects.count() == UploadedPart.objects.count() == 1000


def test_two_workers_read_an_upload_once(ada: User) -> None:
    incident = files.judge_files(main(), brought(), ada)
    shard = incident.runs.get().shards.get()
    held = runs.claim(shard.pk)
    assert held is not None
    assert runs.claim(shard.pk) is None
    runs.Shard.objects.filter(pk=shard.pk).update(lease_until=timezone.now() - runs.LEASE)
    again = runs.claim(shard.pk)
    assert again is not None
    filing.read_files(again)
    with pytest.raises(runs.LeaseLost):
        files.record_files(held, [], [], [], None)
    assert incident.events.filter(kind="files_read").count() == 1


def test_an_upload_that_was_never_completed_is_swept_away(ada: User) -> None:
    old = Upload.objects.create(fleet=main(), by=ada, at=timezone.now() - files.FORGOTTEN * 2)
    new = Upload.objects.create(fleet=main(), by=ada, at=timezone.now())
    assert sweep() == 1
    assert list(Upload.objects.all()) == [new]
    assert old.pk != new.pk


def test_with_the_incident_goes_what_was_brought(ada: User) -> None:
    incident = files.judge_files(main(), [files.Brought("a.log", [b"[rank0]: line"])], ada)
    incident.uploads.all().delete()
    assert (UploadedFile.objects.count(), UploadedPart.objects.count()) == (0, 0)
    assert Upload._meta.get_field("incident").remote_field.on_delete.__name__ == "CASCADE"


# The page -----------------------------------------------------------------------------------------------------------


def send(client: Client, path: str, given: dict[str, bytes], about: object = None, **more: str) -> Any:
    sent = [SimpleUploadedFile(name.rpartition("/")[2], data) for name, data in given.items()]
    told = about if about is not None else [[name, 1_700_000_000_000] for name in given]
    return client.post(path, {"files": sent, "about": json.dumps(told), **more})


def test_the_page_takes_files_with_their_paths_and_shows_what_they_told(client: Client, ada: User) -> None:
    client.force_login(ada)
    answer = send(client, reverse("judge_files"), {one.name: b"".join(one.chunks) for one in brought()}, title="seven")
    incident = Incident.objects.get()
    assert answer["Location"] == reverse("incident", args=[incident.pk])
    assert {one.name.partition("/")[0] for one in UploadedFile.objects.all()} == {"run7"}
    page = client.get(answer["Location"]).content.decode()
    assert "waits for a worker" in page
    assert "Which nodes?" not in page and "Nodes × probes" not in page
    work(incident)
    page = client.get(answer["Location"]).content.decode()
    assert "run7/pyspy_nb_rank1.json" in page
    assert "told nothing" in page
    reading = Reading.objects.get(file="run7/pyspy_nb_rank1.json")
    drawer = client.get(reverse("evidence", args=[incident.pk, reading.pk])).content.decode()
    assert "somebody brought" in drawer
    raw = client.get(reverse("evidence_output", args=[incident.pk, reading.pk]))
    assert raw.content == (CASE / "pyspy_nb_rank1.json").read_bytes()
    assert raw["Content-Type"] == "application/octet-stream"
    assert "attachment" in raw["Content-Disposition"]
    for name in ("review", "timeline", "topology", "review_markdown", "bundle"):
        assert client.get(reverse(name, args=[incident.pk])).status_code == 200, name


def test_paths_that_do_not_fit_the_files_are_not_believed(client: Client, ada: User) -> None:
    client.force_login(ada)
    for about in ([["other/name.log", 1]], "nonsense", [[1, 2]], {"a": 1}, [["x/a.log", "soon"]]):
        send(client, reverse("judge_files"), {"a.log": b"[rank0]: line"}, about)
    told = set(UploadedFile.objects.values_list("name", "modified"))
    assert told == {("a.log", None), ("x/a.log", None)}


def test_what_is_wrong_with_an_upload_is_said_on_the_page(client: Client, ada: User, settings: Any) -> None:
    client.force_login(ada)
    path = reverse("judge_files")
    page = client.get(path).content.decode()
    assert "At most 256 MiB and 5000 files" in page
    assert "Choose files" in client.post(path, {"about": "[]"}).content.decode()
    settings.UPLOAD_BYTES = 1000
    over = send(client, path, {"a.log": b"x" * 2000})
    assert over.status_code == 422
    assert "at once" in over.content.decode()
    way_over = send(client, path, {"a.log": b"x" * 4_300_000})
    assert way_over.status_code == 413
    assert "at once" in way_over.content.decode()
    cut = client.generic("POST", path, b"--x\r\nbroken", content_type="multipart/form-data; boundary=")
    assert cut.status_code == 422
    assert Incident.objects.count() == 0


def test_a_page_of_another_site_cannot_bring_files(ada: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(ada)
    assert send(client, reverse("judge_files"), {"a.log": b"[rank0]: x"}).status_code == 403
    client.get(reverse("judge_files"))
    token = client.cookies["golden15_csrf"].value
    answer = send(client, reverse("judge_files"), {"a.log": b"[rank0]: x"}, csrfmiddlewaretoken=token)
    assert answer.status_code == 302


def test_viewers_bring_nothing_and_others_see_nothing(client: Client, ada: User) -> None:
    incident = files.judge_files(main(), [files.Brought("a.log", [b"[rank0]: x"])], ada)
    client.force_login(person("vi", "viewer"))
    for path in (reverse("judge_files"), reverse("add_files", args=[incident.pk])):
        assert send(client, path, {"b.log": b"x"}).status_code == 403
    assert "Add files" not in client.get(reverse("incident", args=[incident.pk])).content.decode()
    client.force_login(person("eve", None))
    assert send(client, reverse("add_files", args=[incident.pk]), {"b.log": b"x"}).status_code == 404
    assert Upload.objects.count() == 1


def test_a_drill_takes_files_and_a_fleet_of_recordings_opens_nothing_for_them(ada: User) -> None:
    fleet = main()
    fleet.replay = True
    with pytest.raises(Refused, match="only in recordings"):
        files.judge_files(fleet, [files.Brought("a.log", [b"x"])], ada)
    assert Event.objects.count() == 0


@pytest.mark.django_db(transaction=True)
def test_files_added_by_two_people_at_once_are_all_there(ada: User) -> None:
    incident = files.judge_files(main(), [files.Brought("a.log", [b"[rank0]: x"])], ada)
    troubles: list[Exception] = []

    def add(name: str) -> None:
        try:
            files.add_files(Incident.objects.get(pk=incident.pk), [files.Brought(name, [b"[rank1]: y"] * 9)], ada)
        except Exception as error:
            troubles.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=add, args=(f"{n}.log",)) for n in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert troubles == []
    assert incident.uploads.count() == 5
    assert list(broken_links(Incident.objects.get(pk=incident.pk))) == []
