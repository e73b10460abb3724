"""host.load beyond its recorded outputs: thresholds, hostile names and numbers, and the collector itself."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from probes.catalog.host_load import PROBE, findings, parse
from probes.core import ParseError, sections
from probes.transport import Plan
from probes.transport.protocol import to_capture
from tests.support.collectors import capture_here, old_and_new_pythons
from tests.support.runners import probe, run
from tests.support.wait import until

SPIN = "import sys\nif sys.argv[1:]: open('/proc/self/comm', 'w').write(sys.argv[1])\nwhile True: pass"


def load(**files: str) -> str:
    parts = {"loadavg": "1.00 1.00 1.00 1/100 9"} | files
    return "\n".join(f"==> /proc/{name.replace('_', '/')} <==\n{text}\n" for name, text in parts.items())


def codes(text: str) -> list[tuple[str, str]]:
    return [(finding.code, finding.severity) for finding in findings(parse(text))]


# Thresholds


@pytest.mark.parametrize(
    ("avg10", "found"),
    [("20.00", []), ("20.01", ["warn"]), ("50.00", ["warn"]), ("50.01", ["bad"])],
)
def test_cpu_pressure_is_judged_by_the_last_ten_seconds(avg10: str, found: list[str]) -> None:
    text = load(pressure_cpu=f"some avg10={avg10} avg60=99.00 avg300=99.00 total=1")
    assert codes(text) == [("host.cpu_pressure", severity) for severity in found]


@pytest.mark.parametrize(("name", "limit", "severity"), [("io", 10, "warn"), ("memory", 5, "bad")])
def test_io_and_memory_pressure_are_judged_by_what_stops_every_task(name: str, limit: int, severity: str) -> None:
    def text(full: float) -> str:
        line = "avg60=0.00 avg300=0.00 total=1"
        return load(**{f"pressure_{name}": f"some avg10=99.00 {line}\nfull avg10={full:.2f} {line}"})

    assert codes(text(limit)) == []
    assert codes(text(limit + 0.01)) == [(f"host.{name}_pressure", severity)]


@pytest.mark.parametrize(
    ("periods", "throttled", "found"),
    [(100, 5, []), (100, 6, ["warn"]), (100, 25, ["warn"]), (100, 26, ["bad"]), (4, 4, []), (0, 0, [])],
)
def test_a_quota_is_judged_by_the_periods_between_the_samples(periods: int, throttled: int, found: list[str]) -> None:
    """The totals since boot (here 900 of 1000) do not count."""
    body = f"limit 50000 100000\npids 5\n[1]\nnr_periods 1000\nnr_throttled 900\n[2]\nnr_periods {1000 + periods}\n"
    text = load() + f"==> cgroup /c <==\n{body}nr_throttled {900 + throttled}\n"
    assert codes(text) == [("host.cpu_throttled", severity) for severity in found]
    assert parse(text).quotas[0].cpus == 0.5


@pytest.mark.parametrize(("first", "second", "found"), [(9, 9, True), (8, 9, False), (90, 8, False)])
def test_the_run_queue_must_be_long_in_both_samples(first: int, second: int, found: bool) -> None:
    cpu = "cpu 1 0 1 8\nprocs_running"
    text = f"==> /sys/devices/system/cpu/online <==\n0-3\n\n==> /proc/stat 1 <==\n{cpu} {first}\n\n"
    assert (codes(load() + f"{text}==> /proc/stat 2 <==\n{cpu} {second}\n") == [("host.runqueue", "warn")]) is found


def test_swap_in_use_matters_when_it_is_much() -> None:
    def text(free_kb: int) -> str:
        return load(meminfo=f"MemTotal: 9000 kB\nMemAvailable: 8000 kB\nSwapTotal: 4194304 kB\nSwapFree: {free_kb} kB")

    assert codes(text(2097152)) == [("host.swap", "warn")]
    assert codes(text(2097153)) == []


def test_memory_that_is_nearly_gone_is_bad() -> None:
    assert codes(load(meminfo="MemTotal: 1000 kB\nMemAvailable: 19 kB")) == [("host.memory_low", "bad")]
    assert codes(load(meminfo="MemTotal: 1000 kB\nMemAvailable: 20 kB")) == []


def test_psutils_readings_are_named_as_psutils() -> None:
    said = {"version": "7.2.2", "physical_cores": 96, "swap": {"total": 10, "used": 3}}
    said["cpu"] = {
        "user": 1.0,
        "nice": 2.0,
        "system": 3.0,
        "idle": 90.0,
        "iowait": 1.5,
        "irq": 0.5,
        "softirq": 1.0,
        "steal": 1.0,
    }
    read = parse(load() + f"==> psutil <==\n{json.dumps(said)}\n")
    assert (read.source, read.physical_cores, read.swap_used_bytes) == ("psutil 7.2.2", 96, 3)
    assert read.cpu is not None and (read.cpu.user, read.cpu.system, read.cpu.idle) == (3.0, 4.5, 90.0)


# Broken and hostile input


@pytest.mark.parametrize(
    ("section", "text", "error"),
    [
        ("/proc/stat 1", "cpu 1 2", "no line of CPU times"),
        ("/proc/stat 2", "cpu a b c d", "expected numbers"),
        ("/proc/meminfo", "MemTotal: lots kB", "expected 'Name: number kB'"),
        ("/sys/devices/system/cpu/online", "0-x", "expected ranges"),
        ("golden15/samples", "hz 100\nmono 2 1", "expected hz, mono, ranks"),
        ("/proc/PID/stat 2", "12 (x", "proc_pid_stat"),
        ("/proc/PID/schedstat 1", "12 5", "expected a pid and three numbers"),
        ("cgroup /x", "limit max 100000\npids 1\n[1]\n[2]", "expected limit, pids"),
        ("cgroup /x", "limit 1 0\npids 1\n[1]\n[2]", "expected limit, pids"),
        ("pressure /x", "[cpu]\nsome avg10=1", "expected pids first"),
        ("pressure /x", "pids 1\n[io]\nsome avg10=x", "io.pressure: expected numbers"),
        ("psutil", '{"cpu": []}', "expected its readings as JSON"),
        ("psutil", "[" * 400, "expected its readings as JSON"),
    ],
)
def test_what_the_kernel_cannot_print_is_an_error(section: str, text: str, error: str) -> None:
    with pytest.raises(ParseError, match=error):
        parse(load() + f"==> {section} <==\n{text}\n")


@pytest.mark.parametrize(
    "section", ["/proc/PID/stat 2", "/proc/meminfo", "/proc/pressure/cpu", "cgroup /x", "/proc/stat 1"]
)
@pytest.mark.parametrize("piece", ["(", ") ", "a=1 ", "9", "9 ", "x:", "-"])
def test_long_hostile_lines_are_read_in_no_time(section: str, piece: str) -> None:
    began = time.monotonic()
    with pytest.raises(ParseError):
        parse(load() + f"==> {section} <==\n{piece * (100_000 // len(piece))}\n")
    assert time.monotonic() - began < 1.0


@pytest.mark.parametrize(("first", "second", "found"), [(0, 0, []), (3, 3, ["info"]), (3, 5, ["warn"]), (9, 0, [])])
def test_tasks_that_the_kernel_finds_hung_are_told_loudly_only_while_they_become_more(
    first: int, second: int, found: list[str]
) -> None:
    """sysctl/kernel.rst, hung_task_detect_count: since boot, or since somebody set it back."""
    counts = {f"sys_kernel_hung task detect count {look}": str(value) for look, value in ((1, first), (2, second))}
    text = load(**counts).replace("hung task detect count", "hung_task_detect_count")
    assert [severity for code, severity in codes(text) if code == "host.hung_tasks"] == found


# The collector, for real


def test_the_count_of_hung_tasks_is_read_where_the_kernel_has_one(tmp_path: Path) -> None:
    (tmp_path / "count").write_text("7\n")
    instead = {"/proc/sys/kernel/hung_task_detect_count": str(tmp_path / "count")}
    text = capture_here(PROBE, instead=instead).text.replace(str(tmp_path / "count"), *instead)
    assert (parse(text).hung_tasks, parse(text).hung_tasks_more) == (7, 0)


@pytest.fixture
def busy(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    """A Python that spins, under the name it is given."""
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", SPIN, *getattr(request, "param", ())])
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("python", old_and_new_pythons())
def test_a_busy_python_is_taken_for_a_rank_and_measured(python: str, busy: subprocess.Popen[bytes]) -> None:
    capture = capture_here(PROBE, python)
    assert capture.outcome == "ok", capture.why
    assert capture.took_s < 4
    read = parse(capture.text)
    (rank,) = [process for process in read.processes if process.pid == busy.pid]
    assert rank.rank and rank.comm.startswith("python") and rank.cpu_percent is not None
    assert 5 < rank.cpu_percent < 120
    assert read.interval_s is not None and 0.9 < read.interval_s < 3
    assert read.cpus and read.memory_total_bytes and read.boot_at and read.cpu
    list(findings(read))


def _spin() -> dict[str, str]:
    import os
    import time

    ends = time.monotonic() + 2.0
    while time.monotonic() < ends:
        pass
    return {"pid": str(os.getpid())}


def test_a_probe_beside_it_is_no_rank_however_busy() -> None:
    """Probes are Pythons too, and on a crowded node they wait for a CPU as ranks do."""
    spin = probe("test.spin", collect=_spin, timeout_s=9.0)
    answers = run(Plan((spin, PROBE), deadline_s=12.0))
    spun = int(sections(to_capture("here", spin, answers["test.spin"]).text)["pid"])
    found = parse(to_capture("here", PROBE, answers["host.load"]).text).processes
    assert [one for one in found if one.pid == spun and one.rank] == []


@pytest.mark.needs_root
def test_a_rank_that_a_quota_holds_back_is_found_with_its_quota(busy: subprocess.Popen[bytes]) -> None:
    """Held to 5 % of a CPU it uses little, but waits for more."""
    old = Path("/sys/fs/cgroup/cpu")
    group = (old if old.is_dir() else Path("/sys/fs/cgroup")) / f"golden15-test-{busy.pid}"
    try:
        group.mkdir()
        if old.is_dir():
            (group / "cpu.cfs_quota_us").write_text("5000")
        else:
            (group / "cpu.max").write_text("5000 100000")
        (group / "cgroup.procs").write_text(str(busy.pid))
    except OSError as error:
        if group.is_dir():
            group.rmdir()
        pytest.skip(f"cannot run here: no cgroup with a CPU quota can be made ({error})")
    try:
        read = parse(capture_here(PROBE).text)
    finally:
        busy.kill()
        busy.wait()
        until(lambda: not group.rmdir(), 10, "the cgroup to be empty")
    (quota,) = [quota for quota in read.quotas if busy.pid in quota.pids]
    assert quota.cpus == 0.05 and quota.throttled_percent is not None and quota.throttled_percent > 25
    assert [process.rank for process in read.processes if process.pid == busy.pid] == [True]


@pytest.mark.parametrize("busy", [("x\n==> a <==",), ("a (b) c:d",)], indirect=True)
def test_a_processs_name_cannot_forge_a_section(busy: subprocess.Popen[bytes]) -> None:
    capture = capture_here(PROBE)
    assert "==> a <==\n" not in capture.text.replace("?==> a <==", "")
    names = [process.comm for process in parse(capture.text).processes if process.pid == busy.pid]
    assert names in (["x?==> a <=="], ["a (b) c:d"])


def test_psutil_is_used_where_it_can_be_imported(tmp_path: Path) -> None:
    (tmp_path / "psutil.py").write_text(
        "from collections import namedtuple as n\n__version__ = '9.9'\n"
        "def cpu_times_percent(interval): return n('c', 'user nice system idle')(1.0, 0.0, 2.0, 97.0)\n"
        "def swap_memory(): return n('s', 'total used')(100, 7)\n"
        "def cpu_count(logical): return 3\n"
    )
    read = parse(capture_here(PROBE, site=(str(tmp_path),)).text)
    assert (read.source, read.physical_cores, read.swap_used_bytes) == ("psutil 9.9", 3, 7)


def test_a_psutil_that_hangs_costs_its_readings_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "psutil.py").write_text("import time\ntime.sleep(60)\n")
    capture = capture_here(PROBE, site=(str(tmp_path),))
    assert capture.outcome == "ok" and capture.took_s < 5
    assert parse(capture.text).source == "proc"


# Waiting of a control group


def psi(full: float) -> str:
    some = f"some avg10={full + 1:.2f} avg60=1.00 avg300=0.50 total=9"
    return f"{some}\nfull avg10={full:.2f} avg60=0.50 avg300=0.20 total=8"


def grouped(memory: float, io: float, node: float = 0.3) -> str:
    text = load(pressure_memory=psi(node), pressure_io=psi(node))
    told = f"pids 412 413\n[cpu]\n{psi(90)}\n[memory]\n{psi(memory)}\n[io]\n{psi(io)}"
    return f"{text}\n==> pressure /sys/fs/cgroup/kubepods.slice/pod1/trainer <==\n{told}\n"


def test_ranks_that_wait_in_their_own_group_are_told_where_the_node_is_calm() -> None:
    found = list(findings(parse(grouped(memory=61.5, io=3))))
    assert [(one.code, one.severity) for one in found] == [("host.rank_memory_pressure", "bad")]
    assert found[0].says.startswith("for 61.5 % of the last 10 s every task of the control group of ranks 412, 413")
    assert "the whole node for 0.3 %" in found[0].says and str(found[0].subject["cgroup"]).endswith("pod1/trainer")
    assert codes(grouped(memory=1, io=40)) == [("host.rank_io_pressure", "warn")]
    assert codes(grouped(memory=5, io=10)) == [], "no more than on a node"


def test_where_the_whole_node_waits_it_is_told_once() -> None:
    assert codes(grouped(memory=70, io=70, node=60)) == [("host.io_pressure", "warn"), ("host.memory_pressure", "bad")]


@pytest.mark.parametrize("python", old_and_new_pythons())
def test_the_pressure_of_a_ranks_own_control_group_is_read(
    tmp_path: Path, python: str, busy: subprocess.Popen[bytes]
) -> None:
    """A group of version 2 by files of that form, for this machine may have none: where /proc says that the rank is."""
    lines = Path(f"/proc/{busy.pid}/cgroup").read_text().splitlines()
    place = next((line[3:] for line in lines if line.startswith("0::")), None)
    if place is None:
        pytest.skip("cannot run here: this kernel has no control groups of version 2")
    group = tmp_path / place.strip("/")
    group.mkdir(parents=True, exist_ok=True)
    for name, full in (("cpu", 3.0), ("memory", 44.25), ("io", 2.0)):
        (group / f"{name}.pressure").write_text(psi(full) + "\n")
    read = parse(capture_here(PROBE, python, instead={"/sys/fs/cgroup": str(tmp_path)}).text)
    (waits,) = [one for one in read.waits if busy.pid in one.pids]
    assert waits.memory is not None and waits.cpu is not None and waits.io is not None
    assert (waits.memory.full_avg10, waits.cpu.some_avg10, waits.io.full_avg10) == (44.25, 4.0, 2.0)
    assert [one.code for one in findings(read) if "rank" in one.code] == ["host.rank_memory_pressure"]
