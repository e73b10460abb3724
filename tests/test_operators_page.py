"""A trace of torch.profiler on the evidence page, beside what its node told of the same process."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from playwright.sync_api import expect

from incidents.models import Incident, Node, Reading, SuiteRun
from incidents.queries.operators import operators, process_of
from probes.core import facts_as_json
from probes.intake.tools.training import kineto_operators
from tests.support.brought import FIXTURES
from tests.support.fleets import main, person
from tests.support.looks import SIZES, at_each_look
from tests.support.pages import evidence_of_file

TRACE: Path = FIXTURES / "tools" / "kineto_operators_gloo.json"  # rank 0, pid 10684
FACTS: Any = facts_as_json(kineto_operators.read(TRACE.read_text()))


@pytest.fixture
def run() -> SuiteRun:
    incident = Incident.objects.create(fleet=main(), title="x", t0=timezone.now())
    return SuiteRun.objects.create(
        fleet=main(), suite="capture", incident=incident, started_at=incident.t0, node_count=1
    )


def kept(run: SuiteRun, probe: str, facts: Any, node: str = "lab-4", file: str = "") -> Reading:
    where = {"node": None, "file": file, "said_node": node} if file else {}
    if not file:
        where["node"], _ = Node.objects.get_or_create(fleet=main(), name=node, defaults={"changed_at": timezone.now()})
    more = {"out": zlib.compress(b""), "sha256": "0" * 64, "took_s": 0.1, "recorded_at": timezone.now()}
    return Reading.objects.create(run=run, probe=probe, outcome="ok", facts=facts, **where, **more)


def process(pid: int, rank: int, **more: Any) -> dict[str, Any]:
    row = {"pid": pid, "rank": rank, "worker_of": None, "cpu_percent": 99.6, "run_delay_percent": 31.0, "state": "R",
        "rss_bytes": 3 << 30, "major_faults": 7, "threads_total": 12}  # fmt: skip
    return {"processes": [{**row, **more}]}


@pytest.mark.django_db
def test_the_process_of_a_trace_is_found_by_node_and_pid_then_by_rank(run: SuiteRun) -> None:
    trace = kept(run, "rank.operators", FACTS, file="trace.json")
    told = operators(trace)
    assert told is not None and (told.pid, told.rank) == (10684, 0)

    def found() -> tuple[str, int, bool] | None:
        one = process_of(trace, told.pid, told.rank)
        return None if one is None else (one.reading.node_name, one.pid, one.by_rank)

    assert found() is None
    kept(run, "rank.process", process(4711, 5), node="lab-9")
    assert found() is None, "another rank"
    kept(run, "rank.process", process(10684, 0), node="lab-8")
    assert found() == ("lab-8", 10684, True), "the same pid on another node proves nothing: its rank does"
    kept(run, "rank.process", process(10684, 0), node="lab-4")
    assert found() == ("lab-4", 10684, False)


@pytest.mark.django_db
def test_figures_of_a_process_are_in_words(run: SuiteRun) -> None:
    trace = kept(run, "rank.operators", FACTS, file="trace.json")
    kept(run, "rank.process", process(10684, 0, swap_bytes=0))
    one = process_of(trace, 10684, 0)
    assert one is not None and dict(one.figures) == {
        "CPU": "100 %",
        "waited for a CPU": "31 %",
        "memory (RSS)": "3.0 GiB",
        "major page faults": "7",
        "threads": "12",
        "state": "R",
    }


@pytest.mark.django_db
def test_the_page_of_a_trace_shows_its_operators_and_its_process(client: Client, run: SuiteRun) -> None:
    client.force_login(person("ada"))
    trace = kept(run, "rank.operators", FACTS, file="trace.json")
    kept(run, "rank.process", process(10684, 0))
    page = client.get(f"/incidents/{run.incident_id}/evidence/{trace.pk}").content.decode()
    assert "Operators of rank 0 in 4.8 ms" in page and "aten::addmm" in page
    assert "Its process: rank 0, pid 10684 on lab-4" in page and "waited for a CPU" in page


@pytest.mark.browser
@at_each_look
def test_a_trace_that_somebody_brought_is_a_table_of_operators(
    visit: Any, signed_in_state: Any, check_accessibility: Any, size: str, scheme: str
) -> None:
    page = visit(storage_state=signed_in_state, viewport=SIZES[size], color_scheme=scheme)
    evidence_of_file(page, TRACE, "kineto_operators_gloo.json.*rank.operators")
    table = page.get_by_role("region", name="Table of operators")
    expect(table.get_by_role("rowheader", name="aten::mm")).to_be_visible()
    check_accessibility(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
