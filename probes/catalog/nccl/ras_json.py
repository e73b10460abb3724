"""NCCL RAS's answer as JSON (SET FORMAT json, NCCL 2.28.7 and later) into a Report.

Source   NCCL src/ras/client_support.cc; init_state and async_error are ncclResult_t (nccl.h)
Units    counts of launches
Shape    Report
Errors   ParseError when it is not that JSON. 2.28.9 leaves out a comma in missing_ranks: that is put back
"""

from __future__ import annotations

import json
import re
from typing import Any

from probes.catalog.nccl.ras_facts import Communicator, Member, Missing, Report, counted
from probes.core import ParseError, clean

MANY_MEMBERS = 65536
_NO_COMMA = re.compile(r'("nvml_dev": -?\d{1,9})(\s{0,40}"status")')
_RESULTS = {
    1: "Unhandled CUDA error", 2: "System error", 3: "Internal error", 4: "Invalid argument", 5: "Invalid usage",
    6: "Remote process error",
}  # fmt: skip
_IN_PROGRESS = 7


def of_json(text: str) -> Report:
    """One answer. Raises ParseError."""
    try:
        said = json.loads(_NO_COMMA.sub(r"\1,\2", text))
        communicators = said["communicators"]
        found = tuple(_communicator(one) for one in communicators)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise ParseError(f"expected RAS's JSON ({type(error).__name__}: {error}), found {text[:60]!r}") from None
    if sum(len(one.members) for one in found) > MANY_MEMBERS:
        raise ParseError(f"RAS names more than {MANY_MEMBERS} ranks: the answer was not reduced on the node")
    ras = said.get("ras") if isinstance(said.get("ras"), dict) else {}
    gone = {(missing.host, missing.pid): missing for one in found for missing in one.missing if missing.unresponsive}
    processes = tuple(
        Missing(None, missing.host, missing.pid, missing.gpus, True, missing.dead) for missing in gone.values()
    )
    return Report(
        _text(said.get("nccl_version")),
        _number(said.get("cuda_driver_version")),
        found,
        processes=processes,
        timeouts=_number(ras.get("timeouts_count")) or 0,
        total=_number(said.get("communicators_count")),
        left_off=sum(_number(one.get("golden15_left_off")) or 0 for one in communicators),
    )


def _communicator(said: dict[str, Any]) -> Communicator:
    members = tuple(_member(one) for one in said["ranks"])
    missing = tuple(_missing(one) for one in said.get("missing_ranks", ()))
    counts = counted(members, _tally(said.get("golden15_tally")))
    states = {member.state for member in members} | ({"NOCOMM"} if any(not m.unresponsive for m in missing) else set())
    errors = [
        word
        for word, true in (
            ("INCOMPLETE", any(one.unresponsive for one in missing)),
            ("ERROR", any(member.error for member in members)),
            ("MISMATCH", bool(counts) or len(states) > 1),
        )
        if true
    ]
    status = next((word for word in ("ABORT", "FINALIZE", "RUNNING", "INIT", "NOCOMM") if word in states), "")
    return Communicator(
        _text(said["hash"]).removeprefix("0x"),
        _number(said.get("size")),
        _number(said.get("ranks_count")),
        status,
        tuple(errors),
        members,
        missing,
        counts,
    )


def _member(said: dict[str, Any]) -> Member:
    status = said.get("status", {})
    init, asynchronous = _number(status.get("init_state")), _number(status.get("async_error"))
    if status.get("abort_flag"):
        state = "ABORT"
    elif status.get("finalize_called") or status.get("destroy_flag"):
        state = "FINALIZE"
    else:
        state = "" if init is None else "RUNNING" if init == 0 else "INIT"
    wrong = [code for code in (init, asynchronous) if code not in (None, 0, _IN_PROGRESS)]
    counts = {_text(op): number for op, value in said.get("collective_counts", {}).items()
              if (number := _number(value)) is not None}  # fmt: skip
    return Member(
        int(said["rank"]),
        _text(said.get("host")),
        _pid(said.get("pid")),
        _number(said.get("cuda_dev")),
        _number(said.get("nvml_dev")),
        state,
        _RESULTS.get(wrong[0] or 0, f"error {wrong[0]}") if wrong else "",
        counts,
    )


def _tally(said: object) -> dict[str, dict[int, int]]:
    """What the node counted before it left ranks out: operation -> launches -> ranks."""
    found: dict[str, dict[int, int]] = {}
    for op, counts in said.items() if isinstance(said, dict) else ():
        found[_text(op)] = {int(count): int(number) for count, number in counts.items()}
    return found


def _missing(said: dict[str, Any]) -> Missing:
    status = said.get("status", {})
    gpu = _number(said.get("cuda_dev"))
    return Missing(
        int(said["rank"]),
        _text(said.get("host")),
        _pid(said.get("pid")),
        "" if gpu is None else str(gpu),
        status.get("unresponsive") is True,
        status.get("considered_dead") is True,
    )


def _text(value: object) -> str:
    return clean(value)[:120] if isinstance(value, str) else ""


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63 else None


def _pid(value: object) -> int | None:
    """RAS writes -1 for a process it does not know."""
    number = _number(value)
    return None if number is None or number < 0 else number
