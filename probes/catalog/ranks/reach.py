"""Reaches a rank from outside: its files, as it sees them itself, and the HTTP server that torch can run in it.

Source   proc_pid_root(5), proc_net(5); torch/csrc/distributed/c10d/control_plane/WorkerServer.cpp: HTTP on a unix
         socket, GET /handler/ lists what can be asked, POST /handler/NAME asks; its threads are called pt_workerserver
Units    bytes, seconds
Errors   OSError when the rank does not answer; ValueError when what answers is not that server

Brought to the node by rank probes: standard library and the runner's names only, nothing newer than Python 3.6 but
annotations. Everything here may block (a dead file system, a stopped rank): call it from within `isolate`.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Mapping
from typing import Any

from probes.runner import read


def inside(pid: int, path: str) -> str:
    """The path of a file that process `pid` knows as `path`: its container may have file systems of its own."""
    try:
        if os.readlink(f"/proc/{pid}/ns/mnt") == os.readlink("/proc/self/ns/mnt"):
            return path
    except OSError:  # not ours to look at: then its files are hardly ours either
        return path
    return f"/proc/{pid}/root{path}"


def server_of(row: Mapping[str, Any]) -> tuple[str, list[str], str]:
    """(socket path, what it can be asked, "") of the worker server in a rank, or ("", [], why there is none).

    A socket that the environment does not name is only tried when the rank has threads of the worker server: other
    things that listen in a rank (multiprocessing, for one) would take a question for a broken peer.
    """
    pid = row["pid"]
    named = row["env"].get("TORCH_WORKER_SERVER_SOCKET", "")
    why = "no worker server runs in it"
    try:
        if named.startswith("/"):
            return inside(pid, named), handlers(inside(pid, named), pid), ""
    except (OSError, ValueError) as error:
        why = f"its worker server's socket {named}: {getattr(error, 'strerror', None) or error}"
    try:
        threads = [read(f"/proc/{pid}/task/{tid}/comm", 64) for tid in os.listdir(f"/proc/{pid}/task")[:1024]]
        if not any(name.startswith("pt_workerserver") for name in threads):
            return "", [], why
        mine = set(sockets(pid, 4096))
        for line in read(f"/proc/{pid}/net/unix", 4194304).splitlines()[1:]:
            words = line.split(None, 7)
            # Flags 00010000 is __SO_ACCEPTCON: it listens. An abstract name begins with @ and is not the server's.
            if len(words) == 8 and words[3] == "00010000" and words[6] in mine and words[7].startswith("/"):
                try:
                    return inside(pid, words[7]), handlers(inside(pid, words[7]), pid), ""
                except (OSError, ValueError):
                    continue
    except OSError as error:
        return "", [], f"its worker server cannot be looked for: {error.strerror or error}"
    return "", [], why if named else "its worker server has no socket that can be reached from here, or is silent"


def sockets(pid: int, most: int) -> list[str]:
    """Inodes of the sockets among the first files that a process has open. Raises OSError where it may not look."""
    found = []
    for number in os.listdir(f"/proc/{pid}/fd")[:most]:
        try:
            link = os.readlink(f"/proc/{pid}/fd/{number}")
        except OSError:
            continue
        if link.startswith("socket:["):
            found.append(link[8:-1])
    return found


def handlers(path: str, pid: int) -> list[str]:
    """What the server behind a socket can be asked. Raises OSError, ValueError when it is another kind of server."""
    names = json.loads(ask(path, pid, "GET /handler/", 65536, 2.0).decode("utf-8", "replace"))
    if not isinstance(names, list):
        raise ValueError("what answered is not torch's worker server")
    return [name for name in names if isinstance(name, str)]


def ask(path: str, pid: int, request: str, limit: int, patience_s: float) -> bytes:
    """The body of the answer of process `pid` to one request, such as "POST /handler/ping". Raises OSError, ValueError.

    `patience_s` is for each wait. Nothing is sent when another process listens: ranks that share one environment may
    all name the socket of one of them.
    """
    folder, _, name = path.rpartition("/")
    number = os.open(folder or "/", os.O_RDONLY | os.O_DIRECTORY)
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        client.settimeout(patience_s)
        client.connect(f"/proc/self/fd/{number}/{name}")  # the path itself may be longer than an address can be
        listener = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        if listener not in (pid, 0):  # 0: a pid that cannot be seen from here
            raise ValueError(f"process {listener} listens on it")
        head = f"{request} HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        client.sendall(head.encode("ascii"))
        return _body(client, limit)
    finally:
        client.close()
        os.close(number)


def _body(client: socket.socket, limit: int) -> bytes:
    parts, size, wanted, head = [], 0, -1, b""
    while wanted < 0 or size < wanted:
        data = client.recv(65536)
        if not data:
            break
        if wanted < 0:
            head += data
            begin, end, data = head.partition(b"\r\n\r\n")
            if not end:
                if len(head) > 65536 or not b"HTTP/1.".startswith(head[:7]):
                    raise ValueError("what answered is not HTTP")
                continue
            wanted = _length(begin.decode("latin-1"), limit)
        parts.append(data)
        size += len(data)
    if wanted < 0 or size < wanted:
        raise OSError("the answer ended too early")
    return b"".join(parts)[:wanted]


def _length(head: str, limit: int) -> int:
    lines = head.split("\r\n")
    status = lines[0].split()[1:2]
    if not lines[0].startswith("HTTP/1.") or status != ["200"]:
        raise ValueError(f"it answered {lines[0][:80]!r}")
    for line in lines[1:]:
        key, _, value = line.partition(":")
        if key.lower() == "content-length" and value.strip().isdigit():
            if int(value) > limit:
                raise ValueError(f"its answer has {int(value)} bytes, over the {limit} that are read")
            return int(value)
    raise ValueError("its answer does not say how long it is")
