"""Sections of host.storage into its facts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from probes.catalog.host.storage_facts import (
    NETWORK,
    BlockedTask,
    Disk,
    NetworkMount,
    SharedMemory,
    Storage,
    waits_for,
)
from probes.core import ParseError, clean, sections


@dataclass(frozen=True, slots=True)
class _Mount:
    point: str
    type: str
    device: str
    options: frozenset[str]
    super_options: frozenset[str]


@dataclass(slots=True)
class _Nfs:
    sends: int = 0
    receives: int = 0
    operations: int = 0
    counted: bool = False


def parse(text: str) -> Storage:
    """Sections of the kernel's files; a second sample is marked " 2". /proc/self/mountinfo must be there."""
    parts = sections(clean(text))
    if "/proc/self/mountinfo" not in parts:
        raise ParseError(f"no section /proc/self/mountinfo, only {', '.join(parts)[:120]}")
    # The last mount on a point hides those below it.
    mounts = list({mount.point: mount for mount in _mountinfo(parts["/proc/self/mountinfo"])}.values())
    sizes = {name: (outcome, rest) for name, outcome, rest in _answers(parts.get("golden15/statvfs", ""))}
    disks = [_disk(mount, *sizes.get(mount.point, ("", ""))) for mount in mounts if not _is_network(mount.type)]
    shared = [_shm("", *sizes["/dev/shm"])] if "/dev/shm" in sizes else []
    shared += [_shm(*answer) for answer in _answers(parts.get("golden15/shm", ""))]
    return Storage(
        tuple(_worth_keeping(disks)),
        tuple(_network(mount, parts) for mount in mounts if _is_network(mount.type)),
        _blocked(parts),
        tuple(shared),
    )


def _worth_keeping(disks: list[Disk]) -> Iterator[Disk]:
    """What was asked, and what turned read-only once per device: containers bind-mount one disk hundreds of times."""
    asked = {disk.device for disk in disks if disk.outcome}
    for disk in disks:
        if disk.outcome or (disk.read_only_by_error and disk.device not in asked):
            asked.add(disk.device)
            yield disk


def _is_network(kind: str) -> bool:
    return kind in NETWORK or kind.startswith("fuse.")


def _mountinfo(text: str) -> Iterator[_Mount]:
    """proc_pid_mountinfo(5): `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`."""
    for line in text.splitlines():
        before, dash, after = line.partition(" - ")
        head, tail = before.split(" "), after.split(" ")
        if not dash or len(head) < 6 or len(tail) < 3:
            raise ParseError(f"/proc/self/mountinfo: expected proc_pid_mountinfo(5), found {line[:80]!r}")
        yield _Mount(head[4], tail[0], tail[1], frozenset(head[5].split(",")), frozenset(tail[2].split(",")))


def _answers(text: str) -> Iterator[tuple[str, str, str]]:
    for line in text.splitlines():
        fields = line.split("\t", 2)
        if len(fields) != 3:
            raise ParseError(f"golden15/statvfs: expected name, outcome and numbers, found {line[:80]!r}")
        yield fields[0], fields[1], fields[2]


def _numbers(outcome: str, rest: str) -> tuple[int, ...]:
    """fragment size, blocks, free, available, inodes, free inodes; () when the call gave none."""
    if outcome != "ok":
        return ()
    words = rest.split()
    if len(words) != 6 or not all(word.isdecimal() and len(word) < 20 for word in words):
        raise ParseError(f"golden15/statvfs: expected six numbers, found {rest[:80]!r}")
    return tuple(int(word) for word in words)


def _percent(used: int, whole: int) -> float | None:
    return round(100 * used / whole, 1) if whole > 0 else None


def _disk(mount: _Mount, outcome: str, rest: str) -> Disk:
    read_only = "ro" in mount.options
    by_error = "ro" in mount.super_options and not read_only and mount.type not in ("tmpfs", "overlay")
    size = free = used = inodes = None
    if numbers := _numbers(outcome, rest):
        unit, blocks, bfree, available, files, ffree = numbers
        size, free = unit * blocks, unit * available
        used = _percent(blocks - bfree, blocks - bfree + available)
        inodes = _percent(files - ffree, files)
    return Disk(mount.point, mount.type, mount.device, read_only, by_error, outcome, size, free, used, inodes)


def _shm(pids: str, outcome: str, rest: str) -> SharedMemory:
    numbers = _numbers(outcome, rest)
    if not all(word.isdecimal() for word in pids.split()):
        raise ParseError(f"golden15/shm: expected process numbers, found {pids[:80]!r}")
    who = tuple(int(pid) for pid in pids.split())
    if not numbers or not numbers[1]:  # a tmpfs without a limit reports no blocks
        return SharedMemory(who, outcome, None, None)
    return SharedMemory(who, outcome, numbers[0] * numbers[1], _percent(numbers[1] - numbers[2], numbers[1]))


def _network(mount: _Mount, parts: Mapping[str, str]) -> NetworkMount:
    before = _mountstats(parts.get("/proc/self/mountstats 1", "")).get(mount.point)
    after = _mountstats(parts.get("/proc/self/mountstats 2", "")).get(mount.point)
    last = after or before
    if last is None or not last.counted:
        return NetworkMount(mount.point, mount.type, mount.device, False, None, None, None, None)
    outstanding = last.sends - last.receives
    if before is None or after is None:
        return NetworkMount(mount.point, mount.type, mount.device, False, None, None, None, outstanding)
    return NetworkMount(
        mount.point,
        mount.type,
        mount.device,
        True,
        after.sends - before.sends,
        after.receives - before.receives,
        after.operations - before.operations,
        outstanding,
    )


def _mountstats(text: str) -> dict[str, _Nfs]:
    """nfsiostat's file: `device S mounted on P with fstype nfs4 statvers=1.1`, xprt lines, then one line per operation.

    xprt tcp: source port, binds, connects, connect time, idle time, sends, receives, ... ; udp lacks the three of the
    connection. Operation: completed, transmissions, time-outs, ...
    """
    found: dict[str, _Nfs] = {}
    current = _Nfs()
    operations = False
    for line in text.splitlines():
        words = line.split()
        if line.startswith("device "):
            point = line.rpartition(" mounted on ")[2].partition(" with fstype ")[0]
            current, operations = found.setdefault(point, _Nfs()), False
        elif words[:1] == ["xprt:"]:
            at = 4 if words[1:2] == ["udp"] else 7
            try:
                current.sends += int(words[at])
                current.receives += int(words[at + 1])
            except (IndexError, ValueError):
                raise ParseError(f"/proc/self/mountstats: expected counters, found {line[:80]!r}") from None
            current.counted = True
        elif words == ["per-op", "statistics"]:
            operations = True
        elif operations and len(words) > 2 and words[0].endswith(":") and words[1].isdecimal():
            current.operations += int(words[1][:20])
    return found


def _blocked(parts: Mapping[str, str]) -> tuple[BlockedTask, ...]:
    first = _tasks(parts.get("golden15/blocked 1", ""))
    second = _tasks(parts["golden15/blocked 2"]) if "golden15/blocked 2" in parts else first
    twice = "golden15/blocked 1" in parts and "golden15/blocked 2" in parts
    found = []
    for pid, (comm, wchan, switches, parent, started) in second.items():
        # The same task, in the same function, and not once put to sleep anew: not two short waits in one place.
        stuck = twice and first.get(pid) == (comm, wchan, switches, parent, started)
        found.append(BlockedTask(pid, comm, wchan, 2 in (pid, parent), stuck, waits_for(wchan)))
    return tuple(found)


def _tasks(text: str) -> dict[int, tuple[str, str, str, int, str]]:
    """`wchan switches PID (comm) D ppid ...`, the third part being the line of /proc/PID/stat."""
    found = {}
    for line in text.splitlines():
        wchan, _, rest = line.partition(" ")
        switches, _, stat = rest.partition(" ")
        before, _, after = stat.rpartition(")")
        pid, _, comm = before.partition(" (")
        fields = after.split()
        try:
            found[int(pid)] = (comm, "" if wchan == "-" else wchan[:128], switches, int(fields[1]), fields[19])
        except (ValueError, IndexError):
            raise ParseError(
                f"golden15/blocked: expected wchan, switches and /proc/PID/stat, found {line[:80]!r}"
            ) from None
    return found
