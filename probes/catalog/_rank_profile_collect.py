"""Samples where each rank on a node spends its time, without stopping or signalling any of them.

Brought to the node by rank.profiles: standard library, the runner's names and the modules brought before it; nothing
newer than Python 3.6 but annotations.

- `py-spy record --nonblocking` only reads memory, 100 times a second for three seconds: twice side by side, once for
  all running threads and once for whoever holds the interpreter's lock. Two times 0.02 s of a core for a rank.
- Its samples go to its error output: to the other one it prints words of its own, and no file may be left.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping

from probes.catalog import _rank_stack_collect
from probes.runner import isolate, need_ranks, process_state, sh, which

MOST = 16  # ranks: those of one node, and as many again
SECONDS, RATE = 3, 100
OUT_BYTES = 1048576


def collect() -> Mapping[str, str]:
    scan = need_ranks()
    rows = sorted(
        (row for row in scan["ranks"] if row["worker_of"] is None), key=lambda row: (row["rank"] is None, row["rank"])
    )
    tool, how = _rank_stack_collect.tool_of_all()
    parts = {
        "golden15/tool": json.dumps(
            {"tool": how if tool else _rank_stack_collect.NOT_HAD, "left_out": len(rows[MOST:]), "seconds": SECONDS}
        )
    }
    calls, about = [], []
    for row in rows[:MOST]:
        for lock in (False, True):
            about.append({"pid": row["pid"], "rank": row["rank"], "lock": lock})
            calls.append((str(row["pid"]), _samples_of(row["pid"], tool or how, bool(tool), lock)))
    for told, answer in zip(about, isolate(calls, SECONDS + 4.0, OUT_BYTES)):  # noqa: B905  (Python 3.6)
        said = {"why": answer["why"], "text": ""}
        if answer["outcome"] == "ok":
            said = json.loads(answer["text"])
        parts[f"golden15/profile {told['pid']} {'lock' if told['lock'] else 'all'}"] = json.dumps(dict(told, **said))
    return parts


def _samples_of(pid: int, path: str, had: bool, lock: bool) -> Callable[[], str]:
    def work() -> str:
        state, _, _ = process_state(pid)
        if state in ("", "D", "T", "t", "Z"):
            return json.dumps({"why": f"not sampled: it is in state {state}" if state else "it has ended", "text": ""})
        spy = path if had else _rank_stack_collect.beside(pid)
        if not spy:
            return json.dumps({"why": path, "text": ""})
        command = [spy, "record", "--nonblocking", "--format", "raw", "--rate", str(RATE), "--duration", str(SECONDS),
            "--output", "/dev/stderr", "--pid", str(pid)] + (["--gil"] if lock else [])  # fmt: skip
        denied = _rank_stack_collect.DENIED
        try:
            code, out, err = sh(command, OUT_BYTES)
        except OSError as error:  # made for another kind of processor
            return json.dumps({"why": f"py-spy cannot be run here: {error.strerror}", "text": ""})
        if code and os.getuid() != 0 and any(word in err for word in denied) and which("sudo"):
            code, out, err = sh(["sudo", "-n"] + command, OUT_BYTES)
        if code == 0:
            return json.dumps({"why": "", "text": err})
        if any(word in err for word in denied):
            return json.dumps({"why": _rank_stack_collect.MAY_NOT, "text": ""})
        return json.dumps({"why": f"py-spy: {err.strip()[:240]}", "text": ""})

    return work
