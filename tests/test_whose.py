"""Whose an output is: by folders beside each other, by names of files, by prompts; and several outputs in one paste."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.diagnosis.core import Hypothesis, Reason
from probes.diagnosis.ranking import rank
from probes.intake import read
from probes.intake.chained import chained
from probes.intake.tools.cluster import kubernetes
from tests.support.hardware import judged

XID = "[Mon Jan  5 09:00:00 2026] NVRM: Xid (PCI:0000:0b:00): 79, pid=7, GPU has fallen off the bus.\n"
QUIET = "[Mon Jan  5 09:00:00 2026] perf: interrupt took too long (2531 > 2500)\n"


def nodes(folder: Path, files: dict[str, str], probe: str = "host.kernel_log") -> set[str]:
    for name, text in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return {reading.capture.node for _, reading in read([folder]).readings if reading.capture.probe == probe}


def test_folders_beside_each_other_with_the_same_files_are_nodes_whatever_they_are_called(tmp_path: Path) -> None:
    assert nodes(tmp_path, {"castor/dmesg.txt": XID, "pollux/dmesg.txt": QUIET}) == {"castor", "pollux"}


@pytest.mark.parametrize("pair", [("before", "after"), ("good", "bad"), ("before", "dmesg"), ("rank0", "rank1")])
def test_folders_of_looks_and_of_tools_are_none(tmp_path: Path, pair: tuple[str, str]) -> None:
    found = nodes(tmp_path, {f"{pair[0]}/dmesg.txt": XID, f"{pair[1]}/dmesg.txt": QUIET})
    assert not found & {"before", "after", "good", "bad", "dmesg", "rank0", "rank1"}


def test_a_name_between_tool_and_part_is_a_machine_beside_its_neighbours(tmp_path: Path) -> None:
    files = {f"dmesg_{node}_part_{part}.txt": QUIET for node in ("elm11", "elm12") for part in (0, 1)}
    assert nodes(tmp_path, files) == {"elm11", "elm12"}


def test_a_paste_in_a_file_that_is_named_after_tool_and_node_is_of_that_node(tmp_path: Path) -> None:
    paste = "$ dmesg -T\n" + XID + "$ uptime\n 09:03:25 up 40 days,  2:11,  1 user,  load average: 4.00, 4.00, 4.00\n"
    mpstat = (
        "Linux 5.14.0 ({0}) \t01/05/2026 \t_x86_64_\t(4 CPU)\n\n"
        "09:41:11 PM  CPU    %usr   %nice    %sys %iowait    %irq   %soft  %steal  %guest  %gnice   %idle\n"
        "09:41:16 PM  all   12.39    0.00    0.61    0.00    0.00    0.02    0.00    0.00    0.00   86.98\n"
    )
    files = {"state_q21.txt": paste, "state_q22.txt": paste}
    files |= {f"mpstat_{node}.txt": mpstat.format(node) for node in ("q21", "q22")}
    assert nodes(tmp_path, files) == {"q21", "q22"}


def test_the_root_prompt_of_sles_names_the_node(tmp_path: Path) -> None:
    paste = "z1k22:~ # dmesg -T\n" + XID + "z1k22:~ # uname -r\n5.14.21\n"
    assert nodes(tmp_path, {"paste.txt": paste}) == {"z1k22"}


TRACKING = "Reference ID    : A9FEA97B (169.254.169.123)\nStratum         : 4\nLeap status     : Normal\n"
SOURCES = "MS Name/IP address         Stratum Poll Reach LastRx Last sample\n"
SOURCES += "====\n^* 10.0.0.1  3   4   377    9  +3us[+4us] +/- 1ms\n"
DATE = "Mon Jan  5 09:03:25 UTC 2026\n"


def test_outputs_of_several_tools_in_one_text_are_taken_apart_where_each_begins() -> None:
    assert chained(DATE + TRACKING + SOURCES) == [DATE, TRACKING, SOURCES + "\n"]


@pytest.mark.parametrize("text", [TRACKING, DATE, TRACKING + TRACKING, "step 1\n" * 9 + TRACKING + SOURCES, ""])
def test_one_output_or_two_of_one_tool_or_a_log_stay_whole(text: str) -> None:
    assert chained(text) == []


def seen(subject: dict[str, str | int], signal: str, cause: str = "gpu.memory_error") -> Hypothesis:
    return Hypothesis(cause, subject, str(subject), (Reason("r", "f"),), (signal,))


def subjects(*some: Hypothesis) -> list[dict[str, str | int]]:
    return [dict(one.hypothesis.subject) for one in rank(some) if one.hypothesis.cause == "gpu.memory_error"]


LOG, STATE = "ecc_error_told", "gpu_reports_fault"


def test_what_a_log_tells_of_no_place_is_of_the_one_place_that_tells_the_same() -> None:
    assert subjects(seen({}, LOG), seen({"node": "gn-4", "gpu": 6}, STATE)) == [{"node": "gn-4", "gpu": 6}]


def test_of_two_such_places_none_is_taken() -> None:
    found = subjects(seen({}, LOG), seen({"node": "gn-4"}, STATE), seen({"node": "gn-5"}, STATE))
    assert {} in found and len(found) == 3


def test_a_rank_that_a_machine_check_of_its_node_ended_is_of_its_subject() -> None:
    fault = Hypothesis("host.machine_check", {"node": "gn-4"}, "x", (Reason("r", "f"),), ("machine_check_uncorrected",),
        nodes=frozenset({"gn-4"}))  # fmt: skip
    ended = [
        Hypothesis("fw.rank_exited", {"rank": r, "node": "gn-4"}, "x", (Reason("r", "f"),), ("abort_at_exit",),
            ranks=frozenset({r}), nodes=frozenset({"gn-4"})) for r in (36, 37)
    ]  # fmt: skip
    assert rank([fault, ended[0]])[0].hypothesis.subject == {"node": "gn-4", "rank": 36}
    assert rank([fault, *ended])[0].hypothesis.subject == {"node": "gn-4"}


PODS = (
    "NAME        READY   STATUS   RESTARTS      AGE   IP             NODE     NOMINATED NODE\n"
    "prep-2      0/1     Error    2 (5m ago)    14h   10.42.16.30    metal-3  <none>\n"
    "prep-3      0/1     Error    0             14h   10.42.16.31    metal-4  <none>\n"
)


def test_the_table_of_pods_tells_on_which_node_each_runs_also_beside_restarts_of_two_words() -> None:
    def nodes(text: str) -> dict[str, str]:
        return {pod.name: pod.node for pod in kubernetes.read(text).pods}

    assert nodes(PODS) == {"prep-2": "metal-3", "prep-3": "metal-4"}
    listed = '{"kind": "List", "items": [{"kind": "Pod", "metadata": {"name": "a-0"}, "spec": {"nodeName": "m-1"}}]}'
    assert nodes(listed) == {"a-0": "m-1"}


def test_memory_that_ran_out_on_a_node_explains_the_end_of_a_rank_in_its_pod(tmp_path: Path) -> None:
    kill = (
        "[Sun Aug 16 19:41:25 2026] Memory cgroup out of memory: Killed process 3120881 (python3) "
        "total-vm:395204480kB, anon-rss:284020112kB, file-rss:1180648kB, shmem-rss:0kB, "
        "UID:0 pgtables:588000kB oom_score_adj:985\n"
    )
    log = (
        "============================================================\ntrain.py FAILED\n"
        "------------------------------------------------------------\nFailures:\n  <NO_OTHER_FAILURES>\n"
        "------------------------------------------------------------\nRoot Cause (first observed failure):\n[0]:\n"
        "  time      : 2026-08-16_19:41:27\n  host      : prep-3\n  rank      : 13 (local_rank: 1)\n"
        "  exitcode  : -9 (pid: 61)\n  error_file: <N/A>\n  traceback : Signal 9 (SIGKILL) received by PID 61\n"
    )
    files = {"pods.txt": PODS, "metal-4/dmesg.txt": kill, "metal-3/dmesg.txt": QUIET, "prep-3.log": log}
    verdict = judged(tmp_path, files).verdict.hypothesis
    assert verdict.cause == "host.memory_oom_kill"
    assert verdict.subject["node"] == "metal-4"
