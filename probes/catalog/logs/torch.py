"""Lines that torch writes when a collective fails: watchdog, monitors, mismatches.

Source   torch 1.10 to 2.13: ProcessGroupNCCL.cpp, ProcessGroupGloo.cpp, ProcessGroupWrapper.cpp, TraceUtils.h,
         FlightRecorder.cpp, TCPStore, reducer.cpp; recorded runs of 2.13 on gloo; reported lines of 1.12 to 2.11
Units    milliseconds where a name ends in _ms
Shape    read(line) -> LogEvent or None
Errors   none
"""

from __future__ import annotations

import dataclasses
import re

from probes.catalog.logs import meeting, wrappers
from probes.catalog.logs.events import LogEvent
from probes.catalog.logs.lines import Line
from probes.catalog.logs.runs import BY_PIPE
from probes.catalog.logs.shapes import Shapes, shape

HOROVOD = "missing in Horovod"
BUILT = "built"  # an extension
_N = r"\d{1,18}"
# `[Rank 1]`, `[PG 1 Rank 1]`, `[PG ID 0 PG GUID 0(default_pg) Rank 1]`: this rank is counted within the group.
_WHO = re.compile(
    r"\[(?:PG (?:ID )?(?P<id>\d{1,9})(?: PG GUID (?P<guid>[^\s(\]]{1,60}))?"
    r" ?(?:\((?P<name>[^)\]]{0,80})\))? )?Rank (?P<rank>\d{1,7})\]"
)

_WATCHDOG = (
    shape(
        "watchdog_timeout",
        "ran for ",
        rf"WorkNCCL\((?:Seq(?:Num)?=(?P<seq>{_N}),? ?)?OpType=(?P<op>\w{{1,60}})"
        rf"(?:,? NumelIn=(?P<size>{_N}),? NumelOut=(?P<size_out>{_N}))?(?:,? Timeout\(ms\)=(?P<timeout_ms>{_N}))?\)"
        rf",? ran for (?P<ran_ms>{_N}) ?(?:ms|milliseconds)\b",
    ),
    # As people copy it: the work behind the time, or without one
    shape(
        "watchdog_timeout",
        "WorkNCCL(",
        rf"(?=.{{0,600}}(?:ran for (?P<ran_ms>{_N}) ?(?:ms|milliseconds)|(?i:timed out|timeout|time-out)\b(?!\()))"
        rf".{{0,400}}?WorkNCCL\((?:Seq(?:Num)?=(?P<seq>{_N}),? ?)?OpType=(?P<op>\w{{1,60}})"
        rf"(?:,? NumelIn=(?P<size>{_N}),? NumelOut=(?P<size_out>{_N}))?(?:,? Timeout\(ms\)=(?P<timeout_ms>{_N}))?\)",
    ),
    shape(
        "watchdog_status",
        "last completed",
        rf"(?:work sequence id|at work|NCCL work): (?P<seq>-?{_N})"
        rf".{{0,20}}?last enqueued(?: NCCL)? work: (?P<enqueued>-?{_N}), last completed(?: NCCL)? work: "
        rf"(?P<completed>-?{_N})",
    ),
    shape(  # the same without what stands before it
        "watchdog_status",
        "ast enqueued",
        rf"(?:^|\] |: )\W{{0,4}}[Ll]ast enqueued(?: NCCL)? work:? (?P<enqueued>-?{_N}), "
        rf"last completed(?: NCCL)? work:? (?P<completed>-?{_N})",
    ),
    shape(
        "dump_signal",
        "dump signal",
        r"Received a (?:dump|timeout) signal (?:due to a collective timeout )?from +"
        r"(?:rank (?P<about>\d{1,7})|this local rank|another rank)"
        rf".{{0,200}}?ast enqueued NCCL work: (?P<enqueued>-?{_N}), last completed NCCL work: (?P<completed>-?{_N})",
    ),
    shape("dump_signal", "signal received through pipe", name=BY_PIPE),
    shape("dump_signal", "dump signal", r"(?:Received|Observed|Dump).{0,80}?(?:from +rank (?P<about>\d{1,7})|$|[ ,.])"),
    shape(
        "dump_signal",
        "ast enqueued NCCL",
        rf"Received a timeout signal from +this local rank.{{0,200}}?ast enqueued "
        rf"NCCL work: (?P<enqueued>-?{_N}), last completed NCCL work: (?P<completed>-?{_N})",
    ),
    shape("dump_signal", "global timeout from another rank"),
    shape("dump_signal", "Dump signal received"),
    shape("dump_signal", "First PG on this rank to signal dumping"),
    shape(
        "dump_written", "debug info to ", r"Finished writing (?:Flight Recorder|NCCLPG) debug info to (?P<where>\S+)"
    ),
    shape(
        "dump_failed",
        "debug info",
        r"Error (?:opening file for )?writing .{0,40}debug info(?: to file)?: (?P<where>\S{1,400})",
    ),
    shape("dump_failed", "should dump", r"Failed to check the .should dump. flag"),
    shape("remote_error", "remote error detected", r"remote error detected from rank: ?(?P<about>\d{1,7})", True),
    shape("heartbeat", "watchdog got stuck", r"got stuck for (?P<stuck_s>\d{1,9}) seconds"),
    shape("heartbeat", "Heartbeat monitor timed out"),
    shape("compiling", "torch._dynamo hit", r"torch\._dynamo hit config\.(?P<name>\w{3,60})"),
    shape("compiling", "Recompiling function", r"Recompiling function (?P<name>\S{1,120})"),
    # torch/_inductor/compile_fx.py, with TORCH_LOGS=inductor
    shape("compiling", "torchinductor done compiling", name=BUILT),
    shape("compiling", "torchinductor compiling", r"torchinductor compiling (?P<name>\w{1,20}) graph"),
    shape("compiling", "Graph break", r"Graph break (?:in|from|:) ?(?P<name>[\w ]{2,60})"),
    # torch/utils/cpp_extension.py, and DeepSpeed's op_builder when it is done
    shape("compiling", "Building extension module", r"Building extension module (?P<name>\w{1,60})"),
    shape("compiling", "Loading extension module", name=BUILT),
    shape("compiling", "Time to load", r"Time to load \w{1,60} op:", name=BUILT),
    shape("compiling", "Emitting ninja build file"),
    # Megatron-LM, gpt_dataset.py and helpers; NeMo; datasets of fairseq
    shape(
        "preparing",
        "uild",
        r"(?i:\bbuild(?:ing)?\b(?: \w{1,20}){0,6} (?:ind(?:ex|ices)|index mapping|sample-idx|shuffle-idx|doc-idx)\b)",
    ),
    shape("compiling", "AUTOTUNE", r"AUTOTUNE (?P<name>\w{1,40})\("),
    shape("stream_race", "CSAN detected", r"CSAN detected a possible data race"),
    shape("stream_race", "CUDASanitizerErrors", r"CUDASanitizerErrors: detected (?P<races>\d{1,6}) errors?"),
    shape("unwaited", "unwaited collective", r"still (?P<calls>\d{1,9}) unwaited collective calls"),
    shape(  # torch.cuda.set_sync_debug_mode("warn")
        "sync_warned",
        "called a synchronizing CUDA operation",
        r"(?:(?P<where>[^\s:]{1,300}:\d{1,7}): UserWarning: )?called a synchronizing CUDA operation",
    ),
    shape("gil_stuck", "acquire GIL", r"Could not acquire GIL within (?P<waited_ms>\d{1,9}) ms"),
    shape("blocking_wait", "blocking wait", r"(?:OpType=(?P<op>\w{1,60}).{0,120}?)?timed out in blocking wait"),
    shape("watchdog_ended", "taking the entire process down", secondary=True),
    shape(
        "watchdog_ended",
        "watchdog thread terminated with exception",
        r"watchdog thread terminated with exception(?!.{0,40}CUDA error)",
        True,
    ),
    shape("watchdog_ended", "NCCL operations have failed or timed out", secondary=True),
    shape("watchdog_ended", "Terminating the process after attempting to dump", secondary=True),
)

# TORCH_NCCL_DESYNC_DEBUG: who finished what, and joined nothing after it.
_DESYNC = (
    # Horovod, stall_inspector.cc: `Missing ranks:`, then a line for each; older ones name them behind the tensor
    shape(
        "desync",
        ": [",
        r"^(?P<about>\d{1,7}): \[\w{0,80}(?i:allreduce|allgather|broadcast|alltoall|reducescatter)",
        name=HOROVOD,
    ),
    shape("desync", "missing ranks", r"\[missing ranks: (?P<about>[\d, ]{1,400})\]", name=HOROVOD),
    shape(
        "desync",
        "finished collective #",
        rf"\[(?P<about>[\d, ]{{1,200}})\] finished collective #(?P<seq>{_N}), but didn't join collective "
        rf"#(?P<next>{_N})",
        name="never joined",
    ),
    shape(
        "desync",
        "finish collective #",
        rf"\[(?P<about>[\d, ]{{1,200}})\] joined but didn't finish collective #(?P<seq>{_N})",
        name="joined, did not finish",
    ),
    shape(
        "desync",
        "Timeout at collective",
        rf"\[(?P<waiting>\d{{1,7}})\] Timeout at collective: (?P<op>\w{{1,60}}), #(?P<seq>{_N})",
        secondary=True,
        name="waited",
    ),
    shape(
        "desync",
        "lagging ranks",
        r"ranks \[(?P<about>[\d, ]{1,400})\] are the lagging ranks",
        name="never joined any",
    ),
)

_MISMATCH = (
    # TORCH_DISTRIBUTED_DEBUG=DETAIL compares fingerprints. Its sequence number counts from 0, the recorder's from 1.
    shape(
        "collective_mismatch",
        "Detected mismatch between collectives",
        r"Rank (?P<reporter>\d{1,7}) is running collective: CollectiveFingerPrint\("
        r"(?:SequenceNumber=(?P<seq>\d{1,18}), ?)?OpType=(?P<op>\w{1,60})(?:, TensorShape=\[(?P<dims>[\d, ]{0,200})\])?"
        r".{0,2000}?but Rank (?P<about>\d{1,7}) is running collective: CollectiveFingerPrint\("
        r"(?:SequenceNumber=(?P<peer_seq>\d{1,18}), ?)?OpType=(?P<peer_op>\w{1,60})"
        r"(?:, TensorShape=\[(?P<peer_shape>[\d, ]{0,200})\])?",
    ),
    shape("collective_mismatch", "Detected mismatch between collectives"),
    shape(
        "collective_mismatch",
        "op.preamble.length",
        rf"op\.preamble\.length <= op\.nbytes\. (?P<received>{_N}) vs (?P<expected>{_N})",
        name="gloo: more data than expected",
    ),
    shape(
        "barrier_missed",
        "monitoredBarrier",
        r"(?:\[Rank (?P<reporter>\d{1,7})\]: ?)?Ranks? (?P<about>[\d, ]{1,400}?) failed to pass monitoredBarrier in "
        rf"(?P<timeout_ms>{_N}) ms",
    ),
    shape(
        "barrier_victim",
        "monitoredBarrier",
        r"Rank (?P<waiting>\d{1,7}) successfully reached monitoredBarrier.{0,90}?from rank (?P<asked>\d{1,7})",
        secondary=True,
    ),
    shape(
        "ddp_unused",
        "did not receive grad",
        r"did not receive grad for rank (?P<about>\d{1,7}): (?P<parameters>[\d ]{1,200})",
    ),
    shape("ddp_unused", "Expected to have finished reduction in the prior iteration"),
    shape(
        "hook_order",
        "marked as ready twice",
        r"Parameter at index (?P<parameters>\d{1,9})(?: with name (?P<name>[\w.]{1,160}))? has been marked as ready "
        r"twice",
    ),
    shape("hook_order", "marked as ready twice"),
    shape("hook_order", "mark a variable ready only once"),
)

SHAPES = Shapes(_WATCHDOG + _DESYNC + _MISMATCH + wrappers.SHAPES + meeting.SHAPES)


def read(line: Line) -> LogEvent | None:
    """The event of a line of torch's, with the process group that the line names."""
    found = SHAPES.first(line)
    who = _WHO.search(line.text[:600]) if found and "Rank " in line.text else None
    if found is None or who is None:
        return found
    more = {**found.more, "group_rank": int(who["rank"])}
    if who["name"]:
        more["group_name"] = who["name"]
    group = who["guid"] or who["id"] or ""
    rank = found.rank
    # Only in the default group the rank within the group is the rank; lines before torch 2.2 do not say the group.
    if rank is None and (group in ("", "0") or who["name"] == "default_pg"):
        rank = int(who["rank"])
    return dataclasses.replace(found, group=group, rank=rank, more=more)
