"""Lines of NCCL 2.4 to 2.30 (and RCCL): errors here, what is no error in nccl_setup.py.

Source   NCCL: debug.cc, init.cc, bootstrap.cc, misc/{socket,ibvwrap}.cc, os/linux.cc, proxy.cc,
         transport/{net_ib,net_socket,shm}.cc; names of status: ibv_wc_status(3); of events: ibv_get_async_event(3)
Units    none
Shape    read(line) -> LogEvent or None; propagated codes: 1 CUDA, 2 system, 3 internal, 4 argument, 5 usage, 6 remote
Errors   none
"""

from __future__ import annotations

import dataclasses
import os
import re

from probes.catalog.logs import nccl_setup
from probes.catalog.logs.events import LogEvent
from probes.catalog.logs.lines import Line
from probes.catalog.logs.shapes import Shapes, shape

# ibv_wc_status(3), as numbered by libibverbs
WC_STATUS = (
    "success", "local length error", "local QP operation error", "local EE operation error", "local protection error",
    "flushed", "memory window bind error", "bad response", "local access error", "remote invalid request",
    "remote access error", "remote operation error", "retries exhausted", "receiver not ready", "local RDD violation",
    "remote invalid RD request", "aborted by the remote side", "invalid EE context number",
    "invalid EE context state", "fatal error", "response time-out", "general error",
)  # fmt: skip
ERRNO = (12, 19, 22, 28, 61, 101, 110, 111, 113)  # of errno(3), as Linux numbers them
FLUSHED = 5  # the queue pair was broken already: the first error is elsewhere

_DEVICE = r"(?P<where>[a-z][a-z0-9_-]{1,30}(?::\d{1,3})?)"
_PEER = r"Got completion (?:from peer (?P<peer>\S{1,120}) )?"
_SOCKET = (
    r"(?:[Cc]all to |[sS]ocket(?:Start|Poll)Connect: )(?P<call>[Cc]onnect|recv|send|bind|accept|getaddrinfo)\w{0,8}"
    r"(?: (?:to|from))?(?: (?!failed|returned)(?P<peer>\S{1,120}))? ?(?:failed|returned) ?:? ?(?:\d{1,4} ?\()?"
    r"(?P<name>[A-Z][\w ]{2,60})"
)
_ERRNO = (
    r"failed(?: with(?: error)?(?: (?P<code>\d{1,4}))? (?P<name>[A-Z][\w' -]{2,60}?)"
    r"(?: errno (?P<errno>\d{1,4}))?)?(?=$|[,.(])"
)

_ERRORS = (
    shape(
        "ib_completion",
        "status=",
        rf"{_PEER}with status=(?:(?P<name>IBV_WC_\w{{1,40}})\()?(?P<code>\d{{1,3}})",
    ),
    shape(  # UCX, ib_mlx5_log.c
        "ib_completion",
        "retry count exceeded",
        r"(?:\[(?P<host>[A-Za-z][\w.-]{0,62}):\d{1,8} {0,2}:\d{1,5}\].{0,80}?)?"
        r"(?P<name>Transport retry count exceeded) on (?P<where>[\w.-]{2,40}:\d{1,3})",
    ),
    shape("ib_completion", "Got completion", rf"{_PEER}with error (?P<code>\d{{1,3}})"),
    shape(
        "ib_async",
        "async",
        rf"(?:(?![Gg]ot ){_DEVICE} ?:? )?(?:[Gg]ot )?(?P<severity>non-fatal |fatal )?async (?:fatal )?event"
        r" ?: ?(?P<name>[^(:]{1,80}?)(?:\((?P<code>\d{1,4})\))? {0,4}$",
    ),
    shape("ib_async", "GID table changed", rf"(?:{_DEVICE} )?(?P<name>GID table changed)"),
    shape(
        "ib_route",
        "ibv_modify_qp failed",
        rf"Call to ibv_modify_qp {_ERRNO}(?:, on dev (?P<where>[\w-]{{1,40}}(?::\d{{1,3}})?))?",
    ),
    shape(
        "ib_resource",
        "Call to ibv_",
        rf"Call to (?P<op>ibv_(?:reg_\w{{1,16}}|create_(?:qp|cq|srq|comp_channel)|alloc_pd)) {_ERRNO}",
    ),
    # UCX: `ibv_reg_mr(address=..., length=...) failed: Cannot allocate memory : ... (current: 8192 kbytes)`
    shape(
        "ib_resource",
        ") failed: ",
        r"(?P<op>ibv_(?:reg_\w{1,16}|create_(?:qp|cq|srq)\w{0,4}|alloc_pd))\([^()]{0,200}\) failed: "
        r"(?P<name>[A-Z][\w ]{2,60}\w)(?:.{0,160}?\(current: (?P<kib>\d{1,18}) kbytes\))?",
    ),
    shape(  # UCX, uct/ib/base/ib_iface.c and rc: uct_ib_iface_create_qp
        "ib_resource",
        "failed to create ",
        r"failed to (?P<op>create (?:RC|DC|UD|XRC|DCI|DCT|RAW)\w{0,16} QP)\b.{0,200}?: "
        r"(?P<name>Cannot allocate memory|No space left on device|Resource temporarily unavailable)",
    ),
    # Open MPI's help text, help-mpi-btl-openib.txt [init-fail-no-mem]
    shape("ib_resource", "some locked memory", r"allocate (?P<op>some locked memory)"),
    # libfabric, as on AWS
    shape(
        "ib_resource",
        "NET/OFI",
        r"NET/OFI Unable to (?P<op>register memory).{0,60}?RC: -?(?P<code>\d{1,4}), Error: (?P<name>[A-Z][\w ]{2,60})",
    ),
    shape(  # only what an adapter, or a limit, has too little of: ENOMEM, EAGAIN, EBUSY, EMFILE, ENOSPC
        "ib_resource",
        "NET/OFI",
        r"NET/OFI (?:Couldn't|Could not|Unable to|Failed to) "
        r"(?P<op>(?:enable|open|create|allocate|bind)[\w -]{3,40}?)\W{1,3}RC: -?(?P<code>1[126]|24|28)\b\W{1,3}"
        r"(?i:error): (?P<name>[A-Z][\w ]{2,60})",
    ),
    shape(
        "ib_resource",
        "ibv_create_",
        r"(?P<op>ibv_create_(?:qp|cq|srq)\w{0,4})(?:\(\))? failed[.:,]{0,1} ?(?:with )?"
        r"errno[:= ]{1,2}(?P<code>1[126]|24|28)\b",
    ),
    shape(  # retyped: ibv_reg_mr_iova2 failed, Cannot allocate memory
        "ib_resource",
        "ibv_reg_",
        r"(?P<op>ibv_reg_\w{1,16})(?:\(\))?\W{1,3}(?:failed|refused|error|returned)?.{0,40}?"
        r"(?P<name>Cannot allocate memory|ENOMEM)",
    ),
    shape(
        "nccl_version_mismatch",
        "Mismatched NCCL version",
        r"Mismatched NCCL version detected ?:? ?(?:rank (?P<about>\d{1,7})(?: version (?P<version>\d{1,7}) rank "
        r"(?P<other>\d{1,7}) version (?P<other_version>\d{1,7}))?)?",
    ),
    shape(
        "duplicate_gpu",
        "Duplicate GPU",
        r"Duplicate GPU detected ?: ?rank (?P<rank>\d{1,7}) and rank (?P<about>\d{1,7}) both on CUDA device "
        r"(?P<bus>[0-9a-fA-F:.]{1,20})",
    ),
    shape("duplicate_gpu", "using the same GPU", r"Multiple Ranks are using the same GPU"),
    shape("cuda_error", "GPU is lost", r"(?P<name>GPU is lost)"),
    shape(
        "cuda_error",
        "CUDA",
        r"CUDA (?:kernel |runtime )?(?:error|failure|exception)(?: \(?\d{1,4}\)?)?(?: -)? "
        r"(?P<name>(?:an )?illegal (?:memory access|instruction)\b[\w ]{0,30}|device-side assert[\w ]{0,20}"
        r"|misaligned address|unspecified launch failure|uncorrectable ECC error[\w ]{0,20})",
    ),
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
    shape(  # as it is remembered
        "bootstrap",
        "onnection to ",
        r"NCCL WARN.{0,40}[Cc]onnection to (?P<peer>\S{1,120}) failed ?:? \(?(?P<name>[A-Z][\w ]{2,60})",
    ),
    shape(
        "bootstrap",
        "nterface",
        r"NCCL WARN.{0,60}?(?P<name>(?i:no (?:usable )?(?:socket |listening |IP )?interface)s?\b.{0,160})",
    ),
    shape(  # Open MPI, btl_tcp_endpoint.c, and its help text
        "bootstrap",
        "connect() to ",
        r"(?:\[(?P<host>[A-Za-z][\w.-]{0,62}):\d{1,8}\].{0,80}?)?"
        r"connect\(\) to (?P<peer>[\d.]{7,15})(?::\d{1,5})? failed(?:: (?P<name>[A-Z][\w ]{2,60}))?",
    ),
    shape("bootstrap", "exceeded", r"(?P<name>exceeded (?:retries|timeouts)) \(\d{1,9}\)"),
    shape("bootstrap", "ootstrap", r"NCCL WARN.{0,60}?(?P<name>[Bb]ootstrap ?(?:Root)? ?:.{1,160})"),
    shape(
        "shm_full",
        "/dev/shm",
        r"NCCL WARN.{0,120}?(?:extend|open|creat(?:e|ing)|posix_fallocate).{0,40}(?P<where>/dev/shm/\S{1,80})",
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
    nccl_setup.TOPOLOGY_FILE,
    *nccl_setup.GRAPHS,
    shape("nccl_warn", "NCCL WARN", r"NCCL WARN (?P<name>.{1,200})"),
    shape("nccl_propagation", " -> ", r"NCCL INFO (?P<where>[\w./-]{1,80}:\d{1,6}) -> (?P<code>\d{1,2})(?= ?\[|$)"),
)

SHAPES = Shapes(_ERRORS + nccl_setup.SHAPES)

_IB_PARTS = {
    "opcode": re.compile(r"opcode[= ](?:\w{1,40}\()?(\d{1,4})"),
    "vendor_err": re.compile(r"vendor[_ ]err[= ](\d{1,9})"),
    "request": re.compile(r"(?:\(|req_type=)(Send|Recv|Flush|Write|Read)\b"),
    "local_gid": re.compile(r"localGid ([0-9a-fA-F:.]{2,45})"),
    "remote_gid": re.compile(r"remoteGids? ?([0-9a-fA-F:.]{2,45})"),
}
RETRIES = 12  # IBV_WC_RETRY_EXC_ERR, which UCX tells in words
_HCA = re.compile(r"\bhca ([\w:.-]{1,40})")
_ROUTE_PARTS = {
    "state": re.compile(r"curr state (\w{2,12})"),
    "next_state": re.compile(r"next state (\w{2,12})"),
    "gid_index": re.compile(r"local GID index (-?\d{1,4})"),
    "local_gid": re.compile(r"local GID {1,2}([0-9a-fA-F:.]{2,45})"),
    "remote_gid": re.compile(r"remote GID {1,2}([0-9a-fA-F:.]{2,45})"),
}
_WRITER = re.compile(r"(?:^|\s)([A-Za-z0-9][\w.-]{0,62}):(\d{1,8}):\d{1,8} ")
_TYPED = re.compile(
    r"^\[?([A-Za-z][\w.-]{0,40}\d[\w.-]{0,20})\]?:? (?:\[\d{1,3}\] )?(?:[\w/.-]{1,40}:\d{1,5} )?$"
)  # gn-5: NCCL WARN
_ON = re.compile(r" (?:on|of|for) ((?:mlx\d|bnxt_re|rdmap|irdma|ib)\w{1,20}(?::\d{1,3})?)$")
# The other end is gone: it ended, and whoever reads from it is told so.
_GONE = ("Connection reset", "Broken pipe")


def _before(text: str) -> str:
    """What stands before NCCL's own words: up to its name, or a first word with a colon where that was left out."""
    mark = text.find("NCCL ")
    return text[:mark][:200] if mark > 0 else f"{text[:70].partition(': ')[0]}: "


def read(line: Line) -> LogEvent | None:
    """The event of a line of NCCL's, with the node and process that it begins with. A flushed completion, and a
    connection that the other end closed, are marked as consequences."""
    found = SHAPES.first(line)
    if found is None:
        return None
    text = line.text[:2000]
    more: dict[str, str | int] = dict(found.more)
    if writer := _WRITER.search(text[: max(text.find("NCCL "), 0)][-300:]):
        more.update(host=writer[1], of_pid=int(writer[2]))
    elif (writer := _TYPED.match(_before(text))) is not None and "rank" not in writer[1].lower():
        more.update(host=writer[1])
    if found.kind == "ib_async" and not found.where and (place := _ON.search(found.name)):
        found = dataclasses.replace(found, name=found.name[: place.start()], where=place[1])
    if found.kind == "ib_completion":
        return _completion(found, text, more)
    if found.kind == "ib_route":
        more.update(_parts(_ROUTE_PARTS, text))
        found = dataclasses.replace(found, secondary="retrying" in text)
    if found.kind in ("ib_route", "ib_resource") and found.code is None:
        found = dataclasses.replace(found, code=_errno(found.name, more.get("errno")))
    if found.kind == "bootstrap" and "retrying" in text:
        found = dataclasses.replace(found, kind="nccl_retry", name=found.name.partition(", ")[0])
    if found.kind == "bootstrap" and found.name.startswith(_GONE):
        found = dataclasses.replace(found, kind="peer_closed", secondary=True)
    if found.kind == "nccl_gdr" and "NET/Socket" in text:
        return None  # sockets never have it
    if found.kind == "nccl_setting":
        more["value"] = str(more["value"]).rstrip(".")
    return dataclasses.replace(found, more=more)


def _completion(found: LogEvent, text: str, more: dict[str, str | int]) -> LogEvent:
    code = found.code or (RETRIES if "retry count exceeded" in text else 0)
    hca, found = _HCA.search(text), dataclasses.replace(found, code=code or found.code)
    name = WC_STATUS[code] if code < len(WC_STATUS) else found.name
    where = hca[1] if hca else found.where
    more.update(_parts(_IB_PARTS, text))
    return dataclasses.replace(found, name=name, where=where, more=more, secondary=code == FLUSHED)


def _parts(patterns: dict[str, re.Pattern[str]], text: str) -> dict[str, str | int]:
    found = {key: part[1] for key, pattern in patterns.items() if (part := pattern.search(text))}
    return {key: int(value) if value.isdigit() else value for key, value in found.items()}


def _errno(name: str, printed: str | int | None) -> int | None:
    """The number of an error by its words; "Unknown error -12" is a negative number that a driver gave."""
    if isinstance(printed, int):
        return printed
    if negative := re.fullmatch(r"Unknown error -?(\d{1,4})", name):
        return int(negative[1])
    return next((number for number in ERRNO if os.strerror(number) == name), None)
