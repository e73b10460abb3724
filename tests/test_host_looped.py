"""Hosts as people tell of them: stacks of /proc, /proc/uptime of many, SUSE's prompt, Slurm's start of a job, ldd."""

from __future__ import annotations

from pathlib import Path

from probes.intake import pasted
from probes.intake.documents import quoted_in
from tests.support.brought import told

NFS = "[<0>] folio_wait_bit_common+0x1/0x2\n[<0>] filemap_read+0x1/0x2\n[<0>] nfs_file_read+0x1/0x2 [nfs]\n"
EXT4 = NFS.replace("nfs_file_read", "ext4_file_read_iter").replace("[nfs]", "[ext4]")
STEPS = "".join(f"2026-05-06 10:00:{n:02d} step {n} loss 2.{n} step_time 1.0s\n" for n in range(20))


def stacks(body: str, state: str = "D (disk sleep)") -> str:
    heads = "== /proc/{0}/comm: pt_data_worker\nState:\t{1}\n== /proc/{0}/stack\n{2}\n"
    return "".join(heads.format(6100 + n, state, body) for n in range(4))


def test_pages_that_several_tasks_wait_for_are_the_servers_whose_client_asked(tmp_path: Path) -> None:
    found = told(tmp_path / "nfs", {"qn4/stacks.txt": stacks(NFS)})
    assert (found.cause, found.subject["node"]) == ("host.storage_stall", "qn4")
    assert told(tmp_path / "disk", {"qn4/stacks.txt": stacks(EXT4)}).probability < 0.8
    assert told(tmp_path / "runs", {"qn4/stacks.txt": stacks(NFS, "S (sleeping)")}).cause != "host.storage_stall"


def test_of_many_nodes_the_first_number_of_proc_uptime_tells_the_young_one(tmp_path: Path) -> None:
    rows = "".join(f"qn{n}: {900_000 + n}.12 80000000.10\n" for n in range(1, 6))
    log = "$ tail -2 run.log\n2026-05-06 07:00:01 step 100 loss 2.0\n2026-05-06 10:00:09 step 901 loss 2.0\n"
    ask = "$ pdsh -w qn[1-6] cat /proc/uptime\n"
    found = told(tmp_path / "young", {"paste.txt": f"{ask}{rows}qn6: 640.02 90000.10\n{log}"})
    assert (found.cause, found.subject["node"]) == ("host.rebooted", "qn6")
    same = told(tmp_path / "same", {"paste.txt": f"{ask}{rows}qn6: 900640.02 80000000.10\n{log}"})
    assert same.cause != "host.rebooted"


def test_the_prompt_of_suse_names_its_host() -> None:
    text = "ops@login2:~> ssh nid000412\nops@nid000412:~> nproc\n128\nops@nid000412:/home> cat /proc/loadavg\n1\n"
    assert [part.nodes for part in pasted.parts_of(text)] == [("nid000412",), ("nid000412",)]


def test_a_heading_above_prompts_names_the_node_of_them_all() -> None:
    text = "### friday, host qn-gpu-3 (of two)\n\n$ for p in 71 72; do cat /proc/$p/comm; done\npython\n$ nproc\n64\n"
    assert [part.nodes for part in pasted.parts_of(text)] == [("qn-gpu-3",), ("qn-gpu-3",)]


def test_two_marks_head_what_was_asked_of_the_kernel_on_nodes_of_any_name() -> None:
    text = "## l4x-1  /proc/PID/task/*/status\nName:\tpython\n\n## l4x-2  /proc/PID/task/*/status\nName:\tpython\n"
    assert [part.nodes for part in pasted.parts_of(text)] == [("l4x-1",), ("l4x-2",)]


def test_a_document_quotes_what_it_indents_below_an_empty_line() -> None:
    text = "# slow\n\ntwice:\n\n    root@n1:~# nproc\n    64\n\n    root@n1:~# uptime\n\nand so on\n"
    text += "- a list\n\n    goes on\n"
    assert [body for _, body in quoted_in(text)] == ["root@n1:~# nproc\n64\n\nroot@n1:~# uptime\n\n"]
    fenced = "```\nfirst\n\n    deep\n```\n"
    assert [body for _, body in quoted_in(fenced)] == ["first\n\n    deep\n"]


BEFORE = """May 06 05:30:02 qn7 systemd-logind[901]: The system will reboot now!
May 06 05:30:02 qn7 systemd-logind[901]: System is rebooting.
May 06 05:36:31 qn7 kernel: Linux version 5.14.0-503.el9.x86_64
"""
SHOWN = "JobId=88 JobName=x\n   JobState=RUNNING Reason=None\n   StartTime=2026-05-06T{}:00:02\n   NodeList=qn[6-9]\n"


def test_what_was_before_slurm_started_the_job_did_not_stop_it(tmp_path: Path) -> None:
    files = {"qn7/journal.txt": BEFORE, "slurm-88.out": STEPS}
    later = told(tmp_path / "later", files | {"scontrol.txt": SHOWN.format("08")})
    assert later.cause in ("none", "unknown")
    inside = told(tmp_path / "inside", files | {"scontrol.txt": SHOWN.format("04")})
    assert (inside.cause, inside.subject["node"]) == ("host.rebooted", "qn7")


def test_the_node_whose_loader_finds_a_library_elsewhere_is_the_one_where_it_does_not_fit(tmp_path: Path) -> None:
    own, other = "/v/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2", "/opt/old/lib/libnccl.so.2"
    rows = "".join(f"qn{n}: \tlibnccl.so.2 => {other if n == 2 else own} (0x00007f1c8a20)\n" for n in (1, 2))
    error = "[rank8]: ImportError: /v/lib/libtorch_cuda.so: undefined symbol: nccl{}\n"
    head = '[rank8]: Traceback (most recent call last):\n[rank8]:   File "/w/t.py", line 2, in <module>\n'
    ask = "$ pdsh -w qn[1-2] 'ldd /v/lib/libtorch_cuda.so | grep nccl'\n"
    files = {"ldd.txt": ask + rows, "run.log": head + error.format("CommRegister")}
    found = told(tmp_path / "job", files)
    assert (found.cause, found.subject["node"]) == ("host.library_mismatch", "qn2")


def test_the_end_of_a_rank_that_srun_tells_with_its_node_is_the_kernels_kill_there(tmp_path: Path) -> None:
    kill = "[Wed May  6 10:00:21 2026] oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0"
    kill += ",global_oom,task_memcg=/slurm/job_8,task=python,pid=771,uid=4\n[Wed May  6 10:00:21 2026] Out of memory: "
    kill += "Killed process 771 (python) total-vm:9012000kB, anon-rss:4800000kB, file-rss:0kB, shmem-rss:0kB, UID:4\n"
    files = {"qn3/dmesg.txt": kill, "run.log": STEPS + "srun: error: qn3: task 5: Killed\n"}
    found = told(tmp_path, files)
    assert (found.cause, found.subject["node"]) == ("host.memory_oom_kill", "qn3")


def test_a_boot_after_a_job_that_ended_its_work_stopped_nothing(tmp_path: Path) -> None:
    rows = "".join(f"qn-0{n}:          system boot  2026-04-0{n} 08:10\n" for n in range(1, 5))
    files = {"who.txt": rows + "qn-05:          system boot  2026-05-06 17:40\n"}
    log = "2026-05-06 07:00:00 step 1 loss 9.1\n" + STEPS
    lost = told(
        tmp_path / "lost", files | {"train.log": log + "RuntimeError: Connection closed by peer [10.0.0.5]:1\n"}
    )
    assert (lost.cause, lost.subject["node"]) == ("host.rebooted", "qn-05")
    done = told(tmp_path / "done", files | {"train.log": log + "2026-05-06 10:01:00 training finished, saved it all\n"})
    assert done.cause == "none"
