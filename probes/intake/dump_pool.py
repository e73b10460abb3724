"""Dumps of the flight recorder, reduced in a few processes side by side while the other files are read.

Shape    take(item, data) -> the nodes that it names; ended() -> DumpFile for each, in their order
Errors   none: a dump that is refused tells why
"""

from __future__ import annotations

import json
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor

from probes.catalog.recorder.apart import Apart
from probes.catalog.recorder.decode import Refused
from probes.intake.brought import DumpFile
from probes.intake.clues import threads_of, world_of
from probes.intake.items import Item
from probes.intake.many_dumps import dumps_in
from probes.intake.names import stem

HELPERS = min(4, os.cpu_count() or 1)
WAITING = 2 * HELPERS  # dumps in memory at a time


class DumpPool:
    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(HELPERS)
        self._room = threading.Semaphore(WAITING)
        self._mine = threading.local()
        self._helpers: list[Apart] = []
        self._dumps: list[Future[DumpFile]] = []

    def take(self, item: Item, data: bytes) -> set[str]:
        """A dump, or those of several ranks in one file. Waits while WAITING of them are in memory."""
        parts = [(item, data)]
        named = set()
        for at, (rank, node, body) in enumerate(dumps_in(data)):
            named |= {node} - {""}
            inside = item.inside.parent / (node or stem(item.name)) / f"rank{rank}.json"
            one = json.dumps(body).encode()
            parts[at : at + 1] = [(Item(f"{item.ref}: rank {rank}", inside, one, mtime=item.mtime), one)]
        for part, own in parts:
            self._room.acquire()
            self._dumps.append(self._pool.submit(self._dump, part, own))
        return named

    def _dump(self, item: Item, data: bytes) -> DumpFile:
        try:
            if not hasattr(self._mine, "apart"):
                self._mine.apart = Apart()
                self._helpers.append(self._mine.apart)
            told = self._mine.apart.reduce(data)
            packed = json.dumps(told, separators=(",", ":")).encode()
            return DumpFile(
                item.ref, item.inside, len(data), packed, threads=frozenset(threads_of(told)), world=world_of(told)
            )
        except Refused as error:
            return DumpFile(item.ref, item.inside, len(data), None, str(error))
        finally:
            self._room.release()

    def ended(self) -> list[DumpFile]:
        return [future.result() for future in self._dumps]

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        for helper in self._helpers:
            helper.close()
