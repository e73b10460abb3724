"""Finds the files that ranks and their launchers write to on this node. SENT TO THE NODE with rank.log's collector.

A file may be on a dead NFS server: links of /proc/PID/fd are read here, because the kernel answers that without the
file system; whatever touches a file itself runs in a child of its own.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any

from probes.catalog.logs import given_files, reduce, run_folders
from probes.runner import Absent, isolate, need_ranks, rank_scan, read

MANY_FILES = 64
FILE_S = 3.5
ALL_S = 8.0  # of the probe's time-out: what is read until then is told
SENT_BYTES = 1200000  # of all files together
NAMES = (".log", ".out", ".err")
LAUNCHERS = ("torchrun", "pt_elastic", "srun", "slurmstepd", "mpirun", "mpiexec", "orterun", "prterun", "deepspeed")
STRANGERS = ("systemd", "init", "sshd", "containerd-shim", "dockerd", "containerd", "kubelet", "tmux: server", "screen")


def node_logs() -> dict[str, str]:
    """The sections of rank.log: one of what was found, one per file. Raises Absent and Denied."""
    ends = time.monotonic() + ALL_S
    scan = rank_scan()
    rows = [row for row in scan["ranks"] if row["worker_of"] is None]
    places, streams = _places(rows)
    given, asked, left_off = given_files.files_given()
    if not rows and not places and not asked:
        need_ranks()  # says what to allow, where others' processes may be ranks
        raise Absent("no training rank and no launcher on this node writes to a file")
    places += run_folders.listed(places, rows)
    wanted = len(places) + len(given)
    places = places[: MANY_FILES - min(len(given), MANY_FILES // 2)]
    places += given[: MANY_FILES - len(places)]
    left_off += wanted - len(places)
    share = max(12000, SENT_BYTES // max(1, len(places)))
    calls = [(place["file"], _reader(place, share)) for place in places]
    found = {
        "now": time.time(),
        "host": os.uname()[1],
        "utc_offset_s": time.localtime().tm_gmtoff,
        "ranks": [[row["rank"], row["local_rank"], row["pid"], run_folders.job_of(row)] for row in rows],
        "streams": streams,
        "left_off": left_off,
        "given": asked,
    }
    parts = {"golden15/rank-logs": json.dumps(found)}
    for number, (place, text) in enumerate(_read(places, _in_turns(calls, ends))):
        facts = {key: place[key] for key in ("file", "how", "rank", "pid", "writers", "deleted", "job")}
        parts[f"log {number}"] = json.dumps(facts) + "\n" + text
    return parts


def _reader(place: dict[str, Any], share: int) -> Callable[[], str]:
    if place["how"] == given_files.GIVEN:
        return given_files.reader(place, share)
    return reduce.reducer(place["path"], place["file"], share)


def _in_turns(calls: list[tuple[str, Callable[[], str]]], ends: float) -> list[dict[str, Any]]:
    """As `isolate`, a few per CPU at a time: all at once on a node with few CPUs would all be too late."""
    results: list[dict[str, Any]] = []
    size = max(8, 2 * (os.cpu_count() or 1))
    for begin in range(0, len(calls), size):
        turn, left = calls[begin : begin + size], ends - time.monotonic()
        if left > 0.5:
            results += isolate(turn, min(FILE_S, left), 262144)
        else:
            why = "not begun: the time for the logs of this node was used up by those before it"
            results += [{"outcome": "skipped", "text": "", "why": why, "wchan": ""} for _ in turn]
    return results


def _read(places: list[dict[str, Any]], results: list[dict[str, Any]]) -> list[tuple[dict[str, Any], str]]:
    """Each place with what its child brought. One file that was found by two ways is one place with all its writers."""
    found: list[tuple[dict[str, Any], str]] = []
    known: dict[str, dict[str, Any]] = {}
    for number, place in enumerate(places):
        text = results[number]["text"]
        if results[number]["outcome"] != "ok":
            wchan = results[number]["wchan"]
            why = results[number]["why"] + (", it sleeps in " + wchan if wchan else "")
            text = json.dumps({"outcome": results[number]["outcome"], "why": why})
        if not text:
            continue  # it does not exist: it was only guessed from the environment
        inode = json.loads(text.partition("\n")[0]).get("inode", "")
        first = known.setdefault(inode, place) if inode else place
        if first is place:
            found.append((place, text))
            continue
        first["writers"] += [rank for rank in place["writers"] if rank not in first["writers"]]
        first["rank"] = first["writers"][0] if len(first["writers"]) == 1 else None
    return found


# Where ranks write ----------------------------------------------------------------------------------------------


def _files(pid: int) -> list[tuple[int, str]]:
    """(number, link) of what a process has open, 1024 at most."""
    found = []
    try:
        numbers = sorted(int(number) for number in os.listdir(f"/proc/{pid}/fd"))[:1024]
    except (OSError, ValueError):
        return []
    for number in numbers:
        try:
            found.append((number, os.readlink(f"/proc/{pid}/fd/{number}")))
        except OSError:
            continue
    return found


def _writes(pid: int, number: int) -> bool:
    """Whether a file is open for writing: the flags of proc_pid_fdinfo(5), octal."""
    try:
        for line in read(f"/proc/{pid}/fdinfo/{number}", 1024).split("\n"):
            if line.startswith("flags:"):
                return int(line.split()[1], 8) & 3 != 0
    except (OSError, ValueError, IndexError):
        pass
    return False


def _comm(pid: int) -> tuple[str, int]:
    """(name, parent) of a process, ("", 0) when it is gone."""
    try:
        name, _, rest = read(f"/proc/{pid}/stat", 4096).rpartition(")")
        return name.partition("(")[2], int(rest.split()[1])
    except (OSError, ValueError, IndexError):
        return "", 0


def _kind(link: str) -> str:
    if link.startswith("pipe:"):
        return "pipe"
    if link.startswith("socket:"):
        return "socket"
    if link.startswith(("/dev/pts/", "/dev/tty", "/dev/console")):
        return "terminal"
    return "null" if link == "/dev/null" else "file" if link.startswith("/") else "other"


def _is_file(link: str) -> bool:
    path = link[: -len(" (deleted)")] if link.endswith(" (deleted)") else link
    return _kind(link) == "file" and not path.startswith(("/dev/", "/proc/", "/sys/", "/memfd:", "/anon"))


def _named_like_a_log(link: str) -> bool:
    path = link[: -len(" (deleted)")] if link.endswith(" (deleted)") else link
    return _is_file(link) and path.endswith(NAMES)


class _Places:
    """Files by where they are: two ranks that write to one file make one place with two writers."""

    def __init__(self) -> None:
        self.places: list[dict[str, Any]] = []
        self._known: dict[tuple[str, str, str], dict[str, Any]] = {}

    def add(self, pid: int, path: str, link: str, how: str, job: str, rank: Any = None) -> None:
        deleted = link.endswith(" (deleted)")
        try:
            space = os.readlink(f"/proc/{pid}/ns/mnt")
        except OSError:
            space = ""
        # Two deleted files may have had one name: only the process can tell them apart.
        key = (space, link, path if deleted else "")
        place = self._known.get(key)
        if place is None:
            name = link[: -len(" (deleted)")] if deleted else link
            place = {
                "path": path,
                "file": name,
                "how": how,
                "rank": rank,
                "pid": pid,
                "writers": [],
                "deleted": deleted,
                "job": job,
            }
            self._known[key] = place
            self.places.append(place)
        if rank is not None and rank not in place["writers"]:
            place["writers"].append(rank)
            place["rank"] = rank if len(place["writers"]) == 1 else None


def _places(rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Files that ranks and their launchers write to, and the streams of ranks that are no files."""
    places = _Places()
    streams = []
    launchers: dict[int, tuple[str, str]] = {}
    readers: dict[str, list[tuple[int, str]]] | None = None
    host = os.uname()[1]
    for row in rows:
        pid, rank, job = row["pid"], row["rank"], run_folders.job_of(row)
        named = row["env"].get("NCCL_DEBUG_FILE", "")
        begins = named.partition("%")[0]
        for number, link in _files(pid):
            path = f"/proc/{pid}/fd/{number}"
            if number in (1, 2):
                how = "stdout" if number == 1 else "stderr"
                if _is_file(link):
                    places.add(pid, path, link, how, job, rank)
                    continue
                stream = {"rank": rank, "pid": pid, "how": how, "kept": _kind(link), "reader": "", "job": job}
                if stream["kept"] == "pipe":
                    readers = _readers() if readers is None else readers
                    for reader, name in readers.get(link, [])[:4]:
                        if reader != pid:
                            stream["reader"] = f"{name} ({reader})"
                            _written_by(places, reader, "through a pipe to " + name, job, rank)
                streams.append(stream)
            elif len(begins) > 1 and link.startswith(begins) and _is_file(link):
                places.add(pid, path, link, "NCCL_DEBUG_FILE", job, rank)
            elif _named_like_a_log(link) and _writes(pid, number):
                places.add(pid, path, link, "open file", job, rank)
        if named.startswith("/"):
            inside = (row["ns_pids"] or [pid])[-1]
            named = named.replace("%h", host).replace("%p", str(inside))
            places.add(pid, f"/proc/{pid}/root{named}", named, "NCCL_DEBUG_FILE", job, rank)
        error = row["env"].get("TORCHELASTIC_ERROR_FILE", "")
        if error.startswith("/") and ".." not in error:
            places.add(pid, f"/proc/{pid}/root{error}", error, "error file", job, rank)
        above = row["ppid"]
        for _ in range(5):
            name, parent = _comm(above)
            if above <= 1 or not name or name.startswith(STRANGERS):
                break
            launchers[above] = (name, job)
            above = parent
    for pid, (name, job) in sorted(launchers.items()):
        _written_by(places, pid, "of the launcher " + name, job, None)
    for pid, name in _launchers():
        if pid not in launchers:
            _written_by(places, pid, "of the launcher " + name, "", None)
    return places.places, streams


def _written_by(places: _Places, pid: int, how: str, job: str, rank: Any) -> None:
    """Files that a launcher or the reader of a pipe writes, and those of its ranks that torchrun follows (tee)."""
    for number, link in _files(pid):
        follows = "/attempt_" in link and link.endswith(("/stdout.log", "/stderr.log"))
        if _is_file(link) and (follows or _writes(pid, number)) and not link.endswith((".sock", ".lock", ".pid")):
            places.add(pid, f"/proc/{pid}/fd/{number}", link, how, job, rank)


def _launchers() -> list[tuple[int, str]]:
    found = []
    for entry in os.listdir("/proc")[:32768]:
        if entry.isdigit():
            try:
                name = read(f"/proc/{entry}/comm", 64).strip()
            except OSError:
                continue
            if name in LAUNCHERS:
                found.append((int(entry), name))
    return found[:16]


def _readers() -> dict[str, list[tuple[int, str]]]:
    """{pipe: processes that read it}: those that have it as standard input, and launchers."""
    found: dict[str, list[tuple[int, str]]] = {}
    known = dict(_launchers())
    for entry in os.listdir("/proc")[:32768]:
        if not entry.isdigit():
            continue
        pid = int(entry)
        try:
            links = [os.readlink(f"/proc/{pid}/fd/0")]
        except OSError:
            continue
        if pid in known:
            links += [link for number, link in _files(pid) if link.startswith("pipe:") and not _writes(pid, number)]
        for link in links:
            if link.startswith("pipe:"):
                found.setdefault(link, []).append((pid, _comm(pid)[0]))
    return found
