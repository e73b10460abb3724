"""The list of incidents: what waits for a person, and the phases as the strip shows them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from incidents import clock
from incidents.models import Action, Decision, Incident, Phase, Ranking, User
from incidents.models.diagnosis import IS_THIS_IT
from incidents.queries import board
from incidents.queries import incident as queries
from incidents.services.fleet import Login, add_nodes
from incidents.services.timeline import tell
from tests.support.fleets import main, person
from tests.support.reviews import act

pytestmark = [pytest.mark.django_db]


@pytest.fixture
def ada() -> User:
    return person("ada", "responder")


def opened(by: User | None, phase: str = "capture", ago: int = 30, severity: int = 2) -> Incident:
    """An open incident in this phase, `ago` seconds after T0."""
    t0 = timezone.now() - timedelta(seconds=ago)
    one = Incident.objects.create(fleet=main(), title="x", t0=t0, phase=phase, commander=by, severity=severity)
    for due in clock.due_times(t0, severity):
        Phase.objects.create(incident=one, name=due.phase, due_at=due.at, started_at=t0 if due.phase == phase else None)
    return one


def ended(incident: Incident, answered: int, nodes: int, suite: str = "capture") -> None:
    with transaction.atomic():
        tell(incident, "suite_ended", None, run=1, suite=suite, answered=answered, nodes=nodes)


def needs(now: datetime | None = None) -> list[tuple[str, str]]:
    rows = [(one, queries.current_phase(one, now)) for one in queries.open_incidents([main()])]
    return [(need.level, need.says) for need in board.needs(rows, now)]


def test_the_list_costs_the_same_number_of_queries_at_any_length(client: Client, ada: User) -> None:
    client.force_login(ada)
    counts = []
    for more in (1, 20):
        for _ in range(more):
            opened(ada)
        with CaptureQueriesContext(connection) as queries_:
            client.get("/incidents/state")
        counts.append(len(queries_))
    assert counts[0] == counts[1] <= 12


def test_an_incident_in_order_waits_for_nobody(ada: User) -> None:
    ended(opened(ada), 3, 3)
    assert needs() == []


def test_a_capture_that_ended_without_some_nodes_waits_for_a_word(ada: User) -> None:
    one = opened(ada)
    ended(one, 61, 64)
    assert needs() == [("warn", "capture ended, 3 of 64 nodes did not answer")]
    one.phases.filter(name="capture").update(ended_at=timezone.now())
    Incident.objects.filter(pk=one.pk).update(phase="triage")
    assert needs() == [], "a person moved on from it"


def test_not_one_node_reached_waits_in_every_phase_until_a_capture_is_answered(ada: User) -> None:
    one = opened(ada, "triage")
    ended(one, 0, 3)
    assert needs() == [("bad", "not one of its 3 nodes could be reached")]
    ended(one, 0, 3, suite="host")
    ended(one, 3, 3)
    assert needs() == []
    ended(opened(ada), 0, 1)
    assert needs() == [("bad", "its node could not be reached")]


def test_when_all_have_answered_the_word_for_it_is_at_hand(ada: User) -> None:
    one = opened(ada)
    assert board.word_at_hand(one) == ""
    ended(one, 3, 4)
    assert board.word_at_hand(one) == "", "a person says what is with the fourth"
    ended(one, 4, 4)
    assert board.word_at_hand(one) == "all 4 nodes answered"
    one.phase = "triage"
    assert board.word_at_hand(one) == ""


def judged(incident: Incident, probability: float, cause: str = "ib.link_down") -> Ranking:
    """A ranking whose first hypothesis has this share."""
    first = {"cause": cause, "subject": {"node": "gpu-017", "hca": "mlx5_3", "port": 1}, "says": "Port 1 is down"}
    more = {"cause": cause, "subject": first["subject"], "probability": probability, "body": {"hypotheses": [first]}}
    return Ranking.objects.create(incident=incident, at=timezone.now(), readings=1, **more)


def decided(ranking: Ranking, by: User, chosen: str, **subject: object) -> None:
    about = {"cause": ranking.cause, "subject": {**ranking.subject, **subject}}
    more = {"options": [], "at": timezone.now(), "phase": "triage", "question": IS_THIS_IT}
    Decision.objects.create(incident=ranking.incident, by=by, chosen=chosen, subject=about, **more)


def test_a_likely_verdict_waits_for_a_word_once_the_capture_is_over(ada: User) -> None:
    one = opened(ada)
    judged(one, 0.93)
    assert needs() == []
    Incident.objects.filter(pk=one.pk).update(phase="triage")
    assert needs() == [("warn", "a verdict waits for a word: Port 1 is down (0.93)")]


@pytest.mark.parametrize("chosen", ["accept", "not this"])
def test_a_verdict_that_somebody_said_a_word_about_waits_no_more(ada: User, chosen: str) -> None:
    ranking = judged(opened(ada, "triage"), 0.93)
    decided(ranking, ada, chosen, port=2)
    assert len(needs()) == 1, "that was about another port"
    decided(ranking, ada, chosen)
    assert needs() == []


def test_what_is_unlikely_old_or_names_nothing_does_not_wait(ada: User) -> None:
    one = opened(ada, "triage")
    judged(one, 0.93)
    judged(one, 0.79)
    assert needs() == [], "the latest counts"
    judged(one, 0.95, "none")
    judged(opened(ada, "triage"), 0.95, "unknown")
    assert needs() == []


def test_verdicts_of_many_incidents_cost_no_more_queries(ada: User, django_assert_num_queries: Any) -> None:
    for count in (1, 5):
        for _ in range(count):
            judged(opened(ada, "triage"), 0.93)
        rows: list[board.Row] = [(one, None) for one in queries.open_incidents([main()])]
        with django_assert_num_queries(4):
            assert {need.says for need in board.needs(rows)} == {"a verdict waits for a word: Port 1 is down (0.93)"}


def test_the_most_pressing_comes_first_and_an_incident_stands_there_once(ada: User) -> None:
    ended(opened(None, ago=150), 2, 3)
    opened(ada, ago=200)
    opened(None, severity=1)
    found = needs()
    assert [level for level, _ in found] == ["warn", "bad", "warn"]
    assert found[0][1].startswith("nobody commands it"), "a SEV1 that nobody has goes before a SEV2 over its time"
    assert "over its time" in found[1][1]
    assert found[2][1].count("; ") == 2, "nobody commands, a node is missing, and it is due soon"


def test_the_page_and_its_part_show_needs_and_offer_the_command_to_those_who_may(client: Client, ada: User) -> None:
    one = opened(None)
    client.force_login(ada)
    for path in ("/incidents/", "/incidents/state"):
        page = client.get(path).content.decode()
        assert "nobody commands it" in page
        assert f'action="/incidents/{one.pk}/command"' in page
    ada.memberships.update(role="viewer")
    assert "/command" not in client.get("/incidents/state").content.decode()


@pytest.mark.parametrize(
    ("started", "due", "now", "share"),
    [(0, 180, 90, 50), (120, 480, 300, 50), (0, 180, 999, 100), (500, 480, 510, 100), (0, 180, 0, 0)],
)
def test_the_bar_of_a_phase_is_the_share_of_its_own_time(
    ada: User, started: int, due: int, now: int, share: int
) -> None:
    one = opened(ada)
    t0 = one.t0
    one.phases.filter(name="capture").update(
        started_at=t0 + timedelta(seconds=started), due_at=t0 + timedelta(seconds=due)
    )
    assert queries.phases(one, t0 + timedelta(seconds=now))[0].share == share


def test_a_phase_counts_down_then_up_and_stands_still_when_the_incident_is_closed(ada: User) -> None:
    one = opened(ada)

    def capture(seconds: int) -> tuple[str, str, bool]:
        found = queries.phases(one, one.t0 + timedelta(seconds=seconds))[0]
        return found.left, found.word, found.late

    assert capture(60) == ("2:00", "left", False)
    assert capture(252) == ("+1:12", "over", True)
    one.closed_at = one.t0 + timedelta(seconds=100)
    assert capture(9999) == ("1:20", "left", False)


def test_a_command_that_waits_for_a_second_person_is_among_what_needs_a_human(ada: User) -> None:
    incident = opened(ada, "decide")
    add_nodes(main(), "gpu-002", Login(), None)
    incident.nodes.set(main().nodes.all())
    act(incident, ada, "waiting", begun=False, expires_at=timezone.now() + timedelta(minutes=9, seconds=30))
    (need,) = [one for one in needs() if "second person" in one[1]]
    assert need[1].startswith("“kill -CONT 4242” on gpu-002 waits for a second person, 9:")
    Action.objects.update(state="declined")
    assert not [one for one in needs() if "second person" in one[1]]
