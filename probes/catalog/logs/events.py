"""What the logs of ranks can tell: the facts of rank.log, and the closed list of kinds of event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Clock = Literal["utc", "node", "file", ""]
"""What a line's time rests on: a printed zone, the zone of the node that was asked, or nothing.

"file": the job runs in another zone than the node (a container); which one, the time of the last write tells."""

Kept = Literal["read", "pipe", "terminal", "null", "socket", "unread"]

# kind -> what it says of a rank, in words that follow "rank 3". The order is that of findings: the first is the worst.
# An error that tells why (a crash, a full memory, a mismatch) stands before one that only tells that somebody waited.
KINDS: dict[str, str] = {
    "collective_mismatch": "runs another collective, or other sizes, than its peers",
    "barrier_missed": "was named as missing by a monitored barrier",
    "setup_missed": "never came to set up a communicator that others wait for",
    "cuda_error": "met a CUDA error",
    "loader_killed": "lost a data-loader worker",
    "shm_full": "found /dev/shm full",
    "ddp_unused": "had parameters without a gradient (DDP)",
    "hook_order": "got a gradient twice for one parameter (DDP)",
    "stream_race": "raced between two streams, says torch's sanitizer",
    "disk_full": "found no space left on a disk",
    "library_refused": "could not load a library",
    "write_cut": "could not write a checkpoint to its end",
    "too_many_files": "has too many files open",
    "scheduler_kill": "ended, says the scheduler",
    "fatal_signal": "crashed or was killed",
    "duplicate_gpu": "shares a GPU with another rank",
    "nccl_version_mismatch": "runs another NCCL than its peers",
    "ib_resource": "was refused memory or queue pairs by its InfiniBand adapter",
    "ib_route": "could not connect a queue pair",
    "desync": "is named by torch's desync report",
    "traceback": "stopped on an exception",
    "ib_completion": "got an InfiniBand completion error",
    "ib_async": "got an InfiniBand event",
    "loader_timeout": "waited too long for its data loader",
    "sync_warned": "asked the device for a result and waited",
    "gil_stuck": "could not get the interpreter lock",
    "heartbeat": "is stuck inside a NCCL or CUDA call, says torch's monitor",
    "bootstrap": "could not set up its connections",
    "store_timeout": "waited in vain for a key of the store",
    "rendezvous": "failed at the rendezvous",
    "credential": "was refused a credential",
    "nccl_error": "got an error from NCCL",
    "watchdog_timeout": "waited too long in a collective",
    "gloo_timeout": "waited too long in a gloo operation",
    "blocking_wait": "waited too long in a blocking wait",
    "torchrun_failure": "failed, says torchrun",
    "nccl_warn": "got a warning from NCCL",
    "remote_error": "was told of an error of another rank",
    "peer_closed": "lost its connection to a peer",
    "store_closed": "lost its connection to the store",
    "barrier_victim": "waited at a monitored barrier",
    "agent_signal": "belongs to a launcher that was told to end",
    "torchrun_signal": "was asked to end (SIGTERM)",
    "watchdog_ended": "was taken down by torch's watchdog",
    "unwaited": "ended with collectives that nobody had waited for",
    "nan": "wrote of NaN or infinity",
    "watchdog_status": "told how far it is",
    "dump_signal": "was asked for its flight recorder",
    "dump_written": "wrote its flight recorder",
    "dump_failed": "could not write its flight recorder",
    "nccl_propagation": "handed an NCCL error up",
    "nccl_init_start": "began to set up a communicator",
    "nccl_init_done": "set up a communicator",
    "nccl_version": "named its NCCL",
    "nccl_topology": "named its place in a communicator",
    "nccl_ring": "named its place in a ring",
    "nccl_tree": "named its place in the trees",
    "nccl_channels": "counted its channels",
    "nccl_link": "named its link to a peer",
    "nccl_net": "named its network",
    "nccl_call": "called a collective",
    "nccl_gdr": "told whether it uses GPUDirect RDMA",
    "nccl_setting": "named a setting of NCCL",
    "nccl_qp": "named a queue pair",
    "nccl_topo_file": "was given a file of its machine's topology",
    "nccl_graph": "told how good its rings are",
    "nccl_graph_file": "took its rings from a file",
    "nccl_system": "told how fast its machine is",
    "nccl_hop": "named a path of its machine",
    "gpu_name": "named a model of GPU",
    "launch": "named how it was started",
    "phase_time": "told how long a part of its work took",
    "memlock": "told how much memory it may lock",
    "bandwidth": "measured the speed of its collectives",
    "nccl_retry": "tries again to connect",
    "nccl_frame": "shows a call inside NCCL's library",
    "ranks_restarted": "was started again by its launcher",
    "checkpoint": "wrote of a checkpoint",
    "compiling": "wrote that it compiles",
    "preparing": "wrote that it prepares data",
    "launched": "was started by its launcher",
    "threads_refused": "was refused a thread by its system",
    "clock_wrong": "told how far a clock is off",
    "progress": "told of its progress",
    "finished": "wrote that its work is done",
    "step_times": "told how long the parts of its steps take",
    "slow_rank": "is slower than the others, says a straggler detector",
}
QUIET = frozenset(list(KINDS)[list(KINDS).index("watchdog_status") :])  # no error: never a finding of their own


@dataclass(frozen=True, slots=True)
class LogEvent:
    """One line, or several that say the same: `count` of them, from `at` to `last_at`.

    Times are seconds since the epoch, None where the line has none that is certain; `stamp` is the time as printed.
    `seq` counts within one process group (`group`): never compare it across groups.
    """

    kind: str  # of KINDS
    text: str  # the first such line, at most 400 characters
    rank: int | None = None  # the rank that wrote it
    about: tuple[int, ...] = ()  # ranks that the line names: those that are missing, failed, or differ
    peer: str = ""  # the other end of a connection, as printed
    seq: int | None = None
    op: str = ""  # ALLREDUCE, _ALLGATHER_BASE ...
    sizes: tuple[int, ...] = ()  # numbers of elements in and out, or the shape
    group: str = ""  # id or name of the process group; "0" and default_pg are the default group
    code: int | None = None  # status, exit code (negative: signal) or NCCL result
    name: str = ""  # of the error, exception, signal, transport or version
    where: str = ""  # file:line in the user's code, a path, or the HCA
    at: float | None = None
    last_at: float | None = None
    after: float | None = None  # without a time of its own: the last one that this rank had written before
    clock: Clock = ""
    stamp: str = ""
    line: int | None = None  # counted from 1
    offset: int | None = None  # of the line's first byte in the file
    count: int = 1
    secondary: bool = False  # a consequence of somebody else's fault: never the cause
    more: Mapping[str, str | int] = field(default_factory=dict)  # what this kind has beyond the above, by name

    @property
    def last_place(self) -> int:
        """Line, else offset, of the last of them; of the only or first one where that is all that is known."""
        last = self.more.get("last_place")
        return last if isinstance(last, int) else self.line or self.offset or 0


@dataclass(frozen=True, slots=True)
class RankLog:
    """One file, or one stream that no file keeps. `rank` is None when several ranks or a launcher write to it."""

    rank: int | None
    pid: int | None
    file: str
    kept: Kept = "read"
    job: str = ""  # run id, Slurm job or master address: tells two jobs on one node apart
    how: str = ""  # stdout, stderr, open file, NCCL_DEBUG_FILE, error file, run folder, earlier attempt, given path
    writers: tuple[int, ...] = ()  # ranks that write to it
    why: str = ""  # why it was not read, or who reads the pipe
    deleted: bool = False  # has no name any more; it is read through the process that holds it open
    size_bytes: int | None = None  # of a text that was brought: characters, as read_bytes
    read_bytes: int | None = None
    written_at: float | None = None  # last change of the file, by the clock of its file system
    skipped_lines: int = 0  # lines of interest too many to send
    left_off: int = 0  # events too many to keep
    events: tuple[LogEvent, ...] = ()
    tail: tuple[str, ...] = ()  # its last lines


@dataclass(frozen=True, slots=True)
class GivenPath:
    """A pattern that people gave. `fits`: regular files that fit it, None where nobody could look."""

    pattern: str
    fits: int | None
    why: str = ""  # what kept us from looking, or from looking at all of it


@dataclass(frozen=True, slots=True)
class RankLogs:
    logs: tuple[RankLog, ...]
    now: float | None = None  # the node's clock when it was read
    utc_offset_s: int | None = None  # of the node's local time, which logs print without a zone
    ranks: tuple[int, ...] = ()  # ranks found on the node
    left_off: int = 0  # files too many, or of given paths too old, to read
    host: str = ""  # the node's own name for itself, as torchrun prints it
    given: tuple[GivenPath, ...] = ()
