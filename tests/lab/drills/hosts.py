"""The machine itself: clock, kernel log, load, storage, in the forms of tests/fixtures/host.*."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from tests.lab.drills.cluster import Node, Rank, sections

JOURNAL = "/usr/bin/journalctl -k -q --no-pager -o short-iso-precise --since -2h -n 100000"
CPUS = 192
MEMORY_KB = 2_113_391_616


def clock(node: Node, at: float) -> str:
    """chronyc, and eight exchanges on the open channel; our own times are those of the recording."""
    rng = node.rng("clock")
    slow = rng.choice(("slow", "fast"))
    tracking = [
        f"Reference ID    : 0A28{rng.randrange(256):02X}FE (10.40.{rng.randrange(1, 4)}.254)",
        "Stratum         : 3",
        f"Ref time (UTC)  : {datetime.fromtimestamp(at - rng.uniform(4, 60), UTC):%a %b %d %H:%M:%S %Y}",
        f"System time     : {abs(rng.gauss(0, 4e-5)):.9f} seconds {slow} of NTP time",
        f"Last offset     : {rng.gauss(0, 3e-5):+.9f} seconds",
        f"RMS offset      : {abs(rng.gauss(3e-5, 1e-5)):.9f} seconds",
        f"Frequency       : {rng.uniform(1, 24):.3f} ppm {rng.choice(('slow', 'fast'))}",
        f"Residual freq   : {rng.gauss(0, 0.002):+.3f} ppm",
        f"Skew            : {rng.uniform(0.01, 0.09):.3f} ppm",
        f"Root delay      : {rng.uniform(4e-4, 9e-4):.9f} seconds",
        f"Root dispersion : {rng.uniform(3e-4, 9e-4):.9f} seconds",
        f"Update interval : {rng.uniform(62, 66):.1f} seconds",
        "Leap status     : Normal",
    ]
    if node.clock_off:  # its time service lost its source long ago
        tracking[0], tracking[1], tracking[-1] = (
            "Reference ID    : 00000000 ()",
            "Stratum         : 0",
            "Leap status     : Not synchronised",
        )
    pings = []
    for number in range(8):
        asked = at + 0.011 * number
        there, back = asked + rng.uniform(1.2e-4, 2.6e-4), asked + rng.uniform(3.4e-4, 6.1e-4)
        pings.append(f"{asked:.6f} {node.clock(there):.6f} {back:.6f}")
    state = "state 5" if node.clock_off else "state 0"
    return sections({"adjtimex": state, "chronyc -n tracking": "\n".join(tracking), "golden15/pings": "\n".join(pings)})


def kernel_log(node: Node, at: float, said: Sequence[tuple[float, str]] = ()) -> str:
    """The journal of two hours without what is of no interest. `said`: (when, message)."""
    rows = [f"{_stamp(node.clock(when))} {node.name} kernel: {message}" for when, message in sorted(said)]
    parts = {
        "date +%s.%N": f"{node.clock(at):.6f}",
        "/proc/uptime": f"{node.mono(at):.6f}",
        "/proc/sys/kernel/random/boot_id": node.boot_id,
        "golden15/dropped": f"{node.rng('log').randrange(40, 900)} lines without interest, 0 over the cap",
        JOURNAL: "\n".join(rows),
    }
    return sections(parts)


def _stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f+0000")


def load(node: Node, at: float, ranks: Sequence[Rank], backup: bool = False) -> str:
    """`backup`: a program that reads and compresses keeps many cores and the disks busy."""
    rng = node.rng("load")
    busy = rng.uniform(9.2, 13.4) + (88 if backup else 0)
    some = rng.uniform(24, 31) if backup else rng.uniform(0.0, 0.3)
    io = rng.uniform(6, 9) if backup else 0.0
    one, two = _stat(node, at, backup, 0), _stat(node, at, backup, 1)
    rows, delays = _busiest(node, ranks, backup)
    loads = " ".join(f"{busy * share:.2f}" for share in (1.0, 0.97, 0.9))
    parts = {
        "/proc/pressure/cpu": _pressure(rng.randrange(10**8, 10**10), some, 0.0),
        "/proc/pressure/io": _pressure(rng.randrange(10**8, 10**10), io * 2, io),
        "/proc/pressure/memory": _pressure(0, 0.0, 0.0),
        "/proc/loadavg": f"{loads} {12 + 90 * backup}/{rng.randrange(3900, 4400)} {rng.randrange(10**5, 4 * 10**6)}",
        "/sys/devices/system/cpu/online": f"0-{CPUS - 1}",
        "/proc/meminfo": _meminfo(node),
        "/proc/stat 1": one,
        "/proc/stat 2": two,
        "golden15/samples": f"hz 100\nmono {node.mono(at):.6f} {node.mono(at) + 1.000214:.6f}\n"
        f"ranks {' '.join(str(rank.pid) for rank in ranks)}",
        "/proc/PID/stat 1": "\n".join(row[0] for row in rows),
        "/proc/PID/stat 2": "\n".join(row[1] for row in rows),
        "/proc/PID/schedstat 1": "\n".join(row[0] for row in delays),
        "/proc/PID/schedstat 2": "\n".join(row[1] for row in delays),
    }
    return sections(parts)


def _pressure(total: int, some: float, full: float) -> str:
    return (
        f"some avg10={some:.2f} avg60={some * 0.94:.2f} avg300={some * 0.61:.2f} total={total}\n"
        f"full avg10={full:.2f} avg60={full * 0.94:.2f} avg300={full * 0.61:.2f} total={total // 3 if full else 0}"
    )


def _meminfo(node: Node) -> str:
    rng = node.rng("memory")
    cached = rng.randrange(240_000_000, 610_000_000)
    free = rng.randrange(900_000_000, 1_200_000_000)
    rows = {"MemTotal": MEMORY_KB, "MemFree": free, "MemAvailable": free + cached, "Cached": cached, "SwapTotal": 0,
        "SwapFree": 0, "Dirty": rng.randrange(200, 9000), "Shmem": rng.randrange(21_000_000, 34_000_000)}  # fmt: skip
    return "\n".join(f"{name}: {value} kB" for name, value in rows.items())


def _stat(node: Node, at: float, backup: bool, second: int) -> str:
    rng = node.rng("stat")
    hours = int(node.uptime) // 3600
    user, system, idle = hours * 3_300_000, hours * 190_000, hours * 65_000_000
    wait = 900 if backup else 0
    user, system = user + second * (7600 if backup else 840), system + second * (1300 if backup else 41)
    idle += second * (100 * CPUS - (8900 + wait if backup else 881))
    other = rng.randrange(10**6)
    line = f"cpu  {user} {other} {system} {idle} {other // 3 + second * wait} 0 {other // 9} 0 0 0"
    boot = int(node.clock(node.t0 - node.uptime))
    running = rng.randrange(9, 14) + (90 if backup else 0)
    return f"{line}\nbtime {boot}\nprocs_running {running}\nprocs_blocked {4 if backup else 0}"


def _busiest(node: Node, ranks: Sequence[Rank], backup: bool) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Of each process its line of /proc/PID/stat and of schedstat, twice."""
    rng = node.rng("busiest")
    who = [(rank.pid, ranks[0].pid - 3, "pt_main_thread", "R", 100, rank.started) for rank in ranks]
    if backup:
        first = rng.randrange(10**5, 10**6)
        who = [(first + n, first - 1, "zstd", "R", 97, int(node.mono(node.t0 - 640) * 100)) for n in range(5)] + who
    rows, delays = [], []
    for pid, ppid, comm, state, spent, started in who:
        ticks = rng.randrange(10**5, 3 * 10**6)
        run = rng.randrange(10**12, 9 * 10**13)
        tail = f"20 0 {rng.randrange(90, 140)} 0 {started} 214748364800 {rng.randrange(4 * 10**6, 9 * 10**6)}"
        rows.append(tuple(
            f"{pid} ({comm}) {state} {ppid} {pid} {pid} 0 -1 4194304 0 0 0 0 {ticks + used} 812 0 0 {tail}"
            for used in (0, spent)
        ))  # fmt: skip
        delays.append((f"{pid} {run} {run // 900} 1203", f"{pid} {run + 10**7 * spent} {run // 900 + 410_000} 1207"))
    return rows, delays


def storage(node: Node) -> str:
    """A system disk, a scratch disk, shared memory, and the NFS mount that holds the job's program."""
    rng = node.rng("storage")
    mounts = [
        "30 25 0:27 / /dev/shm rw,nosuid,nodev - tmpfs tmpfs rw,size=1056695808k,inode64",
        "27 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw,errors=remount-ro",
        "61 27 9:0 / /raid rw,noatime shared:31 - xfs /dev/md0 rw,attr2,inode64,logbufs=8,noquota",
        f"88 27 0:61 / /workspace rw,relatime shared:52 - nfs4 10.40.9.20:/export/workspace rw,vers=4.2,hard,proto=tcp,"
        f"timeo=600,clientaddr={node.address}",
    ]
    free, scratch = rng.randrange(310_000_000, 420_000_000), rng.randrange(4_100_000_000, 6_900_000_000)
    shm = rng.randrange(256_000_000, 259_000_000)
    asked = [
        f"/dev/shm\tok\t4096 264173952 {shm} {shm} 264173952 {264173952 - rng.randrange(90, 400)}",
        f"/\tok\t4096 461373440 {free} {free - 23_000_000} 117440512 {117440512 - rng.randrange(500_000, 900_000)}",
        f"/raid\tok\t4096 7501476528 {scratch} {scratch} 1500295296 {1500295296 - rng.randrange(9_000, 90_000)}",
    ]
    sent = rng.randrange(2 * 10**6, 9 * 10**6)
    return sections({
        "/proc/self/mountinfo": "\n".join(mounts),
        "/proc/self/mountstats 1": _nfs(sent, int(node.uptime)),
        "golden15/blocked 1": "",
        "golden15/statvfs": "\n".join(asked),
        "golden15/shm": "",
        "/proc/self/mountstats 2": _nfs(sent + rng.randrange(0, 7), int(node.uptime) + 1),
        "golden15/blocked 2": "",
    })  # fmt: skip


def _nfs(sent: int, age: int) -> str:
    return "\n".join((
        "device 10.40.9.20:/export/workspace mounted on /workspace with fstype nfs4 statvers=1.1",
        f"\tage:\t{age}",
        f"\txprt:\ttcp 832 0 1 0 3 {sent} {sent} 0 {sent * 2} 0 24 26 5726",
        "\tper-op statistics",
        f"\t        READ: {sent // 3} {sent // 3} 0 {sent * 60} {sent * 31_000} 6 79386 79407",
        f"\t     GETATTR: {sent // 4} {sent // 4} 0 {sent * 40} {sent * 70} 6 1201 1233",
    ))  # fmt: skip
