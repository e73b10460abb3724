"""The review: every number with how it came about, what happened when, who decided what; as a page and as Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from markdown_it import MarkdownIt

from incidents import lanes
from incidents.lanes import Span
from incidents.models import Decision, Incident, Ranking, Reading, User
from incidents.queries.review import Fact, Review, review
from incidents.queries.review.markdown import code, markdown, text
from incidents.services import notes, response
from incidents.services.deciding import decide_verdict
from incidents.services.diagnosing import judge
from incidents.services.fleet import Login, add_nodes
from incidents.services.resolving import resolve
from probes import catalog
from probes.core import Capture, clean
from tests.support.evidence import read, stopped_rank, store
from tests.support.fleets import main, person
from tests.support.reviews import act, step, told_training

pytestmark = [pytest.mark.django_db, pytest.mark.database]

T0 = datetime(2026, 11, 29, 14, 2, 52, tzinfo=UTC)
GPUS = 8  # of gpu-001 and of gpu-002 each, see the recorded output
KEY = "6f1c0e8e-6f5b-4f0e-9d51-0d5fd3f8c0aa"
HOSTILE = "a|b `c` [d](http://e) <script>f</script> **g** __h__ ~~i~~ ![j](k) &lt; $l$ \\| www.m.n"
HOSTILE += "\n# o\n| p |\n```\n- q"

At = Callable[[float], None]


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> At:
    """The server's clock, in seconds from T0."""

    def turn(seconds: float) -> None:
        monkeypatch.setattr(timezone, "now", lambda: T0 + timedelta(seconds=seconds))

    turn(0)
    return turn


@pytest.fixture
def ada() -> User:
    return person("ada", "commander")


@pytest.fixture
def incident(at: At) -> Incident:
    """Opened by an alert that says that it began nine seconds before."""
    add_nodes(main(), "gpu-[001-002]", Login(), None)
    nodes = list(main().nodes.all())
    job = response.save_job(main(), "llm-70b-run7", nodes)
    return response.open_incident(main(), job, nodes, None, impact_at=T0 - timedelta(seconds=9))


def responded(incident: Incident, ada: User, at: At) -> Incident:
    """A response from end to end: named at 0:20, accepted at 3:50, continued at 6:02, advancing at 11:24."""
    at(20)
    gpus = [read(node, "gpu.state", EIGHT) for node in ("gpu-001", "gpu-002")]
    store(incident, [*stopped_rank("gpu-002"), *gpus], suite="capture")
    judge(incident.pk)
    at(134)
    incident = response.advance(incident, ada, "all nodes answered")
    at(230)
    decide_verdict(incident, ada, "commander", Ranking.objects.latest("pk").pk, 0, "accept", "py-spy shows it")
    at(240)
    incident = response.advance(incident, ada, "the cause is known")
    at(310)
    made = step(incident, ada, "How do we get going?", "Continue the rank", ("Restart", "Wait 2 min"), "it loses least")
    at(362)
    bob = person("bob", "responder")
    act(incident, ada, "done", decision=made, says="exit 0 in 0.4 s", approved_by=bob, approved_at=timezone.now())
    at(600)
    notes.add_note(incident, bob, "it prints steps again", KEY)
    at(684)
    told_training(incident, "advances", "step 41203 after 41200 on every rank")
    at(700)
    return resolve(incident, ada, "training again", "")


EIGHT = "h100_535_power_brake"  # `Attached GPUs : 8` stands in it


def fact(found: Review, name: str) -> Fact:
    (one,) = [one for one in found.facts if name in one.name]
    return one


class TestNumbers:
    def test_each_is_the_time_between_what_it_names(self, incident: Incident, ada: User, at: At) -> None:
        found = review(responded(incident, ada, at))
        assert [(one.value, one.name) for one in found.facts] == [
            ("0:09", "from the first sign to the incident"),
            ("0:20", "from T0 to the right verdict"),
            ("3:50", "from T0 to the first decision"),
            ("11:24", "from T0 to training again"),
            (f"{2 * GPUS * (684 + 9) / 3600:.1f} GPU·h", "GPU time lost"),
        ]

    def test_each_says_how_and_names_the_events_it_rests_on(self, incident: Incident, ada: User, at: At) -> None:
        found = review(responded(incident, ada, at))
        kinds = dict(incident.events.values_list("seq", "kind"))
        told = [[kinds[seq] for seq in one.events] for one in found.facts]
        assert told == [["declared"], ["verdict", "decision"], ["decision"], ["training"], ["declared", "training"]]
        assert fact(found, "lost").how.startswith(f"{2 * GPUS} GPUs × 11:33 idle, from impact, to training again")
        assert "ada accepted at T+3:50 led for the first time" in fact(found, "verdict").how

    def test_what_is_not_known_is_said_so_and_is_never_nought(self, incident: Incident) -> None:
        Incident.objects.update(impact_at=None)
        found = review(Incident.objects.get())
        assert {one.value for one in found.facts} == {"not known"}
        assert [one.how for one in found.facts] == [
            "opened by an alert; nothing says since when training stood still",
            "right is what people accepted, and nobody accepted a verdict",
            "no decision was recorded",
            "no reading after the last action says that training advances",
            "no node told how many GPUs it has",
        ]

    def test_gpus_that_one_node_did_not_tell_make_it_at_least(self, incident: Incident, at: At) -> None:
        dead = read("gpu-002", "gpu.state", outcome="unreachable", why="no route")
        store(incident, [read("gpu-001", "gpu.state", EIGHT), dead])
        at(3591)
        told_training(incident, "advances")
        found = fact(review(Incident.objects.get()), "lost")
        assert found.value == f"≥ {GPUS:.1f} GPU·h"
        assert "At least: 1 of 2 nodes did not tell their GPUs" in found.how

    def test_a_node_without_gpus_has_told_it(self, incident: Incident, at: At) -> None:
        none = read("gpu-002", "gpu.state", outcome="absent", why="no GPU on the PCI bus")
        store(incident, [read("gpu-001", "gpu.state", EIGHT), none])
        at(3591)
        told_training(incident, "advances")
        assert fact(review(Incident.objects.get()), "lost").value == f"{GPUS:.1f} GPU·h"

    def test_gpus_that_the_driver_counts_and_the_output_does_not_show_are_counted(
        self, incident: Incident, at: At
    ) -> None:
        """`Attached GPUs : 8`, and of those only the first is shown: the output was cut."""
        whole = read("gpu-001", "gpu.state", EIGHT).capture.text
        first, second = (found.start() for found in list(re.finditer(r"^GPU [0-9A-F]{8}:", whole, re.MULTILINE))[:2])
        assert re.search(rf"^Attached GPUs\s+: {GPUS}$", whole[:first], re.MULTILINE)
        cut = catalog.read(Capture("gpu-001", "gpu.state", "ok", whole[:second].encode()))
        assert len(cut.facts.gpus) == 1
        none = read("gpu-002", "gpu.state", outcome="absent", why="no GPU on the PCI bus")
        store(incident, [cut, none])
        at(3591)
        told_training(incident, "advances")
        assert fact(review(Incident.objects.get()), "lost").value == f"{GPUS:.1f} GPU·h"

    def test_a_node_whose_driver_does_not_answer_has_not_told_its_gpus(self, incident: Incident, at: At) -> None:
        """nvidia-smi says only that library and driver do not fit: that is not a node without GPUs."""
        store(incident, [read("gpu-001", "gpu.state", EIGHT), read("gpu-002", "gpu.state", "driver_mismatch")])
        at(3591)
        told_training(incident, "advances")
        found = fact(review(Incident.objects.get()), "lost")
        assert found.value == f"≥ {GPUS:.1f} GPU·h"
        assert "At least: 1 of 2 nodes did not tell their GPUs" in found.how

    def test_the_right_verdict_counts_from_when_it_first_led(self, incident: Incident, ada: User, at: At) -> None:
        """Link down leads first; the stopped rank comes at 1:00, is surer at 1:40, accepted at 2:00."""
        at(20)
        store(incident, [read("gpu-001", "ib.ports", "h100_five_bad_ports")])
        judge(incident.pk)
        at(60)
        store(incident, stopped_rank("gpu-002"))
        judge(incident.pk)
        ranking = Ranking.objects.latest("pk")
        assert (Ranking.objects.earliest("pk").cause, ranking.cause) == ("ib.link_down", "fw.rank_stopped")
        at(100)
        ranked(incident, ranking.cause, ranking.subject, 0.99)
        at(120)
        decide_verdict(incident, ada, "commander", ranking.pk, 0, "accept")
        assert fact(review(Incident.objects.get()), "verdict").value == "1:00"

    def test_what_was_taken_back_is_not_the_right_one(self, incident: Incident, ada: User, at: At) -> None:
        store(incident, stopped_rank("gpu-002"))
        judge(incident.pk)
        ranking = Ranking.objects.latest("pk").pk
        decide_verdict(incident, ada, "commander", ranking, 0, "accept")
        at(30)
        decide_verdict(incident, ada, "commander", ranking, 0, "not this", "I stopped it")
        found = review(Incident.objects.get())
        assert fact(found, "verdict").value == "not known"
        assert found.cause is None

    def test_training_again_is_not_what_was_read_before_the_last_action(
        self, incident: Incident, ada: User, at: At
    ) -> None:
        at(100)
        told_training(incident, "advances")
        at(200)
        act(incident, ada, "done")
        assert fact(review(Incident.objects.get()), "again").value == "not known"
        at(300)
        told_training(incident, "advances")
        at(400)
        told_training(incident, "advances")
        assert fact(review(Incident.objects.get()), "again").value == "5:00"


class TestLanes:
    def test_every_lane_tells_what_happened_in_it(self, incident: Incident, ada: User, at: At) -> None:
        found = review(responded(incident, ada, at))

        def lane(name: str) -> list[tuple[float, float | None, str]]:
            spans = [one for one in found.spans if one.lane == name]
            since = [(one.start - T0).total_seconds() for one in spans]
            until = [(one.end - T0).total_seconds() if one.end else None for one in spans]
            return list(zip(since, until, (one.label for one in spans), strict=True))

        assert lane("Phase") == [(0, 134, "Capture 2:14"), (134, 240, "Triage 1:46"), (240, 700, "Decide & act 7:40")]
        assert lane("Clock rule") == [(0, 180, "due T+3:00"), (180, 480, "due T+8:00"), (480, 900, "due T+15:00")]
        assert [one[:2] for one in lane("Verdict")] == [(20, 700)]
        assert [(one[0], one[2]) for one in lane("People")] == [
            (134, "→ Triage"),
            (230, "accept"),
            (240, "→ Decide & act"),
            (310, "Continue the rank"),
            (600, "note"),
            (700, "closes"),
        ]
        assert lane("Job") == [
            (-9, 362, "standing"),
            (362, 684, "after continue_rank on gpu-002"),
            (684, 700, "advancing"),
        ]
        assert [one[2] for one in lane("Probes")] == ["capture · 2 nodes", "capture · 2 nodes"]

    def test_rankings_that_say_the_same_are_one_span_with_both_shares(self, incident: Incident, at: At) -> None:
        for seconds, share in ((10, 0.41), (20, 0.80), (30, 0.93)):
            at(seconds)
            ranked(incident, "ib.link_down", {"node": "gpu-001", "port": 1}, share)
        at(40)
        ranked(incident, "fw.rank_stopped", {"rank": 1}, 0.9)
        verdicts = [one for one in review(Incident.objects.get()).spans if one.lane == "Verdict"]
        assert [one.says for one in verdicts] == [
            "ib.link_down it is (0.41, at the end 0.93)",
            "fw.rank_stopped it is (0.90)",
        ]
        assert verdicts[0].end == verdicts[1].start == T0 + timedelta(seconds=40)

    def test_a_phase_over_its_time_is_marked_and_not_only_coloured(self, incident: Incident, ada: User, at: At) -> None:
        at(200)
        response.advance(incident, ada, "late")
        first = review(Incident.objects.get()).spans[0]
        assert (first.label, first.says, first.level) == ("Capture 3:20 ▲ late", "Capture: 3:20, over its time", "warn")

    def test_without_an_alert_or_a_reading_it_is_not_known_whether_the_job_stands(self, incident: Incident) -> None:
        Incident.objects.update(impact_at=None)
        (job,) = [one for one in review(Incident.objects.get()).spans if one.lane == "Job"]
        assert (job.label, job.level) == ("not known whether it advances", "unknown")


def ranked(incident: Incident, cause: str, subject: dict[str, object], share: float) -> Ranking:
    """A ranking made by hand."""
    said = {"cause": cause, "subject": subject, "probability": share, "says": f"{cause} it is"}
    body = {"hypotheses": [{**said, "because": [], "against": [], "would_change": [], "consequences": []}], "paths": {}}
    kept = {"cause": cause, "subject": subject, "probability": share, "body": body, "readings": 1}
    return Ranking.objects.create(incident=incident, at=timezone.now(), **kept)


class TestFigure:
    def span(self, lane: str, start: float, end: float | None, level: str = "ok") -> Span:
        until = T0 + timedelta(seconds=end) if end is not None else None
        return Span(lane, T0 + timedelta(seconds=start), until, "label", "says", level)

    def test_what_overlaps_in_a_lane_lies_in_rows_of_its_own(self) -> None:
        spans = [self.span("Probes", *times) for times in ((0, 100), (50, 120), (100, 130), (121, 140))]
        assert [row for row, _ in lanes.rows_of(spans)] == [2, 3, 2, 3]

    def test_moments_close_together_have_room_for_their_labels(self) -> None:
        """Of 1000 s a label takes 100: the third is beside the first, the fifth finds no row and takes the oldest."""
        times = (0, 50, 100, 110, 120, 1000)
        placed = lanes.rows_of([self.span("People", at, None) for at in times])
        assert [row - placed[0][0] for row, _ in placed] == [0, 1, 0, 2, 1, 0]

    def test_the_lanes_below_make_room(self) -> None:
        spans = [self.span("Probes", 0, 100), self.span("Probes", 50, 120), self.span("Job", 0, 10)]
        figure = lanes.figure(spans, T0)
        axis = figure["layout"]["yaxis"]
        assert axis["ticktext"] == ["Phase", "Clock rule", "Probes", "Verdict", "People", "Job"]
        assert axis["tickvals"] == [0, 1, 2, 4, 5, 6]
        assert [row for row, one in lanes.rows_of(spans) if one.lane == "Job"] == [6]

    def test_times_are_seconds_from_t0_and_what_is_long_before_it_is_cut(self) -> None:
        figure = lanes.figure([self.span("Job", -7200, 60, "bad"), self.span("People", 30, None, "now")], T0)
        bar, dot = figure["data"]
        assert (bar["base"], bar["x"]) == ([-60.0], [120.0])
        assert dot["x"] == [30.0]
        assert figure["layout"]["xaxis"]["range"] == pytest.approx([-63.8, 67.2])

    def test_what_is_only_due_does_not_press_a_short_incident_into_a_corner(self) -> None:
        spans = [self.span("Clock rule", 0, 900), self.span("Phase", 0, 100)]
        assert lanes.figure(spans, T0)["layout"]["xaxis"]["range"] == pytest.approx([-2.0, 112.0])

    def test_an_empty_record_has_a_figure(self) -> None:
        assert lanes.figure([], T0)["data"] == []


class TestDecisions:
    def test_each_tells_who_over_what_on_what_and_what_came_of_it(self, incident: Incident, ada: User, at: At) -> None:
        verdict, move = review(responded(incident, ada, at)).decisions
        assert (verdict.at, verdict.who, verdict.role, verdict.chosen) == ("T+3:50", "ada", "commander", "accept")
        assert "Rank 1 on gpu-002 is stopped" in verdict.about
        assert verdict.over == ["not this"]
        assert verdict.known.startswith("Rank 1 on gpu-002 is stopped")
        assert [ref.name for ref in verdict.readings] == ["gpu-002/rank.stack"]
        rows = dict(Reading.objects.values_list("pk", "sha256"))
        assert [ref.sha256 for ref in verdict.readings] == [rows[ref.pk] for ref in verdict.readings]
        assert (move.question, move.chosen, move.why) == ("How do we get going?", "Continue the rank", "it loses least")
        assert move.over == ["Restart", "Wait 2 min"]
        (done,) = move.outcomes
        assert (done.argv, done.node, done.state, done.says) == (
            "kill -CONT 4242",
            "gpu-002",
            "done",
            "exit 0 in 0.4 s",
        )
        assert done.approved == "approved by bob at T+6:02"

    def test_a_change_of_mind_is_told_at_the_earlier_one(self, incident: Incident, ada: User, at: At) -> None:
        store(incident, [*stopped_rank("gpu-002"), read("gpu-001", "ib.ports", "h100_five_bad_ports")])
        judge(incident.pk)
        ranking = Ranking.objects.latest("pk")
        for seconds, index in ((60, 0), (90, 1)):
            at(seconds)
            decide_verdict(incident, ada, "commander", ranking.pk, index, "accept")
        assert [one.superseded for one in review(Incident.objects.get()).decisions] == ["T+1:30", ""]

    def test_a_reading_that_is_another_by_now_is_told(self, client: Client, incident: Incident, ada: User) -> None:
        store(incident, stopped_rank("gpu-002"))
        judge(incident.pk)
        decide_verdict(incident, ada, "commander", Ranking.objects.latest("pk").pk, 0, "accept")
        Reading.objects.filter(probe="rank.stack").update(sha256="0" * 64)
        client.force_login(ada)
        assert page(client, incident).count("not what is kept now") == 1
        assert markdown(review(incident)).count("which is not what is kept now") == 1


def page(client: Client, incident: Incident) -> str:
    return client.get(reverse("review", args=[incident.pk])).content.decode()


class TestPage:
    def test_it_tells_how_it_ended_and_links_each_number_to_its_event(
        self, client: Client, incident: Incident, ada: User, at: At
    ) -> None:
        incident = responded(incident, ada, at)
        client.force_login(person("vera", "viewer"))
        shown = page(client, incident)
        assert "by <b>ada</b>: <b>training again</b>" in shown
        (seq,) = incident.events.filter(kind="training").values_list("seq", flat=True)
        assert f"{reverse('timeline', args=[incident.pk])}?after={seq - 1}#event-{seq}" in shown
        assert (
            f'id="event-{seq}"'
            in client.get(reverse("timeline", args=[incident.pk]), {"after": seq - 1}).content.decode()
        )
        assert "chain verified" in shown
        assert "8 readings" not in shown and "4 readings · 4 raw outputs" in shown
        assert "superseded" not in shown

    def test_while_it_is_open_it_says_so(self, client: Client, incident: Incident, ada: User) -> None:
        client.force_login(ada)
        assert "<b>Not finished.</b>" in page(client, incident)
        assert "**Not finished: this is the record up to T+0:00.**" in markdown(review(incident))

    def test_a_drill_is_called_one(self, client: Client, incident: Incident, ada: User) -> None:
        Incident.objects.update(drill="rank_stopped")
        client.force_login(ada)
        assert "DRILL rank_stopped" in page(client, incident)
        assert "**Drill rank_stopped: nothing of this was real.**" in markdown(review(Incident.objects.get()))

    def test_a_broken_chain_is_told(self, client: Client, incident: Incident, ada: User) -> None:
        Incident.objects.update(head="0" * 64)
        client.force_login(ada)
        shown = page(client, incident)
        assert "chain broken" in shown and "chain verified" not in shown
        assert "the timeline ends at 2" in shown

    def test_what_nodes_and_people_wrote_is_text(self, client: Client, incident: Incident, ada: User) -> None:
        Incident.objects.update(title=HOSTILE)
        notes.add_note(incident, ada, HOSTILE, KEY)
        client.force_login(ada)
        shown = page(client, incident)
        assert "<script>f" not in shown
        assert "&lt;script&gt;f" in shown

    def test_500_events_of_64_nodes_cost_no_more_queries(self, client: Client, incident: Incident, ada: User) -> None:
        client.force_login(ada)
        store(incident, stopped_rank("gpu-002"))
        judge(incident.pk)
        decide_verdict(incident, ada, "commander", Ranking.objects.latest("pk").pk, 0, "accept")
        few = cost(client, incident)
        add_nodes(main(), "gpu-[003-064]", Login(), None)
        incident.nodes.set(main().nodes.all())
        names = [f"gpu-{number:03}" for number in range(1, 65)]
        store(incident, [read(name, "gpu.state", EIGHT) for name in names])
        for number in range(60):
            ranked(incident, "ib.link_down", {"node": f"gpu-{number:03}"}, 0.6)
            act(incident, ada, "done", says="exit 0")
        for number in range(500 - Incident.objects.get().last_seq):
            told_training(incident, "advances", f"step {number}")
        assert Incident.objects.get().last_seq >= 500
        assert cost(client, incident) == few
        assert few <= 30


def cost(client: Client, incident: Incident) -> int:
    """How many queries the page takes."""
    with CaptureQueriesContext(connection) as queries:
        assert client.get(reverse("review", args=[incident.pk])).status_code == 200
    return len(queries)


# Markdown ---------------------------------------------------------------------------------------------------------

READER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
STRINGS = [
    HOSTILE,
    "# heading",
    "- item",
    "+ item",
    "1. item",
    "1) item",
    "---",
    "===",
    "> quote",
    "    code",
    "| a | b |\n|---|---|",
    "<img src=x onerror=alert(1)>",
    "<!-- gone -->",
    "[x]: http://evil",
    "![x][y]",
    "`a` ``b`` ```",
    "back\\slash \\* \\",
    "_a_ __b__ rank_1_stopped *c*",
    "&amp; &#60;b&#62;",
    "line\r\nline\u2028line",
    "\x1b[31mred\x1b[0m \u202e",
    "http://a.b https://c.d www.e.f",
    "~~gone~~ a~b",
    "$x$ @y",
    "",
]


def words_of(rendered: str) -> tuple[str, set[str]]:
    """What a reader of the Markdown sees as text, and which kinds of markup there are."""
    tokens = READER.parse(rendered)
    inline = [child for token in tokens if token.children for child in token.children]
    kinds = {token.type for token in (*tokens, *inline)}
    return "".join(
        child.content if child.type in ("text", "text_special", "code_inline") else "" for child in inline
    ), kinds


def plain(words: str) -> str:
    """What must be readable: one line, without what a terminal would obey."""
    return " ".join(clean(words).split())


@pytest.mark.parametrize("words", STRINGS)
def test_whatever_somebody_wrote_is_read_as_they_wrote_it_and_is_no_markup(words: str) -> None:
    for before in ("", "- ", "A sentence: "):
        seen, kinds = words_of(f"{before}{text(words)}")
        assert seen == plain(f"{before.removeprefix('- ')}{words}")
        assert kinds <= {"paragraph_open", "paragraph_close", "inline", "text", "text_special", "bullet_list_open",
            "bullet_list_close", "list_item_open", "list_item_close"}  # fmt: skip


@pytest.mark.parametrize("words", STRINGS)
def test_no_reader_makes_a_link_of_a_bare_address(words: str) -> None:
    """GitHub's and others' extended autolinks begin with a scheme and :// or with `www.`, without any markup."""
    assert not re.search(r"://|www\.", text(words))


@pytest.mark.parametrize("words", STRINGS)
def test_in_a_cell_of_a_table_it_stays_in_its_cell(words: str) -> None:
    rendered = f"| a | b |\n|---|---|\n| {text(words)} | x |"
    tokens = READER.parse(rendered)
    cells = [token for token in tokens if token.type == "td_open"]
    seen = [token.children for token in tokens if token.type == "inline"][2]
    assert len(cells) == 2
    assert "".join(one.content for one in seen or ()) == plain(words)


@pytest.mark.parametrize("words", [one for one in STRINGS if one])
def test_as_code_it_is_code_and_nothing_else(words: str) -> None:
    seen, kinds = words_of(f"- run {code(words)} now")
    assert seen.replace("run ", "", 1).removesuffix(" now") == plain(words)
    assert "html_inline" not in kinds and "link_open" not in kinds


def test_the_whole_review_of_a_hostile_record_holds_no_markup_but_ours(incident: Incident, ada: User, at: At) -> None:
    Incident.objects.update(title=HOSTILE)
    incident = Incident.objects.get()
    ranked(incident, "ib.link_down", {"node": "gpu-001"}, 0.6)
    made = step(incident, ada, HOSTILE[:300], HOSTILE[:100], (HOSTILE, "Wait"), HOSTILE)
    act(incident, ada, "failed", decision=made, says=HOSTILE, argv=["rm", HOSTILE])
    notes.add_note(incident, ada, HOSTILE, KEY)
    told_training(incident, "stands", HOSTILE)
    resolve(incident, ada, "other", HOSTILE)
    rendered = markdown(review(Incident.objects.get()))
    _, kinds = words_of(rendered)
    assert not kinds & {"html_inline", "html_block", "link_open", "image", "fence", "code_block", "s_open", "hr"}
    assert rendered.count("\n# ") == 0 and rendered.startswith("# INC-")
    headings = re.findall(r"^## (.*)$", rendered, re.MULTILINE)
    assert headings == ["In numbers", "Root cause", "Decisions (1)", "The 15 minutes", "Timeline", "Record"]


def test_page_and_markdown_tell_the_same(client: Client, incident: Incident, ada: User, at: At) -> None:
    incident = responded(incident, ada, at)
    client.force_login(ada)
    shown, told = page(client, incident), markdown(review(incident))
    for one in review(incident).facts:
        assert one.value in shown and text(one.value) in told
        assert one.how in shown.replace("&#x27;", "'") and text(one.how) in told
    for says in ("kill -CONT 4242", "it loses least", "approved by bob at T+6:02", "Rank 1 on gpu-002 is stopped"):
        assert says in shown and says in told


def test_the_markdown_is_the_same_each_time_and_fits_a_terminal(incident: Incident, ada: User, at: At) -> None:
    incident = responded(incident, ada, at)
    first = markdown(review(Incident.objects.get()))
    at(100_000)
    assert markdown(review(Incident.objects.get())) == first
    table = [line for line in first.splitlines() if line.startswith("| ")]
    assert all(line.index("|", 2) == table[0].index("|", 2) for line in table[:7])
    assert "\x1b" not in first


def test_the_markdown_is_served_as_text(client: Client, incident: Incident) -> None:
    client.force_login(person("vera", "viewer"))
    answer = client.get(reverse("review_markdown", args=[incident.pk]))
    assert answer["Content-Type"] == "text/plain; charset=utf-8"
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer.content.decode() == markdown(review(incident))
    assert Decision.objects.count() == 0
