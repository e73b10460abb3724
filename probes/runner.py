"""Runs the probes of one plan on one node and prints one marked JSON line per probe as it finishes.

SENT TO THE NODE. Standard library only, Python 3.6 and later, started with `python3 -I -S` (isolated, no site: a
dead home directory must not hang it). Nothing is written to a disk and nothing stays behind.

Why it is built this way (each was learned from a real failure, see docs/architecture.md):
- Every probe has its own child, session and deadline. A child in state D cannot be killed, so after the deadline it
  is abandoned and its state and wchan are reported; waiting for it would hang the runner too.
- Children write to files without a name (memory), never to the channel: an orphan holding the channel's pipe
  would keep the SSH channel open for ever.
- The end of standard input means that the controller is gone: all children are ended.

Lines, each `@golden15 ` + JSON: hello, pong (answer to a `ping N` line), capture, bye.
"""

import base64
import errno
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
import zlib
from typing import Any, Callable, Dict, List, Optional, Tuple

MARK = "@golden15 "
PROTOCOL = 1
ROOM_S = 0.5  # how long to try where no further process may be started: others of ours end meanwhile
GRACE_S = 0.5  # between SIGKILL and calling a child hung: a killed process that can die does so in milliseconds
# memfd_create(2) for Pythons before 3.8, which cannot call it: arch/*/include/uapi/asm/unistd.h.
MEMFD_CREATE = {"x86_64": 319, "aarch64": 279, "ppc64le": 360, "s390x": 350}
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

try:  # prctl is how children die with their parent; some minimal Pythons have no ctypes
    import ctypes

    _libc = ctypes.CDLL(None)  # type: Any
except (ImportError, OSError):
    _libc = None


class Absent(Exception):
    """Raised by a collector when the thing it asks does not exist on this node (no GPU, no InfiniBand, no tool)."""


class Denied(Exception):
    """Raised by a collector when it lacks a right. The message says what to allow."""


class Skipped(Exception):
    """Raised by a collector that does not ask, because what it would touch hangs already. The message says how."""


# What collectors may use --------------------------------------------------------------------------------------


def read(path: str, limit: int = 65536) -> str:
    """First `limit` bytes of a file as text. Bytes that are not UTF-8 survive as surrogates. Raises OSError."""
    with open(path, "rb") as handle:
        return handle.read(limit).decode("utf-8", "surrogateescape")


def which(tool: str) -> Optional[str]:
    """Full path of an executable on PATH, or None."""
    for folder in os.environ.get("PATH", DEFAULT_PATH).split(":"):
        path = os.path.join(folder, tool)
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    return None


def sh(argv: List[str], limit: int = 262144) -> Tuple[int, str, str]:
    """Run a command to its end inside this probe's child: (exit status, output, error output).

    Needs no deadline of its own: the runner kills the whole session at the probe's deadline.
    Status is 127 when the command does not exist, -25 (SIGXFSZ) when it was stopped for printing over `limit` bytes;
    the first `limit` are returned.
    """
    import subprocess

    out, err = _scratch(), _scratch()
    allowed = resource.getrlimit(resource.RLIMIT_FSIZE)
    _limit_files(limit + 1)  # the file limit is what stops a flood
    null = subprocess.DEVNULL
    until = time.monotonic() + ROOM_S
    try:
        while True:
            try:
                status = subprocess.call(argv, stdin=null, stdout=out, stderr=err, preexec_fn=_die_with_parent)
                break
            except OSError as error:
                if error.errno != errno.EAGAIN or time.monotonic() > until:
                    raise
            time.sleep(0.02)
    except (FileNotFoundError, PermissionError) as error:
        return (127, "", str(error))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, allowed)
    texts = [os.pread(part, limit, 0).decode("utf-8", "surrogateescape") for part in (out, err)]
    for part in (out, err):
        os.close(part)
    return (status, texts[0], texts[1])


def attachment(name: str) -> str:
    """Path of a file that was sent behind the plan, to be run or read. Raises Absent, with why, when there is none."""
    if name in _attachments:
        return _attachments[name]
    raise Absent(_not_attached.get(name, "%s was not sent with this plan" % name))


def holds_gpu(pid: str) -> bool:
    """Whether a process has a GPU open, NVIDIA or AMD. Looks at 512 of its files; false when it may not look."""
    try:
        numbers = os.listdir("/proc/%s/fd" % pid)[:512]
    except OSError:
        return False
    for number in numbers:
        try:
            if os.readlink("/proc/%s/fd/%s" % (pid, number)).startswith(("/dev/nvidia", "/dev/kfd")):
                return True
        except OSError:
            continue
    return False


def isolate(
    calls: List[Tuple[str, Callable[[], str]]], deadline_s: float, max_bytes: int = 262144
) -> List[Dict[str, Any]]:
    """Run each (name, function) in a child of its own, side by side; abandon those past the deadline.

    For calls that may each hang on their own, such as one per GPU. Those for whom there is no room yet, where
    processes are limited, follow as others end; OSError when there is none. Results come in the order of `calls`:
    {"name", "outcome", "text", "why", "state", "wchan", "took_s"}; outcome as for a capture. What a call wrote to
    descriptor 1 before it hung is in "text".
    """
    ends = time.monotonic() + deadline_s
    waiting, children = list(calls), []  # type: Any, List[Child]
    lonely = time.monotonic()  # since when none of ours runs, whose end would make room
    while waiting or not all([child.step() for child in children]):  # noqa: C419  (each must be stepped)
        now = time.monotonic()
        try:
            while waiting:
                name, call = waiting[0]
                children.append(Child(name, call, max(0.1, ends - now), max_bytes, own_session=False))
                del waiting[0]
        except OSError as error:
            lonely = now if any([not child.step() for child in children]) else lonely  # noqa: C419
            if error.errno != errno.EAGAIN or now > min(ends, lonely + ROOM_S):
                raise
        time.sleep(0.01)
    results = [
        {
            "name": child.name,
            "outcome": child.outcome,
            "text": child.output().decode("utf-8", "surrogateescape"),
            "why": child.why,
            "state": child.state,
            "wchan": child.wchan,
            "took_s": round(child.took_s, 3),
        }
        for child in children
    ]
    for child in children:
        child.close()
    return results


def _die_with_parent() -> None:
    """PR_SET_PDEATHSIG: whatever kills the parent, also the kernel for want of memory, ends this process too."""
    if _libc:
        _libc.prctl(1, signal.SIGKILL)


def _limit_files(size: int) -> None:
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    soft = size if hard == resource.RLIM_INFINITY else min(size, hard)
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# Who the ranks are --------------------------------------------------------------------------------------------

# How launchers tell a process its rank: (source, rank, world size, local rank, local world size). The first that is
# there counts: torchrun under srun leaves Slurm's variables, which then number nodes.
RANK_KEYS = (
    ("env", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ("slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", ""),
    (
        "ompi",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    ("pmi", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)
# Which variables may leave the node: the names, and what names begin with. Values that look secret are masked.
ENV_NAMES = frozenset((
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK",
    "ROLE_WORLD_SIZE", "NODE_RANK", "NNODES", "MASTER_ADDR", "MASTER_PORT", "CUDA_HOME", "CUDA_PATH", "LD_PRELOAD",
    "LD_LIBRARY_PATH", "HOME", "TMPDIR",
    "XDG_CACHE_HOME", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PYTHONFAULTHANDLER",
    "PYTHONUNBUFFERED", "PYTHONHASHSEED", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF",
    "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "KUBERNETES_SERVICE_HOST", "TOKENIZERS_PARALLELISM",
))  # fmt: skip
ENV_BEGINS = (
    "NCCL_", "TORCH_", "TORCHELASTIC_", "TORCHINDUCTOR_", "CUDA_", "NVIDIA_", "OMP_", "KMP_", "MKL_", "OPENBLAS_",
    "GLOO_", "UCX_", "UCC_", "FI_", "HIP_", "HSA_", "ROCR_", "RCCL_", "SLURM_", "OMPI_COMM_", "PET_", "TRITON_",
    "MALLOC_", "GOLDEN15_",
)  # fmt: skip
IDENTITY = ("_VISIBLE_DEVICES", "_RUN_ID", "_JOB_ID", "_ADDR", "_NODELIST")  # long ids, and no secrets
SECRET_NAMES = ("TOKEN", "SECRET", "PASSW", "CREDENTIAL", "API_KEY", "APIKEY", "ACCESS_KEY", "PRIVATE", "COOKIE", "JWT")
MASKED = "(masked)"
# Programs that only start a trainer and may stand above it with its RANK. Shells among them: `bash -c 'python x.py'`.
WRAPPERS = frozenset((
    "sh", "bash", "dash", "zsh", "ksh", "fish", "csh", "tcsh", "busybox", "tini", "dumb-init", "docker-init",
    "catatonit", "timeout", "time", "sudo", "su", "runuser", "env", "nice", "xargs", "script", "strace", "ltrace",
    "gdb", "nsys", "nsys-launcher", "ncu", "rocprof", "perf", "srun", "slurmstepd", "mpirun", "mpiexec",
    "mpiexec.hydra", "orterun", "orted", "prterun", "prted", "hydra_pmi_proxy", "torchrun", "pt_elastic", "accelerate",
    "deepspeed", "starter", "starter-suid", "apptainer", "singularity", "enroot", "bwrap", "sleep", "sshd", "tee",
    "make",
))  # fmt: skip
MANY_PROCESSES, MANY_RANKS = 32768, 4096
ENVIRON_S = 0.7  # per round: the environment of one process is read in microseconds


def ranks() -> List[Dict[str, Any]]:
    """The training ranks on this node and their children, see `rank_scan`. `worker_of` is None for a rank itself."""
    found = rank_scan()["ranks"]  # type: List[Dict[str, Any]]
    return found


def rank_scan() -> Dict[str, Any]:
    """Who the training ranks on this node are, by the environment they were started with (proc_pid_environ(5)).

    {"ranks": [{pid, ppid, rank, local_rank, world_size, local_world_size, node_rank, run_id, slurm_job, master, source,
    comm, state, started (clock ticks since boot), start_time (seconds since the epoch), uid, ns_pids (outermost
    first), worker_of, wrappers, env}], "orphans": the same of data-loader workers whose rank is gone, "unread":
    [{pid, ppid, comm, state, wchan, why}], "denied": processes that this login may not look at, "denied_python":
    how many of them are called python or pt_*, "seen": all processes with memory of their own, "skipped": those over
    MANY_PROCESSES and MANY_RANKS}. Ids and numbers not told are None.

    A variable that a program sets for itself (os.environ["RANK"] = ...) is not seen: the kernel shows the start.
    """
    processes, skipped = _processes()
    parents = {pid: row["ppid"] for pid, row in processes.items()}
    if _status >= 0:  # we are a probe: neither the runner nor its other children, who may have been started with a RANK
        ours = os.getppid()
        processes = {pid: row for pid, row in processes.items() if ours not in [pid] + _ancestors(pid, parents)}
    answers = _environs(processes)
    marked = {}  # type: Dict[int, Dict[str, Any]]
    unread, denied = [], []
    for pid, row in processes.items():
        kind, env = answers.get(pid, ("unread", {}))
        identity = _identity(env)
        if kind == "denied":
            denied.append(row["comm"])
        elif identity and kind == "ok" and len(marked) < MANY_RANKS:
            row.update(identity, env=env)
            marked[pid] = row
        elif identity and kind == "ok":
            skipped += 1
        elif kind == "unread" or row["state"] in "ZX":
            unread.append(row)
    found, orphans = _sort_out(marked, parents)
    tops = [(row["wrappers"] or [row["pid"]])[-1] for row in found if row["worker_of"] is None]
    launchers, names = {parents[top] for top in tops}, {row["comm"] for row in found}
    # A zombie has no environment any more: it matters when its parent is that of ranks, and its name is theirs.
    kept = [row for row in unread if row["state"] not in "ZX" or (row["ppid"] in launchers and row["comm"] in names)]
    for row in kept:
        row["wchan"] = process_state(row["pid"])[1]
        ended = row["state"] in "ZX"
        row["why"] = "ended, not yet reaped by the parent of ranks" if ended else "its environment could not be read"
    boot = _boot_time()
    for row in found + orphans:
        row["start_time"] = None if boot is None else boot + row["started"] / os.sysconf("SC_CLK_TCK")
        _add_status(row)
    seen = {"denied": len(denied), "seen": len(processes), "skipped": skipped}
    seen["denied_python"] = len([comm for comm in denied if comm.startswith(("python", "pt_"))])
    return dict(seen, ranks=found, orphans=orphans, unread=kept)


def need_ranks() -> Dict[str, Any]:
    """`rank_scan`, when there is anything in it. Raises Absent, or Denied where others' processes may be ranks."""
    scan = rank_scan()
    if scan["ranks"] or scan["orphans"] or scan["unread"]:
        return scan
    others = "%d of %d processes cannot be looked at" % (scan["denied"], scan["seen"])
    if scan["denied_python"] or (scan["denied"] and os.getuid() != 0):
        allow = "log in as root or as the user who trains, or give python3 CAP_SYS_PTRACE"
        raise Denied("no rank was seen, and %s by this login. Allow: %s" % (others, allow))
    why = "none of %d processes was started with RANK and WORLD_SIZE, or Slurm's or MPI's" % scan["seen"]
    raise Absent(why + ("; " + others if scan["denied"] else ""))


def _processes() -> Tuple[Dict[int, Dict[str, Any]], int]:
    """{pid: {pid, ppid, comm, state, started}} of all but kernel threads, and how many were left out."""
    entries = [entry for entry in os.listdir("/proc") if entry.isdigit()]
    found = {}
    for entry in entries[:MANY_PROCESSES]:
        try:
            name, _, rest = read("/proc/%s/stat" % entry, 4096).rpartition(")")
            fields = rest.split()
            if int(fields[6]) & 0x00200000:  # PF_KTHREAD
                continue
            row = {"pid": int(entry), "ppid": int(fields[1]), "comm": name.partition("(")[2], "state": fields[0]}
            row["started"] = int(fields[19])
        except (OSError, IndexError, ValueError):
            continue
        found[int(entry)] = row
    return found, len(entries[MANY_PROCESSES:])


def _environs(processes: Dict[int, Dict[str, Any]]) -> Dict[int, Tuple[str, Dict[str, str]]]:
    """{pid: ("ok" | "denied" | "gone" | "unread", allowed environment)}; a process that cannot be read is left out.

    Reading takes the lock on the process's memory and may have to bring a page back in: both can last for ever, and
    not only in state D. So children read, each a share, telling after every process; one that stops in the middle costs
    the process it stopped at. That one is tried once more, alone, and the rest of the share goes to new children.
    """
    waiting = sorted(processes, key=lambda pid: processes[pid]["state"] == "D")
    quiet = [pid for pid in waiting if processes[pid]["state"] != "D"]
    blocked = waiting[len(quiet) :]
    shares = [part for part in [quiet[i::4] for i in range(4)] + [blocked[i::16] for i in range(16)] if part]
    answers = {}  # type: Dict[int, Tuple[str, Dict[str, str]]]
    for _ in range(3):
        results = isolate([("environ", _environ_reader(part)) for part in shares], ENVIRON_S, 8388608)
        for result in results:
            for line in result["text"].split("\n"):
                try:
                    pid, kind, env = json.loads(line)
                    answers[pid] = (kind, env)
                except ValueError:  # the last line of a child that was stopped
                    continue
        left = [[pid for pid in part if pid not in answers] for part in shares]
        shares = [part[:1] for part in left if part]
        shares += [part[i + 1 :: 4] for part in left for i in range(4) if part[i + 1 :: 4]]
        if not shares:
            break
    return answers


def _environ(pid: int) -> str:
    """Of a process whose main thread has ended, that of a thread which cannot end: killed, but stuck in a driver."""
    try:
        return read("/proc/%d/environ" % pid, 1048576)
    except ProcessLookupError:  # it has no memory any more
        for thread in os.listdir("/proc/%d/task" % pid)[:64]:
            try:
                return read("/proc/%d/task/%s/environ" % (pid, thread), 1048576)
            except ProcessLookupError:
                continue
        raise


def _environ_reader(pids: List[int]) -> Callable[[], str]:
    def work() -> str:
        for pid in pids:
            kind, env = "ok", {}  # type: Tuple[str, Dict[str, str]]
            try:
                env = _allowed(_environ(pid))
            except PermissionError:
                kind = "denied"
            except OSError as error:
                kind = "gone" if error.errno in (errno.ENOENT, errno.ESRCH) else "unread"
            data = (json.dumps([pid, kind, env]) + "\n").encode("ascii")
            while data:
                data = data[os.write(1, data) :]
        return ""

    return work


def _allowed(environ: str) -> Dict[str, str]:
    """The variables that may leave the node, {} when none of them tells a rank."""
    if not any(keys[1] + "=" in environ for keys in RANK_KEYS):
        return {}
    found = {}  # type: Dict[str, str]
    for pair in environ.split("\0"):
        key, equals, value = pair.partition("=")
        if equals and (key in ENV_NAMES or key.startswith(ENV_BEGINS)) and len(found) < 300:
            found[key[:100]] = _masked(key, value[:1024])
    return found


def _masked(key: str, value: str) -> str:
    """The value, or MASKED when its name or its look is that of a secret: a token, or an address with a password."""
    head, found, rest = value.partition("://")
    if any(word in key.upper() for word in SECRET_NAMES) or (found and "@" in rest.partition("/")[0]):
        return MASKED
    if key in ENV_NAMES or key.endswith(IDENTITY):
        return value
    for word in value.replace(",", " ").replace("=", " ").replace(":", " ").replace('"', " ").replace("'", " ").split():
        known = word.startswith(("hf_", "sk-", "ghp_", "gho_", "github_pat_", "glpat-", "AKIA", "ASIA", "xox", "eyJ"))
        mixed = word.isalnum() and any(c.isdigit() for c in word) and any(c.isalpha() for c in word)
        if (known and len(word) >= 16) or (mixed and len(word) >= 32):
            return MASKED
    return value


def _identity(env: Dict[str, str]) -> Dict[str, Any]:
    """The fields that say which rank of which job this is, {} when none does."""

    def number(*keys: str) -> Optional[int]:
        for key in keys:
            if env.get(key, "").isdigit() and len(env[key]) < 10:
                return int(env[key])
        return None

    for source, rank_key, world_key, local_key, local_world_key in RANK_KEYS:
        rank, world = number(rank_key), number(world_key)
        if rank is not None and world is not None and rank < world:
            port = env.get("MASTER_PORT", "")
            return {
                "rank": rank,
                "world_size": world,
                "local_rank": number(local_key, *[keys[3] for keys in RANK_KEYS[1:]]),
                "local_world_size": number(local_world_key, "LOCAL_WORLD_SIZE"),
                "node_rank": number("GROUP_RANK", "NODE_RANK", "SLURM_NODEID"),
                "run_id": env.get("TORCHELASTIC_RUN_ID"),
                "slurm_job": env.get("SLURM_JOB_ID") or env.get("SLURM_JOBID"),
                "master": (env["MASTER_ADDR"] + (":" + port if port else "")) if env.get("MASTER_ADDR") else None,
                "source": source,
            }
    return {}


def _sort_out(
    marked: Dict[int, Dict[str, Any]], parents: Dict[int, int]
) -> Tuple[List[Dict[str, Any]], List[Dict[str, Any]]]:
    """Ranks with their children, and orphans, out of all processes that carry a rank.

    Children inherit the environment, and so do the shells and launchers between torchrun or srun and the trainer:
    1. Shells and known launchers are never ranks. Nor is what stands above ranks and is numbered by Slurm, MPI or
       Kubernetes alone: torchrun or a launcher like it, one per node.
    2. What is left of one rank hangs together by descent. The trainer is the outermost of it, because all it starts
       stands below it; but a Python without a sign of torch that stands above one with it is a wrapper too.
    3. Of two outermost (a monitor beside the trainer, a child whose parent ended) the likelier trainer is the rank.
    """
    lines = {pid: _ancestors(pid, parents) for pid in marked}
    above_all = [(above, row) for pid, row in marked.items() for above in lines[pid] if above in marked]
    launchers = {above for above, row in above_all if _launches(marked[above], row)}
    wrappers = {pid for pid, row in marked.items() if pid in launchers or _is_wrapper(row)}
    members = {}  # type: Dict[Any, List[int]]
    for pid in sorted(marked, key=lambda pid: len(lines[pid])):
        if pid not in wrappers:
            row = marked[pid]
            # The outermost process that carries the same rank of the same job stands for all below it.
            same = [above for above in lines[pid] if above in marked and _same_rank(row, marked[above])]
            members.setdefault(same[-1] if same else pid, []).append(pid)
    found, orphans = [], []  # type: Tuple[List[Dict[str, Any]], List[Dict[str, Any]]]
    for group in _joined(members, marked):
        trainer = _trainer(group, marked, lines)
        if trainer is None:
            lost = [marked[pid] for pid in group if marked[pid]["comm"] == "pt_data_worker"]
            orphans += [dict(row, worker_of=None, wrappers=[]) for row in lost]
            continue
        above = [pid for pid in lines[trainer] if pid in marked and _same_rank(marked[trainer], marked[pid])]
        found.append(dict(marked[trainer], worker_of=None, wrappers=above))
        children = [marked[pid] for pid in sorted(group) if pid != trainer and pid not in above]
        found += [dict(row, worker_of=trainer, wrappers=[]) for row in children]
    found.sort(key=lambda row: (row["run_id"] or "", row["rank"], row["worker_of"] is not None, row["pid"]))
    return found, orphans


def _ancestors(pid: int, parents: Dict[int, int]) -> List[int]:
    """Parent first. A pid may be used again while we look, so a circle is possible and the line is cut."""
    found = []  # type: List[int]
    while len(found) < 64:
        pid = parents.get(pid, 0)
        if pid <= 0 or pid in found:
            break
        found.append(pid)
    return found


def _same_rank(one: Dict[str, Any], other: Dict[str, Any]) -> bool:
    """A trainer may learn its rank from Slurm and hand RANK and MASTER_ADDR to what it starts: those may differ."""
    same = all(one[key] == other[key] for key in ("rank", "world_size", "run_id", "slurm_job"))
    return same and (one["master"] == other["master"] or not one["master"] or not other["master"])


def _launches(above: Dict[str, Any], row: Dict[str, Any]) -> bool:
    """Whether `above` is what gave `row` its rank: it lacks torchrun's mark, or RANK, or has another rank by Slurm."""
    if row["run_id"] is not None and above["run_id"] is None:
        return True
    return row["source"] == "env" and above["source"] != "env" and not _same_rank(row, above)


def _joined(members: Dict[int, List[int]], marked: Dict[int, Dict[str, Any]]) -> List[List[int]]:
    """Groups of one rank that descent does not connect, put together where a process between them has ended.

    Its children were handed to init or to the launcher. Two jobs that only look alike have two launchers.
    """
    groups = {}  # type: Dict[Any, List[List[int]]]
    for top in sorted(members, key=lambda pid: marked[pid]["ppid"] == 1):
        row = marked[top]
        alike = groups.setdefault((row["rank"], row["world_size"]), [])
        for group in alike[:64]:  # a rank is not there more often, but for somebody who wants to keep us busy
            first = marked[group[0]]
            if _same_rank(first, row) and row["ppid"] in (1, first["ppid"]):
                group += members[top]
                break
        else:
            alike.append(list(members[top]))
    return [group for alike in groups.values() for group in alike]


def _exe(pid: int) -> str:
    """File name of a process's program, "" when it is not to be seen. Takes no lock of the process's memory."""
    try:
        return os.path.basename(os.readlink("/proc/%d/exe" % pid).replace(" (deleted)", ""))
    except OSError:
        return ""


def _is_wrapper(row: Dict[str, Any]) -> bool:
    return _exe(row["pid"]) in WRAPPERS or row["comm"] in WRAPPERS


def _shows_torch(pid: int) -> bool:
    """Whether threads have torch's names (pt_main_thread, pt_nccl_watchdg, gloo_tcp_loop), or a GPU is open."""
    try:
        threads = os.listdir("/proc/%d/task" % pid)[:64]
    except OSError:
        return False
    for thread in threads:
        try:
            if read("/proc/%d/task/%s/comm" % (pid, thread), 64).startswith(("pt_", "gloo_", "cuda-Evt", "NCCL ")):
                return True
        except OSError:
            continue
    return holds_gpu(str(pid))


def _trainer(group: List[int], marked: Dict[int, Dict[str, Any]], lines: Dict[int, List[int]]) -> Optional[int]:
    """The pid in a group that is the rank itself; None when only children of a rank that is gone are left."""
    able = []
    for pid in group:
        if marked[pid]["comm"] != "pt_data_worker":
            torch = _shows_torch(pid)
            if torch or _exe(pid).startswith(("python", "pypy")) or marked[pid]["comm"].startswith("python"):
                able.append((not torch, len(lines[pid]), marked[pid]["started"], pid))
    return min(able)[3] if able else None


def _boot_time() -> Optional[int]:
    """Seconds since the epoch; None when /proc/stat does not tell."""
    try:
        lines = read("/proc/stat", 4194304).split("\n")
    except OSError:
        return None
    times = [line.split()[1] for line in lines if line.startswith("btime ")]
    return int(times[0]) if times and times[0].isdigit() else None


def _add_status(row: Dict[str, Any]) -> None:
    """Its user, and its pids as containers see them."""
    row["uid"], row["ns_pids"] = None, []
    try:
        for line in read("/proc/%d/status" % row["pid"], 16384).split("\n"):
            words = line.split()
            if line.startswith("Uid:"):
                row["uid"] = int(words[1])
            elif line.startswith("NSpid:"):
                row["ns_pids"] = [int(word) for word in words[1:]]
    except (OSError, IndexError, ValueError):
        pass


# Attachments --------------------------------------------------------------------------------------------------

_attachments = {}  # type: Dict[str, str]  # name -> path
_not_attached = {}  # type: Dict[str, str]  # name -> why it cannot be used here


def _program_in_memory(name: str, data: bytes) -> str:
    """Path of a memory file with these bytes that may be executed. Raises OSError."""
    number = -1
    for flags in (1 | 0x10, 1):  # MFD_CLOEXEC | MFD_EXEC, which kernels before 6.3 do not know
        if _libc and hasattr(_libc, "memfd_create"):
            number = _libc.memfd_create(name.encode(), flags)
        if number >= 0:
            break
    if number < 0:
        reason = "no memory file that may be executed (no memfd_create, or forbidden by vm.memfd_noexec)"
        raise OSError(errno.EPERM, reason)
    while data:
        data = data[os.write(number, data) :]
    return "/proc/%d/fd/%d" % (os.getpid(), number)  # by our own number: probes run in children that close theirs


class Arriving:
    """Attachments on their way: bytes in through `take`, which returns those that are not an attachment's."""

    def __init__(self, expected: List[Dict[str, Any]]):
        self.expected = list(expected)
        self.buffer = bytearray()

    def names(self) -> List[str]:
        return [one["name"] for one in self.expected]

    def take(self, data: bytes) -> bytes:
        while self.expected and data:
            want = self.expected[0]["size"] - len(self.buffer)
            self.buffer += data[:want]
            data = data[want:]
            if len(self.buffer) == self.expected[0]["size"]:
                name = self.expected.pop(0)["name"]
                try:
                    _attachments[name] = _program_in_memory(name, zlib.decompress(bytes(self.buffer)))
                except (OSError, zlib.error) as error:
                    _not_attached[name] = "%s was sent, but cannot be used on this node: %s" % (name, error)
                self.buffer = bytearray()
        return data


def _read_ahead() -> bytes:
    """What Python's own buffer of standard input took while the program was read from it; never waits."""
    os.set_blocking(0, False)
    try:
        return sys.stdin.buffer.read1(65536) or b""  # type: ignore[union-attr]
    except (BlockingIOError, ValueError):
        return b""
    finally:
        os.set_blocking(0, True)


# One child ----------------------------------------------------------------------------------------------------

_status = -1  # in a child: the pipe that tells its parent how it went


def _tell(outcome: str, why: str = "", truncated: bool = False, crowded: bool = False) -> None:
    if _status >= 0:
        # Short enough for one write to a pipe.
        words = {"outcome": outcome, "why": why[:400], "truncated": truncated, "crowded": crowded}
        os.write(_status, (json.dumps(words) + "\n").encode("ascii"))


def _scratch() -> int:
    """A file without a name: memory where the kernel can, so that a full disk does not stop the evidence."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("golden15", 0)
    number = MEMFD_CREATE.get(os.uname()[4])
    made = _libc.syscall(number, b"golden15", 0) if _libc and number else -1
    if made >= 0:
        return int(made)
    for folder in ("/dev/shm", "/run", None):
        try:
            with tempfile.TemporaryFile(dir=folder) as handle:
                return os.dup(handle.fileno())
        except OSError:
            continue
    raise OSError(errno.ENOSPC, "no place for a temporary file in /dev/shm, /run or the temporary folder")


def process_state(pid: int) -> Tuple[str, str, int]:
    """(state letter, wchan, process group) of a process, ("", "", 0) when it is gone. Never reads cmdline."""
    try:
        fields = read("/proc/%d/stat" % pid, 4096).rpartition(")")[2].split()
        state, group = fields[0], int(fields[2])
    except (OSError, IndexError, ValueError):
        return ("", "", 0)
    try:
        wchan = read("/proc/%d/wchan" % pid, 128)
    except OSError:
        wchan = ""
    return (state, "" if wchan == "0" else wchan, group)


def _group_members(group: int) -> List[Tuple[int, str, str]]:
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            state, wchan, its_group = process_state(int(entry))
            if its_group == group and state not in ("", "Z", "X"):
                found.append((int(entry), state, wchan))
    return found


def _children() -> List[int]:
    """Processes whose parent we are, zombies left out."""
    found = []
    mine = os.getpid()
    try:
        candidates = read("/proc/self/task/%d/children" % mine).split()
    except OSError:  # a kernel without CONFIG_PROC_CHILDREN
        candidates = os.listdir("/proc")
    for entry in candidates:
        if entry.isdigit():
            try:
                fields = read("/proc/%s/stat" % entry, 4096).rpartition(")")[2].split()
                if int(fields[1]) == mine and fields[0] not in "ZX":
                    found.append(int(entry))
            except (OSError, IndexError, ValueError):
                continue
    return found


class Child:
    """One piece of work in a process of its own. `step()` is true once the work is settled.

    It returns at once, but for up to GRACE_S when a child left something in its session that does not die.
    Raises OSError when no process or no scratch file can be had.
    """

    def __init__(self, name: str, work: Callable[[], Any], deadline_s: float, max_bytes: int, own_session: bool = True):
        self.name = name
        self.deadline_s = deadline_s
        self.max_bytes = max_bytes
        self.own_session = own_session
        self.outcome = ""
        self.why = self.state = self.wchan = ""
        self.rc = None  # type: Optional[int]
        self.hung = self.truncated = self.crowded = False  # crowded: it found no room for a process of its own
        self.took_s = 0.0
        self.killed_at = 0.0
        self.at, self.mono = time.time(), time.monotonic()
        parent = os.getpid()
        opened = []  # type: List[int]
        try:
            opened += [_scratch()]
            opened += [_scratch()]
            opened += os.pipe()
            self.out, self.err, self.status, status = opened
            self.pid = os.fork()
        except OSError:
            for number in opened:
                os.close(number)
            raise
        if self.pid == 0:
            self._run(work, status, parent)
        os.close(status)

    def _run(self, work: Callable[[], Any], status: int, parent: int) -> None:
        global _status
        code = 70
        try:
            if self.own_session:
                os.setsid()
            _die_with_parent()
            if os.getppid() != parent:
                os._exit(70)
            for number in (
                signal.SIGALRM,
                signal.SIGTERM,
                signal.SIGHUP,
                signal.SIGINT,
                signal.SIGPIPE,
                signal.SIGCHLD,
            ):
                signal.signal(number, signal.SIG_DFL)
            signal.set_wakeup_fd(-1)
            null = os.open("/dev/null", os.O_RDONLY)
            for source, target in ((null, 0), (self.out, 1), (self.err, 2), (status, 3)):
                os.dup2(source, target)
            os.closerange(4, 1024)
            _status = 3
            os.set_inheritable(3, False)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            _limit_files(self.max_bytes + 1)
            os.chdir("/")
            data = (work() or "").encode("utf-8", "surrogateescape")
            truncated = len(data) > self.max_bytes
            if truncated:
                data = data[: data.rfind(b"\n", 0, self.max_bytes) + 1]
            while data:
                data = data[os.write(1, data) :]
            _tell("ok", truncated=truncated)
            code = 0
        except Absent as error:
            _tell("absent", str(error))
        except Denied as error:
            _tell("denied", str(error))
        except Skipped as error:
            _tell("skipped", str(error))
        except BaseException as error:
            crowded = isinstance(error, OSError) and error.errno == errno.EAGAIN
            _tell("failed", "the probe stopped with %s: %s" % (type(error).__name__, error), crowded=crowded)
        finally:
            os._exit(code)

    def step(self) -> bool:
        if self.outcome:
            return True
        self.took_s = time.monotonic() - self.mono
        pid, status = self._reap()
        if pid:
            self._ended(status)
        elif not self.killed_at and self.took_s >= self.deadline_s:
            self.state, self.wchan, _ = process_state(self.pid)
            self.killed_at = time.monotonic()
            self.kill()
        elif self.killed_at and time.monotonic() - self.killed_at >= GRACE_S:
            self.state, self.wchan, _ = process_state(self.pid)
            self._call_hung(self.pid)
        return bool(self.outcome)

    def _reap(self) -> Tuple[int, int]:
        try:
            return os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            return (self.pid, 0)

    def kill(self) -> None:
        try:
            if self.own_session:
                os.killpg(self.pid, signal.SIGKILL)
            else:
                os.kill(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass

    def _ended(self, status: int) -> None:
        self.rc = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        told = self._told()
        self.why = told.get("why", "")
        self.crowded = bool(told.get("crowded"))
        self.truncated = bool(told.get("truncated")) or os.fstat(self.out).st_size > self.max_bytes
        stuck = self._end_group()
        if self.killed_at and stuck:  # the shell died, but what it waited for cannot
            self.state, self.wchan = stuck[0][1], stuck[0][2]
            self._call_hung(stuck[0][0])
        elif self.killed_at:
            self.outcome = "timeout"
            self.why = "no answer within %g s" % self.deadline_s
        elif self.rc == -signal.SIGXFSZ:
            self.outcome, self.truncated = "failed", True
            self.why = "it printed more than %d bytes and was stopped; the first are kept" % self.max_bytes
        elif "outcome" in told:
            self.outcome = told["outcome"]
        elif self.rc == 0:
            self.outcome = "ok"
        else:
            self.outcome = "failed"
            self.why = "ended by signal %d" % -self.rc if self.rc < 0 else "ended with exit status %d" % self.rc

    def _told(self) -> Dict[str, Any]:
        told = {}  # type: Dict[str, Any]
        os.set_blocking(self.status, False)
        try:
            for line in os.read(self.status, 65536).decode("utf-8", "replace").splitlines():
                told.update(json.loads(line))
        except (OSError, ValueError):
            pass
        os.close(self.status)
        return told

    def _end_group(self) -> List[Tuple[int, str, str]]:
        """Kill what the child left in its session. Returns what does not die within the grace time."""
        until = time.monotonic() + GRACE_S
        while self.own_session:
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                return []
            except PermissionError:  # it runs as another user, through sudo
                pass
            try:
                while os.waitpid(-self.pid, os.WNOHANG)[0]:  # the runner adopts orphans, see Runner
                    pass
            except ChildProcessError:
                pass
            if time.monotonic() >= until:
                left = _group_members(self.pid)
                self.hung = self.hung or bool(left)
                return left
            time.sleep(0.01)
        return []

    def _call_hung(self, pid: int) -> None:
        self.outcome, self.hung = "hung", True
        where = "state %s%s" % (self.state or "unknown", " in " + self.wchan if self.wchan else "")
        if self.state != "D":  # through sudo it runs as another user, whose processes we may not end
            where += ", perhaps as another user"
        self.why = "process %d could not be stopped (%s); it was left alone" % (pid, where)

    def output(self, which_file: str = "out", limit: int = 0) -> bytes:
        limit = limit or self.max_bytes
        return os.pread(self.out if which_file == "out" else self.err, limit, 0)

    def close(self) -> None:
        os.close(self.out)
        os.close(self.err)


# The plan -----------------------------------------------------------------------------------------------------


def _work(probe: Dict[str, Any], plan: Dict[str, Any]) -> Callable[[], Any]:
    def command() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it; the command must die of it
        try:
            os.execvp(probe["command"][0], probe["command"])
        except FileNotFoundError:
            raise Absent("%s is not installed" % probe["command"][0])

    def collect() -> str:
        sys.path.extend(plan.get("site", []))
        space = globals()
        for name in probe.get("brings", []):
            module = type(sys)(name)
            module.__dict__.update((key, value) for key, value in space.items() if not key.startswith("__"))
            exec(compile(plan["modules"][name], name, "exec"), module.__dict__)
            space[name] = module
        exec(compile(probe["collect"], probe["name"], "exec"), space)
        parts = space["collect"]()
        return "".join("==> %s <==\n%s\n\n" % (name, text.rstrip("\n")) for name, text in parts.items())

    return command if probe.get("command") else collect


class Runner:
    """Starts the plan's probes, a few side by side, and tells of each as it finishes."""

    def __init__(self, plan: Dict[str, Any], watch_stdin: bool):
        self.plan = plan
        self.watch_stdin = watch_stdin
        self.waiting = list(plan["probes"])
        self.running = {}  # type: Dict[str, Tuple[Child, Dict[str, Any]]]
        self.poisoned = {}  # type: Dict[str, str]  # lock -> the probe that hung on it
        self.full_since = 0.0  # monotonic seconds: since when no process can be started though none of ours runs
        self.sent = 0
        self.began = time.monotonic()
        self.pending = b""
        self.arriving = Arriving(plan.get("attachments", []))
        self.wake, wake = os.pipe()
        for end in (self.wake, wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGALRM):
            signal.signal(number, lambda *_: self.end(1))
        signal.alarm(int(plan["deadline_s"]) + 5)  # if all else blocks, for instance on a channel nobody reads
        if _libc:
            _libc.prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: adopt orphans, so that their groups can be ended

    def say(self, kind: str, **words: Any) -> None:
        words["kind"] = kind
        data = (MARK + json.dumps(words) + "\n").encode("ascii")
        try:
            while data:
                data = data[os.write(1, data) :]
        except OSError:
            self.end(1)

    def run(self) -> None:
        try:
            boot_id = read("/proc/sys/kernel/random/boot_id").strip()
        except OSError:
            boot_id = ""
        version = "%d.%d.%d" % sys.version_info[:3]
        self.say("hello", protocol=PROTOCOL, python=version, boot_id=boot_id, host=os.uname()[1], uid=os.getuid())
        if self.arriving.expected:
            self.hear(_read_ahead())
        while self.waiting or self.running:
            self.start()
            self.listen(self.patience())
            for name, (child, probe) in sorted(self.running.items()):
                if child.step():
                    del self.running[name]
                    self.tell(child, probe)
            if time.monotonic() - self.began > self.plan["deadline_s"]:
                self.give_up()
        self.say("bye")
        self.end(0)

    def start(self) -> None:
        busy = {probe.get("lock") for _, probe in self.running.values()}
        for probe in list(self.waiting):
            if len(self.running) >= self.plan["parallel"]:
                return
            lock = probe.get("lock")
            if set(self.arriving.names()) & set(probe.get("attachments", [])):
                continue
            if lock in self.poisoned:
                self.waiting.remove(probe)
                why = "not asked: %s hung on the same %s, and another call would hang too" % (self.poisoned[lock], lock)
                self.say("capture", probe=probe["name"], outcome="skipped", why=why)
            elif not lock or lock not in busy:
                self.waiting.remove(probe)
                busy.add(lock)
                if not self.begin(probe):
                    return

    def begin(self, probe: Dict[str, Any]) -> bool:
        """False when it has to wait for room: where processes are limited."""
        try:
            work = _work(probe, self.plan)
            child = Child(probe["name"], work, probe["timeout_s"], probe["max_bytes"])
        except OSError as error:
            now = time.monotonic()
            self.full_since = 0.0 if self.running else self.full_since or now
            if error.errno == errno.EAGAIN and (self.running or now - self.full_since < ROOM_S):
                self.plan["parallel"] = 1  # each needs room for tools, too
                self.waiting.insert(0, probe)
                return False
            why = "no process could be started on the node: %s" % (error.strerror or error)
            self.say("capture", probe=probe["name"], outcome="failed", why=why)
            return True
        self.full_since = 0.0
        self.running[probe["name"]] = (child, probe)
        for _, one in self.running.values() if len(self.running) > 1 else ():
            one["beside"] = True  # it ran beside another
        return True

    def patience(self) -> float:
        """Seconds until something may be due. SIGCHLD and standard input wake earlier."""
        now = time.monotonic()
        due = [now + 0.02 if self.full_since else self.began + self.plan["deadline_s"]]  # type: List[float]
        for child, _ in self.running.values():
            due.append(child.killed_at + GRACE_S if child.killed_at else child.mono + child.deadline_s)
        return min(1.0, max(0.01, min(due) - now))

    def listen(self, timeout: float) -> None:
        ready = select.select([self.wake] + ([0] if self.watch_stdin else []), [], [], timeout)[0]
        if self.wake in ready:
            os.read(self.wake, 4096)
        if 0 in ready:
            data = os.read(0, 65536)
            if not data:
                self.end(1)
            self.hear(data)

    def hear(self, data: bytes) -> None:
        lines = (self.pending + self.arriving.take(data)).split(b"\n")
        self.pending = lines.pop()[-100:]
        for line in lines:
            if line.startswith(b"ping "):
                self.say("pong", n=line[5:25].decode("ascii", "replace"), at=repr(time.time()))

    def tell(self, child: Child, probe: Dict[str, Any]) -> None:
        if child.crowded and probe.pop("beside", False):  # the others took its room: once more, alone
            self.plan["parallel"] = 1
            self.waiting.insert(0, probe)
            child.close()
            return
        if child.hung and probe.get("lock"):
            self.poisoned[probe["lock"]] = probe["name"]
        out = child.output()
        if self.sent + len(out) > self.plan["max_bytes"]:
            child.outcome, child.truncated, out = "failed", True, b""
            child.why = "this node's %d bytes for one run are spent; its output was dropped" % self.plan["max_bytes"]
        self.sent += len(out)
        words = {"probe": child.name, "outcome": child.outcome, "why": child.why[:1000]}  # type: Dict[str, Any]
        words["rc"] = child.rc
        words.update({"at": child.at, "mono": child.mono, "took_s": round(child.took_s, 4)})
        words.update({"truncated": child.truncated, "state": child.state, "wchan": child.wchan})
        words["err"] = child.output("err", 2048).decode("utf-8", "replace")
        if len(out) > 2048:
            words["z"] = base64.b64encode(zlib.compress(out, 1)).decode("ascii")
        else:
            words["out"] = out.decode("utf-8", "surrogateescape")
        child.close()
        self.say("capture", **words)

    def give_up(self) -> None:
        """The node's deadline: stop what runs (the next steps report it), do not begin the rest."""
        for probe in self.waiting:
            why = "not begun before the node's deadline of %g s" % self.plan["deadline_s"]
            self.say("capture", probe=probe["name"], outcome="skipped", why=why)
        self.waiting = []
        for child, _ in self.running.values():
            child.deadline_s = min(child.deadline_s, child.took_s)

    def end(self, code: int) -> None:
        """End every child and leave at once. What cannot die is left to the kernel; it holds nothing of ours."""
        until = time.monotonic() + GRACE_S
        for child, _ in self.running.values():
            child.kill()
        while time.monotonic() < until:
            left = _children()  # those we started, and orphans that came to us: see Runner
            if not left:
                break
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, os.WNOHANG)
                except OSError:  # gone already, or not ours to end
                    pass
            time.sleep(0.01)
        os._exit(code)


def main(plan: Dict[str, Any], watch_stdin: bool = True) -> None:
    """Run a plan: {"probes": [{"name", "command" | "collect", "timeout_s", "max_bytes", "lock", "brings",
    "attachments"}], "modules", "attachments", "not_attached", "deadline_s", "max_bytes", "parallel", "site"}.
    Does not return.

    `watch_stdin` is false when standard input was the program itself (`python3 -I -S - < program`).
    """
    os.environ.update({"PATH": os.environ.get("PATH", "") + ":" + DEFAULT_PATH, "LC_ALL": "C", "HOME": "/"})
    os.chdir("/")
    sys.dont_write_bytecode = True  # read-only; and under the file size limit a .pyc would be cut off and left broken
    _not_attached.update(plan.get("not_attached", {}))
    runner = Runner(plan, watch_stdin)
    try:
        runner.run()
    except BaseException:
        traceback.print_exc()
    finally:
        runner.end(70)
