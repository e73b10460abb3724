"""Trouble with CPUs in the many forms in which people bring it: tools, columns, sessions over several nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.intake import commands, pasted
from probes.intake.hosts import of_report
from tests.support.brought import told

PRESSED = "some avg10=71.40 avg60=70.02 avg300=66.90 total=919281\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
CALM = "some avg10=0.20 avg60=0.31 avg300=0.20 total=919281\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"


# Sessions: whose a command's output is


@pytest.mark.parametrize(
    ("command", "node"),
    [
        ("kubectl -n ml exec -it trainer-worker-3 -c main -- cat /sys/fs/cgroup/cpu.stat", "trainer-worker-3"),
        ("kubectl exec deep-0 -- nproc", "deep-0"),
        ("oc -n ml describe pod deep-worker-0", "deep-worker-0"),
        ("kubectl describe node gke-a3-pool-7", "gke-a3-pool-7"),
        ("ssh -o BatchMode=yes root@hgx-21 uptime", "hgx-21"),
        ("ssh hgx-21", "hgx-21"),
        ("srun --jobid 88 -w cn104 --overlap ps aux", "cn104"),
        ("pdsh -w cn[101-104] uptime", ""),
        ("for h in a1 a2; do ssh $h nproc; done", ""),
        ("cat /proc/loadavg", ""),
    ],
)
def test_a_command_tells_which_node_it_asked(command: str, node: str) -> None:
    assert commands.far(command) == node


def test_what_another_node_answered_is_that_nodes_and_what_comes_after_is_not() -> None:
    text = "$ kubectl exec deep-worker-1 -- cat /proc/loadavg\n1.00 1.00 1.00 1/2 3\n$ uptime\n 10:00:00 up 1 day\n"
    assert [part.nodes for part in pasted.parts_of(text)] == [("deep-worker-1",), ()]


def test_a_prompt_with_an_environment_before_it_is_one() -> None:
    text = "(venv) ana@hgx-07:~$ nproc\n96\n(venv) ana@hgx-07:~$ cat /proc/loadavg\n1.00 1.00 1.00 1/2 3\n"
    assert {part.nodes for part in pasted.parts_of(text)} == {("hgx-07",)}


def test_a_folder_that_says_it_is_a_nodes_is_one(tmp_path: Path) -> None:
    assert of_report("host=zeta-b") == "zeta-b"
    assert of_report("date=2026-01-01") == ""


def test_pdsh_below_prompts_gives_each_line_to_its_node(tmp_path: Path) -> None:
    heads = "    PID USER     STAT NLWP %CPU COMMAND"
    rows = {"qx1": [], "qx2": [" 991 root     R      40 3100 tar"]}
    for node, some in rows.items():
        some += [f" {4000 + n} ml       R      70 {50 if node == 'qx2' else 103}.0 python3" for n in range(4)]
    text = "please look\n\n$ pdsh -w qx[1-2] nproc\n" + "".join(f"{node}: 48\n" for node in rows)
    text += "$ pdsh -w qx[1-2] 'ps -eo pid,user,stat,nlwp,pcpu,comm --sort=-pcpu | head'\n"
    text += "".join(f"{node}: {line}\n" for node, some in rows.items() for line in (heads, *some))
    text += "$ pdsh -w qx[1-2] cat /proc/pressure/cpu\n"
    text += "".join(f"{node}: {line}\n" for node in rows for line in (PRESSED if node == "qx2" else CALM).splitlines())
    found = told(tmp_path, {"paste.txt": text})
    assert (found.cause, found.subject["node"], found.subject["pid"]) == ("cpu.process_hotspot", "qx2", 991)
    assert found.probability >= 0.9
