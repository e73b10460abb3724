"""Samples where each rank on a node spends its time, without stopping or signalling any of them.

Brought to the node by rank.profiles: standard library, the runner's names and the modules brought before it; nothing
newer than Python 3.6 but annotations.

- `py-spy record --nonblocking` only reads memory, 100 times a second for three seconds: twice side by side, once for
  all running threads and once for whoever holds the interpreter's lock. Two times 0.02 s of a core for a rank.
- Its samples go to its error output: to the other one it prints words of its own, and no file may be left.
- Native code is sampled by perf, where it is installed: py-spy would have to stop the process for that. Of the main
  thread alone, 49 times a second for two seconds, with 8 KiB of its stack each time, through a pipe.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from probes.catalog.stacks import stack_collect
from probes.runner import isolate, need_ranks, process_state, sh, which

MOST = 16  # ranks: those of one node, and as many again
SECONDS, RATE = 3, 100
OUT_BYTES = 1048576
# What sudo is asked for, as sudoers(5) matches it: nothing but its error output can be written to.
RECORD = (
    f"^record --nonblocking --format raw --rate {RATE} --duration {SECONDS} --output /dev/stderr --pid [0-9]+( --gil)?$"
)


def collect() -> Mapping[str, str]:
    scan = need_ranks()
    rows = sorted(
        (row for row in scan["ranks"] if row["worker_of"] is None), key=lambda row: (row["rank"] is None, row["rank"])
    )
    tool, how = stack_collect.tool_of_all()
    parts = {
        "golden15/tool": json.dumps(
            {"tool": how if tool else stack_collect.NOT_HAD, "left_out": len(rows[MOST:]), "seconds": SECONDS}
        )
    }
    calls, about = [], []
    perf = which("perf")
    for row in rows[:MOST]:
        for kind in ("all", "lock", "native")[: 3 if perf else 2]:
            about.append({"pid": row["pid"], "rank": row["rank"], "lock": kind == "lock", "native": kind == "native"})
            call = _samples_of(row["pid"], tool or how, bool(tool), kind == "lock")
            calls.append((str(row["pid"]), _native_of(row["pid"], perf) if perf and kind == "native" else call))
    for told, answer in zip(about, isolate(calls, SECONDS + 4.0, OUT_BYTES)):  # noqa: B905  (Python 3.6)
        said = {"why": answer["why"], "text": ""}
        if answer["outcome"] == "ok":
            said = json.loads(answer["text"])
        kind = "lock" if told["lock"] else "native" if told["native"] else "all"
        parts[f"golden15/profile {told['pid']} {kind}"] = json.dumps(dict(told, **said))
    return parts


def _samples_of(pid: int, path: str, had: bool, lock: bool) -> Callable[[], str]:
    def work() -> str:
        state, _, _ = process_state(pid)
        if state in ("", "D", "T", "t", "Z"):
            return json.dumps({"why": f"not sampled: it is in state {state}" if state else "it has ended", "text": ""})
        spy = path if had else stack_collect.beside(pid)
        if not spy:
            return json.dumps({"why": path, "text": ""})
        command = [spy, "record", "--nonblocking", "--format", "raw", "--rate", str(RATE), "--duration", str(SECONDS),
            "--output", "/dev/stderr", "--pid", str(pid)] + (["--gil"] if lock else [])  # fmt: skip
        denied = stack_collect.DENIED
        try:
            code, out, err = stack_collect.as_may_be(command, OUT_BYTES)
        except OSError as error:  # made for another kind of processor
            return json.dumps({"why": f"py-spy cannot be run here: {error.strerror}", "text": ""})
        if code == 0:
            return json.dumps({"why": "", "text": err})
        if any(word in err for word in denied):
            return json.dumps({"why": stack_collect.may_not(spy, RECORD), "text": ""})
        return json.dumps({"why": f"py-spy: {err.strip()[:240]}", "text": ""})

    return work


def _native_of(pid: int, perf: str) -> Callable[[], str]:
    """Stacks of the main thread with native frames, put together: outermost first, as `function (library)`."""

    def work() -> str:
        state, _, _ = process_state(pid)
        if state in ("", "D", "T", "t", "Z"):
            return json.dumps({"why": f"not sampled: it is in state {state}" if state else "it has ended", "text": ""})
        line = (
            '"$0" record -q -F 49 -e cpu-clock:u --call-graph dwarf,8192 -o - -t "$1" -- sleep 2'
            ' | "$0" script -i - -F comm,tid,time,event,ip,sym,dso'
        )
        code, out, err = sh(["sh", "-c", line, perf, str(pid)], 16777216)
        stacks = _folded(out)
        if not stacks and err.strip() and ("ermission" in err or "paranoid" in err):
            return json.dumps({"why": "perf may not sample it: kernel.perf_event_paranoid or rights", "text": ""})
        return json.dumps({"why": "" if stacks else f"perf: {err.strip()[:160]}" if code else "", "text": stacks})

    return work


def _folded(out: str) -> str:
    stacks: dict[str, int] = {}
    frames: list[str] = []
    for line in out.splitlines() + [""]:
        words = line.split(None, 1)
        if line[:1] in "\t " and len(words) == 2:
            function, _, library = words[1].rpartition(" (")
            function = function.split("+0x")[0].replace(";", ":")
            if function and library != "inlined)":
                frames.append(f"{function} ({library[:-1].rpartition('/')[2]})")
        elif not line.strip() and frames:
            key = ";".join(reversed(frames[:200]))
            stacks[key] = stacks.get(key, 0) + 1
            frames = []
    told = sorted(stacks.items(), key=lambda item: -item[1])[:400]
    return "\n".join([f"{stack} {count}" for stack, count in told])
