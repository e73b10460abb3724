"""What a fabric should be is stored when a person says so, and never by accident."""

from __future__ import annotations

import dataclasses
import io
import re
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from incidents import fabric
from incidents.models import ExpectedTopology, Incident, Node, SuiteRun
from incidents.queries.incident import matrix
from incidents.queries.lines import lines
from incidents.queries.topology import page
from incidents.services import diagnosing, response, topology
from incidents.services.fleet import Login, Refused, add_nodes
from probes.catalog.network.ib_facts import Silent
from probes.core import facts_as_json
from tests.support import fabric as made
from tests.support.evidence import stopped_rank, store
from tests.support.fabric import DOWN
from tests.support.fleets import main, person

pytestmark = [pytest.mark.django_db, pytest.mark.database]
NUMBERS = range(1, 5)


@pytest.fixture
def incident() -> Incident:
    add_nodes(main(), "gpu-[001-004]", Login(), None)
    return response.declare(main(), "gpu-[001-004]", None)


def seen(incident: Incident, *changed: Any, sweep: bool = True) -> SuiteRun:
    """All four nodes answered, those in `changed` as they say."""
    others = {reading.capture.node for reading in changed}
    readings = [*changed, *(made.ports(n) for n in NUMBERS if made.name(n) not in others)]
    return store(incident, [*readings, *([made.sweep(1, NUMBERS)] if sweep else [])], suite="fabric")


def test_a_person_stores_it_and_the_timeline_says_so(incident: Incident) -> None:
    ada = person("ada", "commander")
    seen(incident)
    row = topology.learn_topology(incident, ada)
    expected, _ = fabric.expected_of(fabric.stored_for(main()))
    assert expected is not None and len(expected.ports) == 32
    assert {port.other_end for port in expected.ports if port.node == "gpu-003"} == {
        f"leaf-0{r} port 3" for r in range(8)
    }
    assert row.source == f"readings of INC-{incident.pk}, fabric seen from gpu-001"
    line = lines(incident)[0]
    assert (line.who, line.says) == (
        "ada",
        "said that the fabric is as it should be: 32 ports of gpu-[001-004] expected",
    )
    assert page(incident).pattern.says == "All 32 ports are as expected."


def test_it_is_refused_while_a_node_has_not_answered(incident: Incident) -> None:
    seen(incident, made.silent(3))
    with pytest.raises(Refused, match="Not known: the ports of gpu-003"):
        topology.learn_topology(incident, person("ada", "commander"))
    assert not ExpectedTopology.objects.exists()


def test_nothing_is_learned_from_an_incident_that_is_over(incident: Incident) -> None:
    seen(incident)
    Incident.objects.update(closed_at=timezone.now())
    with pytest.raises(Refused, match="is closed"):
        topology.learn_topology(incident, person("ada", "commander"))


def test_a_broken_fabric_is_stored_only_when_a_person_says_what_of_it_is_right(incident: Incident) -> None:
    ada = person("ada", "commander")
    seen(incident, made.ports(2, {"mlx5_5": DOWN}))
    with pytest.raises(Refused, match="1 port is not up, not there any more or slower: gpu-002 mlx5_5"):
        topology.learn_topology(incident, ada)
    topology.learn_topology(incident, ada, "leave out")
    assert page(incident).view.tally == {"as expected": 31}
    topology.learn_topology(incident, ada, "expect")
    assert page(incident).view.tally == {"as expected": 31, "down": 1}
    assert lines(incident)[0].says.endswith("expected; 1 not up now: to be up")


def test_an_adapter_that_was_expected_and_is_gone_is_not_forgotten_by_storing_again(incident: Incident) -> None:
    ada = person("ada", "commander")
    seen(incident)
    topology.learn_topology(incident, ada)
    seen(incident, made.ports(4, gone=("mlx5_9",)), sweep=False)
    with pytest.raises(Refused, match="gpu-004 mlx5_9"):
        topology.learn_topology(incident, ada)
    assert ExpectedTopology.objects.count() == 1


def test_what_came_after_the_persons_look_is_looked_at_first(incident: Incident) -> None:
    seen(incident)
    newest = page(incident).storing.newest
    seen(incident, made.ports(2, gone=("mlx5_9",)))
    with pytest.raises(Refused, match="newer readings"):
        topology.learn_topology(incident, person("ada", "commander"), newest=newest)


def test_nodes_outside_the_incident_keep_what_was_expected_of_them(incident: Incident) -> None:
    ada = person("ada", "commander")
    seen(incident)
    topology.learn_topology(incident, ada)
    small = response.declare(main(), "gpu-002", None)
    store(small, [made.ports(2)], suite="ib.ports")
    topology.learn_topology(small, ada)
    expected, _ = fabric.expected_of(fabric.stored_for(main()))
    assert expected is not None and len(expected.ports) == 32
    assert all(port.leaf for port in expected.ports), "nobody asked the fabric this time: its cables are still known"


def test_a_sweep_of_one_rail_leaves_the_cables_of_the_others_known_and_says_what_it_did_not_see(
    client: Client, incident: Incident
) -> None:
    ada = person("ada", "commander")
    seen(incident)
    topology.learn_topology(incident, ada)
    whole, _ = fabric.expected_of(fabric.stored_for(main()))
    text = made.sweep_text(NUMBERS)
    for rail in range(1, 8):  # the same fabric, where these rails are others than ours
        text = text.replace(f"{made.leaf_guid(rail):016x}", f"{made.leaf_guid(rail + 100):016x}")
        for n in NUMBERS:
            text = text.replace(f"{made.guid(n, rail):016x}", f"{made.guid(n + 1000, rail):016x}")
    store(incident, [made.read_text("gpu-001", "ib.fabric", text)], suite="fabric")
    assert page(incident).view.tally == {"as expected": 32}
    client.force_login(ada)
    shown = client.get(reverse("topology", args=[incident.pk]) + "?node=gpu-002&port=mlx5_5:1").content.decode()
    assert "The fabric that gpu-001 sees does not have leaf-01, leaf-02, leaf-03," in shown
    assert "no link there" not in shown
    topology.learn_topology(incident, ada)
    assert fabric.expected_of(fabric.stored_for(main()))[0] == whole


def gone(number: int) -> Incident:
    """An incident on one node of which an adapter is gone, judged by what is expected until now."""
    one = response.declare(main(), made.name(number), None)
    store(one, [made.ports(number, gone=("mlx5_9",))], suite="ib.ports")
    diagnosing.judge(one.pk)
    return one


def cause(incident: Incident) -> str:
    return incident.rankings.first().cause  # type: ignore[union-attr]


def test_what_is_learned_is_evidence_for_every_open_incident_of_the_fleet(
    incident: Incident, rung: list[int], django_capture_on_commit_callbacks: Any
) -> None:
    ada = person("ada", "commander")
    missing, closed = gone(4), gone(4)
    Incident.objects.filter(pk=closed.pk).update(closed_at=timezone.now())
    without = response.declare(main(), "gpu-002", None)
    store(without, stopped_rank("gpu-002"))
    diagnosing.judge(without.pk)
    seen(incident)
    diagnosing.judge(incident.pk)
    assert (cause(missing), diagnosing.sweep_unjudged()) == ("unknown", 0)
    rung.clear()
    with django_capture_on_commit_callbacks(execute=True):
        row = topology.learn_topology(incident, ada)
    assert rung == [incident.pk, missing.pk], "neither the closed one nor the one that never asked for ports"
    assert diagnosing.sweep_unjudged() == 2
    assert (cause(missing), cause(closed)) == ("ib.link_down", "unknown")
    assert missing.rankings.first().topology == row  # type: ignore[union-attr]
    assert diagnosing.sweep_unjudged() == 0, "once, also where the verdict stays as it was"


def test_the_command_too_has_open_incidents_judged_again(incident: Incident) -> None:
    seen(incident, sweep=False)
    diagnosing.judge(incident.pk)
    topology.learn_fleet(main(), None, made.sweep_text(NUMBERS), "net.out")
    assert diagnosing.sweep_unjudged() == 1


def test_what_is_learned_while_a_worker_judges_is_not_passed_over(
    incident: Incident, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen(incident)
    missing = gone(4)
    store(missing, [made.ports(4, gone=("mlx5_9",))], suite="ib.ports")
    original = diagnosing.told

    def told(diagnosis: Any) -> dict[str, Any]:
        monkeypatch.setattr(diagnosing, "told", original)
        topology.learn_topology(incident, person("ada", "commander"))
        return original(diagnosis)

    monkeypatch.setattr(diagnosing, "told", told)
    assert diagnosing.judge(missing.pk) == 2
    assert cause(missing) == "ib.link_down"


def test_nothing_is_learned_of_an_adapter_that_does_not_answer(incident: Incident) -> None:
    reading = made.ports(2, gone=("mlx5_9",))
    mute = dataclasses.replace(reading.facts, silent=(Silent("mlx5_9", "timeout", "no answer in 5 s"),))
    seen(incident, dataclasses.replace(reading, facts=mute, facts_json=facts_as_json(mute)))
    assert page(incident).storing.against == "gpu-002 mlx5_9 does not answer."
    with pytest.raises(Refused, match="These adapters did not answer: gpu-002 mlx5_9"):
        topology.learn_topology(incident, person("ada", "commander"), topology.LEAVE_OUT)
    assert not ExpectedTopology.objects.exists()


# As in config/settings.py, written out: whoever loosens it there or for this page must say so here.
POLICY = {
    "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'", "font-src 'self'",
    "connect-src 'self'", "manifest-src 'self'", "form-action 'self'", "frame-ancestors 'none'", "base-uri 'none'",
    "object-src 'none'",
}  # fmt: skip


def test_the_policy_of_this_page_is_that_of_all_but_for_pictures_of_its_own_making(
    client: Client, incident: Incident
) -> None:
    client.force_login(person("vic", "viewer"))

    def policy(name: str) -> list[str]:
        header = client.get(reverse(name, args=[incident.pk])).headers["Content-Security-Policy"]
        return sorted(part.strip() for part in header.split(";"))

    assert policy("incident") == sorted(POLICY)
    assert policy("topology") == sorted(POLICY - {"img-src 'self'"} | {"img-src 'self' data:"})


def test_the_head_of_the_tab_is_that_of_the_incident(client: Client, incident: Incident) -> None:
    """Also how it may be closed, from here too."""
    client.force_login(person("cam", "commander"))

    def head(name: str) -> str:
        shown = client.get(reverse(name, args=[incident.pk])).content.decode()
        found = re.search(r'<div class="incident-head">.*?</details>', shown, re.DOTALL)
        assert found
        return re.sub(r'name="csrfmiddlewaretoken" value="\w+"|T\+[\d:]+', "", found[0])

    assert "4 nodes" in head("topology")
    assert '<option value="handed over">' in head("topology")
    assert head("topology") == head("incident")


def test_a_later_look_that_fails_leaves_nothing_green(incident: Incident) -> None:
    seen(incident)
    topology.learn_topology(incident, person("ada", "commander"))
    store(incident, [made.silent(2)], suite="ib.ports")
    found = page(incident)
    assert found.view.tally == {"as expected": 24, "not known": 8}
    assert found.pattern.level == "unknown"


def test_the_fabric_is_asked_of_one_node_and_of_the_others_it_is_not_said_to_be_outstanding(
    incident: Incident, rung: list[int]
) -> None:
    run = topology.ask_fabric(incident, person("ada", "responder"), "gpu-002")
    assert [node.name for shard in run.shards.all() for node in shard.nodes.all()] == ["gpu-002"]
    cells = {cell.node: cell.level for cell in dict(matrix(incident).rows)["ib.fabric"]}
    assert cells == {"gpu-001": "unasked", "gpu-002": "", "gpu-003": "unasked", "gpu-004": "unasked"}
    with pytest.raises(Refused, match="being asked already"):
        topology.ask_fabric(incident, person("rosa", "responder"), "gpu-001")
    with pytest.raises(Refused, match="no node 'gpu-999' in fleet main"):
        topology.ask_fabric(incident, person("pat", "responder"), "gpu-999")


def test_a_commander_stores_and_a_responder_may_not(client: Client, incident: Incident) -> None:
    seen(incident)
    address = reverse("learn_topology", args=[incident.pk])
    said = {"newest": page(incident).storing.newest}
    client.force_login(person("rosa", "responder"))
    assert client.post(address, said).status_code == 403
    assert b"This is how it should be" not in client.get(reverse("topology", args=[incident.pk])).content
    client.force_login(person("cam", "commander"))
    assert b"This is how it should be" in client.get(reverse("topology", args=[incident.pk])).content
    assert client.post(address, said).status_code == 302
    assert ExpectedTopology.objects.get().by.username == "cam"


@pytest.mark.parametrize(
    ("readings", "says"),
    [
        (
            [made.silent(n, "absent", "no InfiniBand or RoCE adapter") for n in NUMBERS],
            "None of these nodes has an InfiniBand",
        ),
        ([], "No node has answered for its ports yet: gpu-[001-004]."),
    ],
)
def test_without_infiniband_the_page_says_so(
    client: Client, incident: Incident, readings: list[Any], says: str
) -> None:
    if readings:
        store(incident, readings, suite="ib.ports")
    client.force_login(person("vic", "viewer"))
    shown = client.get(reverse("topology", args=[incident.pk])).content.decode()
    assert says in shown
    assert "application/json" not in shown, "no empty figure"


def test_the_page_costs_a_handful_of_queries_whatever_the_number_of_nodes(
    incident: Incident, django_assert_max_num_queries: Any
) -> None:
    seen(incident)
    with django_assert_max_num_queries(8):
        page(incident)


def test_names_from_the_fabric_are_shown_as_text(client: Client, incident: Incident) -> None:
    text = made.sweep_text(NUMBERS).replace("MF0;leaf-03:MQM9700/U1", "</script><img src=x onerror=alert(1)>")
    store(incident, [made.read_text("gpu-001", "ib.fabric", text), *(made.ports(n) for n in NUMBERS)], suite="fabric")
    client.force_login(person("vic", "viewer"))
    shown = client.get(reverse("topology", args=[incident.pk]) + "?node=gpu-001").content.decode()
    assert "onerror" in shown
    assert "<img" not in shown


def test_the_command_learns_from_a_file_and_shows(incident: Incident, tmp_path: Path) -> None:
    file = tmp_path / "net.out"
    file.write_text(made.sweep_text(NUMBERS))
    out = io.StringIO()
    with pytest.raises(CommandError, match="Nothing is expected of main yet"):
        call_command("topology", "show", "main", stdout=out)
    with pytest.raises(CommandError, match=r"Not known: the ports of gpu-\[001-004\]"):
        call_command("topology", "learn", "main", str(file), stdout=out)
    seen(incident, sweep=False)
    call_command("topology", "learn", "main", str(file), stdout=out)
    call_command("topology", "show", "main", stdout=out)
    assert "32 ports expected" in out.getvalue()
    assert "32 ports of gpu-[001-004]\nleaf-00: 4 ports\nleaf-01: 4 ports\n" in out.getvalue()
    assert "from the latest readings of its nodes, fabric seen from net.out" in out.getvalue()
    file.write_text("ibwarn: [1] mad_rpc: failed\n")
    with pytest.raises(CommandError, match="net.out is no output of ibnetdiscover: line 1"):
        call_command("topology", "learn", "main", str(file), stdout=out)


def test_a_node_taken_out_of_the_fleet_is_not_expected_any_more(incident: Incident) -> None:
    ada = person("ada", "commander")
    seen(incident)
    topology.learn_topology(incident, ada)
    small = response.declare(main(), "gpu-002", None)
    store(small, [made.ports(2)], suite="ib.ports")
    incident.nodes.remove(Node.objects.get(name="gpu-004"))
    Node.objects.get(name="gpu-004").delete()
    topology.learn_topology(small, ada)
    expected, _ = fabric.expected_of(fabric.stored_for(main()))
    assert expected is not None and set(expected.nodes) == {"gpu-001", "gpu-002", "gpu-003"}
