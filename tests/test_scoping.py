"""From the name of a job to its nodes, where nobody recorded them."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from incidents.models import Incident, Node, NodeVisit, Reading, Shard, SuiteRun, User
from incidents.services import drilling, response, runs, scoping
from incidents.services.fleet import Login, Refused, add_nodes
from tests.support.fleets import main, person

pytestmark = [pytest.mark.django_db, pytest.mark.database, pytest.mark.usefixtures("rung")]


@pytest.fixture
def ada() -> User:
    add_nodes(main(), "gpu-[001-004]", Login(), None)
    return person("ada", "responder")


def rank(number: int, **job: Any) -> dict[str, Any]:
    return {"rank": number, "run_id": None, "slurm_job": None, "master": "10.0.0.1:29500", **job}


def scanned(incident: Incident, seen: dict[str, list[dict[str, Any]]]) -> None:
    """The look at the fleet has ended: these nodes have these ranks, the others none."""
    run = SuiteRun.objects.get(incident=incident, suite="scan")
    now = timezone.now()
    for node in Node.objects.all():
        ranks = seen.get(node.name)
        common = {"run": run, "node": node, "probe": "rank.map", "took_s": 0.1, "recorded_at": now}
        Reading.objects.create(outcome="ok" if ranks else "absent", facts={"ranks": ranks} if ranks else None, **common)
        NodeVisit.objects.create(run=run, node=node, at=now, took_s=0.1, connect_s=0.1, tries=1)
    Shard.objects.filter(run=run).update(finished_at=now)
    SuiteRun.objects.filter(pk=run.pk).update(finished_at=now)


def kinds(incident: Incident) -> list[str]:
    return list(incident.events.values_list("kind", flat=True))


def names(incident: Incident) -> list[str]:
    return sorted(incident.nodes.values_list("name", flat=True))


def test_a_name_that_is_no_node_is_looked_for_on_the_whole_fleet(ada: User) -> None:
    incident = response.declare(main(), "llm-run7", ada, add=False)
    assert incident.title == "llm-run7 does not advance"
    assert names(incident) == []
    run = incident.runs.get()
    assert (run.suite, run.node_count) == ("scan", 4)


@pytest.mark.parametrize("where", ["run_id", "slurm_job"])
def test_the_ranks_of_the_job_tell_its_nodes_and_these_are_captured(ada: User, where: str) -> None:
    incident = response.declare(main(), "llm-run7", ada, add=False)
    mine, other = rank(0, **{where: "llm-run7"}), rank(0, run_id="another")
    scanned(incident, {"gpu-002": [mine], "gpu-003": [{**mine, "rank": 1}], "gpu-004": [other]})
    assert scoping.settle_scan(incident.pk)
    assert names(incident) == ["gpu-002", "gpu-003"]
    assert kinds(incident) == ["declared", "suite_started", "scoped", "suite_started"]
    assert incident.runs.first().suite == "capture"  # type: ignore[union-attr]
    again = response.declare(main(), "llm-run7", ada, add=False)
    assert names(again) == ["gpu-002", "gpu-003"], "the name is enough from now on"
    assert not scoping.settle_scan(incident.pk), "once"


def test_the_only_job_that_runs_is_taken_and_its_own_name_is_said(ada: User) -> None:
    incident = response.declare(main(), "run7", ada, add=False)
    scanned(incident, {"gpu-001": [rank(0, run_id="llm-run7")]})
    scoping.settle_scan(incident.pk)
    assert names(incident) == ["gpu-001"]
    event = incident.events.get(kind="scoped")
    assert (event.payload["how"], event.payload["called"]) == ("only", "llm-run7")
    assert not main().jobs.filter(name="run7").exists(), "a guess is not recorded as the job's nodes"


def test_of_several_others_a_person_chooses(client: Client, ada: User) -> None:
    incident = response.declare(main(), "run7", ada, add=False)
    scanned(incident, {"gpu-001": [rank(0, run_id="a")], "gpu-002": [rank(0, run_id="b"), rank(1, run_id="b")]})
    scoping.settle_scan(incident.pk)
    assert kinds(incident)[-1] == "scope_wanted"
    client.force_login(ada)
    page = client.get(f"/incidents/{incident.pk}").content.decode()
    assert "No rank of job run7 was seen on 4 of 4 nodes" in page
    assert "b: gpu-002, 2 ranks" in page
    assert client.post(f"/incidents/{incident.pk}/nodes", {"what": "gpu-002"}).status_code == 302
    assert names(incident) == ["gpu-002"]
    assert kinds(incident)[-2:] == ["scoped", "suite_started"]
    with pytest.raises(Refused, match="has its nodes by now"):
        scoping.set_scope(incident, "gpu-001", ada, add=False)


def test_where_nothing_answers_nodes_are_asked_for_and_slips_are_not_added(client: Client, ada: User) -> None:
    incident = response.declare(main(), "run7", ada, add=False)
    client.force_login(ada)
    assert "Looking for job run7" in client.get(f"/incidents/{incident.pk}").content.decode()
    scanned(incident, {})
    assert scoping.sweep_scans() == 1, "also when the bell was lost"
    assert scoping.sweep_scans() == 0
    answer = client.post(f"/incidents/{incident.pk}/nodes", {"what": "gpu-999", "add": "yes"}, follow=True)
    assert "gpu-999: no job that is known here, and no node of fleet main." in answer.content.decode()
    assert (names(incident), main().nodes.count()) == ([], 4)


def test_the_end_of_the_look_rings_for_its_settling(ada: User, django_capture_on_commit_callbacks: Any) -> None:
    rings: list[tuple[str, list[int]]] = []
    runs.current_app.send_task = lambda name, args, **_: rings.append((name, args))  # type: ignore[method-assign]
    incident = response.declare(main(), "run7", ada, add=False)
    shard = Shard.objects.get(run__incident=incident)
    held = runs.claim(shard.pk)
    assert held is not None
    now = timezone.now()
    for node in held.nodes:
        NodeVisit.objects.create(run_id=held.run_id, node=node, at=now, took_s=0, connect_s=0, tries=1)
    with django_capture_on_commit_callbacks(execute=True):
        runs.finish_shard(held)
    assert ("incidents.settle", [incident.pk]) in rings


# A fleet of recordings: what a person may do there follows from what they may do anywhere ---------------------------


@pytest.fixture
def recorded(ada: User) -> Incident:
    """A drill that somebody else began."""
    return drilling.start_drill("rank-stopped", None)


def test_who_answers_for_real_nodes_anywhere_may_act_in_a_drill(client: Client, ada: User, recorded: Incident) -> None:
    client.force_login(ada)
    assert client.post(f"/incidents/{recorded.pk}/command").status_code == 302
    recorded.refresh_from_db()
    assert recorded.commander == ada
    client.force_login(person("vic", "viewer"))
    assert client.get(f"/incidents/{recorded.pk}").status_code == 200
    assert client.post(f"/incidents/{recorded.pk}/command").status_code == 403
    client.force_login(person("eve", None))
    assert client.get(f"/incidents/{recorded.pk}").status_code == 404, "whoever is in no fleet sees no drill either"


def test_its_nodes_are_never_looked_through_for_a_job_and_never_declared(
    client: Client, ada: User, recorded: Incident
) -> None:
    client.force_login(ada)
    page = client.get("/incidents/declare").content.decode()
    assert "vit-22b-run3" not in page
    assert 'name="fleet"' not in page, "there is still one fleet to declare in"
    incident = response.declare(main(), "vit-22b-run3", ada, add=False)
    asked = incident.runs.get().shards.get().nodes.values_list("fleet__replay", flat=True)
    assert set(asked) == {False}


def test_the_page_of_such_a_fleet_offers_nothing_that_would_be_refused(
    client: Client, ada: User, recorded: Incident
) -> None:
    client.force_login(person("root", "admin"))
    page = client.get("/fleet/drills/").content.decode()
    assert "exist only in recordings" in page
    for words in ("Check the fleet", "Add nodes", "fleet/drills/alerts"):
        assert words not in page
    assert "How it is reached" not in client.get("/fleet/drills/nodes/gpu-101").content.decode()
    assert client.get("/fleet/")["Location"] == "/fleet/main/", "drills do not stand between a person and their fleet"
