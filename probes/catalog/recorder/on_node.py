"""Gets the flight recorder of every rank on a node without a second disturbance, and reduces it there.

Brought to the node by rank.flight_recorder: standard library, the runner's names and the modules brought before it;
nothing newer than Python 3.6 but annotations.

In this order, each rank in a process of its own with its own deadline:
- The worker server in the rank, when the job runs one: it answers while the rank waits in a collective. It is asked
  once and without stacks: naming stack frames takes the interpreter's lock, which a hung rank may hold.
- Files that are there already: torch writes them when its watchdog gives up, or after rank.flight_recorder_trigger.
  A home directory may be a dead network file system, so every path is touched in a process of its own.
- Files of ranks that are gone: after the watchdog the process ends, and only the file is left.
"""

from __future__ import annotations

import glob
import json
import os
import stat
import time
from collections.abc import Callable, Mapping
from typing import Any

from probes.catalog.ranks import reach
from probes.catalog.recorder import decode, reader
from probes.runner import isolate, need_ranks, rank_scan, read

SERVER_S = 6.0
FILE_S = 5.0
MOST = 64  # ranks of one node, and files left behind
LEFT_BEHIND_S = 7200.0  # files of ranks that are gone: older ones are of another incident
LIMITS = reader.LIMITS
DEFAULT = "/tmp/nccl_trace_rank_"  # of older torch; of newer CACHED, below $XDG_CACHE_HOME or $HOME/.cache
CACHED = "/torch/comm_lib_trace_rank_"
# A CUDA build keeps two recorders: NCCL's, and the one of gloo and others.
JOB = ("run_id", "slurm_job", "master")
HANDLERS = (("dump_nccl_trace_pickle", "?includestacktraces=false"), ("fr_trace_json", ""))
EMPTY_BYTES = 1500  # a pickle of a recorder that holds nothing is smaller


def collect() -> Mapping[str, str]:
    scan = rank_scan()
    unread = [row for row in scan["unread"] if row["state"] not in "ZX"]
    rows = [row for row in scan["ranks"] if row["worker_of"] is None]
    found = Found(rows[:MOST])
    found.ask_servers()
    found.read_files()
    if not rows and not found.left_behind:
        need_ranks()  # says what is to be said when there is none
    parts = found.parts(len(rows))
    for row in unread[:MOST]:
        why = f"{row['comm']} in state {row['state']} may be a rank, but its environment could not be read"
        words = {"rank": None, "pid": row["pid"], "why": why, "pipe": "", "refused": False}
        parts[f"golden15/missing {row['pid']}"] = json.dumps(words)
    return parts


class Found:
    """What is known of each rank, by its place in `rows`: a dump, or why there is none."""

    def __init__(self, rows: list[dict[str, Any]]):
        self.rows = rows
        self.dumps = {}  # type: dict[int, dict[str, Any]]
        self.whys = [[] for _ in rows]  # type: list[list[str]]
        self.torch = [""] * len(rows)
        self.on_disk = []  # type: list[str]
        self.left_behind = []  # type: list[dict[str, Any]]

    def ask_servers(self) -> None:
        calls = [(f"server {at}", _from_server(row)) for at, row in enumerate(self.rows)]
        calls += [(f"torch {at}", _torch_of(row)) for at, row in enumerate(self.rows)]
        for answer in isolate(calls + [("files 0", _dumps_on_disk)], SERVER_S):
            kind, _, number = answer["name"].partition(" ")
            told = json.loads(answer["text"]) if answer["outcome"] == "ok" and answer["text"] else {}
            if kind == "files":
                self.on_disk = told.get("paths", [])
            elif kind == "torch":
                self.torch[int(number)] = told.get("version", "")
            elif "bytes" in told:
                self.dumps[int(number)] = told
            else:
                self.whys[int(number)].append(told.get("why") or _why_not(answer, "its worker server"))

    def read_files(self) -> None:
        lacking = [at for at in range(len(self.rows)) if at not in self.dumps or "refused" in self.dumps[at]]
        tried = [(at, path) for at in lacking for path in places(self.rows[at])]
        known = {path for row in self.rows for path in places(row)}
        nobody = {"pid": None, "world_size": None, "start_time": None}
        gone = [(-1, path) for path in self.on_disk if path not in known]
        calls = []
        for at, path in tried + gone:
            row = self.rows[at] if at >= 0 else dict(nobody, rank=int(path.rpartition("_")[2]))
            calls.append((path, _from_file(row, path)))
        for (at, path), answer in zip(tried + gone, isolate(calls, FILE_S)):  # noqa: B905  (Python 3.6)
            told = json.loads(answer["text"]) if answer["outcome"] == "ok" else {"why": _why_not(answer, path)}
            if at < 0:
                self.left_behind += [told] if "bytes" in told else []
            elif "why" in told:
                self.whys[at].append(told["why"])
            elif at not in self.dumps or "refused" in self.dumps[at] or told["mtime"] > self.dumps[at]["mtime"]:
                self.dumps[at] = told

    def parts(self, ranks: int) -> dict[str, str]:
        head = {"host": os.uname()[1], "ranks": ranks, "left_out": ranks - len(self.rows)}
        parts = {"golden15/recorders": json.dumps(head)}
        for at, row in enumerate(self.rows):
            told = self.dumps.get(at)
            pipe = row["env"].get("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "")
            pipe = f"{pipe}{row['rank']}.pipe" if pipe else ""
            if told and "refused" not in told:
                parts[f"golden15/dump {row['pid']}"] = json.dumps(dict(told, torch=self.torch[at]))
            else:
                why = "; ".join(self.whys[at] + ([f"{told['path']}: {told['refused']}"] if told else []))
                words = {"rank": row["rank"], "pid": row["pid"], "why": why[:1000], "pipe": pipe, "refused": bool(told)}
                words.update({key: row[key] for key in JOB})
                parts[f"golden15/missing {row['pid']}"] = json.dumps(words)
        for at, told in enumerate(self.left_behind):
            if "refused" not in told:
                parts[f"golden15/dump left {at}"] = json.dumps(dict(told, torch=""))
            else:
                why = f"{told['path']}: {told['refused']}"
                words = {"rank": told["rank"], "pid": None, "why": why, "pipe": "", "refused": True}
                parts[f"golden15/missing left {at}"] = json.dumps(words)
        return parts


def _stamped(row: Mapping[str, Any], how: str, path: str, mtime: float | None, data: bytes) -> str:
    """A dump says neither whose it is nor from where: that is added here."""
    told = {"rank": row["rank"], "pid": row["pid"], "world_size": row["world_size"], "host": os.uname()[1]}
    told.update({key: row.get(key) for key in JOB})
    told.update({"how": how, "path": path, "mtime": mtime, "at": time.time(), "bytes": len(data)})
    decode.confine(LIMITS)
    try:
        told["reduced"] = reader.reduce(data, LIMITS)
    except decode.Refused as error:
        told["refused"] = str(error)
    except (MemoryError, RecursionError):
        told["refused"] = "it asks for more memory than a dump needs"
    return json.dumps(told)


def _from_server(row: Mapping[str, Any]) -> Callable[[], str]:
    def work() -> str:
        if row["state"] in ("T", "t"):
            return json.dumps({"why": "it is stopped, so a worker server in it cannot answer"})
        path, can, why = reach.server_of(row)
        if not path:
            return json.dumps({"why": why})
        asked = [handler for handler in HANDLERS if handler[0] in can]
        if not asked:
            return json.dumps({"why": "its worker server has no flight recorder"})
        for name, query in asked:
            request = f"POST /handler/{name}{query}"
            data = reach.ask(path, row["pid"], request, LIMITS["input_bytes"], SERVER_S - 1)
            if b'"entries"' in data or (data[:1] == b"\x80" and len(data) > EMPTY_BYTES):
                break
        return _stamped(row, "worker server", path, None, data)

    return work


def _torch_of(row: Mapping[str, Any]) -> Callable[[], str]:
    def work() -> str:
        for line in read(f"/proc/{row['pid']}/maps", 4194304).splitlines():
            before, found, _ = line.partition("/torch/lib/libtorch")
            folder = before.partition("/")[2]
            if found and folder:
                for said in read(reach.inside(row["pid"], f"/{folder}/torch/version.py"), 8192).splitlines():
                    if said.startswith("__version__ = "):
                        return json.dumps({"version": said.partition("= ")[2].strip("'\"")[:40]})
                break
        return ""

    return work


def places(row: Mapping[str, Any]) -> list[str]:
    """Where torch of this rank writes its dump, as seen from the node."""
    env, name = row["env"], str(row["rank"])
    prefix = env.get("TORCH_FR_DUMP_TEMP_FILE") or env.get("TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
    cache = env.get("XDG_CACHE_HOME") or (env["HOME"] + "/.cache" if env.get("HOME") else "")
    paths = [prefix + name] if prefix else [DEFAULT + name] + ([cache + CACHED + name] if cache else [])
    return [reach.inside(row["pid"], path) for path in paths if path.startswith("/")]


def _dumps_on_disk() -> str:
    """The newest files that ranks may have left where torch puts them by itself."""
    import pwd

    found = []
    for pattern in (DEFAULT + "*", pwd.getpwuid(os.getuid()).pw_dir + "/.cache" + CACHED + "*"):
        for path in glob.glob(pattern)[:4096]:
            age = time.time() - os.stat(path).st_mtime
            if path.rpartition("_")[2].isdigit() and age < LEFT_BEHIND_S:
                found.append((age, path))
    return json.dumps({"paths": [path for _, path in sorted(found)[:MOST]]})


def _from_file(row: Mapping[str, Any], path: str) -> Callable[[], str]:
    def work() -> str:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        about = os.fstat(number)
        if not stat.S_ISREG(about.st_mode):
            return json.dumps({"why": f"{path} is not a file"})
        if row["start_time"] and about.st_mtime < row["start_time"] - 2:
            return json.dumps({"why": f"{path} is older than this rank: it is of an earlier job"})
        with os.fdopen(number, "rb") as handle:
            data = handle.read(LIMITS["input_bytes"] + 1)
        return _stamped(row, "file", path, about.st_mtime, data)

    return work


def _why_not(answer: Mapping[str, Any], what: str) -> str:
    if "FileNotFoundError" in answer["why"]:
        return f"{what} is not there"
    if "PermissionError" in answer["why"]:
        return f"{what} may not be read by this login"
    if answer["outcome"] in ("hung", "timeout"):
        asleep = f", asleep in {answer['wchan']}" if answer["wchan"] else ""
        return f"{what} did not answer within {answer['took_s']:.0f} s{asleep}"
    if "signal 24" in answer["why"]:
        return f"{what} takes more than {LIMITS['cpu_s']} s to read, which no dump does"
    return f"{what}: {answer['why'].replace('the probe stopped with ', '')}"
