"""Which TCP connections does each rank have, and which of them get no answer?

Source   /proc/PID/net/tcp and tcp6 of the rank's own network namespace: state, queue, timer and unanswered tries
         (Documentation/networking/proc_net_tcp.rst); whose a socket is: /proc/PID/fd (proc_pid_fd(5)). No tool needed
Units    bytes in queues; tries since the last answer, each twice as long as the one before, from 1 s (RFC 6298)
Shape    RankSockets: for each rank its sockets, at most 400, those that wait first
Errors   ParseError when a row is not what the collector writes. Absent and Denied as of rank.map
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from probes.catalog._collected import as_rows, whole, whole_or_none, word
from probes.catalog.network.net_facts import Socket
from probes.catalog.ranks import reach
from probes.core import Finding, ParseError, Probe, sections
from probes.runner import need_ranks, read

__all__ = ["PROBE", "RankSockets", "findings", "parse"]

MOST, RANKS = 400, 256
# Tries that got no answer, 7 s after the first: far beyond one lost packet; judgement.
UNANSWERED = 3


@dataclass(frozen=True, slots=True)
class OfRank:
    """`left_out`: sockets beyond those that are told. `why`: what could not be read, "" for nothing."""

    rank: int
    pid: int
    sockets: tuple[Socket, ...]
    left_out: int
    why: str


@dataclass(frozen=True, slots=True)
class RankSockets:
    ranks: tuple[OfRank, ...]

    @property
    def sockets(self) -> tuple[Socket, ...]:
        """Of all ranks; one that is sent for the first time is about to be answered and left out."""
        return tuple(
            one for row in self.ranks for one in row.sockets if one.state != "SYN-SENT" or one.backoff >= UNANSWERED
        )


def _collect() -> Mapping[str, str]:
    import json
    import os
    import socket
    import struct

    names = {
        "01": "ESTAB", "02": "SYN-SENT", "03": "SYN-RECV", "04": "FIN-WAIT-1", "05": "FIN-WAIT-2", "06": "TIME-WAIT",
        "07": "CLOSE", "08": "CLOSE-WAIT", "09": "LAST-ACK", "0A": "LISTEN", "0B": "CLOSING",
    }  # fmt: skip

    def address(text: str) -> str:
        host, port = text.split(":")
        data = bytes.fromhex(host)
        data = b"".join([struct.pack("!I", struct.unpack_from("=I", data, at)[0]) for at in range(0, len(data), 4)])
        if len(data) == 4:
            return f"{socket.inet_ntop(socket.AF_INET, data)}:{int(port, 16)}"
        if data[:12] == bytes(10) + b"\xff\xff":  # IPv4 within IPv6
            return f"{socket.inet_ntop(socket.AF_INET, data[12:])}:{int(port, 16)}"
        return f"[{socket.inet_ntop(socket.AF_INET6, data)}]:{int(port, 16)}"

    def table(pid: int) -> dict[str, list[str]]:
        found = {}
        for family in ("tcp", "tcp6"):
            try:
                lines = read(f"/proc/{pid}/net/{family}", 16777216).splitlines()[1:]
            except OSError:
                continue
            for line in lines:
                words = line.split()
                if len(words) > 9:
                    found[words[9]] = words
        return found

    tables = {}  # of a network namespace: ranks on a node mostly share one, and it is long
    rows = []
    for one in need_ranks()["ranks"][:256]:
        pid = one["pid"]
        row = {"rank": one["rank"], "pid": pid, "sockets": [], "left_out": 0, "why": ""}
        try:
            where = os.readlink(f"/proc/{pid}/ns/net")
            if where not in tables:
                tables[where] = table(pid)
            mine = [tables[where][inode] for inode in reach.sockets(pid, 65536) if inode in tables[where]]
            # Those that wait for an answer or cannot send come first, then who listens.
            mine.sort(key=lambda words: (words[3] != "02", words[6] == "00000000", words[3] != "0A", words[2]))
            row["left_out"] = len(mine[400:])
            for words in mine[:400]:
                timer = words[5].split(":")[0]
                row["sockets"].append(
                    [names.get(words[3], words[3]), address(words[1]), address(words[2]),
                     int(words[4].split(":")[0], 16), timer == "04", int(words[6], 16)]
                )  # fmt: skip
        except (OSError, ValueError, IndexError) as error:
            row["why"] = str(getattr(error, "strerror", None) or error)
        rows.append(json.dumps(row))
    return {"sockets": "\n".join(rows)}


def parse(text: str) -> RankSockets:
    """One JSON object for each rank."""
    parts = sections(text)
    if "sockets" not in parts:
        raise ParseError(f"expected the section sockets, found {', '.join(parts)[:80]}")
    return RankSockets(tuple(_of_rank(row) for row in as_rows(parts["sockets"], "sockets of a rank")[:RANKS]))


def _of_rank(row: dict[str, Any]) -> OfRank:
    rank = whole(row, "rank", "sockets of a rank")
    what = f"sockets of rank {rank}"
    told = row.get("sockets")
    if not isinstance(told, list) or len(told) > MOST:
        raise ParseError(f"{what}: expected at most {MOST} sockets, found {str(told)[:60]!r}")
    sockets = tuple(_socket(one, what) for one in told)
    return OfRank(
        rank, whole(row, "pid", what), sockets, whole_or_none(row, "left_out", what) or 0, word(row, "why", what, 200)
    )


def _socket(one: Any, what: str) -> Socket:
    if not isinstance(one, list) or len(one) != 6 or not isinstance(one[4], bool):
        raise ParseError(f"{what}: expected a socket of 6 fields, found {str(one)[:60]!r}")
    named = dict(zip(("state", "local", "peer", "queue", "window", "tries"), one, strict=True))
    return Socket(
        word(named, "state", what, 12),
        word(named, "local", what, 60),
        word(named, "peer", what, 60),
        send_queue=whole(named, "queue", what),
        probes_window=one[4],
        backoff=whole(named, "tries", what),
    )


def findings(facts: RankSockets) -> Iterator[Finding]:
    """Connections that nobody answers. That a peer takes nothing for a while is how a hang looks from outside."""
    for row in facts.ranks:
        waits = [one for one in row.sockets if one.state == "SYN-SENT" and one.backoff >= UNANSWERED]
        if waits:
            peers = ", ".join(dict.fromkeys(one.peer for one in waits[:3]))
            says = f"rank {row.rank} (pid {row.pid}) gets no answer from {peers}: {waits[0].backoff} tries"
            yield Finding("rank.syn_unanswered", "warn", says, {"rank": row.rank, "pid": row.pid})
        stuck = [one for one in row.sockets if one.state == "ESTAB" and one.backoff >= UNANSWERED]
        if stuck:
            says = f"rank {row.rank} (pid {row.pid}) sends to {stuck[0].peer} in vain: {stuck[0].backoff} tries"
            yield Finding("rank.send_unanswered", "warn", says, {"rank": row.rank, "pid": row.pid})


PROBE = Probe(
    "rank.sockets",
    "Which TCP connections does each rank have, and which of them get no answer?",
    parse,
    findings,
    collect=_collect,
    by_hand="ss -tanpi",
    timeout_s=5.0,
    max_bytes=2_097_152,
    needs="root or the login of the user who trains: sockets of others are hidden",
    brings=(reach,),
    cost="29 ms",
)
