"""One reading's evidence: every outcome explained, facts as a table, the raw output as a file that no browser runs."""

from __future__ import annotations

import zlib
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from incidents.models import Incident, Node, NodeVisit, Reading, SuiteRun
from incidents.queries import evidence
from probes import catalog
from probes.core import OUTCOMES
from probes.transport.reasons import REASONS
from tests.support.fleets import main, person

pytestmark = [pytest.mark.django_db]


@pytest.fixture
def run() -> SuiteRun:
    incident = Incident.objects.create(fleet=main(), title="x", t0=timezone.now())
    return SuiteRun.objects.create(
        fleet=main(), suite="capture", incident=incident, started_at=incident.t0, node_count=1
    )


def reading(run: SuiteRun, probe: str = "gpu.state", outcome: str = "ok", **more: Any) -> Reading:
    node, _ = Node.objects.get_or_create(fleet=main(), name="gpu-017", defaults={"changed_at": timezone.now()})
    more = {"out": zlib.compress(b""), "sha256": "0" * 64, "took_s": 0.1, "recorded_at": timezone.now(), **more}
    return Reading.objects.create(run=run, node=node, probe=probe, outcome=outcome, **more)


def test_every_outcome_has_a_sentence_and_all_but_ok_say_what_to_do(run: SuiteRun) -> None:
    assert set(evidence.OUTCOMES) == set(OUTCOMES)
    for outcome in OUTCOMES:
        for probe in ("gpu.state", "host.storage", "host.kernel_log", "gone.probe"):
            meaning = evidence.meaning(Reading(run=run, probe=probe, outcome=outcome))
            assert meaning.says.endswith(".") and "{" not in meaning.says + meaning.next
            assert meaning.next.endswith(".") == (outcome != "ok")


def test_denied_says_what_the_probe_needs(run: SuiteRun) -> None:
    meaning = evidence.meaning(reading(run, "host.kernel_log", "denied"))
    assert catalog.load()["host.kernel_log"].needs in meaning.next


def test_hung_names_state_and_wchan_and_says_not_to_ask_the_driver_again(run: SuiteRun) -> None:
    hung = reading(run, outcome="hung", state="D", wchan="os_acquire_rwlock_write")
    meaning = evidence.meaning(hung)
    assert "state D, in os_acquire_rwlock_write" in meaning.says
    assert "Do not ask the driver again" in meaning.next
    assert "host.storage" in evidence.meaning(reading(run, "host.storage", "hung", state="D")).next


@pytest.mark.parametrize("reason", sorted(REASONS))
def test_a_node_that_could_not_be_asked_says_it_in_the_words_of_its_reason(run: SuiteRun, reason: str) -> None:
    kept = reading(run, outcome=REASONS[reason].outcome, reason=reason)
    more = {"took_s": 1, "connect_s": 1, "tries": 1, "at": timezone.now()}
    NodeVisit.objects.create(run=run, node=kept.node, reason=reason, detail="ops@gpu-017:22", **more)
    meaning = evidence.meaning(kept)
    assert meaning.says.lower() == f"{REASONS[reason].says} (ops@gpu-017:22).".lower()
    assert meaning.next.lower() == f"{REASONS[reason].next}.".lower()


def test_the_offset_is_that_of_the_same_run_and_node(run: SuiteRun) -> None:
    kept = reading(run)
    assert evidence.offset(kept) == ""
    other = SuiteRun.objects.create(fleet=main(), suite="capture", started_at=timezone.now(), node_count=1)
    reading(other, "host.clock", facts={"offset_s": 3.0, "bound_s": 0.001})
    assert evidence.offset(kept) == ""
    reading(run, "host.clock", facts={"offset_s": 0.0123, "bound_s": 0.0004})
    assert evidence.offset(kept) == "+12.3 ± 0.4 ms"


def test_facts_are_rows_with_units_and_what_is_not_known_is_said() -> None:
    facts = {
        "offset_s": 0.0025,
        "driver": None,
        "synchronised": False,
        "pids": [11, 12],
        "quotas": [],
        "memory_total_bytes": 3 * 2**30,
        "boot_at": 1795966837,
        "first_at": 12.5,
        "gpus": [{"bus_id": "0000:3b:00.0", "temperature_c": 61, "reason_us": {"sw_power_cap": 5}}],
    }
    rows = {row.name: row for row in evidence.facts(facts)}
    assert {name: row.says for name, row in rows.items() if not row.inside} == {
        "offset": "0.0025 s",
        "driver": "not known",
        "synchronised": "no",
        "pids": "11, 12",
        "quotas": "none",
        "memory total": "3.00 GiB",
        "boot at": "2026-11-29 15:40:37.000 UTC",
        "first at": "12.5",
    }
    (gpu,) = rows["gpus"].inside
    assert gpu.name == "1: 0000:3b:00.0"
    inside = {row.name: row for row in gpu.inside}
    assert inside["temperature"].says == "61 °C"
    assert [(row.name, row.says) for row in inside["reason (µs)"].inside] == [("sw power cap", "5")]


def test_hostile_facts_cost_a_bounded_table() -> None:
    deep: dict[str, Any] = {}
    for _ in range(200):
        deep = {"deeper": deep}
    facts = {"deep": deep, "many": {str(i): i for i in range(100_000)}, "long": "x" * 100_000, "list": [1] * 100_000}
    facts["big"] = 10**300
    rows = evidence.facts(facts)

    def count(inside: tuple[evidence.Fact, ...]) -> int:
        return sum(1 + count(row.inside) for row in inside)

    assert count(rows) <= evidence.ROWS + evidence.DEPTH + 2
    assert evidence.facts({"long": "x" * 100_000})[0].says == "x" * evidence.LONGEST
    assert evidence.facts({"list": [1] * 100_000})[0].says.endswith(" and 99976 more")


class TestThePage:
    @pytest.fixture
    def client(self, client: Client) -> Client:
        client.force_login(person("vera", "viewer"))
        return client

    def test_the_raw_output_comes_byte_for_byte_as_a_file_that_no_browser_runs(
        self, client: Client, run: SuiteRun
    ) -> None:
        raw = b"<script>alert(1)</script>\x00\xff\x1b[2J\r\n"
        kept = reading(run, out=zlib.compress(raw))
        answer = client.get(f"/incidents/{run.incident_id}/evidence/{kept.pk}/output")
        assert answer.content == raw
        assert answer["Content-Type"] == "text/plain; charset=utf-8"
        assert answer["X-Content-Type-Options"] == "nosniff"
        name = f"INC-{run.incident_id}-gpu-017-gpu.state.txt"
        assert answer["Content-Disposition"] == f'attachment; filename="{name}"'

    def test_a_reading_of_another_incident_is_not_there(self, client: Client, run: SuiteRun) -> None:
        kept = reading(run)
        other = Incident.objects.create(fleet=main(), title="y", t0=timezone.now())
        for end in ("", "/output"):
            assert client.get(f"/incidents/{other.pk}/evidence/{kept.pk}{end}").status_code == 404

    def test_facts_findings_offset_and_command_stand_on_the_page(self, client: Client, run: SuiteRun) -> None:
        found = [
            {"code": "a.b", "severity": "warn", "says": "second", "subject": {}},
            {"code": "a.b", "severity": "bad", "says": "GPU 3 <b>is lost</b>", "subject": {}},
        ]
        kept = reading(run, facts={"driver": "<i>535</i>"}, findings=found, node_at=1795966837.5)
        reading(run, "host.clock", facts={"offset_s": -0.002, "bound_s": 0.0004})
        page = client.get(f"/incidents/{run.incident_id}/evidence/{kept.pk}").content.decode()
        assert page.index("GPU 3 &lt;b&gt;is lost&lt;/b&gt;") < page.index("second")
        assert "&lt;i&gt;535&lt;/i&gt;" in page
        assert "2026-11-29 15:40:37.500 UTC, its clock against ours -2.0 ± 0.4 ms" in page
        assert catalog.load()["gpu.state"].by_hand.split()[0] in page
