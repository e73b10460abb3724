"""Commands that change something on a node: an argv template with typed parameters, run once behind a guard.

Nothing a person typed becomes part of a command: parameters come from readings and must be of their type.

Source   reference/remedies.toml
Units    seconds, clock ticks since boot for the start of a process (proc_pid_stat(5), field 22)
Shape    load() -> {id: Remedy}; plan_of() is what the runner is sent; outcome_of() is what became of it
Errors   BadParameter when a value is not of its type
"""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from probes.core import Capture, ParseError, Probe, clean, sections
from probes.reference import rows
from probes.runner import attachment, read, sh
from probes.transport.attachments import of_json
from probes.transport.plan import Plan

ATTACHMENT = "remedy"
DEADLINE_S = 10.0
PID_MOST = 4_194_304  # PID_MAX_LIMIT of 64-bit Linux, include/linux/threads.h
# Reasons that are given before our program can have been sent: nothing was done. After any other, it may have been.
NOT_BEGUN = frozenset(("name_not_found", "refused", "no_route", "connect_timeout", "no_ssh", "sshd_silent", "sshd_busy",
    "key_refused", "no_key", "host_key_unknown", "host_key_changed", "no_common_algorithm", "jump_failed", "bad_config",
    "no_python", "login_closed", "run_deadline", "not_recorded"))  # fmt: skip


class BadParameter(ValueError):
    """A value is not what the command may take. Says which, and what was expected."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """`subject`: keys of a verdict's subject that must be known."""

    id: str
    says: str
    argv: tuple[str, ...]
    undo: tuple[str, ...]
    parameters: Mapping[str, str]
    subject: tuple[str, ...]
    destructive: bool
    source: str

    def command(self, values: Mapping[str, object]) -> list[str]:
        """The words to run. Raises BadParameter."""
        return self._filled(self.argv, values)

    def undoing(self, values: Mapping[str, object]) -> list[str]:
        """The words that take it back, [] where nothing does. Raises BadParameter."""
        return self._filled(self.undo, values)

    def _filled(self, template: Sequence[str], values: Mapping[str, object]) -> list[str]:
        checked = {name: TYPES[kind](name, values.get(name)) for name, kind in self.parameters.items()}
        return [re.sub(r"\{(\w+)\}", lambda found: checked[found.group(1)], word) for word in template]


def _pid(name: str, value: object) -> str:
    if not isinstance(value, int) or not 1 < value <= PID_MOST:
        raise BadParameter(f"{name}: expected the number of a process, 2 to {PID_MOST}, found {value!r:.40}")
    return str(value)


TYPES = {"pid": _pid}


@functools.cache
def load() -> dict[str, Remedy]:
    """Every remedy by its id."""
    return {row["id"]: _remedy(row) for row in rows("remedies")}


def _remedy(row: Mapping[str, Any]) -> Remedy:
    lists = {key: tuple(row[key]) for key in ("argv", "undo", "subject")}
    return Remedy(**{**row, **lists})


def shown(argv: Sequence[str]) -> str:
    """The command as a person would type it."""
    return shlex.join(argv)


# On the node --------------------------------------------------------------------------------------------------------


def _collect() -> Mapping[str, str]:
    import json

    said = json.loads(read(attachment("remedy")))
    guard = said["guard"]
    if guard:
        pid = int(guard["pid"])
        try:
            begun = read(f"/proc/{pid}/stat").rpartition(")")[2].split()[19:20]
        except OSError:
            begun = []
        if begun != [str(guard["started"])]:
            seen = "is another process now" if begun else "is not there any more"
            return {"golden15/refused": f"process {pid} {seen}"}
    rc, out, err = sh(said["argv"], 65536)
    return {"golden15/status": str(rc), "golden15/stdout": out, "golden15/stderr": err}


def parse(text: str) -> Mapping[str, str]:
    """The sections of the answer. Raises ParseError when it is none."""
    found = sections(text)
    if "golden15/refused" not in found and not re.fullmatch(r"-?\d{1,5}", found.get("golden15/status", "").strip()):
        raise ParseError("expected the status of a command, or why it was not run")
    return found


PROBE = Probe(
    "remedy.run",
    "Run one command that a person chose, if what it is for is still there",
    parse,
    lambda _: (),
    collect=_collect,
    timeout_s=DEADLINE_S,
    max_bytes=131_072,
    attachments=(ATTACHMENT,),
)


def plan_of(argv: Sequence[str], guard: Mapping[str, object]) -> Plan:
    """What the runner is sent: the program is constant, the command comes beside it as data."""
    carried = (of_json(ATTACHMENT, {"argv": list(argv), "guard": dict(guard)}),)
    return Plan((PROBE,), deadline_s=DEADLINE_S + 2, attachments=carried)


State = Literal["done", "failed", "unknown"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a command. `unknown`: it may have been run. Never a reason to run it again."""

    state: State
    says: str
    out: str = ""


def outcome_of(capture: Capture, argv: Sequence[str]) -> Outcome:
    """From what came back, or did not."""
    command = shown(argv)
    if capture.outcome != "ok":
        if capture.reason in NOT_BEGUN or capture.outcome in ("absent", "denied"):
            return Outcome("failed", f"Nothing was done on {capture.node}: {capture.why}")
        return Outcome("unknown", f"It is not known whether “{command}” was run on {capture.node}: {capture.why}")
    try:
        found = parse(capture.text)
    except ParseError as error:
        return Outcome("unknown", f"It is not known whether “{command}” was run on {capture.node}: {error}")
    if refused := found.get("golden15/refused"):
        return Outcome(
            "failed", f"Nothing was done on {capture.node}: {clean(refused)}. Look at it again, then choose."
        )
    said = "\n".join(
        part for key in ("golden15/stdout", "golden15/stderr") if (part := clean(found.get(key, "")).strip())
    )
    status = int(found["golden15/status"])
    if status == 0:
        return Outcome("done", f"“{command}” was run on {capture.node}.", said)
    why = said.splitlines()[-1][:200] if said else "it said nothing"
    return Outcome("failed", f"“{command}” failed on {capture.node} with status {status}: {why}", said)
