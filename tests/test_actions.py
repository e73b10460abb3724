"""Runbooks at work: each answer a decision; commands wait for a second person where work may be lost, and run once."""

from __future__ import annotations

import dataclasses
import json
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connections, transaction
from django.utils import timezone

from incidents import mending
from incidents.commands import command_of
from incidents.models import Action, Decision, Incident, Ranking, RunbookRun, User
from incidents.models.actions import OPEN
from incidents.queries import runbook as queries
from incidents.queries.lines import lines
from incidents.queries.timeline import broken_links
from incidents.services import actions, resolving, runbooks, verifying
from incidents.services.diagnosing import judge
from incidents.services.fleet import Login, Refused, add_nodes
from probes import catalog
from probes.remedies import Outcome
from tests.support.evidence import PID, STARTED, mapped, stopped_rank, store
from tests.support.fleets import main, person

pytestmark = [pytest.mark.django_db, pytest.mark.database]


@pytest.fixture
def ada() -> User:
    return person("ada", "responder")


@pytest.fixture
def sam() -> User:
    return person("sam", "commander")


@pytest.fixture
def incident(rung: list[int]) -> Incident:
    """Rank 1 on gpu-002 is stopped, and the verdict says so."""
    add_nodes(main(), "gpu-[001-002]", Login(), None)
    one = Incident.objects.create(fleet=main(), title="x", t0=timezone.now(), phase="decide")
    one.nodes.set(main().nodes.all())
    readings = stopped_rank("gpu-002")
    store(one, [*readings, mapped("gpu-002")])
    judge(one.pk)
    one.refresh_from_db()
    assert one.rankings.first().cause == "fw.rank_stopped"
    rung.clear()
    return one


def started(incident: Incident, by: User) -> RunbookRun:
    return runbooks.start(incident, by, "rank_stopped_or_missing", incident.rankings.first().pk, 0)


def argv_of(run: RunbookRun, option: str) -> list[str]:
    book = queries.runbook.of_json(run.body)
    found = next(one for one in book.steps[run.step].options if one.id == option)
    command = command_of(run.incident, run.subject["subject"], found)
    return list(command.argv) if command else []


def choose(run: RunbookRun, by: User, option: str, why: str = "", **more: Any) -> Decision:
    run.refresh_from_db()
    said = {"argv": argv_of(run, option), "step_id": run.step, "ranking_id": run.incident.rankings.first().pk, **more}
    return runbooks.choose(run.incident, by, "responder", run.pk, option_id=option, why=why, **said)


def told(incident: Incident) -> list[str]:
    return [event.kind for event in incident.events.order_by("seq") if event.kind not in ("readings", "ranking")]


def test_a_runbook_is_copied_into_the_record_and_proposed_by_the_verdict(incident: Incident, ada: User) -> None:
    lead = queries_lead(incident)
    assert [one.id for one in queries.panel(incident, lead, ada.pk).proposed] == ["rank_stopped_or_missing"]
    run = started(incident, ada)
    assert run.body == queries.runbook.load()["rank_stopped_or_missing"].as_json()
    assert (run.step, run.subject["cause"], run.subject["subject"]["node"]) == ("state", "fw.rank_stopped", "gpu-002")
    panel = queries.panel(incident, lead, ada.pk)
    assert panel.at_work is not None
    assert [one.key for one in panel.at_work.options] == ["1", "2", "3"]
    assert panel.at_work.options[0].typed == f"kill -CONT {run.subject['subject']['pid']}"
    assert [line.probe for line in panel.at_work.lines] == ["rank.stack"]


def queries_lead(incident: Incident) -> Any:
    from incidents.queries import diagnosis

    found = diagnosis.verdict(incident)
    assert found is not None
    return found.lead


def test_an_answer_is_a_decision_with_what_was_on_the_screen(incident: Incident, ada: User) -> None:
    run = started(incident, ada)
    decision = choose(run, ada, "stuck", "its stack moves")
    assert (decision.question, decision.chosen, decision.why, decision.phase) == (
        "Is the rank's process still there, and what holds it?",
        "It is there, runs, and does not come",
        "its stack moves",
        "decide",
    )
    assert [one["id"] for one in decision.options] == ["continue_rank", "stuck", "gone"]
    assert decision.ranking == incident.rankings.first()
    stacks = incident.runs.get().readings.get(probe="rank.stack")
    assert [stacks.pk, stacks.sha256] in decision.readings
    run.refresh_from_db()
    assert run.step == "stuck"
    shown = incident.runs.get().readings.get(probe="rank.flight_recorder")  # by this step, and no reason of the verdict
    assert [shown.pk, shown.sha256] not in decision.readings
    panel = queries.panel(incident, None, ada.pk)
    assert panel.at_work is not None
    assert str(shown.pk) in panel.at_work.seen.split(",")
    seen = [int(one) for one in panel.at_work.seen.split(",")]
    assert [shown.pk, shown.sha256] in choose(run, ada, "wait", seen=seen).readings
    assert list(broken_links(Incident.objects.get())) == []


def test_an_answer_pressed_twice_is_one_decision(incident: Incident, ada: User) -> None:
    run = started(incident, ada)
    first = choose(run, ada, "gone")
    assert runbooks.choose(incident, ada, "responder", run.pk, "state", "gone") == first
    with pytest.raises(Refused, match="answered a moment ago"):  # another answer from an old tab is not this one
        runbooks.choose(incident, ada, "responder", run.pk, "state", "stuck")
    assert Decision.objects.count() == 1


def test_who_answers_a_question_that_somebody_else_answered_is_told(incident: Incident, ada: User, sam: User) -> None:
    run = started(incident, ada)
    choose(run, ada, "gone")
    with pytest.raises(Refused, match="answered a moment ago: ada chose “It is gone”"):
        runbooks.choose(incident, sam, "commander", run.pk, "state", "stuck")


def test_a_safe_command_is_ready_at_once_and_a_worker_is_told(
    incident: Incident, ada: User, rung: list[int], django_capture_on_commit_callbacks: Any
) -> None:
    run = started(incident, ada)
    with django_capture_on_commit_callbacks(execute=True):
        decision = choose(run, ada, "continue_rank")
    action = decision.actions.get()
    assert (action.state, action.destructive, rung) == ("ready", False, [action.pk])
    pid = str(run.subject["subject"]["pid"])
    assert (action.argv, action.undo) == (["kill", "-CONT", pid], ["kill", "-STOP", pid])
    assert action.guard == {"pid": int(pid), "started": STARTED}


def test_a_command_that_is_another_by_now_is_refused(incident: Incident, ada: User) -> None:
    run = started(incident, ada)
    with pytest.raises(Refused, match="another by now"):
        choose(run, ada, "continue_rank", argv=["kill", "-CONT", "1"])
    assert not Action.objects.exists()
    assert not Decision.objects.exists()


def test_without_a_known_process_nothing_can_be_run_and_the_page_says_why(incident: Incident, ada: User) -> None:
    store(incident, [mapped("gpu-002", pid=4242)], "ranks")  # the rank was started again since
    run = started(incident, ada)
    with pytest.raises(Refused, match="not known which process rank 1 on gpu-002 is"):
        choose(run, ada, "continue_rank", argv=[])
    panel = queries.panel(incident, None, ada.pk)
    assert panel.at_work is not None
    assert panel.at_work.options[0].key == ""


def asked(incident: Incident, by: User, why: str = "it is stuck in a lock") -> Action:
    """The destructive command, waiting."""
    run = started(incident, by)
    choose(run, by, "stuck")
    return choose(run, by, "end_rank", why).actions.get()


def test_what_may_lose_work_needs_a_reason_and_a_second_person(incident: Incident, ada: User, sam: User) -> None:
    with pytest.raises(Refused, match="Say why"):
        asked(incident, ada, why=" ")
    action = choose(RunbookRun.objects.get(), ada, "end_rank", "stuck").actions.get()
    assert action.state == "waiting"
    assert action.expires_at == action.asked_at + timedelta(minutes=10)
    with pytest.raises(Refused, match="a second person"):
        actions.approve(incident, action.pk, ada)
    assert actions.begin(action.pk) is None
    actions.approve(incident, action.pk, sam)
    assert actions.begin(action.pk) is not None


def test_the_database_too_refuses_an_approval_by_who_asked(incident: Incident, ada: User) -> None:
    action = asked(incident, ada)
    for values in ({"state": "ready"}, {"state": "running", "approved_by": ada}):
        with pytest.raises(IntegrityError), transaction.atomic():
            Action.objects.filter(pk=action.pk).update(**values)


def test_after_ten_minutes_nobody_can_approve_and_the_question_is_asked_again(
    incident: Incident, ada: User, sam: User
) -> None:
    action = asked(incident, ada)
    Action.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    with pytest.raises(Refused, match="Nobody approved it in time"):
        actions.approve(incident, action.pk, sam)
    assert actions.sweep_actions() == 1
    action.refresh_from_db()
    assert (action.state, action.decision.runbook_run.step) == ("expired", "stuck")
    assert "Nobody approved it within 10 minutes" in lines(incident)[0].says


def test_who_asked_can_take_it_back_and_then_it_never_runs(incident: Incident, ada: User, sam: User) -> None:
    action = asked(incident, ada)
    actions.decline(incident, action.pk, ada)
    with pytest.raises(Refused, match="settled a moment ago: it is declined"):
        actions.approve(incident, action.pk, sam)
    assert actions.begin(action.pk) is None
    assert RunbookRun.objects.get().step == "stuck"


def ready(incident: Incident, by: User) -> Action:
    return choose(started(incident, by), by, "continue_rank").actions.get()


def test_it_is_begun_once(incident: Incident, ada: User) -> None:
    action = ready(incident, ada)
    assert actions.begin(action.pk) is not None
    assert actions.begin(action.pk) is None


@pytest.mark.django_db(transaction=True)
def test_of_workers_at_once_one_begins_it(incident: Incident, ada: User) -> None:
    action = ready(incident, ada)
    begun: list[bool] = []
    gate = threading.Barrier(6)

    def work() -> None:
        gate.wait(10)
        begun.append(actions.begin(action.pk) is not None)
        connections.close_all()

    workers = [threading.Thread(target=work) for _ in range(6)]
    for one in workers:
        one.start()
    for one in workers:
        one.join(30)
    assert sorted(begun) == [False] * 5 + [True]


def test_what_a_dead_worker_left_is_not_known_and_looked_at_never_run_again(
    incident: Incident, ada: User, rung: list[int], django_capture_on_commit_callbacks: Any
) -> None:
    action = ready(incident, ada)
    actions.begin(action.pk)
    Action.objects.update(begun_at=timezone.now() - timedelta(minutes=2))
    with django_capture_on_commit_callbacks(execute=True):
        assert actions.sweep_actions() == 1
    action.refresh_from_db()
    assert action.state == "unknown"
    assert "it is not known whether “kill -CONT" in action.says
    assert incident.runs.filter(suite="verify").count() == 1
    assert action.pk not in rung[:-1]
    assert (actions.sweep_actions(), actions.begin(action.pk)) == (0, None)


def test_an_end_that_comes_late_changes_nothing(incident: Incident, ada: User) -> None:
    action = ready(incident, ada)
    actions.begin(action.pk)
    actions.end(action.pk, Outcome("unknown", "lost"))
    actions.end(action.pk, Outcome("done", "it was run"))
    action.refresh_from_db()
    assert action.state == "unknown"
    assert told(incident).count("action_ended") == 1


def test_what_no_worker_took_in_two_minutes_is_not_run_any_more(incident: Incident, ada: User) -> None:
    action = ready(incident, ada)
    Action.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert actions.begin(action.pk) is None
    assert actions.sweep_actions() == 1
    action.refresh_from_db()
    assert (action.state, RunbookRun.objects.get().step) == ("expired", "state")
    assert "No worker took it within 2 minutes" in action.says


def test_what_waits_for_a_worker_can_still_be_taken_back(incident: Incident, ada: User, sam: User) -> None:
    action = ready(incident, ada)
    actions.decline(incident, action.pk, sam)
    assert actions.begin(action.pk) is None


def test_an_approval_pressed_twice_is_one(incident: Incident, ada: User, sam: User) -> None:
    action = asked(incident, ada)
    for _ in range(2):
        actions.approve(incident, action.pk, sam, "commander")
    assert told(incident).count("action_approved") == 1
    assert incident.events.get(kind="action_approved").payload["role"] == "commander"


def test_an_approval_that_came_in_time_is_not_undone_by_the_sweeper(
    incident: Incident, ada: User, sam: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    action = asked(incident, ada)
    Action.objects.update(expires_at=timezone.now() + timedelta(milliseconds=300))
    actions.approve(incident, action.pk, sam)
    assert actions._expire(action.pk) == 0
    assert actions.begin(action.pk) is not None


@pytest.mark.parametrize("ends", ["leave", "resolve"])
def test_what_waits_is_taken_back_with_the_end_of_what_asked_for_it(
    incident: Incident, ada: User, sam: User, ends: str
) -> None:
    action = asked(incident, ada)
    if ends == "leave":
        runbooks.leave(incident, sam, RunbookRun.objects.get().pk, "we do not end it")
    else:
        resolving.resolve(incident, sam, "other", "moved to another cluster")
    action.refresh_from_db()
    assert action.state == "declined"
    assert "Taken back by sam" in action.says
    if ends == "leave":
        assert RunbookRun.objects.get().ended_at is not None
        with pytest.raises(Refused, match="settled a moment ago"):
            actions.approve(incident, action.pk, sam)
    else:
        before = Incident.objects.get().last_seq
        Action.objects.update(expires_at=timezone.now() - timedelta(hours=1))
        assert actions.sweep_actions() == 0
        assert Incident.objects.get().last_seq == before, "a closed incident's record stays as it is"


def test_nothing_begins_on_a_closed_incident(incident: Incident, ada: User) -> None:
    action = ready(incident, ada)
    Incident.objects.update(closed_at=timezone.now())
    assert actions.begin(action.pk) is None


def test_an_option_that_may_lose_work_waits_also_where_its_command_is_harmless(incident: Incident, ada: User) -> None:
    run = started(incident, ada)
    body = run.body
    body["steps"]["state"]["options"][0]["destructive"] = True
    RunbookRun.objects.update(body=body)
    action = choose(run, ada, "continue_rank", "it must go on").actions.get()
    assert (action.state, action.destructive) == ("waiting", True)


def test_what_belongs_to_another_incident_is_not_there(incident: Incident, ada: User, sam: User) -> None:
    action, run = asked(incident, ada), RunbookRun.objects.get()
    other = Incident.objects.create(fleet=main(), title="y", t0=timezone.now(), phase="decide")
    other.nodes.set(main().nodes.all())
    for act in (actions.approve, actions.decline):
        with pytest.raises(Refused, match="no such command here"):
            act(other, action.pk, sam)
    with pytest.raises(Refused, match="not at work here"):
        runbooks.choose(other, ada, "responder", run.pk, run.step, "restart", "x", incident.rankings.first().pk)
    with pytest.raises(Refused, match="not of this incident"):
        choose(run, ada, "restart", "x", ranking_id=10_000)
    with pytest.raises(Refused, match="not here"):
        runbooks.start(other, ada, "rank_stopped_or_missing", incident.rankings.first().pk, 0)


def test_a_node_that_is_not_of_the_incident_gets_no_command(incident: Incident, ada: User) -> None:
    run = started(incident, ada)
    incident.nodes.remove(*incident.nodes.filter(name="gpu-002"))
    with pytest.raises(Refused, match="none of this incident's nodes"):
        choose(run, ada, "continue_rank", argv=["kill", "-CONT", str(PID)])


def test_two_processes_that_call_themselves_the_rank_get_no_command(incident: Incident, ada: User) -> None:
    reading = mapped("gpu-002")
    head, _, tail = reading.capture.out.decode().partition("\n\n==> golden15/orphans")
    row = json.loads(head.splitlines()[-1])
    double = f"{head}\n{json.dumps(row)}\n\n==> golden15/orphans{tail}"
    store(incident, [catalog.read(dataclasses.replace(reading.capture, out=double.encode()))], "ranks")
    run = started(incident, ada)
    with pytest.raises(Refused, match="not known which process"):
        choose(run, ada, "continue_rank", argv=[])


def test_a_runbook_about_a_verdict_that_is_gone_is_not_started(incident: Incident, ada: User) -> None:
    old = incident.rankings.first()
    body = {**old.body, "hypotheses": [one for one in old.body["hypotheses"] if one["cause"] in ("none", "unknown")]}
    Ranking.objects.create(
        incident=incident, at=timezone.now(), readings=99, cause="unknown", subject={}, probability=0.5, body=body
    )
    with pytest.raises(Refused, match="The verdict changed a moment ago"):
        runbooks.start(incident, ada, "rank_stopped_or_missing", old.pk, 0)


def test_a_bell_that_was_lost_is_rung_again(
    incident: Incident, ada: User, rung: list[int], django_capture_on_commit_callbacks: Any
) -> None:
    action = ready(incident, ada)
    Action.objects.update(asked_at=timezone.now() - timedelta(seconds=10))
    with django_capture_on_commit_callbacks(execute=True):
        actions.sweep_actions()
    assert rung == [action.pk]


def test_a_command_that_failed_asks_its_question_again(incident: Incident, ada: User) -> None:
    action = ready(incident, ada)
    actions.begin(action.pk)
    actions.end(action.pk, Outcome("failed", "Nothing was done on gpu-002: no route."))
    assert RunbookRun.objects.get().step == "state"
    assert not incident.runs.filter(suite="verify").exists()


def test_a_node_that_cannot_be_reached_is_told_and_nothing_was_done(incident: Incident, ada: User) -> None:
    """Through the real SSH side, in a thread of its own: gpu-002 is no name of any machine."""
    action = ready(incident, ada)
    mending.mend(action.pk)
    action.refresh_from_db()
    assert (action.state, action.state in OPEN) == ("failed", False)
    assert "Nothing was done on gpu-002" in action.says


def test_words_of_a_node_in_an_answer_stay_words(incident: Incident, ada: User) -> None:
    action = ready(incident, ada)
    actions.begin(action.pk)
    actions.end(action.pk, Outcome("failed", "\x1b[2Jgone\x00", "\x1b]0;x\x07<b>\x00"))
    action.refresh_from_db()
    assert (action.says, action.out) == ("gone\u2400", "<b>\u2400")


def test_on_a_closed_incident_nothing_is_started_chosen_or_approved(incident: Incident, ada: User, sam: User) -> None:
    action = asked(incident, ada)
    run = RunbookRun.objects.get()
    Incident.objects.update(closed_at=timezone.now())
    refused: list[Any] = [
        lambda: started(incident, ada),
        lambda: choose(run, ada, "restart", "it ended"),
        lambda: runbooks.leave(incident, ada, run.pk, "over"),
        lambda: runbooks.ask_for_step(incident, ada, run.pk),
        lambda: actions.approve(incident, action.pk, sam),
        lambda: verifying.look_if_it_advances(incident, ada),
    ]
    for one in refused:
        with pytest.raises(Refused, match="is closed"):
            one()


def test_one_runbook_at_a_time_and_it_can_be_left_with_a_reason(incident: Incident, ada: User, sam: User) -> None:
    run = started(incident, ada)
    assert started(incident, ada) == run
    with pytest.raises(Refused, match="ada started the runbook"):
        started(incident, sam)
    with pytest.raises(Refused, match="Say why"):
        runbooks.leave(incident, sam, run.pk, " ")
    runbooks.leave(incident, sam, run.pk, "it is the switch")
    assert started(incident, sam) != run


def test_a_step_asks_its_suite_of_the_blamed_node(incident: Incident, ada: User) -> None:
    run = started(incident, ada)
    runbooks.ask_for_step(incident, ada, run.pk)
    asked_run = incident.runs.first()
    assert (asked_run.suite, [node.name for node in asked_run.shards.get().nodes.all()]) == ("hang", ["gpu-002"])
    with pytest.raises(Refused, match="being asked already"):
        runbooks.ask_for_step(incident, ada, run.pk)


class TestLooks:
    def test_two_looks_and_then_one_line(self, incident: Incident, ada: User) -> None:
        assert verifying.look_if_it_advances(incident, ada) is not None
        assert verifying.look_if_it_advances(incident, ada) is None, "while looks are under way there are no others"
        self.end_look(incident)
        assert verifying.look_if_it_advances(incident, ada) is None, "the second look is still to come"
        assert verifying.sweep_looks() == 0, "the second look comes some seconds later"
        incident.runs.filter(suite="verify").update(finished_at=timezone.now() - timedelta(seconds=10))
        assert verifying.sweep_looks() == 1
        self.end_look(incident)
        assert verifying.sweep_looks() == 1
        assert verifying.sweep_looks() == 0
        (event,) = incident.events.filter(kind="training")
        second, first = incident.runs.filter(suite="verify")
        assert event.payload["state"] == "not known"
        assert (event.payload["first"], event.payload["run"]) == (first.pk, second.pk)

    def test_after_a_command_the_looks_begin_anew(self, incident: Incident, ada: User) -> None:
        """A first look from before it, beside a second from after it, would say that training went on."""
        verifying.look_if_it_advances(incident, ada)
        self.end_look(incident)
        action = ready(incident, ada)
        actions.begin(action.pk)
        actions.end(action.pk, Outcome("done", "ran"))
        assert incident.runs.filter(suite="verify").count() == 2
        self.end_look(incident)
        incident.runs.filter(suite="verify").update(finished_at=timezone.now() - timedelta(seconds=10))
        verifying.sweep_looks()
        self.end_look(incident)
        verifying.sweep_looks()
        (event,) = incident.events.filter(kind="training")
        runs = list(incident.runs.filter(suite="verify").order_by("pk").values_list("pk", flat=True))
        assert [event.payload["first"], event.payload["run"]] == runs[1:]

    def test_a_step_that_looks_asks_no_single_node(self, incident: Incident, ada: User) -> None:
        run = started(incident, ada)
        choose(run, ada, "gone")
        choose(run, ada, "by_itself")
        with pytest.raises(Refused, match="nothing to ask"):
            runbooks.ask_for_step(incident, ada, run.pk)

    def end_look(self, incident: Incident) -> None:
        from incidents.models import Shard
        from incidents.services import runs
        from incidents.services.recording import record
        from probes.transport import NodeEnd

        run = incident.runs.filter(suite="verify", finished_at=None).get()
        held = runs.claim(Shard.objects.get(run=run).pk)
        assert held is not None
        record(held, [mapped("gpu-002")], [NodeEnd(node.name, "", took_s=0.1) for node in held.nodes])
        runs.finish_shard(held)
