"""Faults of hosts in the forms in which schedulers, consoles, containers and time services tell them."""

from __future__ import annotations

from pathlib import Path

from probes.catalog.logs.labels import labels_of
from probes.catalog.logs.lines import Zone, log_lines
from probes.explain import explain
from probes.intake.tools.host.boots import read as read_boots
from probes.intake.tools.host.time_service import read as read_clock

Said = tuple[str, dict[str, str | int], float]

TOO_OLD = "RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update"
CSV = "0A0C0002,10.4.0.2,3,1780300800.1,{},-0.00001,0.0000118,4.111,0.001,0.014,0.000111,0.000198,64.2,Normal\n"


def said(place: Path, **files: str) -> list[Said]:
    for name, text in files.items():
        path = place / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    ranked = explain([place]).diagnosis.ranked
    return [(one.hypothesis.cause, dict(one.hypothesis.subject), one.probability) for one in ranked]


def last_x(booted: str) -> str:
    return (
        "ops      pts/2        10.9.0.1         Thu May  7 08:14 - 08:34  (00:20)\n"
        f"reboot   system boot  6.8.0-45-generic {booted}   still running\n\nwtmp begins Tue Mar  3 17:44:11 2026\n"
    )


# Numbers before lines -------------------------------------------------------------------------------------------------


def test_numbers_before_the_lines_of_launchers_are_tasks_and_srun_names_their_nodes() -> None:
    rows = [
        "0: W0601 10:50:31.411000 5180 torch/distributed/run.py:793]",
        "1: [rank9]: Traceback (most recent call last):",
        "srun: error: cx-12: task 1: Exited with exit code 1",
        "srun: error: cx-[08-11]: tasks 0,2-3: Terminated",
    ]
    labels = labels_of(rows)
    assert labels is not None and not labels.ranks and labels.hosts == {"1": "cx-12"}


def test_numbers_before_the_lines_of_ranks_are_ranks() -> None:
    labels = labels_of(["0: loss 2.1", "1: loss 2.2", "1: [rank1]: still there", "0: loss 2.0"])
    assert labels is not None and labels.ranks


def test_a_traceback_behind_a_number_and_a_rank_is_one_line_a_row() -> None:
    text = "1: [rank9]: Traceback (most recent call last):\n1: [rank9]: ValueError: x\n0: [rank0]: a\n"
    lines = list(log_lines(text, Zone()))
    assert [line.rank for line in lines] == [9, 9, 0]
    assert lines[0].writer == lines[1].writer


def test_a_driver_that_is_too_old_is_of_the_node_whose_task_srun_ended(tmp_path: Path) -> None:
    log = (
        "0: W0601 10:50:31.411000 5180 torch/distributed/run.py:793] ***\n"
        "1: [rank9]: Traceback (most recent call last):\n"
        '1: [rank9]:   File "/work/train.py", line 31, in <module>\n'
        f"1: [rank9]: {TOO_OLD}\n"
        "0: still waiting\n"
        "srun: error: cx-12: task 1: Exited with exit code 1\n"
    )
    cause, subject, share = said(tmp_path, job_DOT_log=log)[0]
    assert (cause, subject.get("node")) == ("host.library_mismatch", "cx-12")
    assert share > 0.9


def test_a_query_of_driver_and_name_alone_tells_which_node_differs(tmp_path: Path) -> None:
    rows = "".join(f"cx-{n}: {'535.183.01' if n != 13 else '470.182.03'}, NVIDIA A40\n" for n in (11, 12, 13, 14))
    text = f"$ clush -w cx-[11-14] 'nvidia-smi --query-gpu=driver_version,name --format=csv,noheader'\n{rows}"
    found = [one for one in said(tmp_path, look_DOT_txt=text) if one[0] == "host.library_mismatch"]
    assert [subject for _, subject, _ in found] == [{"node": "cx-13"}]


# Lost nodes -----------------------------------------------------------------------------------------------------------


SACCT = (
    "JobID           JobName      State ExitCode               Start                 End NNodes NodeList\n"
    "------------ ---------- ---------- -------- ------------------- ------------------- ------ --------\n"
    "9001           pretrain  {}      0:0 2026-06-01T02:00:00 2026-06-01T21:21:50      3 zn[1-3]\n"
)
WRITTEN = (
    "slurmstepd: error: *** STEP 9001.0 ON zn1 CANCELLED AT 2026-06-01T21:21:50 DUE TO NODE FAILURE, SEE LOG ***\n"
)


def test_a_lost_node_is_the_one_that_restarted_and_not_the_one_that_wrote_it(tmp_path: Path) -> None:
    ups = {
        f"zn{n}__uptime_DOT_txt": f" 21:42:1{n} up 45 days,  3:01,  0 users,  load average: 0.1, 0.2, 0.3\n"
        for n in (1, 3)
    }
    ups["zn2__uptime_DOT_txt"] = " 21:42:12 up 19 min,  0 users,  load average: 0.1, 0.2, 0.3\n"
    found = said(tmp_path, sacct_DOT_txt=SACCT.format("NODE_FAIL"), job_DOT_out=WRITTEN, **ups)
    assert found[0][:2] == ("host.rebooted", {"node": "zn2"})
    assert all(subject.get("node") != "zn1" for cause, subject, _ in found if cause == "host.rebooted")


def test_of_a_lost_node_that_nobody_names_none_is_blamed(tmp_path: Path) -> None:
    cause, subject, _ = said(tmp_path, job_DOT_out=WRITTEN)[0]
    assert (cause, subject) == ("host.rebooted", {})


def test_a_node_that_started_after_a_cancelled_job_is_not_called_lost(tmp_path: Path) -> None:
    ups = {f"zn{n}__uptime_DOT_txt": f" 21:42:1{n} up 18:01,  0 users,  load average: 0.1, 0.2, 0.3\n" for n in (1, 3)}
    ups["zn2__uptime_DOT_txt"] = " 21:42:12 up 19 min,  0 users,  load average: 0.1, 0.2, 0.3\n"
    found = said(tmp_path, sacct_DOT_txt=SACCT.format("CANCELLED by 501"), **ups)
    assert found[0][0] != "host.rebooted"


def test_the_controller_names_the_node_that_it_sets_down(tmp_path: Path) -> None:
    text = (
        "[2026-06-01T11:05:12.100] error: Nodes gpu-003 not responding\n"
        "[2026-06-01T11:08:52.100] error: Nodes gpu-003 not responding, setting DOWN\n"
        "[2026-06-01T11:08:52.101] Killing JobId=7712 on failed node gpu-003\n"
    )
    cause, subject, share = said(tmp_path, slurmctld_DOT_log=text)[0]
    assert (cause, subject) == ("host.rebooted", {"node": "gpu-003"}) and share > 0.8


def test_last_with_logins_before_the_boot_is_read() -> None:
    assert read_boots(last_x("Tue Jun  2 21:21")).stamp.startswith("Tue Jun")


def test_a_panic_on_a_serial_console_is_of_the_node_that_asks_for_a_login(tmp_path: Path) -> None:
    text = (
        "[SOL Session operational.  Use ~? for help]\nDebian GNU/Linux 12 rz41 ttyS0\n\n"
        "rz41 login: [88812.100001] mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 1: b200000000030005\n"
        "[88812.100105] mce: [Hardware Error]: Machine check: Processor context corrupt\n"
        "[88812.100200] Kernel panic - not syncing: Fatal machine check\n"
        "[88812.900200] ---[ end Kernel panic - not syncing: Fatal machine check ]---\n"
    )
    cause, subject, share = said(tmp_path, rack7_console_DOT_log=text)[0]
    assert (cause, subject.get("node")) == ("host.machine_check", "rz41") and share > 0.9


# Clocks ---------------------------------------------------------------------------------------------------------------


def test_the_row_of_chrony_for_programs_says_how_far_a_clock_is_ahead() -> None:
    """client.c prints the correction still to be made: positive where the clock is slow."""
    assert read_clock(CSV.format("-47.220001118")).service_offset_s == 47.220001118
    assert read_clock(CSV.format("0.000001118")).service_offset_s == -0.000001118


def test_a_refused_launch_names_the_node_whose_clock_is_off_and_is_no_cancellation(tmp_path: Path) -> None:
    srun = (
        "$ srun -N2 ./start.sh\n"
        "srun: error: Task launch for StepId=44.0 failed on node pv07: Invalid job credential\n"
        "srun: error: Application launch failed: Invalid job credential\n"
        "slurmstepd: error: *** STEP 44.0 ON pv06 CANCELLED AT 2026-06-01T18:40:26 ***\n"
    )
    daemon = "[2026-06-01T18:33:25.771] error: Munge decode failed: Rewound credential\n"
    cause, subject, _ = said(tmp_path, srun_DOT_txt=srun, slurmd_DOT_log=daemon)[0]
    assert (cause, subject) == ("host.clock_offset", {"node": "pv07"})


DEAD = (
    "D0601 12:11:29.004000 1403 torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:303] Detected dead node "
    "'hx-3_61422_0', removing it from the rendezvous\n"
)


def clocks(skewed: str, kept: str) -> dict[str, str]:
    told = {**dict.fromkeys((1, 2, 4), ("12:20:00", "yes")), 3: (skewed, kept)}
    return {
        f"hx-{n}__time_DOT_txt": f"               Local time: Mon 2026-06-01 {at} UTC\n"
        f"           Universal time: Mon 2026-06-01 {at} UTC\nSystem clock synchronized: {sync}\n"
        for n, (at, sync) in told.items()
    }


def test_a_member_that_is_dropped_and_whose_clock_lags_without_a_source_is_named(tmp_path: Path) -> None:
    cause, subject, share = said(tmp_path, agent_DOT_log=DEAD, **clocks("12:19:13", "no"))[0]
    assert (cause, subject) == ("host.clock_offset", {"node": "hx-3"}) and share > 0.9


def test_a_kept_clock_that_was_merely_asked_later_is_not_blamed(tmp_path: Path) -> None:
    found = said(tmp_path, agent_DOT_log=DEAD, **clocks("12:21:13", "yes"))
    assert all(cause != "host.clock_offset" for cause, _, _ in found)


# Containers -----------------------------------------------------------------------------------------------------------


def inspected(killed: str) -> str:
    state = f'"Status": "exited",\n      "OOMKilled": {killed},\n      "ExitCode": 137'
    return f'[\n  {{\n    "State": {{\n      {state}\n    }}\n  }}\n]\n'


def test_a_container_that_docker_says_was_killed_for_memory(tmp_path: Path) -> None:
    cause, _, share = said(tmp_path, inspect_DOT_json=inspected("true"))[0]
    assert cause == "host.memory_oom_kill" and share > 0.9


def test_a_container_that_was_not_killed_for_memory_is_not_called_so(tmp_path: Path) -> None:
    text = inspected("false") + "srun: error: zz1: task 0: Killed\n"
    assert all(cause != "host.memory_oom_kill" for cause, _, _ in said(tmp_path, inspect_DOT_json=text))
