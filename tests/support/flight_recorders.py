"""Flight-recorder dumps for tests: recorded ones, and some made in the same form."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from probes.catalog.recorder.facts import Dump, dump_of
from probes.catalog.recorder.reader import reduce

HANGS = Path(__file__).parents[1] / "fixtures" / "hangs"
STAMP = {
    "rank": 0,
    "pid": 7,
    "host": "n",
    "world_size": 4,
    "how": "file",
    "path": "/tmp/x",
    "mtime": 100.0,
    "at": 100.0,
}


def answer(case: str, rank: int) -> bytes:
    """What the worker server of a rank answered, without the status line of the recording."""
    return (HANGS / case / f"ws_fr_trace_json_rank{rank}.txt").read_bytes().partition(b"\n")[2]


def facts(data: bytes, **stamp: Any) -> Dump:
    return dump_of(reduce(data), {**STAMP, "bytes": len(data), **stamp})


def entry(seq: int, **words: Any) -> dict[str, Any]:
    """An entry in the form of schema 2.10, NCCL."""
    made: dict[str, Any] = {
        "record_id": seq, "pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": seq, "p2p_seq_id": 0,
        "op_id": seq, "profiling_name": "nccl:all_reduce", "time_created_ns": 1_700_000_000_000_000_000 + seq,
        "input_sizes": [[4]], "input_dtypes": ["Float"], "output_sizes": [[4]], "output_dtypes": ["Float"],
        "state": "completed", "time_discovered_started_ns": None, "time_discovered_completed_ns": None,
        "retired": True, "timeout_ms": 600_000, "is_p2p": False,
    }  # fmt: skip
    return {**made, **words}


def dump(*entries: dict[str, Any], protocol: int = 2, **words: Any) -> bytes:
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}}
    whole = {
        "version": "2.10",
        "pg_config": config,
        "comm_lib_version": "2.27.7",
        "pg_status": {},
        "entries": [*entries],
    }
    return pickle.dumps({**whole, **words}, protocol)
