"""What does a process wait in? Judged by the innermost call of its main thread that has a known meaning.

Source   the files and functions of torch 2.13 (distributed/distributed_c10d.py, utils/data, autograd/graph.py, ...) and
         Triton; kernel functions as wchan and /proc/PID/stack name them

A plain function of a ProcessStack: no clock, no other rank. Whether it is wrong to wait there only other ranks can say.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from probes.catalog.stacks.facts import Frame, ProcessStack

Kind = Literal[
    "collective", "p2p", "barrier", "store", "start", "destroy", "backward", "data loader", "loader idle", "checkpoint",
    "compile", "preprocessing", "generating", "device sync", "lock", "native wait", "sleep", "input/output", "import",
    "user code", "stopped", "unknown",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Wait:
    """`frame`: the call that decides, None when none does. `at`: the innermost line of the job's own program.

    `op`: for a collective or point-to-point call its name. `within`: what it is a part of, such as "checkpoint" for a
    barrier called while saving. `busy`: the thread runs rather than waits; None where the tool does not tell.
    "native wait": asleep on a futex below a line of the program, so a lock or a native call such as Work.wait.
    """

    kind: Kind
    op: str
    frame: Frame | None
    at: Frame | None
    within: tuple[Kind, ...]
    busy: bool | None

    def __str__(self) -> str:
        what = self.op if self.kind in ("collective", "p2p", "barrier") and self.op else self.kind
        inside = f" while in {', '.join(self.within)}" if self.within else ""
        return what + inside + (f", at {self.at.short}" if self.at else "")


P2P = {"send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list", "recv_object_list"}
START = {"init_process_group", "_new_process_group_helper", "new_group", "split_group", "_new_group_with_tag"}
STORE = {"_store_based_barrier", "_rendezvous_helper", "store_timeout"}
DESTROY = {"destroy_process_group", "_shutdown_backend", "_abort_process_group", "abort_process_group", "shutdown"}
HELPERS = {"wrapper", "wrap", "<module>"}  # decorators of that file, and its import
LIBRARY = ("/site-packages/", "/dist-packages/", "/lib/python3", "/lib64/python3", "<frozen ", "<string>")


def _c10d(function: str) -> tuple[Kind, str] | None:
    """distributed_c10d.py holds both the collectives and what begins and ends a process group."""
    if function in HELPERS:
        return None
    if function in P2P:
        return "p2p", function
    if function in ("barrier", "monitored_barrier"):
        return "barrier", function
    for kind, names in (("start", START), ("store", STORE), ("destroy", DESTROY)):
        if function in names:
            return kind, ""  # type: ignore[return-value]
    return "collective", function


def _in(kind: Kind, *functions: str, but: tuple[str, ...] = ("<module>",)) -> Callable[[str], tuple[Kind, str] | None]:
    def judge(function: str) -> tuple[Kind, str] | None:
        wanted = function in functions if functions else function not in but
        return (kind, "") if wanted else None

    return judge


# (part of the file's path, judgement of the function): the first that fits a frame counts. Frames are read from the
# innermost outwards, and the first that fits any row decides: a barrier within a checkpoint is a barrier.
STRONG: tuple[tuple[str, Callable[[str], tuple[Kind, str] | None]], ...] = (
    ("torch/distributed/distributed_c10d.py", _c10d),
    ("torch/distributed/_functional_collectives.py", lambda name: ("collective", name) if name[:1] != "<" else None),
    ("torch/distributed/pipelining/", _in("p2p", "_wait_batch_p2p", "_batch_p2p")),
    ("torch/distributed/rendezvous.py", _in("store")),
    ("torch/distributed/elastic/utils/store.py", _in("store")),
    ("torch/distributed/elastic/rendezvous/", _in("store")),
    ("torch/autograd/graph.py", _in("backward", "_engine_run_backward")),
    ("torch/autograd/__init__.py", _in("backward", "backward", "grad")),
    ("torch/utils/data/_utils/fetch.py", _in("data loader")),
    ("torch/utils/data/_utils/worker.py", _in("loader idle", "_worker_loop")),
    ("torch/utils/data/dataloader.py", _in("data loader")),
    ("torch/serialization.py", _in("checkpoint")),
    ("torch/distributed/checkpoint/", _in("checkpoint")),
    ("safetensors/", _in("checkpoint")),
    ("megatron/training/checkpointing.py", _in("checkpoint")),
    ("megatron/core/dist_checkpointing/", _in("checkpoint")),
    ("deepspeed/runtime/checkpoint_engine/", _in("checkpoint")),
    ("torch/_dynamo/eval_frame.py", lambda _: None),  # around every call of a compiled model, not only while compiling
    ("torch/_dynamo/external_utils.py", lambda _: None),
    ("torch/_inductor/output_code.py", lambda _: None),
    ("torch/_inductor/utils.py", lambda _: None),
    ("torch/_inductor/runtime/triton_heuristics.py", _in("compile", "precompile", "autotune_to_one_config", "bench")),
    ("torch/_inductor/runtime/", lambda _: None),
    ("torch/_dynamo/", _in("compile")),
    ("torch/_inductor/", _in("compile")),
    ("torch/utils/cpp_extension.py", _in("compile")),
    ("deepspeed/ops/op_builder/", _in("compile", "jit_load", "load")),
    ("triton/compiler/", _in("compile")),
    ("triton/runtime/autotuner.py", _in("compile", "_bench", "benchmark")),
    ("triton/runtime/jit.py", _in("compile", "_do_compile", "create_binder", "compile")),
    ("datasets/arrow_dataset.py", _in("preprocessing")),
    ("datasets/builder.py", _in("preprocessing")),
    ("datasets/utils/py_utils.py", _in("preprocessing", "iflatmap_unordered", "_iflatmap_unordered")),
    ("transformers/tokenization_utils", _in("preprocessing")),
    ("tokenizers/", _in("preprocessing")),
    ("transformers/generation/", _in("generating")),
    ("vllm/entrypoints/llm.py", _in("generating", "generate", "chat", "_run_engine")),
    ("torch/cuda/", _in("device sync", "synchronize")),
    ("torch/_tensor_str.py", _in("device sync")),  # printing a tensor copies it from its device
    ("torch/_tensor.py", _in("device sync", "__format__", "__repr__", "__array__")),
    ("torch/amp/grad_scaler.py", _in("device sync", "<genexpr>", "_maybe_opt_step")),  # .item() of what it found
)
CHECKPOINT_FUNCTIONS = {"save_checkpoint", "load_checkpoint", "save_pretrained", "_save_checkpoint", "save_state_dict"}
OUTER = ("checkpoint", "compile", "data loader", "backward", "generating")  # what another wait may be a part of
# What a function of the program's own is called that prepares a data set.
PREPARES = re.compile(
    r"(?i)tokeni[sz](?!er\b)|pre_?process|(?:encode|pack|index|shard|prepare|build)_(?:with_)?(?:bpe|text|corpus|docu"
    r"|dataset|data\b|index|vocab|sequences|samples|sample_idx|shard)"
)
# Only when nothing above fits any frame: each of these is also how the things above wait.
WEAK: tuple[tuple[str, Callable[[str], tuple[Kind, str] | None]], ...] = (
    ("threading.py", _in("lock", "wait", "wait_for", "acquire", "join", "_wait_for_tstate_lock", "__enter__")),
    ("multiprocessing/synchronize.py", _in("lock")),
    ("queue.py", _in("lock", "get", "put")),
    ("concurrent/futures/_base.py", _in("lock", "result", "wait")),
    *((name, _in("input/output")) for name in ("socket.py", "ssl.py", "http/client.py", "subprocess.py", "shutil.py",
        "urllib3/", "selectors.py", "multiprocessing/connection.py", "zipfile.py", "tarfile.py", "gzip.py",
        "tempfile.py", "fsspec/", "botocore/")),
    ("<frozen importlib", _in("import", but=())),
)  # fmt: skip
# Native frames (py-spy --native) by a part of their name.
NATIVE: tuple[tuple[str, Kind], ...] = (
    ("c10d::Work::wait", "collective"),
    ("WorkNCCL::", "collective"),
    ("c10d::ProcessGroup", "collective"),
    ("gloo::transport::", "collective"),
    *(
        (f"nccl{name}", "collective")
        for name in ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "GroupEnd")
    ),
    ("cudaStreamSynchronize", "device sync"),
    ("cudaDeviceSynchronize", "device sync"),
    ("cudaEventSynchronize", "device sync"),
    ("cuStreamSynchronize", "device sync"),
    ("cuCtxSynchronize", "device sync"),
    ("hipStreamSynchronize", "device sync"),
    ("_local_scalar_dense", "device sync"),  # .item()
    ("THPVariable_item", "device sync"),
    ("THPVariable_tolist", "device sync"),
    ("THPVariable_numpy", "device sync"),
    ("THPVariable_cpu", "device sync"),
    ("nonzero_cuda", "device sync"),
    ("PyThread_acquire_lock", "lock"),
    ("TCPStore::", "store"),
)
# As the C library calls them, in what a debugger prints. Not poll, recv or futex: most waits end in these.
SYSTEM_CALLS = frozenset(("read", "__read", "__libc_read", "__GI___libc_read", "pread64", "__libc_pread64", "write",
    "__libc_write", "__GI___libc_write", "fsync", "__fsync", "open64", "__libc_open64", "openat64", "__open64_nocancel",
    "__read_nocancel", "stat64", "__xstat64", "flock"))  # fmt: skip
# What the kernel says of a thread whose Python frames say nothing: beginnings of wchan and of kernel stack lines,
# without leading underscores.
KERNEL: tuple[tuple[str, Kind], ...] = (
    ("hrtimer_nanosleep", "sleep"),
    ("do_nanosleep", "sleep"),
    ("futex", "native wait"),
    *((name, "input/output") for name in ("nfs", "rpc_", "fuse_", "request_wait_answer", "cl_sync", "ll_", "ptlrpc",
        "ceph_", "fifo_open", "wait_for_partner", "io_schedule", "folio_wait", "wait_on_page", "pipe_read",
        "pipe_write", "flock", "jbd2", "xfs_", "ext4_", "blk_", "inet_csk_accept", "tcp_recvmsg", "sk_wait_data",
        "skb_wait", "unix_stream", "poll_schedule", "ep_poll", "do_wait")),
)  # fmt: skip


def waits_in(process: ProcessStack) -> Wait:
    """What the main thread of a process is in."""
    thread = process.main
    if process.state in ("T", "t"):
        at = _own(thread.frames) if thread else None
        return Wait("stopped", "", None, at, (), False)
    kernel = _by_kernel(process)
    if thread is None or not thread.frames:
        return Wait(kernel if process.state == "D" and kernel else "unknown", "", None, None, (), None)
    at = _own(thread.frames)
    decided = [(hit, frame) for frame in thread.frames if (hit := _fits(frame, STRONG))]
    if decided:
        (kind, op), frame = decided[0]
        # A worker that computes a sample has the loop around it, and a loader its own inner calls: not "within".
        outer = [hit[0] for hit, _ in decided[1:] if hit[0] in OUTER]
        within = tuple(dict.fromkeys(one for one in outer if one != kind and kind != "loader idle"))
        return Wait(kind, op, frame, at, within, thread.active)
    for frame in thread.frames:
        hit = _fits(frame, WEAK) or _native(frame)
        if hit:
            return Wait(hit[0], hit[1], frame, at, (), thread.active)
        if frame == at:
            break  # from here on outwards it is the program itself
    if kernel and not thread.active:
        return Wait(kernel, "", None, at, (), False)
    by_name = next((one for one in thread.frames if one.line is not None and PREPARES.search(one.function)), None)
    if at and by_name is not None and not _shortened(by_name.file):
        return Wait("preprocessing", "", by_name, at, (), thread.active)
    return Wait("user code" if at else "unknown", "", None, at, (), thread.active)


def _fits(
    frame: Frame, table: tuple[tuple[str, Callable[[str], tuple[Kind, str] | None]], ...]
) -> tuple[Kind, str] | None:
    function = frame.function.rpartition(".")[2]
    if table is STRONG and function in CHECKPOINT_FUNCTIONS:
        return "checkpoint", ""
    for part, judge in table:
        if _holds(frame.file, part):
            return judge(function)
    return None


def _holds(file: str, part: str) -> bool:
    """Whether a path has this part, from the beginning of one of its names on."""
    return file.startswith(part) or f"/{part}" in file


def _native(frame: Frame) -> tuple[Kind, str] | None:
    if frame.line is not None:
        return None
    if frame.function in SYSTEM_CALLS:
        return "input/output", ""
    return next(
        ((kind, "wait" if kind == "collective" else "") for part, kind in NATIVE if part in frame.function), None
    )


def _by_kernel(process: ProcessStack) -> Kind | None:
    for line in (process.wchan, *process.kernel):
        for part, kind in KERNEL:
            if line.lstrip("_").startswith(part):
                return kind
    return None


def _own(frames: tuple[Frame, ...]) -> Frame | None:
    """The innermost frame of the job's program; where all of it is installed, of a package that is not torch."""
    own = (frame for frame in frames if of_program(frame))
    installed = (
        frame for frame in frames if _python(frame) and "-packages/" in frame.file and not _holds(frame.file, "torch/")
    )
    return next(own, None) or next(installed, None)


def of_program(frame: Frame) -> bool:
    """Whether it is Python of the job's own program: of no library."""
    return _python(frame) and not any(part in frame.file for part in LIBRARY) and not _shortened(frame.file)


def _python(frame: Frame) -> bool:
    return frame.line is not None and not frame.file.endswith(NATIVE_FILES)


NATIVE_FILES = (".c", ".cc", ".cpp", ".cu", ".h", ".hpp", ".rs", ".S")
SHORT = ("torch/", "triton/", "numpy/", "multiprocessing/", "threading.py", "selectors.py", "queue.py", "socket.py",
    "ssl.py", "subprocess.py", "runpy.py", "concurrent/", "asyncio/", "typing_extensions.py", "contextlib.py",
    "transformers/", "deepspeed/", "megatron/core/", "lightning/", "accelerate/", "datasets/", "importlib/", "enum.py",
    "inspect.py", "dataclasses.py", "logging/", "pickle.py", "json/", "shutil.py", "http/", "urllib/",
    "urllib3/",
)  # fmt: skip


def _shortened(file: str) -> bool:
    """py-spy's text leaves out the folder that was on sys.path, so a library's file looks like the program's own."""
    return file.startswith(SHORT)


# Native code that waits for other ranks or for the device gives the lock away: nobody is held up by who takes it.
GIVES_AWAY = ("collective", "p2p", "barrier", "store", "start", "destroy", "device sync", "sleep", "stopped")
