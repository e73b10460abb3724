"""The host's faults as somebody retypes them, or as other programs of the system tell them."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.catalog._process_extract import extracts_of
from probes.explain import explain
from probes.intake.logs import guards_in
from probes.intake.tools import perf_report, process_status, process_table


def cause(folder: Path, **files: str) -> tuple[str, dict[str, str | int]]:
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    first = explain([folder]).diagnosis.verdict.hypothesis
    return first.cause, dict(first.subject)


# Guards of memory

JOURNAL = """\
Mar 03 02:10:01 ws7 kernel: nvme nvme0: 16/0/0 default/read/poll queues
Mar 03 02:10:04 ws7 kernel: EXT4-fs (nvme0n1p2): mounted filesystem with ordered data mode
Mar 03 02:41:17 ws7 systemd-oomd[811]: Killed /user.slice/user-1000.slice/{unit} due to memory used (6871) / total
Mar 03 02:41:18 ws7 systemd[1702]: {unit}: systemd-oomd killed 9 process(es) in this unit.
"""


def test_a_shell_that_the_guard_of_memory_ended_is_found_in_a_journal_of_the_kernel(tmp_path: Path) -> None:
    text = JOURNAL.format(unit="session-14.scope")
    assert cause(tmp_path, journal__txt=text) == ("host.memory_oom_kill", {"node": "ws7"})


def test_the_end_of_a_browser_is_none_of_a_job(tmp_path: Path) -> None:
    text = JOURNAL.format(unit="app-gnome-firefox-2211.scope")
    assert cause(tmp_path, journal__txt=text)[0] in ("none", "unknown")


def test_of_a_journal_only_lines_of_guards_are_a_log() -> None:
    assert len(guards_in(JOURNAL.format(unit="tmux-spawn-1.scope")).splitlines()) == 2
    assert guards_in("Mar 03 02:10:01 ws7 systemd[1]: Started Session 4 of User root.\n") == ""


# Processes

STATUS = "Name:\tpython3\nState:\tR (running)\nPid:\t{pid}\nPPid:\t41\nThreads:\t{n}\nCpus_allowed_list:\t0-31\n"


def test_several_status_files_in_one_are_as_many_processes() -> None:
    text = "".join(STATUS.format(pid=7100 + one, n=200) for one in range(3))
    assert [(one.pid, one.threads, one.mask) for one in process_status.read(text).processes] == [
        (7100, 200, "0-31"), (7101, 200, "0-31"), (7102, 200, "0-31"),
    ]  # fmt: skip
    assert [one.pid for one in extracts_of(text)] == [7100, 7101, 7102]


def test_lines_that_grep_cut_out_of_status_files_keep_whose_they_are() -> None:
    text = "/proc/812/status:Threads:\t97\n/proc/813/status:Threads:\t98\n"
    assert process_status.TOOL.fits(text, "g.txt")
    assert [(one.pid, one.threads) for one in process_status.read(text).processes] == [(812, 97), (813, 98)]


def test_threads_in_status_files_beside_a_cut_screen_of_threads(tmp_path: Path) -> None:
    top = (
        "top - 08:11:02 up 2 days,  2:01,  1 user,  load average: 251.20, 244.81, 212.66\n"
        "Threads: 1911 total, 255 running, 1656 sleeping,   0 stopped,   0 zombie\n"
        "%Cpu(s): 58.1 us, 41.2 sy,  0.0 ni,  0.6 id,  0.0 wa,  0.0 hi,  0.1 si,  0.0 st\n\n"
        "    PID USER      PR  NI    VIRT    RES    SHR S  %CPU  %MEM     TIME+ COMMAND\n"
    ) + "".join(
        f"   {7100 + one} lin       20   0   61.2g   6.1g   1.2g R  12.0   1.1   1:00.44 python3\n" for one in range(20)
    )
    status = "".join(STATUS.format(pid=7100 + one, n=200) for one in range(4))
    assert cause(tmp_path, top__txt=top, status__txt=status, nproc__txt="$ nproc\n32\n")[0] == (
        "cpu.thread_oversubscription"
    )
    assert {one.threads for one in process_table.read(top).processes} == {1}


# Call-backs

PERF = """\
# Overhead  Command  Shared Object                          Symbol
    {python}%  python   python3.12                             [.] _PyEval_EvalFrameDefault
    14.11%  python   _ext.cpython-312-x86_64-linux-gnu.so [.] pybind11::detail::object_api<handle>::operator()
     6.31%  python   _ext.cpython-312-x86_64-linux-gnu.so [.] packer::Fit::walk
     5.10%  python   python3.12                             [.] _PyObject_MakeTpCall
"""


@pytest.mark.parametrize(("python", "told"), [("44.10", "_ext.cpython-312-x86_64-linux-gnu.so"), ("4.10", "")])
def test_perf_without_children_tells_of_call_backs_by_what_each_takes_itself(python: str, told: str) -> None:
    assert perf_report.read(PERF.format(python=python)).callback == told


DUMP = """\
Process 9912: python train.py
Python v3.11.8 (/usr/bin/python3.11)

Thread 9912 (active+gil): "MainThread"
    keep (filters.py:17)
    _PyEval_EvalFrameDefault (python3.11)
    walk::Tree::visit (walker/_C.cpython-311-x86_64-linux-gnu.so)
    step (train.py:132)
    <module> (train.py:207)
"""


def test_one_look_at_a_process_of_no_known_rank_says_little_of_call_backs(tmp_path: Path) -> None:
    (tmp_path / "dump.txt").write_text(DUMP)
    ranked = explain([tmp_path]).diagnosis.ranked
    (one,) = [one for one in ranked if one.hypothesis.cause == "cpu.native_callback"]
    assert 0.0 < one.probability < 0.5
