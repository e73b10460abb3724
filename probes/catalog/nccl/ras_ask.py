"""Asks NCCL's RAS on this node, twice. SENT TO THE NODE with nccl.ras's collector.

One connection, a few lines of text, an answer, the end of the connection. Every process of a user listens on one
address (SO_REUSEPORT), so with two jobs on a node two connections may meet two jobs. A job in a container may have a
network of its own: then the child that asks enters it, which root alone may do.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from typing import Any

from probes.runner import Absent, isolate, rank_scan

ADDRESS = "localhost:28028"
ANSWER_S = 2.6  # of one poll, with what the job's other nodes take to answer
APART_S = 1.0
MANY_ADDRESSES = 4
FEW_RANKS = 256  # in all communicators together: so few are sent as they are
OUTLIERS = 32
ANSWER_BYTES = 33554432
SENT_BYTES = 700000  # of one answer
NO_ONE = "nobody listens: NCCL before 2.24, NCCL_RAS_ENABLE=0, or no communicator yet"


def node_ras() -> dict[str, str]:
    """The sections of nccl.ras: `asked`, then `poll 1` and `poll 2`. Raises Absent when nobody answers."""
    rows = rank_scan()["ranks"]
    own = {pid for row in rows for pid in row["ns_pids"] or [row["pid"]]}
    calls = [(address, _asker(address, pid, own)) for address, pid in _places(rows)]
    results = isolate(calls, 2 * ANSWER_S + APART_S + 0.8, 1600000)
    others = [[result["name"], result["outcome"], result["why"]] for result in results if result["outcome"] != "ok"]
    answered = [result for result in results if result["outcome"] == "ok"]
    if not answered:
        why = "; ".join(f"{name}: {reason}" for name, _, reason in others)[:400]
        if all(outcome == "absent" for _, outcome, _ in others):
            raise Absent(why)
        raise OSError(why)
    head, _, text = answered[0]["text"].partition("\n")
    said = json.loads(head)
    asked = {"address": answered[0]["name"], "at": said["at"], "other": [[name, why] for name, _, why in others]}
    asked["other"] += [[result["name"], "it answers too, for another job"] for result in answered[1:]]
    return {
        "asked": json.dumps(asked),
        "poll 1": text[: said["first"]],
        "poll 2": text[said["first"] :],
    }


def _places(rows: list[dict[str, Any]]) -> list[tuple[str, int]]:
    """(address, process whose network it is in; 0: the node's own), those of ranks first."""
    mine = _network("self")
    found: list[tuple[str, int]] = []
    for row in rows:
        inside = _network(row["pid"])
        address = row["env"].get("NCCL_RAS_ADDR", ADDRESS)
        place = (address, row["pid"] if inside and inside != mine else 0)
        if not any(address == known and _network(pid or "self") == inside for known, pid in found):
            found.append(place)
    return (found or [(ADDRESS, 0)])[:MANY_ADDRESSES]


def _network(pid: Any) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return ""


def _asker(address: str, pid: int, own: set[int]) -> Callable[[], str]:
    def work() -> str:
        if pid:
            _enter(pid)
        ends = time.monotonic() + 2 * ANSWER_S + APART_S
        try:
            began = time.time()
            first = ask(address, ANSWER_S)
            time.sleep(APART_S)
            at = [began, time.time()]
            second = ask(address, ANSWER_S)
            for _ in range(3):  # another job's process may have taken the connection
                if same_job(first, second) or time.monotonic() > ends - 1:
                    break
                at[1] = time.time()
                second = ask(address, 1.0)
        except ConnectionRefusedError:
            raise Absent(NO_ONE)  # noqa: B904
        except socket.timeout:  # noqa: UP041  (no TimeoutError before Python 3.10)
            raise OSError(f"it took the connection and did not answer within {ANSWER_S} s")  # noqa: B904
        first, second = small(first, own), small(second, own)
        return json.dumps({"at": at, "first": len(first)}) + "\n" + first + second

    return work


def _enter(pid: int) -> None:
    """setns(2) into the network of a process. Raises OSError: only root may."""
    import ctypes

    handle = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(handle, 0x40000000) != 0:
        raise OSError(ctypes.get_errno(), "the ranks have a network of their own, which only root may enter")
    os.close(handle)


def ask(address: str, seconds: float) -> str:
    """One report: JSON where RAS knows it (2.28.7), else text. Raises OSError; refused when nobody is there."""
    ends = time.monotonic() + seconds
    host, _, port = address.rpartition(":")
    link = socket.create_connection((host.strip("[]") or "localhost", int(port)), timeout=1.0)
    try:
        link.settimeout(seconds)
        link.sendall(b"TIMEOUT 2\nSET FORMAT json\n")  # seconds that RAS waits for the job's other nodes
        head = b""
        while head.count(b"\n") < 2:
            head += _receive(link, ends)
        link.sendall(b"VERBOSE STATUS\n")
        parts = [head.split(b"\n", 2)[2]]
        size = len(parts[0])
        while size < ANSWER_BYTES:
            link.settimeout(max(0.01, ends - time.monotonic()))
            data = link.recv(65536)
            if not data:
                break
            parts.append(data)
            size += len(data)
    finally:
        link.close()
    return b"".join(parts).decode("utf-8", "replace")


def _receive(link: socket.socket, ends: float) -> bytes:
    link.settimeout(max(0.01, ends - time.monotonic()))
    data = link.recv(4096)
    if not data:
        raise OSError("it closed the connection before it answered: not NCCL's RAS?")
    return data


def same_job(first: str, second: str) -> bool:
    """Whether two answers share a communicator. Text tells the names of communicators only where something is wrong."""
    try:
        hashes = [{one["hash"] for one in json.loads(text)["communicators"]} for text in (first, second)]
    except (ValueError, KeyError, TypeError):
        return True
    return bool(hashes[0] & hashes[1]) or not hashes[0] or not hashes[1]


def small(text: str, own: set[int]) -> str:
    """An answer without blanks. Every node of a job gets the same one, so of a large job a node sends its own ranks,
    those that stand out, and how many launched how many. `own`: process ids, as the processes see them."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("==> ")]
    if not text.lstrip().startswith("{"):
        return "\n".join(lines)[:SENT_BYTES]
    try:
        said = json.loads(text)
        if sum(len(one["ranks"]) for one in said["communicators"]) > FEW_RANKS:
            said["communicators"] = [one for one in said["communicators"] if _matters(one, own)]
    except (ValueError, KeyError, TypeError):  # 2.28.9 forgets a comma; the controller puts it back
        return "\n".join(line.strip() for line in lines)[:SENT_BYTES]
    return json.dumps(said, separators=(",", ":"))[:SENT_BYTES]


def _matters(communicator: dict[str, Any], own: set[int]) -> bool:
    """Whether any rank is left when those are taken out that are in step with most and on another node."""
    alike: dict[str, list[Any]] = {}
    tally: dict[str, dict[str, int]] = {}
    for rank in communicator["ranks"]:
        alike.setdefault(json.dumps([rank["status"], rank["collective_counts"]], sort_keys=True), []).append(rank)
        for op, count in rank["collective_counts"].items():
            counts = tally.setdefault(op, {})
            counts[str(count)] = counts.get(str(count), 0) + 1
    crowd = max(alike.values(), key=len, default=[])
    kept = [rank for rank in communicator["ranks"] if rank["pid"] in own]
    matters = bool(kept) or len(alike) > 1 or bool(communicator.get("missing_ranks"))
    for ranks in alike.values():
        kept += [rank for rank in ranks if rank["pid"] not in own][: 1 if ranks is crowd else OUTLIERS]
    communicator["golden15_left_off"] = len(communicator["ranks"]) - len(kept)
    communicator["golden15_tally"] = tally
    communicator["ranks"] = kept
    return matters
