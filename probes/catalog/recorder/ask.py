"""Asks ranks on a node to write their flight recorder to its file, through the pipe that NCCL's watchdog reads.

Source   ProcessGroupNCCL.cpp, DumpPipe: a FIFO <prefix><rank>.pipe, polled about once a second; any bytes are a request

Brought to the node by rank.flight_recorder_trigger: standard library, the runner's names and the modules brought before
it; nothing newer than Python 3.6 but annotations.

Each rank is asked once. A collector does not know of incidents and may run twice, so what it finds decides: a dump
that is already young is not asked for again, and neither is one whose request still lies unread in the pipe.
"""

from __future__ import annotations

import array
import errno
import fcntl
import json
import os
import stat
import termios
import time
from collections.abc import Callable, Mapping
from typing import Any

from probes.catalog.ranks import reach
from probes.catalog.recorder import on_node
from probes.runner import isolate, need_ranks

YOUNG_S = 900.0  # as long as an incident is meant to last
APPEARS_S = 4.0  # the pipe is read once a second, and a dump without stacks takes less than one more
MOST = 64


def collect() -> Mapping[str, str]:
    rows = [row for row in need_ranks()["ranks"] if row["worker_of"] is None]
    told = []
    answers = isolate([(str(row["pid"]), _asker(row)) for row in rows[:MOST]], APPEARS_S + 2)
    for row, answer in zip(rows, answers):  # noqa: B905  (Python 3.6)
        words = {"rank": row["rank"], "pid": row["pid"], "pipe": "", "path": "", "took_s": None}
        if answer["outcome"] == "ok":
            words.update(json.loads(answer["text"]))
        else:
            words.update({"outcome": "failed", "why": answer["why"]})
        told.append(json.dumps(words))
    return {"golden15/asked": "\n".join(told)}


def _asker(row: Mapping[str, Any]) -> Callable[[], str]:
    def work() -> str:
        prefix = row["env"].get("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "")
        if not prefix.startswith("/"):
            return _told("no pipe", "the job was started without TORCH_NCCL_DEBUG_INFO_PIPE_FILE")
        pipe = reach.inside(row["pid"], f"{prefix}{row['rank']}.pipe")
        before = {path: _written(path) for path in on_node.places(row)}
        youngest = time.time() - max(before.values())
        began = row["start_time"] or 0
        if youngest < YOUNG_S and max(before.values()) >= began - 2:  # older than the rank: it is of an earlier job
            return _told("young", f"a dump of {youngest:.0f} s ago is there", pipe=pipe)
        try:
            why = _write(pipe)
        except OSError as error:
            return _told("failed", f"{pipe}: {error.strerror or error}", pipe=pipe)
        if why:
            return _told("unread", why, pipe=pipe)
        asked = time.monotonic()
        while time.monotonic() - asked < APPEARS_S:
            for path, written in before.items():
                if _written(path) > written:
                    return _told("dumped", "", pipe=pipe, path=path, took_s=round(time.monotonic() - asked, 2))
            time.sleep(0.05)
        return _told("asked", f"no dump within {APPEARS_S:g} s", pipe=pipe)

    return work


def _told(outcome: str, why: str, **words: Any) -> str:
    return json.dumps(dict(words, outcome=outcome, why=why))


def _written(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def _write(pipe: str) -> str:
    """Put the request into the pipe. Returns why it was not put there. Raises OSError."""
    if not stat.S_ISFIFO(os.lstat(pipe).st_mode):
        return "what is there is no pipe"
    try:
        number = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)  # never waits: without a reader it fails
    except OSError as error:
        if error.errno == errno.ENXIO:
            return "nobody reads it: the rank's watchdog has ended"
        raise
    try:
        waiting = array.array("i", [0])
        fcntl.ioctl(number, termios.FIONREAD, waiting)
        if waiting[0]:
            return "it was asked before and has not read that yet: its watchdog may be stuck"
        os.write(number, b"1\n")
    finally:
        os.close(number)
    return ""
