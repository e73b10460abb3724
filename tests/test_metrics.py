"""Metrics of monitoring: in each form in which people save them, what they tell of CPUs and of which node."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from probes.intake.csv_rows import csv_rows
from probes.intake.items import Item
from probes.intake.kinds import Known, kind_of
from probes.intake.metric_facts import load_of
from probes.intake.metrics import is_metrics
from tests.support.hardware import judged, shares

CAUSE = "cpu.quota_throttled"


def exposed(periods: int, throttled: int, container: str = "trainer", pod: str = "bert-0") -> str:
    labels = f'{{container="{container}",id="/kubepods/pod7/{container}",pod="{pod}"}}'
    return (
        "# HELP container_cpu_cfs_periods_total Number of elapsed enforcement period intervals.\n"
        "# TYPE container_cpu_cfs_periods_total counter\n"
        f"container_cpu_cfs_periods_total{labels} {periods} 1712131260112\n"
        f"container_cpu_cfs_throttled_periods_total{labels} {throttled}\n"
        f"container_spec_cpu_quota{labels} 600000\n"
        f"container_spec_cpu_period{labels} 100000\n"
    )


def answer(name: str, values: dict[str, list[float]], label: str = "node") -> str:
    named = {"__name__": name} if name else {}
    rows = [
        {"metric": {**named, label: key}, "values": [[1700000000 + 60 * at, str(one)] for at, one in enumerate(some)]}
        for key, some in values.items()
    ]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": rows}})


def test_counters_of_one_container_tell_its_quota_and_how_often_it_was_stopped() -> None:
    quota = load_of(exposed(9000, 8100))[""].quotas[0]
    assert (quota.cpus, quota.total_periods, quota.total_throttled) == (6.0, 9000, 8100)


def test_two_scrapes_tell_what_happened_between_them(tmp_path: Path) -> None:
    files = {"scrape_1.txt": exposed(9000, 100), "scrape_2.txt": exposed(15000, 5500)}
    found = judged(tmp_path / "now", files).verdict.hypothesis
    assert found.cause == CAUSE
    assert "90 %" in found.says
    over = {"scrape_1.txt": exposed(9000, 8100), "scrape_2.txt": exposed(15000, 8100)}
    assert shares(judged(tmp_path / "over", over)).get(CAUSE, 0.0) == 0


@pytest.mark.parametrize("container", ["fluent-bit", "istio-proxy", "log-sidecar", "dcgm-exporter"])
def test_what_runs_beside_a_trainer_may_be_throttled(tmp_path: Path, container: str) -> None:
    text = exposed(9000, 10) + exposed(9000, 8900, container)
    assert shares(judged(tmp_path, {"cadvisor.txt": text})).get(CAUSE, 0.0) == 0


FORMS = {
    "promtool": (
        'container_cpu_cfs_periods_total{node="gpu-4", pod="t-1"} => 20000 @[1700000000.5]\n'
        'container_cpu_cfs_throttled_periods_total{node="gpu-4", pod="t-1"} => 18000 @[1700000000.5]\n'
    ),
    "vector": json.dumps(
        {
            "status": "success",
            "data": {
                "resultType": "vector",
                "result": [
                    {
                        "metric": {"__name__": f"container_cpu_cfs_{kind}_total", "node": "gpu-4", "container": "main"},
                        "value": [1700000000, count],
                    }
                    for kind, count in (("periods", "20000"), ("throttled_periods", "18000"))
                ],
            },
        }
    ),
    "lines of JSON": "\n".join(
        json.dumps(
            {
                "metric": {"__name__": f"container_cpu_cfs_{kind}_total", "instance": "gpu-4:10250", "pod": "t-1"},
                "values": values,
                "timestamps": [1700000000000, 1700000600000],
            }
        )
        for kind, values in (("periods", [14000, 20000]), ("throttled_periods", [13000, 18400]))
    ),
    "matrix": answer("container_cpu_cfs_periods_total", {"gpu-4": [1000, 7000]})[:-3].replace("]}}", "")
    + "".join(
        (",", answer("container_cpu_cfs_throttled_periods_total", {"gpu-4": [10, 5410]}).split('"result": [')[1])
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_names_the_node_and_the_share(tmp_path: Path, form: str) -> None:
    assert is_metrics(FORMS[form])
    found = judged(tmp_path, {"q1.txt": FORMS[form]}).verdict.hypothesis
    assert (found.cause, found.subject["node"]) == (CAUSE, "gpu-4")
    assert "90 %" in found.says


SHARES = {"ax-1": [0.01, 0.02, 0.01, 0.0], "ax-2": [0.01, 0.71, 0.74, 0.72], "ax-3": [0.9, 0.8, 0.01, 0.0]}


def test_a_result_without_a_name_is_what_its_file_is_called(tmp_path: Path) -> None:
    told = {"cpu_throttle_ratio.json": answer("", SHARES)}
    found = judged(tmp_path / "named", told).verdict.hypothesis
    assert (found.cause, found.subject["node"]) == (CAUSE, "ax-2"), "ax-3 was throttled earlier, and is no more"
    assert (
        shares(judged(tmp_path / "seconds", {"throttled_seconds_rate.json": answer("", SHARES)})).get(CAUSE, 0.0) == 0
    )
    assert shares(judged(tmp_path / "bare", {"q1.json": answer("", SHARES)})).get(CAUSE, 0.0) == 0


def test_the_query_that_was_typed_before_a_result_says_what_it_is(tmp_path: Path) -> None:
    expression = "rate(container_cpu_cfs_throttled_periods_total[5m])/rate(container_cpu_cfs_periods_total[5m])"
    text = (
        f"$ curl -s http://prom:9090/api/v1/query_range --data-urlencode 'query={expression}'\n{answer('', SHARES)}\n"
    )
    text += "$ date\nTue Nov 14 22:13:20 UTC 2023\n"
    assert judged(tmp_path, {"notes.log": text}).verdict.hypothesis.subject["node"] == "ax-2"


def test_columns_of_a_panel_are_series(tmp_path: Path) -> None:
    rows = "\n".join(f"2026-01-01 10:0{at}:00,0.{at}%,81.{at}%" for at in range(6))
    for number, heads in enumerate(('"{pod=""w-0""}","{pod=""w-1""}"', "w-0,w-1")):
        text = f'"Time",{heads}\n{rows}\n'
        found = judged(tmp_path / str(number), {"CPU Throttling percent.csv": text}).verdict.hypothesis
        assert (found.cause, found.subject["node"]) == (CAUSE, "w-1")


ROWS = [("w-0", 600 * at, 2 * at) for at in range(1, 7)] + [("w-1", 600 * at, 480 * at) for at in range(1, 7)]
PERIODS, THROTTLED = "container_cpu_cfs_periods_total", "container_cpu_cfs_throttled_periods_total"


@pytest.mark.parametrize(
    "table",
    [
        f"time,pod,{PERIODS},{THROTTLED}\n"
        + "".join(f"2026-01-01T10:0{a // 600}:00Z,{pod},{a},{b}\n" for pod, a, b in ROWS),
        f"Time;namespace;pod;{THROTTLED};{PERIODS}\n"
        + "".join(f"1767261{a // 10:03d}000;ml;{pod};{b};{a}\n" for pod, a, b in ROWS),
        "timestamp,__name__,pod,value\n"
        + "".join(f"{a},{PERIODS},{pod},{a}\n{a},{THROTTLED},{pod},{b}\n" for pod, a, b in ROWS),
    ],
)
def test_rows_of_one_moment_and_pod_are_series(tmp_path: Path, table: str) -> None:
    found = judged(tmp_path, {"export.csv": table}).verdict.hypothesis
    assert (found.cause, found.subject["node"]) == (CAUSE, "w-1")
    assert not is_metrics("time,node_name,node_rank,loss\n2026-01-01T10:00:00Z,a1,0,2.1\n")


def test_a_series_a_file_is_put_together(tmp_path: Path) -> None:
    one = '{"node": "n7", "pod": "p", "container": "train"}'
    names = {"container_cpu_cfs_periods_total": 8000, "container_cpu_cfs_throttled_periods_total": 7200}
    files = {
        f"{at}.json": '{"status":"success","data":{"resultType":"vector","result":[{"metric":'
        + one.replace("{", f'{{"__name__": "{name}", ')
        + f',"value":[1,"{value}"]}}]}}}}'
        for at, (name, value) in enumerate(names.items())
    }
    assert judged(tmp_path, files).verdict.hypothesis.cause == CAUSE


def test_node_exporter_tells_pressure_load_and_each_cpu() -> None:
    def cpu(number: int, idle: float, user: float) -> str:
        return "".join(
            json.dumps(
                {
                    "metric": {
                        "__name__": "node_cpu_seconds_total",
                        "instance": "z9:9100",
                        "cpu": str(number),
                        "mode": mode,
                    },
                    "values": [100.0, 100.0 + spent],
                    "timestamps": [1700000000000, 1700000060000],
                }
            )
            + "\n"
            for mode, spent in (("idle", idle), ("user", user))
        )

    waits = {"__name__": "node_pressure_cpu_waiting_seconds_total", "instance": "z9:9100"}
    text = cpu(0, 0.0, 60.0) + cpu(1, 58.0, 2.0)
    text += json.dumps({"metric": waits, "values": [5.0, 35.0], "timestamps": [1700000000000, 1700000060000]})
    load = load_of(text)["z9"]
    assert load.cpu is not None
    assert load.cpu_pressure is not None
    assert (load.cpu.idle, load.cpus, load.cpus_full, load.cpus_free) == (48.33, 2, "0", "1")
    assert load.cpu_pressure.some_avg10 == 50.0


def test_an_address_that_was_scraped_is_no_better_name_than_the_pod() -> None:
    labels = 'instance="10.0.0.7:10250",pod="w-3",container="main"'
    assert list(load_of(f"container_cpu_cfs_periods_total{{{labels}}} 5\n")) == ["w-3"]


@pytest.mark.parametrize(
    "text",
    [
        "step 5 loss 2.1\nstep 6 loss 2.0\n",
        '{"rank": 1, "step": 3}\n{"rank": 1, "step": 4}\n',
        "We saw container_cpu_cfs_periods_total rise.\nAnd then nothing.\n",
        "Time,loss,lr\n1,2,3\n",
    ],
)
def test_logs_tables_and_prose_are_no_metrics(text: str) -> None:
    assert not is_metrics(text)


def test_metrics_of_something_else_are_said_to_tell_nothing() -> None:
    item = Item("m.txt", Path("m.txt"), b'# TYPE http_requests_total counter\nhttp_requests_total{code="200"} 5\n')  # type: ignore[arg-type]
    known = kind_of(item)
    assert isinstance(known, Known)
    assert known.kind == "metrics"
    with pytest.raises(Exception, match="expected series of the CPUs"):
        load_of(known.text)


def test_a_lone_carriage_return_in_a_row_costs_that_row_only() -> None:
    """Python's csv stops at one that stands outside quotes."""
    assert list(csv_rows(["a,b", "1,x\ry", "2,z"], ",")) == [["a", "b"], ["2", "z"]]
