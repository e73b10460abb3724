"""The runner as a file for nodes that let nobody send programs: a forced command of authorized_keys(5) that takes the
names of probes and nothing else.

Source   sshd(8), AUTHORIZED_KEYS FILE FORMAT: `restrict` and `command=`
Shape    program() -> the file; `serve` is its end, and runs on the node
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from typing import Any

from probes import catalog, runner
from probes.runner import MARK, main
from probes.transport.plan import Plan

LINE = 65536  # bytes of what is asked


def program() -> str:
    """A Python program of one file, with every probe in it. It needs Python 3.6 and nothing else."""
    known = json.dumps(Plan(tuple(catalog.load().values())).as_json())
    serving = inspect.getsource(serve).replace("LINE", str(LINE)).replace("known: Any", "known")
    return f"#!/usr/bin/python3 -ISu\n{inspect.getsource(runner)}\n\n{serving}\n\nserve(json.loads({known!r}))\n"


def serve(known: Any) -> None:
    """Run what is asked for by name in the first line of standard input. Nothing that is sent is ever executed."""
    print(MARK + "installed", flush=True)
    try:
        asked = json.loads(sys.stdin.buffer.readline(LINE).decode("utf-8"))
        names = [str(name) for name in asked["probes"]][:256]
        seconds = min(max(1.0, float(asked["deadline_s"])), 120.0)
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        print("golden15: expected one line of JSON with the names of probes and a deadline, and no program", flush=True)
        os._exit(64)
    by_name = {probe["name"]: probe for probe in known["probes"]}
    for name in names:
        if name not in by_name:
            why = "the runner that is installed on this node does not know this probe: install the present one"
            words = {"kind": "capture", "probe": name, "outcome": "skipped", "why": why}
            print(MARK + json.dumps(words), flush=True)
    known["probes"] = [by_name[name] for name in names if name in by_name]
    why = "this node runs an installed runner, which is sent no files"
    known["not_attached"] = {name: why for probe in known["probes"] for name in probe.get("attachments", ())}
    known["deadline_s"] = seconds
    main(known, True)


def asking(plan: Plan) -> bytes:
    """The line that an installed runner takes."""
    words = {"probes": [probe.name for probe in plan.probes], "deadline_s": plan.deadline_s}
    return json.dumps(words).encode() + b"\n"
