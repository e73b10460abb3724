"""Who waits for a CPU and who takes it, as tracers of the scheduler, process-exporter and systemd-cgtop tell it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from probes.intake.tools import tool_of
from probes.intake.tools.host import scheduler_waits
from tests.support.hardware import judged, shares

CAUSE = "cpu.process_hotspot"
SCHED = """\
 ----------------------------------------------------------------------------------------------------
  Task                  |   Runtime ms  |  Count   | Avg delay ms    | Max delay ms    | Max delay start
 ----------------------------------------------------------------------------------------------------
  python:(8)            |  41200.000 ms |     9000 | avg:   {delay:.3f} ms | max:  48.121 ms | max start: 91240.22 s
  ffmpeg:(64)           | 590000.000 ms |    71200 | avg:   0.910 ms | max:  12.121 ms | max start: 91240.22 s
"""
OLDER = SCHED.replace("Count   | Avg delay ms ", "Switches | Average delay ms").replace("avg: ", "avg:")
COMMAND = "$ perf sched record -- sleep 10; perf sched latency"


def runqlat(late: int) -> str:
    return (
        "Tracing run queue latency... Hit Ctrl-C to end.\n\n     usecs               : count     distribution\n"
        f"         0 -> 1          : {1000 - late}      |****************************************|\n"
        f"      8192 -> 16383      : {late}      |********************                    |\n"
    )


BPFTRACE = """\
Tracing CPU scheduler... Hit Ctrl-C to end.
@usecs:
[0]              600 |@@@@@@@@@@@|
[2, 4)           300 |@@@@@|
[8K, 16K)        100 |@|
"""


@pytest.mark.parametrize("text", [SCHED, OLDER])
def test_runtime_and_delays_of_tasks_are_read_and_the_share_is_of_the_time_that_they_wanted(text: str) -> None:
    shown = text.format(delay=5.0)
    assert tool_of(shown, "") is scheduler_waits.TOOL
    first, second = scheduler_waits.read(shown).processes
    assert (first.comm, first.threads, first.ran_ns, first.waited_ns) == ("python", 8, 41_200_000_000, 45_000_000_000)
    assert first.pid < 0
    assert first.pid != second.pid


def test_who_takes_the_cpus_while_ranks_wait_is_named_without_a_made_up_number(tmp_path: Path) -> None:
    text = f"{COMMAND}\n{SCHED.format(delay=6.2)}$ nproc\n96\n$ exit\n"
    found = judged(tmp_path / "wait", {"n.txt": text}).verdict.hypothesis
    assert (found.cause, found.subject.get("process"), found.subject.get("pid")) == (CAUSE, "ffmpeg", None)
    assert "(-" not in found.says + found.because[0].says
    calm = text.replace("6.200", "0.010")
    assert shares(judged(tmp_path / "calm", {"n.txt": calm})).get(CAUSE, 0.0) < 0.5


@pytest.mark.parametrize(
    ("text", "percent"),
    [
        (runqlat(400), 40.0),
        (runqlat(400).replace("usecs", "msecs"), 40.0),
        (BPFTRACE, 25.0),
    ],
    ids=["bcc", "bcc -m", "bpftrace"],
)
def test_a_histogram_tells_how_many_waits_took_a_turn_of_another_task(text: str, percent: float) -> None:
    assert scheduler_waits.read(text).late_waits_percent == percent


def test_long_waits_prove_a_want_of_cpus_where_threads_are_many(tmp_path: Path) -> None:
    top = "    PID USER  S  %CPU NLWP COMMAND\n" + "".join(
        f"   90{rank} ml  R 590.0  192 python\n" for rank in range(8)
    )
    cause = "cpu.thread_oversubscription"
    for name, late, low, high in (("late", 500, 0.6, 1.0), ("calm", 3, 0.0, 0.5)):
        files = {
            "ps.txt": top,
            "runqlat.txt": runqlat(late),
            "nproc": "48\n",
            "uptime": f" 10:00:00 up 1 day, load average: {late}.0, 90.0, 90.0\n",
        }
        assert low <= shares(judged(tmp_path / name, files)).get(cause, 0.0) <= high


def test_process_exporter_and_cgtop_tell_what_runs_beside_the_job(tmp_path: Path) -> None:
    group = [
        json.dumps(
            {
                "metric": {
                    "__name__": "namedprocess_namegroup_cpu_seconds_total",
                    "groupname": name,
                    "instance": "q7:9256",
                },
                "values": [10.0, 10.0 + 60 * cpus],
                "timestamps": [1700000000000, 1700000060000],
            }
        )
        for name, cpus in (("clamscan", 41.0), ("python3", 8.0))
    ]
    waits = {"__name__": "node_pressure_cpu_waiting_seconds_total", "instance": "q7:9100"}
    group.append(json.dumps({"metric": waits, "values": [0.0, 48.0], "timestamps": [1700000000000, 1700000060000]}))
    found = judged(tmp_path / "group", {"m.jsonl": "\n".join(group) + "\n"}).verdict.hypothesis
    assert (found.cause, found.subject["process"], found.subject["node"]) == (CAUSE, "clamscan", "q7")
    cgtop = "Control Group                   Tasks   %CPU   Memory  Input/s Output/s\n/   900  5000.0   1.2G  -  -\n"
    cgtop += (
        "system.slice/backup.service  12  4100.0  1.0G  -  -\nsystem.slice/slurmstepd.scope  700  900.0  99.0G  -  -\n"
    )
    psi = "some avg10=61.00 avg60=60.00 avg300=60.00 total=9\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
    found = judged(tmp_path / "cgtop", {"cgtop.txt": cgtop, "cpu_pressure.txt": psi}).verdict.hypothesis
    assert (found.cause, found.subject["process"]) == (CAUSE, "backup")


ATOP = """\
ATOP - gpu-n4            2025/03/01  10:00:10            -----------------            10s elapsed
PRC | sys   31.20s | user 611.11s | #proc   1201 | #zombie    0 | #exit      2 |
CPU | sys     310% | user   6067% | irq       3% | idle {idle:>6}% | wait      0% |
CPL | avg1  130.11 | avg5  128.00 | avg15 120.00 | csw   912011 | intr  611201 |

    PID   SYSCPU   USRCPU   VGROW   RGROW  RUID      EUID      ST  EXC   THR   S   CPUNR    CPU   CMD        1/9
  88120    1.20s   402.1s      0K      0K  root      root      --    -    64   R      12  {other:>4}%   zstd
   9101    0.20s    9.20s      0K      0K  ml        ml        --    -    31   R       3    94%   python3
   9102    0.20s    9.10s      0K      0K  ml        ml        --    -    31   R       9    93%   python3
"""


def test_a_screen_of_atop_tells_who_takes_the_cpus_of_a_node(tmp_path: Path) -> None:
    found = judged(tmp_path / "full", {"a.txt": ATOP.format(idle=20, other=5912)}).verdict.hypothesis
    assert (found.cause, found.subject["node"], found.subject["pid"]) == (CAUSE, "gpu-n4", 88120)
    assert "59.1 CPUs of the node's 64" in found.because[0].says
    roomy = {"a.txt": ATOP.format(idle=12820, other=4012).replace("130.11", " 64.11")}
    assert shares(judged(tmp_path / "roomy", roomy)).get(CAUSE, 0.0) == 0
