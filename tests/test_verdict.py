"""Verdicts: judged once per news from what is stored, told when they change, decided by people on what they saw."""

from __future__ import annotations

import hashlib
import re
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, connections
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from incidents.models import Decision, Incident, Ranking, Reading, User
from incidents.models.diagnosis import same
from incidents.queries import diagnosis
from incidents.queries.lines import lines
from incidents.queries.timeline import broken_links
from incidents.services import diagnosing
from incidents.services.deciding import decide_verdict
from incidents.services.diagnosing import judge
from incidents.services.fleet import Login, Refused, add_nodes
from probes.diagnosis import Diagnoser
from tests.support.evidence import read, stopped_rank, store
from tests.support.fleets import main, person
from tests.support.server import BASE

pytestmark = [pytest.mark.django_db, pytest.mark.database]

BAD_PORTS = ("gpu-002", "ib.ports", "h100_five_bad_ports")  # three of its ports are down
GOOD_PORTS = ("gpu-002", "ib.ports", "h100_connectx7")


@pytest.fixture
def incident() -> Incident:
    return opened("gpu-[001-002]")


@pytest.fixture
def ada() -> User:
    return person("ada", "responder")


def opened(nodes: str) -> Incident:
    add_nodes(main(), nodes, Login(), None)
    one = Incident.objects.create(fleet=main(), title="x", t0=timezone.now(), phase="triage")
    one.nodes.set(main().nodes.all())
    return one


def verdicts(incident: Incident) -> list[dict[str, Any]]:
    """What the timeline was told of verdicts, in order."""
    return [event.payload for event in incident.events.filter(kind="verdict").order_by("seq")]


def shown(incident: Incident) -> diagnosis.VerdictView:
    found = diagnosis.verdict(incident)
    assert found is not None
    return found


def decide(incident: Incident, by: User, chosen: str, why: str = "", **more: Any) -> Decision:
    """About what leads on the screen now, or what `more` says."""
    on_screen = shown(incident)
    asked = {"ranking_id": on_screen.ranking.pk, "index": on_screen.lead.index, **more}
    return decide_verdict(incident, by, "responder", chosen=chosen, why=why, **asked)


class TestJudging:
    def test_a_stopped_rank_is_named_with_node_and_what_it_explains(self, incident: Incident) -> None:
        store(incident, stopped_rank("gpu-002"))
        assert judge(incident.pk) == 1
        (told,) = verdicts(incident)
        assert told["cause"] == "fw.rank_stopped"
        assert (told["subject"]["rank"], told["subject"]["node"]) == (1, "gpu-002")
        assert told["probability"] > 0.9
        assert "is not in the collective that the others are in" in shown(incident).lead.consequences[0]
        assert list(broken_links(Incident.objects.get(pk=incident.pk))) == []

    def test_the_same_news_is_judged_once(self, incident: Incident) -> None:
        store(incident, stopped_rank("gpu-002"))
        assert [judge(incident.pk) for _ in range(3)] == [1, 0, 0]
        assert Ranking.objects.count() == 1

    def test_news_that_change_nothing_make_no_ranking_and_no_line(self, incident: Incident) -> None:
        store(incident, stopped_rank("gpu-002"))
        judge(incident.pk)
        seq = Incident.objects.get(pk=incident.pk).last_seq
        store(incident, stopped_rank("gpu-002"))
        assert judge(incident.pk) == 1
        assert (Ranking.objects.count(), len(verdicts(incident))) == (1, 1)
        told = incident.events.filter(seq__gt=seq).values_list("kind", flat=True)
        assert set(told) == {"readings", "suite_ended"}

    def test_a_first_judgement_that_names_nothing_is_no_line(self, incident: Incident) -> None:
        store(incident, [read("gpu-001", "ib.ports", "h100_connectx7")])
        judge(incident.pk)
        assert Ranking.objects.get().cause == "unknown"
        assert verdicts(incident) == []

    def test_a_later_reading_that_failed_takes_nothing_away(self, incident: Incident) -> None:
        store(incident, stopped_rank("gpu-002"))
        store(incident, [read("gpu-002", "rank.stack", outcome="timeout", why="no answer within 5 s")])
        judge(incident.pk)
        assert Ranking.objects.get().cause == "fw.rank_stopped"
        linked = {reason.reading or 0 for reason in shown(incident).lead.reasons}
        assert 0 not in linked
        assert set(Reading.objects.filter(pk__in=linked).values_list("outcome", flat=True)) == {"ok"}

    def test_a_later_reading_that_answered_counts(self, incident: Incident) -> None:
        store(incident, [read(*BAD_PORTS)])
        judge(incident.pk)
        store(incident, [read(*GOOD_PORTS)])
        judge(incident.pk)
        assert list(Ranking.objects.order_by("pk").values_list("cause", flat=True)) == ["ib.link_down", "unknown"]

    def test_small_steps_that_add_up_are_told(self, incident: Incident) -> None:
        """0.50, 0.57, 0.64: the second step is small, and together they are not."""
        told = []
        for share in (0.50, 0.57, 0.64):
            said = {"cause": "ib.link_down", "subject": {"node": "gpu-002"}, "probability": share, "says": "x"}
            with_body = {"body": {"hypotheses": [said]}, "readings": 1, "at": timezone.now()}
            row = Ranking.objects.create(incident=incident, **with_body, **{k: said[k] for k in said if k != "says"})
            diagnosing._tell(incident, row, "x")
            told.append(len(verdicts(incident)))
        assert told == [1, 1, 2]
        assert [line.says for line in lines(incident)] == ["Verdict surer: x (0.64)", "Verdict: x (0.50)"]

    @pytest.mark.django_db(transaction=True)
    def test_workers_at_once_judge_once(self, incident: Incident) -> None:
        store(incident, stopped_rank("gpu-002"))
        counts, start = [], threading.Barrier(4)

        def work() -> None:
            try:
                start.wait(10)
                counts.append(judge(incident.pk))
            finally:
                connections.close_all()

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sorted(counts) == [0, 0, 0, 1]
        assert Ranking.objects.count() == 1

    def test_while_another_worker_judges_nobody_does_and_its_lease_ends(self, incident: Incident) -> None:
        store(incident, stopped_rank("gpu-002"))
        Incident.objects.filter(pk=incident.pk).update(judging_until=timezone.now() + diagnosing.LEASE)
        assert judge(incident.pk) == 0
        Incident.objects.filter(pk=incident.pk).update(judging_until=timezone.now() - timedelta(seconds=1))
        assert judge(incident.pk) == 1
        assert Incident.objects.get(pk=incident.pk).judging_until is None

    def test_a_worker_that_was_too_slow_leaves_the_lease_of_the_next_alone(
        self, incident: Incident, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store(incident, stopped_rank("gpu-002"))
        others = timezone.now() + timedelta(minutes=5)

        def overtaken(_: int) -> int:
            Incident.objects.filter(pk=incident.pk).update(judging_until=others)
            return 0

        monkeypatch.setattr(diagnosing, "_judge", overtaken)
        judge(incident.pk)
        assert Incident.objects.get(pk=incident.pk).judging_until == others

    def test_a_judgement_that_stops_gives_the_lease_back(
        self, incident: Incident, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def stops(*_: object) -> None:
            raise RuntimeError("stopped")

        store(incident, stopped_rank("gpu-002"))
        with monkeypatch.context() as patch:
            patch.setattr(Diagnoser, "diagnose", stops)
            with pytest.raises(RuntimeError):
                judge(incident.pk)
        assert judge(incident.pk) == 1

    def test_what_comes_in_while_a_worker_judges_is_judged_by_it(
        self, incident: Incident, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store(incident, [read(*GOOD_PORTS)])
        real, more = Diagnoser.diagnose, [stopped_rank("gpu-002")]

        def slow(*said: Any) -> Any:
            found = real(*said)
            if more:
                store(incident, more.pop())
            return found

        monkeypatch.setattr(Diagnoser, "diagnose", slow)
        assert judge(incident.pk) == 2
        assert Incident.objects.get(pk=incident.pk).rankings.first().cause == "fw.rank_stopped"  # type: ignore[union-attr]

    def test_only_new_readings_are_read_again(self, incident: Incident) -> None:
        store(incident, stopped_rank("gpu-002"))
        judge(incident.pk)
        store(incident, [read(*GOOD_PORTS)])
        with CaptureQueriesContext(connection) as queries:
            judge(incident.pk)
        (facts,) = (one["sql"] for one in queries if '"facts"' in one["sql"] and '"out"' not in one["sql"])
        assert len(re.search(r"IN \(([^)]*)\)", facts)[1].split(",")) == 1  # type: ignore[index]

    def test_a_judgement_from_nothing_says_the_same_as_the_next_one(self, incident: Incident) -> None:
        store(incident, stopped_rank("gpu-002"))
        judge(incident.pk)
        store(incident, [read(*GOOD_PORTS)])
        judge(incident.pk)
        again = Incident.objects.get(pk=incident.pk).rankings.first().body  # type: ignore[union-attr]
        diagnosing.forget()
        Incident.objects.filter(pk=incident.pk).update(judged_reading=0)
        judge(incident.pk)
        assert Ranking.objects.filter(incident=incident).count() <= 2
        assert Incident.objects.get(pk=incident.pk).rankings.first().body == again  # type: ignore[union-attr]

    def test_the_sweeper_judges_what_nobody_judged(self, incident: Incident) -> None:
        assert diagnosing.sweep_unjudged() == 0
        store(incident, stopped_rank("gpu-002"))
        Incident.objects.filter(pk=incident.pk).update(judging_until=timezone.now() + diagnosing.LEASE)
        assert diagnosing.sweep_unjudged() == 0, "somebody does"
        Incident.objects.filter(pk=incident.pk).update(judging_until=None)
        assert diagnosing.sweep_unjudged() == 1
        assert verdicts(incident)[0]["cause"] == "fw.rank_stopped"
        assert diagnosing.sweep_unjudged() == 0
        store(incident, [read(*GOOD_PORTS)])
        Incident.objects.filter(pk=incident.pk).update(closed_at=timezone.now())
        assert diagnosing.sweep_unjudged() == 0, "it is over"


class TestDeciding:
    @pytest.fixture
    def incident(self, incident: Incident) -> Incident:
        """Rank 1 is stopped, which is very likely; and three ports are down."""
        store(incident, [read("gpu-002", "rank.process", "stopped"), read(*BAD_PORTS)])
        judge(incident.pk)
        return incident

    def test_an_accepted_verdict_says_by_whom_and_keeps_what_was_seen(self, incident: Incident, ada: User) -> None:
        before = shown(incident)
        decision = decide(incident, ada, "accept")
        assert (decision.chosen, decision.options, decision.role) == ("accept", ["accept", "not this"], "responder")
        assert (decision.phase, decision.ranking) == ("triage", before.ranking)
        row = Reading.objects.get(probe="rank.process")
        assert decision.readings == [[row.pk, row.sha256]]
        assert row.sha256 != "0" * 64
        event = incident.events.get(kind="decision")
        assert event.payload["readings"] == decision.readings
        assert event.actor == ada
        after = shown(incident)
        assert after.lead.accepted
        assert after.lead.decision == decision
        assert lines(incident)[0].who == "ada"
        assert lines(incident)[0].says == f"accepted the verdict “{before.lead.says}”."

    def test_the_hash_in_a_decision_is_that_of_the_output(self, incident: Incident, ada: User) -> None:
        raw = (BASE / "tests/fixtures/rank.process/stopped.out").read_bytes()
        assert decide(incident, ada, "accept").readings[0][1] == hashlib.sha256(raw).hexdigest()

    @pytest.mark.parametrize("why", ["", "  \n"])
    def test_not_this_needs_a_reason(self, incident: Incident, ada: User, why: str) -> None:
        with pytest.raises(Refused, match="Say why"):
            decide(incident, ada, "not this", why)
        assert Decision.objects.count() == 0

    def test_a_rejected_hypothesis_gives_way_to_the_next(self, incident: Incident, ada: User) -> None:
        first = shown(incident).lead
        decide(incident, ada, "not this", "I stopped it myself to look at it")
        now = shown(incident)
        assert (first.cause, now.lead.cause) == ("fw.rank_stopped", "ib.link_down")
        hypotheses = now.ranking.body["hypotheses"]
        left = 1 - next(one["probability"] for one in hypotheses if one["cause"] == "fw.rank_stopped")
        its = next(one["probability"] for one in hypotheses if one["cause"] == "ib.link_down")
        assert now.lead.probability == pytest.approx(its / left, abs=0.01), "it has its share of what is left"
        (rejected,) = (one for one in now.others if one.rejected)
        assert (rejected.says, rejected.decision.why) == (first.says, "I stopped it myself to look at it")  # type: ignore[union-attr]
        assert lines(incident)[0].says == (
            f"says that it is not this: “{first.says}”. Why: “I stopped it myself to look at it”"
        )

    def test_when_all_that_was_named_is_rejected_the_page_does_not_say_that_nothing_is_wrong(
        self, incident: Incident, ada: User
    ) -> None:
        for _ in range(6):  # a stopped rank, and five ports
            assert shown(incident).lead.named
            decide(incident, ada, "not this", "looked at it")
        lead = shown(incident).lead
        assert (lead.cause, lead.says) == ("unknown", diagnosis.NOTHING_ELSE)

    def test_not_even_when_nothing_wrong_is_likelier_than_something_else(self, incident: Incident, ada: User) -> None:
        """As where the ranks' recorders show work that ended a moment ago."""
        shares = {"ib.link_down": 0.5, "none": 0.4, "unknown": 0.1}
        plain: dict[str, Any] = {"because": [], "against": [], "would_change": [], "consequences": [], "says": "x"}
        subject = {"node": "gpu-001", "hca": "mlx5_0", "port": 1}
        body = {
            "hypotheses": [
                {**plain, "cause": cause, "subject": subject if cause == "ib.link_down" else {}, "probability": share}
                for cause, share in shares.items()
            ],
            "paths": {},
        }
        more = {"cause": "ib.link_down", "subject": subject, "probability": 0.5, "readings": 1, "body": body}
        Ranking.objects.create(incident=incident, at=timezone.now(), **more)
        decide(incident, ada, "not this", "it has no cable")
        assert shown(incident).lead.cause == "unknown"

    @pytest.mark.parametrize(
        ("one", "other", "are"),
        [
            ({"rank": 1, "node": "a", "pid": 9}, {"rank": 1, "node": "a", "pid": 12}, True),
            ({"rank": 1}, {"rank": 1, "node": "a"}, True),
            ({"rank": 1, "node": "a"}, {"rank": 2, "node": "a"}, False),
            ({"rank": 1, "node": "a"}, {"node": "a", "hca": "mlx5_0"}, False),
            ({}, {"node": "a"}, False),
            ({}, {}, True),
        ],
    )
    def test_the_same_thing_is_known_by_its_subject_but_for_the_process(
        self, one: dict[str, Any], other: dict[str, Any], are: bool
    ) -> None:
        said = [{"cause": "x", "subject": subject} for subject in (one, other)]
        assert same(*said) is same(*reversed(said)) is are
        assert not same(said[0], {**said[0], "cause": "y"})

    def test_what_was_rejected_stays_so_when_new_evidence_comes(self, incident: Incident, ada: User) -> None:
        decide(incident, ada, "not this", "looked at it")
        store(incident, stopped_rank("gpu-002"))  # the same rank, as another process
        judge(incident.pk)
        assert shown(incident).ranking.cause == "fw.rank_stopped"
        assert shown(incident).lead.cause != "fw.rank_stopped"

    def test_a_change_of_mind_is_a_new_decision_with_a_reason(self, incident: Incident, ada: User) -> None:
        rejected = shown(incident)
        decide(incident, ada, "not this", "looked at it")
        place: dict[str, Any] = {"ranking_id": rejected.ranking.pk, "index": rejected.lead.index}
        with pytest.raises(Refused, match="ada said that it is not this"):
            decide(incident, ada, "accept", **place)
        decide(incident, ada, "accept", "looked at the wrong node", **place)
        assert [one.chosen for one in Decision.objects.order_by("pk")] == ["not this", "accept"]
        assert shown(incident).lead.says == rejected.lead.says
        assert list(broken_links(Incident.objects.get(pk=incident.pk))) == []

    def test_a_button_pressed_twice_decides_once_and_two_people_decide_twice(
        self, incident: Incident, ada: User
    ) -> None:
        for by in (ada, ada, person("sam", "responder")):
            decide(incident, by, "accept")
        assert [one.by.username for one in Decision.objects.order_by("pk")] == ["ada", "sam"]
        assert incident.events.filter(kind="decision").count() == 2

    def test_what_leads_is_what_was_accepted_and_stronger_evidence_is_said(self, incident: Incident, ada: User) -> None:
        first = shown(incident)
        (port, *_) = (one for one in first.others if one.cause == "ib.link_down")
        decide(incident, ada, "accept", "I see the cable on the floor", index=port.index)
        now = shown(incident)
        assert now.lead.says == port.says
        assert now.stronger is not None
        assert now.stronger.says == first.lead.says

    def test_an_accepted_cause_that_the_evidence_names_no_more_is_said(self, incident: Incident, ada: User) -> None:
        says = shown(incident).lead.says
        decide(incident, ada, "accept")
        store(incident, [read("gpu-002", "rank.process", "training")])
        judge(incident.pk)
        now = shown(incident)
        assert now.lead.cause == "ib.link_down"
        assert now.gone is not None
        assert now.gone.subject["says"] == says

    def test_a_ranking_that_is_old_is_refused_when_its_verdict_is_gone(self, incident: Incident, ada: User) -> None:
        old = shown(incident)
        store(incident, [read("gpu-002", "rank.process", "training")])
        judge(incident.pk)
        place: dict[str, Any] = {"ranking_id": old.ranking.pk, "index": old.lead.index}
        with pytest.raises(Refused, match="changed a moment ago"):
            decide(incident, ada, "accept", **place)

    def test_a_ranking_that_is_old_is_taken_while_its_verdict_is_there(self, incident: Incident, ada: User) -> None:
        old = shown(incident)
        store(incident, stopped_rank("gpu-002"))
        judge(incident.pk)
        assert shown(incident).ranking != old.ranking
        place: dict[str, Any] = {"ranking_id": old.ranking.pk, "index": old.lead.index}
        assert decide(incident, ada, "accept", **place).ranking == old.ranking
        assert shown(incident).lead.accepted

    def test_what_is_not_there_cannot_be_decided(self, incident: Incident, ada: User) -> None:
        other = opened("gpu-002")
        store(other, [read(*GOOD_PORTS)])
        judge(other.pk)
        elsewhere = shown(other).ranking.pk
        for wrong in ({"index": 99}, {"index": -1}, {"ranking_id": elsewhere}, {"chosen": "maybe"}):
            with pytest.raises(Refused, match="not here"):
                decide_verdict(
                    incident,
                    ada,
                    "responder",
                    **{"ranking_id": shown(incident).ranking.pk, "index": 0, "chosen": "accept", **wrong},  # type: ignore[arg-type]
                )
        with pytest.raises(Refused, match="no cause to decide"):
            decide(other, ada, "accept")
        Incident.objects.filter(pk=incident.pk).update(closed_at=timezone.now())
        with pytest.raises(Refused, match="closed"):
            decide(incident, ada, "accept")
        assert Decision.objects.count() == 0


class TestThePage:
    @pytest.fixture
    def client(self, client: Client, ada: User) -> Client:
        client.force_login(ada)
        return client

    def page(self, client: Client, incident: Incident) -> str:
        return client.get(f"/incidents/{incident.pk}").content.decode()

    def test_before_the_first_judgement_there_are_no_panels(self, client: Client, incident: Incident) -> None:
        store(incident, stopped_rank("gpu-002"))
        page = self.page(client, incident)
        assert "verdict-title" not in page
        assert "paths-title" not in page
        judge(incident.pk)
        page = self.page(client, incident)
        assert "verdict-title" in page
        assert "paths-title" in page

    def test_every_reason_and_step_links_to_its_reading(self, client: Client, incident: Incident) -> None:
        store(incident, [*stopped_rank("gpu-002"), read("gpu-001", "gpu.state", outcome="timeout", why="5 s")])
        judge(incident.pk)
        view = shown(incident)
        assert view.lead.reasons
        by_reading = dict(Reading.objects.values_list("pk", "probe"))
        for reason in view.lead.reasons:
            assert reason.reading is not None
            assert by_reading[reason.reading] == reason.label.replace(" ", ".", 1).replace(" ", "_")
        steps = {step.question: step for lane in view.lanes for path in lane.paths for step in path.steps}
        assert by_reading[steps["Is every rank there, and running?"].reading or 0] == "rank.stack"
        assert by_reading[steps["Does every GPU answer?"].reading or 0] == "gpu.state"
        page = self.page(client, incident)
        for reason in view.lead.reasons:
            assert f'href="/incidents/{incident.pk}/evidence/{reason.reading}"' in page

    def test_a_verdict_that_names_nothing_says_what_is_missing_and_why(
        self, client: Client, incident: Incident
    ) -> None:
        store(incident, [read("gpu-001", "gpu.state", outcome="unreachable", why="nobody answers")])
        judge(incident.pk)
        view = shown(incident)
        assert (view.lead.cause, view.lead.says) == ("unknown", "The evidence does not decide")
        gaps = {gap.why: gap.titles for gap in view.gaps}
        assert len(gaps) == len(view.gaps) <= 6
        assert gaps["gpu.state on gpu-001: unreachable: nobody answers"] == "GPU fault"
        page = self.page(client, incident)
        assert "gpu.state on gpu-001: unreachable: nobody answers" in page
        assert page.count("Not known") == len(gaps)

    def test_what_differs_between_nodes_is_listed_with_the_odd_nodes_readings(
        self, client: Client, incident: Incident
    ) -> None:
        cases = {"gpu-001": "updated_without_reboot", "gpu-002": "no_gpu"}
        store(incident, [read(node, "host.versions", case) for node, case in cases.items()])
        judge(incident.pk)
        page = self.page(client, incident)
        assert "Differences between nodes" in page
        assert "kernel: 5.15.0-1063-nvidia on gpu-001, 6.18.44-fc-v657 on gpu-002" in page
        row = Reading.objects.get(node__name="gpu-002", probe="host.versions")
        assert f'href="/incidents/{incident.pk}/evidence/{row.pk}"' in page

    def test_hostile_words_of_a_node_stay_words(self, client: Client, incident: Incident) -> None:
        store(incident, [read("gpu-001", "gpu.state", outcome="failed", why="<script>alert(1)</script>")])
        judge(incident.pk)
        page = self.page(client, incident)
        assert "<script>alert" not in page
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page

    def test_the_form_decides_and_what_is_refused_is_said(self, client: Client, incident: Incident) -> None:
        store(incident, stopped_rank("gpu-002"))
        judge(incident.pk)
        view = shown(incident)
        form = {"ranking": view.ranking.pk, "index": view.lead.index, "chosen": "not this", "why": " "}
        path = f"/incidents/{incident.pk}/verdict"
        answer = client.post(path, form, follow=True)
        assert "Say why it is not this" in answer.content.decode()
        for nonsense in ({}, {"ranking": "²", "index": "x"}, {"ranking": "9" * 40, "index": "0", "chosen": "accept"}):
            assert "not here" in client.post(path, nonsense, follow=True).content.decode()
        answer = client.post(path, {**form, "chosen": "accept"}, follow=True)
        assert "<b>ada</b> accepted this" in answer.content.decode()
        assert 'data-hotkey="a"' not in answer.content.decode()

    def test_a_viewer_sees_the_verdict_and_cannot_decide(self, client: Client, incident: Incident, ada: User) -> None:
        store(incident, stopped_rank("gpu-002"))
        judge(incident.pk)
        ada.memberships.update(role="viewer")
        page = self.page(client, incident)
        assert "is stopped" in page
        assert f"/incidents/{incident.pk}/verdict" not in page
        form = {"ranking": shown(incident).ranking.pk, "index": 0, "chosen": "accept"}
        assert client.post(f"/incidents/{incident.pk}/verdict", form).status_code == 403
        client.force_login(person("eve", None))
        assert client.post(f"/incidents/{incident.pk}/verdict", form).status_code == 404
        assert Decision.objects.count() == 0

    def test_the_page_costs_as_many_queries_with_64_nodes_as_with_two(self, client: Client) -> None:
        counts = []
        for nodes in ("gpu-[001-002]", "gpu-[001-064]"):
            one = opened(nodes)
            names = list(one.nodes.values_list("name", flat=True))
            store(one, [*stopped_rank("gpu-002"), *(read(name, "ib.ports", "h100_five_bad_ports") for name in names)])
            judge(one.pk)
            self.page(client, one)
            with CaptureQueriesContext(connection) as queries:
                self.page(client, one)
            counts.append(len(queries))
        assert counts[0] == counts[1] <= 40
