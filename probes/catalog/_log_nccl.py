"""Lines of NCCL 2.4 to 2.30 (and RCCL): errors, set-up, rings and trees, links, networks, calls.

Source   NCCL: debug.cc, init.cc, bootstrap.cc, misc/socket.cc, transport/{net_ib,net_socket,p2p,shm,net}.cc, proxy.cc,
         graph/connect.cc, enqueue.cc; names of status: ibv_wc_status(3)
Units    none; opCount is hexadecimal
Shape    read(line) -> LogEvent or None; propagated codes: 1 CUDA, 2 system, 3 internal, 4 argument, 5 usage, 6 remote
Errors   none
"""

from __future__ import annotations

import dataclasses
import re

from probes.catalog._log_events import LogEvent
from probes.catalog._log_lines import Line
from probes.catalog._log_shapes import first, shape

# ibv_wc_status(3), as numbered by libibverbs
WC_STATUS = (
    "success", "local length error", "local QP operation error", "local EE operation error", "local protection error",
    "flushed", "memory window bind error", "bad response", "local access error", "remote invalid request",
    "remote access error", "remote operation error", "retries exhausted", "receiver not ready", "local RDD violation",
    "remote invalid RD request", "aborted by the remote side", "invalid EE context number",
    "invalid EE context state", "fatal error", "response time-out", "general error",
)  # fmt: skip
FLUSHED = 5  # the queue pair was broken already: the first error is elsewhere

_PEER = r"Got completion (?:from peer (?P<peer>\S{1,120}) )?"
_COMM = (
    r"comm (?P<comm>0x[0-9a-fA-F]{1,16}|\(nil\)) rank (?P<comm_rank>\d{1,7}) n[rR]anks (?P<ranks>\d{1,7})"
    r"(?: cudaDev (?P<cuda>-?\d{1,4}))?(?: nvmlDev (?P<nvml>-?\d{1,4}))?(?: busId (?P<bus>[0-9a-f]{1,16}))?"
    r"(?: commId (?P<group>0x[0-9a-f]{1,16}))?"
)
_SOCKET = (
    r"(?:[Cc]all to |socket(?:Start|Poll)Connect: )(?P<call>[Cc]onnect|recv|send|bind|accept|getaddrinfo)\w{0,8}"
    r"(?: (?:to|from))?(?: (?!failed|returned)(?P<peer>\S{1,120}))? ?(?:failed|returned) ?:? ?"
    r"(?P<name>[A-Z][\w ]{2,60})"
)

_ERRORS = (
    shape(
        "ib_completion",
        "status=",
        rf"{_PEER}with status=(?:(?P<name>IBV_WC_\w{{1,40}})\()?(?P<code>\d{{1,3}})",
    ),
    shape("ib_completion", "Got completion", rf"{_PEER}with error (?P<code>\d{{1,3}})"),
    shape(
        "ib_async",
        "async",
        r"(?:(?P<where>mlx\w{1,20}(?::\d{1,3})?) ?:? )?(?:Got )?(?P<severity>non-fatal |fatal )?async (?:fatal )?event"
        r" ?: ?(?P<name>[^(:]{1,80}?)(?:\((?P<code>\d{1,4})\))? {0,4}$",
    ),
    shape("ib_async", "GID table changed", r"(?:(?P<where>mlx\w{1,20}(?::\d{1,3})?) )?(?P<name>GID table changed)"),
    shape(
        "nccl_version_mismatch",
        "Mismatched NCCL version",
        r"Mismatched NCCL version detected ?:? ?(?:rank (?P<about>\d{1,7}))?",
    ),
    shape(
        "duplicate_gpu",
        "Duplicate GPU",
        r"Duplicate GPU detected ?: ?rank (?P<rank>\d{1,7}) and rank (?P<about>\d{1,7}) both on CUDA device "
        r"(?P<bus>[0-9a-fA-F:.]{1,20})",
    ),
    shape("duplicate_gpu", "using the same GPU", r"Multiple Ranks are using the same GPU"),
    shape("cuda_error", "Cuda failure", r"Cuda failure(?: \d{1,4})? ?'(?P<name>[^']{1,120})'"),
    shape(
        "peer_closed",
        "onnection closed by",
        r"[Cc]onnection closed by remote peer (?P<peer>\S{1,120})",
        True,
        "connection closed by peer",
    ),
    shape(
        "peer_closed",
        "closed by localRank",
        r"\[Service thread\] Connection closed by localRank (?P<local_rank>\d{1,5})",
        True,
        "connection closed by a local rank",
    ),
    shape("bootstrap", "failed", _SOCKET),
    shape("bootstrap", "returned", _SOCKET),
    shape(
        "bootstrap",
        "onnect to ",
        r"NCCL WARN.{0,40}[Cc]onnect to (?P<peer>\S{1,120}) failed ?: (?P<name>[A-Z][\w ]{2,60})",
    ),
    shape("bootstrap", "ootstrap", r"NCCL WARN.{0,60}?(?P<name>[Bb]ootstrap ?(?:Root)? ?:.{1,160})"),
    shape(
        "shm_full",
        "/dev/shm",
        r"NCCL WARN.{0,120}?(?:extend|open|create|posix_fallocate).{0,40}(?P<where>/dev/shm/\S{1,80})",
    ),
    shape(
        "nccl_error",
        "NCCL error in",
        r"NCCL error in: (?P<where>\S{1,200}), (?P<name>[^,]{1,80})(?:, NCCL version (?P<version>[\w.+-]{1,30}))?",
    ),
    shape(
        "nccl_error",
        "nccl",
        r"(?P<name>nccl(?:UnhandledCuda|System|Internal|Remote|InvalidUsage|InvalidArgument)(?:Error)?) ?:",
    ),
    shape("nccl_warn", "NCCL WARN", r"NCCL WARN (?P<name>.{1,200})"),
    shape("nccl_propagation", " -> ", r"NCCL INFO (?P<where>[\w./-]{1,80}:\d{1,6}) -> (?P<code>\d{1,2})(?= ?\[|$)"),
)

# "nranks" are those of this communicator, not of the job.
_SET_UP = (
    shape("nccl_init_done", "Init COMPLETE", _COMM),
    shape("nccl_init_start", "Init START", _COMM),
    shape(
        "nccl_topology",
        " localRanks ",
        r"comm (?P<comm>0x[0-9a-fA-F]{1,16}) rank (?P<comm_rank>\d{1,7}) nRanks (?P<ranks>\d{1,7})"
        r" nNodes (?P<nodes>\d{1,7}) localRanks (?P<local_ranks>\d{1,5}) localRank (?P<local_rank>\d{1,5})",
    ),
    shape(
        "nccl_ring",
        "Ring ",
        r"Ring (?P<channel>\d{1,3}) : (?P<prev>\d{1,7}) -> (?P<me>\d{1,7}) -> (?P<next>\d{1,7})",
    ),
    shape(
        "nccl_ring",
        "Channel ",
        r"Channel (?P<channel>\d{1,3})/(?P<channels>\d{1,3}) : (?P<order> {0,8}\d{1,7}(?: {1,8}\d{1,7}){0,4000})$",
    ),
    shape("nccl_tree", "Trees [", r"Trees (?P<name>\[\d{1,3}\] .{1,2000})"),
    shape(
        "nccl_channels",
        "coll channels",
        r"(?P<coll>\d{1,5}) coll channels(?:, (?P<collnet>\d{1,5}) collnet channels)?"
        r"(?:, (?P<nvls>\d{1,5}) nvls channels)?(?:, (?P<p2p>\d{1,5}) p2p channels)?"
        r"(?:, (?P<per_peer>\d{1,5}) p2p channels per peer)?",
    ),
    shape("nccl_channels", "Connected all", r"(?P<name>Connected all (?:rings|trees))"),
    shape(
        "nccl_link",
        " via ",
        r"Channel (?P<channel>\d{1,3})(?:/\d{1,3})? : (?P<from>\d{1,7})\[[0-9a-f]{1,16}\] -> "
        r"(?P<to>\d{1,7})\[[0-9a-f]{1,16}\] (?:\[(?P<direction>send|receive)\] )?via (?P<name>[A-Z][\w/()]{1,60})",
    ),
    shape("nccl_net", "Using network", r"Using network (?P<name>[\w-]{1,40})"),
    shape("nccl_net", "NET/", r"(?P<name>NET/[\w-]{1,20}) ?: Using (?P<devices>.{1,300})"),
    shape("nccl_net", "NET/IB", r"(?P<name>NET/IB) ?: (?P<devices>No device found)"),
    shape("nccl_version", "CCL version", r"(?P<product>[NR]CCL) version ?:? ?(?P<name>\d[\w.+-]{2,40})"),
    shape(
        "nccl_call",
        "opCount",
        r"(?P<op>\w{3,40}): opCount (?P<op_count>[0-9a-f]{1,16}) .{0,120}?count (?P<size>\d{1,18}) datatype "
        r"(?P<datatype>\d{1,3}).{0,40}?comm (?P<comm>0x[0-9a-f]{1,16})",
    ),
)

SHAPES = _ERRORS + _SET_UP

_IB_PARTS = {
    "opcode": re.compile(r"opcode[= ](?:\w{1,40}\()?(\d{1,4})"),
    "vendor_err": re.compile(r"vendor[_ ]err[= ](\d{1,9})"),
    "request": re.compile(r"(?:\(|req_type=)(Send|Recv|Flush|Write|Read)\b"),
    "local_gid": re.compile(r"localGid ([0-9a-fA-F:.]{2,45})"),
    "remote_gid": re.compile(r"remoteGids? ?([0-9a-fA-F:.]{2,45})"),
}
_HCA = re.compile(r"\bhca ([\w:.-]{1,40})")


def read(line: Line) -> LogEvent | None:
    """The event of a line of NCCL's. A flushed completion is marked as a consequence."""
    found = first(SHAPES, line)
    if found is None or found.kind != "ib_completion":
        return found
    text = line.text[:2000]
    parts = {key: part[1] for key, pattern in _IB_PARTS.items() if (part := pattern.search(text))}
    more: dict[str, str | int] = {key: int(value) if value.isdigit() else value for key, value in parts.items()}
    hca, code = _HCA.search(text), found.code or 0
    name = WC_STATUS[code] if code < len(WC_STATUS) else found.name
    where = hca[1] if hca else ""
    return dataclasses.replace(found, name=name, where=where, more=more, secondary=code == FLUSHED)
