"""Lines that torch writes when a collective fails: watchdog, monitors, mismatches, gloo, stores.

Source   torch 1.10 to 2.13: ProcessGroupNCCL.cpp, ProcessGroupGloo.cpp, ProcessGroupWrapper.cpp, TraceUtils.h,
         FlightRecorder.cpp, TCPStore, reducer.cpp; recorded runs of 2.13 on gloo; reported lines of 1.12 to 2.11
Units    milliseconds where a name ends in _ms
Shape    read(line) -> LogEvent or None
Errors   none
"""

from __future__ import annotations

import dataclasses
import re

from probes.catalog import _log_wrappers
from probes.catalog._log_events import LogEvent
from probes.catalog._log_lines import Line
from probes.catalog._log_runs import BY_PIPE
from probes.catalog._log_shapes import first, shape

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
        rf"WorkNCCL\((?:SeqNum=(?P<seq>{_N}), )?OpType=(?P<op>\w{{1,60}})"
        rf"(?:, NumelIn=(?P<size>{_N}), NumelOut=(?P<size_out>{_N}))?, Timeout\(ms\)=(?P<timeout_ms>{_N})\)"
        rf" ran for (?P<ran_ms>{_N}) milliseconds",
    ),
    shape(
        "watchdog_status",
        "last completed",
        rf"(?:work sequence id|at work|NCCL work): (?P<seq>-?{_N})"
        rf".{{0,20}}?last enqueued(?: NCCL)? work: (?P<enqueued>-?{_N}), last completed(?: NCCL)? work: "
        rf"(?P<completed>-?{_N})",
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

_NETWORK = (
    shape(
        "bootstrap",
        "SO_ERROR",
        r"SO_ERROR: (?P<name>[A-Z][\w ]{2,60}), remote=(?P<peer>\[[^\]]{1,60}\]:\d{1,5})",
    ),
    shape("bootstrap", "onnect timeout [", r"(?P<name>[Cc]onnect timeout) (?P<peer>\[[^\]]{1,60}\]:\d{1,5})"),
    shape("bootstrap", "nable to find address", r"(?P<name>Unable to find address for): ?(?P<where>[\w.@-]{1,60})"),
    shape(  # of gloo, pair.cc
        "bootstrap",
        "] connect [",
        r"\] connect (?P<peer>\[[^\]]{1,60}\]:\d{1,5}): (?P<name>[A-Z][\w ]{2,60})",
    ),
    shape("bootstrap", "connectFullMesh", r"(?P<name>connectFullMesh failed)"),
    shape(
        "gloo_timeout",
        "Timed out waiting",
        rf"Timed out waiting (?P<timeout_ms>{_N})ms for (?P<op>\w{{1,20}}) operation",
    ),
    shape(
        "peer_closed",
        "Connection closed by peer [",
        r"Connection closed by peer (?P<peer>\[[^\]]{1,60}\]:\d{1,5})",
        True,
        "connection closed by peer",
    ),
    shape(
        "peer_closed",
        "reset by peer",
        r"(?:Read|Write|writev|readv)\w{0,4} (?:error )?(?P<peer>\[[^\]]{1,60}\]:\d{1,5}): Connection reset",
        True,
        "connection reset by peer",
    ),
    shape(
        "setup_missed",
        "retrieving ncclUniqueId",
        r"retrieving ncclUniqueId from \[(?P<about>\d{1,7})\](?:.{0,120}?store->get\('(?P<key>[^']{1,80})'\))?",
    ),
    shape("store_timeout", "waitForInput", rf"waitForInput.{{0,200}}?timed out after (?P<timeout_ms>{_N}) ?ms"),
    shape(
        "store_timeout",
        "wait timeout after",
        rf"wait timeout after (?P<timeout_ms>{_N})ms, keys: (?P<key>\S{{1,120}})",
    ),
    shape("store_timeout", "Timeout waiting for key", r"Timeout waiting for key: (?P<key>\S{1,120})"),
    shape(
        "store_closed", "recvBytes", r"recvBytes.{0,200}?(?P<name>Connection reset by peer|Broken pipe|failed)", True
    ),
    shape("store_closed", "recvValue", r"recvValue\w{0,16} failed", True),
    shape("store_closed", "Connection was likely closed", secondary=True),
    shape(
        "rendezvous",
        "clients joined",
        r"(?P<joined>\d{1,7})/(?P<world>\d{1,7}) clients joined",
        name="members missing",
    ),
    shape(
        "rendezvous",
        "worker_count",
        r"store based barrier on rank: \d{1,7}.{0,200}?world_size=(?P<world>\d{1,7}), worker_count=(?P<joined>\d{1,7})",
        name="members missing",
    ),
    shape("rendezvous", "EADDRINUSE"),
    shape("rendezvous", "ailed to listen", r"server socket has failed to (?P<name>listen)"),
    shape(
        "rendezvous",
        "client socket",
        r"client socket has (?P<name>failed to connect|timed out)(?:.{0,80}?(?P<peer>[(\[]\S.{0,80}?[)\]]))?"
        r"(?:.{0,40}?errno: ?(?P<code>\d{1,4}))?",
    ),
    shape(
        "rendezvous",
        "cannot be initialized to connect",
        r"client socket cannot be initialized to connect to (?P<peer>[(\[]\S.{0,80}?[)\]])"
        r"(?:.{0,40}?errno: ?(?P<code>\d{1,4}))?",
        name="failed to connect",
    ),
    shape(
        "rendezvous",
        "cannot be retrieved",
        r"network addresses of (?P<peer>\(.{1,120}?\)) (?P<name>cannot be retrieved)",
    ),
    # Members are called <host>_<pid>_<number>: dynamic_rendezvous.py, _NodeDescGenerator
    shape(
        "rendezvous",
        "keep-alive",
        r"(?:[Nn]ode '(?P<peer>[A-Za-z0-9][\w.-]{0,120}?)_\d{1,8}_\d{1,4}' has )?"
        r"failed to send a (?P<name>keep-alive) heartbeat to the rendezvous",
    ),
    shape(
        "rendezvous",
        "etected dead node",
        r"etected (?P<name>dead) node '(?P<peer>[A-Za-z0-9][\w.-]{0,120}?)_\d{1,8}_\d{1,4}'",
    ),
    shape(
        "rendezvous",
        "had no heartbeat",
        r"node\(s\) '?(?P<peer>[A-Za-z0-9][\w.-]{0,120}?)_\d{1,8}_\d{1,4}\b.{0,300}? removed from the rendezvous "
        r".{0,120}?since they had (?P<name>no heartbeat)",
    ),
    shape("rendezvous", "etcd.Etcd", r"(?:^|\s)etcd\.Etcd\w{4,40}", name="EtcdConnectionError"),
    shape("rendezvous", "Rendezvous", r"(?P<name>Rendezvous[A-Z][A-Za-z]{3,30}Error)"),
)

SHAPES = _WATCHDOG + _DESYNC + _MISMATCH + _log_wrappers.SHAPES + _NETWORK


def read(line: Line) -> LogEvent | None:
    """The event of a line of torch's, with the process group that the line names."""
    found = first(SHAPES, line)
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
