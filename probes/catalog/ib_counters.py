"""What do the interfaces of this node count: pauses, discards, errors, and what rises now?

Source   ethtool's ioctls (linux/ethtool.h: ETHTOOL_GSSET_INFO, GSTRINGS, GSTATS of ETH_SS_STATS), which is what
         `ethtool -S` prints, and /sys/class/net/*/statistics (kernel ABI). Twice, a second apart: what was counted
         before nobody dates. No tool is needed and no right. Each interface in a process of its own: the ioctl waits
         for a lock of the whole network stack, which a dead driver may hold. Never run on an adapter for RoCE
Units    as the driver counts: frames, bytes, microseconds of pauses (mlx5)
Shape    Counters: two sets of each interface, with their times
Errors   ParseError when a line is not what the collector writes
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from probes.catalog._collected import as_rows, number_or_none, whole, word
from probes.catalog.network.net_facts import Counters, CounterSet
from probes.core import Finding, ParseError, Probe, sections
from probes.runner import Absent, isolate, read

__all__ = ["PROBE", "Counters", "findings", "parse"]

MOST = 64  # interfaces
KEPT = 600  # counters of one: a driver counts each queue, which nobody reads here


def _collect() -> Mapping[str, str]:
    import array
    import fcntl
    import json
    import os
    import re
    import socket
    import struct
    import time

    root = "/sys/class/net"
    words = re.compile(
        "pause|discard|drop|err|crc|ecn|cnp|buf|out_of|link_down|symbol|fec|timeout|retrans|congest|_phy$|^[rt]x_bytes$"
    )
    queues = re.compile(r"^[rt]x_?(queue_)?[0-9]+_|^ch[0-9]+_|\[[0-9]+\]")  # of one queue each

    def ioctl(sock: socket.socket, name: str, told: array.array[int]) -> bytes:
        fcntl.ioctl(sock, 0x8946, struct.pack("16sP", name.encode()[:15], told.buffer_info()[0]))  # SIOCETHTOOL
        return told.tobytes()

    def by_driver(sock: socket.socket, name: str) -> dict[str, int]:
        """What `ethtool -S` prints; nothing where the driver has none."""
        try:
            told = ioctl(sock, name, array.array("B", struct.pack("=IIQI", 0x37, 0, 1 << 1, 0)))
            count = struct.unpack("=IIQI", told)[3]
            if not 0 < count <= 20000:
                return {}
            head = struct.pack("=III", 0x1B, 1, count)
            strings = ioctl(sock, name, array.array("B", head + bytes(32 * count)))[len(head) :]
            head = struct.pack("=II", 0x1D, count)
            values = ioctl(sock, name, array.array("B", head + bytes(8 * count)))[len(head) :]
        except OSError:
            return {}
        found = {}
        for at in range(count):
            called = strings[32 * at : 32 * at + 32].split(b"\0")[0].decode("ascii", "replace").strip()
            if words.search(called) and not queues.search(called):
                found[called] = struct.unpack_from("=Q", values, 8 * at)[0]
        return found

    def by_kernel(name: str) -> dict[str, int]:
        found = {}
        folder = f"{root}/{name}/statistics"
        for called in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            try:
                told = read(f"{folder}/{called}", 64).strip()
            except OSError:
                continue
            if words.search(called) and told.isdigit():
                found[called] = int(told)
        return found

    def look(name: str) -> str:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            counters = by_kernel(name)
            counters.update(by_driver(sock, name))
        kept = dict(sorted(counters.items())[:600])
        return json.dumps({"name": name, "at": time.time(), "counters": kept})

    def one(name: str) -> Callable[[], str]:
        def work() -> str:
            first = look(name)
            time.sleep(1.0)  # only what rises in between tells of now
            return first + "\n" + look(name)

        return work

    try:
        names = sorted(os.listdir(root))
    except OSError:
        raise Absent("there is no /sys/class/net here") from None
    names = [name for name in names if os.path.exists(f"{root}/{name}/device")][:64]  # not bridges, veths and the like
    if not names:
        raise Absent("no network interface here has a device behind it")
    told = isolate([(name, one(name)) for name in names], 3.0)
    parts = {f"{row['name']}": row["text"] for row in told if row["outcome"] == "ok"}
    silent = [row["name"] for row in told if row["outcome"] != "ok"]
    if silent:
        parts["golden15/silent"] = " ".join(silent)
    return parts


def parse(text: str) -> Counters:
    """One JSON object per look."""
    found = []
    for title, body in sections(text).items():
        if title.startswith("golden15/"):
            continue
        found += [_set(row) for row in as_rows(body, f"interface {title[:40]}")[:2]]
    return Counters(tuple(found[: 2 * MOST]))


def _set(row: dict[str, Any]) -> CounterSet:
    name = word(row, "name", "interface", 40)
    what = f"interface {name}"
    counters = row.get("counters")
    if not isinstance(counters, dict) or len(counters) > KEPT:
        raise ParseError(f"{what}: expected at most {KEPT} counters, found {str(counters)[:60]!r}")
    told = {word({"n": key}, "n", what, 64): whole(counters, key, what) for key in counters}
    return CounterSet("netdev", name, None, told, number_or_none(row, "at", what))


def findings(facts: Counters) -> Iterator[Finding]:
    """None: what a rise means is judged with the ports of the other nodes and their switches."""
    yield from ()


PROBE = Probe(
    "ib.counters",
    "What do the network interfaces count: pauses, discards, errors, and what rises now?",
    parse,
    findings,
    collect=_collect,
    by_hand="ethtool -S DEVICE; sleep 1; ethtool -S DEVICE",
    timeout_s=5.0,
    touches="stack",
    cost="14 ms",
)
