"""Runs one command that people chose, on one node, once. Its row says before that it runs, and after what became of it.

The SSH side is that of the probes: the same runner, host keys and deadlines. In a thread of its own, because Django's
ORM does not run inside a loop.
"""

from __future__ import annotations

import asyncio
import threading

from incidents.asking import settings_of, target_of
from incidents.services import actions
from incidents.services.drilling import is_replay, passed
from probes import remedies
from probes.core import Capture
from probes.remedies import Outcome
from probes.transport import ssh


def mend(action_id: int) -> None:
    """Begin, run and end an action. Does nothing when it is not ready: it was begun before, or is not approved."""
    held = actions.begin(action_id)
    if held is None:
        return
    if is_replay(held.action.incident):
        goes_on = passed(held.action.incident, held.action.remedy)
        command = remedies.shown(held.action.argv)
        then = "goes on as if it had" if goes_on else "knows nothing of what comes after it"
        actions.end(action_id, Outcome("done", f"Drill: “{command}” was not run; the recording {then}."))
        return
    actions.end(action_id, _run(held))


def _run(held: actions.Held) -> Outcome:
    plan = remedies.plan_of(held.action.argv, held.action.guard)
    settings = settings_of(held.node.fleet)
    settings.node_s = plan.deadline_s + settings.connect_s + 5
    found: list[Capture | BaseException] = []

    async def ask() -> None:
        async for item in ssh.ask([target_of(held.node)], plan, settings):
            if isinstance(item, Capture):
                found.append(item)

    def run() -> None:
        try:
            asyncio.run(ask())
        except BaseException as error:  # told below: whatever it was, the command may have been run
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(settings.node_s + 10)
    first = found[0] if found else None
    if isinstance(first, Capture):
        return remedies.outcome_of(first, held.action.argv)
    command = remedies.shown(held.action.argv)
    return Outcome(
        "unknown", f"It is not known whether “{command}” was run on {held.node}: {first or 'no answer came'}"
    )
