"""Lines that a collector wrapped in JSON: one object a line, with the text of the program in one of its fields.

Source   Docker's json-file driver ({"log", "stream", "time"}); Fluent Bit and Logstash ({"message", "@timestamp"});
         Google Cloud Logging ({"textPayload", "timestamp"}); python-json-logger ({"message", "asctime", "rank"})
Units    none
Shape    unwrapped(row) -> (text with its time and rank in front, who wrote it), None when it is no such line
Errors   none
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

TEXTS = ("log", "message", "msg", "textPayload", "MESSAGE", "line")
TIMES = ("time", "timestamp", "@timestamp", "ts", "asctime", "_timestamp", "wall_time")  # two of W&B, TensorBoard
RANKS = ("rank", "global_rank", "world_rank", "rank_id")
RAISED = ("exc_info", "exception", "exc", "traceback", "stack_trace", "error")  # python-json-logger, structlog, own
STEPS = ("step", "iteration", "iter", "epoch")
MOST_ROWS = 60  # of a traceback; a line is read in pieces, no more than so many
_CUT = re.compile(r'"(?:log|message|msg|textPayload|MESSAGE)" ?: ?"((?:[^"\\]|\\.){1,8000})')
_ESCAPES = {"\\n": "\n", "\\t": "\t", '\\"': '"', "\\r": "\n"}


def unwrapped(row: str) -> tuple[str, str] | None:
    if not any(f'"{name}"' in row[:4096] for name in TEXTS) and '"level"' not in row[:4096]:
        return _step(row) if any(f'{name}"' in row[:4096] for name in STEPS) else None
    try:
        said = json.loads(row)
    except (ValueError, RecursionError):
        found = _CUT.search(row)  # it was cut on its way: the text is there all the same
        return (re.sub(r'\\[nrt"]', lambda part: _ESCAPES[part[0]], found[1]), "") if found else None
    if not isinstance(said, dict):
        return None
    texts = TEXTS if any(name in said for name in STEPS) else (*TEXTS, "event")  # structlog's, not a row of metrics
    text = next((said[name] for name in texts if isinstance(said.get(name), str)), None)
    if text is None:
        return _step(row) if any(name in said for name in STEPS) else None
    rank = next((said[name] for name in RANKS if name in said), None)
    mark = f"[rank{rank}]: " if isinstance(rank, int) and 0 <= rank < 10**7 and "[rank" not in text[:40] else ""
    raised = next((said[name] for name in RAISED if isinstance(said.get(name), str)), "")
    rows = f"{text}\n{raised}" if raised.strip() and raised not in text else text
    return _time(said) + "\n".join(mark + row for row in rows.split("\n")[:MOST_ROWS]), _writer(said)


def _step(row: str) -> tuple[str, str] | None:
    """A row of metrics, with its time in front of it."""
    try:
        said = json.loads(row)
    except (ValueError, RecursionError):
        return None
    stamp = _time(said) if isinstance(said, dict) else ""
    return (stamp + row, "") if stamp else None


def _time(said: dict[str, Any]) -> str:
    stamp = next((said[name] for name in TIMES if name in said), None)
    if isinstance(stamp, int | float) and not isinstance(stamp, bool):
        seconds = stamp / 1000 if stamp > 1e11 else stamp
        if 0 < seconds < 1e11:
            return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ ")
    return f"{stamp[:40]} " if isinstance(stamp, str) and re.match(r"\d{4}-\d\d-\d\d[ T]\d\d:", stamp) else ""


def _writer(said: dict[str, Any]) -> str:
    """The pod, where many write to one file."""
    about = said.get("kubernetes")
    name = about.get("pod_name") if isinstance(about, dict) else said.get("pod")
    return name[:80] if isinstance(name, str) else ""
