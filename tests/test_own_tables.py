"""Tables of hosts that people make themselves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from probes.explain import explain
from probes.intake import host_rows, own_tables
from probes.intake.tools.training import perf_report

# Tables that people make


def verdict(folder: Path, text: str, name: str = "table.md") -> tuple[str, object]:
    (folder / name).write_text(text)
    first = explain([folder]).diagnosis.verdict.hypothesis
    return first.cause, first.subject.get("node")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("| node | oom_kill before | oom_kill now |\n|---|---|---|\n| k1 | 2 | 2 |\n| k2 | 0 | 3 |\n", "memory.events"),
        ("host   mount    used  free\nk1     /local   61%   1T\nk2     /local   100%  0\n", "df"),
        ("k1 /local used=61% free=1T\nk2 /local used=100% free=0\n", "df"),
        ("node,ce_count,ue_count\nk1,0,0\nk2,4,2\n", "edac"),
        ('[{"host": "k1", "uptime": "41 days"}, {"host": "k2", "uptime": "12 min"}]', "uptime"),
        ("server; clock offset (ms)\nk1; 0.4\nk2; -81000\n", "clock"),
        ("node  driver      nccl\nk1    550.90.07   2.21.5\nk2    535.161.08  2.21.5\n", "versions"),
        ("| pod | cpu limit | throttled |\n|---|---|---|\n| k1 | 8 | 0% |\n| k2 | 8 | 91% |\n", "cpu.stat"),
    ],
)
def test_rows_of_own_tables_are_what_each_node_would_have_told(text: str, told: str) -> None:
    assert {(node, label) for node, label, _ in host_rows.told(text)} == {("k1", told), ("k2", told)}


def test_of_two_columns_of_kills_what_came_between_them_counts() -> None:
    text = "| node | oom_kill before | oom_kill now |\n|---|---|---|\n| k1 | 2 | 2 |\n| k2 | 1 | 3 |\n"
    assert {node: lines.split()[-1] for node, _, lines in host_rows.told(text)} == {"k1": "0", "k2": "2"}


@pytest.mark.parametrize(
    "text",
    [
        "the node w1 was full\nand so was w2, said lin\n",
        "rank,step,loss\n0,1,2.4\n1,1,2.4\n",
        "| gpu | ecc corrected | uncorrected |\n|---|---|---|\n| 0 | 0 | 2 |\n| 1 | 0 | 0 |\n",
        "a=1\n",
        "{",
        "",
    ],
)
def test_other_text_is_no_table_of_hosts(text: str) -> None:
    assert {label for _, label, _ in host_rows.told(text)} <= {"table.csv"}


def test_a_caption_tells_the_node_and_its_cores_where_rows_are_of_ranks() -> None:
    text = (
        "gpu-3, 96 cores\n\n| rank | pid | threads | OMP_NUM_THREADS |\n|---|---|---|---|\n| 0 | 41 | 108 | unset |\n"
    )
    told = {label: (node, lines) for node, label, lines in host_rows.told(text)}
    assert told["nproc"] == ("gpu-3", "96\n")
    assert told["ps"] == ("gpu-3", "PID %CPU NLWP COMMAND\n41 0 108 python3 --rank=0\n")


def test_a_table_says_whose_disk_is_full(tmp_path: Path) -> None:
    text = (
        "| host | mount | used |\n|---|---|---|\n| w1 | /local | 61% |\n| w2 | /local | 60% |\n| w3 | /local | 100% |\n"
    )
    (tmp_path / "run.log").write_text("step 1 loss 2.0\nOSError: [Errno 28] No space left on device\n")
    assert verdict(tmp_path, text) == ("host.disk_full", "w3")


def test_a_table_in_which_nothing_is_full_says_nothing(tmp_path: Path) -> None:
    text = "| host | mount | used |\n|---|---|---|\n| w1 | /local | 61% |\n| w2 | /local | 92% |\n"
    assert verdict(tmp_path, text)[0] in ("none", "unknown")


def test_a_table_of_inodes_is_none_of_space() -> None:
    text = "| node | path | inodes used |\n|---|---|---|\n| n1 | /scratch | 12% |\n| n3 | /scratch | 100% |\n"
    assert {(node, label) for node, label, _ in host_rows.told(text)} == {("n1", "df-i"), ("n3", "df-i")}


def test_what_all_rows_have_in_common_may_stand_above_them() -> None:
    text = "node=w3 cores=96\n" + "".join(f"rank={one} pid={41 + one} threads=411 omp=unset\n" for one in range(3))
    told = {label: (node, lines) for node, label, lines in host_rows.told(text)}
    assert told["nproc"] == ("w3", "96\n")
    assert told["ps"][1].splitlines()[1] == "41 0 411 python3 --rank=0"


def test_throttled_periods_of_a_csv_are_of_each_pod() -> None:
    text = "pod,cpu_limit_cores,throttled_pct\njob-0,8,91.2\njob-1,8,90.1\n"
    assert host_rows.told(text)[0] == (
        "job-0",
        "cpu.stat",
        "cpu.max: 800000 100000\nnr_periods 10000\nnr_throttled 9120\n",
    )


def test_a_report_of_perf_in_markdown_is_one() -> None:
    text = "| symbol | object | % |\n|---|---|---|\n| _PyEval_EvalFrameDefault | libpython3.11.so | 46.1 |\n"
    ((_, label, rows),) = host_rows.told(text)
    assert label == "perf"
    assert perf_report.read(rows).rows == 1


# The parser itself


def test_json_is_read_as_a_list_as_an_object_a_line_and_where_it_is_cut() -> None:
    rows = [{"host": "k1", "gpu": "0"}, {"host": "k2", "gpu": "1"}]
    texts = (json.dumps(rows), json.dumps({"rows": rows}, indent=2), "\n".join(map(json.dumps, rows)))
    for text in (*texts, texts[0][:-1] + ', {"host": "k'):
        table = own_tables.table_in(text)
        assert table is not None
        assert table.dicts() == rows
    assert own_tables.objects('{"a": 1}\nnot this\n{"a": 2}') == [{"a": 1}, {"a": 2}]
    assert own_tables.table_in('{"a": 1}\nnot this\n{"a": 2}') is None


def test_a_quoted_cell_may_hold_the_mark_and_a_unit_stays_with_its_number() -> None:
    assert own_tables.cells('k1,"a, b",3', ",") == ["k1", "a, b", "3"]
    assert own_tables.cells("k1 72.1 W 31 C up", " ") == ["k1", "72.1W", "31C", "up"]


def test_of_one_blank_and_more_the_mark_counts_by_which_most_rows_fit() -> None:
    table = own_tables.table_in("node  gpu  temp\nk1  0  31\nk1000 0 32\nk1001 0 33\n")
    assert table is not None
    assert [row[0] for row in table.rows] == ["k1", "k1000", "k1001"]


def test_what_follows_a_wanted_table_is_none_of_its_rows() -> None:
    text = "checked at noon\nnode,links\nk1,18\nk2,18\nthat was all\nof it\nk3,2\n"
    table = own_tables.table_in(text, lambda heads, above: "links" in heads and above == "checked at noon")
    assert table is not None
    assert table.rows == (("k1", "18"), ("k2", "18"))


def test_keys_and_values_may_stand_behind_a_time_and_a_node() -> None:
    table = own_tables.table_in("12:00:01 k1 gpu=0 temp=31\n12:00:02 k2 gpu=0 temp=90\n")
    assert table is not None
    assert table.dicts()[1] == {"time": "12:00:02", "node": "k2", "gpu": "0", "temp": "90"}
