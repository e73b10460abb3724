"""Whose fault it was: memory that failed below a rank of no known node, masks, and containers that do other work."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.diagnosis.ranking import Ranked
from tests.support.hardware import judged

BUS = "[rank3]: Signal 7 (SIGBUS) received by PID 8123\n"
POISON = (
    "[Mon Jan  5 09:10:00 2026] Memory failure: 0x3f2a: Sending SIGBUS to python:8123 due to hardware "
    "memory corruption\n"
)


def verdict(folder: Path, files: dict[str, str]) -> Ranked:
    return judged(folder, files).verdict


def test_a_rank_of_no_known_node_that_sigbus_ended_is_of_the_only_node_whose_memory_failed(tmp_path: Path) -> None:
    one = verdict(tmp_path / "a", {"lynx-4.dmesg": POISON, "slurm-9.out": BUS}).hypothesis
    assert (one.cause, one.subject) == ("host.machine_check", {"node": "lynx-4", "rank": 3})
    two = verdict(tmp_path / "b", {"lynx-4.dmesg": POISON, "lynx-5.dmesg": POISON, "slurm-9.out": BUS}).hypothesis
    assert two.cause == "fw.rank_exited"


def test_an_internal_error_of_nccl_comes_from_the_node_whose_nccl_differs(tmp_path: Path) -> None:
    table = "node     nccl     torch\n" + "".join(f"lynx-{n}   2.26.2   2.7.1\n" for n in range(1, 4))
    error = (
        "RuntimeError: NCCL error in: NCCLUtils.cpp:77, internal error, NCCL version 2.26.2\n"
        "ncclInternalError: Internal check failed.\nLast error:\n"
        "Message truncated : received 1032 bytes instead of 256\n"
    )
    files = {"versions.txt": table + "lynx-9   2.21.5   2.5.1\n", "rank5.err": error}
    found = verdict(tmp_path, files).hypothesis
    assert (found.cause, found.subject.get("node")) == ("host.library_mismatch", "lynx-9")


def masked(load: float, others: float) -> str:
    rows = "".join(f"   {700 + n}   {n % 2}  {48.5}  12 python\n" for n in range(4))
    return (
        "$ for p in $(pgrep -f train.py); do taskset -cp $p; done\n"
        + "".join(f"pid {700 + n}'s current affinity list: 0-1\n" for n in range(4))
        + f"$ nproc --all\n64\n$ ps -eo pid,psr,pcpu,nlwp,comm\n    PID PSR %CPU NLWP COMMAND\n{rows}"
        + f"    990  40 {others}   1 solver\n$ cat /proc/loadavg\n{load:.2f} 30.04 24.90 35/4012 99112\n"
    )


@pytest.mark.parametrize(("load", "others", "leads"), [(31.2, 0.5, True), (2.1, 0.5, False), (31.2, 2900.0, False)])
def test_ranks_that_fill_two_cpus_of_many_while_tasks_line_up_have_too_narrow_a_mask(
    tmp_path: Path, load: float, others: float, leads: bool
) -> None:
    text = masked(load, others).replace("35/4012", f"{int(load)}/4012")
    found = verdict(tmp_path, {"lynx-2/cpu.txt": text})
    assert (found.hypothesis.cause == "cpu.affinity_collision") is leads


DOCKER = "CONTAINER ID   NAME   CPU %   MEM USAGE / LIMIT   MEM %   NET I/O   BLOCK I/O   PIDS\n"


@pytest.mark.parametrize(
    ("name", "found"),
    [("search-reindex-2", True), ("backup_nightly", True), ("nervous_darwin", False), ("scandium", False)],
)
def test_a_container_that_says_it_does_other_work_is_none_of_the_job(tmp_path: Path, name: str, found: bool) -> None:
    session = f"lynx-3:~$ nproc\n64\nlynx-3:~$ docker stats --no-stream\n{DOCKER}"
    session += f"4b1f02d9a7c3   {name}   5210.10%   98.3GiB / 1TiB   9.5%   1GB / 1GB   4GB / 1GB   900\n"
    session += "lynx-3:~$ cat /proc/pressure/cpu\nsome avg10=71.40 avg60=70.02 avg300=66.90 total=919281\n"
    one = verdict(tmp_path, {"s.txt": session}).hypothesis
    assert (one.cause == "cpu.process_hotspot") is found


def test_nproc_that_repeats_omp_num_threads_does_not_count_the_cpus(tmp_path: Path) -> None:
    text = "[ml@lynx-6 ~]$ nproc\n64\n[ml@lynx-6 ~]$ pidstat -u 3 1\n"
    text += "Linux 6.1.0 (lynx-6) \t01/05/26 \t_x86_64_\t(2 CPU)\n\n"
    text += "09:00:00      UID       PID    %usr %system  %guest   %wait    %CPU   CPU  Command\n"
    text += "09:00:03     1002       501   90.00    5.00    0.00    3.00   95.00     1  miner\n"
    text += "[ml@lynx-6 ~]$ cat /proc/pressure/cpu\nsome avg10=71.40 avg60=70.02 avg300=66.90 total=919281\n"
    found = verdict(tmp_path, {"s.txt": text}).hypothesis
    assert found.cause == "cpu.process_hotspot" and "of the node's 2" in " ".join(one.says for one in found.because)
