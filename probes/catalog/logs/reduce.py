"""Chooses the lines of one log that matter. SENT TO THE NODE with rank.log's collector: gigabytes stay there.

Of a file the beginning and the last megabytes are read; lines with a word of interest, whole tracebacks and the last
lines are sent, each with its offset.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable
from typing import Any

HEAD, TAIL = 65536, 3145728  # bytes of a file that are looked at
LINE = 1500  # bytes of a line that are sent
# People log their settings: what looks like a token, or a password in an address, does not leave the node.
SECRET = re.compile(
    r"(?<=://)[^/\s:@]{1,64}:[^/\s@]{1,128}(?=@)"
    r"|\b(?:hf_|sk-|ghp_|gho_|github_pat_|glpat-|AKIA|ASIA|xox[abp]-)[\w-]{12,200}"
    r"|(?<=[Bb]earer )[\w.~+/-]{16,2000}"
)
MASKED = "(masked)"
# (class, first, last, words): of each word so many of the first and of the last lines that hold it. A flood of one word
# cannot drive out another. tests hold every shape of the parser against these words.
WORDS = (
    ("error", 50, 50, (
        "Watchdog caught", "watchdog", "ast enqueued", "Heartbeat monitor", "collective #", "Timeout at collective",
        "lagging", "issing ranks", "_Allreduce",
        "ismatch", "op.preamble", "monitoredBarrier", "ump signal", "to signal dumping", "debug info",
        "should dump", "remote error", "blocking wait", "acquire GIL", "process down", "failed or timed out",
        "a synchronizing CUDA",
        "attempting to dump", "NCCL WARN", "NCCL error", "nccl", "onnection closed", "reset by peer",
        "Got completion", "async event", "async fatal", "GID table", "Timed out waiting", "timed out", "imeout",
        "recvBytes", "likely closed", "ncclUniqueId", "endezvous", "EADDRINUSE", "ailed to listen",
        "client socket", "Cuda failure", "out of memory", "CUDA error", "HIP error", "driver error", "_STATUS_",
        "Traceback (most", "Error: ", "Exception: ", "Fatal Python", "terminate called", "received by PID",
        "Caught signal", "Segfault", "core dumped", "CANCELLED AT", "slurmstepd", "srun: error", "closing signal",
        "failed (exitcode", "shared memory", "No space left",
        "driver on your system", "symbol lookup error", "disk space", "inline_container", "PytorchStreamWriter",
        "DataLoader", "exited unexpectedly",
        "finished reduction", "did not receive grad", "ready twice", "Duplicate GPU", "the same GPU", "/dev/shm",
        "ready only once", "recvValue", "clients joined", "store based barrier", "DeviceCount", "GPU is lost",
        "] Signal: ",
        "llegal memory", "device-side", "Device-side", "isaligned address", "launch failure", "was encountered",
        "ILLEGAL_ADDRESS", "IllegalAddress", "ErrorAssert",
        "Invalid __", "Program hit ", "CUDA Exception: ", "CUDA_EXCEPTION_",
        "Out of memory while", "OUT_OF_MEMORY", "OutOfMemory", "access fault by GPU", "HW Exception by", "HSA_STATUS_",
        "memory limit", "OUT_OF_ME", "NODE_FAIL", "PREEMPTED", "TIMEOUT",
        "CANCELLED by", "ibv_", "NET/OFI", "Too many open", "quota exceeded", "SO_ERROR",
        "onnect timeout [", "connectFullMesh", "] connect [",
        "cannot be retrieved", "keep-alive", "etected dead node",
        "death signal", "got signal", "restart worker group", "Killing subprocess",
        "of the above exception", "of the following exception", "etcd.Etcd",
        "step aborted", "return code", "mpirun noticed", "OOMKilled", "low on resource", "Evict", "reempt",
        "nterruption", "node shutdown",
        "Node failure", "unexpectedly rebooted", "on failed node", "setting DOWN",
        "memory pressure (OOM)", "Memory on the node", "TERM_", "PBS: job killed",
        "ntentionally stopped", "OOM killer", "to memory pressure", "to memory used",
        "sending SIG", "container oom", "to reclaim", "due to memory usage", "SPOT_ITN", "requirement error",
        "no heartbeat", "clock wrong by", "time reset", "clock drift", "clock difference",
        "Protocol authentication", "OMP_NUM_THREADS environment", "elastic_operator",
        "pthread_create failed", "Thread creation failed", "for OMP thread",
        "libnccl", "redential", "skew too great", "not yet valid", "unwaited collective",
        "expected DDP bucket view", "Cannot set grad twice", "computed twice for this", "issued for this bucket",
        "graph has changed", "CSAN detected", "CUDASanitizerErrors", "not used in producing", "disagreement between",
        "DistributedOperationException", "All shapes ", "terminated with",
        "retry count exceeded", "connect() to ", "nable to find address", "ailed to create ", "some locked memory",
        "crashed with exit code", "Worker exit type", "librccl", " nccl", "exiting program after",
        "Detected KeyboardInterrupt",
        "active longer than specified", "type=cancel", "type=timeout", "equeing job", "equeuing job", "equeued S",
        "this job is ", "Job_id=", "condor_rm", "Job was evicted", "deleted_by",
        "ancel", "ANCEL", " deleted", "limit", "exceeded", "by user", "by the user",
        "is all-gathering ", "appears not to match", "DDP expects same model",
    )),
    ("block", 200, 200, (
        "Failures:", "Root Cause (", "time      :", "host      :", "rank      :", "exitcode  :", "error_file:",
        "traceback :", "--------", "========",
    )),
    ("setup", 70, 10, (
        "Init COMPLETE", "Init START", " localRanks ", "Ring ", "Trees [", " via ", "coll channels", "Connected all",
        "Using network", "NET/", "CCL version", " -> ", "Channel ", "opCount",
        "ootstrap", "GPU Direct", " set ", " qpn ", "retrying",
        "ax locked memory", "emlock", "ulimit -l",
        "opology file", "=== System", "+ NVL[", " - GPU/", "(UUID: GPU-", "simple order", "Pattern ",
        "XML graph",
        "run_id  ", "rdzv_backend  ", "rdzv_endpoint  ", "min_nodes  ",
    )),
    ("words", 4, 4, (
        "NaN", "nan", "inf", "heckForN", "NanCheck", "nf in ", "non-finite", "oss scale", "verflow", "OVERFLOW",
        "_step` is", "returned nan values",
        "heckpoint", "CHECKPOINT", "state_dict", "state dict", "aving ",
        "izer state", "izer_state", ".pt", ".ckpt", ".safetensors", ".distcp", ".zarr", "_states",
    )),
    ("words", 16, 16, ("- Process ",)),
    ("words", 1, 3, (
        "successfully finished", "exits successfully", "train_runtime", "stopped: `max_", "training is done",
        "one training in", "raining ", "inished training", "reached", "xit",
        "rocess group has NOT been destr", "estroy_process_group() was not",
    )),
    ("words", 6, 12, ("ffected ranks", "MxRtt/Rnk", "elative performance", "Rank=", "across ranks (", "...: (")),
    ("words", 1, 2, (
        "_dynamo hit", "Recompiling function", "extension module", "ninja build", "uilding ", "Time to load",
        "Graph break", "torchinductor", "AUTOTUNE", "valuat", "alidat", "okeni", "reprocess",
        "ndexing", "acking", "eval", "val ", "val:", "Val ",
    )),
    ("words", 1, 3, (
        "float ", "half ", "bfloat16 ", "%|", "step", "Step", "iter", "Iter", "poch", "it=", "it ", "s=", "upd", "atch",
        "ather", "educe", "catter", "roadcast", "arrier", "sync",
    )),
)  # fmt: skip


def reducer(path: str, name: str, budget: int) -> Callable[[], str]:
    """Work for a child: what `reduced` gives, "" when there is no such file."""

    def work() -> str:
        os.nice(10)  # the job comes first
        try:
            if not stat.S_ISREG(os.stat(path).st_mode):  # opening a FIFO would wake its writer
                return json.dumps({"outcome": "failed", "why": "it is not a regular file"})
            with open(path, "rb") as handle:
                return reduced(handle, name, min(budget, 250000))
        except FileNotFoundError:
            return ""
        except PermissionError:
            return json.dumps({"outcome": "denied", "why": "this login may not read it"})

    return work


def reduced(handle: Any, name: str, budget: int) -> str:
    """A line of facts about the file, then `offset text` per line chosen; an error.json whole, in the facts."""
    status = os.fstat(handle.fileno())
    facts = {"outcome": "ok", "size": status.st_size, "mtime": status.st_mtime}
    facts["inode"] = f"{status.st_dev}:{status.st_ino}"
    if name.endswith("error.json"):
        facts["text"] = SECRET.sub(MASKED, handle.read(min(30000, budget)).decode("utf-8", "replace"))
        return json.dumps(facts)
    parts = [(0, handle.read(HEAD))]
    if status.st_size > HEAD:
        start = max(HEAD, status.st_size - TAIL)
        handle.seek(start)
        data = handle.read(TAIL)
        cut = data.find(b"\n") + 1
        if start == HEAD:
            parts = [(0, parts[0][1] + data)]
        else:
            parts.append((start + cut, data[cut:]))
    facts["read"] = sum(len(data) for _, data in parts)
    chosen: list[tuple[int, int, str]] = []
    skipped = 0
    for offset, data in parts:
        lines, more = chosen_lines(data.replace(b"\r", b"\n"))
        chosen += [(rank, offset + start, text) for rank, start, text in lines]
        skipped += more
    kept, over = _within(chosen, budget - 400)
    facts["skipped"] = skipped + over
    return "\n".join([json.dumps(facts)] + [f"{start} {text}" for _, start, text in kept])


def chosen_lines(data: bytes) -> tuple[list[tuple[int, int, str]], int]:
    """[(class, offset, text)] in the order of the file, and how many lines of interest were passed over."""
    starts: dict[int, int] = {}
    skipped = 0
    for rank, (_, first, last, words) in enumerate(WORDS):
        for word in words:
            hits, more = _hits(data, word.encode(), first, last)
            skipped += more
            for start in hits:
                starts[start] = min(rank, starts.get(start, rank))
                if word == "Traceback (most":
                    for inner in traceback_lines(data, start):
                        starts[inner] = 0
    end = len(data.rstrip(b"\n"))
    for _ in range(3):  # its last words
        start = data.rfind(b"\n", 0, end) + 1
        starts[start] = 0
        end = max(0, start - 1)
    found = []
    for start in sorted(starts):
        stop = data.find(b"\n", start, start + LINE)
        raw = data[start : start + LINE if stop < 0 else stop]
        text = SECRET.sub(MASKED, " ".join(raw.decode("utf-8", "replace").splitlines()))
        if text.strip():
            found.append((starts[start], start, text))
    return found, skipped


def _hits(data: bytes, word: bytes, first: int, last: int) -> tuple[list[int], int]:
    """Beginnings of lines that hold the word: of the first ones and of the last ones; and how many others there are."""
    found: list[int] = []
    at = 0
    while len(found) < first:
        at = data.find(word, at)
        if at < 0:
            return found, 0
        found.append(data.rfind(b"\n", 0, at) + 1)
        at = data.find(b"\n", at)
        if at < 0:
            return found, 0
    back: list[int] = []
    end = len(data)
    while len(back) < last:
        hit = data.rfind(word, at, end)
        if hit < 0:
            return found + back, 0
        back.append(data.rfind(b"\n", 0, hit) + 1)
        end = back[-1]
    return found + back, data.count(word, at, max(at, end))


def traceback_lines(data: bytes, start: int) -> list[int]:
    """Beginnings of the lines of a traceback, up to the one that names the exception. Other ranks may write between."""
    line = data[start : start + 200]
    mark = line[: line.find(b"Traceback (most")]
    found, at = [], start
    for _ in range(300):
        at = data.find(b"\n", at) + 1
        if at <= 0 or at >= len(data):
            break
        if not data.startswith(mark, at) or (not mark and data.startswith(b"[", at)):
            continue
        found.append(at)
        if data[at + len(mark) : at + len(mark) + 1] not in (b" ", b"\t", b"\n", b""):
            break
    return found if len(found) <= 80 else found[:10] + found[-70:]


def _within(lines: list[tuple[int, int, str]], budget: int) -> tuple[list[tuple[int, int, str]], int]:
    """The lines that fit into so many bytes: the more telling classes first, of each its first and its last."""
    sizes = [len(text.encode("utf-8", "replace")) + 12 for _, _, text in lines]
    if sum(sizes) <= budget:
        return lines, 0
    kept: set[int] = set()
    left = budget
    for rank in range(len(WORDS)):
        mine = [at for at, line in enumerate(lines) if line[0] == rank]
        half = left // 2
        front: list[int] = []
        for at in mine:
            if half < sizes[at]:
                break
            front.append(at)
            half -= sizes[at]
            left -= sizes[at]
        for at in reversed(mine[len(front) :]):
            if left < sizes[at]:
                break
            kept.add(at)
            left -= sizes[at]
        kept.update(front)
    return [line for at, line in enumerate(lines) if at in kept], len(lines) - len(kept)
